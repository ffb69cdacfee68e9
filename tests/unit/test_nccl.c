/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for GPUs, over the fake NCCL: several nodes in one process. */
#include "nccl_fixture.h"

#include "halves.h"
#include "proto/cleanup.h"

/* ---- what it computes ---- */

#define N 5000u
#define MANY 900001u
#define TAIL 24u /* elements */

static struct engine_piece piece_of(unsigned dtype, enum engine_reduce reduce) {
        return (struct engine_piece){ .memory = MEMORY,
                                      .input = 4096,
                                      .output = 4096,
                                      .elements = N,
                                      .dtype = dtype,
                                      .reduce = reduce };
}

/* Stores a number as an element of that type. Returns the bytes that it has. */
static size_t element_put(unsigned dtype, unsigned char *at, uint32_t value) {
        size_t size = dtype_size(dtype);
        float single = (float)value;
        double twice = value;
        uint64_t whole = value;
        uint16_t half = half_bits(&halves[dtype == WIRE__DTYPE__BF16], value);
        const void *from = dtype == WIRE__DTYPE__F32   ? (const void *)&single
                           : dtype == WIRE__DTYPE__F64 ? (const void *)&twice
                           : size == sizeof(half)      ? (const void *)&half
                                                       : (const void *)&whole;

        memcpy(at, from, size);
        return size;
}

/* 1, 2 or 4 */
static uint32_t number_of(uint32_t rank, uint64_t i) {
        return 1u << (rank + (uint32_t)i) % 3;
}

/* The result of 1, 2 and 4, one from each of three ranks. */
static uint32_t outcome_of(enum engine_reduce reduce) {
        switch (reduce) {
        case ENGINE_PROD: return 8;
        case ENGINE_MIN: return 1;
        case ENGINE_MAX: return 4;
        default: return 7;
        }
}

static void reduce_n(struct rig *rig, uint64_t sequence, unsigned dtype, enum engine_reduce reduce,
                     uint64_t n) {
        struct engine_piece piece = piece_of(dtype, reduce);
        unsigned char outcome[8];
        size_t size = element_put(dtype, outcome, outcome_of(reduce)), bytes = n * size, tail = TAIL * size;
        unsigned char *buffer = malloc(bytes);

        piece.elements = n;
        for (uint32_t rank = 0; rank < rig->n; rank++) {
                struct site *site = &rig->site[rank];

                for (uint64_t i = 0; i < n; i++)
                        element_put(dtype, buffer + i * size, number_of(rank, i));
                memcpy(site->bytes, buffer + bytes - tail, tail);
                memset(buffer + bytes - tail, 0x7e, tail); /* it comes from elsewhere */
                site_put(site, piece.input, buffer, bytes);
                piece.tail = site->bytes;
                piece.tail_bytes = (uint32_t)tail;
                site_launch(site, 0, sequence, ENGINE_PAYLOAD, &piece);
        }
        rig_await(rig, 0, sequence);
        for (uint32_t rank = 0; rank < rig->n; rank++) {
                struct site *site = &rig->site[rank];

                site_get(site, piece.output, buffer, bytes);
                assert_memory_equal(site->bytes, buffer + bytes - tail, tail);
                for (uint64_t i = 0; i < n; i++)
                        assert_memory_equal(buffer + i * size, outcome, size);
        }
        free(buffer);
}

static void reduce_all(struct rig *rig, uint64_t sequence, unsigned dtype, enum engine_reduce reduce) {
        reduce_n(rig, sequence, dtype, reduce, N);
}

