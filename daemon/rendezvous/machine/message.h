/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two kinds of messages between daemons about one job, and the actions that the protocol asks of its
 * callers: plain structs, without pointers and without bytes on a wire. PROTOCOL.md describes how they are
 * used. Each message says a whole state: one that is lost is said again, one that comes twice changes
 * nothing, and one that comes late is known by its number.
 *
 * The coordinator gives orders, one at a time, numbered by (term, round). A node carries out the highest
 * that it has seen and answers with a report of everything that it knows. Nodes never talk to each other
 * here: they only meet in the engine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/sha256.h"
#include "proto/frame.h"
#include "rendezvous/machine/facts.h"
#include "rendezvous/machine/membership.h"
#include "rendezvous/machine/nodeset.h"
#include "rendezvous/machine/room.h"

#define LIMIT_SEATS (LIMIT_LOCAL + 1)    /* a full world, and the newer process of one of its members */
#define LIMIT_LANES 4u                   /* of steps and operations together */
#define LIMIT_WINDOW 8u                  /* collectives ahead on a lane */
#define LIMIT_NUMBER (UINT64_C(1) << 62) /* of a unit, a turn, a term, a round, a time: sums of two fit */
#define LIMIT_GENERATION (3u << 30)      /* of its number: more than what a member may say that comes back */
#define LIMIT_VACANT LIMIT_LOCAL         /* ranks that are shown as vacant; higher ones never are */
#define COORDINATOR 0u                   /* address of the daemon that coordinates */

/* Operations outside steps, and the steps of each plan: every track has its own numbers and outcome, and
 * units of several may be open at the same time. The coordinator says which track is which plan's. */
#define LIMIT_TRACKS (LIMIT_PLANS + 1)
enum { TRACK_OPERATION = 0, TRACK_STEP = 1 };

/* A generation of a job's membership. Terms come first: a generation of a later coordinator is later,
 * whatever its number. */
struct generation {
        uint64_t term;
        uint32_t number; /* 0: none */
        uint32_t nonce;
};

enum order_kind {
        ORDER_COLLECT, /* stay as you are and report; for nodes outside, and from a coordinator that has just
                          begun */
        ORDER_RUN,     /* all nodes have entered the generation */
        ORDER_HOLD,    /* open nothing further but what an open unit may need, and say what is open */
        ORDER_STOP,    /* go on up to stop[track]; given anew when a node had to open more for the sake of
                          what is open */
        ORDER_FREEZE,  /* hand nothing more to the engine, decide nothing, and say what was handed out */
        ORDER_CUT,     /* fill every lane up to seq[lane] */
        ORDER_ABORT,   /* a node is lost, so the cut cannot be reached: abort the engine */
        ORDER_VERDICT, /* everything up to verdict[track] is committed, everything beyond is void */
        ORDER_NEWGEN,  /* enter this generation */
        ORDER_FENCE,   /* you do not belong to the generation that goes on: let go of it, then join again */
        ORDER_END,     /* there will be no further generation */
        ORDER_REFUSE,  /* one member is not taken, or no longer; not numbered, the order stays what it is */
        ORDER_PLACES,  /* which places are vacant, and which members wait for one; not numbered either */
        ORDER_EXPLAIN, /* say this of a plan beside the report: see enum note; nor are these two */
        ORDER_REJECT,  /* no node has that plan, for this reason */
        N_ORDERS,
};

/* How far the node has come with the order that it answers. */
enum report_kind {
        ANSWER_NONE, /* it has not said anything yet: the kind of no report */
        ANSWER_REPORT,
        ANSWER_HELD,
        ANSWER_PAUSED,
        ANSWER_FROZEN,
        ANSWER_DRAINED,
        ANSWER_ABORTED,
        ANSWER_SETTLED,
        ANSWER_ACK,
        N_ANSWERS,
};

/* Why the job has ended, or a member is not taken. */
enum job_end {
        JOB_END_NONE,
        JOB_END_NO_STATE, /* no up-to-date rank: restart from checkpoint */
        JOB_END_TOO_FEW,  /* no member came back in time, and too few are left */
        JOB_END_REFUSED,  /* a member's request cannot be granted, or its wait has ended */
        JOB_END_FENCED,   /* a newer process of the same identity has come */
        JOB_END_ENDED,    /* through no member's fault: the loss has the cause */
        N_JOB_ENDS,
};

