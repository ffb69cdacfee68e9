/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the project relies on in NCCL, one function per fact. Each has processes of its own, one per rank.
 *
 *     conformance-nccl [--driver LIBRARY] [--nccl LIBRARY] [FACT …]
 *
 * A line per fact; the exit status is 1 if one does not hold.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts.h"
#include "ranks.h"

/* One rank may even leave it out. */
static void empty_role(struct rank *rank) {
        rank_join(rank, NULL);
        if (rank->number == 0)
                OK(rank->nccl.allreduce(NULL, NULL, 0, NCCL_FLOAT32, NCCL_SUM, rank->comm, NULL));
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
}

static void fact_nothing_is_reduced_without_a_kernel(void) {
        ranks_run(2, empty_role);
}

/* ---- calls that do not block, and groups ---- */

static void free_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();

        rank_join(rank, &config);
        rank_check(rank, rank->comm, rank->ranks);
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
}

static void fact_calls_need_not_block(void) {
        ranks_run(3, free_role);
}

static void group_role(struct rank *rank) {
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, 4 * SMALL, 1);
        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 4; i++)
                OK(rank_sum(rank, rank->comm, area.address + i * SMALL * sizeof(float), SMALL, NULL));
        rank_expect(rank, area.address, 4 * SMALL, 1);
        OK(rank->nccl.group_end());
        rank_expect(rank, area.address, 4 * SMALL, (float)rank->ranks);
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

static void fact_a_group_is_launched_at_its_end(void) {
        ranks_run(2, group_role);
}

static void wrong_group_role(struct rank *rank) {
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, SMALL, 1);
        OK(rank->nccl.group_start());
        OK(rank_sum(rank, rank->comm, area.address, SMALL, NULL));
        IS(rank->nccl.allreduce(pointer(area.address), pointer(area.address), 1, 77, NCCL_SUM, rank->comm,
                                NULL),
           NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.group_end(), NCCL_INVALID_ARGUMENT);
        rank_expect(rank, area.address, SMALL, 1);
        area_free(&rank->gpu, &area);
        OK(rank->nccl.abort(rank->comm));
}

static void fact_a_group_with_an_error_does_nothing(void) {
        ranks_run(2, wrong_group_role);
}

/* What does not block tells later, too, that a call was wrong, and is of no use any more. */
static void spoiled_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;

        rank_join(rank, &config);
        IS(rank->nccl.allreduce(NULL, NULL, 1, 77, NCCL_SUM, rank->comm, NULL), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.allreduce(NULL, NULL, 0, NCCL_INT8, NCCL_SUM, rank->comm, NULL), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.abort(rank->comm));
}

static void fact_a_wrong_call_spoils_a_communicator_that_does_not_block(void) {
        ranks_run(1, spoiled_role);
}

/* Both communicators are made, and ended, at once; each is the other's neighbour in the group. */
static void two_comms_role(struct rank *rank) {
        nccl_comm comm[2];

        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 2; i++) {
                unsigned which = (i + rank->number) % 2;
                OK(rank->nccl.init(&comm[which], 2, rank->id[which], (int)rank->number, NULL));
        }
        OK(rank->nccl.group_end());
        rank_check(rank, comm[0], 2);
        rank_check(rank, comm[1], 2);
        OK(rank->nccl.group_start());
        OK(rank->nccl.abort(comm[rank->number]));
        OK(rank->nccl.abort(comm[1 - rank->number]));
        OK(rank->nccl.group_end());
}

static void fact_a_group_makes_and_ends_communicators_at_once(void) {
        ranks_run(2, two_comms_role);
}

/* ---- several communicators ---- */

/* The last one is for rank_pass_time(). */
static void join_many(struct rank *rank, nccl_comm *comm, unsigned n) {
        struct nccl_config config = NCCL_CONFIG;

        for (unsigned i = 0; i < n; i++) {
                config.max_ctas = i + 1 < n ? 4 : 1;
                OK(rank->nccl.init(&comm[i], (int)rank->ranks, rank->id[i], (int)rank->number, &config));
        }
}

