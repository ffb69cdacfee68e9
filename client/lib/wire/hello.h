/* SPDX-License-Identifier: Apache-2.0 */
/* The first message on a connection: it describes this process, and the version of the protocol that it
 * speaks. */
#pragma once

#include <sys/types.h>

#include "client/lib/wire/request.h"

struct gradsync;

/* Keeps the name that `gradsyncctl status` shows; NULL: the process's own. */
void hello_keep_program(struct gradsync *gs, const char *program);
/* Sends HELLO, which asks for WELCOME; the request is gs->hello. */
int hello_send(struct gradsync *gs, request_answer_fn answer);
/* Returns the pid of the process that listens; 0 if not known. */
pid_t hello_peer_pid(int sock);
