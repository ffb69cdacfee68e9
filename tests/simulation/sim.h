/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of daemons, members and a bad network in virtual time, driven by one seed. The machines in it are
 * the daemon's own object files; everything else is a model: the engine with the facts that were measured on
 * a real one, trainers, the part of the daemon between both. truth.c holds what really happened, and judges.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/machine/coordinator.h"
#include "rendezvous/machine/node.h"
#include "rendezvous/machine/trace.h"

#define MAX_PROCS 8u
#define MAX_TRAINERS 3u
#define MAX_ITEMS 4u
#define MAX_COMMS 128u
#define TRACKS 4u    /* units of a node: operations, and the steps of three plans; each plan has a track */
#define N_LANES 4u   /* two of the first track, one of all others, one of operations */
#define SPARES 1000u /* identities of spares begin here */
#define WINDOW 2u    /* collectives ahead on a lane */
#define RING 16u     /* collectives of a lane that are kept: more than any window */
#define MAX_FAULTS 6u

/* The coordinator's phase when a fault strikes, and the fault. Each pair of them is counted. OPEN: a step is
 * open; DOUBT: and a node is prepared for it, but does not know the outcome. */
enum phase {
        PHASE_FORM,
        PHASE_TAKE,
        PHASE_RUN,
        PHASE_OPEN,
        PHASE_DOUBT,
        PHASE_HOLD,
        PHASE_STOP,
        PHASE_FREEZE,
        PHASE_CUT,
        PHASE_ABORT,
        PHASE_VERDICT,
        PHASE_NEWGEN,
        N_PHASES
};
enum fault {
        FAULT_MEMBER_KILL,
        FAULT_NODE_KILL,
        FAULT_COORDINATOR_KILL,
        FAULT_NODE_STOP,
        FAULT_COORDINATOR_STOP,
        FAULT_PARTITION,
        FAULT_LINK,
        FAULT_LEAVE,
        FAULT_TWIN,
        FAULT_RESTART,
        FAULT_UPGRADE,
        FAULT_JUMP,
        FAULT_COORDINATOR_JUMP,
        N_FAULTS
};

/* The rules that must always hold. */
enum rule {
        RULE_NONE,
        RULE_SAME_STATE,
        RULE_TRUE_SUM,
        RULE_ARENA,
        RULE_RANK,
        RULE_GENERATION,
        RULE_TERM,
        RULE_WAIT,
        RULE_COUNTS,
        RULE_FENCED,
        RULE_LOSS,
        RULE_TRACK,
        RULE_ORDER,
        RULE_READY,
        RULE_VALID,
        RULE_RESTART,
        RULE_TORN,
        RULE_NO_FAULT,
        RULE_ONE_FAULT,
        N_RULES
};

enum event_kind {
        EVENT_MESSAGE,
        EVENT_TICK,
        EVENT_DONE,
        EVENT_BUILT,
        EVENT_ABORTED,
        EVENT_UNREACHABLE,
        EVENT_REDUCED,
        EVENT_FANNED,
        EVENT_QUIET,
        EVENT_PLAN,
        EVENT_TRAINER,
        EVENT_TOLD,
        EVENT_REJOIN,
        EVENT_RESTORE,
        EVENT_START,
        EVENT_ENDING,
        EVENT_HIRE,
        EVENT_FAULT,
        EVENT_HEAL
};

struct event {
        uint64_t at;
        uint32_t order; /* of equal times: random */
        enum event_kind kind;
        uint32_t proc, epoch; /* dropped if the process has another epoch by then */
        uint32_t a, b;
        uint64_t c;
};

/* AWAY: its daemon is gone, and it has not come back into its job yet. */
enum trainer_state {
        TRAINER_NONE,
        TRAINER_AWAY,
        TRAINER_JOINING,
        TRAINER_READYING,
        TRAINER_WAITING,
        TRAINER_OVER
};

/* The end of a unit, which the daemon has said and the trainer not heard yet. */
struct news {
        bool come;
        struct generation generation;
        uint64_t number;
        struct tag tag;
};

struct trainer {
        enum trainer_state state;
        uint64_t id, identity;
        uint32_t epoch; /* counts what it was told to begin: older events are not its own any more */
        struct tag tag;
        uint64_t hash; /* its state: everything that it has applied */
        bool behind, in, leaving;
        bool unsynced; /* was to synchronise with all others, and no step was committed since */
        struct generation generation;
        uint32_t heard;         /* number of the latest generation that it has heard of; 0: none */
        uint32_t script, line;  /* what it does now */
        uint32_t item[TRACKS];  /* next one to be ready */
        bool done[TRACKS];      /* the unit that it has given everything to is committed */
        uint64_t known[TRACKS]; /* units that it has heard to be committed */
        struct news news[TRACKS];
        bool back;        /* AWAY: has connected to the daemon */
        bool returns;     /* has come back into its place, and waits for the next generation */
        bool received;    /* has the source's state, which its node does not know yet */
        uint32_t commits; /* since the world was healed */
};

