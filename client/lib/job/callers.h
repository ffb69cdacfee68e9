/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct callers: the threads that make calls on a job that other members wait for. The daemon ends jobs
 * whose members wait for each other (daemon/job/watch/deadlock.h). It may count a member only if none of its
 * threads can give the others what they lack while one of its calls waits. Such a member makes all calls from
 * one thread, or says that it makes them one after the other (gradsync_join_options.sequential).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct callers {
        /* `home` makes plans and collectives. `other` marks gradients, or waits for steps, where that is
         * another thread. */
        pthread_t home, other;
        bool has_home, has_other;
        /* More threads make calls, and it is not known what they do. */
        bool several;
};

/* Notes that the calling thread makes a plan or a collective. True if this call has set `several`. */
bool callers_note_home(struct callers *callers);
/* Notes that the calling thread marks a gradient, or waits for a step. True as above. */
bool callers_note_step(struct callers *callers);
/* Whether no other call is to be expected while one waits. */
bool callers_wait_alone(const struct callers *callers, bool sequential);
