/* SPDX-License-Identifier: Apache-2.0 */
/* The first message on a connection: it describes this process, and the version of the protocol that it
 * speaks. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "client/lib/wire/request.h"

struct gradsync;

/* Keeps the name that `gradsyncctl status` shows; NULL: the process's own. */
void hello_keep_program(struct gradsync *gs, const char *program);
/* Sends HELLO, which asks for WELCOME; the request is gs->hello. */
int hello_send(struct gradsync *gs, request_answer_fn answer);
#define HELLO_WHY 256u
/* Whether this library speaks the version that the daemon has answered with. False: `why` is a clause that
 * names both. */
bool hello_is_understood(const Wire__Welcome *welcome, char why[HELLO_WHY]);
/* Returns the pid of the process that listens; 0 if not known. */
pid_t hello_peer_pid(int sock);
