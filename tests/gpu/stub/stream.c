/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub's streams, events and kernels. A stream is a thread with a list of operations; what it has been
 * given and what it has done are two counters.
 */
#include "stub.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTLIVE_NS = 200 * 1000 * 1000 };

struct CUstream_st {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct stub_operation *first, **last;
        uint64_t given, done;
};

struct event_state { /* in a memfd, so that another process can have it */
        volatile uint64_t recorded, done;
        volatile int64_t done_ns;
};

struct CUevent_st {
        int fd;
        unsigned flags;
        struct event_state *state;
};

struct ipc { /* inside a CUipcEventHandle */
        int pid, fd;
};

static volatile CUresult broken; /* the sticky error */

void stub_break(CUresult error) {
        broken = error;
}

static int64_t now_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void rest(unsigned round) {
        const struct timespec moment = { .tv_nsec = 20000 };

        if (round < 64)
                sched_yield();
        else
                nanosleep(&moment, NULL);
}

void stub_wait_word(const volatile uint64_t *word, uint64_t least, const volatile int *stop) {
        for (unsigned round = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) < least && (stop == NULL || !*stop);
             round++)
                rest(round);
}

struct stub_operation *stub_operation(void (*run)(struct stub_operation *)) {
        struct stub_operation *operation = calloc(1, sizeof *operation);

        if (operation == NULL)
                abort();
        operation->run = run;
        return operation;
}

static void *stream_thread(void *argument) {
        struct CUstream_st *stream = argument;

        pthread_mutex_lock(&stream->lock);
        for (;;) {
                struct stub_operation *operation = stream->first;

                if (operation == NULL) {
                        pthread_cond_wait(&stream->changed, &stream->lock);
                        continue;
                }
                stream->first = operation->next;
                if (stream->first == NULL)
                        stream->last = &stream->first;
                pthread_mutex_unlock(&stream->lock);
                if (!broken)
                        operation->run(operation);
                free(operation);
                pthread_mutex_lock(&stream->lock);
                stream->done++;
                pthread_cond_broadcast(&stream->changed);
        }
        return NULL;
}

void stub_enqueue(CUstream stream, struct stub_operation *operation) {
        pthread_mutex_lock(&stream->lock);
        *stream->last = operation;
        stream->last = &operation->next;
        stream->given++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
}

