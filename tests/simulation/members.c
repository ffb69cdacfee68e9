/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainers: each synchronises first in a generation, then does steps of two plans, and operations, one after
 * or inside the other. Its state is a hash of all that it has applied.
 */
#include <string.h>

#include "gradsync.pb-c.h"
#include "sim.h"

/* Each trainer runs a script, entry by entry: OPEN begins a unit, GIVE makes all that is left of it ready,
 * WAIT is for its outcome, DROP gives a plan up, to bring it again. Each script opens its units in the same
 * order everywhere, except X, Y and Z, and needs nothing that another one could not give. */
enum { END, OPEN, GIVE, WAIT, DROP };
/* X, Y and Z are A, B and C, in another order on each node. */
enum { O = TRACK_OPERATION, A = TRACK_STEP, B, C, X, Y, Z };
enum { SCRIPT_SYNC, SCRIPT_SYNC_INSIDE, SCRIPT_FIRST, N_SCRIPTS = 15 };

static const struct {
        uint8_t what, track;
} script[N_SCRIPTS][13] = {
        [SCRIPT_SYNC] = { { GIVE, O }, { WAIT, O } },
        [SCRIPT_SYNC_INSIDE] = { { OPEN, X },
                                 { OPEN, Y },
                                 { OPEN, Z },
                                 { GIVE, O },
                                 { WAIT, O },
                                 { GIVE, A },
                                 { GIVE, B },
                                 { GIVE, C },
                                 { WAIT, A },
                                 { WAIT, B },
                                 { WAIT, C } },
        { { GIVE, A }, { WAIT, A } },
        { { GIVE, O }, { WAIT, O }, { GIVE, B }, { WAIT, B } },
        { { OPEN, A }, { GIVE, B }, { WAIT, B }, { GIVE, A }, { WAIT, A } },
        { { OPEN, A }, { GIVE, O }, { WAIT, O }, { GIVE, A }, { WAIT, A } },
        { { OPEN, A }, { GIVE, B }, { GIVE, A }, { WAIT, A }, { WAIT, B } },
        { { OPEN, B },
          { OPEN, A },
          { GIVE, O },
          { WAIT, O },
          { GIVE, A },
          { WAIT, A },
          { GIVE, B },
          { WAIT, B } },
        { { OPEN, B }, { GIVE, A }, { WAIT, A }, { GIVE, A }, { WAIT, A }, { GIVE, B }, { WAIT, B } },
        { { GIVE, X }, { GIVE, Y }, { GIVE, Z }, { WAIT, A }, { WAIT, B }, { WAIT, C } },
        { { OPEN, X },
          { OPEN, Y },
          { GIVE, Z },
          { GIVE, X },
          { GIVE, Y },
          { WAIT, C },
          { WAIT, B },
          { WAIT, A } },
        { { OPEN, C }, { GIVE, B }, { WAIT, B }, { GIVE, B }, { GIVE, C }, { WAIT, C }, { WAIT, B } },
        { { OPEN, B },
          { OPEN, A },
          { GIVE, C },
          { WAIT, C },
          { GIVE, Y },
          { GIVE, X },
          { GIVE, Z },
          { WAIT, A },
          { WAIT, B },
          { WAIT, C } },
        { { GIVE, C },
          { GIVE, B },
          { WAIT, C },
          { DROP, C },
          { WAIT, B },
          { GIVE, Z },
          { GIVE, Y },
          { GIVE, X },
          { WAIT, A },
          { WAIT, B },
          { WAIT, C } },
        { { GIVE, Y },
          { GIVE, X },
          { GIVE, Z },
          { WAIT, B },
          { WAIT, A },
          { DROP, A },
          { DROP, B },
          { WAIT, C },
          { GIVE, B },
          { GIVE, A },
          { WAIT, A },
          { WAIT, B } },
};

static bool is_sync(const struct trainer *trainer) {
        return trainer->script < SCRIPT_FIRST;
}

