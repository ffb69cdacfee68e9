/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One schedule: a small world made from a seed, faults that strike when the coordinator is in a certain
 * phase, and the end, when everything has been repaired and each node must have come on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

uint64_t hits[N_PHASES][N_FAULTS], shared_hits[N_PHASES];
const char *const phase_names[N_PHASES] = { "form", "take",   "run", "open",  "doubt",   "hold",
                                            "stop", "freeze", "cut", "abort", "verdict", "newgen" };
const char *const fault_names[N_FAULTS] = { "member-kill",
                                            "node-kill",
                                            "coordinator-kill",
                                            "node-stop",
                                            "coordinator-stop",
                                            "partition",
                                            "link",
                                            "leave",
                                            "twin",
                                            "restart",
                                            "upgrade",
                                            "clock-jump",
                                            "coordinator-jump" };

#define HEARTBEAT 20u
#define GIVE_UP 900u /* by then a fault that waits for its phase strikes no more */
#define GENTLE 40u   /* an absence that costs no member its place: shorter than the grace */
#define PAIRS (N_PHASES * N_FAULTS)
#define CODED 32u /* each so-manieth world sends bytes: they cost more than everything else */
#define SOME_BOOT (UINT64_C(1) << 32)
#define TOO_LONG 6000u /* all nodes must have come on this long after the last repair */

static const struct machine_times times = {
        .heartbeat = HEARTBEAT, .patience = 130, .death = 200, .abandon = 320, .drain = 80, .build = 120
};

static struct effects effects;

/* Does an effect that a machine asks for. It may call the machines again, whose new effects come after all
 * that are left. */
static void do_effect(const struct effect *effect) {
        uint32_t proc = (uint32_t)(uintptr_t)effect->owner;

        if (effect->order != NULL)
                net_order(proc, effect->order);
        else if (effect->report != NULL)
                net_report(proc, effect->report);
        else if (effect->action->kind < ACTION_CANCEL)
                engine_act(proc, effect->action);
        else
                member_act(proc, effect->action);
}

/* Kept for all schedules. */
static void *make_room(void **memory, size_t most) {
        if (*memory == NULL)
                *memory = malloc(most);
        if (*memory == NULL)
                abort();
        return *memory;
}

void proc_start(uint32_t proc) {
        static void *node_memory[MAX_PROCS], *coordinator_memory[MAX_PROCS];
        struct proc *p = &w.proc[proc];
        struct outlet out = { .effects = &effects, .owner = (void *)(uintptr_t)proc };
        struct room room = { .members = LIMIT_SEATS, .tracks = TRACKS, .nodes = MAX_PROCS };
        struct coordinator_config config = {
                .incarnation = 1,
                .name = "j",
                .times = times,
                .n_texts = LIMIT_REFUSALS,
                .room = room,
        };

        p->alive = true;
        p->stopped = p->ending = false;
        p->epoch++;
        p->clock = SOME_BOOT + rnd(UINT32_MAX);
        memset(p->track_of, 0, sizeof(p->track_of));
        memset(p->dropped, 0, sizeof(p->dropped));
        for (uint32_t track = 0; track < TRACKS; track++)
                p->local[track] = (struct local){ .serial = p->local[track].serial + 1 };
        room.memory = make_room(&node_memory[proc], node_bytes(&room));
        room.nodes = w.n_procs;
        node_init(&p->node,
                  &(struct node_config){ .room = room,
                                         .address = proc,
                                         .instance = p->epoch,
                                         .host = proc,
                                         .n_lanes = N_LANES,
                                         .window = WINDOW,
                                         .agreed = w.agreed,
                                         .incarnation = 1,
                                         .times = times },
                  clock_of(p), &out);
        if (p->coordinates) {
                config.room.memory = make_room(&coordinator_memory[proc], coordinator_bytes(&config));
                config.room.nodes = w.n_procs;
                config.floor = p->terms;
                config.nonce = rnd(1u << 30);
                config.alone = w.n_procs == 1 && (p->epoch == 1 || p->expects) && rnd(2) == 0;
                coordinator_init(&p->coordinator, &config, clock_of(p), &out);
        }
        at(rnd(10), EVENT_TICK, proc, 0, 0, 0);
}

