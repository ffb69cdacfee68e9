/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a device's backend: two tables of functions, one for memory (which members share with the
 * daemon, or which the daemon has for itself), one for computing on it. A backend knows bytes and element
 * types, and nothing of jobs, ranks or sessions. A daemon has one or two backends: that of its device for
 * plans, and `host` for collectives (pair.h). All functions are called on the loop thread.
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

/* A memory: the first member of each structure that a backend makes for one. */
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
        /* Users share the workers slice by slice, and so do the turns of each user. A turn has one user, and
         * its tasks go in order. */
        uint64_t user, turn;
        unsigned dtype;   /* WIRE__DTYPE__… */
        unsigned reduce;  /* WIRE__REDUCE__… */
        uint32_t divisor; /* avg only, at least 1 */
        uint64_t first;   /* first element of the ranges; its byte is aligned as an offset */
        uint64_t elements;
        unsigned n_inputs;  /* 1..LIMIT_LOCAL */
        unsigned n_outputs; /* 1..LIMIT_LOCAL, 0 for a copy; up to as many as there are members */
        const struct backend_range *inputs, *outputs; /* copied by submit() */
        bool statistics;                              /* float types: fill the sums below */
        /* For a copy of a float type without an output: finds the first element that is not finite, instead
         * of measuring. */
        bool find;
        const struct backend_seal *seal; /* NULL: makes and checks no seals; copied by submit() */
        /* A hint: the outputs are not in the caches, and are not read again soon after they are written. */
        bool uncached;
        /* room() bytes, aligned for any type, which the backend owns until done() is called; or NULL. */
        void *room;
};

#define BACKEND_NOWHERE UINT64_MAX

/* The result of a task. Valid during the call that delivers it. */
struct backend_result {
        uint64_t id;
        bool cancelled; /* outputs are undefined, and the ranges are no longer accessed */
        /* The reason for `cancelled`: the memory, of an input or output, of which its member has withdrawn
         * some, see check(). NULL if none was found. */
        const struct backend_memory *withdrawn;
        unsigned n_inputs;
        /* Number of the element that `find` looks for, in the ranges, `first` included; or of the first piece
         * that is not as it was sealed. BACKEND_NOWHERE if there is none, if it was not asked for, or if the
         * task was cancelled. */
        uint64_t found;
        /* Statistics if they were asked for and the dtype is a float, else zeros. Sums are f64, added in an
         * order that depends on nothing but the number of elements: the same input gives the same bits on any
         * machine and worker count. */
        double sum_squares;              /* of the result as stored */
        const double *input_sum_squares; /* n_inputs values: of each input before scaling */
        const uint64_t *input_nonfinite; /* n_inputs values: NaN and infinite elements of each input */
};

/*
 * Kinds of requests that may take a device long: to make a memory, to let it be used, and to free it. One
 * memory has one request at a time, and none while a task uses it. close() drops queued requests without
 * made(), and frees the memory that is on its way to or from the caller.
 */
enum memory_kind {
        MEMORY_SHARED,   /* makes `bytes` for a member to map; not attached, and no page of it touched */
        MEMORY_OWN,      /* makes `bytes` for the daemon itself, as for what an engine carries; attached */
        MEMORY_OFFERED,  /* takes memory that a member has made: `bytes` from `offset` of it; attached */
        MEMORY_RETURNED, /* takes memory that a former daemon had made, all of its `bytes`; attached */
        /* Checks that the member has touched all pages of the memory, and makes it usable for tasks. Memory
         * cgroups charge the process that touches a page first, and that must not be the daemon. */
        MEMORY_ATTACH,
        MEMORY_FREE, /* frees the memory; whatever the result, the caller does not own it any more */
};

/* Contents of new memory: `bytes` bytes from `offset` on hold the `size` lowest bytes of `bits`, 1, 2, 4 or
 * 8, again and again. `offset` and `bytes` are multiples of ARENA_ALIGN and `size`. */
struct memory_fill {
        uint64_t offset, bytes, bits;
        unsigned size;
};

#define MEMORY_FILLS 8u

struct memory_request {
        uint64_t id; /* chosen by the caller, unique among unfinished requests */
        enum memory_kind kind;
        uint64_t bytes, offset; /* SHARED, OWN: a multiple of ARENA_PAGE */
        /* OFFERED, RETURNED: descriptors of the memory. The backend sets those that it keeps to -1 before
         * request() returns, and none if it fails by then. The caller owns the others. */
        int *fds;
        unsigned n_fds;
        const struct cuda_ipc *ipc;      /* OFFERED: names the memory instead of a descriptor; or NULL */
        struct backend_memory *memory;   /* ATTACH, FREE */
        const struct memory_fill *fills; /* OWN: contents other than zeros; read before request() returns */
        unsigned n_fills;                /* at most MEMORY_FILLS */
        size_t companion;                /* OWN: bytes of host memory that come with the memory */
};

/* The result of a request. Valid during the call that delivers it. */
struct memory_result {
        uint64_t id;
        int error;                     /* 0; INVALID (positive) with `refusal`; or a negative errno */
        struct backend_memory *memory; /* the memory that was made or taken over; NULL if that failed */
        struct refusal refusal;
};

