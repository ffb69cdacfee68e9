/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: from the description to calls of kernels, and from slices to one result. The memory of a task is one
 * block: its own, or the room that its description brings. */
#include "task.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "base/cleanup.h"
#include "guard.h"
#include "kernel_seal.h"

static size_t task_slice_elements(const struct backend_task *description) {
        if (description->seal)
                return kernel_seal_slice(description->seal);
        size_t size = kernel_size(description->dtype);
        return (description->elements <= KERNEL_SMALL_TASK / size ? KERNEL_SLICE_SMALL : KERNEL_SLICE_BYTES) /
               size;
}

static unsigned task_slice_count(const struct backend_task *description) {
        uint64_t each = task_slice_elements(description);
        return (unsigned)((description->elements + each - 1) / each);
}

/* Returns the most slices of this task, or of one with fewer elements, which may be cut finer. */
static unsigned task_slices_most(const struct backend_task *description) {
        unsigned slices = task_slice_count(description);
        unsigned fine = KERNEL_SMALL_TASK / KERNEL_SLICE_SMALL;
        if (description->seal)
                return slices;
        return description->elements * kernel_size(description->dtype) > KERNEL_SMALL_TASK && slices < fine
                       ? fine
                       : slices;
}

static bool task_is_float(unsigned dtype) {
        return dtype == WIRE__DTYPE__F32 || dtype == WIRE__DTYPE__F64 || dtype == WIRE__DTYPE__F16 ||
               dtype == WIRE__DTYPE__BF16;
}

/* Returns NULL if there is no such combination. */
static kernel_fn task_kernel(const struct kernel_set *kernels, const struct backend_task *description) {
        if (description->seal)
                return description->n_outputs > 0 ? kernel_seal_make : kernel_seal_check;
        switch (description->reduce) {
        case WIRE__REDUCE__REDUCE_NONE:
                return description->n_inputs != 1 ? NULL
                       : description->find        ? kernels->find[description->dtype]
                                                  : kernels->copy[description->dtype];
        case WIRE__REDUCE__AVG:
                return task_is_float(description->dtype) && description->divisor > 0
                               ? kernels->reduce[description->dtype][KERNEL_ADD]
                               : NULL;
        case WIRE__REDUCE__SUM: return kernels->reduce[description->dtype][KERNEL_ADD];
        case WIRE__REDUCE__PROD: return kernels->reduce[description->dtype][KERNEL_MUL];
        case WIRE__REDUCE__MIN: return kernels->reduce[description->dtype][KERNEL_MIN];
        case WIRE__REDUCE__MAX: return kernels->reduce[description->dtype][KERNEL_MAX];
        default: return NULL;
        }
}

static bool task_is_valid(const struct backend_task *description) {
        if (kernel_size(description->dtype) == 0 || description->elements > LIMIT_ARENA ||
            description->first > LIMIT_ARENA)
                return false;
        if (description->n_inputs < 1 || description->n_inputs > LIMIT_LOCAL)
                return false;
        if (description->seal)
                return kernel_seal_is_valid(description);
        if (description->n_outputs == 0 || description->find)
                return description->n_outputs == 0 && description->reduce == WIRE__REDUCE__REDUCE_NONE;
        return description->n_outputs <= LIMIT_LOCAL;
}

/* Returns 1/divisor in the accumulator's type. The inputs of a sum are multiplied by one, which changes no
 * value. */
static double task_scale(const struct backend_task *description) {
        if (description->reduce != WIRE__REDUCE__AVG)
                return 1;
        if (description->dtype == WIRE__DTYPE__F64)
                return 1.0 / description->divisor;
        return (float)(1.0 / description->divisor);
}

static bool task_resolve(const struct backend_range *ranges, unsigned n, size_t skip, unsigned char **to) {
        for (unsigned i = 0; i < n; i++) {
                const struct arena *arena = arena_of(ranges[i].memory);
                if (!arena->map)
                        return false;
                to[i] = arena->map + ranges[i].offset + skip;
        }
        return true;
}