struct coordinator *serving(void) {
        struct proc *p = &w.proc[COORDINATOR];

        return p->alive && !p->stopped ? &p->coordinator : NULL;
}

static enum phase phase_of_steps(void) {
        enum phase phase = PHASE_RUN;

        for (uint32_t i = 0; i < w.n_procs; i++)
                for (uint32_t which = TRACK_STEP; which < TRACKS; which++) {
                        const struct track *track = &w.proc[i].node.track[which];

                        if (!w.proc[i].alive || track->state != UNIT_OPEN)
                                continue;
                        if (track->prepared > track->committed)
                                return PHASE_DOUBT;
                        phase = PHASE_OPEN;
                }
        return phase;
}

static enum phase phase_of(const struct coordinator *c) {
        if (c->stage == STAGE_HEARING)
                return PHASE_TAKE;
        switch (coordinator_order(c)) {
        case ORDER_COLLECT: return PHASE_FORM;
        case ORDER_HOLD: return PHASE_HOLD;
        case ORDER_STOP: return PHASE_STOP;
        case ORDER_FREEZE: return PHASE_FREEZE;
        case ORDER_CUT: return PHASE_CUT;
        case ORDER_ABORT: return PHASE_ABORT;
        case ORDER_VERDICT: return PHASE_VERDICT;
        case ORDER_NEWGEN: return PHASE_NEWGEN;
        default: return phase_of_steps();
        }
}

/* The tag of the file that a first member has read. */
static struct tag file_of(uint32_t index) {
        uint64_t step = w.files == FILES_DIFFER && index % 2 == 1 ? 6 : 4;

        return w.files == FILES_NONE ? (struct tag){ 0 } : (struct tag){ 1, 1, 1, step, true, 0 };
}

static uint32_t pick_trainer(uint32_t proc) {
        for (uint32_t i = 0, index = rnd(MAX_TRAINERS); i < MAX_TRAINERS;
             i++, index = (index + 1) % MAX_TRAINERS)
                if (w.proc[proc].trainer[index].state > TRAINER_AWAY &&
                    w.proc[proc].trainer[index].state != TRAINER_OVER && !w.proc[proc].trainer[index].leaving)
                        return index;
        return MAX_TRAINERS;
}

static uint32_t pick_node(void) {
        for (uint32_t i = 0, proc = rnd(w.n_procs); i < w.n_procs; i++, proc = (proc + 1) % w.n_procs)
                if (w.proc[proc].has_node && w.proc[proc].alive && !w.proc[proc].stopped &&
                    pick_trainer(proc) < MAX_TRAINERS)
                        return proc;
        return MAX_PROCS;
}

static void heal_later(uint32_t delay, enum event_kind kind, uint32_t proc, uint32_t a, uint32_t b,
                       uint64_t c) {
        struct event event = {
                .at = w.now + delay, .kind = kind, .proc = proc, .epoch = UINT32_MAX, .a = a, .b = b, .c = c
        };

        w.healing++;
        queue_put(event);
}

static void kill_proc(uint32_t proc) {
        struct proc *p = &w.proc[proc];
        bool survive = rnd(2) == 0;

        trace("%u is killed", proc);
        w.gentle &= !p->has_node;
        p->node.awaits = false;
        p->alive = p->stopped = false;
        p->epoch++;
        truth_lost(proc);
        record_drop(proc);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                trainer->epoch++;
                trainer->in = false;
                if (trainer->state == TRAINER_OVER)
                        trainer->state = TRAINER_NONE;
                if (trainer->state != TRAINER_NONE && !survive)
                        member_kill(proc, i);
        }
        if (!p->coordinates && rnd(3) == 0)
                heal_later(1, EVENT_HEAL, 0, 0, 0, 0); /* it never comes back */
        else
                heal_later(20 + rnd(400), EVENT_START, proc, survive, 0, 0);
}

