/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The membership of a job that spans nodes, and its recovery or end after a loss. A pure state machine beside
 * membership (places, grace, ranks). Its state is soft: a coordinator that takes over learns everything from
 * the nodes' reports.
 *
 * It gives one order at a time to all nodes of the generation, and goes on when all of them have answered
 * that order. Any further loss begins anew with FREEZE. The answers to FREEZE decide for all members: a step
 * is committed if every survivor is prepared, or else it is void.
 */
#pragma once

#include <sys/types.h>

#include "base/sha256.h"
#include "rendezvous/machine/effects.h"
#include "rendezvous/machine/membership.h"
#include "rendezvous/machine/message.h"
#include "rendezvous/machine/own_time.h"
#include "rendezvous/machine/room.h"

#define LIMIT_REFUSALS 4u /* texts that are kept, to be said again */

/* A node, as its latest report says. */
struct reporter {
        bool known;
        uint64_t instance;
        uint64_t heard; /* time of the latest report by the coordinator's clock, for judging deaths */
        uint64_t stamp; /* time of the report by the node's clock: older ones are dropped */
        uint64_t term, round;
        enum report_kind answer;
        struct generation generation, comm;
        uint64_t seq[LIMIT_LANES], ready[LIMIT_LANES], go[LIMIT_LANES];
        struct tag history;
        uint32_t world;
        uint32_t engine, host;
        bool awaits;
        uint32_t next_plan;
        bool running, wait, away, torn, behind;
        bool renewed;     /* by another run of its daemon, and no member of the former run has spoken */
        uint32_t n_plans; /* see coordinator_plans() */
};

/* Sums over the latest reports of the survivors: the nodes of the generation that are not lost. */
struct coordinator_tally {
        uint32_t survivors;
        uint32_t lost;                /* nodes of the generation that are lost */
        uint32_t answered[N_ANSWERS]; /* have given this answer to the present order */
        uint32_t cut_off;             /* have answered it, and cannot reach some node */
        uint32_t failing;             /* cannot reach some node */
        uint32_t astray;              /* do not have the generation's communicator */
};

/* The report of a node on a track. */
struct track_report {
        uint64_t mark, committed, prepared;
};

/* Plans that no node has, because they could not be agreed on in this generation; the latest ones. */
#define LIMIT_REJECTIONS 4u
struct rejection {
        bool held;
        uint32_t ordinal;
        struct refusal refusal;
};

/* The reason why a plan is not agreed on. The coordinator asks nodes for it, one plan at a time. */
enum dispute_kind {
        DISPUTE_NONE,
        DISPUTE_DIFFERS, /* two nodes differ: the first entry that differs is looked for */
        DISPUTE_LATE,    /* a member waits no longer: the members that it misses are looked for */
        DISPUTE_TOLD,    /* the second of the two is to give it up; the others go on with it */
};

struct dispute {
        enum dispute_kind kind;
        uint32_t ordinal;
        uint32_t node[2];          /* LATE: the first one is asked */
        uint32_t low, high, index; /* the entry is in low … high; asked for: those up to index */
        bool has[2];
        uint64_t asked; /* when the latest question or statement was sent */
        struct plan_facts facts[2];
        uint64_t waited;
        char missing[512]; /* members */
        struct refusal refusal;
};

struct agreement {
        struct dispute dispute;
        struct rejection rejection[LIMIT_REJECTIONS];
        uint32_t n_rejected; /* ever */
};

/* The plan whose steps a track has. */
struct track_owner {
        uint64_t digest;
        uint32_t ordinal;
        uint64_t unit, turn; /* the latest unit that has a turn in this generation, and that turn; 0: none */
        uint32_t awaited;    /* the last node whose report was not enough for a turn */
        uint64_t before;     /* see struct order_plan */
        bool held;           /* some node has it; otherwise the track is free */
        bool open;           /* in this generation */
        bool begun;          /* in any generation: nodes that differ now have come later */
        bool kept;           /* see struct order_plan */
};

struct coordinator_config {
        uint64_t floor;    /* no term above it was given to an earlier run; kept on disk, and no time */
        uint32_t nonce;    /* of this run, goes into each generation */
        struct sha256 key; /* of this run: secrets of generations are derived from it */
        uid_t uid;         /* of the job, as the incarnation */
        uint64_t incarnation;
        bool alone;       /* no other node can belong to this job: none is waited for */
        bool first;       /* no node can be in a generation of it, if the first one that reports is not */
        const char *name; /* of the job, for refusals; the caller's */
        struct machine_times times;
        uint32_t most_nodes; /* with members of the job, those that wait for a place included: as many as an
                                engine connects; 0: any number */
        uint32_t n_texts;    /* of refusals that are kept: LIMIT_REFUSALS; 0: no order is ever lost */
        struct room room;
};

struct coordinator_refusal {
        uint64_t member;
        struct refusal refusal;
};

