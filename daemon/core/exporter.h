/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics socket: a Unix stream socket. A caller that connects gets the state of the daemon as
 * OpenMetrics text, then the connection ends. A caller that begins with an HTTP request gets an HTTP
 * response, one that says nothing or something else gets the text alone. Few callers are served at a time,
 * each for a short while; the others wait in connect().
 */
#pragma once

#include "base/closer.h"
#include "base/loop.h"
#include "session/session.h"
#include "socket/listener.h"

struct exporter;

/* On failure a sentence for people is in `error`. */
int exporter_new(struct loop *loop, struct sessions *sessions, struct closer *closer,
                 const struct listener_config *config, struct exporter **ret, char *error, size_t size);
struct exporter *exporter_free(struct exporter *exporter); /* removes the socket file */