static bool kill_member(void) {
        uint32_t proc = pick_node(), index;

        if (proc == MAX_PROCS)
                return false;
        index = pick_trainer(proc);
        w.gentle = false;
        member_kill(proc, index);
        if (rnd(4) != 0)
                heal_later(5 + rnd(rnd(3) == 0 ? 250 : 80), EVENT_HIRE, proc, index, 0, 0);
        else
                heal_later(1, EVENT_HEAL, proc, 0, 0, 0);
        return true;
}

static void stop_proc(uint32_t proc) {
        trace("%u is stopped", proc);
        w.proc[proc].stopped = true;
        w.proc[proc].wakes = w.now + 10 + rnd(rnd(2) == 0 ? 120 : 600);
        w.gentle &= !w.proc[proc].has_node || w.proc[proc].wakes < w.now + GENTLE;
        heal_later((uint32_t)(w.proc[proc].wakes - w.now), EVENT_HEAL, proc, 1, w.proc[proc].epoch, 0);
}

/* Back in a moment, with all trainers that live. */
static void restart_later(uint32_t proc, bool orderly) {
        w.gentle &= w.n_procs == 1;
        w.upgraded = orderly && w.n_procs == 1;
        restart_down(proc);
        heal_later(5 + rnd(40), EVENT_START, proc, 2, 0, 0);
}

static void healed(void);

/* It opens no step from now on, and ends when what is begun has come to its end; or after a while, as if it
 * were killed. */
static void begin_end(uint32_t proc) {
        w.proc[proc].ending = true;
        heal_later(0, EVENT_ENDING, proc, 0, w.proc[proc].epoch, 0);
}

static void end_orderly(const struct event *event) {
        struct proc *p = &w.proc[event->proc];

        if (p->alive && p->epoch == event->b &&
            (p->stopped || (!restart_is_quiet(event->proc) && event->a < 20)))
                heal_later(2 + rnd(4), EVENT_ENDING, event->proc, event->a + !p->stopped, event->b, 0);
        else if (p->alive && p->epoch == event->b)
                restart_later(event->proc, restart_is_quiet(event->proc));
        healed();
}

static bool cut_network(bool engine_only) {
        uint32_t side = 1 + rnd((1u << w.n_procs) - 2), lasts = 10 + rnd(rnd(2) == 0 ? 100 : 600);

        if (w.n_procs < 2)
                return false;
        w.gentle &= lasts < GENTLE;
        trace("%s: %x against the others", engine_only ? "links break" : "partition", side);
        for (uint32_t a = 0; a < w.n_procs; a++)
                for (uint32_t b = 0; b < w.n_procs; b++)
                        if ((side >> a & 1) != (side >> b & 1)) {
                                uint64_t *set = engine_only ? &w.bad_link[a] : &w.cut_off[a];

                                *set |= UINT64_C(1) << b;
                        }
        heal_later(lasts, EVENT_HEAL, 0, 2, 0, 0);
        return true;
}

/* Forward or back, by seconds or hours. Only a node that takes itself for cut off loses its place by it. */
static void jump(uint32_t proc) {
        uint64_t by = 1;

        for (uint32_t digits = 2 + rnd(6); digits > 0; digits--)
                by = by * 10 + rnd(10);
        if (rnd(2) == 0) {
                w.proc[proc].clock -= by;
        } else {
                w.proc[proc].clock += by;
                w.gentle &= !w.proc[proc].has_node || by < times.abandon - times.patience;
        }
        trace("the clock of %u jumps by %llu", proc, (unsigned long long)by);
        heal_later(1, EVENT_HEAL, 0, 0, 0, 0);
}

