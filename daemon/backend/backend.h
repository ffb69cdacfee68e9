/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a device's backend. Two tables of functions stand beside each other: one for memory
 * (what members share with the daemon, and what the daemon has for itself), one for computing on it. A
 * backend knows bytes and element types, nothing of jobs, ranks or sessions. A daemon has one or two: that of
 * its device for plans, and `host` for collectives (pair.h). All functions are called on the loop thread.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/seal.h"
#include "base/error.h"
#include "proto/frame.h"

#define MEMORY_UNCHECKED (1u << 20) /* bytes */

#define MEMORY_FDS 2u
_Static_assert(MEMORY_FDS <= FRAME_FDS_MAX, "a memory is handed over in one frame");

struct backend;
struct cuda_ipc;

/* The first member of each one that a backend has made. */
struct backend_memory {
        struct backend *backend;
};

/* A place in a memory. */
struct backend_range {
        struct backend_memory *memory;
        uint64_t offset; /* bytes, multiple of ARENA_ALIGN */
};

/*
 * One combination: every output becomes reduce(inputs in their order), element by element.
 *   avg   each input times (1/divisor rounded to the accumulator's type), then added in order
 *   sum, prod, min, max   as named; integers wrap; min and max propagate NaN
 *   none  copy: exactly one input, any dtype; without an output it is only measured (statistics), or
 *         looked through (find)
 * The accumulator is f32 for f32, f16, bf16 (rounded to nearest even at the end), f64 for f64, the type
 * itself for integers. An output may be the same range as an input, or disjoint from all of them; never a
 * partial overlap. Ranges lie inside their memories (the caller has checked).
 *
 * A piece of a bucket is a task with the bucket's ranges, and `first` and `elements` of the piece. The
 * result's elements have the same bits in pieces and in one go. Sums of squares of the pieces do not add up
 * to the bits of the sum over the whole: statistics of a result that came in pieces, or through an engine,
 * are those of one copy of the whole result that has no output. Counts of non-finite values do add up.
 *
 * With `seal` a copy of u8 makes seals, or checks them, and `elements` are pieces (seal.h). One input and two
 * outputs: the second one becomes a copy of the input, and the first one gets the seals of the copy. Two
 * inputs: the second one holds the seals of the first one. `host` alone does it.
 */
struct backend_task {
        uint64_t id; /* chosen by the caller, unique among unfinished tasks */
        /* Users share the workers slice by slice, and so do the turns of each user. Tasks with the same turn,
         * which has one user, go in order. */
        uint64_t user, turn;
        unsigned dtype;   /* WIRE__DTYPE__… */
        unsigned reduce;  /* WIRE__REDUCE__… */
        uint32_t divisor; /* avg only, at least 1 */
        uint64_t first;   /* element of the ranges with which the task begins; its byte as an offset */
        uint64_t elements;
        unsigned n_inputs;  /* 1..LIMIT_LOCAL */
        unsigned n_outputs; /* 1..LIMIT_LOCAL, 0 for a copy; up to as many as there are members */
        const struct backend_range *inputs, *outputs; /* copied by submit() */
        bool statistics;                              /* float types: fill the sums below */
        /* float types, a copy without an output: find the first element that is not finite, instead */
        bool find;
        const struct backend_seal *seal; /* NULL: neither; copied by submit() */
        /* a hint: the outputs are not in the caches, and what is written is not read again at once */
        bool uncached;
        /* room() bytes, aligned for any type, the backend's until done() is called; or NULL */
        void *room;
};

#define BACKEND_NOWHERE UINT64_MAX