/* The daemon's part between machine, arenas and engine: one open unit of a track. */
struct local {
        bool active, cancelled, told, empty;
        bool open;   /* data may be reduced */
        bool spoilt; /* the results cannot be written */
        uint32_t serial;
        struct generation generation;
        uint64_t number, opened; /* opened: when */
        uint32_t members, ready[MAX_ITEMS];
        bool begun[MAX_ITEMS]; /* the data was touched */
        bool written;          /* some member's memory may have been written to */
        bool reduced[MAX_ITEMS], fanned[MAX_ITEMS], good[MAX_ITEMS];
        uint32_t n_ready, offered[N_LANES], results[N_LANES], tasks;
};

struct record_member {
        uint64_t member, id; /* id: of its place */
        uint32_t rank, slot;
        bool behind;
};

/* The node, as the journal of its daemon has it. It outlives the daemon, and is written before members hear
 * of what it says. */
struct record {
        struct generation generation;
        uint32_t world;     /* 0: the node is in no generation */
        bool resumed;       /* nothing was void for members that entered the generation */
        bool ended;         /* members know that it is at its end */
        bool unsynced;      /* members were to synchronise, and no step was committed since */
        uint64_t set;       /* nodes of the generation */
        struct tag history; /* the largest one when members entered it, */
        uint64_t steps;     /* and how many steps of all tracks were committed then */
        uint32_t n;         /* of its members that belong to the generation */
        struct record_member member[MAX_TRAINERS];
        uint64_t committed[TRACKS]; /* of each track, as long as it is no plan's */
        uint32_t track_of[TRACKS];  /* of each plan; TRACK_OPERATION: it has none */
        uint64_t before[TRACKS];    /* units of that track before the plan's first step */
        struct trace trace[TRACKS]; /* of each plan; numbers are those of its track */
};

struct proc {
        bool alive, stopped, has_node;
        bool coordinates; /* the first one does */
        bool ending;      /* it will end when nothing is begun */
        bool expects;     /* started anew, with trainers on their way back */
        bool awaits;      /* the record has not become a report yet */
        bool late;        /* the node does not know that there is one */
        bool may_resume;  /* nothing is void in the generation that follows, if all of them are in it */
        uint32_t former_world;
        struct generation whole; /* the latest one before which something was void for its members */
        bool torn, fresh;        /* members have heard of something void; some are new in the generation */
        struct record record;
        struct local former[TRACKS]; /* of the former run: what its members' arenas hold */
        uint32_t epoch;              /* counts starts */
        uint64_t wakes;
        uint64_t clock; /* by so much its own is ahead of the world's */
        uint64_t terms; /* kept on disk: the highest that it has begun */
        struct trainer trainer[MAX_TRAINERS];
        struct local local[TRACKS];
        uint32_t track_of[TRACKS]; /* of each plan, as the node has heard; TRACK_OPERATION: not yet */
        uint64_t steps[TRACKS];    /* committed steps of each plan, as the driver counts them */
        uint32_t dropped[TRACKS];  /* trainers that have no use for that plan any more, others still have */
        struct node node;
        struct coordinator coordinator;
};

struct collective {
        uint64_t seq;      /* which one of the lane this is now */
        uint64_t launched; /* by whom */
        bool named;        /* not by fillers only: what it is; */
        uint64_t number;
        enum launch_kind kind;
        uint32_t track;
        uint64_t index, value, payload;              /* payload: the nodes that have launched one */
        uint32_t unit[MAX_PROCS], serial[MAX_PROCS]; /* a node's unit that its payload belongs to */
        uint32_t members;                            /* whose data is in it */
        bool mixed; /* not the same thing on all nodes: no node may use a result */
};

struct comm {
        struct generation name;
        uint64_t set, begun, works, dead; /* nodes: where it is being built, works, has ended */
        uint32_t epoch[MAX_PROCS];
        uint64_t launched[N_LANES][MAX_PROCS];
        uint64_t done[N_LANES][MAX_PROCS];
        uint64_t next_at[N_LANES][MAX_PROCS]; /* when the latest one completes there: in order */
        struct collective ring[N_LANES][RING];
};

/* The engine's sets in this small world are one word each. */
static inline struct nodeset set_of(uint64_t *nodes) {
        return (struct nodeset){ nodes, 1 };
}