static void opposite_role(struct rank *rank) {
        cuda_stream stream[2];
        nccl_comm comm[2];
        struct area area;

        join_many(rank, comm, 2);
        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, 2 * SMALL, 1);
        for (unsigned i = 0; i < 2; i++)
                OK(rank->gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 2; i++) {
                unsigned which = (i + rank->number) % 2;
                OK(rank_sum(rank, comm[which], area.address + which * SMALL * sizeof(float), SMALL,
                            stream[which]));
        }
        for (unsigned i = 0; i < 2; i++) {
                OK(rank->gpu.cuda.stream_wait(stream[i]));
                OK(rank->gpu.cuda.stream_free(stream[i]));
                OK(rank->nccl.destroy(comm[i]));
        }
        rank_expect(rank, area.address, 2 * SMALL, (float)rank->ranks);
        area_free(&rank->gpu, &area);
}

static void fact_communicators_on_two_queues_need_no_order(void) {
        ranks_run(2, opposite_role);
}

/* On two streams, each with a range of its own. */
static void one_after_the_other_role(struct rank *rank) {
        cuda_stream stream[2];
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        rank_fill(rank, area.address, 2 * SMALL, 1);
        for (unsigned i = 0; i < 2; i++)
                OK(rank->gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 40; i++)
                OK(rank_sum(rank, rank->comm, area.address + i % 2 * SMALL * sizeof(float), SMALL,
                            stream[i % 2]));
        for (unsigned i = 0; i < 2; i++) {
                OK(rank->gpu.cuda.stream_wait(stream[i]));
                OK(rank->gpu.cuda.stream_free(stream[i]));
        }
        rank_expect(rank, area.address, 2 * SMALL, 1 << 20);
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

static void fact_collectives_of_one_communicator_run_one_after_the_other(void) {
        ranks_run(2, one_after_the_other_role);
}

/* ---- the end of what hangs ---- */

static void alone_role(struct rank *rank) {
        nccl_comm comm[2];
        struct area area[2];

        join_many(rank, comm, 2);
        for (unsigned i = 0; i < 2; i++) {
                area_new(&rank->gpu, 1, &area[i]);
                if (rank->number == 0)
                        OK(rank_sum(rank, comm[0], area[i].address, SMALL, NULL));
        }
        rank_pass_time(rank, comm[1]);
        if (rank->number == 0)
                IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        OK(rank->nccl.abort(comm[0]));
        area_free(&rank->gpu, &area[0]); /* which is not in use any more */
        OK(rank->gpu.cuda.stream_wait(NULL));
        if (rank->number == 0)
                rank_expect_garbage(rank, area[1].address, SMALL * sizeof(float));
        rank_check(rank, comm[1], rank->ranks);
        area_free(&rank->gpu, &area[1]);
        rank_end(rank, comm[1]);
}

static void fact_a_collective_without_its_peer_is_aborted(void) {
        ranks_run(2, alone_role);
}

/* A kernel that is aborted at one rank goes on at the others. */
static void abort_one_role(struct rank *rank) {
        nccl_comm comm[2];
        struct area area;

        join_many(rank, comm, 2);
        area_new(&rank->gpu, 1, &area);
        if (rank->number > 0)
                OK(rank_sum(rank, comm[0], area.address, SMALL, NULL));
        if (rank->number == 1)
                OK(rank->nccl.abort(comm[0]));
        rank_pass_time(rank, comm[1]);
        if (rank->number == 2)
                IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        if (rank->number != 1)
                OK(rank->nccl.abort(comm[0]));
        rank_end(rank, comm[1]);
        area_free(&rank->gpu, &area);
}

static void fact_every_rank_must_abort(void) {
        ranks_run(3, abort_one_role);
}

/* Two streams that share a queue, and two communicators in another order: none gets on. */
static void aliasing_role(struct rank *rank) {
        cuda_stream stream[9];
        nccl_comm comm[3];
        struct area area;

        join_many(rank, comm, 3);
        area_new(&rank->gpu, 1, &area);
        for (unsigned i = 0; i < 9; i++)
                OK(rank->gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 2; i++)
                OK(rank_sum(rank, comm[(i + rank->number) % 2], area.address + i * SMALL * sizeof(float),
                            SMALL, stream[i * 8]));
        ranks_meet();
        IS(rank->gpu.cuda.stream_query(stream[0]), CUDA_NOT_READY);
        IS(rank->gpu.cuda.stream_query(stream[8]), CUDA_NOT_READY);
        OK(rank->nccl.group_start());
        OK(rank->nccl.abort(comm[0]));
        OK(rank->nccl.abort(comm[1]));
        OK(rank->nccl.group_end());
        rank_end(rank, comm[2]);
        for (unsigned i = 0; i < 9; i++)
                OK(rank->gpu.cuda.stream_free(stream[i]));
        rank_expect_garbage(rank, area.address, 2 * SMALL * sizeof(float));
        area_free(&rank->gpu, &area);
}

static void fact_streams_of_one_queue_wait_for_each_other(void) {
        ranks_run(2, aliasing_role);
}

/* Each rank's kernel fits on the GPU, and not both. */
static void room_role(struct rank *rank) {
        nccl_comm comm[2];
        struct area area;

        join_many(rank, comm, 2);
        area_new(&rank->gpu, 1, &area);
        OK(rank_sum(rank, comm[0], area.address, SMALL, NULL));
        rank_pass_time(rank, comm[1]);
        IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        ranks_meet();
        OK(rank->nccl.abort(comm[0]));
        rank_expect_garbage(rank, area.address, SMALL * sizeof(float));
        rank_end(rank, comm[1]);
        area_free(&rank->gpu, &area);
}

static void fact_kernels_that_do_not_fit_wait(void) {
        setenv("FAKE_NCCL_CTAS", "7", 1);
        ranks_run(2, room_role);
}

static void fits_role(struct rank *rank) {
        struct nccl_config config = NCCL_CONFIG;

        config.max_ctas = 3;
        rank_join(rank, &config);
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
}

static void fact_fewer_ctas_are_asked_for(void) {
        setenv("FAKE_NCCL_CTAS", "7", 1);
        ranks_run(2, fits_role);
}

/* Other work goes on meanwhile, and nobody can rely on the output. */
static void held_role(struct rank *rank) {
        volatile unsigned char *pinned;
        struct area area;
        cuda_address to;
        cuda_stream stream;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank->gpu.cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        OK(rank->gpu.cuda.host_address(&to, (void *)pinned, 0));
        gpu_fill(&rank->gpu, area.address, SMALL, 1);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(rank->nccl.allreduce(pointer(area.address), pointer(to), SMALL, NCCL_UINT8, NCCL_SUM, rank->comm,
                                stream));
        while (pinned[0] != 0xff || pinned[SMALL - 1] != 0xff)
                usleep(500);
        for (unsigned i = 0; i < 20; i++)
                gpu_fill(&rank->gpu, area.address + SMALL, SMALL, (unsigned char)i);
        IS(rank->gpu.cuda.stream_query(stream), CUDA_NOT_READY);
        ranks_meet();
        if (rank->number == 0)
                ranks_hold(false);
        OK(rank->gpu.cuda.stream_wait(stream));
        CHECK(pinned[0] == rank->ranks && pinned[SMALL - 1] == rank->ranks);
        OK(rank->gpu.cuda.stream_free(stream));
        OK(rank->gpu.cuda.host_free((void *)pinned));
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

static void fact_collectives_are_held_as_a_test_asks_for_it(void) {
        ranks_run(2, held_role);
}

/* The first rank is killed in the middle of it. */
static const char *stuck;

static void *end_in_vain(void *data) {
        struct rank *rank = data;

        OK(rank->gpu.cuda.context_set(rank->gpu.context));
        if (strcmp(stuck, "abort") == 0)
                rank->nccl.abort(rank->comm);
        else
                rank->nccl.destroy(rank->comm);
        peer_fail(__FILE__, __LINE__, "the call has ended");
}

static void endless_role(struct rank *rank) {
        pthread_t thread;
        nccl_comm comm;

        if (rank->number == 0)
                setenv("FAKE_NCCL_STUCK", stuck, 1);
        rank_join(rank, NULL);
        OK(rank->nccl.init(&comm, 2, rank->id[1], (int)rank->number, NULL));
        if (rank->number == 0)
                CHECK(pthread_create(&thread, NULL, end_in_vain, rank) == 0);
        rank_pass_time(rank, comm);
        if (rank->number == 0)
                ranks_await(0, 1);
        ranks_kill(0);
        OK(rank->nccl.abort(comm));
        OK(rank->nccl.abort(rank->comm));
}

static void fact_an_abort_may_hang(void) {
        stuck = "abort";
        ranks_run(2, endless_role);
}

static void fact_a_destruction_may_hang(void) {
        stuck = "destroy";
        ranks_run(2, endless_role);
}

/* ---- the end in good order ---- */

static void finalize_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;
        nccl_comm comm;

        rank_join(rank, &config);
        OK(rank->nccl.init(&comm, 2, rank->id[1], (int)rank->number, NULL));
        if (rank->number == 0)
                IS(rank->nccl.finalize(rank->comm), NCCL_IN_PROGRESS);
        rank_pass_time(rank, comm);
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, rank->number == 0 ? NCCL_IN_PROGRESS : NCCL_OK);
        ranks_meet();
        OK(rank_settle(rank, rank->comm, rank->number == 0 ? NCCL_OK : rank->nccl.finalize(rank->comm)));
        OK(rank->nccl.destroy(rank->comm));
        rank_end(rank, comm);
}