static size_t task_block_size(unsigned n_inputs, unsigned n_outputs, unsigned slices) {
        return sizeof(struct task) + 2 * (n_inputs + n_outputs) * sizeof(void *) +
               n_inputs * sizeof(uint64_t) + ((size_t)slices + 1) * (n_inputs + 1) * sizeof(double);
}

/* Whether the outputs are written around the caches. */
static bool task_uncached(const struct backend_task *description, unsigned char *const *outputs) {
        if (!description->uncached ||
            description->elements * kernel_size(description->dtype) < KERNEL_LARGE_TASK)
                return false;
        for (unsigned i = 0; i < description->n_outputs; i++)
                if ((uintptr_t)outputs[i] % KERNEL_LINE != 0)
                        return false;
        return true;
}

/* Lays the arrays out after the task and fills them. */
static int task_set(struct task *task, const struct kernel_set *kernels,
                    const struct backend_task *description) {
        unsigned n_in = description->n_inputs, n_out = description->n_outputs;
        unsigned char **inputs = (unsigned char **)(task + 1), **outputs = inputs + n_in;
        memset(task, 0, task_block_size(n_in, n_out, task_slice_count(description)));
        list_init(&task->unfinished);
        list_init(&task->ring);
        list_init(&task->users);
        task->kernel = task_kernel(kernels, description);
        size_t skip = description->first * kernel_size(description->dtype);
        if (!task->kernel || !task_resolve(description->inputs, n_in, skip, inputs) ||
            !task_resolve(description->outputs, n_out, skip, outputs))
                return -EINVAL;
        task->id = description->id;
        task->user = description->user;
        task->turn = description->turn;
        task->whole = (struct kernel_slice){
                .inputs = (const unsigned char *const *)inputs,
                .outputs = outputs,
                .n_inputs = n_in,
                .n_outputs = n_out,
                .elements = description->elements,
                .scale = task_scale(description),
                .uncached = !description->seal && task_uncached(description, outputs),
        };
        if (description->seal) {
                task->seal = *description->seal;
                task->whole.seal = &task->seal;
        }
        task->seals = description->seal != NULL;
        task->find = description->find || (task->seals && n_out == 0);
        task->first = description->first;
        task->found = BACKEND_NOWHERE;
        task->element_size = kernel_size(description->dtype);
        task->slice_elements = task_slice_elements(description);
        task->slices = task_slice_count(description);
        task->statistics = task->whole.measure =
                description->statistics && task_is_float(description->dtype) && !task->find;
        task->nonfinite = (uint64_t *)(outputs + n_out);
        task->arenas = (const struct arena **)(task->nonfinite + n_in);
        for (unsigned i = 0; i < n_in + n_out; i++)
                task->arenas[i] =
                        arena_of((i < n_in ? description->inputs[i] : description->outputs[i - n_in]).memory);
        task->totals = (double *)(task->arenas + n_in + n_out);
        task->sums = task->totals + n_in + 1;
        return 0;
}

size_t task_room(const struct backend_task *description) {
        if (!task_is_valid(description))
                return 0;
        return task_block_size(description->n_inputs, description->n_outputs, task_slices_most(description));
}

int task_new(const struct kernel_set *kernels, const struct backend_task *description, struct task **ret) {
        _cleanup_(freep) struct task *own = NULL;
        struct task *task = description->room;
        if (!task_is_valid(description))
                return -EINVAL;
        if (!task)
                task = own = malloc(task_room(description));
        if (!task)
                return -ENOMEM;
        int r = task_set(task, kernels, description);
        if (r < 0)
                return r;
        task->in_room = !pointer_steal(own);
        *ret = task;
        return 0;
}

struct task *task_free(struct task *task) {
        if (task && !task->in_room)
                free(task);
        return NULL;
}

struct task *task_reusable(void) {
        return calloc(1, task_block_size(LIMIT_LOCAL, LIMIT_LOCAL, TASK_REUSE_SLICES));
}

int task_reuse(struct task *task, const struct kernel_set *kernels, const struct backend_task *description) {
        if (!task_is_valid(description) || task_slice_count(description) > TASK_REUSE_SLICES)
                return -EINVAL;
        return task_set(task, kernels, description);
}

