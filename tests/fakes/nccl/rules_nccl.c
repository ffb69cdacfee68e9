/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the fake NCCL is as strict as the real one: a function for each fact that a test of the product would
 * pass without, and programs that break one rule each, so that a test sees that it is noticed.
 *
 *     rules-nccl --driver LIBRARY --nccl LIBRARY [CASE ...]      FAKE_GPU is set
 *
 * A case that makes the file `nccl-hold` and breaks a rule leaves it there: the test takes it away when the
 * line is in the log.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "tests/fakes/gpu/gpu.h"

#define HALF (SMALL * sizeof(float)) /* where the second of two ranges begins in the area */
#define INTERNAL_ERROR 3

static struct machine *machine;

static void wait_for_uses(unsigned least) {
        while (machine_leases(machine) < least)
                usleep(1000);
}

/* A communicator beside `comm`, for rank_pass_time() or a second queue. */
static nccl_comm join_other(struct rank *rank) {
        rank->config.max_ctas = 1;
        return rank_join(rank, 1);
}

/* ---- the end of what hangs ---- */

static void expect_busy(const struct rank *rank, cuda_stream stream) {
        IS(rank->gpu.cuda.stream_query(stream), CUDA_NOT_READY);
}

static void role_alone(struct rank *rank) {
        nccl_comm other = join_other(rank);
        struct area freed;

        area_new(&rank->gpu, 1, &freed);
        if (rank->number == 0) {
                OK(rank_sum(rank, rank->comm, freed.address, SMALL, NULL));
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        }
        rank_pass_time(rank, other);
        if (rank->number == 0)
                expect_busy(rank, NULL);
        OK(rank->nccl.abort(rank->comm));
        area_free(&rank->gpu, &freed); /* which is not in use any more */
        OK(rank->gpu.cuda.stream_wait(NULL));
        if (rank->number == 0)
                rank_expect_garbage(rank, rank->area.address, HALF);
        rank_check(rank, other);
        rank_end(rank, other);
}

/* A kernel that is aborted at one rank goes on at the others. */
static void role_abort_one(struct rank *rank) {
        nccl_comm other = join_other(rank);

        if (rank->number > 0)
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        if (rank->number == 1)
                OK(rank->nccl.abort(rank->comm));
        rank_pass_time(rank, other);
        if (rank->number == 2)
                expect_busy(rank, NULL);
        if (rank->number != 1)
                OK(rank->nccl.abort(rank->comm));
        rank_end(rank, other);
}

/* So does one whose rank is killed. */
static void role_orphan(struct rank *rank) {
        if (rank->number == 0) {
                ranks_set(0, 1);
                ranks_await(1, 1);
        }
        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        ranks_await(0, 1);
        ranks_kill(0);
        expect_busy(rank, NULL);
        OK(rank->nccl.abort(rank->comm));
        rank_expect_garbage(rank, rank->area.address, HALF);
}

/* Two streams that share a queue, and two communicators in another order: none gets on. */
static void role_aliasing(struct rank *rank) {
        nccl_comm comm[2] = { rank->comm, join_other(rank) };
        cuda_stream stream[9];

        for (unsigned i = 0; i < 9; i++)
                OK(rank->gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 2; i++)
                OK(rank_sum(rank, comm[(i + rank->number) % 2], rank->area.address + i * HALF, SMALL,
                            stream[i * 8]));
        ranks_meet();
        expect_busy(rank, stream[0]);
        expect_busy(rank, stream[8]);
        ranks_meet();
        OK(rank->nccl.abort(comm[rank->number])); /* the one that is before the other */
        OK(rank->nccl.abort(comm[1 - rank->number]));
        for (unsigned i = 0; i < 9; i++) {
                OK(rank->gpu.cuda.stream_wait(stream[i]));
                OK(rank->gpu.cuda.stream_free(stream[i]));
        }
        rank_expect_garbage(rank, rank->area.address, 2 * HALF);
}

/* Each rank's kernel of 4 CTAs fits on the GPU, and not both. */
static void role_room(struct rank *rank) {
        nccl_comm other = join_other(rank);

        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        rank_pass_time(rank, other);
        expect_busy(rank, NULL);
        ranks_meet();
        OK(rank->nccl.abort(rank->comm));
        rank_expect_garbage(rank, rank->area.address, HALF);
        rank_end(rank, other);
}