static void fact_a_communicator_is_final_when_all_ranks_say_so(void) {
        ranks_run(2, finalize_role);
}

static void *destroy(void *data) {
        struct rank *rank = data;

        OK(rank->gpu.cuda.context_set(rank->gpu.context));
        OK(rank->nccl.destroy(rank->comm));
        ranks_set(0, 1);
        return NULL;
}

/* The second rank has the second GPU. */
static void neighbour_role(struct rank *rank) {
        pthread_t thread;
        nccl_comm comm;

        if (rank->number == 1) {
                OK(rank->gpu.cuda.primary_retain(&rank->gpu.context, 1));
                OK(rank->gpu.cuda.context_set(rank->gpu.context));
                rank->gpu.device = 1;
                OK(rank->gpu.cuda.primary_release(0));
        }
        rank_join(rank, NULL);
        OK(rank->nccl.init(&comm, 2, rank->id[1], (int)rank->number, NULL));
        if (rank->number == 0)
                CHECK(pthread_create(&thread, NULL, destroy, rank) == 0);
        rank_pass_time(rank, comm);
        CHECK(ranks_is(0, 0));
        ranks_meet();
        if (rank->number == 0)
                pthread_join(thread, NULL);
        else
                OK(rank->nccl.destroy(rank->comm));
        rank_end(rank, comm);
}

