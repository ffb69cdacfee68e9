/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake GPU. As a real one is, it is apart from the processes that use it: each client has a context
 * process, which holds the memory and does the work, and goes on for a while when its client is killed. The
 * client's libcuda (cuda.c) asks it over a socket. All contexts of a machine map one file (machine.c), which
 * says how much memory each has and which ranges are in use.
 *
 * A device address is a number in a window where nothing is mapped in the client; in the context process the
 * memory lies at just that address, so kernels run there on plain pointers.
 *
 * Environment:
 *   FAKE_GPU          folder of the machine: `state`, `log`, a line for each broken rule, and the files of
 *                     the fake NCCL (tests/fakes/nccl). As long as there is a file `hold` in it, operations
 *                     begin and do not end
 *   FAKE_GPU_KERNELS  libraries of kernels (kernel.h), with ':' between them
 *   FAKE_GPU_DEVICES  how many GPUs the machine has (1)
 *   FAKE_GPU_DELAY    microseconds that an operation takes at most, besides its work (200)
 *   FAKE_GPU_LATE     microseconds that an operation goes on when its client has been killed (100000)
 *   FAKE_GPU_MPS      set: this process is a client of an MPS server. Such contexts work at the same time,
 *                     and share their faults; others work one at a time
 *   FAKE_GPU_FAIL     "cuLaunchKernel:3:719,…": that call of this process, counted from 1, or (with 0) each,
 *                     has that result; -1: it never returns; -2: it ends its process by SIGABRT; -3: it
 *                     succeeds, and does nothing
 *   CUDA_DEVICE_MAX_CONNECTIONS  queues of a context (8, as of real drivers)
 *   FAKE_GPU_BYTES    memory of each GPU (1 GiB)
 *   FAKE_GPU_DRIVER   version of the driver (13000)
 *   FAKE_GPU_LACKS    "cuMemCreate,…": functions that the driver does not have
 *   FAKE_GPU_NAME     name of the card
 *   FAKE_GPU_KIND     set: where the documentation allows the fake to be nasty, it is not: an IPC handle is
 *                     also given for an address inside an allocation; small allocations share a block, which
 *                     a handle is of; freed memory stays as it is, and so does what is being written
 *   FAKE_GPU_LARGE_MAPS   set: memory can be mapped with a size beyond its own
 *   FAKE_GPU_WRITES_CODE  set: loading kernels needs memory that was written and is executed
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "proto/cuda.h"

#define GPU_WINDOW UINT64_C(0x2a0000000000) /* where device addresses begin */
#define GPU_WINDOW_END UINT64_C(0x2b0000000000)
#define GPU_GRANULARITY (2u << 20)
#define GPU_DEVICES 4u
#define GPU_QUEUES 32u     /* of a context, at most: streams share them, first in, first out */
#define GPU_PAYLOAD 16384u /* bytes after a request */

/*
 * A variable that each thread has of its own, in a library that is opened late. The thread sanitizer takes
 * what lies before such variables for their size where they begin 16 bytes after a page, as those of GNU's
 * libc 2.19 did. Aligned, they never do.
 */
#define GPU_THREADS_OWN _Alignas(64) _Thread_local

enum gpu_call {
        GPU_OPEN, /* device; the first one */
        GPU_MEMORY_INFO,
        GPU_CREATE,
        GPU_RELEASE,
        GPU_RESERVE,
        GPU_UNRESERVE,
        GPU_MAP,
        GPU_UNMAP,
        GPU_ACCESS,
        GPU_EXPORT,
        GPU_IMPORT,
        GPU_PROPERTIES,
        GPU_RETAIN,
        GPU_ALLOCATE,
        GPU_FREE,
        GPU_ATTRIBUTE,
        GPU_HOST, /* with a memfd: host memory that both sides map */
        GPU_HOST_FREE,
        GPU_SET,
        GPU_COPY,
        GPU_COPY_HOST, /* with a memfd, to or from it */
        GPU_IPC_GET,
        GPU_IPC_OPEN,
        GPU_IPC_CLOSE,
        GPU_STREAM_NEW,
        GPU_STREAM_FREE,
        GPU_STREAM_QUERY,
        GPU_EVENT_NEW,
        GPU_EVENT_FREE,
        GPU_EVENT_RECORD,
        GPU_EVENT_QUERY,
        GPU_WAIT_VALUE,
        GPU_WRITE_VALUE,
        GPU_FUNCTION,
        GPU_LAUNCH,
        GPU_COLLECTIVE, /* with the file of the communicator */
        GPU_CLOSE,      /* the last one, of a client that ends its use in good order */
};