static bool strike(enum fault fault) {
        uint32_t proc;

        switch (fault) {
        case FAULT_MEMBER_KILL: return kill_member();
        case FAULT_NODE_KILL:
        case FAULT_NODE_STOP:
        case FAULT_RESTART:
        case FAULT_UPGRADE:
        case FAULT_JUMP:
                proc = pick_node();
                if (proc == MAX_PROCS)
                        return false;
                if (fault == FAULT_NODE_KILL)
                        kill_proc(proc);
                else if (fault == FAULT_RESTART)
                        restart_later(proc, false);
                else if (fault == FAULT_UPGRADE)
                        begin_end(proc);
                else if (fault == FAULT_JUMP)
                        jump(proc);
                else
                        stop_proc(proc);
                return true;
        case FAULT_LEAVE:
        case FAULT_TWIN:
                proc = pick_node();
                if (proc == MAX_PROCS || (fault == FAULT_TWIN && !member_twin(proc, pick_trainer(proc))))
                        return false;
                w.gentle = false;
                if (fault == FAULT_LEAVE)
                        member_leave(proc, pick_trainer(proc));
                heal_later(1, EVENT_HEAL, 0, 0, 0, 0);
                return true;
        case FAULT_COORDINATOR_KILL: kill_proc(COORDINATOR); return true;
        case FAULT_COORDINATOR_STOP: stop_proc(COORDINATOR); return true;
        case FAULT_COORDINATOR_JUMP: jump(COORDINATOR); return true;
        case FAULT_PARTITION: return cut_network(false);
        default: return cut_network(true);
        }
}

/* A generation that begins has nothing open at first. */
static uint32_t strike_delay(const struct plan_fault *fault) {
        if (fault->at_phase && fault->phase == PHASE_NEWGEN)
                return rnd(3) == 0 ? 0 : rnd(20);
        return rnd(3) == 0 ? rnd(8) : 0;
}

/* After each event: rules about coordinators, and whether a fault's phase has come. */
void schedule_look(void) {
        struct plan_fault *fault = &w.fault[w.n_done];
        struct proc *first = &w.proc[COORDINATOR];
        struct coordinator *c;

        if (first->alive) {
                if (first->coordinator.term > first->terms)
                        first->terms = first->coordinator.term;
                truth_serving(COORDINATOR);
        }
        if (w.n_done >= w.n_faults || fault->armed)
                return;
        c = serving();
        if (w.now > GIVE_UP && c != NULL && c->stage == STAGE_ENDED)
                w.n_faults = w.n_done;
        if (w.now < fault->at || c == NULL)
                return;
        if (!fault->at_phase || phase_of(c) == fault->phase || w.now > fault->at + GIVE_UP) {
                fault->armed = true;
                at(strike_delay(fault), EVENT_FAULT, COORDINATOR, 0, 0, 0);
                if (w.now > fault->at + GIVE_UP)
                        w.n_faults = w.n_done;
        }
}

/* Whether open steps share a lane on some node. */
static bool is_shared(void) {
        bool shared = false;

        for (uint32_t i = 0; i < w.n_procs; i++) {
                const struct node *node = &w.proc[i].node;
                uint32_t n = 0;

                for (uint32_t which = TRACK_STEP + 1; which < TRACKS; which++)
                        n += node->track[which].state == UNIT_OPEN;
                shared |= w.proc[i].alive && n > 1 && nodeset_count(node->set) > 1;
        }
        return shared;
}

static void fault_event(void) {
        struct plan_fault *fault = &w.fault[w.n_done];
        struct coordinator *c = serving();
        enum phase phase;
        bool shared;

        fault->armed = false;
        if (w.n_done >= w.n_faults || c == NULL)
                return;
        phase = phase_of(c);
        shared = is_shared();
        if (fault->at_phase && phase != fault->phase)
                return; /* it waits for the next time */
        if (fault->fault != FAULT_MEMBER_KILL && fault->fault != FAULT_LEAVE && fault->fault != FAULT_TWIN)
                w.personal = false;
        if (!strike(fault->fault)) {
                w.n_faults = w.n_done;
                return;
        }
        hits[phase][fault->fault]++;
        shared_hits[phase] += shared;
        w.n_done++;
}

static void healed(void) {
        if (--w.healing > 0)
                return;
        w.healed = w.now;
        for (uint32_t proc = 0; proc < w.n_procs; proc++)
                for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                        w.proc[proc].trainer[i].commits = 0;
}

