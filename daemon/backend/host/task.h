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
#include "kernel.h"

struct task {
        uint64_t id, user, turn;
        kernel_fn kernel;
        struct kernel_slice whole; /* pointers, counts and scale that all slices share */
        size_t element_size, slice_elements;
        unsigned slices;
        struct backend_seal seal;
        bool statistics, find, seals; /* find: also what is not as it was sealed */
        bool in_room;                 /* its memory is the room of its description */
        double *sums;                 /* of squares, per slice: of each input, then of the result */
        double *totals;               /* the same, added up */
        uint64_t *nonfinite;          /* per input */
        uint64_t first;               /* see struct backend_task */
        uint64_t found;               /* after that, in the slices that have run; or BACKEND_NOWHERE */
        const struct arena **arenas;  /* per input, then per output */
        const struct backend_memory *withdrawn; /* see struct backend_result; the pool's */

        /* The pool's, under its lock. */
        struct list unfinished; /* among all tasks, then among those to be delivered */
        /* Of the first of its turn, while it has slices to hand out: the first ones of the user's other
         * turns. One of them is among the users, too. */
        struct list ring, users;
        struct task *behind, *last; /* next of the same turn; the last one (valid in the first) */
        unsigned next, running;     /* slice to hand out next; slices at work */
        bool cancelled;
};

/* Bytes of the room of such a task; 0 for a description that the contract does not allow. */
size_t task_room(const struct backend_task *description);
/* In the room of the description, if it has one. -EINVAL for a description that the contract does not
 * allow, -ENOMEM. */
int task_new(const struct kernel_set *kernels, const struct backend_task *description, struct task **ret);
struct task *task_free(struct task *task); /* leaves a room as it is */

#define TASK_REUSE_SLICES 4u

/* A task of any number of inputs and at most TASK_REUSE_SLICES slices, in memory that is used again and
 * again. */
struct task *task_reusable(void);
int task_reuse(struct task *task, const struct kernel_set *kernels, const struct backend_task *description);

/* Bytes of all inputs together: what it costs, roughly. */
uint64_t task_traffic(const struct backend_task *description);

#define TASK_LOOK_SLICES 16u /* 4 MiB of an input: where holes have to be looked for */

/* Runs one slice. `nonfinite` (as many as inputs, or more) is overwritten with its counts, or with what it
 * has found. NULL; or the memory of which some was withdrawn: the slice has not been run, or in part. */
const struct backend_memory *task_run(const struct task *task, unsigned slice, uint64_t *nonfinite);
/* False if the slices that have not begun need not run any more. */
bool task_count(struct task *task, const uint64_t *nonfinite);
/* Adds the slices up, once all have run. */
void task_combine(struct task *task);
void task_result(const struct task *task, struct backend_result *ret);