enum gpu_allocated { /* what GPU_ALLOCATE makes */
                     ALLOCATED_PLAIN,
                     ALLOCATED_MANAGED, /* the CPU may use it, too */
                     ALLOCATED_POOL,    /* out of a pool, in the order of a stream */
};

struct gpu_request {
        uint32_t call, bytes; /* of the payload */
        uint64_t arg[6];
};

struct gpu_reply {
        int32_t result;
        uint32_t pad;
        uint64_t value[8];
};

struct gpu_ipc { /* what is in a struct cuda_ipc */
        char magic[8];
        uint64_t id;
        int32_t context, client, fd;
        uint32_t uid, device;
};

/* ---- packet.c ---- */

/* As recvmsg() and sendmsg() return. No descriptor: -1. */
ssize_t packet_receive(int from, struct iovec *parts, size_t n_parts, int *ret_fd);
ssize_t packet_send(int to, struct iovec *parts, size_t n_parts, int fd);

/* ---- memory.c ---- */

struct machine;

struct memory {
        uint64_t id, bytes;
        uint32_t device;
        int fd;
        unsigned uses; /* handles and mappings of this context */
};

/* Both have one use. NULL: no memory left. */
struct memory *memory_new(struct machine *machine, uint32_t device, uint64_t bytes);
/* Finds the memory behind a path, such as that of a descriptor below /proc. */
struct memory *memory_find(struct machine *machine, const char *path);
void memory_drop(struct machine *machine, struct memory *memory);

/* ---- mapping.c ---- */

#define MAPPINGS 4096u

enum kind { RESERVED, MAPPED, ALLOCATED, IPC, HOST };

struct mapping {
        uint64_t address, bytes; /* 0: a free place */
        uint64_t reserved;       /* RESERVED, MAPPED: bytes of the reservation */
        enum kind kind;
        struct memory *memory;
        bool access;
        enum gpu_allocated how;
        unsigned opened;
};

extern struct mapping mapping[MAPPINGS];

void mappings_begin(unsigned on);
struct mapping *mapping_at(uint64_t address);
struct mapping *mapping_new(uint64_t address, uint64_t bytes, enum kind kind);
uint64_t address_new(uint64_t bytes);
bool mapping_fill(struct mapping *m, struct memory *memory);
/* The driver looks at the addresses of sets and copies at once, at those of a kernel never. */
bool mapping_has(uint64_t address, uint64_t bytes);
/* A result of CUDA. */
int mapping_attribute(uint64_t attribute, uint64_t address, uint64_t *ret);

/* ---- kernels.c ---- */

#define KERNELS 256u

struct fake_kernel;

void kernels_load(void);
/* Numbers of kernels begin at 1; 0: there is none of that name. */
uint64_t kernels_find(const char *name);
const struct fake_kernel *kernels_get(uint64_t number);

/* ---- machine.c ---- */

#define MACHINE_MEMORIES 4096u
#define MACHINE_LEASES 512u

struct machine_memory {
        uint64_t id; /* 0: a free place */
        uint64_t bytes;
        uint32_t device, uses; /* handles and mappings in contexts */
};

#define MACHINE_WHAT 24u

struct machine_lease {
        uint64_t id, offset, bytes; /* id 0: a free place */
        int32_t context;
        uint32_t queue; /* of the context */
        bool write;
        char what[MACHINE_WHAT]; /* the beginning of its operation's name */
};

