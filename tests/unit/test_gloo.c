/* SPDX-License-Identifier: Apache-2.0 */
/* Results of the engine of Gloo, with real helper processes: every reduction of every type, on every number
 * of nodes and lanes. */
#include "gloo_fixture.h"

#include "kernel/kernel.h"

#define DTYPES (WIRE__DTYPE__U8 + 1)
#define GATHERED (64u << 10) /* bytes of all nodes together: more go around a ring */

/* Fills in values for which every order of additions gives the same bits: floats have few bits, integers any.
 * Minimum and maximum get some NaN, too. */
static void fill(unsigned char *to, unsigned dtype, unsigned reduce, uint64_t elements, uint32_t rank) {
        for (uint64_t i = 0; i < elements; i++) {
                uint64_t bits = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) * (rank + 1);
                int small =
                        reduce == ENGINE_PROD ? 1 << ((i + rank) % 3) : (int)((i * 7 + rank * 5) % 41) - 20;
                bool nan = (reduce == ENGINE_MIN || reduce == ENGINE_MAX) && (i + rank) % 11 == 3;
                float f = nan ? __builtin_nanf("") : (float)small;
                double d = nan ? __builtin_nan("") : small;
                uint32_t as_f;

                memcpy(&as_f, &f, sizeof(as_f));
                switch (dtype) {
                case WIRE__DTYPE__F32: memcpy(to + 4 * i, &f, 4); break;
                case WIRE__DTYPE__F64: memcpy(to + 8 * i, &d, 8); break;
                case WIRE__DTYPE__BF16: memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(as_f >> 16) }, 2); break;
                case WIRE__DTYPE__F16: {
                        uint16_t magnitude = (uint16_t)(((as_f & 0x7fffffff) - (112u << 23)) >> 13);

                        if (small == 0 && !nan)
                                magnitude = 0;
                        if (nan)
                                magnitude = 0x7e00;
                        memcpy(to + 2 * i, &(uint16_t){ magnitude | (uint16_t)(as_f >> 16 & 0x8000) }, 2);
                        break;
                }
                case WIRE__DTYPE__I32: memcpy(to + 4 * i, &bits, 4); break;
                case WIRE__DTYPE__I64: memcpy(to + 8 * i, &bits, 8); break;
                default: to[i] = (unsigned char)(bits >> 56);
                }
        }
}

#define TEST(name) RIG_TEST(name, capture, release)

struct sum {
        unsigned dtype, reduce;
        uint64_t elements, input, output;
};

/* In the order of the ranks, by folds that have a test of their own. */
static unsigned char *reference(const struct sum *sum, uint32_t n) {
        static const enum kernel_op op[] = { [ENGINE_SUM] = KERNEL_ADD,
                                             [ENGINE_MIN] = KERNEL_MIN,
                                             [ENGINE_MAX] = KERNEL_MAX,
                                             [ENGINE_PROD] = KERNEL_MUL };
        kernel_fn fold = kernel_find("baseline")->fold[sum->dtype][op[sum->reduce]];
        size_t bytes = sum->elements * kernel_size(sum->dtype);
        unsigned char *to = malloc(bytes), *from = malloc(bytes);

        fill(to, sum->dtype, sum->reduce, sum->elements, 0);
        for (uint32_t rank = 1; rank < n; rank++) {
                fill(from, sum->dtype, sum->reduce, sum->elements, rank);
                kernel_fold(fold, kernel_size(sum->dtype), to, to, from, sum->elements);
        }
        free(from);
        return to;
}

static uint64_t next_on[LANES];

static void begin_sum(struct rig *rig, uint32_t lane, const struct sum *sum) {
        struct engine_piece piece = { .memory = MEMORY,
                                      .input = sum->input,
                                      .output = sum->output,
                                      .elements = sum->elements,
                                      .dtype = sum->dtype,
                                      .reduce = (enum engine_reduce)sum->reduce };

        for (uint32_t rank = 0; rank < rig->n; rank++) {
                memset(rig->site[rank].bytes + sum->output, 0x5a,
                       sum->elements * kernel_size(sum->dtype) + 1);
                fill(rig->site[rank].bytes + sum->input, sum->dtype, sum->reduce, sum->elements, rank);
        }
        rig_launch(rig, lane, ++next_on[lane], &piece);
}