struct plan_fault {
        bool armed, done, at_phase;
        enum phase phase;
        enum fault fault;
        uint64_t at;
};

struct world {
        uint64_t seed, rng, now;
        bool trace;
        bool coded;  /* messages are bytes on their way */
        bool agreed; /* nodes agree on launches */
        bool wired;  /* over connections: messages come in order, and none is lost without a fault */
        uint32_t n_procs, min_world, max_world;
        uint32_t items[TRACKS]; /* of each unit */
        bool grows, ranked;
        bool crowded;     /* there are spares: a slow member finds its place taken */
        uint32_t program; /* which scripts are played when */
        enum { FILES_NONE, FILES_SAME, FILES_DIFFER } files;
        struct proc proc[MAX_PROCS];
        struct comm comm[MAX_COMMS];
        uint32_t n_comms;
        uint64_t next_member;
        uint32_t size[MAX_PROCS];               /* members at the beginning */
        uint32_t spares[MAX_PROCS];             /* trainers of it that wait for a place, one bit each */
        uint64_t cut_off[MAX_PROCS];            /* processes that nothing of this one reaches */
        uint64_t bad_link[MAX_PROCS];           /* processes that it does not reach in the engine */
        uint32_t lost[MAX_PROCS][MAX_PROCS];    /* kinds of messages of which the last one was, a bit each */
        uint64_t arrived[MAX_PROCS][MAX_PROCS]; /* wired: when the latest message does */
        struct plan_fault fault[MAX_FAULTS];
        uint32_t n_faults, n_done;
        uint32_t healing; /* restarts, wake-ups and repairs still to come */
        bool gentle;      /* no fault so far can have cost a member its place */
        bool upgraded;    /* the last fault was an orderly restart, all come back in time */
        bool personal;    /* no fault so far can have cost all members of a node their places */
        uint64_t healed;  /* when the last one came */
        enum rule violated;
};

extern struct world w;
extern uint64_t hits[N_PHASES][N_FAULTS];
extern uint64_t shared_hits[N_PHASES]; /* those while two plans wanted one lane */
extern const char *const rule_names[N_RULES];
extern const char *const phase_names[N_PHASES];
extern const char *const fault_names[N_FAULTS];

/* The node's track on which that unit of the process is. */
static inline const struct track *track_on(const struct proc *proc, uint32_t unit) {
        static const struct track none;

        return unit > 0 && proc->track_of[unit] == TRACK_OPERATION ? &none
                                                                   : &proc->node.track[proc->track_of[unit]];
}

static inline uint32_t unit_on(const struct proc *proc, uint32_t track) {
        uint32_t unit = track == TRACK_OPERATION ? 0 : TRACKS - 1;

        while (unit > 0 && proc->track_of[unit] != track)
                unit--;
        return unit;
}

/* The lane of an item. */
static inline uint32_t lane_of(const struct proc *proc, uint32_t unit, uint32_t item) {
        if (unit == TRACK_OPERATION)
                return N_LANES - 1;
        return proc->track_of[unit] == TRACK_STEP ? item % 2 : N_LANES - 2;
}

static inline uint64_t clock_of(const struct proc *proc) {
        return w.now + proc->clock;
}

/* world.c */
uint32_t rnd(uint32_t below);
void at(uint64_t delay, enum event_kind kind, uint32_t proc, uint32_t a, uint32_t b, uint64_t c);
bool next_event(struct event *ret);
void queue_reset(void);
void queue_put(struct event event);
void net_order(uint32_t from, const struct order *order);
void net_report(uint32_t from, const struct report *report);
void net_deliver(uint32_t to, uint32_t slot);
void net_free(uint32_t slot);
bool reaches(uint32_t from, uint32_t to);
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* engine.c */
void engine_reset(void);
void engine_act(uint32_t proc, const struct action *action);
void engine_done(const struct event *event);
void engine_built(const struct event *event);
struct comm *engine_find(struct generation name);

/* members.c */
bool node_has_members(const struct proc *proc);
void member_act(uint32_t proc, const struct action *action);
void member_event(const struct event *event);
void member_hire(uint32_t proc, uint32_t index, uint64_t identity, const struct tag *tag, uint64_t hash);
uint64_t member_identity(uint32_t proc, uint32_t index);
void member_hire_new(uint32_t proc, uint32_t index); /* without a state */
void member_kill(uint32_t proc, uint32_t index);
void member_leave(uint32_t proc, uint32_t index);
bool member_twin(uint32_t proc, uint32_t index); /* a newer process of the same identity comes */

void member_return(uint32_t proc,
                   uint32_t index); /* into its place, as a member that the daemon has not seen before */