static void restart(const struct event *event) {
        struct proc *p = &w.proc[event->proc];

        proc_start(event->proc);
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                if (p->trainer[i].state != TRAINER_NONE)
                        member_hire(event->proc, i, p->trainer[i].identity, &p->trainer[i].tag,
                                    p->trainer[i].hash);
                else if (!event->a && p->has_node && rnd(4) != 0)
                        member_hire_new(event->proc, i);
}

void schedule_event(const struct event *event) {
        struct proc *p = &w.proc[event->proc];

        if (event->kind == EVENT_FAULT) {
                fault_event();
        } else if (event->kind == EVENT_ENDING) {
                end_orderly(event);
        } else if (event->kind == EVENT_START) {
                if (!p->alive && event->a == 2)
                        restart_up(event->proc);
                else if (!p->alive)
                        restart(event);
                healed();
        } else if (event->kind == EVENT_HIRE) {
                if (p->stopped) {
                        queue_put((struct event){ .at = p->wakes + 1,
                                                  .kind = EVENT_HIRE,
                                                  .proc = event->proc,
                                                  .a = event->a,
                                                  .epoch = UINT32_MAX });
                        return;
                }
                if (p->alive && p->trainer[event->a].state == TRAINER_NONE)
                        member_hire_new(event->proc, event->a);
                healed();
        } else {
                if (event->a == 1 && p->epoch == event->b)
                        p->stopped = false;
                if (event->a == 2) {
                        memset(w.cut_off, 0, sizeof(w.cut_off));
                        memset(w.bad_link, 0, sizeof(w.bad_link));
                }
                trace("healed %u", event->a);
                healed();
        }
}

/* Plans the fault that leads to the phase in which the intended one shall strike. */
static void plan_prelude(enum phase phase) {
        static const enum fault to_abort[] = { FAULT_NODE_KILL, FAULT_LINK };
        struct plan_fault *fault = &w.fault[w.n_faults];

        if (phase == PHASE_HOLD || phase == PHASE_STOP) {
                w.grows = true;
                return;
        }
        if (phase == PHASE_TAKE)
                fault->fault = rnd(2) == 0 ? FAULT_COORDINATOR_KILL : FAULT_COORDINATOR_STOP;
        else if (phase == PHASE_ABORT)
                fault->fault = to_abort[rnd(2)];
        else if (phase == PHASE_CUT || phase == PHASE_FREEZE || phase == PHASE_VERDICT ||
                 (phase == PHASE_NEWGEN && rnd(2) == 0))
                fault->fault = FAULT_MEMBER_KILL;
        else if (phase == PHASE_RUN && rnd(4) == 0)
                fault->fault = FAULT_UPGRADE; /* members have hardly heard of the generation that follows */
        else
                return;
        fault->at = 200 + rnd(200);
        w.n_faults++;
}

static void plan_faults(uint64_t seed) {
        uint32_t mode = rnd(20), pair = (uint32_t)(seed % PAIRS);
        struct plan_fault *fault;

        w.n_faults = w.n_done = 0;
        w.gentle = w.personal = true;
        memset(w.fault, 0, sizeof(w.fault));
        if (mode < 2)
                return;
        if (mode >= 6)
                plan_prelude(pair / N_FAULTS);
        fault = &w.fault[w.n_faults++];
        fault->fault = pair % N_FAULTS;
        fault->at_phase = mode >= 6;
        fault->phase = pair / N_FAULTS;
        fault->at = fault->at_phase ? 0 : 100 + rnd(500);
        if (w.n_faults == 2)
                fault->at = w.fault[0].at;
        if (mode < 18)
                return;
        for (uint32_t more = mode == 18 ? 1 : 1 + rnd(4); more > 0; more--) {
                fault = &w.fault[w.n_faults++];
                *fault = (struct plan_fault){ .fault = rnd(N_FAULTS), .at = 200 + rnd(800) };
        }
}

static void make_plan(void) {
        w.items[TRACK_OPERATION] = 2;
        w.items[TRACK_STEP] = 1 + rnd(3);
        for (uint32_t unit = TRACK_STEP + 1; unit < TRACKS; unit++)
                w.items[unit] = 1 + rnd(2);
}

