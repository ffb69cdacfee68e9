/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context of the fake GPU: one process for each client. The main thread answers requests; a thread for each
 * hardware queue does the work that was put into it, in order. Rules and where they are from:
 *   - work is done later, in the order of its stream; streams share few queues ("CUDA C++ Programming Guide",
 *     asynchronous concurrent execution; CUDA_DEVICE_MAX_CONNECTIONS)
 *   - without MPS kernels of different processes never run at the same time (MPS documentation, "When to
 *     use")
 *   - exported memory lives until the last handle and mapping in any process is gone (cuda.h, cuMemRelease,
 *     cuMemExportToShareableHandle)
 *   - an IPC handle is opened by other processes only, describes a whole allocation, and is counted
 *     (cuda.h, cuIpcGetMemHandle, cuIpcOpenMemHandle)
 *   - a copy from or to pinned memory is done later, too; others are over when the call returns ("API
 *     synchronization behavior" of the driver API)
 *   - an event is its last record (cuda.h, cuEventRecord)
 *   - an access to what is not mapped is an error that stays (cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS)
 *   - a fault of one client of an MPS server ends the work of all on that GPU (MPS documentation, "Error
 *     containment"); which clients may come back when is not modelled
 * Beyond that it is nasty where the documentation allows it: new memory holds garbage, what an operation
 * writes holds NaNs until it ends, and freed memory is overwritten.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "tests/fakes/kernel.h"
#include "tests/fakes/nccl/board.h"

#define OBJECTS 4096u
#define RANGES 1200u
#define NANS 0xff
#define FREED 0xdb
#define SMALL 65536u /* bytes that an allocation has at most which shares a block */

struct stream {
        bool there;
        unsigned queue;
        uint64_t issued, done;
};

struct operation {
        struct operation *next;
        enum gpu_call call;
        uint64_t arg[6];
        unsigned stream;
        int fd;
        const struct fake_kernel *kernel;
        unsigned char payload[];
};

struct queue {
        pthread_cond_t work;
        struct operation *first, **last;
        pthread_t thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct machine *machine;
static unsigned device;
static int client, client_pid;
static bool client_gone, client_ended; /* ended: in good order */
static int sticky;
static uint64_t faults_before;
static struct memory *handle[OBJECTS];
static struct stream stream[OBJECTS];
static struct queue queue[GPU_QUEUES];
static unsigned n_queues;
static unsigned running;
static uint64_t seed;

/* ---- mappings ---- */

/* Sleeps for a moment in a wait, which may never end, and notes it if the client has died. `lock` is held. */
static void wait_a_while(void) {
        struct pollfd socket = { .fd = client };

        pthread_mutex_unlock(&lock);
        poll(&socket, 1, 0);
        usleep(100);
        pthread_mutex_lock(&lock);
        client_gone |= (socket.revents & POLLHUP) != 0;
}

/* Real drivers wait, or fault, or show no error at all, so the fake logs it as an error of the program. */
static void mapping_empty(struct mapping *m) {
        char what[MACHINE_WHAT];

        if (machine_leased(machine, m->memory->id, getpid(), what))
                machine_log("memory %llu of %llu bytes is unmapped or freed while %s uses it",
                            (unsigned long long)m->memory->id, (unsigned long long)m->bytes, what);
        while (machine_leased(machine, m->memory->id, getpid(), NULL))
                wait_a_while();
        munmap((void *)(uintptr_t)m->address, m->bytes);
        memory_drop(machine, m->memory);
        m->memory = NULL;
}

/* ---- work ---- */

static void pause_for(uint64_t us) {
        struct timespec time = { (time_t)(us / 1000000), (long)(us % 1000000 * 1000) };

        nanosleep(&time, NULL);
}

static uint64_t random_below(uint64_t n) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return n > 0 ? seed % n : 0;
}

struct use {
        uint64_t address, bytes;
        bool write;
        unsigned lease;
        unsigned char *after;
};

struct uses {
        struct use use[RANGES];
        unsigned n;
        bool wrong;
        unsigned queue;
        const char *what;
};

/* `lock` is held. */
static void uses_add(void *data, uint64_t address, uint64_t bytes, bool write) {
        struct uses *uses = data;
        const struct mapping *m = mapping_at(address);

        if (bytes == 0)
                return;
        if (m == NULL || m->memory == NULL || !m->access || address + bytes > m->address + m->bytes ||
            uses->n == RANGES) {
                uses->wrong = true;
                return;
        }
        unsigned lease = MACHINE_LEASES; /* none for memory of the host: it is seen by others as it is */
        if (m->kind != HOST)
                lease = machine_lease(machine, m->memory->id, address - m->address, bytes, write, uses->queue,
                                      uses->what);
        uses->use[uses->n++] = (struct use){ address, bytes, write, lease, NULL };
}

static void operation_uses(struct operation *operation, void **parameters, struct uses *uses) {
        const struct gpu_collective *collective = (const void *)operation->payload;

        uses->what = operation->kernel != NULL    ? operation->kernel->name
                     : operation->call == GPU_SET ? "a fill"
                                                  : "a copy";
        switch (operation->call) {
        case GPU_SET: uses_add(uses, operation->arg[0], operation->arg[1], true); break;
        case GPU_COPY:
                uses_add(uses, operation->arg[0], operation->arg[2], true);
                uses_add(uses, operation->arg[1], operation->arg[2], false);
                break;
        case GPU_COPY_HOST:
                uses_add(uses, operation->arg[0], operation->arg[1], operation->arg[2] == 0);
                break;
        case GPU_LAUNCH:
                if (operation->kernel->ranges != NULL)
                        operation->kernel->ranges(parameters, uses_add, uses);
                break;
        case GPU_COLLECTIVE:
                uses->what = "a collective";
                uses_add(uses, collective->to, collective->bytes, true);
                if (collective->from != collective->to)
                        uses_add(uses, collective->from, collective->bytes, false);
                break;
        default: break;
        }
}

#define AT(address) ((void *)(uintptr_t)(address))

/* Words, or bytes. */
static void set(const uint64_t *arg) {
        uint32_t *words = AT(arg[0]);

        if (arg[4] == sizeof(*words))
                for (uint64_t i = 0; i < arg[1] / sizeof(*words); i++)
                        words[i] = (uint32_t)arg[2];
        else
                memset(words, (int)arg[2], arg[1]);
}

static void operation_do(const struct operation *operation, void **parameters) {
        const unsigned *shape = (const unsigned *)(const void *)(operation->arg + 1);

        switch (operation->call) {
        case GPU_SET: set(operation->arg); break;
        case GPU_COPY: memmove(AT(operation->arg[0]), AT(operation->arg[1]), operation->arg[2]); break;
        case GPU_COPY_HOST:
                if (operation->arg[2] == 0) {
                        if (pread(operation->fd, AT(operation->arg[0]), operation->arg[1], 0) < 0)
                                abort();
                } else if (pwrite(operation->fd, AT(operation->arg[0]), operation->arg[1], 0) < 0)
                        abort();
                break;
        case GPU_LAUNCH: operation->kernel->run(parameters, shape, shape + 3); break;
        default: break;
        }
}

static bool is_kind(void) {
        return getenv("FAKE_GPU_KIND") != NULL;
}

/* Hides the output of an operation until its end, so that no other work can rely on it before. Its end shows
 * the copy `after`, into which a collective puts its result. */
static void operation_hide(struct uses *uses, bool collective) {
        if (is_kind() && !collective)
                return;
        for (unsigned i = 0; i < uses->n; i++)
                if (uses->use[i].write && (uses->use[i].after = malloc(uses->use[i].bytes)) != NULL)
                        memcpy(uses->use[i].after, AT(uses->use[i].address), uses->use[i].bytes);
        for (unsigned i = 0; i < uses->n; i++)
                if (uses->use[i].after != NULL)
                        memset(AT(uses->use[i].address), NANS, uses->use[i].bytes);
}

static void operation_show(struct uses *uses) {
        for (unsigned i = 0; i < uses->n; i++)
                if (uses->use[i].after != NULL) {
                        memcpy(AT(uses->use[i].address), uses->use[i].after, uses->use[i].bytes);
                        free(uses->use[i].after);
                }
}

static bool is_mps(void) {
        return getenv("FAKE_GPU_MPS") != NULL;
}

/* `lock` is held. */
static void fault(void) {
        sticky = CUDA_ILLEGAL_ADDRESS;
        if (is_mps())
                machine_fault(machine, device);
}

/* Takes over faults that other clients of the MPS server have had on this GPU since this one began. `lock` is
 * held. */
static void take_faults(void) {
        if (is_mps() && machine_faults(machine, device) != faults_before && sticky == 0)
                sticky = CUDA_ILLEGAL_ADDRESS;
}

/*
 * The ranges are in use from the beginning, also while another context computes: work that was begun is
 * interrupted by a time slice, not put off.
 */
static bool operation_begin(struct operation *operation, void **parameters, struct uses *uses,
                            uint64_t pauses[2]) {
        uint64_t delay = machine_setting("FAKE_GPU_DELAY", 200);

        pthread_mutex_lock(&lock);
        pauses[0] = random_below(delay / 2 + 1);
        pauses[1] = random_below(delay / 2 + 1);
        take_faults();
        if (!client_gone && sticky == 0)
                operation_uses(operation, parameters, uses);
        if (uses->wrong) {
                machine_log("%s uses memory that is not mapped", uses->what);
                fault();
        }
        bool runs = !client_gone && sticky == 0;
        running += runs;
        pthread_mutex_unlock(&lock);
        return runs;
}

static void operation_compute(const struct operation *operation, void **parameters, struct uses *uses,
                              const uint64_t pauses[2]) {
        bool slice = !is_mps();

        pause_for(pauses[0]);
        if (slice)
                machine_enter(&machine->slice[device]);
        operation_do(operation, parameters);
        operation_hide(uses, false);
        pause_for(pauses[1]);
        while (machine_has("hold"))
                pause_for(1000);
        if (fake_client_is_gone())
                pause_for(machine_setting("FAKE_GPU_LATE", 100000));
        operation_show(uses);
        if (slice)
                pthread_mutex_unlock(&machine->slice[device]);
}

bool fake_client_is_gone(void) {
        pthread_mutex_lock(&lock);
        bool gone = client_gone;
        pthread_mutex_unlock(&lock);
        return gone;
}

/* A collective that waits for others ends with the context. */
static bool is_over(void) {
        pthread_mutex_lock(&lock);
        take_faults();
        bool over = client_gone || sticky != 0;
        pthread_mutex_unlock(&lock);
        return over;
}

/* It gives its turn up while it waits for other ranks; other operations never do. */
static void operation_collect(const struct operation *operation, struct uses *uses,
                              const uint64_t pauses[2]) {
        const struct gpu_collective *collective = (const void *)operation->payload;
        bool in_place = collective->from == collective->to;

        pause_for(pauses[0]);
        operation_hide(uses, true);
        collective_run(&(struct collective){
                .what = collective,
                .machine = machine,
                .device = device,
                .slice = is_mps() ? NULL : &machine->slice[device],
                .board = operation->fd,
                .from = in_place ? uses->use[0].after : AT(collective->from),
                .to = uses->use[0].after,
                .is_over = is_over,
        });
        pause_for(is_over() ? machine_setting("FAKE_GPU_LATE", 100000) : pauses[1]);
        operation_show(uses);
}

static void operation_run(struct operation *operation, unsigned number) {
        struct uses *uses = calloc(1, sizeof(*uses));
        void *parameters[16];
        unsigned char *next = operation->payload;
        uint64_t pauses[2];

        if (uses == NULL)
                abort();
        uses->queue = number;
        for (unsigned i = 0; operation->kernel != NULL && i < operation->kernel->n_parameters; i++) {
                parameters[i] = next;
                next += (operation->kernel->parameter_bytes[i] + 7) / 8 * 8;
        }
        bool runs = operation_begin(operation, parameters, uses, pauses);
        if (runs && operation->call == GPU_COLLECTIVE)
                operation_collect(operation, uses, pauses);
        else if (runs)
                operation_compute(operation, parameters, uses, pauses);
        for (unsigned i = 0; i < uses->n; i++)
                machine_unlease(machine, uses->use[i].lease);
        free(uses);
        if (operation->call == GPU_COLLECTIVE)
                collective_end((const void *)operation->payload, operation->fd);
        pthread_mutex_lock(&lock);
        running -= runs;
        pthread_mutex_unlock(&lock);
}

/* Does an operation that takes no turn of the card. Returns false for any other operation. `lock` is held. */
static bool operation_run_short(const struct operation *operation) {
        const uint64_t *arg = operation->arg;

        switch (operation->call) {
        case GPU_EVENT_RECORD: event_note_done(arg[0], arg[2]); return true;
        case GPU_WAIT_VALUE:
                while (!client_gone && sticky == 0 &&
                       __atomic_load_n((uint64_t *)AT(arg[0]), __ATOMIC_ACQUIRE) < arg[1]) {
                        pthread_mutex_unlock(&lock);
                        pause_for(20);
                        pthread_mutex_lock(&lock);
                        take_faults();
                }
                return true;
        case GPU_WRITE_VALUE:
                if (!client_gone && sticky == 0)
                        __atomic_store_n((uint64_t *)AT(arg[0]), arg[1], __ATOMIC_RELEASE);
                return true;
        default: return false;
        }
}

static void *queue_main(void *data) {
        struct queue *own = data;

        pthread_mutex_lock(&lock);
        for (;;) {
                struct operation *operation = own->first;
                if (operation == NULL) {
                        pthread_cond_wait(&own->work, &lock);
                        continue;
                }
                if (!operation_run_short(operation)) {
                        pthread_mutex_unlock(&lock);
                        operation_run(operation, (unsigned)(own - queue));
                        pthread_mutex_lock(&lock);
                }
                stream[operation->stream].done++;
                own->first = operation->next;
                if (own->first == NULL)
                        own->last = &own->first;
                if (operation->fd >= 0)
                        close(operation->fd);
                free(operation);
        }
        return NULL;
}

/* `lock` is held. */
static int enqueue(const struct gpu_request *request, const void *payload, unsigned number, int fd,
                   const struct fake_kernel *kernel) {
        struct operation *operation = malloc(sizeof(*operation) + request->bytes);
        struct queue *to;

        if (operation == NULL || number >= OBJECTS || !stream[number].there) {
                free(operation);
                if (fd >= 0)
                        close(fd);
                return CUDA_INVALID_HANDLE;
        }
        *operation =
                (struct operation){ .call = request->call, .stream = number, .fd = fd, .kernel = kernel };
        memcpy(operation->arg, request->arg, sizeof(operation->arg));
        memcpy(operation->payload, payload, request->bytes);
        to = &queue[stream[number].queue];
        stream[number].issued++;
        *to->last = operation;
        to->last = &operation->next;
        pthread_cond_signal(&to->work);
        return CUDA_OK;
}

/* ---- requests: `lock` is held ---- */

static unsigned handle_new(struct memory *memory) {
        for (unsigned i = 1; i < OBJECTS; i++)
                if (handle[i] == NULL) {
                        handle[i] = memory;
                        return i;
                }
        return 0;
}

static struct memory *handle_get(uint64_t number) {
        return number < OBJECTS ? handle[number] : NULL;
}

static int answer_create(uint64_t bytes, struct gpu_reply *reply) {
        struct memory *memory =
                bytes % GPU_GRANULARITY == 0 && bytes > 0 ? memory_new(machine, device, bytes) : NULL;

        if (bytes % GPU_GRANULARITY != 0 || bytes == 0)
                return CUDA_INVALID_VALUE;
        if (memory == NULL)
                return CUDA_OUT_OF_MEMORY;
        reply->value[0] = handle_new(memory);
        return CUDA_OK;
}

static int answer_map(const uint64_t *arg) {
        struct mapping *m = mapping_at(arg[0]);
        struct memory *memory = handle_get(arg[2]);

        if (m == NULL || memory == NULL || m->kind != RESERVED || m->memory != NULL || arg[0] != m->address ||
            arg[1] > m->bytes || arg[1] % GPU_GRANULARITY != 0)
                return CUDA_INVALID_VALUE;
        if (arg[1] > memory->bytes &&
            (getenv("FAKE_GPU_LARGE_MAPS") == NULL || ftruncate(memory->fd, (off_t)arg[1]) < 0))
                return CUDA_INVALID_VALUE;
        m->bytes = arg[1];
        if (!mapping_fill(m, memory)) {
                m->bytes = m->reserved;
                return CUDA_OUT_OF_MEMORY;
        }
        m->kind = MAPPED;
        memory->uses++;
        return CUDA_OK;
}

static int answer_unmap(const uint64_t *arg) {
        struct mapping *m = mapping_at(arg[0]);

        if (m == NULL || m->kind != MAPPED || arg[0] != m->address || arg[1] != m->bytes)
                return CUDA_INVALID_VALUE;
        mapping_empty(m);
        m->kind = RESERVED;
        m->bytes = m->reserved;
        m->access = false;
        return CUDA_OK;
}

static int answer_allocate(uint64_t bytes, enum gpu_allocated how, struct gpu_reply *reply) {
        uint64_t whole = (bytes + 511) / 512 * 512;
        struct memory *memory = bytes > 0 ? memory_new(machine, device, whole) : NULL;

        if (memory == NULL)
                return bytes > 0 ? CUDA_OUT_OF_MEMORY : CUDA_INVALID_VALUE;
        struct mapping *m = mapping_new(address_new(whole), whole, ALLOCATED);
        if (m == NULL || !mapping_fill(m, memory))
                return CUDA_OUT_OF_MEMORY;
        m->access = true;
        m->how = how;
        reply->value[0] = m->address;
        return CUDA_OK;
}

/* A part of a block, which is freed never, and shared as a whole. */
static int answer_allocate_small(struct gpu_reply *reply) {
        static uint64_t block, used;
        int r = CUDA_OK;

        if (block == 0) {
                r = answer_allocate(GPU_GRANULARITY, ALLOCATED_PLAIN, reply);
                block = reply->value[0];
        }
        reply->value[0] = block + used;
        used += SMALL;
        return used > GPU_GRANULARITY ? CUDA_OUT_OF_MEMORY : r;
}

static bool is_idle(void) {
        for (unsigned q = 0; q < n_queues; q++)
                if (queue[q].first != NULL)
                        return false;
        return running == 0;
}

/* cuMemFree() and cuMemFreeHost() wait for all work of the context. */
static void wait_until_idle(void) {
        while (!is_idle())
                wait_a_while();
}

static int answer_free(uint64_t address) {
        struct mapping *m = mapping_at(address);

        if (m == NULL || m->kind != ALLOCATED || m->address != address)
                return CUDA_INVALID_VALUE;
        wait_until_idle();
        if (machine_uses(machine, m->memory->id) > 1)
                machine_log("memory %llu is freed while another context has it open",
                            (unsigned long long)m->memory->id);
        if (!is_kind())
                memset(AT(m->address), FREED, m->bytes);
        mapping_empty(m);
        m->bytes = 0;
        return CUDA_OK;
}

static int answer_ipc_get(uint64_t address, struct gpu_reply *reply) {
        const struct mapping *m = mapping_at(address);
        struct gpu_ipc ipc = { "fakeipc", 0, getpid(), client_pid, 0, geteuid(), device };

        if (m == NULL || m->kind != ALLOCATED || m->how != ALLOCATED_PLAIN ||
            (m->address != address && !is_kind()))
                return CUDA_INVALID_VALUE;
        ipc.id = m->memory->id;
        ipc.fd = m->memory->fd;
        memcpy(reply->value, &ipc, sizeof(ipc));
        return CUDA_OK;
}

static int answer_ipc_open(const void *payload, struct gpu_reply *reply) {
        struct gpu_ipc ipc;
        char path[64];

        memcpy(&ipc, payload, sizeof(ipc));
        if (memcmp(ipc.magic, "fakeipc", 8) != 0 || ipc.uid != geteuid())
                return CUDA_INVALID_VALUE;
        if (ipc.client == client_pid)
                return CUDA_INVALID_CONTEXT;
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (mapping[i].bytes > 0 && mapping[i].kind == IPC && mapping[i].memory->id == ipc.id) {
                        mapping[i].opened++;
                        reply->value[0] = mapping[i].address;
                        return CUDA_OK;
                }
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.context, ipc.fd);
        struct memory *memory = memory_find(machine, path);
        if (memory == NULL)
                return CUDA_INVALID_VALUE;
        struct mapping *m =
                memory->id == ipc.id ? mapping_new(address_new(memory->bytes), memory->bytes, IPC) : NULL;
        if (m == NULL || !mapping_fill(m, memory)) {
                memory_drop(machine, memory);
                return CUDA_INVALID_VALUE;
        }
        m->opened = 1;
        m->access = true;
        reply->value[0] = m->address;
        return CUDA_OK;
}

static int answer_ipc_close(uint64_t address) {
        struct mapping *m = mapping_at(address);

        if (m == NULL || m->kind != IPC || m->address != address)
                return CUDA_INVALID_VALUE;
        if (--m->opened > 0)
                return CUDA_OK;
        mapping_empty(m);
        m->bytes = 0;
        return CUDA_OK;
}

static int answer_host(uint64_t bytes, int fd, struct gpu_reply *reply) {
        struct memory *memory = calloc(1, sizeof(*memory));
        struct mapping *m = mapping_new(address_new(bytes), bytes, HOST);

        if (memory == NULL || m == NULL)
                return CUDA_OUT_OF_MEMORY;
        *memory = (struct memory){ .bytes = bytes, .fd = fd, .uses = 1 };
        if (!mapping_fill(m, memory))
                return CUDA_OUT_OF_MEMORY;
        m->access = true;
        reply->value[0] = m->address;
        return CUDA_OK;
}

static int answer_host_free(uint64_t address) {
        struct mapping *m = mapping_at(address);

        if (m == NULL || m->kind != HOST || m->address != address)
                return CUDA_INVALID_VALUE;
        wait_until_idle();
        munmap(AT(m->address), m->bytes);
        close(m->memory->fd);
        free(m->memory);
        *m = (struct mapping){ 0 };
        return CUDA_OK;
}

static int answer_function(const char *name, struct gpu_reply *reply) {
        uint64_t number = kernels_find(name);
        const struct fake_kernel *kernel = kernels_get(number);

        if (kernel == NULL)
                return CUDA_NOT_FOUND;
        reply->value[0] = number;
        reply->value[1] = kernel->n_parameters;
        for (unsigned p = 0; p < kernel->n_parameters && p < 6; p++)
                reply->value[2 + p] = kernel->parameter_bytes[p];
        return CUDA_OK;
}

static int answer_export(uint64_t number, int *ret_fd) {
        const struct memory *memory = handle_get(number);
        char path[64];

        if (memory == NULL)
                return CUDA_INVALID_VALUE;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
        *ret_fd = open(path, O_PATH | O_CLOEXEC);
        return *ret_fd >= 0 ? CUDA_OK : CUDA_UNKNOWN;
}

static int answer_import(int fd, struct gpu_reply *reply) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        struct memory *memory = memory_find(machine, path);
        if (memory == NULL)
                return CUDA_INVALID_VALUE;
        reply->value[0] = handle_new(memory);
        return CUDA_OK;
}

/* A stream of one GPU is none of another's: their numbers differ. */
static int answer_stream_new(struct gpu_reply *reply) {
        unsigned share = OBJECTS / GPU_DEVICES;

        for (unsigned i = device * share + 1; i < (device + 1) * share; i++)
                if (!stream[i].there) {
                        stream[i] = (struct stream){ .there = true, .queue = i % n_queues };
                        reply->value[0] = i;
                        return CUDA_OK;
                }
        return CUDA_OUT_OF_MEMORY;
}

static bool stream_is(uint64_t number) {
        return number < OBJECTS && stream[number].there;
}

static int answer_stream(const struct gpu_request *request) {
        uint64_t number = request->arg[0];

        if (!stream_is(number))
                return CUDA_INVALID_HANDLE;
        if (request->call == GPU_STREAM_QUERY)
                return stream[number].done == stream[number].issued ? CUDA_OK : CUDA_NOT_READY;
        if (number == 0)
                return CUDA_INVALID_HANDLE;
        while (stream[number].done != stream[number].issued) /* the resources go when the work is done */
                wait_a_while();
        stream[number].there = false;
        return CUDA_OK;
}

static int answer_event_record(const struct gpu_request *request) {
        struct gpu_request numbered = *request;
        int r = event_query(request->arg[0]);

        if (r != CUDA_OK && r != CUDA_NOT_READY)
                return r;
        if (!stream_is(request->arg[1]))
                return CUDA_INVALID_HANDLE;
        numbered.arg[2] = event_issue(request->arg[0]);
        return enqueue(&numbered, "", (unsigned)request->arg[1], -1, NULL);
}

static int answer_release(uint64_t number) {
        struct memory *memory = handle_get(number);

        if (memory == NULL)
                return CUDA_INVALID_VALUE;
        handle[number] = NULL;
        memory_drop(machine, memory);
        return CUDA_OK;
}

static int answer_access(const uint64_t *arg) {
        struct mapping *m = mapping_at(arg[0]);

        if (m == NULL || m->memory == NULL || m->bytes != arg[1] || arg[2] != device)
                return CUDA_INVALID_VALUE;
        m->access = true;
        return CUDA_OK;
}

static int answer_reserve(uint64_t bytes, struct gpu_reply *reply) {
        struct mapping *m = bytes > 0 && bytes % GPU_GRANULARITY == 0
                                    ? mapping_new(address_new(bytes), bytes, RESERVED)
                                    : NULL;

        if (m == NULL)
                return CUDA_INVALID_VALUE;
        m->reserved = bytes;
        reply->value[0] = m->address;
        return CUDA_OK;
}

static int answer_unreserve(const uint64_t *arg) {
        struct mapping *m = mapping_at(arg[0]);

        if (m == NULL || m->kind != RESERVED || m->address != arg[0] || m->bytes != arg[1])
                return CUDA_INVALID_VALUE;
        *m = (struct mapping){ 0 };
        return CUDA_OK;
}

static int answer_retain(uint64_t address, struct gpu_reply *reply) {
        const struct mapping *m = mapping_at(address);

        if (m == NULL || m->kind != MAPPED)
                return CUDA_INVALID_VALUE;
        m->memory->uses++;
        reply->value[0] = handle_new(m->memory);
        return CUDA_OK;
}

static int answer_set_or_copy(const struct gpu_request *request, const void *payload, int fd) {
        const uint64_t *arg = request->arg;
        bool between = request->call == GPU_COPY;

        if (!mapping_has(arg[0], between ? arg[2] : arg[1]) || (between && !mapping_has(arg[1], arg[2]))) {
                if (fd >= 0)
                        close(fd);
                return CUDA_INVALID_VALUE;
        }
        return enqueue(request, payload, (unsigned)arg[3], fd, NULL);
}

/* All of it goes with the context; a client that ends in good order has given it back before. */
static int answer_close(void) {
        unsigned handles = 0, mappings = 0, streams = 0, events = events_left();

        wait_until_idle();
        client_ended = !client_gone;
        for (unsigned i = 1; i < OBJECTS; i++) {
                handles += handle[i] != NULL;
                streams += stream[i].there;
        }
        for (unsigned i = 0; i < MAPPINGS; i++)
                mappings += mapping[i].bytes > 0;
        if (handles + mappings + streams + events > 0)
                machine_log("the client has left %u handles, %u mappings, %u streams, %u events", handles,
                            mappings, streams, events);
        return CUDA_OK;
}

static int answer(const struct gpu_request *request, const void *payload, int *fd, int *ret_fd,
                  struct gpu_reply *reply) {
        const uint64_t *arg = request->arg;
        int take = *fd;

        take_faults();
        if (sticky != 0)
                return sticky;
        switch (request->call) {
        case GPU_MEMORY_INFO:
                reply->value[1] = machine_setting("FAKE_GPU_BYTES", UINT64_C(1) << 30);
                reply->value[0] = reply->value[1] - machine->used[device];
                return CUDA_OK;
        case GPU_CREATE: return answer_create(arg[0], reply);
        case GPU_RELEASE: return answer_release(arg[0]);
        case GPU_RESERVE: return answer_reserve(arg[0], reply);
        case GPU_UNRESERVE: return answer_unreserve(arg);
        case GPU_MAP: return answer_map(arg);
        case GPU_UNMAP: return answer_unmap(arg);
        case GPU_ACCESS: return answer_access(arg);
        case GPU_EXPORT: return answer_export(arg[0], ret_fd);
        case GPU_IMPORT: return take < 0 ? CUDA_INVALID_VALUE : answer_import(take, reply);
        case GPU_PROPERTIES:
                if (handle_get(arg[0]) == NULL)
                        return CUDA_INVALID_VALUE;
                reply->value[0] = handle_get(arg[0])->device;
                return CUDA_OK;
        case GPU_RETAIN: return answer_retain(arg[0], reply);
        case GPU_ALLOCATE:
                return is_kind() && arg[0] <= SMALL
                               ? answer_allocate_small(reply)
                               : answer_allocate(arg[0], (enum gpu_allocated)arg[1], reply);
        case GPU_FREE: return answer_free(arg[0]);
        case GPU_ATTRIBUTE: return mapping_attribute(arg[0], arg[1], reply->value);
        case GPU_HOST: *fd = -1; return answer_host(arg[0], take, reply);
        case GPU_HOST_FREE: return answer_host_free(arg[0]);
        case GPU_SET:
        case GPU_COPY: return answer_set_or_copy(request, payload, -1);
        case GPU_COPY_HOST: *fd = -1; return answer_set_or_copy(request, payload, take);
        case GPU_IPC_GET: return answer_ipc_get(arg[0], reply);
        case GPU_IPC_OPEN: return answer_ipc_open(payload, reply);
        case GPU_IPC_CLOSE: return answer_ipc_close(arg[0]);
        case GPU_STREAM_NEW: return answer_stream_new(reply);
        case GPU_STREAM_FREE:
        case GPU_STREAM_QUERY: return answer_stream(request);
        case GPU_EVENT_NEW: return event_new(reply->value);
        case GPU_EVENT_FREE: return event_free(arg[0]);
        case GPU_EVENT_QUERY: return event_query(arg[0]);
        case GPU_EVENT_RECORD: return answer_event_record(request);
        case GPU_WAIT_VALUE:
        case GPU_WRITE_VALUE:
                return mapping_has(arg[0], 8) ? enqueue(request, payload, (unsigned)arg[3], -1, NULL)
                                              : CUDA_INVALID_VALUE;
        case GPU_FUNCTION: return answer_function(payload, reply);
        case GPU_LAUNCH:
                if (kernels_get(arg[0]) == NULL)
                        return CUDA_INVALID_HANDLE;
                return enqueue(request, payload, (unsigned)arg[4], -1, kernels_get(arg[0]));
        case GPU_COLLECTIVE: *fd = -1; return enqueue(request, payload, (unsigned)arg[3], take, NULL);
        case GPU_CLOSE: return answer_close();
        default: return CUDA_NOT_SUPPORTED;
        }
}

/* ---- the socket ---- */

/* `payload` has room for GPU_PAYLOAD bytes. False: the client has gone. */
static bool receive(struct gpu_request *request, void *payload, int *ret_fd) {
        struct iovec parts[] = { { request, sizeof(*request) }, { payload, GPU_PAYLOAD } };
        ssize_t n = packet_receive(client, parts, 2, ret_fd);

        return n >= (ssize_t)sizeof(*request) && (size_t)n == sizeof(*request) + request->bytes;
}

/* The client has gone: operations that have not begun are dropped, running ones end late. */
static void finish(void) {
        pthread_mutex_lock(&lock);
        client_gone = true;
        while (!is_idle()) {
                pthread_mutex_unlock(&lock);
                usleep(1000);
                pthread_mutex_lock(&lock);
        }
        for (unsigned i = 0; i < OBJECTS; i++)
                if (handle[i] != NULL)
                        memory_drop(machine, handle[i]);
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (mapping[i].bytes > 0 && mapping[i].memory != NULL && mapping[i].kind != HOST)
                        memory_drop(machine, mapping[i].memory);
        if (!client_ended)
                boards_sweep(client_pid);
        machine_enter(&machine->lock);
        machine->contexts--;
        pthread_mutex_unlock(&machine->lock);
        pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv) {
        static struct gpu_request request;
        static _Alignas(16) unsigned char payload[GPU_PAYLOAD + 1];
        int fd;

        machine = machine_open();
        if (machine == NULL)
                return EXIT_FAILURE;
        if (argc == 2 && strcmp(argv[1], "check") == 0)
                return machine_check(machine) | (boards_left_over() > 0);
        if (argc != 4)
                return EXIT_FAILURE;
        client = atoi(argv[1]);
        client_pid = atoi(argv[2]);
        device = (unsigned)atoi(argv[3]);
        close_range((unsigned)client + 1, ~0u, 0); /* what the client has open ends with it */
        if (fork() != 0)                           /* the client must not meet it as a child */
                _exit(0);
        setsid();
        signal(SIGPIPE, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        mappings_begin(device);
        seed = 0x9e3779b97f4a7c15 + (uint64_t)client_pid;
        machine_enter(&machine->lock);
        machine->contexts++;
        faults_before = machine->faults[device];
        pthread_mutex_unlock(&machine->lock);
        kernels_load();
        stream[0].there = true;
        n_queues = (unsigned)machine_setting("CUDA_DEVICE_MAX_CONNECTIONS", 8);
        n_queues = n_queues < 1 ? 1 : n_queues > GPU_QUEUES ? GPU_QUEUES : n_queues;
        for (unsigned q = 0; q < n_queues; q++) {
                queue[q].last = &queue[q].first;
                pthread_cond_init(&queue[q].work, NULL);
                pthread_create(&queue[q].thread, NULL, queue_main, &queue[q]);
        }
        while (receive(&request, payload, &fd)) {
                struct gpu_reply reply = { 0 };
                struct iovec part = { &reply, sizeof(reply) };
                int pass = -1;
                payload[request.bytes] = '\0';
                pthread_mutex_lock(&lock);
                reply.result = answer(&request, payload, &fd, &pass, &reply);
                pthread_mutex_unlock(&lock);
                packet_send(client, &part, 1, pass);
                if (fd >= 0)
                        close(fd);
                if (pass >= 0)
                        close(pass);
        }
        finish();
        return EXIT_SUCCESS;
}
