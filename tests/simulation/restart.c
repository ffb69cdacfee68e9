/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that is restarted: its trainers live on, come back in any order, or not at all, and say what they
 * know. The former run may have left a trace as well. The machine's own code judges both; this file does the
 * rest of a real daemon's work.
 */
#include <string.h>

#include "rendezvous/machine/words.h"
#include "sim.h"

#define PATIENCE 60u /* for trainers that have not come back */

void restart_note_open(uint32_t proc, uint32_t track, uint64_t number) {
        if (w.traced)
                w.proc[proc].trace[track] = (struct trace){ .known = true, .step = number };
}

void restart_note_begun(uint32_t proc, uint32_t track) {
        w.proc[proc].trace[track].begun = true;
}

void restart_note_done(uint32_t proc, uint32_t track) {
        w.proc[proc].trace[track].done = true;
}

void restart_note_void(uint32_t proc, uint32_t track) {
        w.proc[proc].trace[track].step = 0;
}

/* The numbers of its steps are others from now on. */
void restart_note_track(uint32_t proc, uint32_t unit) {
        w.proc[proc].trace[unit] = (struct trace){ .known = w.traced };
}

/* The trace of a generation begins with nothing. */
void restart_note_generation(uint32_t proc) {
        for (uint32_t unit = 0; unit < TRACKS; unit++)
                restart_note_track(proc, unit);
}

/* Whether all that the daemon has begun is at its end: an orderly end waits for that. */
bool restart_is_quiet(uint32_t proc) {
        for (uint32_t track = 0; track < TRACKS; track++) {
                const struct local *local = &w.proc[proc].local[track];

                if (!local->active)
                        continue;
                for (uint32_t item = 0; item < w.items[track]; item++)
                        if (local->begun[item])
                                return false;
                if (local->cancelled)
                        return false;
        }
        return true;
}

/* Everything that dies with the process is gone; trainers, their arenas and the trace are not. */
void restart_down(uint32_t proc, bool orderly) {
        struct proc *p = &w.proc[proc];

        trace("%u is restarted%s", proc, orderly ? ", and has said so" : "");
        if (p->node.origin != ORIGIN_AWAITED) {
                memcpy(p->past, p->trace, sizeof(p->past));
                memcpy(p->past_track, p->track_of, sizeof(p->past_track));
                for (uint32_t plan = TRACK_STEP; plan < TRACKS; plan++)
                        p->past_before[plan] = truth_units_before(proc, plan);
                for (uint32_t track = 0; track < TRACKS; track++)
                        p->past_steps[track] = p->node.track[track].committed;
                for (uint32_t track = 0; track < TRACKS; track++)
                        if (p->local[track].active || p->node.origin == ORIGIN_OWN)
                                p->former[track] = p->local[track];
        }
        p->alive = p->stopped = p->ending = p->torn = p->fresh = false;
        p->epoch++;
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                trainer->epoch++;
                if (trainer->state == TRAINER_OVER || trainer->leaving)
                        trainer->state = TRAINER_NONE;
                for (uint32_t track = 0; track < TRACKS; track++)
                        trainer->news[track].come = false; /* what it has not heard it never will */
                if (trainer->state != TRAINER_AWAY)
                        trainer->orderly = orderly && trainer->in;
                trainer->told = trainer->returns = false;
                if (trainer->state != TRAINER_NONE)
                        trainer->state = TRAINER_AWAY;
        }
}

/* A new trainer is faster than all former ones: the daemon knows of no other one when it first speaks. */
static bool somebody_new_is_first(uint32_t proc) {
        for (uint32_t i = 0; i < w.size[proc] && w.n_procs > 1 && rnd(3) == 0; i++)
                if (w.proc[proc].trainer[i].state == TRAINER_NONE) {
                        member_hire_new(proc, i);
                        return true;
                }
        return false;
}

/* The first trainer has come: from now on the node waits for the others, as do those that came before. */
static void expect(uint32_t proc) {
        struct node *node = &w.proc[proc].node;
        struct node_config config = node->config;
        struct outlet out = node->out;
        struct report_member waiting[LIMIT_SEATS];
        uint32_t n = node->n;

        memcpy(waiting, node->member, n * sizeof(*waiting));
        w.proc[proc].late = false;
        node_init(node, &config, clock_of(&w.proc[proc]), &out);
        node_expect(node, clock_of(&w.proc[proc]));
        for (uint32_t i = 0; i < n; i++)
                node_join(node, clock_of(&w.proc[proc]), &waiting[i].request, &waiting[i].tag);
}