/* A member, as its node reports it. */
struct report_member {
        struct membership_request request;
        struct tag tag;
        uint32_t rank, slot; /* in the generation, if `in` */
        uint64_t id;         /* in that generation: the stable id of the place */
        bool in;             /* belongs to the generation that the report names */
        bool behind;         /* has yet to take the source's state */
        bool leaving;        /* has said goodbye; no member waits for it */
        bool waits;          /* the node's own note: it has no place, see struct order_places */
};

/* A member of the node, and its place in the generation that begins. */
struct order_member {
        uint64_t member;
        struct tag tag;
        uint32_t rank, slot;
        uint64_t id; /* the stable id of the place */
        bool behind; /* must take the source's state first */
};

/* Places of a job that waits for members, as nodes show them. */
struct places {
        uint64_t grace;                     /* us that a lost member's place is kept */
        uint64_t vacant[LIMIT_VACANT / 64]; /* ranks that no member has; while the job forms, members that
                                               asked for none are taken to get the lowest free ones */
};

static inline bool places_has(const struct places *places, uint32_t rank) {
        return rank < LIMIT_VACANT && (places->vacant[rank / 64] >> rank % 64 & 1);
}

struct order_places {
        struct places places;
        uint32_t n_waiting; /* members of the node that have no place: they wait for another one to be lost */
        uint64_t waiting[LIMIT_SEATS];
};

/* The note of a report on one plan, beside the rest; the latest one counts. */
enum note {
        NOTE_NONE,
        NOTE_FACTS,  /* asked for: what it is, as far as that entry */
        NOTE_LACKS,  /* asked for: the members here that have not brought it, in the text */
        NOTE_LATE,   /* a member here waits no longer for the others to bring it */
        NOTE_FAILED, /* it cannot be agreed on here, and so nowhere */
        N_NOTES,
};

struct report_note {
        struct plan_facts facts;
        struct refusal refusal; /* LACKS and FAILED */
        uint64_t waited;        /* LATE: us */
};

/* A member that its node has lost, and why. */
struct report_gone {
        uint64_t member;
        uint32_t cause; /* WIRE__CAUSE__… */
        uint32_t rank;  /* in the generation, if `in` */
        bool in;        /* belonged to the generation that the report names */
};

/* A plan, as one of its nodes has it. */
struct report_plan {
        uint64_t digest; /* of what the members have agreed on */
        /* Where its steps share a lane with those of other plans, and so take turns: */
        uint64_t unit;   /* the open one, if its members there have given everything; else 0 */
        uint64_t turn;   /* its turn; 0: the node knows of none yet */
        uint64_t before; /* units of the track that were committed before its first one */
        uint32_t ordinal;
        uint32_t track; /* of its steps, the same on every node; TRACK_OPERATION: none yet */
        bool open;      /* its steps may begin in the generation that the report names */
        bool voids;     /* a loss ends it as long as it is not open */
};

/* A plan, as the coordinator wants all nodes to have it. */
struct order_plan {
        uint64_t digest;
        uint64_t unit, turn; /* the latest one that has a turn; 0: none */
        uint64_t before;
        uint32_t ordinal;
        uint32_t track;
        bool open;
        bool kept; /* NEWGEN: members of the generation before have it */
};

/* From the coordinator to one node. Each array has as many entries as its number says, and the union holds
 * the one that belongs to the kind; the rest may be noise. */
