/* SPDX-License-Identifier: Apache-2.0 */
/* A process for each rank. See ranks.h. */
#include "ranks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY RANKS

const char *nccl_library;

static struct {
        pthread_barrier_t barrier;
        struct nccl_id id[IDS];
        _Atomic bool has_ids;
        _Atomic unsigned place[PLACES];
        _Atomic unsigned victim;
} * shared;

static unsigned n_ranks, own_number;
static void (*own_role)(struct rank *rank);

static void poll_again(void) {
        usleep(500);
}

/* ---- in a rank's process ---- */

static void ranks_role(struct peer *other) {
        struct rank rank = { .number = own_number, .ranks = n_ranks };
        char error[512], host[16];

        snprintf(host, sizeof(host), "host%u", own_number);
        setenv("NCCL_HOSTID", host, 0);
        gpu_open(&rank.gpu);
        if (nccl_load(&rank.nccl, nccl_library, error, sizeof(error)) < 0)
                peer_fail(__FILE__, __LINE__, error);
        if (own_number == 0) {
                for (unsigned i = 0; i < IDS; i++)
                        OK(rank.nccl.unique_id(&shared->id[i]));
                shared->has_ids = true;
        }
        while (!shared->has_ids)
                poll_again();
        for (unsigned i = 0; i < IDS; i++)
                rank.id[i] = shared->id[i];
        own_role(&rank);
        gpu_close(&rank.gpu);
}

void ranks_kill(unsigned number) {
        shared->victim = number;
        while (shared->victim != NOBODY)
                poll_again();
}

void ranks_meet(void) {
        pthread_barrier_wait(&shared->barrier);
}

void ranks_hold(bool on) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/nccl-hold", getenv("FAKE_GPU"));
        if (!on) {
                CHECK(unlink(path) == 0);
                return;
        }
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        CHECK(fd >= 0);
        close(fd);
}

void ranks_set(unsigned place, unsigned value) {
        shared->place[place] = value;
}

bool ranks_is(unsigned place, unsigned value) {
        return shared->place[place] == value;
}

void ranks_await(unsigned place, unsigned value) {
        while (!ranks_is(place, value))
                poll_again();
}

nccl_result rank_settle(const struct rank *rank, nccl_comm comm, nccl_result result) {
        if (result != NCCL_OK && result != NCCL_IN_PROGRESS)
                return result;
        for (;;) {
                OK(rank->nccl.async_error(comm, &result));
                if (result != NCCL_IN_PROGRESS)
                        return result;
                poll_again();
        }
}

void rank_join(struct rank *rank, struct nccl_config *config) {
        nccl_result result =
                rank->nccl.init(&rank->comm, (int)rank->ranks, rank->id[0], (int)rank->number, config);

        OK(rank_settle(rank, rank->comm, result));
}

void rank_end(const struct rank *rank, nccl_comm comm) {
        OK(rank_settle(rank, comm, rank->nccl.finalize(comm)));
        OK(rank->nccl.destroy(comm));
}

void rank_leave(struct rank *rank) {
        rank_end(rank, rank->comm);
}

int rank_of(const struct rank *rank, nccl_comm comm) {
        nccl_result (*get)(nccl_comm comm, int *number);
        int number = -1;

        *(void **)&get = dlsym(rank->nccl.library, "ncclCommUserRank");
        CHECK(get != NULL);
        OK(get(comm, &number));
        return number;
}

struct nccl_config ranks_free_config(void) {
        struct nccl_config config = NCCL_CONFIG;

        config.blocking = 0;
        return config;
}

void rank_fill(const struct rank *rank, cuda_address at, size_t n, float value) {
        float *data = malloc(n * sizeof(*data));

        CHECK(data != NULL);
        for (size_t i = 0; i < n; i++)
                data[i] = value;
        OK(rank->gpu.cuda.copy_in(at, data, n * sizeof(*data), NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        free(data);
}

void rank_expect(const struct rank *rank, cuda_address at, size_t n, float value) {
        float *data = malloc(n * sizeof(*data));

        CHECK(data != NULL);
        OK(rank->gpu.cuda.copy_out(data, at, n * sizeof(*data), NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        for (size_t i = 0; i < n; i++)
                CHECK(data[i] == value);
        free(data);
}

void rank_expect_garbage(const struct rank *rank, cuda_address at, size_t bytes) {
        gpu_expect(&rank->gpu, at, bytes, 0xab);
}

nccl_result rank_sum(const struct rank *rank, nccl_comm comm, cuda_address at, size_t n, cuda_stream stream) {
        return rank_settle(rank, comm,
                           rank->nccl.allreduce(pointer(at), pointer(at), n, NCCL_FLOAT32, NCCL_SUM, comm,
                                                stream));
}

void rank_pass_time(const struct rank *rank, nccl_comm comm) {
        cuda_stream stream;
        struct area area;

        area_new(&rank->gpu, 1, &area);
        OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 20; i++)
                OK(rank_sum(rank, comm, area.address, 1, stream));
        OK(rank->gpu.cuda.stream_wait(stream));
        OK(rank->gpu.cuda.stream_free(stream));
        area_free(&rank->gpu, &area);
}

void rank_check(const struct rank *rank, nccl_comm comm, unsigned ranks) {
        struct area area;

        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, SMALL, 1);
        OK(rank_sum(rank, comm, area.address, SMALL, NULL));
        rank_expect(rank, area.address, SMALL, (float)ranks);
        area_free(&rank->gpu, &area);
}

/* ---- in the process that starts them ---- */

static void ranks_watch(struct peer *peer) {
        unsigned left = n_ranks;

        while (left > 0) {
                unsigned victim = shared->victim;
                if (victim != NOBODY) {
                        peer_kill(&peer[victim]);
                        peer[victim].pid = 0;
                        left--;
                        shared->victim = NOBODY;
                }
                for (unsigned r = 0; r < n_ranks; r++) {
                        siginfo_t info = { 0 };
                        if (peer[r].pid == 0 ||
                            waitid(P_PID, (id_t)peer[r].pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
                            info.si_pid == 0)
                                continue;
                        peer_end(&peer[r]);
                        peer[r].pid = 0;
                        left--;
                }
                poll_again();
        }
}

void *ranks_share(size_t bytes) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        CHECK(memory != MAP_FAILED);
        return memory;
}

void ranks_run(unsigned ranks, void (*role)(struct rank *rank)) {
        struct peer peer[RANKS];
        pthread_barrierattr_t attributes;

        shared = ranks_share(sizeof(*shared));
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, ranks);
        shared->victim = NOBODY;
        n_ranks = ranks;
        own_role = role;
        for (own_number = 0; own_number < ranks; own_number++)
                peer[own_number] = peer_start(ranks_role);
        ranks_watch(peer);
        munmap(shared, sizeof(*shared));
}
