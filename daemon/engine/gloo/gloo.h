/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine that exchanges host memory over TCP, by Gloo. Gloo blocks, cannot be stopped, and ends its
 * process when a peer sends it nonsense. So each communicator has a helper process, which shares the staging
 * by its descriptor. A helper has one or two streams for each lane, and for each stream a thread, a context
 * and a Gloo device. To abort a communicator is to kill its helper, and a crash of the helper is the end of
 * one communicator. One process serves all lanes, since a failure that ends one lane of a communicator ends
 * the others as well.
 *
 * Each two nodes have a connection for each stream. The coordinator lets a job have members of as many nodes
 * as its setting nodes_per_job says; more than GLOO_NODES are refused here.
 */
#pragma once

#include "engine/engine.h"

#define GLOO_NODES 64u

struct gloo_config {
        const char *helper; /* path of the program */
        uint32_t silence;   /* ms: see struct errand */
        uint32_t timeout;
};

/* 0 or a negative errno. */
int gloo_open(const struct gloo_config *config, struct engine **ret);
/* All communicators must be dropped or aborted. NULL is fine. */
void gloo_close(struct engine *engine);