struct order {
        enum order_kind kind;
        uint32_t to;       /* address of the node, below LIMIT_NODES */
        uint64_t instance; /* of the node that is meant: grows with each start of its daemon */
        uint64_t term;
        uint64_t round;               /* its number in the term */
        uint64_t stamp;               /* the latest one of the node that the coordinator has seen */
        struct generation generation; /* the one that the order is about */
        struct generation comm;       /* the generation for which the communicator in use was built */
        uint64_t seq[LIMIT_LANES];    /* CUT: up to where */
        uint64_t go[LIMIT_LANES];     /* up to where a lane whose launches are agreed on may launch; else 0 */
        struct tag history;           /* the largest tag that the coordinator knows of */
        bool behind; /* NEWGEN: all members synchronise: some member of it, on any node, comes without the
                        source's state */
        bool torn;   /* NEWGEN: members of all nodes hear that something is void, because some must, or are
                        new */
        uint32_t world, source; /* NEWGEN: members, and the rank whose state counts */
        enum job_end end;       /* END and REFUSE; FREEZE: there will be no further generation */
        struct membership_loss
                loss;         /* FREEZE to NEWGEN, END: the first loss of the generation; all 0: none */
        struct sha256 secret; /* NEWGEN: shared by the nodes of the generation, if these are on several hosts;
                                 all 0: none */
        uint64_t member;      /* REFUSE: the one that is refused */
        uint32_t next_plan;   /* NEWGEN: ordinal of the next one of the members of the generation before, on
                                 all nodes */
        enum note note;       /* EXPLAIN: the note that is wanted, FACTS or LACKS */
        uint32_t ordinal;     /* EXPLAIN, REJECT: of the plan */
        uint32_t index;       /* EXPLAIN of FACTS: as far as that entry */
        uint32_t n_words;     /* of set[] */
        uint32_t n_tracks;    /* in use; what is beyond counts as 0, in this order and everywhere else */
        uint32_t n_plans;     /* that any node has, and that have a track */
        uint32_t n_members;   /* NEWGEN: members of the node that belong to it, by rank */
        uint64_t mark[LIMIT_TRACKS]; /* STOP: up to where; VERDICT, NEWGEN: committed */
        struct order_plan plan[LIMIT_PLANS];
        uint64_t set[NODESET_WORDS]; /* nodes of that generation */
        union {
                struct order_member member_of[LIMIT_SEATS];
                struct refusal refusal;     /* REFUSE and REJECT */
                struct order_places places; /* PLACES */
        };
};

/* From a node to the coordinator: everything that the node knows. Its arrays are as those of an order. */
struct report {
        enum report_kind kind;
        uint32_t from;     /* address of the node, below LIMIT_NODES */
        uint64_t instance; /* of the node: grows with each start of its daemon */
        uint64_t term;
        uint64_t round;               /* the order that is answered */
        uint64_t stamp;               /* the node's clock, never twice the same */
        struct generation generation; /* the node's */
        struct generation comm;       /* the generation for which the communicator in use was built */
        uint64_t seq[LIMIT_LANES];    /* launched on each lane */
        /* Sequence numbers on lanes whose launches are agreed on; 0 on all others: */
        uint64_t ready[LIMIT_LANES]; /* up to where the node could launch, */
        uint64_t go[LIMIT_LANES];    /* and up to where it has heard that it may */
        struct tag history;          /* the largest tag that the node knows of */
        uint32_t host, device;
        uint32_t engine; /* nodes with different ones cannot exchange, see engine_name() */
        bool awaits;     /* its daemon has started anew, and the members of the former one are awaited */
        bool running;    /* nothing keeps the node from opening the next step */
        bool wait;       /* more is to come, so make no generation now, and end no member's wait */
        bool away;       /* the latest one of a daemon that ends, and is followed by another one */
        bool behind;    /* members of the node were told to take the source's state, and no step was committed
                            since */
        bool torn;      /* members of the node hear that something of the generation is void */
        uint32_t cause; /* for which the node's daemon ends the job (WIRE__CAUSE__…), or 0 */
        uint32_t world; /* members of the generation, 0: the node is outside */
        enum job_end end;            /* the job has ended for the node, and its members know it */
        uint32_t next_plan;          /* ordinal of the next one of the node's members */
        enum note note;              /* about one plan, */
        uint32_t ordinal;            /* which has this ordinal */
        uint32_t n_words;            /* of set[] and links[]: see report_name_nodes() */
        uint32_t n_tracks;           /* in use; what is beyond counts as 0 */
        uint32_t n_plans;            /* that members of the node have agreed on, and not let go of */
        uint32_t n_members;          /* all of the node's */
        uint32_t n_gone;             /* members lost since the node entered its generation */
        uint64_t mark[LIMIT_TRACKS]; /* opened */
        uint64_t committed[LIMIT_TRACKS], prepared[LIMIT_TRACKS];
        struct report_plan plan[LIMIT_PLANS];
        uint64_t set[NODESET_WORDS];   /* nodes of that generation */
        uint64_t links[NODESET_WORDS]; /* nodes that this one cannot reach, as its engine says */
        struct report_member member_of[LIMIT_SEATS];
        struct report_gone gone[LIMIT_LOCAL];
        struct report_note about; /* unless the note is NONE */
};