static void end_sum(struct rig *rig, uint32_t lane, const struct sum *sum) {
        size_t bytes = sum->elements * kernel_size(sum->dtype);
        unsigned char *wanted = reference(sum, rig->n);

        rig_await(rig, lane, next_on[lane]);
        for (uint32_t rank = 0; rank < rig->n; rank++)
                if (memcmp(rig->site[rank].bytes + sum->output, wanted, bytes) != 0)
                        FAIL("%u nodes, type %u, reduction %u, %lu elements: rank %u has another result",
                             rig->n, sum->dtype, sum->reduce, (unsigned long)sum->elements, rank);
        free(wanted);
}

static void sum_on(struct rig *rig, uint32_t lane, const struct sum *sum) {
        begin_sum(rig, lane, sum);
        end_sum(rig, lane, sum);
}

static void form(struct rig *rig, uint32_t n, uint32_t n_lanes) {
        memset(next_on, 0, sizeof(next_on));
        rig_form(rig, n, n_lanes);
}

/* One element, an odd number, the most that is gathered, one more, and many. In place, and not. */
static void sum_sizes(struct rig *rig, unsigned dtype, unsigned reduce) {
        uint64_t gathered = GATHERED / kernel_size(dtype) / rig->n;
        uint64_t size[] = { 1, 7, 1001, gathered, gathered + 1, 30011 + 7 * rig->n };

        for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++) {
                struct sum sum = { dtype, reduce, size[i], 4096, i % 2 ? 4096 : MEMORY_BYTES / 2 };

                sum_on(rig, 0, &sum);
        }
}

TEST(every_reduction_of_every_type_on_every_number_of_nodes) {
        for (uint32_t n = 2; n <= SITES; n++) {
                form(rig, n, 1);
                for (unsigned dtype = 1; dtype < DTYPES; dtype++)
                        for (unsigned reduce = ENGINE_SUM; reduce <= ENGINE_PROD; reduce++)
                                sum_sizes(rig, dtype, reduce);
        }
}

/* Sums that are rounded: whatever the order is, it is the same for all. */
TEST(all_nodes_have_the_same_bits) {
        uint64_t sizes[] = { 999, 300007 };

        form(rig, 3, 1);
        for (unsigned i = 0; i < 2; i++) {
                struct engine_piece piece = { .memory = MEMORY,
                                              .elements = sizes[i],
                                              .dtype = WIRE__DTYPE__F32,
                                              .reduce = ENGINE_SUM };
                for (uint32_t rank = 0; rank < 3; rank++)
                        for (uint64_t at = 0; at < sizes[i]; at++)
                                ((float *)rig->site[rank].bytes)[at] =
                                        1.f / (float)(at % 1000 + 3 * rank + 1);
                rig_launch(rig, 0, i + 1, &piece);
                rig_await(rig, 0, i + 1);
                for (uint32_t rank = 0; rank < 3; rank++) {
                        assert_memory_equal(rig->site[rank].bytes, rig->site[0].bytes, sizes[i] * 4);
                        float sum = 1.f + 1.f / 4 + 1.f / 7, got = *(float *)rig->site[rank].bytes;
                        assert_true(got > sum * 0.999999f && got < sum * 1.000001f);
                }
        }
}

TEST(a_copy_has_any_root) {
        uint64_t elements[] = { 1, 5003, 400001 }, sequence = 0;

        form(rig, 4, 1);
        for (unsigned i = 0; i < 3; i++)
                for (uint32_t root = 0; root < 4; root++) {
                        struct engine_piece piece = { .memory = MEMORY,
                                                      .input = root % 2 ? 0 : 1 << 20,
                                                      .elements = elements[i],
                                                      .dtype = WIRE__DTYPE__U8,
                                                      .reduce = ENGINE_COPY,
                                                      .root = root };
                        for (uint32_t rank = 0; rank < 4; rank++)
                                for (uint64_t at = 0; at < elements[i]; at++)
                                        rig->site[rank].bytes[piece.input + at] =
                                                (unsigned char)(at * 31 + rank + 1);
                        rig_launch(rig, 0, ++sequence, &piece);
                        rig_await(rig, 0, sequence);
                        for (uint32_t rank = 0; rank < 4; rank++)
                                for (uint64_t at = 0; at < elements[i]; at++)
                                        if (rig->site[rank].bytes[at] != (unsigned char)(at * 31 + root + 1))
                                                FAIL("root %u, rank %u, byte %lu", root, rank,
                                                     (unsigned long)at);
                }
}