TEST(every_reduction_of_every_type) {
        static const unsigned dtypes[] = { WIRE__DTYPE__F32,  WIRE__DTYPE__F64, WIRE__DTYPE__F16,
                                           WIRE__DTYPE__BF16, WIRE__DTYPE__I32, WIRE__DTYPE__I64,
                                           WIRE__DTYPE__U8 };
        uint64_t sequence = 0;

        rig_form(rig, 3);
        for (unsigned d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
                for (enum engine_reduce reduce = ENGINE_SUM; reduce < ENGINE_COPY; reduce++) {
                        bool floats = dtypes[d] <= WIRE__DTYPE__BF16;
                        bool can = !floats || reduce == ENGINE_SUM || reduce == ENGINE_PROD;

                        assert_int_equal(rig->site[0].engine->ops->can(rig->site[0].engine, dtypes[d],
                                                                       reduce),
                                         can);
                        if (can)
                                reduce_all(rig, ++sequence, dtypes[d], reduce);
                }
        assert_false(rig->site[0].engine->ops->can(rig->site[0].engine, WIRE__DTYPE__U8, ENGINE_COPY));
        reduce_n(rig, ++sequence, WIRE__DTYPE__F32, ENGINE_SUM, MANY); /* in several pieces */
}

TEST(a_vote_is_the_smallest_and_fillers_vote_zero) {
        rig_form(rig, 3);
        vote_and_fill(rig, 0);
}

/* Nodes hand lanes over in different order: neither waits for the other. */
TEST(lanes_do_not_wait_for_one_another) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM), other = piece;

        other.input = other.output = 2 << 20;
        rig_form(rig, 2);
        for (uint64_t sequence = 1; sequence <= 20; sequence++)
                for (uint32_t lane = 0; lane < LANES; lane++) {
                        uint32_t here = sequence % 2 ? lane : 1 - lane;

                        UNTIL(rig, sequence - rig->site[0].done[here] <= ENGINE_WINDOW);
                        site_launch(&rig->site[0], here, sequence, ENGINE_PAYLOAD, here ? &other : &piece);
                        UNTIL(rig, sequence - rig->site[1].done[1 - here] <= ENGINE_WINDOW);
                        site_launch(&rig->site[1], 1 - here, sequence, ENGINE_PAYLOAD,
                                    here ? &piece : &other);
                }
        rig_await(rig, 0, 20);
        rig_await(rig, 1, 20);
}

TEST(as_many_are_under_way_as_the_window_says) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);

        rig_form(rig, 2);
        for (uint64_t sequence = 1; sequence <= ENGINE_WINDOW; sequence++)
                site_launch(&rig->site[0], 0, sequence, ENGINE_PAYLOAD, &piece);
        assert_int_equal(site_try(&rig->site[0], 0, ENGINE_WINDOW + 1, ENGINE_PAYLOAD, &piece), -EINVAL);
        for (uint64_t sequence = 1; sequence <= ENGINE_WINDOW; sequence++)
                site_launch(&rig->site[1], 0, sequence, ENGINE_PAYLOAD, &piece);
        rig_await(rig, 0, ENGINE_WINDOW);
}

TEST(what_cannot_be_launched_is_refused) {
        const struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);
        struct engine_piece wrong[] = { piece, piece, piece, piece, piece };

        wrong[0].memory = MEMORY + 1;
        wrong[1].input = MEMORY_BYTES - 4 * N + 1;
        wrong[2].output = MEMORY_BYTES;
        wrong[3].elements = UINT64_C(1) << 40;
        wrong[4].reduce = ENGINE_COPY;
        rig_form(rig, 2);
        for (unsigned i = 0; i < array_size(wrong); i++)
                assert_int_equal(site_try(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &wrong[i]), -EINVAL);
        assert_int_equal(site_try(&rig->site[0], LANES, 1, ENGINE_PAYLOAD, &piece), -EINVAL);
        rig_launch(rig, 0, 1, &piece); /* nothing has happened */
        rig_await(rig, 0, 1);
        rig_drop(rig);
        assert_int_equal(site_try(&rig->site[0], 0, 2, ENGINE_PAYLOAD, &piece), -EINVAL);
}

/* ---- memory that is registered ---- */

/* It comes while a communicator works, and goes again: NCCL has it in between, and no longer. */
TEST(memory_comes_and_goes) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);
        cuda_address more[2];

        rig_form(rig, 2);
        piece.memory = MEMORY + 1;
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct site *site = &rig->site[rank];

                site_enter(site);
                assert_int_equal(driver.allocate(&more[rank], MEMORY_BYTES), CUDA_OK);
                assert_int_equal(site_share(site, MEMORY + 1, more[rank]), 1); /* not at once */
                UNTIL(rig, site->n_shared > 0);
        }
        rig_launch(rig, 0, 1, &piece);
        rig_await(rig, 0, 1);
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct site *site = &rig->site[rank];

                assert_false(site->engine->ops->unshare(site->engine, MEMORY + 1));
                assert_int_equal(site_try(site, 0, 2, ENGINE_PAYLOAD, &piece), -EINVAL);
                UNTIL(rig, site->n_unshared > 0);
                site_enter(site);
                assert_int_equal(driver.free(more[rank]), CUDA_OK); /* the fake would complain */
        }
        piece.memory = MEMORY;
        rig_launch(rig, 0, 2, &piece);
        rig_await(rig, 0, 2);
}

/* Memory that is given up while a communicator ends is free once that has ended. */
TEST(memory_goes_with_its_communicator) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);

        rig_form(rig, 2);
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct engine *engine = rig->site[rank].engine;

                engine->ops->abort(engine, COMM);
                if (!engine->ops->unshare(engine, MEMORY))
                        UNTIL(rig, rig->site[rank].n_unshared > 0);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                UNTIL(rig, rig->site[rank].n_aborted > 0);
}