/* Valid during the call that delivers it. */
struct backend_result {
        uint64_t id;
        bool cancelled; /* outputs are undefined, no access to any of the ranges any more */
        /* why: the memory, of an input or output, of which its member has withdrawn some, see check(); NULL:
         * none was found */
        const struct backend_memory *withdrawn;
        unsigned n_inputs;
        /* Number of that element in the ranges, `first` included; of the first piece that is not as it was
         * sealed. BACKEND_NOWHERE: there is none, it was not asked for, or the task was cancelled. */
        uint64_t found;
        /* If statistics were asked for and the dtype is a float, else zeros. f64, summed in an order that
         * depends on nothing but the number of elements: the same input gives the same bits on any machine
         * and worker count. */
        double sum_squares;              /* of the result as stored */
        const double *input_sum_squares; /* n_inputs values: of each input before scaling */
        const uint64_t *input_nonfinite; /* n_inputs values: NaN and infinite elements of each input */
};

/*
 * What may take a device long: to have memory, to let it be used, and to let it go. On one memory there is
 * one request at a time, and none while a task uses it. close() ends what is still queued, without a word,
 * and lets go of all memory that there is.
 */
enum memory_kind {
        MEMORY_SHARED,   /* of `bytes`, for a member to map; not attached, and no page of it touched */
        MEMORY_OWN,      /* of `bytes`, for the daemon itself, as what an engine carries; attached */
        MEMORY_OFFERED,  /* what a member has made: `bytes` from `offset` of it; attached */
        MEMORY_RETURNED, /* what a former daemon had made, the whole of it, `bytes`; attached */
        /* Checks that the member has touched all of it (memory cgroups charge whoever touches a page first,
         * and that must not be the daemon), and makes it usable for tasks. */
        MEMORY_ATTACH,
        MEMORY_FREE, /* whatever the result, it is not the caller's any more */
};

/* What new memory holds from `offset` on, for so many bytes: the `size` lowest bytes of `bits`, 1, 2, 4 or 8,
 * again and again. Both are multiples of ARENA_ALIGN and `size`. */
struct memory_fill {
        uint64_t offset, bytes, bits;
        unsigned size;
};

#define MEMORY_FILLS 8u

struct memory_request {
        uint64_t id; /* chosen by the caller, unique among unfinished requests */
        enum memory_kind kind;
        uint64_t bytes, offset; /* SHARED, OWN: a multiple of ARENA_PAGE */
        /* OFFERED, RETURNED: those that the backend keeps are set to -1 before request() returns, and never
         * if it fails by then. The others stay the caller's. */
        int *fds;
        unsigned n_fds;
        const struct cuda_ipc *ipc;      /* OFFERED: names it instead of a descriptor; or NULL */
        struct backend_memory *memory;   /* ATTACH, FREE */
        const struct memory_fill *fills; /* OWN: what it holds beside zeros; read before request() returns */
        unsigned n_fills;                /* at most MEMORY_FILLS */
        size_t beside;                   /* OWN: bytes of the host's memory that come with it */
};

/* Valid during the call that delivers it. */
struct memory_result {
        uint64_t id;
        int error;                     /* 0; INVALID (positive) with `refusal`; or a negative errno */
        struct backend_memory *memory; /* what was made or taken over; NULL if that failed */
        struct refusal refusal;
};

typedef void (*backend_made_fn)(void *owner, const struct memory_result *result);
typedef void (*backend_failed_fn)(void *owner, const char *why);
typedef void (*backend_done_fn)(void *owner, const struct backend_result *result);

struct backend_config {
        const char *device; /* its whole name */
        const char *driver; /* `cuda`: path of the driver's library; NULL: where the system has it */
        unsigned workers;   /* 0: cpus_available() */
        bool has_affinity;
        cpu_set_t affinity;   /* of the workers; the loop thread keeps its own */
        backend_done_fn done; /* called from dispatch() */
        backend_made_fn made; /* likewise, for requests of memory */
        /* Likewise, once: the device is of no use to this process any more, and nothing that is under way
         * will be delivered. NULL: nobody wants to know. */
        backend_failed_fn failed;
        void *owner;
        char *error; /* error_size bytes; a sentence, if open() fails and there is something to say */
        size_t error_size;
};

struct memory_ops {
        unsigned n_fds; /* of each memory, at most MEMORY_FDS */