/* Unique in a job, on all its nodes and over restarts of each: `count` is one of that run of its daemon. */
static inline uint64_t member_id(uint32_t address, uint64_t instance, uint64_t count) {
        return (uint64_t)address << 52 | (instance & 0xfffff) << 32 | (uint32_t)count;
}
static inline uint32_t member_id_node(uint64_t member) {
        return (uint32_t)(member >> 52);
}
static inline uint32_t member_id_count(uint64_t member) {
        return (uint32_t)member;
}

/* Actions that the protocol asks for. The engine and the arenas are the caller's. */
enum action_kind {
        ACTION_BUILD,  /* a communicator of `set`, named `comm` → node_built(); the older one stays */
        ACTION_DROP,   /* the older communicator */
        ACTION_ABORT,  /* the engine of `comm`, bounded in time → node_aborted() */
        ACTION_LAUNCH, /* collective `seq` of `lane`: number `index` of the track's open unit, or its vote
                          with `value`, or a filler → node_done() */
        ACTION_CANCEL, /* let go of the unit's arenas → node_quiet() */
        ACTION_TRACK,  /* the steps of plan `number` are those of `track`, and `index` of them are committed;
                          the next one may begin, and is open once all nodes have the plan;
                          TRACK_OPERATION: no longer */
        ACTION_OPEN,   /* from now on the unit's data may go to the engine, or into a reduction */
        /* to members: */
        ACTION_INTERRUPTED, /* the generation has a loss: nothing more is decided in it before all have met.
                               `end`: there will be no further one */
        ACTION_COMMITTED,   /* unit `number` of `track` */
        ACTION_VOID,        /* unit `number` of `track`: no node has it, or, if `behind`, others may */
        ACTION_MISMATCH,    /* the operation was not the same everywhere */
        ACTION_UNBEGUN,     /* the unit was asked for, was never open, and ends without a word to members */
        ACTION_GENERATION,  /* `member` belongs to `generation` with `rank` of `world`, in the place `id`;
                               `behind`: take the state of `source`; `number`: steps of the job that were
                               committed before */
        ACTION_ENTERED, /* every member of this node that belongs to `generation` has been named; `behind`:
                               some member of it, on any node, comes without the state of `source`; `torn`:
                               what was open in the generation before is void, for members of all nodes */
        ACTION_OUT, /* the node is outside: `since` the coordinator was last heard; its members join again */
        ACTION_REFUSED,  /* `member` is not taken, or no longer: `end`, and what to tell it */
        ACTION_ENDED,    /* the job is over: `end` */
        ACTION_EXPLAIN,  /* plan `number`, `note`, entry `index`: node_explain() */
        ACTION_REJECTED, /* no node has plan `number`: `refusal` */
};

enum launch_kind { LAUNCH_PAYLOAD, LAUNCH_VOTE, LAUNCH_FILLER };

struct action {
        enum action_kind kind;
        struct generation generation, comm;
        struct nodeset set; /* BUILD */
        uint32_t lane;
        uint64_t seq;
        enum launch_kind launch;
        uint64_t index, value;
        uint32_t track;
        uint64_t number;
        bool behind, torn;
        uint64_t member, since;
        uint32_t rank, slot, world, source;
        uint64_t id;
        enum job_end end;
        struct sha256 secret; /* ENTERED: see struct order */
        struct membership_loss
                loss;   /* INTERRUPTED, VOID, GENERATION, ENDED: the first loss of the generation before */
        enum note note; /* EXPLAIN */
        const struct refusal *refusal; /* REFUSED, REJECTED; else NULL */
};

