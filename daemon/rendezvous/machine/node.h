/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon's part in a job: what it has handed to the engine, what it knows to be prepared and committed,
 * and how it carries out the coordinator's orders. A pure state machine: calls, messages and the time go in,
 * messages and actions come out through the outlet. It never touches an engine or an arena, and knows buckets
 * only as a count for each lane.
 *
 * The caller sees to it that what it offers on a lane is in the same order on every node, and that every call
 * carries the generation in which its cause arose: what belongs to another one is absorbed here.
 */
#pragma once

#include "rendezvous/machine/effects.h"
#include "rendezvous/machine/message.h"
#include "rendezvous/machine/own_time.h"
#include "rendezvous/machine/room.h"

enum node_phase {
        NODE_OUT,      /* in no generation: its members wait to be taken */
        NODE_BUILDING, /* has heard of a generation, and waits for its communicator */
        NODE_RUNNING,
        NODE_FROZEN,  /* hands out nothing and decides nothing, until the verdict */
        NODE_FILLING, /* fills its lanes up to the cut, then waits until all of that is complete */
        NODE_ABORTING,
        NODE_ABORTED,
        NODE_SETTLING, /* has the verdict; members are shown it once nothing touches their arenas any more */
        NODE_SETTLED,  /* waits for the next generation */
        NODE_LEAVING,  /* fenced, or has given up: lets go of everything, then is out */
        NODE_ENDED,
};

enum unit_state {
        UNIT_IDLE,
        UNIT_WANTED, /* members have begun it, but the node holds still */
        UNIT_OPEN,
        UNIT_COMMITTING, /* decided; shown once its results are in the arenas */
        UNIT_VOIDING,    /* decided; shown once the last access to the arenas has ended */
};

/* A step or an operation that is open, and the number of the last one that was committed. */
struct track {
        enum unit_state state;
        uint64_t committed, prepared;
        uint64_t mismatches; /* units of this generation that ended so, on all of its nodes */
        uint64_t planned[LIMIT_LANES], offered[LIMIT_LANES];
        uint64_t ready[LIMIT_LANES]; /* offered, in the order of the lane: see struct node_lane */
        uint64_t launched[LIMIT_LANES], completed[LIMIT_LANES];
        bool full;           /* every member of this node has given everything */
        bool spoilt;         /* some results of the unit cannot be made: it is never full again */
        bool landed;         /* every result is in the arenas */
        bool mismatch;       /* the operation is not the same everywhere */
        bool behind, silent; /* VOIDING: other nodes may have it; members are not told: it was never opened */
        bool asked;          /* reported as full, where it takes turns */
        uint64_t turn;       /* of this unit, where it takes turns; 0: none yet */
        bool voted;          /* the vote has its place in the order of its lane */
        int vote;            /* its result, -1: none yet */
};

/* A plan on which the members of the node have agreed. */
struct node_plan {
        uint64_t digest;
        /* Stamp of the first report that names it: orders that answer an older one do not know of it, or mean
         * an earlier plan of that ordinal. */
        uint64_t asked;
        uint32_t ordinal, track;
        uint64_t before; /* see struct report_plan */
        bool open;       /* in this generation */
        bool voids;
};

/* Collectives for the engine, in order, on the communicator in use. Completed ≤ launched ≤ go ≤ ready. */
struct node_lane {
        uint64_t ready; /* to be launched */
        uint64_t go;    /* may be launched: where launches are agreed on, as the coordinator says */
        uint64_t launched, completed;
        uint32_t track[LIMIT_WINDOW]; /* the track of each collective, by sequence number; LIMIT_TRACKS: a
                                         filler */
};

struct node_config {
        uint32_t address;
        uint64_t instance; /* grows with each start of this daemon */
        uint32_t host, device;
        uint32_t engine;      /* which one it is, as in messages */
        uint32_t n_lanes;     /* the last one is that of operations; on a shared one (message.h) plans take
                                 turns, each other one is one plan's. The vote is on a step's lowest one */
        uint64_t window;      /* collectives ahead on a lane: at most LIMIT_WINDOW */
        bool agreed;          /* on all nodes of the job, or on none: except on the lane of operations nothing
                                 is launched before all nodes are ready for it */
        uint64_t incarnation; /* of the job */
        const char *name;     /* of the job, for refusals; the caller's */
        struct machine_times times;
        struct room room;
};

