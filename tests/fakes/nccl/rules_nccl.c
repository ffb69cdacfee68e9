/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that break one rule of the fake NCCL each, so that a test sees that it is noticed.
 *
 *     rules-nccl DRIVER NCCL RULE      FAKE_GPU is set
 *
 * A case that makes the file `nccl-hold` leaves it there: the test takes it away when the line is in the log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "tests/fakes/gpu/gpu.h"

#define INTERNAL_ERROR 3

static struct machine *machine;

/* Until that many ranges are in use. */
static void wait_for_uses(unsigned wanted) {
        unsigned n;

        do {
                usleep(1000);
                machine_enter(&machine->lock);
                n = 0;
                for (unsigned i = 0; i < MACHINE_LEASES; i++)
                        n += machine->lease[i].id != 0;
                pthread_mutex_unlock(&machine->lock);
        } while (n < wanted);
}

/* ---- ranks that differ ---- */

struct wanted {
        size_t count;
        int type, operation;
};

/* A collective in which the ranks differ: both of them see it, and have nothing of it in so many bytes. */
static void rank_differ(const struct rank *rank, cuda_address at, const struct wanted *own, size_t bytes) {
        OK(rank->nccl.allreduce(pointer(at), pointer(at), own->count, own->type, own->operation, rank->comm,
                                NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        IS(rank_settle(rank, rank->comm, NCCL_OK), INTERNAL_ERROR);
        rank_expect_garbage(rank, at, bytes);
        OK(rank->nccl.abort(rank->comm));
}

static void differ(struct rank *rank, const struct wanted wanted[2]) {
        const struct wanted *own = &wanted[rank->number];
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        rank_differ(rank, area.address, own, own->count);
        area_free(&rank->gpu, &area);
}

static void role_counts(struct rank *rank) {
        differ(rank, (struct wanted[]){ { 1000, NCCL_INT32, NCCL_SUM }, { 999, NCCL_INT32, NCCL_SUM } });
}

static void role_types(struct rank *rank) {
        differ(rank, (struct wanted[]){ { 1000, NCCL_INT32, NCCL_SUM }, { 1000, NCCL_FLOAT32, NCCL_SUM } });
}

static void role_operations(struct rank *rank) {
        differ(rank, (struct wanted[]){ { 1000, NCCL_INT8, NCCL_MAX }, { 1000, NCCL_INT8, NCCL_MIN } });
}

static void rule_counts_differ(void) {
        ranks_run(2, role_counts);
}

static void rule_types_differ(void) {
        ranks_run(2, role_types);
}

static void rule_operations_differ(void) {
        ranks_run(2, role_operations);
}

static void role_order(struct rank *rank) {
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 2; i++)
                OK(rank_sum(rank, rank->comm, area.address, (i + rank->number) % 2 + 1, NULL));
        OK(rank->nccl.group_end());
        OK(rank->gpu.cuda.stream_wait(NULL));
        rank_expect_garbage(rank, area.address, 2 * sizeof(float));
        OK(rank->nccl.abort(rank->comm));
        area_free(&rank->gpu, &area);
}

static void rule_the_order_differs(void) {
        ranks_run(2, role_order);
}

/* Whoever is second is refused, and tells the other one. */
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

static void rule_sizes_differ(void) {
        ranks_run(2, role_sizes);
}

static void role_windows(struct rank *rank) {
        struct area area;
        void *window;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        IS(rank->nccl.register_window(rank->comm, pointer(area.address), SMALL + rank->number, &window, 1),
           NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rank->comm));
        area_free(&rank->gpu, &area);
}

static void rule_windows_differ(void) {
        ranks_run(2, role_windows);
}

static void role_places(struct rank *rank) {
        const struct wanted same = { SMALL, NCCL_FLOAT32, NCCL_SUM };
        void *memory, *window;

        rank_join(rank, NULL);
        OK(rank->nccl.mem_alloc(&memory, 2 * SMALL * sizeof(float)));
        OK(rank->nccl.register_window(rank->comm, memory, 2 * SMALL * sizeof(float), &window,
                                      NCCL_WINDOW_SYMMETRIC));
        rank_differ(rank, (uintptr_t)memory + rank->number * SMALL * sizeof(float), &same,
                    SMALL * sizeof(float));
        OK(rank->nccl.mem_free(memory));
}

static void rule_use_another_place_of_a_window(void) {
        ranks_run(2, role_places);
}

/* The first one wants fewer to remain than two of the others. */
static void role_shrinks(struct rank *rank) {
        int without[] = { 2, 3 };
        nccl_comm rest = NULL;

        rank_join(rank, NULL);
        if (rank->number != 2)
                IS(rank->nccl.shrink(rank->comm, without, rank->number == 0 ? 2 : 1, &rest, NULL, 0),
                   NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(rest));
        OK(rank->nccl.abort(rank->comm));
}

