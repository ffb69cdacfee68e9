/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stall: a wait of which the daemon has sent word, until the callback of the handle has been called with it. The
 * callback runs in a thread that waits or dispatches, without the lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gradsync/gradsync.h"
#include "proto/codec.h"

struct stall {
        bool pending;
        bool running; /* the callback, in `thread` */
        pthread_t thread;
        struct gradsync_stall shown; /* its strings are the following */
        char process_state[32], parameter[LIMIT_NAME + 1], text[LIMIT_TEXT + 1];
};

void stall_note(struct gradsync_job *job, const Wire__Stall *message);
/* Calls the callback for all that is pending. */
void stall_tell(struct gradsync *gs);
/* Waits for the end of a callback that has the job as its argument. STATE if this thread is in it. */
int stall_wait(struct gradsync_job *job);