/* ---- the end in good order ---- */

static void role_finalize(struct rank *rank) {
        nccl_comm other = join_other(rank);
        nccl_result result;

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

        setenv("NCCL_HOSTID", "together", 1);
        if (rank->number == 1) {
                OK(rank->gpu.cuda.primary_retain(&rank->gpu.context, 1));
                OK(rank->gpu.cuda.context_set(rank->gpu.context));
                rank->gpu.device = 1;
                OK(rank->gpu.cuda.primary_release(0));
        }
        rank->comm = rank_join(rank, 0);
        nccl_comm other = join_other(rank);
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

/* ---- what is refused ---- */

/* A wrong call spoils a communicator, which is of no use any more. */
static void role_spoiled(struct rank *rank) {
        nccl_result result;

        IS(rank_reduce(rank, 0, 1, 77, NCCL_SUM), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, NCCL_INVALID_ARGUMENT);
        IS(rank_reduce(rank, 0, 0, NCCL_UINT8, NCCL_SUM), NCCL_INVALID_ARGUMENT);
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_ARGUMENT);
}

static void role_revoked(struct rank *rank) {
        if (rank->number == 0)
                OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        ranks_meet();
        OK(rank_settle(rank, rank->comm, rank->nccl.revoke(rank->comm, 0)));
        IS(rank_reduce(rank, rank->area.address, SMALL, NCCL_FLOAT32, NCCL_SUM), NCCL_INVALID_USAGE);
        IS(rank->nccl.revoke(rank->comm, 0), NCCL_INVALID_ARGUMENT);
}

static nccl_result begin(struct rank *rank) {
        return rank->nccl.init(&rank->comm, (int)rank->ranks, rank->id[0], (int)rank->number, &rank->config);
}

/* A communicator that failed cannot be destroyed. */
static void role_version(struct rank *rank) {
        if (rank->number == 1)
                setenv("FAKE_NCCL_VERSION", "22703", 1);
        nccl_result result = begin(rank);
        IS(rank_settle(rank, rank->comm, result), NCCL_INVALID_USAGE);
        CHECK(strstr(rank->nccl.last_error(NULL), "Mismatched NCCL version") != NULL);
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rank->comm));
}

/* Only those that are on one GPU see it. */
static void role_duplicate(struct rank *rank) {
        nccl_result result;

        if (rank->number < 2)
                setenv("NCCL_HOSTID", "together", 1);
        IS(begin(rank), NCCL_IN_PROGRESS);
        if (rank->number < 2) {
                IS(rank_settle(rank, rank->comm, NCCL_OK), NCCL_INVALID_USAGE);
                CHECK(strstr(rank->nccl.last_error(rank->comm), "Duplicate GPU detected") != NULL);
        }
        ranks_meet();
        OK(rank->nccl.async_error(rank->comm, &result));
        IS(result, rank->number == 2 ? NCCL_IN_PROGRESS : NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rank->comm));
}

static void role_wrong(struct rank *rank) {
        static const int ctas[][2] = { { 2, NCCL_UNDEFINED }, { 2, 1 }, { 1, 0 } };
        struct nccl_id id = { "this is no id" };
        nccl_comm comm = NULL;

        IS(rank->nccl.init(&comm, 1, id, 0, &rank->config), NCCL_INVALID_ARGUMENT);
        CHECK(rank->nccl.last_error(NULL)[0] != '\0');
        IS(rank->nccl.init(&comm, 1, rank->id[0], 1, &rank->config), NCCL_INVALID_ARGUMENT);
        for (unsigned i = 0; i < 3; i++) {
                rank->config.min_ctas = ctas[i][0];
                rank->config.max_ctas = ctas[i][1];
                IS(begin(rank), NCCL_INVALID_ARGUMENT);
        }
        CHECK(comm == NULL && rank->comm == NULL);
}