static void fact_ranks_of_one_host_are_destroyed_together(void) {
        setenv("FAKE_GPU_DEVICES", "2", 1);
        setenv("NCCL_HOSTID", "together", 1);
        ranks_run(2, neighbour_role);
}

static void revoke_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_comm part = NULL;
        struct area area;

        rank_join(rank, &config);
        area_new(&rank->gpu, 1, &area);
        if (rank->number == 0)
                OK(rank_sum(rank, rank->comm, area.address, SMALL, NULL));
        ranks_meet();
        OK(rank_settle(rank, rank->comm, rank->nccl.revoke(rank->comm, 0)));
        IS(rank->nccl.allreduce(pointer(area.address), pointer(area.address), SMALL, NCCL_FLOAT32, NCCL_SUM,
                                rank->comm, NULL),
           NCCL_INVALID_USAGE);
        IS(rank->nccl.revoke(rank->comm, 0), NCCL_INVALID_ARGUMENT);
        OK(rank_settle(rank, rank->comm, rank->nccl.split(rank->comm, 0, 0, &part, NULL)));
        OK(rank->nccl.destroy(rank->comm));
        rank_check(rank, part, rank->ranks);
        rank_end(rank, part);
        area_free(&rank->gpu, &area);
}

static void fact_a_revoked_communicator_is_split(void) {
        ranks_run(2, revoke_role);
}