void restart_up(uint32_t proc) {
        struct proc *p = &w.proc[proc];

        p->expects = true;
        proc_start(proc);
        p->expects = false;
        memset(p->trace, 0, sizeof(p->trace));
        p->may_resume = false;
        p->awaits = true;
        p->late = somebody_new_is_first(proc);
        if (!p->late)
                node_expect(&p->node, clock_of(p));
        truth_restarted(proc);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (p->trainer[i].state == TRAINER_AWAY && rnd(8) != 0) {
                        uint32_t delay = rnd(rnd(4) == 0 ? PATIENCE + 20 : PATIENCE - 1);

                        w.gentle &= delay < PATIENCE;
                        at(delay, EVENT_REJOIN, proc, i, 0, 0);
                } else if (p->trainer[i].state == TRAINER_AWAY) {
                        member_vanish(proc, i);
                }
        at(PATIENCE, EVENT_RESTORE, proc, 0, 0, 0);
}

static bool belongs(const struct trainer *trainer) {
        return trainer->state == TRAINER_AWAY && trainer->in;
}

/* Its rank's word, and what it says about the steps of each track. */
static void speak(const struct trainer *trainer, struct word *word, struct word_step about[TRACKS]) {
        *word = (struct word){ .told = true,
                               .generation = trainer->generation.number,
                               .orderly = trainer->orderly,
                               .resumed = trainer->resumed,
                               .ended = trainer->ended };
        for (uint32_t track = TRACK_STEP; track < TRACKS; track++)
                about[track] =
                        (struct word_step){ .known = true,
                                            .step = trainer->known[track],
                                            .launched = trainer->done[track] ? 0 : trainer->item[track] };
}

/* A trainer gets the results of a step that others have heard of, or it is behind. */
static void catch_up(uint32_t proc, struct trainer *trainer, const struct word *word,
                     const struct word_step about[TRACKS], uint32_t generation,
                     const struct words_unit unit[TRACKS]) {
        struct proc *p = &w.proc[proc];

        for (uint32_t track = TRACK_STEP; track < TRACKS; track++)
                if (trainer->known[track] < unit[track].committed &&
                    words_can_hear(word, &about[track], generation, &p->past[track], unit[track].committed,
                                   w.items[track]))
                        member_hear(proc, trainer, track, trainer->generation, unit[track].committed);
}

static bool knows_all(const struct trainer *trainer, const struct words_unit unit[TRACKS]) {
        for (uint32_t track = TRACK_STEP; track < TRACKS; track++)
                if (trainer->known[track] < unit[track].committed)
                        return false;
        return true;
}

static void put_member(uint32_t proc, uint32_t index, bool lacks, struct report *report) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        member_return(proc, index);
        trainer->received = false; /* its word says so */
        report->member_of[report->n_members++] =
                (struct report_member){ .request = wish_of(trainer->id, index, trainer->identity),
                                        .tag = trainer->tag,
                                        .rank = trainer->rank,
                                        .slot = trainer->slot,
                                        .id = trainer->place,
                                        .in = true,
                                        .behind = trainer->behind || lacks };
}

/* The units that are as the former run has left them. */
static void put_units(uint32_t proc, const struct words_unit unit[TRACKS], struct report *report) {
        struct proc *p = &w.proc[proc];

        memcpy(p->track_of, p->past_track, sizeof(p->track_of));
        report->n_tracks = TRACKS;
        for (uint32_t track = 0; track < TRACKS; track++)
                report->committed[track] = report->mark[track] = report->prepared[track] =
                        p->past_steps[track];
        for (uint32_t track = 0; track < TRACKS; track++) {
                uint32_t where = p->track_of[track];

                if (track_is_step(track) && where == TRACK_OPERATION)
                        continue;
                if (track_is_step(track))
                        report->plan[report->n_plans++] =
                                (struct report_plan){ .digest = 7 * track,
                                                      .ordinal = track,
                                                      .track = where,
                                                      .before = p->past_before[track] };
                report->committed[where] = unit[track].committed;
                report->mark[where] = unit[track].committed + unit[track].opened;
                report->prepared[where] = unit[track].committed + unit[track].prepared;
                p->steps[track] = unit[track].committed;
                if (!unit[track].opened)
                        continue;
                p->former[track].serial = p->local[track].serial + 1;
                p->local[track] = p->former[track];
                p->local[track].active = true;
                p->local[track].cancelled = p->local[track].told = false;
                p->local[track].tasks = 0;
                p->local[track].generation = report->generation;
                p->local[track].number = unit[track].committed + 1;
        }
}

/* Trainers that have told belong to the latest generation that one of them knows. The others ask for a place,
 * like any new one. */
