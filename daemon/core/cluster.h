/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This daemon's part in a cluster: the connections to other daemons, the way to the coordinator, and, if it
 * coordinates, the coordinators of jobs that span daemons. Wiring only: rendezvous decides, and link has the
 * bytes on the wire.
 */
#pragma once

#include "base/account.h"
#include "base/loop.h"
#include "core/config.h"
#include "core/identity.h"
#include "engine/engine.h"
#include "rendezvous/hub.h"
#include "report/report.h"

struct cluster;

struct cluster_config {
        struct loop *loop;
        struct users *accounts;
        const struct config *config;
        struct identity *identity;    /* NULL: none, and so no cluster */
        const char *no_identity;      /* why */
        uint64_t (*term)(void *data); /* see struct coordinators_config */
        uint32_t nonce;
        struct engine *engine; /* the one that needs an address; NULL: there is none */
        void *data;
};

/* 0 and *ret, which is NULL if nothing is configured; or a negative errno and a sentence in `error`. */
int cluster_new(const struct cluster_config *config, struct cluster **ret, char *error, size_t size);
/* All jobs are gone. NULL is fine. */
struct cluster *cluster_free(struct cluster *cluster);
/* The hub at which jobs of the cluster meet their coordinators; NULL: this daemon has none for its own
 * jobs. */
struct hub *cluster_hub(struct cluster *cluster);
/* From now on the reports show people the cluster's jobs, too. NULL is fine. */
void cluster_introduce(struct cluster *cluster, struct reports *reports);
/* The settings have been read again: keys may have changed. */
void cluster_reload(struct cluster *cluster);