static nccl_result fail_at(const struct rank *rank, unsigned call) {
        char text[64];

        snprintf(text, sizeof(text), "ncclCommRegister:7:3,ncclAllReduce:%u:%d", call, NCCL_SYSTEM_ERROR);
        setenv("FAKE_NCCL_FAIL", text, 1);
        return rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL);
}

static void role_fail(struct rank *rank) {
        OK(fail_at(rank, 2));
        IS(fail_at(rank, 2), NCCL_SYSTEM_ERROR);
        OK(fail_at(rank, 2));
}

/* A window is of memory that was made to be mapped. */
static void role_window(struct rank *rank) {
        void *window = NULL;
        cuda_address plain;

        area_new(&rank->gpu, 1, &rank->area);
        OK(rank->gpu.cuda.allocate(&plain, 4 * SMALL));
        const cuda_address wrong[] = { rank->area.address + 8, plain };
        for (unsigned i = 0; i < 2; i++) {
                nccl_comm comm = rank_join(rank, i);
                nccl_result result = rank->nccl.register_window(comm, pointer(wrong[i]), SMALL, &window, 1);
                CHECK(rank_settle(rank, comm, result) != NCCL_OK && window == NULL);
                OK(rank->nccl.abort(comm));
        }
        OK(rank->gpu.cuda.free(plain));
}

/* ---- ranks that differ ---- */

/* Both of them see it, also at once, and have nothing of it in so many bytes. */
static void differ(const struct rank *rank, cuda_address at, size_t n, int type, int operation,
                   size_t bytes) {
        rank_reduce(rank, at, n, type, operation);
        OK(rank->gpu.cuda.stream_wait(NULL));
        IS(rank_settle(rank, rank->comm, NCCL_OK), INTERNAL_ERROR);
        rank_expect_garbage(rank, at, bytes);
}

static void role_counts(struct rank *rank) {
        differ(rank, rank->area.address, 1000 - rank->number, NCCL_INT32, NCCL_SUM, 999);
}

static void role_types(struct rank *rank) {
        differ(rank, rank->area.address, 1000, rank->number == 0 ? NCCL_INT32 : NCCL_FLOAT32, NCCL_SUM, 1000);
}

static void role_operations(struct rank *rank) {
        differ(rank, rank->area.address, 1000, NCCL_UINT8, rank->number == 0 ? NCCL_MAX : NCCL_MIN, 1000);
}

/* The second one is refused, and tells the other one. */
static void role_sizes(struct rank *rank) {
        rank->ranks += rank->number;
        nccl_result result = begin(rank);
        while (result == NCCL_IN_PROGRESS && !ranks_is(0, 1))
                OK(rank->nccl.async_error(rank->comm, &result));
        if (result != NCCL_IN_PROGRESS)
                IS(result, NCCL_INVALID_USAGE);
        ranks_set(0, 1);
        OK(rank->nccl.abort(rank->comm));
}

static void role_windows(struct rank *rank) {
        void *window;

        OK(rank->nccl.register_window(rank->comm, pointer(rank->area.address), SMALL + rank->number, &window,
                                      NCCL_WINDOW_SYMMETRIC));
        IS(rank_settle(rank, rank->comm, NCCL_OK), NCCL_INVALID_USAGE);
}

static void role_places(struct rank *rank) {
        cuda_address at = rank->area.address + rank->number * SMALL * sizeof(float);
        void *window;

        OK(rank->nccl.register_window(rank->comm, pointer(rank->area.address), 2 * SMALL * sizeof(float),
                                      &window, NCCL_WINDOW_SYMMETRIC));
        OK(rank_settle(rank, rank->comm, NCCL_OK));
        differ(rank, at, SMALL, NCCL_FLOAT32, NCCL_SUM, SMALL * sizeof(float));
}

/* The first one wants fewer to remain than two of the others. */
static void role_shrinks(struct rank *rank) {
        int without[] = { 2, 3 };
        nccl_comm rest = NULL;

        if (rank->number != 2) {
                OK(rank->nccl.shrink(rank->comm, without, rank->number == 0 ? 2 : 1, &rest, &rank->config,
                                     NCCL_SHRINK_IDLE));
                IS(rank_settle(rank, rank->comm, NCCL_OK), NCCL_INVALID_USAGE);
        }
        OK(rank->nccl.abort(rest));
}