/* A network that can break takes two processes. */
static uint32_t least_procs(void) {
        for (uint32_t i = 0; i < w.n_faults; i++)
                if (w.fault[i].fault == FAULT_PARTITION || w.fault[i].fault == FAULT_LINK)
                        return 2;
        return 1;
}

static void make_world(void) {
        uint32_t members = 0, least = least_procs();

        w.n_procs = rnd(12) > 0 ? least + rnd(5 - least) : 5 + rnd(MAX_PROCS - 4);
        for (uint32_t i = 0; i < w.n_procs; i++) {
                bool apart = w.n_procs > 1 && i == COORDINATOR && rnd(3) == 0;

                w.size[i] = apart ? 0 : 1 + rnd(2) + (rnd(4) == 0);
                w.proc[i].has_node = !apart;
                members += w.size[i];
        }
        w.min_world = w.ranked ? members : 1 + rnd(members);
        w.max_world = w.grows ? members + 2 : members;
}

static void make_procs(void) {
        for (uint32_t i = 0, members = 0; i < w.n_procs; i++) {
                struct proc *p = &w.proc[i];

                p->epoch = 0;
                p->terms = 0;
                record_drop(i);
                p->coordinates = i == COORDINATOR;
                proc_start(i);
                for (uint32_t k = 0; k < MAX_TRAINERS; k++)
                        p->trainer[k] = (struct trainer){ .state = TRAINER_NONE };
                for (uint32_t k = 0; k < w.size[i]; k++) {
                        struct tag tag = file_of(members++);

                        member_hire(i, k, member_identity(i, k), &tag, tag.step);
                }
        }
}

/* Where there is room for them; beside those that let the world grow, if any do. */
static void hire_spares(void) {
        for (uint32_t i = 0, n = 1 + rnd(2); i < n; i++) {
                uint32_t proc = rnd(w.n_procs), index = w.size[proc];

                if (!w.proc[proc].has_node || index == MAX_TRAINERS || w.spares[proc] != 0)
                        continue;
                w.spares[proc] = 1u << index;
                w.crowded = true;
                heal_later(150 + rnd(300), EVENT_HIRE, proc, index, 0, 0);
        }
}

void schedule_make(uint64_t seed) {
        w.seed = seed;
        w.rng = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ UINT64_C(0xD1B54A32D192ED03);
        for (unsigned i = 0; i < 8; i++)
                rnd(2);
        w.now = 0;
        w.violated = RULE_NONE;
        w.healing = 0;
        w.healed = 0;
        w.next_member = 0;
        memset(w.spares, 0, sizeof(w.spares));
        w.crowded = w.upgraded = false;
        w.coded = rnd(CODED) == 0;
        /* Each pair of phase and fault strikes such worlds as often as others. */
        w.agreed = seed / PAIRS % 2 == 1;
        w.wired = w.agreed && seed / PAIRS % 4 == 1;
        memset(w.cut_off, 0, sizeof(w.cut_off));
        memset(w.bad_link, 0, sizeof(w.bad_link));
        memset(w.lost, 0, sizeof(w.lost));
        memset(w.arrived, 0, sizeof(w.arrived));
        queue_reset();
        engine_reset();
        truth_reset();
        w.grows = rnd(5) == 0;
        w.program = rnd(64);
        plan_faults(seed);
        w.ranked = !w.grows && rnd(4) == 0;
        w.files = rnd(4) == 0 ? (rnd(2) == 0 ? FILES_SAME : FILES_DIFFER) : FILES_NONE;
        make_plan();
        make_world();
        make_procs();
        if (w.grows)
                for (uint32_t i = 0, n = 1 + rnd(2); i < n; i++)
                        heal_later(350 + rnd(200), EVENT_HIRE, w.n_procs - 1, MAX_TRAINERS - 1 - i, 0, 0);
        if (rnd(3) == 0)
                hire_spares();
}

static bool waits_as_spare(const struct trainer *trainer) {
        return trainer->state == TRAINER_JOINING && trainer->identity >= SPARES;
}