uint64_t task_traffic(const struct backend_task *description) {
        if (!task_is_valid(description))
                return 0;
        if (description->seal)
                return kernel_seal_traffic(description);
        return description->n_inputs * description->elements * kernel_size(description->dtype);
}

/* Looks for holes that the guard does not show, at every TASK_LOOK_SLICES-th slice. */
static const struct backend_memory *task_look(const struct task *task, unsigned slice) {
        for (unsigned i = 0; slice % TASK_LOOK_SLICES == 0 && i < task->whole.n_inputs; i++)
                if (task->arenas[i]->unguarded && arena_has_holes(task->arenas[i]))
                        return &task->arenas[i]->memory;
        return NULL;
}

static const struct backend_memory *task_missing(const struct task *task, const void *address) {
        const unsigned char *at = address;
        unsigned i = 0;
        while (i < task->whole.n_inputs + task->whole.n_outputs &&
               (at < task->arenas[i]->map || at >= task->arenas[i]->map + task->arenas[i]->bytes))
                i++;
        assert(i < task->whole.n_inputs + task->whole.n_outputs); /* no other memory is guarded */
        return &task->arenas[i]->memory;
}

struct task_slice {
        const struct task *task;
        struct kernel_slice part;
};

static void task_run_kernel(void *data) {
        const struct task_slice *slice = data;
        const struct task *task = slice->task;
        if (task->find || task->seals)
                task->kernel(&slice->part);
        else
                kernel_run(task->kernel, &slice->part, task->element_size);
}

const struct backend_memory *task_run(const struct task *task, unsigned number, uint64_t *nonfinite) {
        /* Kernels add to the sums block by block. So these are not in memory whose cache lines belong to
         * several slices. */
        _Alignas(64) double sums[LIMIT_LOCAL + 8];
        struct task_slice slice = { .task = task, .part = task->whole };
        size_t left, first = number * task->slice_elements, n = task->whole.n_inputs;
        const struct backend_memory *withdrawn = task_look(task, number);
        if (withdrawn)
                return withdrawn;
        left = task->whole.elements - first;
        slice.part.first = first;
        slice.part.elements = left < task->slice_elements ? left : task->slice_elements;
        memset(nonfinite, 0, n * sizeof *nonfinite);
        memset(sums, 0, (n + 1) * sizeof *sums);
        if (task->find)
                *nonfinite = BACKEND_NOWHERE;
        slice.part.found = nonfinite;
        slice.part.input_sums = sums;
        slice.part.result_sum = sums + n;
        slice.part.input_nonfinite = nonfinite;
        const void *missing = guard_call(task_run_kernel, &slice);
        if (missing)
                return task_missing(task, missing);
        if (!task->find)
                memcpy(task->sums + (size_t)number * (n + 1), sums, (n + 1) * sizeof *sums);
        return NULL;
}

bool task_count(struct task *task, const uint64_t *nonfinite) {
        if (task->find && *nonfinite < task->found)
                task->found = *nonfinite;
        for (unsigned i = 0; task->statistics && i < task->whole.n_inputs; i++)
                task->nonfinite[i] += nonfinite[i];
        return task->found == BACKEND_NOWHERE;
}

void task_combine(struct task *task) {
        unsigned n = task->whole.n_inputs + 1;
        for (size_t slice = 0; task->statistics && slice < task->slices; slice++)
                for (unsigned i = 0; i < n; i++)
                        task->totals[i] += task->sums[slice * n + i];
}

void task_result(const struct task *task, struct backend_result *ret) {
        *ret = (struct backend_result){
                .id = task->id,
                .cancelled = task->cancelled,
                .withdrawn = task->withdrawn,
                .n_inputs = task->whole.n_inputs,
                .found = task->found == BACKEND_NOWHERE || task->cancelled ? BACKEND_NOWHERE
                                                                           : task->first + task->found,
                .sum_squares = task->totals[task->whole.n_inputs],
                .input_sum_squares = task->totals,
                .input_nonfinite = task->nonfinite,
        };
}
