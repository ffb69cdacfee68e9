/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives out metrics on a Unix stream socket, or at an address on the network. A caller of the socket gets the
 * state of the daemon as text, then the connection ends. A caller that begins with an HTTP request gets an
 * HTTP response, one that says nothing or something else gets the text alone; on the network all have to
 * speak HTTP. Few callers are served at a time, each for a short while; when more come, some of those that
 * hold on are cut off.
 */
#pragma once

#include "base/closer.h"
#include "base/loop.h"
#include "core/scrape.h"
#include "socket/listener.h"

struct exporter;

struct exporter_config {
        struct loop *loop;
        struct closer *closer;
        struct scrape_config scrape;
        const char *address;           /* and port, in numbers; NULL: at */
        struct listener_config socket; /* this */
};

/* On failure a sentence for people is in `error`. */
int exporter_new(const struct exporter_config *config, struct exporter **ret, char *error, size_t size);
struct exporter *exporter_free(struct exporter *exporter); /* removes the socket file */
/* Whether a start goes on after such a failure to listen on the network, and the exporter tries again. Jobs
 * must not wait for the port: a process that took it while this daemon is restarted would hold all of them
 * up. */
bool exporter_may_wait(int r);
