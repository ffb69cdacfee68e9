/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinators of one process, one for each job: the hub of nodes in the same process, and, through
 * stations.h, of nodes elsewhere. A job's coordinator is made when its first node attaches, and goes with its
 * last one. It knows the job only by messages. Its memory is charged to the job's uid.
 *
 * There are two kinds of tables. One is for jobs of this daemon alone: nothing between node and coordinator
 * is lost or late there, and no other process can know of the job. The other is for jobs of a cluster: nodes
 * may be silent or unreachable, and may know more of a job than a coordinator that has just begun.
 *
 * The owner provides the time: coordinators ask it for the time when a message comes, and it calls
 * coordinators_tick() at the time that due() has named.
 */
#pragma once

#include "base/account.h"
#include "rendezvous/hub.h"

struct coordinators;

struct coordinators_cluster {
        struct machine_times times;
        uint64_t begun; /* when this daemon began to coordinate, by `clock`; 0: none ever did before it, and
                           no node is in a generation of any job yet */
        uint32_t self;  /* address of this daemon's own nodes, */
        uint32_t host;  /* and number of its host */
        uint32_t most_nodes; /* see struct coordinator_config */
};

struct coordinators_config {
        const struct coordinators_cluster *cluster; /* copied; NULL: for jobs of this daemon alone */
        struct users *accounts;
        uint64_t (*clock)(void);
        uint64_t (*term)(void *data); /* a counter of terms that no coordinator has had, in any run */
        uint32_t nonce;               /* of this run, like the key: see struct coordinator_config */
        struct sha256 key;            /* of a cluster's run */
        void (*due)(void *data, uint64_t when); /* the next tick is due at that time; UINT64_MAX: none is */
        /* A letter to HUB_COORDINATOR. NULL: there is no cluster. */
        void (*posted)(void *data, const struct hub_job *job, const struct hub_letter *letter);
        void *data;
};

/* 0 or -ENOMEM. */
int coordinators_new(const struct coordinators_config *config, struct coordinators **ret);
/* All nodes have detached. */
struct coordinators *coordinators_free(struct coordinators *table);
struct hub *coordinators_hub(struct coordinators *table);
void coordinators_tick(struct coordinators *table);
/* All jobs that are not at their end, one call for each. */
void coordinators_each(const struct coordinators *table, void (*fn)(void *to, const struct hub_job *job),
                       void *to);
/* Sends a letter of the daemon itself, perhaps to itself. */
void coordinators_post(struct coordinators *table, const struct hub_job *job,
                       const struct hub_letter *letter);
/* All nodes of that job. `sight` is NULL for that of this daemon. */
void coordinators_each_node(struct coordinators *table, const struct hub_job *job, hub_node_fn *fn, void *to);
/* The job of that node is at its end. */
bool coordinators_is_over(const struct attachment *attachment);
/* The node may have missed the tables of other nodes: gives it all of them once more. */
void coordinators_repeat(struct attachment *attachment);