struct machine {
        pthread_mutex_t lock;               /* of what follows */
        pthread_mutex_t slice[GPU_DEVICES]; /* whose turn it is to compute, without MPS */
        uint64_t last;                      /* id given out */
        uint32_t contexts;                  /* that live */
        uint64_t used[GPU_DEVICES];         /* bytes */
        uint64_t faults[GPU_DEVICES];       /* of clients of its MPS server */
        uint32_t ctas[GPU_DEVICES];         /* that collectives occupy */
        struct machine_memory memory[MACHINE_MEMORIES];
        struct machine_lease lease[MACHINE_LEASES];
};

/* Maps the state, and makes it if need be. NULL if FAKE_GPU names no folder. */
struct machine *machine_open(void);
void machine_enter(pthread_mutex_t *mutex);
/* False: another thread or process holds the lock; this one has slept for a moment. */
bool machine_try(pthread_mutex_t *mutex);
/* A line of the log: a rule was broken. */
void machine_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t machine_setting(const char *name, uint64_t otherwise);
/* Counts a call of this process. The setting, "call:3:719,…", has a result for the third one, or (with 0) for
 * each; 0: it has none for this one. */
int machine_failure(const char *setting, const char *call);

/* One more, or less, use of a memory; it is counted as long as there is one. False: no memory left. */
bool machine_use(struct machine *machine, uint64_t id, uint32_t device, uint64_t bytes);
void machine_unuse(struct machine *machine, uint64_t id);
/* How many contexts' uses there are. */
unsigned machine_uses(struct machine *machine, uint64_t id);
/* Notes that an operation of a context's queue uses the range; logs an overlap with a use of another queue
 * unless both read. Returns its place. */
unsigned machine_lease(struct machine *machine, uint64_t id, uint64_t offset, uint64_t bytes, bool write,
                       uint32_t queue, const char *what);
/* Whether there is such a file in the machine's folder, which is an order to the fakes. */
bool machine_has(const char *name);
/* Makes a file of the machine's folder that holds something, or takes it away. */
bool machine_hold(const char *name, bool on);
void machine_unlease(struct machine *machine, unsigned place);
bool machine_leased(struct machine *machine, uint64_t id, int32_t context, char what[MACHINE_WHAT]);
/* How many ranges are in use. */
unsigned machine_leases(struct machine *machine);
/* A client of the MPS server of this GPU has faulted; how many have. */
void machine_fault(struct machine *machine, unsigned device);
uint64_t machine_faults(struct machine *machine, unsigned device);
/* 1 if there is a context or memory, which is printed. */
int machine_check(struct machine *machine);

/* ---- event.c ---- */

/* All return results of CUDA, unless told otherwise. */
int event_new(uint64_t *ret);
int event_free(uint64_t number);
int event_query(uint64_t number);
/* One more record is in a queue, with this number, or out of it. The event exists. */
uint64_t event_issue(uint64_t number);
void event_note_done(uint64_t number, uint64_t record);
/* How many there are. */
unsigned events_left(void);

/* ---- collective.c ---- */

struct gpu_collective { /* of the fake NCCL: an allreduce */
        uint64_t from, to, count, bytes;
        uint64_t number; /* of the communicator's collectives, from 1 on */
        uint64_t place;  /* in a window, as all ranks have to have it; 0: in none */
        int32_t type, operation;
        uint32_t rank, ranks, ctas;
};

struct collective {
        const struct gpu_collective *what;
        struct machine *machine;
        unsigned device;
        pthread_mutex_t *slice; /* whose turn it is to compute; NULL: everybody's */
        int board;
        const void *from; /* may be `to` */
        void *to;
        bool (*is_over)(void);
};

/* Does the work of one rank, and waits for the others. Aborted, or over: there is garbage in `to`. */
void collective_run(const struct collective *collective);
/* It is over, or never began. */
void collective_end(const struct gpu_collective *what, int board);
