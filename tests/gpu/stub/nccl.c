/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnccl, of up to two ranks on one machine, beside the stand-in for libcuda: its allreduce
 * is an operation of that one's streams. It keeps the rules that the probe has to know: a communicator that
 * does not block is polled, two ranks must not believe themselves to be on one host, an abort ends what
 * waits, and so does revoking, after which there is nothing but the end.
 */
#include "../nccl.h"
#include "stub.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
        RANKS = 2,
        MOST = 1 << 20, /* words of an allreduce */
        INVALID_ARGUMENT = 4,
        INVALID_USAGE = 5,
        REMOTE_ERROR = 6,
        POLLS = 3, /* that find a communicator in progress, at least */
};

struct meeting { /* shared by the ranks, in a memfd of rank 0's process */
        volatile uint64_t joined;
        volatile uint64_t arrived[RANKS]; /* at which operation each rank is */
        volatile uint64_t left[RANKS];    /* and which it has finished */
        volatile int pid[RANKS];
        char host[RANKS][64];
        uint32_t words[RANKS][MOST];
};

struct nccl_comm {
        struct meeting *meeting;
        int ranks, rank;
        unsigned polls;
        uint64_t operations;
        volatile int aborted;
        CUstream stream; /* of the last operation */
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct nccl_id *id);
int ncclCommInitRankConfig(struct nccl_comm **comm, int ranks, struct nccl_id id, int rank,
                           struct nccl_config *config);
int ncclCommGetAsyncError(struct nccl_comm *comm, int *result);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, struct nccl_comm *comm,
                  CUstream stream);
int ncclCommAbort(struct nccl_comm *comm);
int ncclCommRevoke(struct nccl_comm *comm, int flags);
int ncclMemAlloc(void **at, size_t bytes);
int ncclCommWindowRegister(struct nccl_comm *comm, void *at, size_t bytes, void **window, int flags);
int ncclCommWindowDeregister(struct nccl_comm *comm, void *window);
const char *ncclGetErrorString(int result);

STUB_API int ncclGetVersion(int *version) {
        *version = 22809;
        return NCCL_SUCCESS;
}

STUB_API const char *ncclGetErrorString(int result) {
        return result == INVALID_USAGE  ? "invalid usage"
               : result == REMOTE_ERROR ? "remote process exited"
                                        : "an error of the stub";
}

static struct meeting *open_meeting(int fd) {
        void *memory = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        return memory == MAP_FAILED ? NULL : memory;
}

STUB_API int ncclGetUniqueId(struct nccl_id *id) {
        int where[2] = { getpid(), memfd_create("stub-nccl", MFD_CLOEXEC) };

        if (where[1] < 0 || ftruncate(where[1], sizeof(struct meeting)) < 0)
                return INVALID_ARGUMENT;
        memset(id, 0, sizeof *id);
        memcpy(id, where, sizeof where);
        return NCCL_SUCCESS;
}

STUB_API int ncclCommInitRankConfig(struct nccl_comm **comm, int ranks, struct nccl_id id, int rank,
                                    struct nccl_config *config) {
        const char *host = getenv("NCCL_HOSTID");
        struct nccl_comm *c = calloc(1, sizeof *c);
        int where[2];

        memcpy(where, &id, sizeof where);
        if (getenv("NCCL_SOCKET_IFNAME") == NULL || strcmp(getenv("NCCL_SOCKET_IFNAME"), "=lo") != 0)
                return INVALID_USAGE; /* these ranks can only meet on loopback */
        if (c == NULL || ranks < 1 || ranks > RANKS || config->size < sizeof *config ||
            config->magic != 0xcafebeef || config->blocking != 0)
                return INVALID_ARGUMENT;
        c->meeting = open_meeting(stub_open_foreign(where[0], where[1]));
        if (c->meeting == NULL)
                return INVALID_ARGUMENT;
        c->ranks = ranks;
        c->rank = rank;
        snprintf(c->meeting->host[rank], sizeof c->meeting->host[rank], "%s", host != NULL ? host : "");
        c->meeting->pid[rank] = getpid();
        __atomic_fetch_add(&c->meeting->joined, 1, __ATOMIC_SEQ_CST);
        *comm = c;
        return NCCL_IN_PROGRESS;
}