static void restore(uint32_t proc) {
        static struct report report;
        struct word word[MAX_PROCS * MAX_TRAINERS] = { 0 };
        struct word_step about[TRACKS][MAX_PROCS * MAX_TRAINERS] = { 0 };
        struct words_unit unit[TRACKS] = { 0 };
        struct proc *p = &w.proc[proc];
        struct trainer *latest = NULL;
        struct tag tag = { 0 };
        uint32_t n = 0, places[MAX_TRAINERS] = { 0 };
        bool all = true, clean = true;

        p->awaits = false;
        report_clear(&report);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (p->trainer[i].told && belongs(&p->trainer[i]) &&
                    (latest == NULL || generation_compare(p->trainer[i].generation, latest->generation) > 0))
                        latest = &p->trainer[i];
        if (latest == NULL) {
                truth_lost(proc);
                node_restore(&p->node, clock_of(p), &report);
                return;
        }
        report.generation = latest->generation;
        report.world = latest->world;
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];
                uint32_t place = w.n_procs == 1 ? trainer->rank : n;
                struct word_step mine[TRACKS] = { 0 };

                if (!trainer->told || !belongs(trainer) || trainer->world != latest->world ||
                    trainer->generation.number + 1 < latest->generation.number)
                        continue;
                trainer->returns = true;
                places[i] = place;
                n++;
                speak(trainer, &word[place], mine);
                for (uint32_t track = 0; track < TRACKS; track++)
                        about[track][place] = mine[track];
                if (trainer->known[TRACK_OPERATION] > unit[TRACK_OPERATION].committed)
                        unit[TRACK_OPERATION].committed = trainer->known[TRACK_OPERATION];
                if (!trainer->behind && tag_compare(&trainer->tag, &tag) > 0)
                        tag = trainer->tag;
        }
        if (w.n_procs == 1)
                n = latest->world;
        for (uint32_t track = TRACK_STEP; track < TRACKS; track++) {
                unit[track] = words_unit(word, about[track], n, &p->past[track]);
                clean &= !unit[track].opened || unit[track].prepared;
        }
        put_units(proc, unit, &report);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];
                struct word_step mine[TRACKS];

                if (!trainer->returns)
                        continue;
                for (uint32_t track = 0; track < TRACKS; track++)
                        mine[track] = about[track][places[i]];
                catch_up(proc, trainer, &word[places[i]], mine, report.generation.number, unit);
                if (!trainer->behind && knows_all(trainer, unit))
                        trainer->tag = tag;
                all &= knows_all(trainer, unit);
                report.behind |= trainer->unsynced;
                put_member(proc, i, !knows_all(trainer, unit), &report);
        }
        report.history = tag;
        p->former_world = report.world;
        p->may_resume = w.n_procs == 1 && all && clean && words_all_here(word, n);
        p->torn = report.torn = !all || !words_all_here(word, n);
        truth_restored(proc, word, about, n, p->may_resume);
        node_restore(&p->node, clock_of(p), &report);
}

void restart_event(const struct event *event) {
        struct proc *p = &w.proc[event->proc];
        struct trainer *trainer = &p->trainer[event->a % MAX_TRAINERS];

        if (event->kind == EVENT_RESTORE) {
                if (p->node.origin == ORIGIN_AWAITED)
                        restore(event->proc);
                for (uint32_t i = 0; i < MAX_TRAINERS;
                     i++) /* their place is of a generation that others do not know */
                        if (p->trainer[i].state == TRAINER_AWAY && p->trainer[i].told)
                                member_hire(event->proc, i, p->trainer[i].identity, &p->trainer[i].tag,
                                            p->trainer[i].hash);
                return;
        }
        if (trainer->state != TRAINER_AWAY)
                return;
        trainer->told = true;
        if (p->late && p->node.world == 0)
                expect(event->proc);
        if (p->node.origin != ORIGIN_AWAITED) {
                member_hire(event->proc, event->a, trainer->identity, &trainer->tag, trainer->hash);
                return;
        }
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (belongs(&p->trainer[i]) && !p->trainer[i].told)
                        return;
        at(0, EVENT_RESTORE, event->proc, 0, 0, 0);
}

/* Whether nothing is void in the generation that follows. */
bool restart_resumes(uint32_t proc) {
        struct proc *p = &w.proc[proc];
        bool resumed = p->may_resume;

        for (uint32_t i = 0; i < p->node.n && resumed; i++)
                resumed = !p->node.member[i].in || member_returned(proc, p->node.member[i].request.member);
        p->may_resume = false;
        return resumed && p->node.world == p->former_world;
}
