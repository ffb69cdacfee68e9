/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct callers: which threads make calls on a job that others wait for. The daemon ends members that wait
 * for each other (daemon/job/watch/deadlock.h). It may only count a member of which no thread can give the
 * others what they lack while a call of it waits: one whose calls all come from one thread, or one that says
 * that they come one after the other (gradsync_join_options.sequential).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct callers {
        /* `home` makes plans and collectives. `other` marks gradients, or waits for steps, where that is
         * another thread. */
        pthread_t home, other;
        bool has_home, has_other;
        /* More threads call, and it is not known what they do. */
        bool several;
};

/* The calling thread makes a plan or a collective. True: there are several from now on. */
bool callers_note_home(struct callers *callers);
/* It marks a gradient, or waits for a step. */
bool callers_note_step(struct callers *callers);
/* While a call waits, no other one is to be expected. */
bool callers_wait_alone(const struct callers *callers, bool sequential);
