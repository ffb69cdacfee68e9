/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restarts a daemon. Its trainers live on, and come back in any order, or not at all. The journal says what
 * was (struct record). Trainers say only of which generation and commits they have heard. This file does the
 * work of a real daemon that starts anew.
 */
#include <string.h>

#include "sim.h"

#define PATIENCE 60u /* for trainers that have not come back */

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

/* Everything that dies with the process is gone; trainers, their arenas and the journal are not. */
void restart_down(uint32_t proc) {
        struct proc *p = &w.proc[proc];

        trace("%u is restarted", proc);
        if (!p->node.awaits)
                memcpy(p->former, p->local, sizeof(p->former));
        p->alive = p->stopped = p->ending = p->torn = p->fresh = false;
        p->epoch++;
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                trainer->epoch++;
                if (trainer->state == TRAINER_OVER || trainer->leaving)
                        trainer->state = TRAINER_NONE;
                for (uint32_t track = 0; track < TRACKS; track++)
                        trainer->news[track].come = false; /* what it has not heard it never will */
                trainer->back = trainer->returns = false;
                if (trainer->state != TRAINER_NONE)
                        trainer->state = TRAINER_AWAY;
        }
}

/* A new trainer is faster than all former ones: the daemon knows of no other one when it first speaks. */
static bool hire_first(uint32_t proc) {
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
        at(PATIENCE, EVENT_RESTORE, proc, 0, 0, 0);
}

void restart_up(uint32_t proc) {
        struct proc *p = &w.proc[proc];

        p->expects = true;
        proc_start(proc);
        p->expects = false;
        p->may_resume = false;
        p->awaits = p->record.n > 0;
        p->late = hire_first(proc);
        if (!p->awaits)
                truth_lost(proc);
        else if (!p->late)
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

/* Tells the member of the last step, if it has not heard of that one. */
static void catch_up(uint32_t proc, struct trainer *trainer) {
        const struct record *record = &w.proc[proc].record;

        for (uint32_t plan = TRACK_STEP; plan < TRACKS; plan++) {
                const struct trace *trace = &record->trace[plan];

                if (record->track_of[plan] == TRACK_OPERATION || trainer->known[plan] == trace->committed)
                        continue;
                if (trainer->known[plan] + 1 != trace->committed || !trace_has_results(trace))
                        violate(RULE_RESTART, "member %llu has heard of step %llu of plan %u, and lacks %llu",
                                (unsigned long long)trainer->id, (unsigned long long)trainer->known[plan],
                                plan, (unsigned long long)trace->committed);
                member_hear(proc, trainer, plan, trainer->generation, trace->committed);
        }
}

static void put_member(uint32_t proc, uint32_t index, struct report *report) {
        struct trainer *trainer = &w.proc[proc].trainer[index];
        struct record_member *place = record_find(&w.proc[proc].record, trainer->id);

        catch_up(proc, trainer);
        trainer->tag = place->behind ? (struct tag){ 0 } : report->history;
        member_return(proc, index);
        place->member = trainer->id;
        report->member_of[report->n_members++] =
                (struct report_member){ .request = wish_of(trainer->id, index, trainer->identity),
                                        .tag = trainer->tag,
                                        .rank = place->rank,
                                        .slot = place->slot,
                                        .id = place->id,
                                        .in = true,
                                        .behind = place->behind };
}

/* The arenas hold what the former run has left of the open step. */
static void reopen(struct proc *p, uint32_t plan) {
        struct local *local = &p->local[plan];

        p->former[plan].serial = local->serial + 1;
        *local = p->former[plan];
        local->active = true;
        local->cancelled = local->told = false;
        local->tasks = 0;
        local->generation = p->record.generation;
        local->number = p->record.trace[plan].committed + 1;
}

static void put_plan(struct proc *p, uint32_t plan, struct report *report) {
        const struct trace *trace = &p->record.trace[plan];
        uint32_t track = p->record.track_of[plan];

        report->plan[report->n_plans++] = (struct report_plan){
                .digest = 7 * plan, .ordinal = plan, .track = track, .before = p->record.before[plan]
        };
        report->committed[track] = trace->committed;
        report->mark[track] = trace->committed + trace_is_open(trace);
        report->prepared[track] = trace->committed + trace_is_prepared(trace);
        p->steps[plan] = trace->committed;
        if (trace_is_open(trace))
                reopen(p, plan);
}

/* The tag of a state that has all of these steps. */
static struct tag tag_of(const struct record *record, const struct report *report) {
        struct tag tag = { .incarnation = 1,
                           .term = record->generation.term,
                           .generation = record->generation.number };

        for (uint32_t track = TRACK_STEP; track < TRACKS; track++) {
                tag.step += report->committed[track];
                if (nodeset_count(report_set(report)) > 1)
                        tag.plans += tag_plans(report->committed[track], track);
        }
        return tag.step > record->steps ? tag : record->history;
}

/* The node as the former run has left it, without its members. */
static void put_node(struct proc *p, struct report *report) {
        struct record *record = &p->record;

        report_clear(report);
        report->generation = record->generation;
        report->world = record->world;
        report->behind = record->unsynced;
        report_name_nodes(report, set_of(&record->set), (struct nodeset){ 0 });
        report->n_tracks = TRACKS;
        memcpy(p->track_of, record->track_of, sizeof(p->track_of));
        for (uint32_t track = 0; track < TRACKS; track++)
                report->committed[track] = report->mark[track] = report->prepared[track] =
                        record->committed[track];
        for (uint32_t plan = TRACK_STEP; plan < TRACKS; plan++)
                if (record->track_of[plan] != TRACK_OPERATION)
                        put_plan(p, plan, report);
        report->history = tag_of(record, report);
}

/* It knows the generation, or that one before after which nothing was void. */
static bool is_current(const struct record *record, const struct trainer *trainer) {
        return trainer->heard == record->generation.number ||
               (record->resumed && trainer->heard + 1 == record->generation.number);
}

/* No step may have begun of which the results are not all there. */
static bool is_clean(const struct report *report) {
        for (uint32_t track = 0; track < report->n_tracks; track++)
                if (report->mark[track] > report->prepared[track])
                        return false;
        return true;
}

/* NULL: it asks for one like any new trainer. One that has not heard of its place has no secret to show. */
static struct record_member *place_of(struct proc *p, const struct trainer *trainer) {
        return trainer->heard > 0 ? record_find(&p->record, trainer->id) : NULL;
}

/* Returns whether some members are back. */
static bool find_returned(struct proc *p, bool *ret_whole) {
        uint32_t n = 0;

        *ret_whole = !p->record.ended;
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                if (trainer->state != TRAINER_AWAY || !trainer->back || place_of(p, trainer) == NULL)
                        continue;
                trainer->returns = true;
                *ret_whole &= is_current(&p->record, trainer);
                n++;
        }
        *ret_whole &= n == p->record.n && (w.n_procs > 1 || n == p->record.world);
        return n > 0;
}