static void rule_shrinks_differ(void) {
        ranks_run(4, role_shrinks);
}

/* ---- calls at the wrong time ---- */

static void role_progress(struct rank *rank) {
        struct nccl_config config = ranks_free_config();

        IS(rank->nccl.init(&rank->comm, 2, rank->id[0], 0, &config), NCCL_IN_PROGRESS);
        IS(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, rank->comm, NULL), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.abort(rank->comm));
}

static void rule_use_what_is_in_progress(void) {
        ranks_run(1, role_progress);
}

static void role_destroyed(struct rank *rank) {
        rank_join(rank, NULL);
        rank_leave(rank);
        IS(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, rank->comm, NULL), NCCL_INVALID_ARGUMENT);
}

static void rule_use_what_was_destroyed(void) {
        ranks_run(1, role_destroyed);
}

static void role_aborted(struct rank *rank) {
        rank_join(rank, NULL);
        OK(rank->nccl.abort(rank->comm));
        IS(rank->nccl.destroy(rank->comm), NCCL_INVALID_ARGUMENT);
}

static void rule_destroy_what_was_aborted(void) {
        ranks_run(1, role_aborted);
}

static void role_finalized(struct rank *rank) {
        rank_join(rank, NULL);
        OK(rank->nccl.finalize(rank->comm));
        IS(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, rank->comm, NULL), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.destroy(rank->comm));
}

static void rule_use_what_was_finalized(void) {
        ranks_run(1, role_finalized);
}

static void role_finalize_revoked(struct rank *rank) {
        rank_join(rank, NULL);
        OK(rank->nccl.revoke(rank->comm, 0));
        IS(rank->nccl.finalize(rank->comm), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.destroy(rank->comm));
}

static void rule_finalize_what_was_revoked(void) {
        ranks_run(1, role_finalize_revoked);
}

/* Only the first rank is in a hurry. */
static void role_early(struct rank *rank) {
        struct area area;

        if (rank->number == 0)
                ranks_hold(true);
        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank_sum(rank, rank->comm, area.address, SMALL, NULL));
        if (rank->number == 0)
                OK(rank->nccl.destroy(rank->comm));
        OK(rank->gpu.cuda.stream_wait(NULL));
        if (rank->number != 0)
                OK(rank->nccl.destroy(rank->comm));
        area_free(&rank->gpu, &area);
}

static void rule_destroy_with_work_under_way(void) {
        ranks_run(2, role_early);
}

static void role_stopped(struct rank *rank) {
        nccl_comm rest;

        rank_join(rank, NULL);
        if (rank->number < 2)
                OK(rank->nccl.shrink(rank->comm, (int[]){ 2 }, 1, &rest, NULL, 1));
        if (rank->number == 0)
                IS(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, rank->comm, NULL),
                   NCCL_INVALID_USAGE);
        if (rank->number < 2)
                rank_end(rank, rest);
        OK(rank->nccl.abort(rank->comm));
}

static void rule_use_what_was_shrunk_with_an_abort(void) {
        ranks_run(3, role_stopped);
}

static void role_twice(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_comm comm[2];

        rank_join(rank, NULL);
        OK(rank->nccl.init(&comm[0], 1, rank->id[1], 0, NULL));
        nccl_result result = rank->nccl.init(&comm[1], 1, rank->id[1], 0, &config);
        IS(rank_settle(rank, comm[1], result), NCCL_INVALID_USAGE);
        OK(rank->nccl.abort(comm[1]));
        rank_end(rank, comm[0]);
        rank_leave(rank);
}

static void rule_be_one_rank_twice(void) {
        ranks_run(1, role_twice);
}

static void role_config(struct rank *rank) {
        struct nccl_config config = { .size = sizeof(config), .blocking = 1 };

        IS(rank->nccl.init(&rank->comm, 1, rank->id[0], 0, &config), NCCL_INVALID_ARGUMENT);
}

static void rule_leave_a_configuration_uninitialised(void) {
        ranks_run(1, role_config);
}

/* ---- groups ---- */

static void role_group(struct rank *rank) {
        IS(rank->nccl.group_end(), NCCL_INVALID_USAGE);
}

static void rule_end_a_group_that_was_not_begun(void) {
        ranks_run(1, role_group);
}