static uint32_t unit_of(uint32_t proc, const struct trainer *trainer) {
        uint32_t unit = script[trainer->script][trainer->line].track;

        return unit < X ? unit : A + (unit - X + proc + w.program) % 3;
}

/* The next script depends on nothing but what is committed, so all members play the same one. */
static uint32_t next_script(const struct node *node) {
        uint64_t steps = w.program;

        for (uint32_t track = TRACK_STEP; track < TRACKS; track++)
                steps += node->track[track].committed;
        return SCRIPT_FIRST + (uint32_t)(steps % (N_SCRIPTS - SCRIPT_FIRST));
}

static void later(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        if (trainer->leaving)
                return;
        trainer->state = TRAINER_READYING;
        at(1 + rnd(8), EVENT_TRAINER, proc, index, trainer->epoch, 0);
}

static void begin(uint32_t proc, uint32_t index, uint32_t number) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        memset(trainer->item, 0, sizeof(trainer->item));
        memset(trainer->done, 0, sizeof(trainer->done));
        trainer->script = number;
        trainer->line = 0;
        later(proc, index);
}

struct membership_request wish_of(uint64_t member, uint32_t index, uint64_t identity) {
        bool spare = identity >= SPARES, ranked = w.ranked && !spare;

        return (struct membership_request){ .member = member,
                                            .min_world = w.min_world,
                                            .max_world = w.max_world,
                                            .identity = identity,
                                            .instance = member_id_count(member),
                                            .timeout = spare ? 0 : 1500,
                                            .last_call = 10,
                                            .grace = 100,
                                            .incarnation = 1,
                                            .spare = spare,
                                            .has_slot = !spare,
                                            .slot = spare ? 0 : index,
                                            .has_rank = ranked,
                                            .rank = ranked ? (uint32_t)identity - 1 : 0 };
}

void member_hire(uint32_t proc, uint32_t index, uint64_t identity, const struct tag *tag, uint64_t hash) {
        struct trainer *trainer = &w.proc[proc].trainer[index];
        uint32_t epoch = trainer->epoch + 1;
        struct membership_request wish;

        *trainer = (struct trainer){ .state = TRAINER_JOINING,
                                     .id = member_id(proc, 0, ++w.next_member),
                                     .identity = identity,
                                     .epoch = epoch,
                                     .tag = *tag,
                                     .hash = hash };
        truth_hired(trainer->id, identity);
        trace("%u hires member %llu with step %llu", proc, (unsigned long long)trainer->id,
              (unsigned long long)tag->step);
        wish = wish_of(trainer->id, index, identity);
        node_join(&w.proc[proc].node, clock_of(&w.proc[proc]), &wish, tag);
}

uint64_t member_identity(uint32_t proc, uint32_t index) {
        if (w.spares[proc] >> index & 1)
                return SPARES + proc * MAX_TRAINERS + index;
        for (uint32_t i = 0; i < proc && w.ranked; i++)
                for (uint32_t k = 0; k < MAX_TRAINERS; k++)
                        index += w.size[i] > k;
        return w.ranked ? index + 1 : proc * MAX_TRAINERS + index + 1;
}

void member_hire_new(uint32_t proc, uint32_t index) {
        member_hire(proc, index, member_identity(proc, index), &(struct tag){ 0 }, 0);
}

void member_kill(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];
        uint32_t epoch = trainer->epoch + 1;
        uint64_t id = trainer->id;

        uint32_t cause = WIRE__CAUSE__EXITED + rnd(3);

        trace("%u: member %llu is killed", proc, (unsigned long long)id);
        truth_gone(id, trainer->leaving ? WIRE__CAUSE__LEAVING : cause);
        if (trainer->in && w.proc[proc].alive && !w.proc[proc].stopped && rnd(2) == 0)
                local_spoil(proc);
        *trainer = (struct trainer){ .state = TRAINER_NONE, .epoch = epoch };
        if (!w.proc[proc].alive || w.proc[proc].stopped)
                return;
        node_lose(&w.proc[proc].node, clock_of(&w.proc[proc]), id, cause);
}

