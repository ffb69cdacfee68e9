/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The properties of NCCL on which the project relies, beyond right sums: when things happen, which call ends
 * a hang, and which failures a test can ask for. One function per fact, which runs in a process for each
 * rank.
 *
 *     conformance-nccl [--driver LIBRARY] [--nccl LIBRARY] [FACT …]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

#define HALF (SMALL * sizeof(float)) /* where the second of two ranges begins in the area */

static void new_streams(const struct rank *rank, cuda_stream *stream, unsigned n) {
        for (unsigned i = 0; i < n; i++)
                OK(rank->gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
}

static void end_streams(const struct rank *rank, const cuda_stream *stream, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                OK(rank->gpu.cuda.stream_wait(stream[i]));
                OK(rank->gpu.cuda.stream_free(stream[i]));
        }
}

/* ---- groups ---- */

/* One rank may even leave it out. */
static void role_empty(struct rank *rank) {
        if (rank->number == 0)
                OK(rank_reduce(rank, 0, 0, NCCL_FLOAT32, NCCL_SUM));
        rank_check(rank, rank->comm, rank->ranks);
}

static void role_group(struct rank *rank) {
        cuda_address at = rank->area.address;

        rank_fill(rank, at, 4 * SMALL, 1);
        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 4; i++)
                OK(rank_sum(rank, rank->comm, at + i * HALF, SMALL, NULL));
        rank_expect(rank, at, 4 * SMALL, 1);
        OK(rank->nccl.group_end());
        rank_expect(rank, at, 4 * SMALL, (float)rank->ranks);
}

static void role_wrong_group(struct rank *rank) {
        rank_fill(rank, rank->area.address, SMALL, 1);
        OK(rank->nccl.group_start());
        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        IS(rank_reduce(rank, rank->area.address, 1, 77, NCCL_SUM), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.group_end(), NCCL_INVALID_ARGUMENT);
        rank_expect(rank, rank->area.address, SMALL, 1);
}

/* A communicator that does not block reports a wrong call later, too, and is of no use any more. */
static void role_spoiled(struct rank *rank) {
        nccl_result result;

        IS(rank_reduce(rank, 0, 1, 77, NCCL_SUM), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, NCCL_INVALID_ARGUMENT);
        IS(rank_reduce(rank, 0, 0, NCCL_UINT8, NCCL_SUM), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_ARGUMENT);
}