/* What a killed rank had begun never ends at the others, unless they abort. */
static void killed_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        struct area area;

        rank_join(rank, &config);
        area_new(&rank->gpu, 1, &area);
        if (rank->number == 0) {
                ranks_set(0, 1);
                ranks_await(1, 1);
        }
        OK(rank_sum(rank, rank->comm, area.address, SMALL, NULL));
        ranks_await(0, 1);
        ranks_kill(0);
        if (getenv("FAKE_NCCL_NOTICE") != NULL)
                IS(rank_settle(rank, rank->comm, NCCL_OK), NCCL_REMOTE_ERROR);
        else
                OK(rank_settle(rank, rank->comm, NCCL_OK));
        IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        OK(rank->nccl.abort(rank->comm));
        rank_expect_garbage(rank, area.address, SMALL * sizeof(float));
        area_free(&rank->gpu, &area);
}

static void fact_the_death_of_a_peer_may_go_unnoticed(void) {
        ranks_run(2, killed_role);
}

static void fact_the_death_of_a_peer_is_an_asynchronous_error(void) {
        setenv("FAKE_NCCL_NOTICE", "1", 1);
        ranks_run(2, killed_role);
}

/* A communicator that failed cannot be destroyed. */
static void failed_role(struct rank *rank) {
        nccl_comm comm = NULL;

        if (rank->number == 1)
                setenv("FAKE_NCCL_VERSION", "22703", 1);
        IS(rank->nccl.init(&comm, 2, rank->id[0], (int)rank->number, NULL), NCCL_INVALID_USAGE);
        CHECK(strstr(rank->nccl.last_error(NULL), "Mismatched NCCL version") != NULL);
        CHECK(comm != NULL);
        IS(rank->nccl.destroy(comm), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(comm));
}

static void fact_versions_must_not_differ(void) {
        ranks_run(2, failed_role);
}

/* ---- beginnings ---- */

/* Only those that are on one GPU see it. */
static void duplicate_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result = rank->nccl.init(&rank->comm, 3, rank->id[0], (int)rank->number, &config);

        if (rank->number < 2) {
                IS(rank_settle(rank, rank->comm, result), NCCL_INVALID_USAGE);
                CHECK(strstr(rank->nccl.last_error(rank->comm), "Duplicate GPU detected") != NULL);
        }
        ranks_meet();
        if (rank->number == 2) {
                OK(rank->nccl.async_error(rank->comm, &result));
                IS(result, NCCL_IN_PROGRESS);
        }
        OK(rank->nccl.abort(rank->comm));
}

static void on_one_host(struct rank *rank) {
        if (rank->number < 2)
                setenv("NCCL_HOSTID", "together", 1);
        duplicate_role(rank);
}

static void fact_two_ranks_on_one_gpu_are_refused(void) {
        ranks_run(3, on_one_host);
}

static void wrong_role(struct rank *rank) {
        struct nccl_id id = { "this is no id" };
        struct nccl_config config = NCCL_CONFIG;
        nccl_comm comm = NULL;

        IS(rank->nccl.init(&comm, 1, id, 0, NULL), NCCL_INVALID_ARGUMENT);
        CHECK(rank->nccl.last_error(NULL)[0] != '\0');
        IS(rank->nccl.init(&comm, 1, rank->id[0], 1, NULL), NCCL_INVALID_ARGUMENT);
        config.min_ctas = 2; /* and at most as many as nobody said */
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        config.max_ctas = 1;
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        config.max_ctas = 2;
        config.blocking = 2;
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        CHECK(comm == NULL);
}

static void fact_wrong_beginnings_are_refused(void) {
        ranks_run(1, wrong_role);
}

/* Whoever is slow, all wait for it. */
static void slow_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;

        if (rank->number == 1)
                setenv("FAKE_NCCL_SLOW", "50", 1);
        result = rank->nccl.init(&rank->comm, 2, rank->id[0], (int)rank->number, &config);
        IS(result, NCCL_IN_PROGRESS);
        OK(rank_settle(rank, rank->comm, result));
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
}

static void fact_a_beginning_may_be_slow(void) {
        ranks_run(2, slow_role);
}