static bool is_gone(int pid) {
        struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, pid, 0u), .events = POLLIN };
        bool gone = end.fd < 0 || poll(&end, 1, 0) > 0;

        if (end.fd >= 0)
                close(end.fd);
        return gone;
}

STUB_API int ncclCommGetAsyncError(struct nccl_comm *comm, int *result) {
        struct meeting *m = comm->meeting;

        if (++comm->polls < POLLS || m->joined < (uint64_t)comm->ranks)
                *result = NCCL_IN_PROGRESS;
        else if (comm->ranks > 1 && strcmp(m->host[0], m->host[1]) == 0)
                *result = INVALID_USAGE;
        else
                *result = comm->ranks > 1 && is_gone(m->pid[1 - comm->rank]) ? REMOTE_ERROR : NCCL_SUCCESS;
        return NCCL_SUCCESS;
}

static void run_allreduce(struct stub_operation *o) {
        struct nccl_comm *comm = o->pointer[0];
        struct meeting *m = comm->meeting;
        uint32_t *words = o->pointer[1];
        uint64_t operation = o->number[1];

        for (int r = 0; r < comm->ranks; r++) /* the last one's words have been read */
                stub_wait_word(&m->left[r], operation - 1, &comm->aborted);
        memcpy(m->words[comm->rank], words, o->number[0] * sizeof *words);
        m->arrived[comm->rank] = operation;
        for (int r = 0; r < comm->ranks; r++)
                stub_wait_word(&m->arrived[r], operation, &comm->aborted);
        for (uint64_t i = 0; i < o->number[0] && !comm->aborted; i++) {
                words[i] = m->words[0][i];
                for (int r = 1; r < comm->ranks; r++)
                        words[i] += m->words[r][i];
        }
        m->left[comm->rank] = operation;
}

STUB_API int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, struct nccl_comm *comm,
                           CUstream stream) {
        struct stub_operation *o;

        if (comm->polls < POLLS || comm->aborted || n > MOST || from != to || type != NCCL_INT32 ||
            op != NCCL_SUM)
                return INVALID_ARGUMENT;
        o = stub_operation(run_allreduce);
        o->pointer[0] = comm;
        o->pointer[1] = to;
        o->number[0] = n;
        o->number[1] = ++comm->operations;
        comm->stream = stream;
        stub_enqueue(stream, o);
        return NCCL_IN_PROGRESS;
}

STUB_API int ncclCommAbort(struct nccl_comm *comm) {
        comm->aborted = 1;
        if (comm->stream != NULL)
                cuStreamSynchronize(comm->stream);
        return NCCL_SUCCESS;
}

STUB_API int ncclCommRevoke(struct nccl_comm *comm, int flags) {
        if (flags != 0 || comm->polls < POLLS || comm->aborted)
                return INVALID_ARGUMENT;
        ncclCommAbort(comm);
        comm->polls = 0;
        return NCCL_IN_PROGRESS;
}

STUB_API int ncclMemAlloc(void **at, size_t bytes) {
        CUdeviceptr memory;

        if (cuMemAlloc(&memory, bytes) != CUDA_SUCCESS)
                return INVALID_ARGUMENT;
        *at = (void *)memory;
        return NCCL_SUCCESS;
}

/* It is there when the communicator is ready again. */
STUB_API int ncclCommWindowRegister(struct nccl_comm *comm, void *at, size_t bytes, void **window,
                                    int flags) {
        if (comm->polls < POLLS || at == NULL || bytes == 0)
                return INVALID_ARGUMENT;
        *window = comm;
        comm->polls = 0;
        return NCCL_SUCCESS;
}

STUB_API int ncclCommWindowDeregister(struct nccl_comm *comm, void *window) {
        return comm->polls >= POLLS && window == comm ? NCCL_SUCCESS : INVALID_ARGUMENT;
}
