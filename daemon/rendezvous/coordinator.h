/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to a job that spans nodes, and what becomes of it when somebody is lost. A pure state machine beside
 * membership (places, grace, ranks) and tenure (who may coordinate at all). Its state is soft: whoever takes over learns
 * everything from the nodes' reports.
 *
 * It gives one order at a time to all nodes of the generation, and goes on when all of them have answered that order.
 * Any further loss begins anew with FREEZE. What everybody is told comes from the answers to that: a step is committed if
 * every survivor is prepared, or else it is void.
 */
#pragma once

#include "rendezvous/membership.h"
#include "rendezvous/message.h"
#include "rendezvous/tenure.h"

/* A node, as its latest report says. */
struct reporter {
        bool known;
        uint64_t instance;
        uint64_t heard;                 /* when, by the coordinator's clock; what a death is judged by */
        uint64_t stamp;                 /* of the report, by the node's: older ones are dropped */
        uint64_t term, round;
        enum message_kind answer;
        struct generation generation, comm;
        uint64_t set, links;
        uint64_t seq[LIMIT_LANES];
        uint64_t mark[N_TRACKS], committed[N_TRACKS], prepared[N_TRACKS];
        struct tag history;
        uint32_t world;
        bool running;
};

struct coordinator_config {
        uint32_t address, candidates;
        uint64_t floor;                 /* see tenure_init() */
        uint32_t nonce;                 /* of this run, goes into each generation */
        uint64_t incarnation;           /* of the job */
        bool alone;                     /* no node can have belonged to this job before: nobody is waited for */
        const char *name;               /* of the job, for refusals; the caller's */
        struct machine_times times;
};

struct coordinator {
        struct coordinator_config config;
        struct outlet out;
        struct tenure tenure;
        bool serving;
        bool collecting;                /* has just begun, and learns who is there */
        uint64_t term, round;
        uint64_t begun;                 /* when this tenure began */
        enum message_kind order;        /* what all nodes of the generation are told now, */
        uint64_t since;                 /* since when */
        uint64_t last, said;            /* the latest call, and when the order was said last */
        bool abort;                     /* the engine cannot be drained */
        bool settled;                   /* VERDICT: everybody has; waits for the membership */
        bool recording;                 /* VERDICT: the next generation is being put on record */
        struct generation current, comm;
        uint64_t set, lost;             /* nodes of the generation, and those of them that are lost to it */
        uint64_t links;                 /* the ends of the links that have cost somebody his place */
        uint64_t empty_since;           /* a node of the generation has no member: since when; 0: none */
        uint64_t number;                /* the highest number of a generation heard of */
        uint64_t cut[LIMIT_LANES];
        uint64_t stop[N_TRACKS], verdict[N_TRACKS];
        struct tag history;             /* the largest tag of anybody in the generation: without it there is no state */
        enum job_end end;
        struct reporter node[LIMIT_NODES];
        uint32_t top;                   /* nodes known are below it */
        uint32_t n;
        struct message_member seat[LIMIT_WORLD];        /* everybody whom a node reports */
        struct membership membership;
};

void coordinator_init(struct coordinator *c, const struct coordinator_config *config, uint64_t now,
                      const struct outlet *out);
void coordinator_receive(struct coordinator *c, uint64_t now, const struct message *message);
void coordinator_tick(struct coordinator *c, uint64_t now);     /* at least twice in each heartbeat */
