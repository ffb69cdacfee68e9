/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of one or two jobs, and their coordinators, in one process: time stands still unless somebody lets it
 * pass, and messages go from one to the other in order, at once, unless they are kept or lost. The engine and
 * the arenas answer at once, too, unless the user does that by hand.
 */
#pragma once

#include "tests/unit/unit.h"

#include "rendezvous/machine/coordinator.h"
#include "rendezvous/machine/node.h"

#define MACHINES_JOBS 2u
#define MACHINES_NODES 5u
#define MACHINES_LETTERS 128u
#define MACHINES_NOW (UINT64_C(1) << 50) /* 35 years after the start of the clock */
#define MACHINES_NEVER (UINT64_C(1) << 60)
#define MACHINES_INSTANCE 5u /* of each daemon, at the beginning */
#define MACHINES_TERM 10u    /* of the coordinator that a lone node hears first */
#define MACHINES_ALL UINT32_MAX
#define MACHINES_HEARTBEAT 20000u
#define MACHINES_LONE 1u /* the address of a node that hears only what the test says */

struct letter { /* an order or a report */
        uint32_t job;
        bool reports;
        union {
                struct order order;
                struct report report;
        };
};

struct machines_node {
        struct node node;
        void *memory;
        bool lives;
        uint64_t done[LIMIT_LANES]; /* collectives that have ended */
};

struct machines_job {
        struct coordinator coordinator;
        void *memory;
        bool coordinated;
        struct machines_node at[MACHINES_NODES];
};

struct machines {
        struct machines_job job[MACHINES_JOBS];
        uint32_t n_jobs, n_nodes;
        uint64_t now, floor;
        struct machine_times times;
        struct effects effects;
        struct letter letter[MACHINES_LETTERS], kept[MACHINES_LETTERS];
        unsigned n_letters, n_kept;
        uint32_t keeps, loses;       /* nodes to which orders are kept, or lost: a bit each */
        bool is_deaf;                /* what nodes say is lost */
        bool builds, aborts, quiets; /* by hand */
        void (*acted)(uint32_t job, uint32_t node, const struct action *action); /* NULL: nobody looks */
        /* On arrival; NULL: nobody looks. */
        void (*ordered)(uint32_t job, const struct order *order);
        void (*reported)(uint32_t job, const struct report *report);
};

extern struct machines w;
extern const struct machine_times machines_usual,
        machines_never; /* never: nothing but waits of members ends */

/* Nothing is there but memory; then one by one. */
void machines_begin(uint32_t n_jobs, uint32_t n_nodes, const struct machine_times *times);
void machines_start_coordinator(uint32_t job, struct coordinator_config config);
void machines_start_node(uint32_t job, uint32_t node, struct node_config config);
void machines_end(void); /* NULL memory is fine */
/* Other memory, with room for that much; what was there before is noise. */
void machines_move(uint32_t members, uint32_t tracks);

static inline struct node *machines_node(uint32_t job, uint32_t node) {
        return &w.job[job].at[node].node;
}
void machines_pull(void);    /* what machines have appended is done, or sent */
bool machines_deliver(void); /* the first letter; false: there is none */
void machines_pump(void);
void machines_release(void); /* what was kept arrives now */
/* Everybody says again what was said last. */
void machines_tick(uint64_t us);
void machines_hear(uint32_t job, const struct report *report);

/* What a coordinator at address 0 says to the lone node next; NEWGEN: its first member is in it, with rank
 * 1. */
struct order machines_order(enum order_kind kind);
void machines_name_member(struct order *order);
/* The lone node, in that phase, through the orders that lead there: with one member, of whose step one
 * payload of lane 0 was planned. */
void machines_reach(enum node_phase phase, struct node_config config, const struct membership_request *wish);