/* A stage is the order that all nodes of the generation have been given, and the event that is waited for. */
enum coordinator_stage {
        STAGE_HEARING,  /* COLLECT: it has just begun, and learns who is there */
        STAGE_FORMING,  /* COLLECT: members, until they are enough */
        STAGE_ENTERING, /* NEWGEN */
        STAGE_RUNNING,  /* RUN: nothing */
        STAGE_HOLDING,  /* HOLD */
        STAGE_STOPPING, /* STOP */
        STAGE_FREEZING, /* FREEZE */
        STAGE_CUTTING,  /* CUT */
        STAGE_ABORTING, /* ABORT */
        STAGE_DECIDED,  /* VERDICT: all have settled */
        STAGE_SETTLED,  /* VERDICT: the membership, for another generation */
        STAGE_ENDED,    /* END */
        N_STAGES,
};

struct coordinator {
        struct coordinator_config config;
        struct outlet out;
        enum coordinator_stage stage;
        uint64_t term, round;
        uint64_t entering; /* the round in which the nodes were told of the generation; 0: by another term */
        uint64_t hearing;  /* HEARING: answers to earlier rounds do not count */
        uint64_t begun;    /* HEARING: since when */
        uint64_t since;    /* since when */
        uint64_t unbuilt;  /* since when nodes try to build a communicator, again and again; 0: they do not */
        struct own_time time;
        uint64_t said;     /* when the order was said last */
        bool growing;      /* FREEZE to VERDICT: no member was lost when it began */
        bool abort;        /* the engine cannot be drained */
        bool behind, torn; /* in the generation: see ORDER_NEWGEN */
        struct generation current, comm;
        struct generation made;        /* the latest one that this run has made, in any of its terms */
        struct membership_loss before; /* the loss that ended the generation before; see membership.loss */
        struct coordinator_tally tally;
        uint64_t empty_since; /* since when a node of the generation has no member; 0: none */
        uint64_t number;      /* the highest number of a generation heard of */
        uint64_t turn;        /* the latest one given in this generation */
        uint64_t cut[LIMIT_LANES];
        uint64_t go[LIMIT_LANES]; /* in this generation nodes may launch up to there, if they agree on it */
        uint32_t unready[LIMIT_LANES]; /* the last node whose report was not enough for more */
        uint32_t n_tracks;             /* in use anywhere */
        uint32_t next_plan;            /* in this generation: see struct order */
        struct tag history; /* the largest tag of the generation's members: without it there is no state */
        enum job_end end;
        enum job_end ending; /* asked for by a node's daemon, and carried out after a verdict */
        uint32_t cause;      /* of `ending` */
        uint32_t n_waits;    /* nodes that have more to say: no generation is made, and no wait ends */
        uint32_t n_refused;  /* members turned away, ever */
        uint64_t places;     /* a digest of the places that nodes were told last */
        uint64_t placed;     /* when they were told; 0: never */
        uint32_t top;        /* nodes known are below it */
        struct membership membership; /* every member that a node reports has a seat there */
        /* Ranks of places whose members have left, in that generation: the latest in which any has. */
        uint64_t abandoned[LIMIT_WORLD / 64];
        struct generation abandoned_in;
        /* In the room: */
        uint64_t *stop, *verdict;
        uint64_t *highest;           /* STOP: the highest unit that a node has opened, by track */
        struct nodeset set, lost;    /* nodes of the generation, and those of them that are lost to it */
        struct nodeset made_set;     /* nodes of the generation `made` */
        uint64_t *nodes;             /* sets of nodes in reports: see coordinator_set_of() */
        struct agreement *agreement; /* NULL: there is one node */
        struct coordinator_refusal *refused;
        struct reporter *node; /* by address; see coordinator_track() */
        struct track_report *track;
        struct track_owner *owner; /* by track */
        struct report_plan *plan;  /* plans in reports: see coordinator_plans() */
};

/* Returns the bytes of memory that a coordinator with this configuration takes. */
size_t coordinator_bytes(const struct coordinator_config *config);
/* Moves to a larger room; the former one may be freed. */
void coordinator_move(struct coordinator *c, const struct room *room);
/* Returns the number of members for which there has to be room when that node reports so many. */
uint32_t coordinator_members(const struct coordinator *c, uint32_t node, uint32_t members);

void coordinator_init(struct coordinator *c, const struct coordinator_config *config, uint64_t now,
                      const struct outlet *out);
void coordinator_receive(struct coordinator *c, uint64_t now, const struct report *report);
enum order_kind coordinator_order(const struct coordinator *c);
void coordinator_tick(struct coordinator *c, uint64_t now); /* at least twice in each heartbeat */
uint64_t coordinator_deadline(const struct coordinator *c); /* when it has to be called at the latest */
/* The node sends no further report. */
void coordinator_lose(struct coordinator *c, uint64_t now, uint32_t node);
/* There is, or will be, no further generation: no member can join any more. */
bool coordinator_is_over(const struct coordinator *c);