/* The other one never comes, and then it does, too late. */
static void early_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;

        if (rank->number == 0) {
                IS(rank->nccl.init(&rank->comm, 2, rank->id[0], 0, &config), NCCL_IN_PROGRESS);
                OK(rank->nccl.async_error(rank->comm, &result));
                IS(result, NCCL_IN_PROGRESS);
                OK(rank->nccl.abort(rank->comm));
        }
        ranks_meet();
        rank->id[0] = rank->id[1];
        rank_join(rank, &config);
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
}

static void fact_a_beginning_is_aborted(void) {
        ranks_run(2, early_role);
}

static void stuck_role(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;

        if (rank->number == 1)
                setenv("FAKE_NCCL_STUCK", "init", 1);
        IS(rank->nccl.init(&rank->comm, 2, rank->id[0], (int)rank->number, &config), NCCL_IN_PROGRESS);
        ranks_meet();
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, NCCL_IN_PROGRESS);
        OK(rank->nccl.abort(rank->comm));
}

static void fact_a_beginning_that_hangs_is_aborted(void) {
        ranks_run(2, stuck_role);
}

static nccl_result fail_at(const struct rank *rank, unsigned call, nccl_result result) {
        char text[64];

        snprintf(text, sizeof(text), "ncclGroupStart:7:3,ncclAllReduce:%u:%d", call, result);
        setenv("FAKE_NCCL_FAIL", text, 1);
        return rank->nccl.allreduce(NULL, NULL, 0, NCCL_INT8, NCCL_SUM, rank->comm, NULL);
}

static void fail_role(struct rank *rank) {
        rank_join(rank, NULL);
        OK(fail_at(rank, 2, NCCL_SYSTEM_ERROR));
        IS(fail_at(rank, 2, NCCL_SYSTEM_ERROR), NCCL_SYSTEM_ERROR);
        OK(fail_at(rank, 2, NCCL_SYSTEM_ERROR));
        rank_leave(rank);
}

static void fact_a_call_fails_when_a_test_asks_for_it(void) {
        ranks_run(1, fail_role);
}

/* ---- memory ---- */

static void register_role(struct rank *rank) {
        void *handle[2] = { NULL }, *window = NULL;
        cuda_address plain;
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank->gpu.cuda.allocate(&plain, 4 * SMALL));
        OK(rank->nccl.register_buffer(rank->comm, pointer(area.address), area.bytes, &handle[0]));
        OK(rank->nccl.register_buffer(rank->comm, pointer(area.address), SMALL, &handle[1]));
        CHECK(handle[0] != NULL && handle[1] == handle[0]); /* it is counted */
        OK(rank->nccl.register_window(rank->comm, pointer(area.address), SMALL, &window, 1));
        CHECK(window != NULL);
        rank_check(rank, rank->comm, rank->ranks);
        OK(rank->nccl.deregister_window(rank->comm, window));
        OK(rank->nccl.deregister(rank->comm, handle[0]));
        OK(rank->nccl.deregister(rank->comm, handle[1]));
        IS(rank->nccl.register_window(rank->comm, pointer(area.address + 8), SMALL, &window, 1),
           NCCL_INVALID_ARGUMENT);
        CHECK(rank->nccl.register_window(rank->comm, pointer(plain), SMALL, &window, 1) != NCCL_OK);
        CHECK(window == NULL);
        OK(rank->gpu.cuda.free(plain));
        area_free(&rank->gpu, &area);
        OK(rank->nccl.abort(rank->comm)); /* what failed is of no use any more */
}

static void fact_memory_is_registered(void) {
        ranks_run(2, register_role);
}

/* What the library allocates may be a window, in which sums are right at any place. */
static void window_role(struct rank *rank) {
        void *memory = NULL, *window = NULL;

        rank_join(rank, NULL);
        OK(rank->nccl.mem_alloc(&memory, 2 * SMALL * sizeof(float)));
        cuda_address at = (uintptr_t)memory;
        OK(rank->nccl.register_window(rank->comm, memory, 2 * SMALL * sizeof(float), &window,
                                      NCCL_WINDOW_SYMMETRIC));
        CHECK(window != NULL);
        for (unsigned i = 0; i < 4; i++) {
                cuda_address part = at + i * SMALL / 4 * sizeof(float);

                rank_fill(rank, part, SMALL, 1);
                OK(rank_sum(rank, rank->comm, part, SMALL, NULL));
                rank_expect(rank, part, SMALL, (float)rank->ranks);
        }
        OK(rank->nccl.deregister_window(rank->comm, window));
        rank_fill(rank, at, SMALL, 1);
        OK(rank_sum(rank, rank->comm, at, SMALL, NULL));
        rank_expect(rank, at, SMALL, (float)rank->ranks);
        rank_leave(rank);
        OK(rank->nccl.mem_free(memory));
}