void member_return(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        trainer->state = TRAINER_WAITING;
        trainer->id = member_id(proc, 0, ++w.next_member);
        trainer->epoch++;
        truth_hired(trainer->id, trainer->identity);
        trace("%u: member %llu is back with step %llu", proc, (unsigned long long)trainer->id,
              (unsigned long long)trainer->tag.step);
}

bool member_returned(uint32_t proc, uint64_t member) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (w.proc[proc].trainer[i].id == member)
                        return w.proc[proc].trainer[i].returns;
        return false;
}

void member_vanish(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        truth_gone(trainer->id, WIRE__CAUSE__EXITED);
        w.gentle = w.personal = false;
        *trainer = (struct trainer){ .state = TRAINER_NONE, .epoch = trainer->epoch + 1 };
}

/* Between its steps or in the middle of one: it gives nothing more. */
void member_leave(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        trace("%u: member %llu leaves", proc, (unsigned long long)trainer->id);
        truth_gone(trainer->id, WIRE__CAUSE__LEAVING);
        trainer->leaving = true;
        trainer->epoch++;
        node_leave(&w.proc[proc].node, clock_of(&w.proc[proc]), trainer->id);
}

bool member_twin(uint32_t proc, uint32_t index) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (w.proc[proc].trainer[i].state == TRAINER_NONE) {
                        member_hire(proc, i, w.proc[proc].trainer[index].identity, &(struct tag){ 0 }, 0);
                        return true;
                }
        return false;
}

/* Now and then trainers have not all called the same operation, which shows when each has called one. */
static bool differ(uint32_t proc, uint32_t track, uint32_t item, const struct trainer *trainer) {
        if (track != TRACK_OPERATION || item > 0 || rnd(40) > 0)
                return false;
        truth_differs(trainer->generation, w.proc[proc].local[track].number);
        node_differ(&w.proc[proc].node, clock_of(&w.proc[proc]), trainer->generation, TRACK_OPERATION);
        return true;
}

static void synced(struct proc *p, struct trainer *trainer) {
        if (trainer->received)
                node_synced(&p->node, trainer->id, &trainer->tag);
        trainer->received = false;
}

/* False: absorbed. */
static bool give(uint32_t proc, struct trainer *trainer, uint32_t track) {
        struct proc *p = &w.proc[proc];
        struct local *local = &p->local[track];
        uint32_t item = trainer->item[track];

        if (track_is_step(track) && !local_has(proc, track))
                return false;
        trainer->item[track]++;
        if (!local_open(proc, trainer->generation, track))
                return false;
        if (trainer->behind && is_sync(trainer) && track == TRACK_OPERATION && item == 0) {
                trainer->tag = (struct tag){ 0 };
                trainer->hash = 0;
                node_sync(&p->node, trainer->id);
        }
        if (track_is_step(track) && item + 1 == w.items[track])
                synced(p, trainer);
        if (++local->ready[item] < local->members)
                return true;
        local->n_ready++;
        if (differ(proc, track, item, trainer))
                return true;
        if (local->open)
                local_reduce(proc, track, item);
        if (local->n_ready == w.items[track])
                node_full(&p->node, clock_of(p), trainer->generation, p->track_of[track]);
        return true;
}

/* The next line of its script, or a part of it. */
static void play(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];
        uint32_t what = script[trainer->script][trainer->line].what, track = unit_of(proc, trainer);

        if (what == END) {
                begin(proc, index, next_script(&w.proc[proc].node));
                return;
        }
        if (what == WAIT && !trainer->done[track]) {
                trainer->state = TRAINER_WAITING;
                return;
        }
        if ((what == OPEN && !local_open(proc, trainer->generation, track)) ||
            (what == GIVE && !give(proc, trainer, track)) || (what == DROP && !local_drop(proc, track))) {
                trainer->state = TRAINER_WAITING; /* for a word about another generation */
                return;
        }
        if (what == WAIT) {
                trainer->done[track] = false;
                trainer->item[track] = 0;
        }
        if (what != GIVE || trainer->item[track] == w.items[track])
                trainer->line++;
        if (what == OPEN && rnd(2) == 0)
                play(proc, index);
        else if (trainer->state == TRAINER_READYING) /* not turned away by what its data has led to */
                later(proc, index);
}