static void role_mixed(struct rank *rank) {
        struct nccl_config config = ranks_free_config();
        nccl_comm comm[2];

        for (unsigned i = 0; i < 2; i++) {
                nccl_result result = rank->nccl.init(&comm[i], 1, rank->id[i], 0, i == 0 ? &config : NULL);
                OK(rank_settle(rank, comm[i], result));
        }
        OK(rank->nccl.group_start());
        for (unsigned i = 0; i < 2; i++)
                OK(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, comm[i], NULL));
        IS(rank->nccl.group_end(), NCCL_INVALID_ARGUMENT);
        OK(rank->nccl.abort(comm[0]));
        OK(rank->nccl.abort(comm[1]));
}

static void rule_mix_in_a_group(void) {
        ranks_run(1, role_mixed);
}

/* ---- memory ---- */

static void role_overlap(struct rank *rank) {
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        IS(rank->nccl.allreduce(pointer(area.address), pointer(area.address + 8), SMALL, NCCL_INT8, NCCL_SUM,
                                rank->comm, NULL),
           NCCL_INVALID_ARGUMENT);
        rank_leave(rank);
        area_free(&rank->gpu, &area);
}

static void rule_overlap_in_part(void) {
        ranks_run(1, role_overlap);
}

/* Another stream does something to what the first rank's collective uses. */
static void role_conflict(struct rank *rank, bool output, bool write) {
        cuda_stream stream;
        struct area area[2];

        if (rank->number == 0)
                ranks_hold(true);
        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area[0]);
        area_new(&rank->gpu, 1, &area[1]);
        OK(rank->nccl.allreduce(pointer(area[0].address), pointer(area[1].address), SMALL, NCCL_INT8,
                                NCCL_SUM, rank->comm, NULL));
        if (rank->number == 0) {
                wait_for_uses(4);
                OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
                if (write)
                        OK(rank->gpu.cuda.set_async(area[output].address + SMALL - 1, 1, 1, stream));
                else
                        OK(rank->gpu.cuda.copy(area[output].address + SMALL, area[output].address, SMALL,
                                               stream));
                OK(rank->gpu.cuda.stream_free(stream));
        }
        OK(rank->gpu.cuda.stream_wait(NULL));
        rank_leave(rank);
        area_free(&rank->gpu, &area[0]);
        area_free(&rank->gpu, &area[1]);
}

static void role_write_input(struct rank *rank) {
        role_conflict(rank, false, true);
}

static void role_write_output(struct rank *rank) {
        role_conflict(rank, true, true);
}

static void role_read_output(struct rank *rank) {
        role_conflict(rank, true, false);
}

static void rule_write_the_input(void) {
        ranks_run(2, role_write_input);
}

static void rule_write_the_output(void) {
        ranks_run(2, role_write_output);
}

static void rule_read_the_output_too_early(void) {
        ranks_run(2, role_read_output);
}

/* Likewise, but nobody writes. */
static void role_read_input(struct rank *rank) {
        cuda_stream stream;
        struct area area[2];

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area[0]);
        area_new(&rank->gpu, 1, &area[1]);
        if (rank->number == 0)
                ranks_hold(true);
        ranks_meet();
        OK(rank->nccl.allreduce(pointer(area[0].address), pointer(area[1].address), SMALL, NCCL_INT8,
                                NCCL_SUM, rank->comm, NULL));
        wait_for_uses(4);
        OK(rank->gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(rank->gpu.cuda.copy(area[1].address + SMALL, area[0].address, SMALL, stream));
        OK(rank->gpu.cuda.stream_free(stream));
        ranks_meet();
        if (rank->number == 0)
                ranks_hold(false);
        OK(rank->gpu.cuda.stream_wait(NULL));
        rank_leave(rank);
        area_free(&rank->gpu, &area[0]);
        area_free(&rank->gpu, &area[1]);
}

static void good_read_the_input(void) {
        ranks_run(2, role_read_input);
}

static void role_unmapped(struct rank *rank) {
        struct area area;
        size_t bytes;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        if (rank->number == 0)
                OK(rank_sum(rank, rank->comm, area.address + area.bytes - 8, SMALL, NULL));
        if (rank->number == 0)
                IS(rank->gpu.cuda.stream_wait(NULL), CUDA_ILLEGAL_ADDRESS);
        OK(rank->nccl.abort(rank->comm));
        if (rank->number == 0) {
                IS(rank->gpu.cuda.memory_info(&bytes, &bytes), CUDA_ILLEGAL_ADDRESS);
                _exit(EXIT_SUCCESS);
        }
        area_free(&rank->gpu, &area);
}

static void rule_go_beyond_what_is_mapped(void) {
        ranks_run(2, role_unmapped);
}

static void role_register(struct rank *rank) {
        void *handle;

        rank_join(rank, NULL);
        CHECK(rank->nccl.register_buffer(rank->comm, pointer(0x1000), SMALL, &handle) != NCCL_OK);
        rank_leave(rank);
}

static void rule_register_what_is_no_memory(void) {
        ranks_run(1, role_register);
}