static void fact_a_window_is_of_memory_of_the_library(void) {
        ranks_run(2, window_role);
}

static void no_window_role(struct rank *rank) {
        void *memory, *window = rank;

        setenv("NCCL_WIN_ENABLE", "0", 1);
        rank_join(rank, NULL);
        OK(rank->nccl.mem_alloc(&memory, SMALL));
        OK(rank->nccl.register_window(rank->comm, memory, SMALL, &window, NCCL_WINDOW_SYMMETRIC));
        CHECK(window == NULL);
        rank_check(rank, rank->comm, rank->ranks);
        rank_leave(rank);
        OK(rank->nccl.mem_free(memory));
}

static void fact_windows_may_be_of_no_use(void) {
        ranks_run(2, no_window_role);
}

/* ---- what it writes ---- */

static void debug_role(struct rank *rank) {
        char path[4200], line[1024], expected[64], process[16];
        bool found = false;

        rank_join(rank, NULL);
        snprintf(process, sizeof(process), "%d", getpid());
        snprintf(path, sizeof(path), "%s/debug.%s", getenv("FAKE_GPU"), process);
        snprintf(expected, sizeof(expected), "Channel 00/0 : %u[0] -> %u[0] %svia %s\n", rank->number,
                 1 - rank->number, getenv("FAKE_NCCL_TRANSPORT") != NULL ? "[send] " : "",
                 getenv("FAKE_NCCL_TRANSPORT") != NULL ? "NET/Socket/0" : "P2P/CUMEM");
        FILE *file = fopen(path, "re");
        CHECK(file != NULL);
        while (fgets(line, sizeof(line), file) != NULL)
                found |= strstr(line, expected) != NULL && strstr(line, process) != NULL &&
                         strstr(line, " [0] NCCL INFO ") != NULL;
        CHECK(found);
        fclose(file);
        unlink(path);
        rank_leave(rank);
}

static void fact_how_peers_are_reached_is_written(void) {
        char path[4200];

        snprintf(path, sizeof(path), "%s/debug.%%p", getenv("FAKE_GPU"));
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_FILE", path, 1);
        ranks_run(2, debug_role);
        setenv("FAKE_NCCL_TRANSPORT", "NET/Socket/0", 1);
        ranks_run(2, debug_role);
}

/* ---- other libraries ---- */

static int load(const char *name, char error[512], struct nccl *nccl) {
        char path[4096];

        snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(nccl_library, '/') - nccl_library),
                 nccl_library, name);
        return nccl_load(nccl, path, error, 512);
}

static void fact_some_libraries_are_too_old_or_lack_functions(void) {
        struct nccl nccl;
        char error[512];

        IS(load("libnccl-old.so.2", error, &nccl), -ENOSYS);
        CHECK(strstr(error, "is NCCL 2.17.0; 2.18.0 or newer is needed") != NULL);
        IS(load("libnccl-lacking.so.2", error, &nccl), -ENOSYS);
        CHECK(strstr(error, "which is NCCL 2.28.9, lacks ncclCommSplit") != NULL);
        OK(load("libnccl-plain.so.2", error, &nccl));
        CHECK(nccl.version == NCCL_LEAST && nccl.shrink == NULL && nccl.register_buffer == NULL);
        OK(load("libnccl.so.2", error, &nccl));
        CHECK(nccl.version == 22809 && nccl.shrink != NULL && nccl.revoke != NULL && nccl.grow != NULL);
}

/* ---- the list ---- */