/* ---- its end ---- */

TEST(one_follows_another) {
        rig_form(rig, 3);
        reduce_all(rig, 1, WIRE__DTYPE__F32, ENGINE_SUM);
        for (unsigned i = 0; i < 2; i++) {
                if (i % 2)
                        rig_abort(rig);
                else
                        rig_drop(rig);
                rig_build(rig);
                rig_await_built(rig);
                reduce_all(rig, 1, WIRE__DTYPE__F32, ENGINE_SUM);
        }
}

/* The second node never launches it: the others' kernels wait, and end when it is aborted. */
TEST(what_waits_for_a_node_is_aborted) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);

        rig_form(rig, 3);
        for (uint64_t sequence = 1; sequence <= 3; sequence++) {
                site_launch(&rig->site[0], 0, sequence, ENGINE_PAYLOAD, &piece);
                site_launch(&rig->site[2], 0, sequence, ENGINE_PAYLOAD, &piece);
                site_launch(&rig->site[0], 1, sequence, ENGINE_VOTE, NULL);
        }
        rig_abort(rig);
        for (uint32_t rank = 0; rank < 3; rank++) {
                assert_int_equal(rig->site[rank].done[0], 0);
                assert_int_equal(rig->site[rank].n_unreachable, 0);
        }
        rig_build(rig);
        rig_await_built(rig);
        reduce_all(rig, 1, WIRE__DTYPE__F32, ENGINE_SUM);
}

/* A kernel of another job waits for a node: meanwhile communicators end on that GPU, and are made. */
TEST(what_waits_keeps_no_other_job) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);
        struct engine_launch launch = {
                .comm = OTHER, .lane = 0, .sequence = 1, .kind = ENGINE_PAYLOAD, .piece = piece
        };

        rig_form(rig, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
                site_build_one(&rig->site[rank], OTHER, "0/other/1.1.1.1");
        for (uint32_t rank = 0; rank < 2; rank++)
                UNTIL(rig, rig->site[rank].other_built > 0);
        assert_int_equal(rig->site[0].engine->ops->launch(rig->site[0].engine, &launch), 0);
        rig_abort(rig);
        for (unsigned i = 0; i < 2; i++) {
                rig_build(rig);
                rig_await_built(rig);
                rig_launch(rig, 0, 1, NULL);
                rig_await(rig, 0, 1);
                rig_drop(rig);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                rig->site[rank].engine->ops->abort(rig->site[rank].engine, OTHER);
        for (uint32_t rank = 0; rank < 2; rank++)
                UNTIL(rig, rig->site[rank].other_aborted > 0);
}

/* All nodes launch a collective at once, so one that does not end has a reason. No node knows which one is to
 * blame. */
TEST(what_does_not_end_is_given_up) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);

        rig_configure(rig, 2);
        rig->own.config.exchange = 100;
        rig_begin(rig);
        rig_build(rig);
        rig_await_built(rig);
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        UNTIL(rig, rig->site[0].n_unreachable > 0);
        assert_lost(&rig->site[0], 1);
        assert_int_equal(rig->site[1].n_unreachable, 0);
        rig_abort(rig);
}

/* An error that NCCL reports of a communicator breaks it: later launches are not done. */
TEST(a_difference_breaks_it) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM), longer = piece;

        longer.elements++;
        rig_form(rig, 2);
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        site_launch(&rig->site[1], 0, 1, ENGINE_PAYLOAD, &longer);
        for (uint32_t rank = 0; rank < 2; rank++) {
                UNTIL(rig, rig->site[rank].n_unreachable > 0);
                assert_lost(&rig->site[rank], 1 - rank);
                assert_int_equal(site_try(&rig->site[rank], 0, 2, ENGINE_PAYLOAD, &piece), 0);
        }
        rig_abort(rig);
        assert_int_equal(rig->site[0].done[0] + rig->site[1].done[0], 0);
        rig_end(rig);
        assert_int_equal(unlink(gpu_file("log")), 0); /* the fake complains, and rightly */
}

/* ---- it is not made ---- */

static void assert_unreached(struct rig *rig, uint32_t rank, uint32_t node) {
        UNTIL(rig, rig->site[rank].n_built > 0);
        assert_lost(&rig->site[rank], node);
}

TEST(two_nodes_on_one_gpu_are_named) {
        rig_open(rig, 2);
        rig->n = 3;
        site_open(rig, 2, 1);
        rig_build(rig);
        assert_unreached(rig, 1, 2);
        assert_unreached(rig, 2, 1);
        rig_abort(rig);
}

