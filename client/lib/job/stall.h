/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stall: a wait that the daemon has reported, until the handle's callback has been called with it. The
 * callback runs without the lock, in a thread that waits or dispatches.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gradsync/gradsync.h"
#include "proto/codec.h"

struct stall {
        bool pending;
        /* The callback runs, in `thread`. */
        bool running;
        pthread_t thread;
        /* The report for the callback; its strings are the arrays below. */
        struct gradsync_stall shown;
        char process_state[32], parameter[LIMIT_NAME + 1], text[LIMIT_TEXT + 1], host[LIMIT_NAME + 1];
};

void stall_note(struct gradsync_job *job, const Wire__Stall *message);
/* Calls the callback for each job that has a pending stall. */
void stall_tell(struct gradsync *gs);
/* Waits for the end of a callback that has the job as its argument. STATE if this thread is in it. */
int stall_wait(struct gradsync_job *job);
