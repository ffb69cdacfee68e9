/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons whose nodes have their coordinators here. A frame from a connection goes to the coordinator of
 * the job that it is about, and the coordinator's frames go back. A connection is known only by a pointer
 * that the owner gives.
 *
 * A daemon whose connection is gone stays a station for as long as its nodes may stay in their generations;
 * their coordinators judge meanwhile by what they hear. If it connects again it finds its jobs as they were.
 */
#pragma once

#include "base/account.h"
#include "rendezvous/service/coordinators.h"
#include "rendezvous/wire/post.h"

#define STATION_NODE 16u   /* bytes of a daemon's node id */
#define STATION_JOBS 1024u /* of one daemon */

struct stations;

struct stations_config {
        struct coordinators *coordinators; /* for a cluster */
        const struct coordinators_cluster *cluster;
        uint64_t (*clock)(void);
        /* Where that daemon is, the same in each run of either side: 0 and *ret_address and *ret_host, or a
         * code with *refusal. It had `claimed` before, if that is not HUB_UNKNOWN. */
        int (*place)(void *data, void *peer, const uint8_t node[STATION_NODE],
                     const struct post_arrival *arrival, uint32_t *ret_address, uint32_t *ret_host,
                     struct refusal *refusal);
        /* Whether it may have jobs of that uid. */
        bool (*speaks_for)(void *data, void *peer, uid_t uid);
        /* That daemon has a job here; and it has none, and no connection, any more. */
        void (*used)(void *data, const uint8_t node[STATION_NODE]);
        void (*left)(void *data, const uint8_t node[STATION_NODE]);
        /* A frame; it is dropped if the connection has just gone. Never calls back. */
        void (*send)(void *data, void *peer, enum post_kind kind, uint32_t about, const void *bytes,
                     size_t length);
        void (*due)(void *data, uint64_t when); /* when stations_tick() is to be called; UINT64_MAX: never */
        void *data;
};

/* 0 or -ENOMEM. */
int stations_new(const struct stations_config *config, struct stations **ret);
/* NULL is fine. */
struct stations *stations_free(struct stations *table);

/* A connection with that daemon, in that run of it, is there; it says where it is first. An earlier one has
 * been ended before. 0 or -ENOMEM. */
int stations_up(struct stations *table, void *peer, const uint8_t node[STATION_NODE], uint64_t run);
void stations_down(struct stations *table, void *peer);
/* NULL; or what is wrong with the frame, a constant sentence, or a text that is valid until the next call:
 * the connection is to be ended. */
const char *stations_receive(struct stations *table, void *peer, enum post_kind kind, uint32_t about,
                             const void *bytes, size_t length);
void stations_tick(struct stations *table);
/* To be called when daemons may speak for other users than before: each loses the jobs of users for whom it
 * no longer speaks. */
void stations_check(struct stations *table);
/* The connected daemons that may have that job, and have no node of it. */
void stations_each_empty(const struct stations *table, const struct hub_job *job, hub_node_fn *fn, void *to);