/* All in microseconds. heartbeat < patience < death < abandon; death is longer than two heartbeats. */
struct machine_times {
        uint64_t heartbeat; /* between two sayings of the same thing */
        uint64_t patience;  /* a node without word from a coordinator launches and decides nothing any more */
        uint64_t death;     /* a coordinator without word from a node takes it for lost */
        uint64_t abandon;   /* a node without word from a coordinator leaves its generation */
        uint64_t drain;     /* for DRAINED, then the engine is aborted */
        uint64_t build;     /* for ABORTED and for ACK, then a node is expelled */
};

static inline bool track_is_step(uint32_t track) {
        return track >= TRACK_STEP;
}

/* Each of the first plans has lanes of its own, all others share one. The last lane is that of operations. */
static inline bool lane_is_shared(uint32_t n_lanes, uint32_t lane) {
        return lane + 2 == n_lanes && n_lanes > 2;
}

static inline bool generation_equal(struct generation a, struct generation b) {
        return a.term == b.term && a.number == b.number && a.nonce == b.nonce;
}

/* Below 0: a is older. */
static inline int generation_compare(struct generation a, struct generation b) {
        if (a.term != b.term)
                return a.term < b.term ? -1 : 1;
        return a.number < b.number ? -1 : a.number > b.number;
}

int tag_compare(const struct tag *a, const struct tag *b);
/* Returns the number that so many steps on that track add to the `plans` of a tag. */
static inline uint64_t tag_plans(uint64_t steps, uint32_t track) {
        return steps * (UINT64_C(0x9E3779B97F4A7C15) * track);
}

/* Whether the fields agree with each other and are in range, as far as that is known without a state. A
 * message that is not valid is to be dropped. */
bool order_valid(const struct order *order);
bool report_valid(const struct report *report);
/* Copies what it says; the rest of `to`, which may be as short as order_bytes(), stays noise. */
void order_copy(struct order *to, const struct order *from);
void report_copy(struct report *to, const struct report *from);
const char *order_name(enum order_kind kind);
const char *report_name(enum report_kind kind);

/* Returns the bytes of the struct that have to be copied. */
static inline size_t order_bytes(const struct order *order) {
        if (order->kind == ORDER_REFUSE || order->kind == ORDER_REJECT)
                return offsetof(struct order, refusal) + sizeof(order->refusal);
        if (order->kind == ORDER_PLACES)
                return offsetof(struct order, places.waiting) +
                       order->places.n_waiting * sizeof(order->places.waiting[0]);
        return offsetof(struct order, member_of) + order->n_members * sizeof(order->member_of[0]);
}
static inline size_t report_bytes(const struct report *report) {
        if (report->note != NOTE_NONE)
                return sizeof(*report);
        if (report->n_gone > 0)
                return offsetof(struct report, gone) + report->n_gone * sizeof(report->gone[0]);
        return offsetof(struct report, member_of) + report->n_members * sizeof(report->member_of[0]);
}
/* Makes it empty: everything outside the arrays is 0. */
static inline void order_clear(struct order *order) {
        memset(order, 0, offsetof(struct order, mark));
}
static inline void report_clear(struct report *report) {
        memset(report, 0, offsetof(struct report, mark));
}
/* The nodes that it names. The caller must not change it meanwhile. */
static inline struct nodeset order_set(const struct order *order) {
        return (struct nodeset){ (uint64_t *)order->set, order->n_words };
}
static inline struct nodeset report_set(const struct report *report) {
        return (struct nodeset){ (uint64_t *)report->set, report->n_words };
}
static inline struct nodeset report_links(const struct report *report) {
        return (struct nodeset){ (uint64_t *)report->links, report->n_words };
}
/* Whether a machine for so many nodes can take it in. */
static inline bool order_fits(const struct order *order, const struct room *room) {
        return nodeset_below(order_set(order), room->nodes);
}
static inline bool report_fits(const struct report *report, const struct room *room) {
        return nodeset_below(report_set(report), room->nodes) &&
               nodeset_below(report_links(report), room->nodes);
}
/* In as few words as these need. */
void order_name_nodes(struct order *order, struct nodeset set);
void report_name_nodes(struct report *report, struct nodeset set, struct nodeset links);