bool member_returned(uint32_t proc, uint64_t member);
void member_vanish(uint32_t proc, uint32_t index);
void member_hear(uint32_t proc, struct trainer *trainer, uint32_t track, struct generation generation,
                 uint64_t number);
struct membership_request wish_of(uint64_t member, uint32_t index, uint64_t identity);

/* record.c: writes the record. */
void record_enter(uint32_t proc, const struct action *action, bool resumed);
void record_end(uint32_t proc);  /* members are about to hear of a loss, or that something is void */
void record_drop(uint32_t proc); /* the node is in no generation any more */
void record_track(uint32_t proc, uint32_t plan); /* the plan has come to a track, or to none */
void record_begin(uint32_t proc, uint32_t plan); /* the arenas of its next step are about to be written to */
void record_done(uint32_t proc, uint32_t plan);
void record_void(uint32_t proc, uint32_t plan);
/* The unit is committed, and members are about to hear of it; heard: one has. */
void record_commit(uint32_t proc, uint32_t unit, uint64_t number, bool heard);
struct record_member *record_find(struct record *record, uint64_t member);

/* restart.c */
bool restart_is_quiet(uint32_t proc);
void restart_down(uint32_t proc);
void restart_up(uint32_t proc);
void restart_event(const struct event *event);
bool restart_resumes(uint32_t proc);

/* launches.c */
void launches_reset(void);
void launches_look(uint32_t proc); /* after each event there */
void launches_said(uint32_t proc, const struct order *order);
void launches_heard(uint32_t proc); /* whatever it was, by its node */
void launches_judge(uint32_t proc, const struct comm *comm, const struct action *action);

/* local.c */
bool local_has(uint32_t proc, uint32_t unit); /* an operation, or a plan that it may open */
bool local_open(uint32_t proc, struct generation generation, uint32_t track); /* false: absorbed */
void local_opened(uint32_t proc, uint32_t track); /* from now on data may be touched */
void local_reduce(uint32_t proc, uint32_t track, uint32_t item);
void local_reduced(uint32_t proc, uint32_t track, uint32_t item);
void local_result(uint32_t proc, uint32_t lane, const struct collective *collective);
void local_fanned(uint32_t proc, uint32_t track, uint32_t item);
void local_quiet(uint32_t proc, uint32_t track); /* once nothing touches arenas any more */
void local_spoil(uint32_t proc);                 /* a member takes its memory with it */
bool local_drop(uint32_t proc, uint32_t unit);   /* a trainer gives its plan up */
void local_look(uint32_t proc);                  /* what a node without members does of itself */

/* schedule.c */
void schedule_make(uint64_t seed);
void schedule_look(void);
void schedule_event(const struct event *event);
void proc_start(uint32_t proc);
struct coordinator *serving(void);
enum rule schedule_run(uint64_t seed, bool trace);

/* truth.c */
void truth_reset(void);
void truth_said(uint32_t proc, const struct order *order); /* by the coordinator there */
void truth_generation(uint32_t proc, struct trainer *trainer, const struct action *action);
void truth_outcome(uint32_t proc, const struct action *action);
void truth_hired(uint64_t member, uint64_t identity);
void truth_gone(uint64_t member, uint32_t cause);                  /* the first cause counts */
void truth_differs(struct generation generation, uint64_t number); /* members call different operations */
void truth_loss(uint32_t proc, const struct action *action);
/* Judges what a restarted node reports, and whether its members go on as if nothing had happened. */
void truth_restored(uint32_t proc, const struct report *report, bool resumes);
void truth_restarted(uint32_t proc);
void truth_resumed(uint32_t proc, bool resumed);
void truth_entered(uint32_t proc, const struct action *action);
void truth_lost(uint32_t proc); /* its node is no survivor of its generation any more */
void truth_serving(uint32_t proc);
void truth_opened(uint32_t proc, const struct action *action); /* a unit: whose track it is */
/* Units of the plan's track that were no steps of it; how many steps are told to be committed. */
uint64_t truth_units_before(uint32_t proc, uint32_t plan);
void truth_counted(uint32_t proc, uint32_t plan, uint64_t steps);
void truth_dropped(uint32_t proc, uint32_t unit);
void truth_write(uint32_t proc, const struct local *local);
/* They look at a node before and after it takes an order. */
void truth_before(uint32_t proc, const struct order *order);
void truth_after(uint32_t proc, const struct order *order);
/* Looks at a coordinator after it has taken a report. */
void truth_reported(uint32_t proc);
void truth_end(void);
uint64_t truth_state(struct generation generation, struct tag *ret_tag);
void violate(enum rule rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