static void hear_news(uint32_t proc, uint32_t index);

bool node_has_members(const struct proc *proc) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (proc->trainer[i].state != TRAINER_NONE && proc->trainer[i].in)
                        return true;
        return false;
}

void member_event(const struct event *event) {
        struct proc *p = &w.proc[event->proc];
        struct trainer *trainer = &p->trainer[event->a % MAX_TRAINERS];
        struct local *local = &p->local[event->a % TRACKS];

        if (event->kind == EVENT_TOLD) {
                if (trainer->epoch == event->b)
                        hear_news(event->proc, event->a);
        } else if (event->kind == EVENT_PLAN) {
                if (node_has_members(p))
                        node_agree(&p->node, clock_of(p), event->a, 7 * event->a, false);
        } else if (event->kind == EVENT_TRAINER) {
                if (trainer->epoch != event->b || trainer->state != TRAINER_READYING || trainer->returns)
                        return;
                if (rnd(2) == 0)
                        synced(p, trainer);
                play(event->proc, event->a);
        } else if (event->kind == EVENT_QUIET) {
                if (local->serial != event->b || !local->active)
                        return;
                local->active = false;
                record_void(event->proc, event->a);
                if (local->written || rnd(3) == 0)
                        node_tear_unit(&p->node, clock_of(p), local->generation, p->track_of[event->a]);
                p->torn |= p->node.torn;
                node_quiet(&p->node, clock_of(p), local->generation, p->track_of[event->a]);
        } else if (local->serial != event->c) {
                return;
        } else if (event->kind == EVENT_REDUCED) {
                local_reduced(event->proc, event->a, event->b);
        } else {
                local_fanned(event->proc, event->a, event->b);
        }
}

static void enter(uint32_t proc, const struct action *action) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &w.proc[proc].trainer[i];

                if (trainer->state == TRAINER_NONE || trainer->id != action->member)
                        continue;
                if (trainer->received) { /* the daemon does not know of it, so it counts for nothing */
                        trainer->tag = (struct tag){ 0 };
                        trainer->hash = 0;
                }
                if (w.proc[proc].awaits) /* it is in without them: a node like any other that comes */
                        truth_lost(proc);
                w.proc[proc].awaits = false;
                hear_news(proc, i);
                truth_generation(proc, trainer, action);
                w.proc[proc].fresh |= !trainer->in;
                trainer->in = true;
                for (uint32_t track = 0; track < TRACKS; track++)
                        trainer->known[track] = track_on(&w.proc[proc], track)->committed;
                trainer->epoch++;
                trainer->generation = action->generation;
                trainer->behind = action->behind;
                trainer->received = false;
                trainer->state = TRAINER_WAITING;
                at(rnd(rnd(4) == 0 ? 20 : 3), EVENT_TOLD, proc, i, trainer->epoch, 0);
        }
}

/* All of the node are in the generation. */
static void entered(uint32_t proc, const struct action *action) {
        bool resumed = restart_resumes(proc);

        resumed = w.n_procs > 1 ? !action->torn : resumed;
        truth_resumed(proc, resumed);
        record_enter(proc, action, resumed);
        memset(w.proc[proc].dropped, 0, sizeof(w.proc[proc].dropped));
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                w.proc[proc].trainer[i].returns = false;
        for (uint32_t plan = TRACK_STEP; plan < TRACKS; plan++)
                if (w.proc[proc].track_of[plan] == TRACK_OPERATION)
                        at(rnd(10), EVENT_PLAN, proc, plan, 0, 0);
}

/* It has heard of the generation that it is in. */
static bool has_heard(const struct trainer *trainer) {
        return trainer->in && trainer->heard == trainer->generation.number;
}

