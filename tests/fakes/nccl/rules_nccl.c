/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that break one rule of the fake NCCL each, so that a test sees that it is noticed.
 *
 *     rules-nccl --driver LIBRARY --nccl LIBRARY RULE      FAKE_GPU is set
 *
 * A case that makes the file `nccl-hold` leaves it there: the test takes it away when the line is in the log.
 */
#include <stdlib.h>
#include <unistd.h>

#include "ranks.h"
#include "tests/fakes/gpu/gpu.h"

#define INTERNAL_ERROR 3

static struct machine *machine;

static void wait_for_uses(unsigned least) {
        while (machine_leases(machine) < least)
                usleep(1000);
}

/* ---- ranks that differ ---- */

/* Both of them see it, and have nothing of it in so many bytes. */
static void expect_difference(const struct rank *rank, cuda_address at, size_t bytes) {
        OK(rank->gpu.cuda.stream_wait(NULL));
        IS(rank_settle(rank, rank->comm, NCCL_OK), INTERNAL_ERROR);
        rank_expect_garbage(rank, at, bytes);
}

static void role_counts(struct rank *rank) {
        OK(rank_reduce(rank, rank->area.address, 1000 - rank->number, NCCL_INT32, NCCL_SUM));
        expect_difference(rank, rank->area.address, 999);
}

static void role_types(struct rank *rank) {
        OK(rank_reduce(rank, rank->area.address, 1000, rank->number == 0 ? NCCL_INT32 : NCCL_FLOAT32,
                       NCCL_SUM));
        expect_difference(rank, rank->area.address, 1000);
}

static void role_operations(struct rank *rank) {
        OK(rank_reduce(rank, rank->area.address, 1000, NCCL_UINT8, rank->number == 0 ? NCCL_MAX : NCCL_MIN));
        expect_difference(rank, rank->area.address, 1000);
}

static void role_order(struct rank *rank) {
        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 2; i++)
                OK(rank_sum(rank, rank->comm, rank->area.address, (i + rank->number) % 2 + 1, NULL));
        OK(rank->nccl.group_end());
        OK(rank->gpu.cuda.stream_wait(NULL));
        rank_expect_garbage(rank, rank->area.address, 2 * sizeof(float));
}

/* The second one is refused, and tells the other one. */
static void role_sizes(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_result result;

        result = rank->nccl.init(&rank->comm, (int)(2 + rank->number), rank->id[0], (int)rank->number,
                                 &config);
        while (result == NCCL_IN_PROGRESS && !ranks_is(0, 1))
                OK(rank->nccl.async_error(rank->comm, &result));
        if (result != NCCL_IN_PROGRESS)
                IS(result, NCCL_INVALID_USAGE);
        ranks_set(0, 1);
        OK(rank->nccl.abort(rank->comm));
}

static void role_windows(struct rank *rank) {
        void *window;

        IS(rank->nccl.register_window(rank->comm, pointer(rank->area.address), SMALL + rank->number, &window,
                                      NCCL_WINDOW_SYMMETRIC),
           NCCL_INVALID_USAGE);
}

static void role_places(struct rank *rank) {
        cuda_address at = rank->area.address + rank->number * SMALL * sizeof(float);
        void *window;

        OK(rank->nccl.register_window(rank->comm, pointer(rank->area.address), 2 * SMALL * sizeof(float),
                                      &window, NCCL_WINDOW_SYMMETRIC));
        OK(rank_reduce(rank, at, SMALL, NCCL_FLOAT32, NCCL_SUM));
        expect_difference(rank, at, SMALL * sizeof(float));
}

/* The first one wants fewer to remain than two of the others. */
static void role_shrinks(struct rank *rank) {
        struct nccl_config config = NCCL_CONFIG;
        int without[] = { 2, 3 };
        nccl_comm rest = NULL;

        if (rank->number != 2)
                IS(rank->nccl.shrink(rank->comm, without, rank->number == 0 ? 2 : 1, &rest, &config,
                                     NCCL_SHRINK_IDLE),
                   NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rest));
}

/* ---- calls at the wrong time ---- */

static void expect_refusal(const struct rank *rank) {
        IS(rank_reduce(rank, 0, 1, NCCL_UINT8, NCCL_SUM), NCCL_INVALID_ARGUMENT);
}

static void role_progress(struct rank *rank) {
        struct nccl_config config = ranks_free_config();

        IS(rank->nccl.init(&rank->comm, 2, rank->id[0], 0, &config), NCCL_IN_PROGRESS);
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
        OK(rank->nccl.finalize(rank->comm));
        expect_refusal(rank);
        OK(rank->nccl.destroy(rank->comm));
}

static void role_finalize_revoked(struct rank *rank) {
        OK(rank->nccl.revoke(rank->comm, 0));
        IS(rank->nccl.finalize(rank->comm), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.destroy(rank->comm));
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
        struct nccl_config config = ranks_free_config();
        nccl_comm again;
        nccl_result result = rank->nccl.init(&again, 1, rank->id[0], 0, &config);

        IS(rank_settle(rank, again, result), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(again));
}