struct node {
        struct node_config config;
        struct outlet out;
        enum node_phase phase;
        enum report_kind answer; /* what the next answer says; beside it goes the whole report */
        uint64_t term, round;    /* of the highest order seen */
        struct own_time time;
        uint64_t contact; /* own clock of the latest answer that a serving coordinator has seen */
        uint64_t stamp, reported;
        bool awaits;          /* its daemon has started anew, and members of the former one are awaited */
        bool wait, said_wait; /* what the next answer says of it, and what the latest one has said */
        bool away;            /* its daemon ends, and is going to be followed by another one */
        uint64_t left;        /* the stamp of the first answer that has said so */
        uint32_t cause;       /* for which the daemon ends the job; 0: it does not */
        bool suspended;       /* too long without contact */
        bool held, stopping;  /* opens nothing beyond stop[], but what an open unit may need; stopping:
                                those numbers are the coordinator's */
        bool missing;     /* a member of this node and generation is gone: nothing can be opened without it */
        bool behind;      /* as NEWGEN has said: for when it is entered */
        bool unsynced;    /* NEWGEN has said so, and no step was committed since */
        bool torn;        /* members hear that something of the generation is void; BUILDING: as NEWGEN has
                             said */
        bool interrupted; /* its members know of the loss in the generation */
        struct membership_loss loss; /* that loss, as the coordinator reports it */
        struct generation generation, comm, old_comm;
        bool unbuilt;              /* comm is not known to work: it may stay so over several generations */
        struct nodeset set, links; /* in the room; links of comm that are broken */
        uint64_t cut[LIMIT_LANES];
        uint64_t cut_at;  /* when it was told that, on its own clock */
        uint64_t filling; /* how long it has taken to reach the latest one; 0: there was nothing to do */
        uint32_t world, source;
        struct sha256 secret; /* of the generation */
        struct node_lane lane[LIMIT_LANES];
        uint8_t due[LIMIT_LANES * LIMIT_WINDOW]; /* lanes of what may be launched and is not, in that order */
        uint32_t n_due;
        uint32_t n_tracks; /* in use; those beyond are idle, and have committed nothing */
        struct tag history;
        enum job_end end;
        struct places places; /* as the coordinator has said */
        enum note note;       /* what the reports say of plan `noted`, beside the rest */
        uint32_t noted;
        uint32_t next_plan; /* ordinal of the next plan, as far as this node has heard */
        uint32_t n, n_gone, n_plans, n_kept;
        /* In the room: */
        struct report_note *about; /* the note; NULL: there is one node */
        struct node_plan *plan;
        uint64_t *stop;
        uint32_t *kept; /* ordinals of plans that members of the generation before have, on any node */
        struct track *track;
        struct report_member *member;
        struct report_gone *gone; /* lost since the node has entered its generation */
};

/* Returns the bytes of memory for a node with that room; a multiple of 8, so that pointers may follow. */
size_t node_bytes(const struct room *room);
/* Moves to a larger room; the former one may be freed. */
void node_move(struct node *node, const struct room *room);
void node_init(struct node *node, const struct node_config *config, uint64_t now, const struct outlet *out);
void node_receive(struct node *node, uint64_t now, const struct order *order);
void node_tick(struct node *node, uint64_t now);
uint64_t node_deadline(const struct node *node);

/* Members of this node. `request.member` is never used again, by any node; a tag comes from a checkpoint or
 * is all 0. */
void node_join(struct node *node, uint64_t now, const struct membership_request *request,
               const struct tag *tag);
void node_leave(struct node *node, uint64_t now, uint64_t member); /* says goodbye: no member waits for it */
void node_lose(struct node *node, uint64_t now, uint64_t member, uint32_t cause); /* WIRE__CAUSE__… */
/* The member begins to take another one's state, of which it has nothing until it has all: */
void node_sync(struct node *node, uint64_t member);
void node_synced(struct node *node, uint64_t member, const struct tag *tag);

/* As long as the node waits, its answers say that more is to come: the coordinator makes no generation, and
 * ends no member's wait. */