#define FACTS(X)                                                                                             \
        X(two_ranks_reduce_all_types)                                                                        \
        X(three_ranks_reduce_all_types)                                                                      \
        X(four_ranks_reduce_all_types)                                                                       \
        X(one_rank_copies)                                                                                   \
        X(small_floats_are_rounded_after_each_addition)                                                      \
        X(extremes_leave_nans_out)                                                                           \
        X(nothing_is_reduced_without_a_kernel)                                                               \
        X(calls_need_not_block)                                                                              \
        X(a_group_is_launched_at_its_end)                                                                    \
        X(a_group_with_an_error_does_nothing)                                                                \
        X(a_wrong_call_spoils_a_communicator_that_does_not_block)                                            \
        X(a_group_makes_and_ends_communicators_at_once)                                                      \
        X(collectives_of_one_communicator_run_one_after_the_other)                                           \
        X(communicators_on_two_queues_need_no_order)                                                         \
        X(a_communicator_is_split)                                                                           \
        X(a_rank_may_be_of_no_part)                                                                          \
        X(a_configuration_is_inherited_whole_or_not_at_all)                                                  \
        X(survivors_shrink_a_communicator)                                                                   \
        X(a_shrinking_rank_stays)                                                                            \
        X(a_communicator_grows)                                                                              \
        X(a_collective_without_its_peer_is_aborted)                                                          \
        X(every_rank_must_abort)                                                                             \
        X(streams_of_one_queue_wait_for_each_other)                                                          \
        X(kernels_that_do_not_fit_wait)                                                                      \
        X(fewer_ctas_are_asked_for)                                                                          \
        X(collectives_are_held_as_a_test_asks_for_it)                                                        \
        X(an_abort_may_hang)                                                                                 \
        X(a_destruction_may_hang)                                                                            \
        X(a_communicator_is_final_when_all_ranks_say_so)                                                     \
        X(ranks_of_one_host_are_destroyed_together)                                                          \
        X(a_revoked_communicator_is_split)                                                                   \
        X(the_death_of_a_peer_may_go_unnoticed)                                                              \
        X(the_death_of_a_peer_is_an_asynchronous_error)                                                      \
        X(versions_must_not_differ)                                                                          \
        X(two_ranks_on_one_gpu_are_refused)                                                                  \
        X(wrong_beginnings_are_refused)                                                                      \
        X(a_beginning_may_be_slow)                                                                           \
        X(a_beginning_is_aborted)                                                                            \
        X(a_beginning_that_hangs_is_aborted)                                                                 \
        X(a_call_fails_when_a_test_asks_for_it)                                                              \
        X(memory_is_registered)                                                                              \
        X(a_window_is_of_memory_of_the_library)                                                              \
        X(windows_may_be_of_no_use)                                                                          \
        X(how_peers_are_reached_is_written)                                                                  \
        X(some_libraries_are_too_old_or_lack_functions)

static const struct {
        const char *name;
        void (*run)(void);
} facts[] = {
#define ROW(name) { #name, fact_##name },
        FACTS(ROW)
};

#define N_FACTS (sizeof(facts) / sizeof(facts[0]))

static bool holds(size_t i) {
        int status;
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                alarm(300); /* on a busy machine, too */
                facts[i].run();
                _exit(EXIT_SUCCESS);
        }
        bool well = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
        printf("%s %s\n", well ? "holds" : "FAILS", facts[i].name);
        return well;
}

static bool wanted(const char *name, char **names) {
        for (unsigned i = 0; names[i] != NULL; i++)
                if (strcmp(names[i], name) == 0)
                        return true;
        return names[0] == NULL;
}

int main(int argc, char **argv) {
        size_t ran = 0, failed = 0;

        for (argv++; argv[0] != NULL && argv[1] != NULL && strncmp(argv[0], "--", 2) == 0; argv += 2)
                *(strcmp(argv[0], "--driver") == 0 ? &gpu_library : &nccl_library) = argv[1];
        for (size_t i = 0; i < N_FACTS; i++)
                if (wanted(facts[i].name, argv)) {
                        ran++;
                        failed += !holds(i);
                }
        if (ran == 0)
                fprintf(stderr, "no such fact\n");
        return ran == 0 || failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
