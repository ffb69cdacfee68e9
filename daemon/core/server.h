/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running daemon: owns one of each layer, wires them, starts them in order and stops them in the opposite
 * one. Signals, reload, draining and the watchdog live here.
 */
#pragma once

#include "core/config.h"

struct server;

/* Exit status: the GPU failed in a way from which only a new process recovers. Work under way is left as it
 * is, as after a crash: nothing waits for it. gradsyncctl does not use this status. */
#define SERVER_DEVICE_FAILED 70
#define SERVER_ENGINE_FAILED 71 /* likewise, for a failure of the engine */

/* Takes over the contents of `config`; `source` must outlive the server. On failure a sentence for people is
 * in `error`. */
int server_new(struct config *config, const struct config_source *source, struct server **ret, char *error,
               size_t size);
/* Runs until a signal stops it. Returns the exit status of the process; after one of these two the server
 * cannot be freed any more. */
int server_run(struct server *server);
struct server *server_free(struct server *server);