void node_wait(struct node *node, uint64_t now, bool wait);
/* The whole job ends, through no member's fault. */
void node_end(struct node *node, uint64_t now, uint32_t cause);
/* Returns whether the member has no place, and waits for another one to be lost. */
bool node_waits(struct node *node, uint64_t member);

/* The members of this node have agreed on that plan. ACTION_TRACK says which track its steps have, once all
 * nodes of the generation have it, perhaps before this returns. The room has a track for each plan. */
void node_agree(struct node *node, uint64_t now, uint32_t ordinal, uint64_t digest, bool voids);
/* Reports a note on a plan that is not open: the answer to ACTION_EXPLAIN, or that members here wait no
 * longer for the plan, or that they cannot agree. ACTION_REJECTED gives the outcome on all nodes. */
void node_explain(struct node *node, uint64_t now, uint32_t ordinal, enum note note,
                  const struct report_note *about);
/* No member of this node has the plan any more, and no step of it is open. */
void node_forget(struct node *node, uint64_t now, uint32_t ordinal);

/* The first sign of a step or operation; `planned` payloads on each lane. ACTION_OPEN says when its data may
 * go on, perhaps before this returns. False: absorbed, its members begin it anew in the next generation. The
 * other calls are absorbed silently if they are not about the open unit. */
bool node_open(struct node *node, uint64_t now, struct generation generation, uint32_t track,
               const uint64_t planned[LIMIT_LANES]);
/* The next payload of that lane is complete on this node. */
void node_offer(struct node *node, uint64_t now, struct generation generation, uint32_t track, uint32_t lane);
/* Every member of this node has given everything: on one node that decides; on each it means that nothing
 * else has to be opened for this unit's sake. */
void node_full(struct node *node, uint64_t now, struct generation generation, uint32_t track);
/* Every result of the unit is in the members' arenas. */
void node_landed(struct node *node, uint64_t now, struct generation generation, uint32_t track);
/* Members of this node have called different operations. On several nodes the comparison must not have been
 * offered yet: it is once all members of the node have called the same. */
void node_differ(struct node *node, uint64_t now, struct generation generation, uint32_t track);
/* Only where the node is the only one: the results of a unit that was full cannot be made, because a member
 * has taken its memory away. That member will be lost, and the unit is void with it. */
void node_spoil(struct node *node, uint64_t now, struct generation generation, uint32_t track);
/* After ACTION_CANCEL, and before node_quiet(): if the unit is void its members hear of that, because their
 * memory was written to. Members of all other nodes hear of it, too. If no member's memory was written to,
 * members go on in the next generation as if nothing had happened. */
void node_tear_unit(struct node *node, uint64_t now, struct generation generation, uint32_t track);
/* The same in any case: members cannot go on as if nothing had happened. */
void node_tear(struct node *node, struct generation generation);
/* After ACTION_CANCEL: nothing touches the unit's arenas any more. */
void node_quiet(struct node *node, uint64_t now, struct generation generation, uint32_t track);

/* Reports of the engine. */
void node_done(struct node *node, uint64_t now, struct generation comm, uint32_t lane, uint64_t seq,
               uint64_t value);
void node_built(struct node *node, uint64_t now, struct generation comm, struct nodeset unreachable);
void node_aborted(struct node *node, uint64_t now, struct generation comm);
void node_unreachable(struct node *node, uint64_t now, struct generation comm, struct nodeset nodes);

/* The daemon ends. Its members come back to the one that follows, and the node with them: node_expect(). To
 * be said again if the node hears of a generation after all. */
void node_depart(struct node *node, uint64_t now);
/* After node_depart(): a generation may be on its way to it that it would belong to. None is after the
 * coordinator has heard of its leave. */
bool node_may_be_called(const struct node *node);
/* Its coordinator does not have the job any more: the node does not wait for it as for one that is silent. */
void node_quit(struct node *node, uint64_t now);
/* The daemon has started anew, and members of a former run of it are on their way back: right after
 * node_init(). */
void node_expect(struct node *node, uint64_t now);
/* They have come back, or are not awaited any longer: from now on the node reports what `report` says, an
 * answer as the former run might have given it: generation, world, set, history, n_tracks with mark,
 * committed and prepared, the plans with their tracks, and the members that belong to it. There is no
 * communicator. World 0: none has come back, the node is outside. */
void node_restore(struct node *node, uint64_t now, const struct report *report);
