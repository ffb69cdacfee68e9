/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a device's backend: it allocates the memory shared with members (arenas), combines buckets
 * of local members, and reports completion by id. One constant table of functions per backend; `host` is the
 * one for CPUs. It knows bytes and element types, nothing of jobs, ranks or sessions. All functions are
 * called on the loop thread.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/frame.h"

#define ARENA_UNCHECKED (1u << 20) /* bytes */

struct backend;
struct backend_arena;
struct memfd_file;

/* A place in an arena. */
struct backend_range {
        struct backend_arena *arena;
        uint64_t offset; /* bytes, multiple of ARENA_ALIGN */
};

/*
 * One combination: every output becomes reduce(inputs in their order), element by element.
 *   avg   each input times (1/divisor rounded to the accumulator's type), then added in order
 *   sum, prod, min, max   as named; integers wrap; min and max propagate NaN
 *   none  copy: exactly one input, any dtype
 * The accumulator is f32 for f32, f16, bf16 (rounded to nearest even at the end), f64 for f64, the type
 * itself for integers. An output may be the same range as an input, or disjoint from all of them; never a
 * partial overlap. Ranges lie inside their arenas (the caller has checked).
 */
struct backend_task {
        uint64_t id; /* chosen by the caller, unique among unfinished tasks */
        /* tasks with different turns share the workers slice by slice; equal ones go in order */
        uint64_t turn;
        unsigned dtype;   /* WIRE__DTYPE__… */
        unsigned reduce;  /* WIRE__REDUCE__… */
        uint32_t divisor; /* avg only, at least 1 */
        uint64_t elements;
        unsigned n_inputs, n_outputs; /* 1..LIMIT_LOCAL; up to as many outputs as there are members */
        const struct backend_range *inputs, *outputs; /* copied by submit() */
        bool statistics;                              /* float types: fill the sums below */
        /* end it when a member is found to have punched holes into an input's arena */
        bool watch;
        /* room() bytes, aligned for any type, the backend's until done() is called; or NULL */
        void *room;
};

/* Valid during the call that delivers it. */
struct backend_result {
        uint64_t id;
        bool cancelled; /* outputs are undefined, no access to any of the ranges any more */
        /* why: number of the input into whose arena holes were punched, plus 1; 0: no such */
        unsigned punched;
        unsigned n_inputs;
        /* If statistics were asked for and the dtype is a float, else zeros. f64, summed in an order that
         * depends on nothing but the number of elements: the same input gives the same bits on any machine
         * and worker count. */
        double sum_squares;              /* of the result as stored */
        const double *input_sum_squares; /* n_inputs values: of each input before scaling */
        const uint64_t *input_nonfinite; /* n_inputs values: NaN and infinite elements of each input */
};

typedef void (*backend_done_fn)(void *owner, const struct backend_result *result);

struct backend_config {
        unsigned workers; /* 0: cpus_available() */
        bool has_affinity;
        cpu_set_t affinity;   /* of the workers; the loop thread keeps its own */
        backend_done_fn done; /* called from dispatch() */
        void *owner;
};

struct backend_ops {
        const char *name;

        int (*open)(const struct backend_config *config, struct backend **ret);
        /* all arenas and tasks must be gone; returns NULL */
        struct backend *(*close)(struct backend *backend);

        /* Readable when dispatch() has something to deliver. */
        int (*fd)(struct backend *backend);
        void (*dispatch)(struct backend *backend);

        /* Memory of `bytes` (a multiple of ARENA_PAGE), sealed against growing and shrinking, no page
         * touched. */
        int (*arena_new)(struct backend *backend, uint64_t bytes, struct backend_arena **ret);
        /* The fd to pass to the member; stays the arena's. */
        int (*arena_fd)(const struct backend_arena *arena);
        uint64_t (*arena_bytes)(const struct backend_arena *arena);
        /* Makes an arena of memory that somebody else has allocated: `bytes` from `offset` of the file, see
         * proto/memfd.h. It is attached. Takes the fd if it returns 0; else INVALID (positive) with *refusal,
         * or a negative errno. `ret_file` may be NULL. */
        int (*arena_adopt)(struct backend *backend, int fd, uint64_t offset, uint64_t bytes,
                           struct memfd_file *ret_file, struct backend_arena **ret, struct refusal *refusal);
        /* Checks that the member has touched every page (memory cgroups charge the first toucher, and that
         * must not be the daemon), then maps it. 0; INVALID (positive) with *refusal; or a negative errno. */
        int (*arena_attach)(struct backend_arena *arena, struct refusal *refusal);
        /* Before and after `bytes` bytes of an attached arena are used: whether its member has punched holes
         * since, into which the daemon would allocate pages. Small amounts are summed up and looked at
         * together, once they make up ARENA_UNCHECKED, so that they cost nothing. Between these two, a
         * task that is watched looks by itself. The results of arena_attach. */
        int (*arena_check)(struct backend_arena *arena, uint64_t bytes, struct refusal *refusal);
        /* Copies `size` bytes at `offset` out, each byte read once. Only on an attached arena. */
        void (*arena_read)(const struct backend_arena *arena, uint64_t offset, void *to, size_t size);
        /* no task may use it; NULL is fine */
        struct backend_arena *(*arena_free)(struct backend_arena *arena);

        /* Bytes of memory that tasks with so many inputs, outputs and elements of this dtype, or fewer, need
         * while they are queued; 0: none, or that there are no such tasks. A caller that has it beforehand
         * and gives it to each of them is never refused with -ENOMEM. */
        size_t (*room)(const struct backend_task *task);
        /* 1: done before returning, *ret is valid until the next call into the backend (small tasks need no
         * hand-off to a thread). 0: queued, done() will be called. Negative errno: refused, nothing
         * happened. */
        int (*submit)(struct backend *backend, const struct backend_task *task, struct backend_result *ret);
        /* Drops what is not running yet of a queued task. Its done() comes, with `cancelled` set unless it
         * had finished already, after the last access to its ranges. Unknown ids are ignored. */
        void (*cancel)(struct backend *backend, uint64_t id);

        /* Asks every worker for a sign of life; returns how many have not answered the *previous* call
         * yet. */
        unsigned (*ping)(struct backend *backend);

        unsigned (*workers)(const struct backend *backend);
        const char *(*simd)(const struct backend *backend); /* "avx512", "avx2", "baseline" */
        uint64_t (*cpu_us)(const struct backend *backend);  /* CPU time of all workers */
};

struct backend {
        const struct backend_ops *ops;
};

extern const struct backend_ops backend_host;