/* ---- calls at the wrong time ---- */

static void expect_refusal(const struct rank *rank) {
        IS(rank_reduce(rank, 0, 1, NCCL_UINT8, NCCL_SUM), NCCL_INVALID_ARGUMENT);
}

static void role_progress(struct rank *rank) {
        rank->ranks = 2; /* the other one never comes */
        IS(begin(rank), NCCL_IN_PROGRESS);
        expect_refusal(rank);
        OK(rank->nccl.abort(rank->comm));
}

static void role_destroyed(struct rank *rank) {
        rank_end(rank, rank->comm);
        expect_refusal(rank);
}

static void role_aborted(struct rank *rank) {
        OK(rank->nccl.abort(rank->comm));
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_ARGUMENT);
}

static void role_finalized(struct rank *rank) {
        OK(rank_settle(rank, rank->comm, rank->nccl.finalize(rank->comm)));
        expect_refusal(rank);
        OK(rank->nccl.destroy(rank->comm));
}

static void role_finalize_revoked(struct rank *rank) {
        OK(rank_settle(rank, rank->comm, rank->nccl.revoke(rank->comm, 0)));
        IS(rank->nccl.finalize(rank->comm), NCCL_INVALID_ARGUMENT);
}

/* Only the first rank is in a hurry. */
static void role_early(struct rank *rank) {
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        OK(rank_sum(rank, rank->comm, rank->area.address, SMALL, NULL));
        if (rank->number == 0)
                OK(rank->nccl.destroy(rank->comm));
        OK(rank->gpu.cuda.stream_wait(NULL));
        if (rank->number != 0)
                OK(rank->nccl.destroy(rank->comm));
}

static void role_twice(struct rank *rank) {
        nccl_comm first = rank->comm;
        nccl_result result = begin(rank);

        IS(rank_settle(rank, rank->comm, result), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rank->comm));
        rank->comm = first;
}

static void role_config(struct rank *rank) {
        rank->config.magic = 0;
        IS(begin(rank), NCCL_INVALID_ARGUMENT);
}

static void role_blocks(struct rank *rank) {
        rank->config.blocking = NCCL_UNDEFINED;
        IS(begin(rank), NCCL_INVALID_ARGUMENT);
}

static void role_group(struct rank *rank) {
        IS(rank->nccl.group_start(), NCCL_INVALID_USAGE);
}

/* ---- memory ---- */

static void role_overlap(struct rank *rank) {
        IS(rank->nccl.allreduce(pointer(rank->area.address), pointer(rank->area.address + 8), SMALL,
                                NCCL_UINT8, NCCL_SUM, rank->comm, NULL),
           NCCL_INVALID_ARGUMENT);
}

/* Sums the first bytes of the area into a place that no collective uses by itself. */
static void launch(const struct rank *rank, cuda_address to) {
        nccl_result result = rank->nccl.allreduce(pointer(rank->area.address), pointer(to), SMALL, NCCL_UINT8,
                                                  NCCL_SUM, rank->comm, NULL);

        OK(rank_settle(rank, rank->comm, result));
}

/* Another stream does something to what the first rank's collective uses, which is under way. */
static void conflict(struct rank *rank, bool output, bool write) {
        struct area to;
        cuda_stream stream;

        area_new(&rank->gpu, 1, &to);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        launch(rank, to.address);
        if (rank->number == 0) {
                cuda_address at = output ? to.address : rank->area.address;

                wait_for_uses(4);
                OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
                if (write)
                        OK(rank->gpu.cuda.set_async(at + SMALL - 1, 1, 1, stream));
                else
                        OK(rank->gpu.cuda.copy(at + SMALL, at, SMALL, stream));
                OK(rank->gpu.cuda.stream_free(stream));
        }
        OK(rank->gpu.cuda.stream_wait(NULL));
        area_free(&rank->gpu, &to);
}

static void role_write_input(struct rank *rank) {
        conflict(rank, false, true);
}

static void role_write_output(struct rank *rank) {
        conflict(rank, true, true);
}

static void role_read_output(struct rank *rank) {
        conflict(rank, true, false);
}

