/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One combination, cut into slices of a fixed size. Slices may run in any order and on any thread; their sums
 * of squares are kept apart and added in the order of the slices at the end. A task knows how to run a slice;
 * the pool decides when.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"
#include "kernel/kernel.h"

struct task {
        uint64_t id, user, turn;
        kernel_fn kernel;
        struct kernel_slice whole; /* pointers, counts and scale that all slices share */
        size_t element_size, slice_elements;
        unsigned slices;
        struct backend_seal seal;
        bool statistics, find, seals; /* `find` is also set to look for pieces that are not as sealed */
        bool in_room;                 /* its memory is the room of its description */
        double *sums;                 /* sums of squares, per slice: of each input, then of the result */
        double *totals;               /* the sums of all slices, added up */
        uint64_t *nonfinite;          /* counts, per input */
        uint64_t first;               /* see struct backend_task */
        /* Element after `first` that was found in the slices that have run; or BACKEND_NOWHERE. */
        uint64_t found;
        const struct arena **arenas;            /* per input, then per output */
        const struct backend_memory *withdrawn; /* see struct backend_result; set by the pool */

        /* For the pool, under its lock: */
        struct list unfinished; /* among all tasks, then among those to be delivered */
        /* For the first task of a turn, while the turn has slices to hand out: links it with the first tasks
         * of the user's other turns. One task of such a ring is also in pool->users. */
        struct list ring, users;
        struct task *behind, *last; /* next task of the turn; last task of the turn (valid in the first) */
        unsigned next, running;     /* number of the slice to hand out next; number of slices at work */
        bool cancelled;
};

/* Returns the bytes of room that such a task needs; 0 for a description that the contract does not allow. */
size_t task_room(const struct backend_task *description);
/* Makes a task, in the room of the description if it has one. -EINVAL for a description that the contract
 * does not allow; or -ENOMEM. */
int task_new(const struct kernel_set *kernels, const struct backend_task *description, struct task **ret);
struct task *task_free(struct task *task); /* leaves a room as it is */

#define TASK_REUSE_SLICES 4u

/* A task for any number of inputs and at most TASK_REUSE_SLICES slices, in memory that is used again and
 * again. */
struct task *task_reusable(void);
int task_reuse(struct task *task, const struct kernel_set *kernels, const struct backend_task *description);

/* Returns the bytes of all inputs together, which is roughly what the task costs. */
uint64_t task_traffic(const struct backend_task *description);

#define TASK_LOOK_SLICES 16u /* without a guard holes are looked for every so many slices: 4 MiB of input */

/* Runs one slice. Overwrites `nonfinite` (as many as inputs, or more) with the counts of the slice, or with
 * the element that it has found. Returns NULL; or the memory of which some was withdrawn, when the slice was
 * not run, or only in part. */
const struct backend_memory *task_run(const struct task *task, unsigned slice, uint64_t *nonfinite);
/* Adds the counts of a slice. Returns false if the slices that have not begun need not run any more. */
bool task_count(struct task *task, const uint64_t *nonfinite);
/* Adds up the sums of all slices, once all have run. */
void task_combine(struct task *task);
void task_result(const struct task *task, struct backend_result *ret);
