/* SPDX-License-Identifier: Apache-2.0 */
/* The first message on a connection: what this process is, and which version of the protocol it speaks. */
#pragma once

#include <sys/types.h>

#include "client/lib/wire/request.h"

struct gradsync;

/* Keeps the name that `gradsyncctl status` shows; NULL: the process's own. */
void hello_keep_program(struct gradsync *gs, const char *program);
/* Asks for WELCOME; the request is gs->hello. */
int hello_send(struct gradsync *gs, request_answer_fn answer);
/* Of the process that listens; 0: not known. */
pid_t hello_peer_pid(int sock);