/* A node that has not been heard of is named after the timeout. */
TEST(a_silent_node_is_named) {
        rig_configure(rig, 3);
        rig->own.config.timeout = 100;
        rig_begin(rig);
        rig->site[1].keeps_back = true;
        rig_build(rig);
        assert_unreached(rig, 0, 1);
        assert_unreached(rig, 2, 1);
        rig_abort(rig);
}

TEST(what_makes_no_sense_is_not_learned) {
        unsigned char junk[256] = "gs-nccl1", marred[4096];
        struct site *from;

        rig_open(rig, 2);
        from = &rig->site[1];
        from->keeps_back = true;
        rig_build(rig);
        UNTIL(rig, from->table != NULL);
        assert_true(from->table_bytes <= sizeof(marred));
        memcpy(marred, from->table, from->table_bytes);
        marred[0] = 'x';
        const struct {
                uint64_t comm;
                uint32_t rank;
                const void *table;
                size_t bytes;
        } wrong[] = { { COMM, 1, junk, sizeof(junk) },
                      { COMM, 1, marred, from->table_bytes },
                      { COMM, 1, from->table, 7 },
                      { COMM, 2, from->table, from->table_bytes },
                      { COMM, 0, from->table, from->table_bytes },
                      { COMM + 1, 1, from->table, from->table_bytes } };
        for (unsigned i = 0; i < array_size(wrong); i++)
                assert_int_equal(rig->site[0].engine->ops->learn(rig->site[0].engine, wrong[i].comm,
                                                                 wrong[i].rank, wrong[i].table,
                                                                 wrong[i].bytes),
                                 -EINVAL);
        rig_spread(from);
        rig_spread(from); /* once or more */
        rig_await_built(rig);
        assert_int_equal(rig->site[0].n_lost + from->n_lost, 0);
}

/* One communicator ends at once, and the other one much later, because its peer does not end it. The later
 * one reports its end after the earlier one. */
TEST(communicators_end_one_after_the_other_at_close) {
        rig_form(rig, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
                site_build_one(&rig->site[rank], OTHER, "0/other/1.1.1.1");
        UNTIL(rig, rig->site[0].other_built && rig->site[1].other_built);
        for (uint32_t rank = 0; rank < 2; rank++)
                site_unshare(&rig->site[rank], MEMORY);
        rig_drop(rig);
        rig->site[0].engine->ops->drop(rig->site[0].engine, OTHER);
        site_close(&rig->site[0]);
        rig->site[1].engine->ops->drop(rig->site[1].engine, OTHER);
        site_close(&rig->site[1]);
        rig->n = 0;
}

/* Aborted in the middle of it: NCCL waits for a rank that does not come. */
TEST(what_is_being_made_is_aborted) {
        rig_open(rig, 3);
        rig_build(rig);
        UNTIL(rig, rig->site[0].table != NULL && rig->site[1].table != NULL && rig->site[2].table != NULL);
        rig_abort(rig);
        rig_build(rig);
        rig_await_built(rig);
        reduce_all(rig, 1, WIRE__DTYPE__F32, ENGINE_SUM);
}

/* NCCL has been given a collective, and never says that it has taken it. */
TEST(what_is_not_taken_is_aborted) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, ENGINE_SUM);

        rig_form(rig, 3);
        stick_at("collective");
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        await_stuck();
        rig_abort(rig);
        set_trouble("", "");
        rig_build(rig);
        rig_await_built(rig);
        reduce_all(rig, 1, WIRE__DTYPE__F32, ENGINE_SUM);
        assert_int_equal(rig->site[0].own.n_failed, 0);
}

/* ---- libraries ---- */

static int try_library(const char *library) {
        struct nccl_engine_config config = { .host = "here", .driver = FAKE_GPU_LIBRARY, .library = library };
        char uuid[CUDA_UUID_TEXT];
        struct engine *engine;

        uuid_of(0, uuid);
        config.uuid = uuid;
        return nccl_open(&config, &engine, error, sizeof(error));
}

TEST(libraries_that_will_not_do_are_named) {
        assert_int_equal(try_library("/nowhere/libnccl.so.2"), -ENOENT);
        assert_non_null(strstr(error, "NCCL cannot be loaded: /nowhere/libnccl.so.2: cannot open"));
        assert_int_equal(try_library(FAKE_NCCL_OLD), -ENOSYS);
        assert_non_null(strstr(error, "is NCCL 2.17.0; 2.18.0 or newer is needed"));
        assert_int_equal(try_library(FAKE_NCCL_LACKING), -ENOSYS);
        assert_non_null(strstr(error, "which is NCCL 2.28.9, lacks ncclCommSplit"));
        assert_int_equal(try_library(FAKE_GPU_LIBRARY), -ENOSYS);
        assert_non_null(strstr(error, "does not tell the version of NCCL that it is"));
}
