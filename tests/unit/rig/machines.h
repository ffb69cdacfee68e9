/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of one or two jobs, and their coordinators, in one process. Time stands still unless the caller lets
 * it pass. Messages arrive in order and at once, unless the caller keeps or loses them. The engine and the
 * arenas answer at once, too, unless the caller does that by hand.
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
        struct letter letter[MACHINES_LETTERS], kept[MACHINES_LETTERS]; /* letter: a ring, which begins at: */
        unsigned first, n_letters, n_kept;
        uint32_t keeps, loses;       /* nodes whose orders are kept, or lost: a bit each */
        bool is_deaf;                /* reports are lost */
        bool builds, aborts, quiets; /* the caller does these by hand */
        void (*acted)(uint32_t job, uint32_t node, const struct action *action); /* may be NULL */
        /* Called on arrival; may be NULL. */
        void (*ordered)(uint32_t job, const struct order *order);
        void (*reported)(uint32_t job, const struct report *report);
};

extern struct machines w;
extern const struct machine_times machines_usual,
        machines_never; /* never: nothing but waits of members ends */

/* Provides the memory. The caller then starts coordinators and nodes one by one. */
void machines_begin(uint32_t n_jobs, uint32_t n_nodes, const struct machine_times *times);
void machines_start_coordinator(uint32_t job, struct coordinator_config config);
void machines_start_node(uint32_t job, uint32_t node, struct node_config config);
void machines_end(void); /* NULL memory is fine */
/* Moves all machines to other memory, with room for so many members and tracks. */
void machines_move(uint32_t members, uint32_t tracks);

static inline struct node *machines_node(uint32_t job, uint32_t node) {
        return &w.job[job].at[node].node;
}
void machines_pull(void);    /* does the actions of machines, and posts their messages */
bool machines_deliver(void); /* delivers the first letter; false: there is none */
void machines_pump(void);
void machines_release(void); /* delivers the orders that were kept */
/* Lets so much time pass, and ticks all machines. */
void machines_tick(uint64_t us);
void machines_hear(uint32_t job, const struct report *report);

/* Returns the next order to the lone node, from a coordinator at address 0. */
struct order machines_order(enum order_kind kind);
/* Puts the first member of the lone node into a NEWGEN order, with rank 1. */
void machines_name_member(struct order *order);
/* Brings the lone node into that phase, through the orders that lead there. It has one member, and one
 * payload of lane 0 is planned for its step. */
void machines_reach(enum node_phase phase, struct node_config config, const struct membership_request *wish);