static void role_deregister(struct rank *rank) {
        struct area area;
        void *handle;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank->nccl.register_buffer(rank->comm, pointer(area.address), SMALL, &handle));
        OK(rank->nccl.deregister(rank->comm, handle));
        CHECK(rank->nccl.deregister(rank->comm, handle) != NCCL_OK);
        rank_leave(rank);
        area_free(&rank->gpu, &area);
}

static void rule_deregister_twice(void) {
        ranks_run(1, role_deregister);
}

static void role_unmap(struct rank *rank) {
        struct area area;
        void *handle;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        OK(rank->nccl.register_buffer(rank->comm, pointer(area.address), SMALL, &handle));
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

static void rule_unmap_what_is_registered(void) {
        ranks_run(1, role_unmap);
}

static void role_context(struct rank *rank) {
        rank_join(rank, NULL);
        OK(rank->gpu.cuda.context_set(NULL));
        CHECK(rank->nccl.allreduce(NULL, NULL, 1, NCCL_INT8, NCCL_SUM, rank->comm, NULL) != NCCL_OK);
        OK(rank->gpu.cuda.context_set(rank->gpu.context));
        rank_leave(rank);
}

static void rule_have_no_context(void) {
        ranks_run(1, role_context);
}

/* ---- what the machine finds afterwards ---- */

static void role_leave(struct rank *rank) {
        rank_join(rank, NULL);
}

static void left_a_communicator(void) {
        ranks_run(2, role_leave);
}

static void role_killed(struct rank *rank) {
        rank_join(rank, NULL);
        if (rank->number == 1) {
                ranks_kill(0);
                _exit(EXIT_SUCCESS); /* without a word to the GPU */
        }
        ranks_await(0, 1);
}

static void good_die_with_a_communicator(void) {
        ranks_run(2, role_killed);
}

/* A collective without its peer ends with its process, also when that waits for it in the driver. */
static void role_killed_in_a_call(struct rank *rank) {
        cuda_address address;

        rank_join(rank, NULL);
        if (rank->number == 0) {
                ranks_await(0, 1);
                ranks_kill(1);
                OK(rank->nccl.abort(rank->comm));
                return;
        }
        OK(rank->gpu.cuda.allocate(&address, SMALL * sizeof(float)));
        OK(rank_sum(rank, rank->comm, address, SMALL, NULL));
        ranks_set(0, 1);
        OK(rank->gpu.cuda.free(address));
}

static void good_die_in_a_call(void) {
        ranks_run(2, role_killed_in_a_call);
}

/* ---- the list ---- */

static const struct {
        const char *name;
        void (*run)(void);
} rules[] = {
#define RULE(name)                                                                                           \
        { #name, name }
        RULE(rule_counts_differ),
        RULE(rule_types_differ),
        RULE(rule_operations_differ),
        RULE(rule_the_order_differs),
        RULE(rule_sizes_differ),
        RULE(rule_windows_differ),
        RULE(rule_use_another_place_of_a_window),
        RULE(rule_shrinks_differ),
        RULE(rule_use_what_is_in_progress),
        RULE(rule_use_what_was_destroyed),
        RULE(rule_destroy_what_was_aborted),
        RULE(rule_use_what_was_finalized),
        RULE(rule_finalize_what_was_revoked),
        RULE(rule_destroy_with_work_under_way),
        RULE(rule_use_what_was_shrunk_with_an_abort),
        RULE(rule_be_one_rank_twice),
        RULE(rule_leave_a_configuration_uninitialised),
        RULE(rule_end_a_group_that_was_not_begun),
        RULE(rule_mix_in_a_group),
        RULE(rule_overlap_in_part),
        RULE(rule_write_the_input),
        RULE(rule_write_the_output),
        RULE(rule_read_the_output_too_early),
        RULE(rule_go_beyond_what_is_mapped),
        RULE(rule_register_what_is_no_memory),
        RULE(rule_deregister_twice),
        RULE(rule_unmap_what_is_registered),
        RULE(rule_have_no_context),
        RULE(left_a_communicator),
        RULE(good_read_the_input),
        RULE(good_die_with_a_communicator),
        RULE(good_die_in_a_call),
};

int main(int argc, char **argv) {
        for (size_t i = 0; argc == 4 && i < sizeof(rules) / sizeof(rules[0]); i++)
                if (strcmp(rules[i].name, argv[3]) == 0) {
                        gpu_library = argv[1];
                        nccl_library = argv[2];
                        machine = machine_open();
                        alarm(300);
                        rules[i].run();
                        return EXIT_SUCCESS;
                }
        fprintf(stderr, "no such rule\n");
        return EXIT_FAILURE;
}