/* Other work may read the input: no operation writes it. Nothing can rely on the output meanwhile. */
static void role_read_input(struct rank *rank) {
        cuda_address from = rank->area.address, to;
        volatile unsigned char *pinned;
        cuda_stream stream;

        OK(rank->gpu.cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        OK(rank->gpu.cuda.host_address(&to, (void *)pinned, 0));
        gpu_fill(&rank->gpu, from, SMALL, 1);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        launch(rank, to);
        while (pinned[0] != 0xff || pinned[SMALL - 1] != 0xff)
                usleep(500);
        OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(rank->gpu.cuda.copy(from + SMALL, from, SMALL, stream));
        OK(rank->gpu.cuda.stream_free(stream));
        expect_busy(rank, NULL);
        ranks_meet();
        if (rank->number == 0)
                ranks_hold(false);
        OK(rank->gpu.cuda.stream_wait(NULL));
        CHECK(pinned[0] == rank->ranks && pinned[SMALL - 1] == rank->ranks);
        OK(rank->gpu.cuda.host_free((void *)pinned));
}

static void role_unmapped(struct rank *rank) {
        size_t bytes;

        if (rank->number != 0)
                return;
        OK(rank_sum(rank, rank->comm, rank->area.address + rank->area.bytes - 8, SMALL, NULL));
        IS(rank->gpu.cuda.stream_wait(NULL), CUDA_ILLEGAL_ADDRESS);
        OK(rank->nccl.abort(rank->comm));
        IS(rank->gpu.cuda.memory_info(&bytes, &bytes), CUDA_ILLEGAL_ADDRESS);
        _exit(EXIT_SUCCESS);
}

static void role_register(struct rank *rank) {
        void *handle;

        CHECK(rank->nccl.register_buffer(rank->comm, pointer(0x1000), SMALL, &handle) != NCCL_OK);
}

static void role_deregister(struct rank *rank) {
        void *handle;

        OK(rank->nccl.register_buffer(rank->comm, pointer(rank->area.address), SMALL, &handle));
        OK(rank->nccl.deregister(rank->comm, handle));
        CHECK(rank->nccl.deregister(rank->comm, handle) != NCCL_OK);
}

static void role_unmap(struct rank *rank) {
        void *handle;

        OK(rank->nccl.register_buffer(rank->comm, pointer(rank->area.address), SMALL, &handle));
        area_free(&rank->gpu, &rank->area);
}

static void role_context(struct rank *rank) {
        OK(rank->gpu.cuda.context_set(NULL));
        CHECK(rank_reduce(rank, 0, 1, NCCL_UINT8, NCCL_SUM) != NCCL_OK);
        OK(rank->gpu.cuda.context_set(rank->gpu.context));
}

/* ---- what the machine finds afterwards ---- */

static void role_leave(struct rank *rank) {
        area_free(&rank->gpu, &rank->area);
}

static void role_killed(struct rank *rank) {
        if (rank->number == 1) {
                ranks_kill(0);
                _exit(EXIT_SUCCESS); /* without a word to the GPU */
        }
        ranks_await(0, 1);
}

/* A collective without its peer ends with its process, also when that waits for it in the driver. */
static void role_killed_in_a_call(struct rank *rank) {
        cuda_address address;

        if (rank->number == 0) {
                ranks_await(0, 1);
                ranks_kill(1);
                return;
        }
        OK(rank->gpu.cuda.allocate(&address, SMALL * sizeof(float)));
        OK(rank_sum(rank, rank->comm, address, SMALL, NULL));
        ranks_set(0, 1);
        OK(rank->gpu.cuda.free(address));
}

static const struct ranks_case cases[] = {
        { "a_collective_without_its_peer_is_aborted", 2, role_alone, JOINED, GONE, NULL },
        { "every_rank_must_abort", 3, role_abort_one, JOINED, GONE, NULL },
        { "the_death_of_a_peer_goes_unnoticed", 2, role_orphan, JOINED, GONE, NULL },
        { "streams_of_one_queue_wait_for_each_other", 2, role_aliasing, JOINED, GONE, NULL },
        { "kernels_that_do_not_fit_wait", 2, role_room, JOINED, GONE, "FAKE_NCCL_CTAS=7" },
        { "a_communicator_is_final_when_all_ranks_say_so", 2, role_finalize, JOINED, GONE, NULL },
        { "ranks_of_one_host_are_destroyed_together", 2, role_neighbour, APART, GONE, "FAKE_GPU_DEVICES=2" },
        { "a_wrong_call_spoils_a_communicator", 1, role_spoiled, JOINED, ABORTED, NULL },
        { "a_revoked_communicator_reduces_nothing", 2, role_revoked, JOINED, ABORTED, NULL },
        { "versions_must_not_differ", 2, role_version, APART, GONE, NULL },
        { "two_ranks_on_one_gpu_are_refused", 3, role_duplicate, APART, GONE, NULL },
        { "wrong_beginnings_are_refused", 1, role_wrong, APART, GONE, NULL },
        { "only_the_call_fails_that_a_test_asks_for", 1, role_fail, JOINED, LEFT, NULL },
        { "a_window_is_of_memory_that_is_mapped", 1, role_window, APART, GONE, NULL },
        { "rule_counts_differ", 2, role_counts, JOINED, ABORTED, NULL },
        { "rule_types_differ", 2, role_types, JOINED, ABORTED, NULL },
        { "rule_operations_differ", 2, role_operations, JOINED, ABORTED, NULL },
        { "rule_sizes_differ", 2, role_sizes, APART, GONE, NULL },
        { "rule_windows_differ", 2, role_windows, JOINED, ABORTED, NULL },
        { "rule_use_another_place_of_a_window", 2, role_places, JOINED, ABORTED, NULL },
        { "rule_shrinks_differ", 4, role_shrinks, JOINED, ABORTED, NULL },
        { "rule_use_what_is_in_progress", 1, role_progress, APART, GONE, NULL },
        { "rule_use_what_was_destroyed", 1, role_destroyed, JOINED, GONE, NULL },
        { "rule_destroy_what_was_aborted", 1, role_aborted, JOINED, GONE, NULL },
        { "rule_use_what_was_finalized", 1, role_finalized, JOINED, GONE, NULL },
        { "rule_finalize_what_was_revoked", 1, role_finalize_revoked, JOINED, ABORTED, NULL },
        { "rule_destroy_with_work_under_way", 2, role_early, JOINED, GONE, NULL },
        { "rule_be_one_rank_twice", 1, role_twice, JOINED, LEFT, NULL },
        { "rule_leave_a_configuration_uninitialised", 1, role_config, APART, GONE, NULL },
        { "rule_let_calls_block", 1, role_blocks, APART, GONE, NULL },
        { "rule_make_a_group", 1, role_group, APART, GONE, NULL },
        { "rule_overlap_in_part", 1, role_overlap, JOINED, ABORTED, NULL },
        { "rule_write_the_input", 2, role_write_input, JOINED, LEFT, NULL },
        { "rule_write_the_output", 2, role_write_output, JOINED, LEFT, NULL },
        { "rule_read_the_output_too_early", 2, role_read_output, JOINED, LEFT, NULL },
        { "rule_go_beyond_what_is_mapped", 2, role_unmapped, JOINED, ABORTED, NULL },
        { "rule_register_what_is_no_memory", 1, role_register, JOINED, LEFT, NULL },
        { "rule_deregister_twice", 1, role_deregister, JOINED, LEFT, NULL },
        { "rule_unmap_what_is_registered", 1, role_unmap, JOINED, LEFT, NULL },
        { "rule_have_no_context", 1, role_context, JOINED, ABORTED, NULL },
        { "left_a_communicator", 2, role_leave, JOINED, GONE, NULL },
        { "the_input_may_be_read_and_not_the_output", 2, role_read_input, JOINED, LEFT, NULL },
        { "a_communicator_dies_with_its_processes", 2, role_killed, JOINED, GONE, NULL },
        { "a_collective_dies_with_its_process", 2, role_killed_in_a_call, JOINED, ABORTED, NULL },
};

int main(int argc, char **argv) {
        machine = machine_open();
        return ranks_main(argv, cases, sizeof(cases) / sizeof(cases[0]));
}