/* The members that are back have the places that the record says. */
static void restore(uint32_t proc) {
        static struct report report;
        struct proc *p = &w.proc[proc];
        bool whole;

        p->awaits = false;
        if (!find_returned(p, &whole)) {
                record_drop(proc);
                truth_lost(proc);
                report_clear(&report);
                node_restore(&p->node, clock_of(p), &report);
                return;
        }
        put_node(p, &report);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (p->trainer[i].returns)
                        put_member(proc, i, &report);
        p->former_world = report.world;
        p->may_resume = w.n_procs == 1 && whole && is_clean(&report);
        p->torn = report.torn = !whole;
        truth_restored(proc, &report, p->may_resume);
        node_restore(&p->node, clock_of(p), &report);
}

static void hire_again(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        member_hire(proc, index, trainer->identity, &trainer->tag, trainer->hash);
}

/* Whether a member may still come back into its place. */
static bool is_missing(struct proc *p) {
        for (uint32_t i = 0; i < p->record.n; i++) {
                bool back = false;

                for (uint32_t k = 0; k < MAX_TRAINERS; k++)
                        back |= p->trainer[k].back && p->trainer[k].id == p->record.member[i].member;
                if (!back)
                        return true;
        }
        return false;
}

void restart_event(const struct event *event) {
        struct proc *p = &w.proc[event->proc];
        struct trainer *trainer = &p->trainer[event->a % MAX_TRAINERS];

        if (event->kind == EVENT_RESTORE) {
                if (p->node.awaits)
                        restore(event->proc);
                for (uint32_t i = 0; i < MAX_TRAINERS; i++) /* the node is in a generation without them */
                        if (p->trainer[i].state == TRAINER_AWAY && p->trainer[i].back)
                                hire_again(event->proc, i);
        } else if (trainer->state == TRAINER_AWAY) {
                trainer->back = true;
                if (p->late && p->node.world == 0 && place_of(p, trainer) != NULL)
                        expect(event->proc);
                if (!p->node.awaits || place_of(p, trainer) == NULL)
                        hire_again(event->proc, event->a);
                else if (!is_missing(p))
                        at(0, EVENT_RESTORE, event->proc, 0, 0, 0);
        }
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