TEST(a_vote_is_the_smallest_and_fillers_vote_zero) {
        form(rig, 3, 2);
        vote_and_fill(rig, 1);
}

/* A sum of 32-bit integers that lies at this place of each node. */
static struct engine_piece integers(uint64_t at, uint64_t elements) {
        return (struct engine_piece){ .memory = MEMORY,
                                      .input = at,
                                      .output = at,
                                      .elements = elements,
                                      .dtype = WIRE__DTYPE__I32,
                                      .reduce = ENGINE_SUM };
}

/* The element i is i * factor + plus. */
static void put_integers(struct site *site, const struct engine_piece *piece, uint32_t factor,
                         uint32_t plus) {
        uint32_t *to = (uint32_t *)(void *)(site->bytes + piece->input);

        for (uint32_t i = 0; i < piece->elements; i++)
                to[i] = i * factor + plus;
}

static void check_integers(const struct site *site, const struct engine_piece *piece, uint32_t factor,
                           uint32_t plus) {
        const uint32_t *from = (const uint32_t *)(const void *)(site->bytes + piece->output);

        for (uint32_t i = 0; i < piece->elements; i++)
                assert_int_equal(from[i], i * factor + plus);
}

/* A filler gives its input like any other. */
TEST(fillers_take_part_in_a_payload) {
        struct engine_piece piece = integers(0, 70001);

        form(rig, 3, 1);
        for (uint32_t rank = 0; rank < 3; rank++) {
                put_integers(&rig->site[rank], &piece, rank + 1, 0);
                site_launch(&rig->site[rank], 0, 1, rank == 2 ? ENGINE_FILLER : ENGINE_PAYLOAD, &piece);
        }
        rig_await(rig, 0, 1);
        check_integers(&rig->site[0], &piece, 6, 0);
}

/* Each node begins with another lane. */
TEST(lanes_do_not_wait_for_one_another) {
        struct engine_piece piece[LANES];

        form(rig, 3, LANES);
        for (uint32_t lane = 0; lane < LANES; lane++) {
                piece[lane] = integers(lane << 21, 1 + lane * 50000);
                for (uint32_t rank = 0; rank < 3; rank++)
                        put_integers(&rig->site[rank], &piece[lane], lane + 1, rank);
        }
        for (uint32_t rank = 0; rank < 3; rank++)
                for (uint32_t i = 0; i < LANES; i++) {
                        uint32_t lane = (i + rank) % LANES;

                        site_launch(&rig->site[rank], lane, 1, ENGINE_PAYLOAD, &piece[lane]);
                        site_launch(&rig->site[rank], lane, 2, ENGINE_VOTE, NULL);
                }
        for (uint32_t lane = 0; lane < LANES; lane++) {
                rig_await(rig, lane, 2);
                for (uint32_t rank = 0; rank < 3; rank++)
                        check_integers(&rig->site[rank], &piece[lane], (lane + 1) * 3, 3);
        }
}

/* Lane 1 has only what one node has launched. */
TEST(a_lane_goes_on_while_another_waits) {
        struct sum sum = { WIRE__DTYPE__F64, ENGINE_SUM, 40009, 0, 0 };

        form(rig, 2, 2);
        site_launch(&rig->site[0], 1, 1, ENGINE_VOTE, NULL);
        for (unsigned i = 0; i < 10; i++)
                sum_on(rig, 0, &sum);
        assert_int_equal(rig->site[0].done[1] + rig->site[1].done[1], 0);
        site_launch(&rig->site[1], 1, 1, ENGINE_VOTE, NULL);
        rig_await(rig, 1, 1);
}

/* Eight at a time on a lane, in the order of their numbers: large ones, which go around, and between them
 * small ones, which end before those that they follow. */
TEST(many_are_under_way) {
        struct sum sum[8];

        form(rig, 2, 1);
        for (unsigned i = 0; i < 8; i++) {
                sum[i] = (struct sum){ WIRE__DTYPE__BF16, ENGINE_SUM, i % 2 ? i : 500001 + i, i << 20,
                                       i << 20 };
                begin_sum(rig, 0, &sum[i]);
        }
        for (unsigned i = 0; i < 8; i++)
                end_sum(rig, 0, &sum[i]);
}