typedef void (*backend_made_fn)(void *owner, const struct memory_result *result);
typedef void (*backend_failed_fn)(void *owner, const char *why);
typedef void (*backend_done_fn)(void *owner, const struct backend_result *result);

struct backend_config {
        const char *device; /* whole name of the device */
        const char *driver; /* `cuda`: path of the driver's library; NULL: where the system has it */
        unsigned workers;   /* 0: cpus_available() */
        bool has_affinity;
        cpu_set_t affinity;   /* CPUs of the workers; the loop thread keeps its own */
        backend_done_fn done; /* called from dispatch() */
        backend_made_fn made; /* likewise, for requests of memory */
        /* Likewise, once: the device is of no use to this process any more, and no task or request that is
         * under way will be delivered. NULL if the owner need not know. */
        backend_failed_fn failed;
        void *owner;
        char *error; /* error_size bytes; a sentence, if open() fails and there is something to say */
        size_t error_size;
};

struct memory_ops {
        unsigned n_fds; /* descriptors of each memory, at most MEMORY_FDS */

        /* 1: done before returning, see *ret. 0: queued; made() will be called within a bounded time. */
        int (*request)(struct backend *backend, const struct memory_request *request,
                       struct memory_result *ret);
        /* Cancels a queued request, whose memory is no longer needed. Its made() comes, with -ECANCELED
         * unless the request had been done already. Unknown ids are ignored. Not for a FREE. */
        void (*cancel)(struct backend *backend, uint64_t id);

        /* Gives the fds to pass to a member, or to an engine's helper. The memory owns them. -1: memory of
         * this daemon itself may have none. */
        void (*fds)(const struct backend_memory *memory, int fds[MEMORY_FDS]);
        /* Returns the bytes of the memory, which the receiver of its fds maps: no less than was asked for. */
        uint64_t (*bytes)(const struct backend_memory *memory);
        /* Returns 0 if both are the same memory, however often and through whatever fds it was offered; else
         * an order. */
        int (*compare)(const struct backend_memory *a, const struct backend_memory *b);

        /* The following functions are for an attached memory. address() returns where it lies for an engine;
         * a CPU may not be able to read there. */
        void *(*address)(const struct backend_memory *memory);
        /* Returns the host memory that came with it, aligned as by malloc(), which the device and the CPU
         * read and write alike; NULL if there is none. */
        void *(*companion)(const struct backend_memory *memory);
        /*
         * Called before and after `bytes` bytes of the memory are used. Finds whether its member has
         * withdrawn some since, as by punching holes, into which the daemon would allocate pages. Small
         * amounts are added up and checked together once they make up MEMORY_UNCHECKED, so that they cost
         * nothing. Between the two calls a task notices by itself, and is cancelled. 0; INVALID (positive)
         * with *refusal; or a negative errno.
         */
        int (*check)(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal);
};

struct compute_ops {
        /* Returns the bytes of memory that a task with so many inputs, outputs and elements of this dtype, or
         * fewer, needs while it is queued; 0: none, or that there are no such tasks. A caller that allocates
         * a room beforehand and gives it to each task is never refused with -ENOMEM. */
        size_t (*room)(const struct backend *backend, const struct backend_task *task);
        /* 1: done before returning; *ret is valid until the next call into the backend (small tasks are
         * not handed to a thread). 0: queued; done() will be called. Negative errno: refused, nothing
         * happened. */
        int (*submit)(struct backend *backend, const struct backend_task *task, struct backend_result *ret);
        /* Drops the part of a queued task that is not running yet. Its done() comes after the last access to
         * its ranges, with `cancelled` set unless the task had finished already. Unknown ids are ignored. */
        void (*cancel)(struct backend *backend, uint64_t id);
};

struct backend_gpu {
        const char *uuid, *name;
        int driver;           /* version, as CUDA counts: 13000 is 13.0 */
        bool mps;             /* its clients work at the same time, through an MPS server; else in turn */
        uint64_t bytes, free; /* bytes of its memory, and bytes that were free at the last look */
        uint64_t granularity; /* an allocation takes a multiple of so many bytes */
};

struct backend_ops {
        const char *name;
        const struct memory_ops *memory;
        const struct compute_ops *compute;

        int (*open)(const struct backend_config *config, struct backend **ret);
        /* All tasks must be gone. Returns NULL. */
        struct backend *(*close)(struct backend *backend);

        /* Readable when dispatch() has something to deliver. */
        int (*fd)(struct backend *backend);
        void (*dispatch)(struct backend *backend);

        /* Asks every worker for a sign of life; returns how many have not answered the *previous* call
         * yet. */
        unsigned (*ping)(struct backend *backend);

        bool (*gpu)(const struct backend *backend, struct backend_gpu *ret); /* false if it is no GPU */
        unsigned (*workers)(const struct backend *backend);
        const char *(*simd)(const struct backend *backend); /* "avx512", "avx2", "baseline"; "sm_90" */
        uint64_t (*cpu_us)(const struct backend *backend);  /* CPU time of all workers */
};

/* A backend: the first member of the structure of each open one. */
struct backend {
        const struct backend_ops *ops;
        const struct memory_ops *memory;
        const struct compute_ops *compute;
};

extern const struct backend_ops backend_host, backend_cuda;