static void role_config(struct rank *rank) {
        struct nccl_config config = { .size = sizeof(config), .blocking = 1 };

        IS(rank->nccl.init(&rank->comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
}

/* ---- groups ---- */

static void role_group(struct rank *rank) {
        IS(rank->nccl.group_end(), NCCL_INVALID_USAGE);
}

static void role_mixed(struct rank *rank) {
        nccl_comm other;

        OK(rank->nccl.init(&other, 1, rank->id[1], 0, NULL));
        OK(rank->nccl.group_start());
        OK(rank_reduce(rank, 0, 1, NCCL_UINT8, NCCL_SUM));
        OK(rank->nccl.allreduce(NULL, NULL, 1, NCCL_UINT8, NCCL_SUM, other, NULL));
        IS(rank->nccl.group_end(), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.abort(other));
}

/* ---- memory ---- */

static void role_overlap(struct rank *rank) {
        IS(rank->nccl.allreduce(pointer(rank->area.address), pointer(rank->area.address + 8), SMALL,
                                NCCL_UINT8, NCCL_SUM, rank->comm, NULL),
           NCCL_INVALID_ARGUMENT);
}

/* Sums the first bytes of the area into a place that no collective uses by itself. */
static void launch(const struct rank *rank, cuda_address to) {
        OK(rank->nccl.allreduce(pointer(rank->area.address), pointer(to), SMALL, NCCL_UINT8, NCCL_SUM,
                                rank->comm, NULL));
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

/* Other work may read the input: no operation writes it. */
static void role_read_input(struct rank *rank) {
        struct area to;
        cuda_stream stream;

        area_new(&rank->gpu, 1, &to);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        launch(rank, to.address);
        wait_for_uses(4);
        OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(rank->gpu.cuda.copy(to.address + SMALL, rank->area.address, SMALL, stream));
        OK(rank->gpu.cuda.stream_free(stream));
        ranks_meet();
        if (rank->number == 0)
                ranks_hold(false);
        OK(rank->gpu.cuda.stream_wait(NULL));
        area_free(&rank->gpu, &to);
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
        { "rule_counts_differ", 2, role_counts, JOINED, ABORTED, NULL },
        { "rule_types_differ", 2, role_types, JOINED, ABORTED, NULL },
        { "rule_operations_differ", 2, role_operations, JOINED, ABORTED, NULL },
        { "rule_the_order_differs", 2, role_order, JOINED, ABORTED, NULL },
        { "rule_sizes_differ", 2, role_sizes, APART, GONE, NULL },
        { "rule_windows_differ", 2, role_windows, JOINED, ABORTED, NULL },
        { "rule_use_another_place_of_a_window", 2, role_places, JOINED, ABORTED, NULL },
        { "rule_shrinks_differ", 4, role_shrinks, JOINED, ABORTED, NULL },
        { "rule_use_what_is_in_progress", 1, role_progress, APART, GONE, NULL },
        { "rule_use_what_was_destroyed", 1, role_destroyed, JOINED, GONE, NULL },
        { "rule_destroy_what_was_aborted", 1, role_aborted, JOINED, GONE, NULL },
        { "rule_use_what_was_finalized", 1, role_finalized, JOINED, GONE, NULL },
        { "rule_finalize_what_was_revoked", 1, role_finalize_revoked, JOINED, GONE, NULL },
        { "rule_destroy_with_work_under_way", 2, role_early, JOINED, GONE, NULL },
        { "rule_be_one_rank_twice", 1, role_twice, JOINED, LEFT, NULL },
        { "rule_leave_a_configuration_uninitialised", 1, role_config, APART, GONE, NULL },
        { "rule_end_a_group_that_was_not_begun", 1, role_group, APART, GONE, NULL },
        { "rule_mix_in_a_group", 1, role_mixed, POLLED, ABORTED, NULL },
        { "rule_overlap_in_part", 1, role_overlap, JOINED, LEFT, NULL },
        { "rule_write_the_input", 2, role_write_input, JOINED, LEFT, NULL },
        { "rule_write_the_output", 2, role_write_output, JOINED, LEFT, NULL },
        { "rule_read_the_output_too_early", 2, role_read_output, JOINED, LEFT, NULL },
        { "rule_go_beyond_what_is_mapped", 2, role_unmapped, JOINED, ABORTED, NULL },
        { "rule_register_what_is_no_memory", 1, role_register, JOINED, LEFT, NULL },
        { "rule_deregister_twice", 1, role_deregister, JOINED, LEFT, NULL },
        { "rule_unmap_what_is_registered", 1, role_unmap, JOINED, LEFT, NULL },
        { "rule_have_no_context", 1, role_context, JOINED, LEFT, NULL },
        { "left_a_communicator", 2, role_leave, JOINED, GONE, NULL },
        { "good_read_the_input", 2, role_read_input, JOINED, LEFT, NULL },
        { "good_die_with_a_communicator", 2, role_killed, JOINED, GONE, NULL },
        { "good_die_in_a_call", 2, role_killed_in_a_call, JOINED, ABORTED, NULL },
};

int main(int argc, char **argv) {
        machine = machine_open();
        return ranks_main(argv, cases, sizeof(cases) / sizeof(cases[0]));
}