/* A plan's steps may begin: trainers that have waited for that go on. */
static void track_given(uint32_t proc, uint32_t plan, uint32_t track) {
        struct proc *p = &w.proc[proc];

        p->track_of[plan] = track;
        p->steps[plan] = track_on(p, plan)->committed;
        record_track(proc, plan);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                if (!trainer->news[plan].come) /* else it knows no more than it has heard */
                        trainer->known[plan] = track_on(p, plan)->committed;
                if (trainer->state == TRAINER_WAITING && has_heard(trainer) &&
                    unit_of(proc, trainer) == plan && script[trainer->script][trainer->line].what != WAIT)
                        later(proc, i);
        }
}

static uint64_t mix(uint64_t hash, uint64_t value) {
        hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
        return hash ^ hash >> 29;
}

/* Steps of different plans are committed in different orders on different nodes. */
void member_hear(uint32_t proc, struct trainer *trainer, uint32_t track, struct generation generation,
                 uint64_t number) {
        trainer->known[track] = number;
        if (!track_is_step(track))
                return;
        trainer->hash += mix(mix(mix(track, generation.term), generation.number), number);
        trainer->commits++;
}

static void committed_operation(struct trainer *trainer) {
        if (!is_sync(trainer) || !trainer->behind)
                return;
        trainer->hash = truth_state(trainer->generation, &trainer->tag);
        trainer->behind = false;
        trainer->received = true;
}

/* A trainer hears the news of a track, which the daemon tells before it tells anything else. */
static void hear(uint32_t proc, uint32_t index, uint32_t track) {
        struct trainer *trainer = &w.proc[proc].trainer[index];
        struct news *news = &trainer->news[track];

        news->come = false;
        record_commit(proc, track, news->number, true);
        member_hear(proc, trainer, track, news->generation, news->number);
        if (track_is_step(track) && tag_compare(&news->tag, &trainer->tag) > 0)
                trainer->tag = news->tag;
        if (!track_is_step(track))
                committed_operation(trainer);
        trainer->done[track] = true;
        if (trainer->state == TRAINER_WAITING && script[trainer->script][trainer->line].what == WAIT &&
            unit_of(proc, trainer) == track)
                later(proc, index);
}

static void hear_news(uint32_t proc, uint32_t index) {
        struct trainer *trainer = &w.proc[proc].trainer[index];

        if (trainer->in && !has_heard(trainer)) {
                trainer->heard = trainer->generation.number;
                begin(proc, index, w.program % 4 > 1 ? SCRIPT_SYNC_INSIDE : SCRIPT_SYNC);
        }
        for (uint32_t track = 0; track < TRACKS; track++)
                if (trainer->news[track].come)
                        hear(proc, index, track);
}

/* All are told; each hears it a little later. */
static void committed(uint32_t proc, const struct action *action, uint32_t unit) {
        const struct node *node = &w.proc[proc].node;

        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &w.proc[proc].trainer[i];
                struct news *news = &trainer->news[unit];

                if (trainer->state == TRAINER_NONE || trainer->state == TRAINER_AWAY || !trainer->in)
                        continue;
                *news = (struct news){ .come = true,
                                       .generation = action->generation,
                                       .number = action->number };
                for (uint32_t k = 0; k < node->n; k++)
                        if (node->member[k].request.member == trainer->id)
                                news->tag = node->member[k].tag;
                at(rnd(3), EVENT_TOLD, proc, i, trainer->epoch, 0);
        }
}

/* All of this node have called it. In some worlds they do so again, in others they go on without. */
static void mismatched(uint32_t proc, uint32_t track) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &w.proc[proc].trainer[i];

                hear_news(proc, i);
                if (trainer->state == TRAINER_NONE || trainer->state == TRAINER_AWAY || !trainer->in ||
                    unit_of(proc, trainer) != track)
                        continue;
                trainer->epoch++;
                trainer->item[track] = 0;
                trainer->line -= script[trainer->script][trainer->line].what == WAIT;
                if (w.program % 2 == 0 && !is_sync(trainer))
                        trainer->line += 2;
                later(proc, i);
        }
}