STUB_API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
        struct CUstream_st *s = calloc(1, sizeof *s);
        pthread_t thread;

        if (!stub_has_context())
                return CUDA_ERROR_INVALID_CONTEXT;
        if (s == NULL)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
        s->last = &s->first;
        if (pthread_create(&thread, NULL, stream_thread, s) != 0) {
                free(s);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pthread_detach(thread);
        *stream = s;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamSynchronize(CUstream stream) {
        uint64_t given;

        pthread_mutex_lock(&stream->lock);
        given = stream->given;
        while (stream->done < given)
                pthread_cond_wait(&stream->changed, &stream->lock);
        pthread_mutex_unlock(&stream->lock);
        return broken;
}

STUB_API CUresult cuStreamQuery(CUstream stream) {
        bool busy;

        pthread_mutex_lock(&stream->lock);
        busy = stream->done < stream->given;
        pthread_mutex_unlock(&stream->lock);
        return broken ? broken : busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static void run_fill(struct stub_operation *o) {
        uint32_t *words = o->pointer[0];

        for (uint64_t i = 0; i < o->number[0]; i++)
                words[i] = (uint32_t)o->number[1];
}

STUB_API CUresult cuMemsetD32Async(CUdeviceptr address, unsigned word, size_t n, CUstream stream) {
        struct stub_operation *o = stub_operation(run_fill);

        o->pointer[0] = (void *)(uintptr_t)address;
        o->number[0] = n;
        o->number[1] = word;
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

static void run_copy(struct stub_operation *o) {
        memcpy(o->pointer[0], o->pointer[1], o->number[0]);
}

static CUresult copy(void *to, const void *from, size_t size, CUstream stream) {
        struct stub_operation *o = stub_operation(run_copy);

        o->pointer[0] = to;
        o->pointer[1] = (void *)from;
        o->number[0] = size;
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

/* Whether something lies behind an address, as the GPU would find out. */
static bool is_mapped(CUdeviceptr address) {
        unsigned char resident;

        return mincore((void *)(uintptr_t)(address & ~(CUdeviceptr)4095), 1, &resident) == 0;
}

STUB_API CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
        return stub_knows(from) ? copy(to, (void *)(uintptr_t)from, size, stream) : CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
        return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size, stream);
}

static void run_wait(struct stub_operation *o) {
        stub_wait_word(o->pointer[0], o->number[0], NULL);
}

static void run_write(struct stub_operation *o) {
        __atomic_store_n((uint64_t *)o->pointer[0], o->number[0], __ATOMIC_SEQ_CST);
}

static CUresult on_word(CUstream stream, CUdeviceptr address, cuuint64_t value,
                        void (*run)(struct stub_operation *)) {
        struct stub_operation *o = stub_operation(run);

        o->pointer[0] = (void *)(uintptr_t)address;
        o->number[0] = value;
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
        return flags == CU_STREAM_WAIT_VALUE_GEQ ? on_word(stream, address, value, run_wait)
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

STUB_API CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                       unsigned flags) {
        return on_word(stream, address, value, run_write);
}

static CUresult open_event(CUevent *event, int fd) {
        struct CUevent_st *e = calloc(1, sizeof *e);
        void *memory = mmap(NULL, sizeof *e->state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (e == NULL || memory == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        e->fd = fd;
        e->state = memory;
        *event = e;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
        int fd = memfd_create("stub-event", MFD_CLOEXEC);

        CUresult result;

        if (fd < 0 || ftruncate(fd, sizeof(struct event_state)) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        result = open_event(event, fd);
        if (result == CUDA_SUCCESS)
                (*event)->flags = flags;
        return result;
}

static void run_record(struct stub_operation *o) {
        struct event_state *state = o->pointer[0];

        state->done_ns = now_ns();
        __atomic_store_n(&state->done, o->number[0], __ATOMIC_SEQ_CST);
}

STUB_API CUresult cuEventRecord(CUevent event, CUstream stream) {
        struct stub_operation *o = stub_operation(run_record);

        o->pointer[0] = event->state;
        o->number[0] = ++event->state->recorded;
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuEventQuery(CUevent event) {
        return event->state->done >= event->state->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STUB_API CUresult cuEventSynchronize(CUevent event) {
        stub_wait_word(&event->state->done, event->state->recorded, NULL);
        return broken;
}

STUB_API CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end) {
        *ms = (float)(end->state->done_ns - begin->state->done_ns) / 1e6f;
        return CUDA_SUCCESS;
}

static void run_wait_event(struct stub_operation *o) {
        stub_wait_word(&((struct event_state *)o->pointer[0])->done, o->number[0], NULL);
}

STUB_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
        struct stub_operation *o = stub_operation(run_wait_event);

        o->pointer[0] = event->state;
        o->number[0] = event->state->recorded;
        stub_enqueue(stream, o);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
        struct ipc ipc = { .pid = getpid(), .fd = event->fd };

        if (event->flags != (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING))
                return CUDA_ERROR_INVALID_VALUE;
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &ipc, sizeof ipc);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
        struct ipc ipc;
        int fd;

        memcpy(&ipc, &handle, sizeof ipc);
        fd = stub_open_foreign(ipc.pid, ipc.fd);
        return fd < 0 ? CUDA_ERROR_INVALID_HANDLE : open_event(event, fd);
}

/* The kernels, as the probe's PTX has them; arguments in the order of their parameters. */

static void run_idle(struct stub_operation *o) {}

static void run_bump(struct stub_operation *o) {
        uint32_t *words = (uint32_t *)(uintptr_t)o->number[0];

        if (!is_mapped(o->number[0])) {
                stub_break(CUDA_ERROR_ILLEGAL_ADDRESS);
                return;
        }
        for (uint32_t i = 0; i < (uint32_t)o->number[1]; i++)
                words[i]++;
}

static void count(struct stub_operation *o, pid_t process) {
        volatile uint64_t *device = (uint64_t *)(uintptr_t)o->number[0];
        volatile uint64_t *host = (uint64_t *)(uintptr_t)o->number[1];
        int64_t end = now_ns() + (int64_t)o->number[2];
        uint64_t n = *device;
        bool outlived = false;

        do {
                *device = ++n;
                *host = n;
                rest(64);
                if (process != 0 && !outlived && getppid() != process) {
                        outlived = true;
                        end = now_ns() + OUTLIVE_NS;
                }
        } while (now_ns() < end);
}

/* As a kernel of a GPU that does not end with its process: another one counts, and holds nothing else of it.
 * */
static void run_count(struct stub_operation *o) {
        const char *list = getenv("STUB_CUDA");
        pid_t process = getpid(), child;

        if (list == NULL || strstr(list, "outlive") == NULL) {
                count(o, 0);
                return;
        }
        child = fork();
        if (child == 0) {
                close_range(3, ~0u, 0);
                count(o, process);
                _exit(0);
        }
        waitpid(child, NULL, 0);
}

static void run_gaps(struct stub_operation *o) {
        uint64_t *gaps = (uint64_t *)(uintptr_t)o->number[0], n = 0;
        int64_t begin = now_ns(), last = begin, now;

        do {
                now = now_ns();
                if ((uint64_t)(now - last) >= o->number[3] && n < o->number[1]) {
                        gaps[4 + 2 * n] = (uint64_t)last;
                        gaps[5 + 2 * n++] = (uint64_t)now;
                }
                last = now;
        } while ((uint64_t)(now - begin) < o->number[2]);
        gaps[0] = n;
        gaps[1] = (uint64_t)begin;
        gaps[2] = (uint64_t)last;
}

void (*stub_kernel(const char *name))(struct stub_operation *) {
        static const struct {
                const char *name;
                void (*run)(struct stub_operation *);
        } kernels[] = {
                { "idle", run_idle }, { "bump", run_bump }, { "count", run_count }, { "gaps", run_gaps }
        };

        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
                if (strcmp(kernels[i].name, name) == 0)
                        return kernels[i].run;
        return NULL;
}