        /* 1: done before returning, see *ret. 0: queued, made() will be called within a bounded time. */
        int (*request)(struct backend *backend, const struct memory_request *request,
                       struct memory_result *ret);
        /* Nobody needs what a queued request is for any more. Its made() comes, with -ECANCELED unless it had
         * been done already. Unknown ids are ignored. It is not for a FREE. */
        void (*cancel)(struct backend *backend, uint64_t id);

        /* The fds to pass to a member, or to an engine's helper; they stay the memory's. -1: what is this
         * daemon's own may have none. */
        void (*fds)(const struct backend_memory *memory, int fds[MEMORY_FDS]);
        /* What there is of it, and what whoever gets its fds maps: no less than was asked for. */
        uint64_t (*bytes)(const struct backend_memory *memory);
        /* 0: the same memory, however often and through whatever fds it was offered; else an order. */
        int (*compare)(const struct backend_memory *a, const struct backend_memory *b);

        /* The rest is for an attached memory. Where it lies for an engine, which may not be where a CPU can
         * read. */
        void *(*address)(const struct backend_memory *memory);
        /* What came beside it, as malloc() aligns, which the device and the CPU read and write alike; NULL if
         * nothing did. */
        void *(*beside)(const struct backend_memory *memory);
        /* Before and after `bytes` bytes of it are used: whether its member has withdrawn some since, as by
         * punching holes, into which the daemon would allocate pages. Small amounts are summed up and looked
         * at together, once they make up MEMORY_UNCHECKED, so that they cost nothing. Between these two, a
         * task notices by itself, and is cancelled. 0; INVALID (positive) with *refusal; or a negative
         * errno. */
        int (*check)(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal);
};

struct compute_ops {
        /* Bytes of memory that tasks with so many inputs, outputs and elements of this dtype, or fewer, need
         * while they are queued; 0: none, or that there are no such tasks. A caller that has it beforehand
         * and gives it to each of them is never refused with -ENOMEM. */
        size_t (*room)(const struct backend *backend, const struct backend_task *task);
        /* 1: done before returning, *ret is valid until the next call into the backend (small tasks need no
         * hand-off to a thread). 0: queued, done() will be called. Negative errno: refused, nothing
         * happened. */
        int (*submit)(struct backend *backend, const struct backend_task *task, struct backend_result *ret);
        /* Drops what is not running yet of a queued task. Its done() comes, with `cancelled` set unless it
         * had finished already, after the last access to its ranges. Unknown ids are ignored. */
        void (*cancel)(struct backend *backend, uint64_t id);
};

struct backend_gpu {
        const char *uuid, *name;
        int driver;           /* version, as CUDA counts: 13000 is 13.0 */
        bool mps;             /* clients of an MPS server work at the same time; else in turn */
        uint64_t bytes, free; /* its memory, and what nobody had taken when it was last looked at */
        uint64_t granularity; /* an allocation takes a multiple of so many bytes */
};

struct backend_ops {
        const char *name;
        const struct memory_ops *memory;
        const struct compute_ops *compute;

        int (*open)(const struct backend_config *config, struct backend **ret);
        /* all tasks must be gone; returns NULL */
        struct backend *(*close)(struct backend *backend);

        /* Readable when dispatch() has something to deliver. */
        int (*fd)(struct backend *backend);
        void (*dispatch)(struct backend *backend);

        /* Asks every worker for a sign of life; returns how many have not answered the *previous* call
         * yet. */
        unsigned (*ping)(struct backend *backend);

        bool (*gpu)(const struct backend *backend, struct backend_gpu *ret); /* false: it is none */
        unsigned (*workers)(const struct backend *backend);
        const char *(*simd)(const struct backend *backend); /* "avx512", "avx2", "baseline"; "sm_90" */
        uint64_t (*cpu_us)(const struct backend *backend);  /* CPU time of all workers */
};

/* The first member of each open one. */
struct backend {
        const struct backend_ops *ops;
        const struct memory_ops *memory;
        const struct compute_ops *compute;
};

extern const struct backend_ops backend_host, backend_cuda;
