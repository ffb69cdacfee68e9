/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinators of one process, one for each job: the hub of nodes in the same process. A job's
 * coordinator is made when its first node attaches, and goes with its last one. It knows of no job but by
 * messages. Its memory is charged to the job's uid.
 *
 * Time comes from the owner: it is asked for when a message comes, and the owner calls coordinators_tick()
 * when the time has come that it was told of.
 */
#pragma once

#include "base/account.h"
#include "rendezvous/hub.h"

struct coordinators;

struct coordinators_config {
        struct users *accounts;
        uint64_t (*clock)(void);
        uint64_t (*term)(void *data); /* a counter of terms that no coordinator has had, in any run */
        uint32_t nonce;               /* of this run */
        void (*due)(void *data, uint64_t when); /* the next tick is due at that time; UINT64_MAX: none is */
        void *data;
};

/* 0 or -ENOMEM. */
int coordinators_new(const struct coordinators_config *config, struct coordinators **ret);
/* All nodes have detached. */
struct coordinators *coordinators_free(struct coordinators *table);
struct hub *coordinators_hub(struct coordinators *table);
void coordinators_tick(struct coordinators *table);
