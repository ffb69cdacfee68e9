/* SPDX-License-Identifier: Apache-2.0 */
/* A process for each rank. See ranks.h. */
#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/gpu/gpu.h"

#define NOBODY RANKS

static struct {
        pthread_barrier_t barrier;
        struct nccl_id id[IDS];
        _Atomic bool has_ids;
        _Atomic unsigned place[PLACES];
        _Atomic unsigned victim;
} * shared;

static const struct ranks_case *all, *own;
static unsigned own_number;

static void poll_again(void) {
        usleep(500);
}

/* ---- in a rank's process ---- */

static void ranks_role(struct peer *other) {
        struct rank rank = { .number = own_number, .ranks = own->ranks, .config = NCCL_CONFIG };
        char error[512], host[16];

        snprintf(host, sizeof(host), "host%u", own_number);
        setenv("NCCL_HOSTID", host, 0);
        rank.config.blocking = 0;
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
        if (own->begin != APART) {
                rank.comm = rank_join(&rank, 0);
                area_new(&rank.gpu, 1, &rank.area);
        }
        own->role(&rank);
        if (own->begin != APART && own->end == ABORTED)
                OK(rank.nccl.abort(rank.comm));
        if (own->begin != APART && own->end == LEFT)
                rank_end(&rank, rank.comm);
        if (rank.area.bytes > 0)
                area_free(&rank.gpu, &rank.area);
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
        CHECK(machine_hold("nccl-hold", on));
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

nccl_comm rank_join(struct rank *rank, unsigned id) {
        nccl_comm comm;
        nccl_result result =
                rank->nccl.init(&comm, (int)rank->ranks, rank->id[id], (int)rank->number, &rank->config);

        OK(rank_settle(rank, comm, result));
        return comm;
}

void rank_end(const struct rank *rank, nccl_comm comm) {
        OK(rank_settle(rank, comm, rank->nccl.finalize(comm)));
        OK(rank->nccl.destroy(comm));
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

nccl_result rank_reduce(const struct rank *rank, cuda_address at, size_t n, int type, int operation) {
        return rank_settle(rank, rank->comm,
                           rank->nccl.allreduce(pointer(at), pointer(at), n, type, operation, rank->comm,
                                                NULL));
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

void rank_check(const struct rank *rank, nccl_comm comm) {
        struct area area;

        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, SMALL, 1);
        OK(rank_sum(rank, comm, area.address, SMALL, NULL));
        rank_expect(rank, area.address, SMALL, (float)rank->ranks);
        area_free(&rank->gpu, &area);
}

/* ---- in the process that starts them ---- */

static void ranks_watch(struct peer *peer) {
        unsigned left = own->ranks;

        while (left > 0) {
                unsigned victim = shared->victim;
                if (victim != NOBODY) {
                        peer_kill(&peer[victim]);
                        left--;
                        shared->victim = NOBODY;
                }
                for (unsigned r = 0; r < own->ranks; r++) {
                        siginfo_t info = { 0 };
                        if (peer[r].pid == 0 ||
                            waitid(P_PID, (id_t)peer[r].pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
                            info.si_pid == 0)
                                continue;
                        peer_end(&peer[r]);
                        left--;
                }
                poll_again();
        }
}

static void ranks_run(size_t i) {
        struct peer peer[RANKS];
        pthread_barrierattr_t attributes;

        own = &all[i];
        if (own->variable != NULL)
                putenv((char *)own->variable);
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, own->ranks);
        shared->victim = NOBODY;
        for (own_number = 0; own_number < own->ranks; own_number++)
                peer[own_number] = peer_start(ranks_role);
        ranks_watch(peer);
}

static const char *ranks_name(size_t i) {
        return all[i].name;
}

int ranks_main(char **argv, const struct ranks_case *cases, size_t n) {
        all = cases;
        return cases_main(argv, n, ranks_name, ranks_run);
}