/* A node with nothing to give and no use for what comes of it has one place for all of that. */
TEST(what_nobody_wants_has_one_place) {
        struct engine_piece piece[8];

        form(rig, 3, 1);
        for (unsigned i = 0; i < 8; i++)
                for (uint32_t rank = 0; rank < 3; rank++) {
                        struct engine_piece own = piece[i] = integers(i << 20, 250000 + i);

                        if (rank == 1) {
                                own.input = 9 << 20; /* zeros */
                                own.output = 11 << 20;
                        } else
                                put_integers(&rig->site[rank], &own, i + 1, rank);
                        site_launch(&rig->site[rank], 0, i + 1, ENGINE_PAYLOAD, &own);
                }
        rig_await(rig, 0, 8);
        for (unsigned i = 0; i < 8; i++)
                for (uint32_t rank = 0; rank < 3; rank += 2)
                        check_integers(&rig->site[rank], &piece[i], (i + 1) * 2, 2);
}

/* ---- memory ---- */

static bool maps(pid_t pid, const char *name) {
        char path[64], line[512];
        bool found = false;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file) != NULL)
                found |= strstr(line, name) != NULL;
        fclose(file);
        return found;
}

/* A running helper gets the memory by its descriptor, and lets go of it again. */
TEST(memory_is_shared_and_let_go_of) {
        struct engine_piece piece = {
                .memory = 8, .elements = 1000, .dtype = WIRE__DTYPE__I32, .reduce = ENGINE_SUM
        };
        pid_t helper[2] = { 0 };
        int late[2];

        form(rig, 2, 1);
        assert_int_equal(children(helper, 2), 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
                late[rank] = memfd_create("late", MFD_CLOEXEC);
                assert_int_equal(ftruncate(late[rank], 4096), 0);
                for (uint32_t at = 0; at < 1000; at++)
                        assert_int_equal(pwrite(late[rank], &at, 4, 4 * at), 4);
                struct engine_memory memory = { NULL, late[rank], 4096 };
                struct engine *engine = rig->site[rank].engine;
                assert_int_equal(engine->ops->share(engine, 8, &memory), 0);
        }
        rig_launch(rig, 0, 1, &piece);
        rig_await(rig, 0, 1);
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct engine *engine = rig->site[rank].engine;
                uint32_t got;

                assert_int_equal(pread(late[rank], &got, 4, 4 * 777), 4);
                assert_int_equal(got, 2 * 777);
                assert_true(maps(helper[rank], "memfd:late"));
                engine->ops->unshare(engine, 8);
                close(late[rank]);
        }
        rig_launch(rig, 0, 2, NULL); /* they have heard what was said before */
        rig_await(rig, 0, 2);
        assert_false(maps(helper[0], "memfd:late") || maps(helper[1], "memfd:late"));
        assert_true(maps(helper[0], "memfd:site") && maps(helper[1], "memfd:site"));
}

TEST(no_piece_lies_outside_of_memory) {
        struct engine_piece pieces[] = {
                { .memory = MEMORY, .input = MEMORY_BYTES - 4, .elements = 2, .dtype = WIRE__DTYPE__I32 },
                { .memory = MEMORY, .output = UINT64_MAX - 2, .elements = 2, .dtype = WIRE__DTYPE__I32 },
                { .memory = MEMORY, .elements = UINT64_MAX / 4 + 2, .dtype = WIRE__DTYPE__I32 },
                { .memory = 99, .elements = 1, .dtype = WIRE__DTYPE__I32 },
                { .memory = MEMORY, .elements = 1, .dtype = DTYPES },
        };

        for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
                form(rig, 2, 1);
                site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &pieces[i]);
                UNTIL(rig, rig->site[0].n_unreachable > 0);
                assert_lost(&rig->site[0], 1);
                assert_non_null(strstr(written(), "a piece does not lie in memory that is shared"));
                rig_abort(rig);
        }
}

TEST(what_cannot_be_launched_is_refused) {
        struct engine_launch launch = { .comm = COMM, .lane = 1, .sequence = 1, .kind = ENGINE_VOTE };

        form(rig, 2, 1);
        struct engine *engine = rig->site[0].engine;
        assert_int_equal(engine->ops->launch(engine, &launch), -EINVAL);
        launch.lane = 0;
        launch.piece.root = 2;
        assert_int_equal(engine->ops->launch(engine, &launch), -EINVAL);
        launch.piece.root = 0;
        launch.comm = COMM + 1;
        assert_int_equal(engine->ops->launch(engine, &launch), -EINVAL);
        assert_string_equal(engine->ops->name, "gloo");
}