/* The world has no room for a spare; or there is none, and the spares that wait for one are too few to make
 * it. */
static bool spares_may_wait(void) {
        uint32_t in = 0, spares = 0, others = 0;

        for (uint32_t proc = 0; proc < w.n_procs; proc++)
                for (uint32_t i = 0; i < MAX_TRAINERS && w.proc[proc].alive; i++) {
                        const struct trainer *trainer = &w.proc[proc].trainer[i];

                        if (trainer->state == TRAINER_NONE || trainer->state == TRAINER_OVER)
                                continue;
                        in += trainer->in;
                        spares += waits_as_spare(trainer);
                        others += !waits_as_spare(trainer);
                }
        return in >= w.max_world || (others == 0 && spares < w.min_world);
}

/* Whether each living trainer has come on since the last repair, or knows that the job is over. */
static bool finished(void) {
        bool may_wait;

        if (w.healing > 0 || w.n_done < w.n_faults)
                return false;
        may_wait = spares_may_wait();
        for (uint32_t proc = 0; proc < w.n_procs; proc++)
                for (uint32_t i = 0; i < MAX_TRAINERS && w.proc[proc].alive; i++) {
                        const struct trainer *trainer = &w.proc[proc].trainer[i];

                        if (may_wait && waits_as_spare(trainer))
                                continue;
                        if (trainer->state != TRAINER_NONE && trainer->state != TRAINER_OVER &&
                            trainer->commits < 2)
                                return false;
                }
        return true;
}

static void deliver(struct event *event) {
        struct proc *p = &w.proc[event->proc];
        const struct comm *comm = &w.comm[event->a % MAX_COMMS];

        switch (event->kind) {
        case EVENT_MESSAGE: net_deliver(event->proc, event->a); break;
        case EVENT_TICK:
                if (p->has_node) { /* its daemon lets no generation begin just now */
                        node_wait(&p->node, clock_of(p), rnd(16) == 0);
                        node_tick(&p->node, clock_of(p));
                }
                if (p->coordinates)
                        coordinator_tick(&p->coordinator, clock_of(p));
                at(HEARTBEAT / 2, EVENT_TICK, event->proc, 0, 0, 0);
                break;
        case EVENT_DONE: engine_done(event); break;
        case EVENT_BUILT: engine_built(event); break;
        case EVENT_ABORTED: node_aborted(&p->node, clock_of(p), comm->name); break;
        case EVENT_UNREACHABLE: node_unreachable(&p->node, clock_of(p), comm->name, set_of(&event->c)); break;
        case EVENT_REJOIN:
        case EVENT_RESTORE: restart_event(event); break;
        default: member_event(event); break;
        }
        effects_drain(&effects, do_effect);
        local_look(event->proc);
        launches_look(event->proc);
}

static void run_event(struct event event) {
        struct proc *p = &w.proc[event.proc];

        if (event.kind >= EVENT_START) {
                schedule_event(&event);
        } else if (!p->alive || (event.epoch != p->epoch && event.kind != EVENT_MESSAGE)) {
                if (event.kind == EVENT_MESSAGE)
                        net_free(event.a);
        } else if (p->stopped) {
                event.at = p->wakes + 1 + rnd(3);
                queue_put(event);
        } else {
                deliver(&event);
        }
        effects_drain(&effects, do_effect);
        schedule_look();
}

enum rule schedule_run(uint64_t seed, bool traced) {
        struct event event;

        if (effects.first == NULL && effects_init(&effects, EFFECTS_ROOM) < 0)
                abort();
        w.trace = traced;
        schedule_make(seed);
        effects_drain(&effects, do_effect);
        while (w.violated == RULE_NONE && next_event(&event)) {
                w.now = event.at;
                run_event(event);
                if (event.kind == EVENT_TICK && finished())
                        break;
                if (w.healing == 0 && w.now > w.healed + TOO_LONG)
                        violate(RULE_WAIT, "somebody has waited since %llu", (unsigned long long)w.healed);
        }
        if (w.violated == RULE_NONE)
                truth_end();
        return w.violated;
}