/* Both communicators are made, and ended, at once; each is the other's neighbour in the group. */
static void role_two_comms(struct rank *rank) {
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

/* ---- several communicators ---- */

/* Besides `comm`: the last one is for rank_pass_time(). */
static void join_more(const struct rank *rank, nccl_comm *comm, unsigned n) {
        struct nccl_config config = NCCL_CONFIG;

        for (unsigned i = 0; i < n; i++) {
                config.max_ctas = i + 1 < n ? 4 : 1;
                OK(rank->nccl.init(&comm[i], (int)rank->ranks, rank->id[1 + i], (int)rank->number, &config));
        }
}

static void role_opposite(struct rank *rank) {
        cuda_stream stream[2];
        nccl_comm comm[2] = { rank->comm };

        join_more(rank, &comm[1], 1);
        rank_fill(rank, rank->area.address, 2 * SMALL, 1);
        new_streams(rank, stream, 2);
        for (unsigned i = 0; i < 2; i++) {
                unsigned which = (i + rank->number) % 2;
                OK(rank_sum(rank, comm[which], rank->area.address + which * HALF, SMALL, stream[which]));
        }
        end_streams(rank, stream, 2);
        rank_end(rank, comm[1]);
        rank_expect(rank, rank->area.address, 2 * SMALL, (float)rank->ranks);
}

/* On two streams, each with a range of its own. */
static void role_one_after_the_other(struct rank *rank) {
        cuda_stream stream[2];

        rank_fill(rank, rank->area.address, 2 * SMALL, 1);
        new_streams(rank, stream, 2);
        for (unsigned i = 0; i < 40; i++)
                OK(rank_sum(rank, rank->comm, rank->area.address + i % 2 * HALF, SMALL, stream[i % 2]));
        end_streams(rank, stream, 2);
        rank_expect(rank, rank->area.address, 2 * SMALL, 1 << 20);
}

/* ---- the end of what hangs ---- */

static void role_alone(struct rank *rank) {
        struct area freed;
        nccl_comm other;

        join_more(rank, &other, 1);
        area_new(&rank->gpu, 1, &freed);
        if (rank->number == 0) {
                OK(rank_sum(rank, rank->comm, freed.address, SMALL, NULL));
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        }
        rank_pass_time(rank, other);
        if (rank->number == 0)
                IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        OK(rank->nccl.abort(rank->comm));
        area_free(&rank->gpu, &freed); /* which is not in use any more */
        OK(rank->gpu.cuda.stream_wait(NULL));
        if (rank->number == 0)
                rank_expect_garbage(rank, rank->area.address, HALF);
        rank_check(rank, other, rank->ranks);
        rank_end(rank, other);
}

/* A kernel that is aborted at one rank goes on at the others. */
static void role_abort_one(struct rank *rank) {
        nccl_comm other;

        join_more(rank, &other, 1);
        if (rank->number > 0)
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        if (rank->number == 1)
                OK(rank->nccl.abort(rank->comm));
        rank_pass_time(rank, other);
        if (rank->number == 2)
                IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        if (rank->number != 1)
                OK(rank->nccl.abort(rank->comm));
        rank_end(rank, other);
}

/* Two streams that share a queue, and two communicators in another order: none gets on. */
static void role_aliasing(struct rank *rank) {
        cuda_stream stream[9];
        nccl_comm comm[2] = { rank->comm };

        join_more(rank, &comm[1], 1);
        new_streams(rank, stream, 9);
        for (unsigned i = 0; i < 2; i++)
                OK(rank_sum(rank, comm[(i + rank->number) % 2], rank->area.address + i * HALF, SMALL,
                            stream[i * 8]));
        ranks_meet();
        IS(rank->gpu.cuda.stream_query(stream[0]), CUDA_NOT_READY);
        IS(rank->gpu.cuda.stream_query(stream[8]), CUDA_NOT_READY);
        OK(rank->nccl.group_start());
        OK(rank->nccl.abort(comm[0]));
        OK(rank->nccl.abort(comm[1]));
        OK(rank->nccl.group_end());
        end_streams(rank, stream, 9);
        rank_expect_garbage(rank, rank->area.address, 2 * HALF);
}

/* Each rank's kernel of 4 CTAs fits on the GPU, and not both. */
static void role_room(struct rank *rank) {
        nccl_comm other;

        join_more(rank, &other, 1);
        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        rank_pass_time(rank, other);
        IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        ranks_meet();
        OK(rank->nccl.abort(rank->comm));
        rank_expect_garbage(rank, rank->area.address, HALF);
        rank_end(rank, other);
}

/* Other work goes on meanwhile, and cannot rely on the output. */
static void role_held(struct rank *rank) {
        cuda_address from = rank->area.address, to;
        volatile unsigned char *pinned;
        cuda_stream stream;

        OK(rank->gpu.cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        OK(rank->gpu.cuda.host_address(&to, (void *)pinned, 0));
        gpu_fill(&rank->gpu, from, SMALL, 1);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        new_streams(rank, &stream, 1);
        OK(rank->nccl.allreduce(pointer(from), pointer(to), SMALL, NCCL_UINT8, NCCL_SUM, rank->comm, stream));
        while (pinned[0] != 0xff || pinned[SMALL - 1] != 0xff)
                usleep(500);
        for (unsigned i = 0; i < 20; i++)
                gpu_fill(&rank->gpu, from + SMALL, SMALL, (unsigned char)i);
        IS(rank->gpu.cuda.stream_query(stream), CUDA_NOT_READY);
        ranks_meet();
        if (rank->number == 0)
                ranks_hold(false);
        end_streams(rank, &stream, 1);
        CHECK(pinned[0] == rank->ranks && pinned[SMALL - 1] == rank->ranks);
        OK(rank->gpu.cuda.host_free((void *)pinned));
}

static void *end_in_vain(void *data) {
        struct rank *rank = data;

        OK(rank->gpu.cuda.context_set(rank->gpu.context));
        if (strcmp(getenv("FAKE_NCCL_STUCK"), "abort") == 0)
                rank->nccl.abort(rank->comm);
        else
                rank->nccl.destroy(rank->comm);
        peer_fail(__FILE__, __LINE__, "the call has ended");
}

/* The first rank is killed in the middle of it. */
static void role_endless(struct rank *rank) {
        pthread_t thread;
        nccl_comm other;

        join_more(rank, &other, 1);
        if (rank->number == 0)
                CHECK(pthread_create(&thread, NULL, end_in_vain, rank) == 0);
        rank_pass_time(rank, other);
        if (rank->number == 0)
                ranks_await(0, 1);
        ranks_kill(0);
        unsetenv("FAKE_NCCL_STUCK");
        OK(rank->nccl.abort(other));
}

/* ---- the end in good order ---- */

static void role_finalize(struct rank *rank) {
        nccl_result result;
        nccl_comm other;

        join_more(rank, &other, 1);
        if (rank->number == 0)
                IS(rank->nccl.finalize(rank->comm), NCCL_IN_PROGRESS);
        rank_pass_time(rank, other);
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, rank->number == 0 ? NCCL_IN_PROGRESS : NCCL_OK);
        ranks_meet();
        OK(rank_settle(rank, rank->comm, rank->number == 0 ? NCCL_OK : rank->nccl.finalize(rank->comm)));
        OK(rank->nccl.destroy(rank->comm));
        rank_end(rank, other);
}

static void *destroy(void *data) {
        struct rank *rank = data;

        OK(rank->gpu.cuda.context_set(rank->gpu.context));
        OK(rank->nccl.destroy(rank->comm));
        ranks_set(0, 1);
        return NULL;
}

/* The second rank has the second GPU. */
static void role_neighbour(struct rank *rank) {
        pthread_t thread;
        nccl_comm other;

        setenv("NCCL_HOSTID", "together", 1);
        if (rank->number == 1) {
                OK(rank->gpu.cuda.primary_retain(&rank->gpu.context, 1));
                OK(rank->gpu.cuda.context_set(rank->gpu.context));
                rank->gpu.device = 1;
                OK(rank->gpu.cuda.primary_release(0));
        }
        rank_join(rank, NULL);
        join_more(rank, &other, 1);
        if (rank->number == 0)
                CHECK(pthread_create(&thread, NULL, destroy, rank) == 0);
        rank_pass_time(rank, other);
        CHECK(ranks_is(0, 0));
        ranks_meet();
        if (rank->number == 0)
                pthread_join(thread, NULL);
        else
                OK(rank->nccl.destroy(rank->comm));
        rank_end(rank, other);
}

static void role_revoke(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_comm part = NULL;

        if (rank->number == 0)
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        ranks_meet();
        OK(rank_settle(rank, rank->comm, rank->nccl.revoke(rank->comm, 0)));
        IS(rank_reduce(rank, rank->area.address, SMALL, NCCL_FLOAT32, NCCL_SUM), NCCL_INVALID_USAGE);
        IS(rank->nccl.revoke(rank->comm, 0), NCCL_INVALID_ARGUMENT);
        OK(rank_settle(rank, rank->comm, rank->nccl.split(rank->comm, 0, (int)rank->number, &part, &config)));
        OK(rank->nccl.destroy(rank->comm));
        rank_check(rank, part, rank->ranks);
        rank_end(rank, part);
}

/* A collective that a killed rank had begun never ends at the others, unless they abort. */
static void role_killed(struct rank *rank) {
        const char *notices = getenv("FAKE_NCCL_NOTICE");

        if (rank->number == 0) {
                ranks_set(0, 1);
                ranks_await(1, 1);
        }
        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        ranks_await(0, 1);
        ranks_kill(0);
        IS(rank_settle(rank, rank->comm, NCCL_OK), notices != NULL ? NCCL_REMOTE_ERROR : NCCL_OK);
        IS(rank->gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        OK(rank->nccl.abort(rank->comm));
        rank_expect_garbage(rank, rank->area.address, HALF);
}

/* ---- beginnings ---- */

/* A communicator that failed cannot be destroyed. */
static void role_version(struct rank *rank) {
        nccl_comm comm = NULL;

        if (rank->number == 1)
                setenv("FAKE_NCCL_VERSION", "22703", 1);
        IS(rank->nccl.init(&comm, 2, rank->id[0], (int)rank->number, NULL), NCCL_INVALID_USAGE);
        CHECK(strstr(rank->nccl.last_error(NULL), "Mismatched NCCL version") != NULL);
        CHECK(comm != NULL);
        IS(rank->nccl.destroy(comm), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(comm));
}

static void begin_polled(struct rank *rank) {
        struct nccl_config config = ranks_free_config();

        IS(rank->nccl.init(&rank->comm, (int)rank->ranks, rank->id[0], (int)rank->number, &config),
           NCCL_IN_PROGRESS);
}

static void expect_progress(const struct rank *rank) {
        nccl_result result;

        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, NCCL_IN_PROGRESS);
}

/* Only those that are on one GPU see it. */
static void role_duplicate(struct rank *rank) {
        if (rank->number < 2)
                setenv("NCCL_HOSTID", "together", 1);
        begin_polled(rank);
        if (rank->number < 2) {
                IS(rank_settle(rank, rank->comm, NCCL_OK), NCCL_INVALID_USAGE);
                CHECK(strstr(rank->nccl.last_error(rank->comm), "Duplicate GPU detected") != NULL);
        }
        ranks_meet();
        if (rank->number == 2)
                expect_progress(rank);
        OK(rank->nccl.abort(rank->comm));
}

static void role_wrong(struct rank *rank) {
        struct nccl_id id = { "this is no id" };
        struct nccl_config config = NCCL_CONFIG;
        nccl_comm comm = NULL;

        IS(rank->nccl.init(&comm, 1, id, 0, NULL), NCCL_INVALID_ARGUMENT);
        CHECK(rank->nccl.last_error(NULL)[0] != '\0');
        IS(rank->nccl.init(&comm, 1, rank->id[0], 1, NULL), NCCL_INVALID_ARGUMENT);
        config.min_ctas = 2; /* without max_ctas */
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        config.max_ctas = 1;
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        config.max_ctas = 2;
        config.blocking = 2;
        IS(rank->nccl.init(&comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
        CHECK(comm == NULL);
}

/* All wait for the one that is slow. */
static void role_slow(struct rank *rank) {
        if (rank->number == 1)
                setenv("FAKE_NCCL_SLOW", "50", 1);
        begin_polled(rank);
        OK(rank_settle(rank, rank->comm, NCCL_OK));
        rank_check(rank, rank->comm, rank->ranks);
        rank_end(rank, rank->comm);
}

/* The second rank never comes, or hangs; then both come in time. */
static void role_aborted(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        bool hangs = getenv("FAKE_NCCL_STUCK") != NULL;

        if (rank->number == 0)
                unsetenv("FAKE_NCCL_STUCK");
        if (rank->number == 0 || hangs) {
                begin_polled(rank);
                expect_progress(rank);
                OK(rank->nccl.abort(rank->comm));
        }
        ranks_meet();
        unsetenv("FAKE_NCCL_STUCK");
        rank->id[0] = rank->id[1];
        rank_join(rank, &config);
        rank_check(rank, rank->comm, rank->ranks);
        rank_end(rank, rank->comm);
}

static nccl_result fail_at(const struct rank *rank, unsigned call) {
        char text[64];

        snprintf(text, sizeof(text), "ncclGroupStart:7:3,ncclAllReduce:%u:%d", call, NCCL_SYSTEM_ERROR);
        setenv("FAKE_NCCL_FAIL", text, 1);
        return rank_reduce(rank, 0, 0, NCCL_UINT8, NCCL_SUM);
}

static void role_fail(struct rank *rank) {
        OK(fail_at(rank, 2));
        IS(fail_at(rank, 2), NCCL_SYSTEM_ERROR);
        OK(fail_at(rank, 2));
}

/* ---- memory ---- */

/* A range is counted; a window is of memory that was made to be mapped. */
static void role_register(struct rank *rank) {
        void *at = pointer(rank->area.address), *handle[2] = { NULL }, *window = NULL;
        cuda_address plain;

        OK(rank->gpu.cuda.allocate(&plain, 4 * SMALL));
        OK(rank->nccl.register_buffer(rank->comm, at, rank->area.bytes, &handle[0]));
        OK(rank->nccl.register_buffer(rank->comm, at, SMALL, &handle[1]));
        CHECK(handle[0] != NULL && handle[1] == handle[0]);
        OK(rank->nccl.register_window(rank->comm, at, SMALL, &window, NCCL_WINDOW_SYMMETRIC));
        CHECK(window != NULL);
        rank_check(rank, rank->comm, rank->ranks);
        OK(rank->nccl.deregister_window(rank->comm, window));
        OK(rank->nccl.deregister(rank->comm, handle[0]));
        OK(rank->nccl.deregister(rank->comm, handle[1]));
        IS(rank->nccl.register_window(rank->comm, pointer(rank->area.address + 8), SMALL, &window, 1),
           NCCL_INVALID_ARGUMENT);
        CHECK(rank->nccl.register_window(rank->comm, pointer(plain), SMALL, &window, 1) != NCCL_OK);
        CHECK(window == NULL);
        OK(rank->gpu.cuda.free(plain));
}

static const struct ranks_case facts[] = {
        { "nothing_is_reduced_without_a_kernel", 2, role_empty, JOINED, LEFT, NULL },
        { "a_group_is_launched_at_its_end", 2, role_group, JOINED, LEFT, NULL },
        { "a_group_with_an_error_does_nothing", 2, role_wrong_group, JOINED, ABORTED, NULL },
        { "a_wrong_call_spoils_a_communicator_that_does_not_block", 1, role_spoiled, POLLED, ABORTED, NULL },
        { "a_group_makes_and_ends_communicators_at_once", 2, role_two_comms, APART, GONE, NULL },
        { "collectives_of_one_communicator_run_one_after_the_other", 2, role_one_after_the_other, JOINED,
          LEFT, NULL },
        { "communicators_on_two_queues_need_no_order", 2, role_opposite, JOINED, LEFT, NULL },
        { "a_collective_without_its_peer_is_aborted", 2, role_alone, JOINED, GONE, NULL },
        { "every_rank_must_abort", 3, role_abort_one, JOINED, GONE, NULL },
        { "streams_of_one_queue_wait_for_each_other", 2, role_aliasing, JOINED, GONE, NULL },
        { "kernels_that_do_not_fit_wait", 2, role_room, JOINED, GONE, "FAKE_NCCL_CTAS=7" },
        { "collectives_are_held_as_a_test_asks_for_it", 2, role_held, JOINED, LEFT, NULL },
        { "an_abort_may_hang", 2, role_endless, JOINED, ABORTED, "FAKE_NCCL_STUCK=abort" },
        { "a_destruction_may_hang", 2, role_endless, JOINED, ABORTED, "FAKE_NCCL_STUCK=destroy" },
        { "a_communicator_is_final_when_all_ranks_say_so", 2, role_finalize, POLLED, GONE, NULL },
        { "ranks_of_one_host_are_destroyed_together", 2, role_neighbour, APART, GONE, "FAKE_GPU_DEVICES=2" },
        { "a_revoked_communicator_is_split", 2, role_revoke, POLLED, GONE, NULL },
        { "the_death_of_a_peer_may_go_unnoticed", 2, role_killed, POLLED, GONE, NULL },
        { "the_death_of_a_peer_is_an_asynchronous_error", 2, role_killed, POLLED, GONE,
          "FAKE_NCCL_NOTICE=1" },
        { "versions_must_not_differ", 2, role_version, APART, GONE, NULL },
        { "two_ranks_on_one_gpu_are_refused", 3, role_duplicate, APART, GONE, NULL },
        { "wrong_beginnings_are_refused", 1, role_wrong, APART, GONE, NULL },
        { "a_beginning_may_be_slow", 2, role_slow, APART, GONE, NULL },
        { "a_beginning_without_its_peer_is_aborted", 2, role_aborted, APART, GONE, NULL },
        { "a_beginning_that_hangs_is_aborted", 2, role_aborted, APART, GONE, "FAKE_NCCL_STUCK=init" },
        { "a_call_fails_when_a_test_asks_for_it", 1, role_fail, JOINED, LEFT, NULL },
        { "memory_is_registered", 2, role_register, JOINED, ABORTED, NULL },
};

int main(int argc, char **argv) {
        return ranks_main(argv, facts, sizeof(facts) / sizeof(facts[0]));
}