/* Each trainer of this node stops and waits. */
static void interrupt(uint32_t proc, enum trainer_state state) {
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &w.proc[proc].trainer[i];

                if (trainer->state == TRAINER_NONE || trainer->state == TRAINER_OVER ||
                    trainer->state == TRAINER_AWAY)
                        continue;
                if (state == TRAINER_WAITING && !trainer->in)
                        continue;
                hear_news(proc, i);
                trainer->epoch++;
                trainer->state = state;
                trainer->in &= state == TRAINER_WAITING;
                trainer->heard *= trainer->in;
        }
}

static void refused(uint32_t proc, uint64_t member, enum job_end end) {
        if (end == JOB_END_REFUSED)
                truth_gone(member, WIRE__CAUSE__EVICTED);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &w.proc[proc].trainer[i];

                if (trainer->state != TRAINER_NONE && trainer->id == member) {
                        trainer->state = trainer->leaving ? TRAINER_NONE : TRAINER_OVER;
                        trainer->in = false;
                        trainer->epoch++;
                }
        }
}

/* A driver whose count is another one would tell its members of steps that they have already. */
static void count_opened(uint32_t proc, const struct action *action, uint32_t unit) {
        if (track_is_step(unit) && action->number != w.proc[proc].steps[unit] + 1)
                violate(RULE_TRACK, "node %u opens step %llu of plan %u, and has counted %llu", proc,
                        (unsigned long long)action->number, unit,
                        (unsigned long long)w.proc[proc].steps[unit]);
}

void member_act(uint32_t proc, const struct action *action) {
        uint32_t unit = action->kind == ACTION_TRACK ? 0 : unit_on(&w.proc[proc], action->track);
        struct local *local = &w.proc[proc].local[unit];

        if (w.trace && action->kind >= ACTION_CANCEL)
                trace("%u: action %d track %d number %llu member %llu rank %u/%u source %u behind %d "
                      "gen %u.%llx",
                      proc, action->kind, action->track, (unsigned long long)action->number,
                      (unsigned long long)action->member, action->rank, action->world, action->source,
                      action->behind, action->generation.number, (unsigned long long)action->generation.term);
        truth_loss(proc, action);
        switch (action->kind) {
        case ACTION_CANCEL:
                local->cancelled = true;
                local_quiet(proc, unit);
                break;
        case ACTION_COMMITTED:
                truth_outcome(proc, action);
                local->active = false;
                w.proc[proc].steps[unit] = action->number;
                record_commit(proc, unit, action->number, false);
                committed(proc, action, unit);
                break;
        case ACTION_TRACK:
                track_given(proc, (uint32_t)action->number, action->track);
                truth_counted(proc, (uint32_t)action->number, action->index);
                break;
        case ACTION_OPEN:
                truth_opened(proc, action);
                count_opened(proc, action, unit);
                local_opened(proc, unit);
                break;
        case ACTION_VOID:
                truth_outcome(proc, action);
                local->told = true;
                record_end(proc);
                interrupt(proc, TRAINER_WAITING);
                break;
        case ACTION_MISMATCH:
                truth_outcome(proc, action);
                local->told = true;
                mismatched(proc, unit);
                break;
        case ACTION_INTERRUPTED:
                if (action->loss.member != 0)
                        record_end(proc);
                break;
        case ACTION_GENERATION: enter(proc, action); break;
        case ACTION_ENTERED:
                truth_entered(proc, action);
                entered(proc, action);
                break;
        case ACTION_OUT:
                w.proc[proc].torn = false;
                truth_lost(proc);
                record_drop(proc);
                interrupt(proc, TRAINER_JOINING);
                break;
        case ACTION_REFUSED: refused(proc, action->member, action->end); break;
        case ACTION_ENDED:
                record_drop(proc);
                interrupt(proc, TRAINER_OVER);
                break;
        default: break;
        }
}
