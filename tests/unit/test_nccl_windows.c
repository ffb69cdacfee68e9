/* SPDX-License-Identifier: Apache-2.0 */
/* Small sums of floats go through a window of NCCL's, if all nodes have one, and otherwise beside it. The log
 * says which of the two it was. The fake notices nodes that differ. */
#include "nccl_fixture.h"

#define SLOT 524288u  /* bytes, for payloads of any size */
#define OTHER_PLACE 0 /* neutral elements, the input of a node that gives nothing */
#define OUTSIDE 1     /* the output of a node that wants nothing */
#define HERE 2        /* the first slot of all other nodes */
#define REGISTERS "ncclCommWindowRegister:0:3"
#define TIMEOUT 5000 /* ms: what comes before windows takes a small part of it */

/* ---- what they do ---- */

static struct engine_piece piece_of(unsigned dtype, uint64_t elements, bool idle) {
        return (struct engine_piece){ .memory = MEMORY,
                                      .input = (idle ? OTHER_PLACE : HERE) * (uint64_t)SLOT,
                                      .output = (idle ? OUTSIDE : HERE) * (uint64_t)SLOT,
                                      .elements = elements,
                                      .dtype = dtype,
                                      .reduce = ENGINE_SUM };
}

/* The last rank gives nothing, and wants nothing, as a node without members does. */
static bool site_is_idle(const struct site *site) {
        return site_rank(site) + 1 == site->rig->n;
}

static void put(struct rig *rig, uint64_t n) {
        float *value = calloc(n, sizeof(*value));

        assert_non_null(value);
        EACH_SITE(rig, site) {
                for (uint64_t i = 0; i < n; i++)
                        value[i] = site_is_idle(site) ? 0 : (float)(i % 100 + site_rank(site));
                site_put(site, (site_is_idle(site) ? OTHER_PLACE : HERE) * (uint64_t)SLOT, value,
                         n * sizeof(*value));
        }
        free(value);
}

static void assert_sums(struct rig *rig, uint64_t n) {
        float *value = calloc(n, sizeof(*value));

        assert_non_null(value);
        EACH_SITE(rig, site) {
                site_get(site, (site_is_idle(site) ? OUTSIDE : HERE) * (uint64_t)SLOT, value,
                         n * sizeof(*value));
                for (uint64_t i = 0; i < n; i++)
                        assert_float_equal(value[i],
                                           (float)((rig->n - 1) * (i % 100) +
                                                   (rig->n - 1) * (rig->n - 2) / 2),
                                           0);
        }
        free(value);
}

static void sum_up(struct rig *rig, uint32_t lane, uint64_t sequence, uint64_t n) {
        put(rig, n);
        EACH_SITE(rig, site) {
                struct engine_piece piece = piece_of(WIRE__DTYPE__F32, n, site_is_idle(site));

                site_launch(site, lane, sequence, ENGINE_PAYLOAD, &piece);
        }
        rig_await(rig, lane, sequence);
        assert_sums(rig, n);
}

/* Does more sums than fit under way, so that places are used again, of sizes on both sides of a window's
 * limit. */
static void sum_up_often(struct rig *rig) {
        static const uint64_t sizes[] = { 1, 1000, TABLE_PANE / sizeof(float),
                                          TABLE_PANE / sizeof(float) + 1 };

        for (uint32_t lane = 0; lane < LANES; lane++)
                for (uint64_t sequence = 1; sequence <= 2 * ENGINE_WINDOW + 1; sequence++)
                        sum_up(rig, lane, sequence, sizes[sequence % 4]);
}

/* Returns whether all communicators that were made since the last call have windows. Fails if only some
 * have. */
static bool had_windows(void) {
        const char *text = logged();
        bool some = strstr(text, ", with windows for small sums, in ") != NULL;
        bool others = strstr(text, " nodes, in ") != NULL;

        assert_true(some != others);
        return some;
}

static void go_on(struct rig *rig, bool windows) {
        logged();
        rig_build(rig);
        rig_await_made(rig);
        assert_int_equal(had_windows(), windows);
        sum_up_often(rig);
}

static void work(struct rig *rig, bool windows) {
        rig_begin(rig);
        go_on(rig, windows);
}

static void build_in_vain(struct rig *rig, const char *fail, const char *stuck, uint32_t timeout) {
        rig_configure(rig, 3);
        rig->own.config.timeout = timeout;
        rig_begin(rig);
        set_trouble(fail, stuck);
        rig_build(rig);
        if (timeout != LONG_AGO)
                rig_await_built(rig);
        UNTIL(rig, rig->site[0].n_built > 0 || rig->site[1].n_built > 0 || rig->site[2].n_built > 0);
        rig_abort(rig);
        rig->comm++;
}

/* ---- tests: two of which count calls from the beginning of this process on ---- */

/* Where one GPU has no memory left for it, all do without, and ask NCCL for nothing. */
TEST(without_memory_there_are_none) {
        rig_configure(rig, 3);
        set_trouble("ncclMemAlloc:1:1," REGISTERS, "");
        work(rig, false);
}

/* One failure is enough: the next communicators have no windows, although NCCL could make them again. */
TEST(what_fails_is_not_tried_again) {
        build_in_vain(rig, "ncclCommWindowRegister:1:3", "", LONG_AGO);
        set_trouble("", "");
        go_on(rig, false);
}

TEST(small_sums_go_through_them) {
        rig_configure(rig, 4);
        work(rig, true);
}

union element {
        float number;
        int32_t integer;
};

static union element element_of(bool floats, int32_t value) {
        return floats ? (union element){ .number = (float)value } : (union element){ .integer = value };
}

/* Several at once, each of its own type: integers and products are for no window. */
TEST(all_types_and_operations_are_right) {
        union element element[512];

        rig_form(rig, 2);
        assert_true(had_windows());
        for (uint64_t sequence = 1; sequence <= 8; sequence++) {
                bool floats = sequence % 2 == 0;
                struct engine_piece piece = { .memory = MEMORY,
                                              .input = sequence * 4096,
                                              .output = (sequence + 8) * 4096,
                                              .elements = 512,
                                              .dtype = floats ? WIRE__DTYPE__F32 : WIRE__DTYPE__I32,
                                              .reduce = sequence % 4 < 2 ? ENGINE_SUM : ENGINE_PROD };
                EACH_SITE(rig, site) {
                        for (unsigned i = 0; i < 512; i++)
                                element[i] =
                                        element_of(floats, (int32_t)(i + 3 * site_rank(site) + sequence));
                        site_put(site, piece.input, element, sizeof(element));
                }
                rig_launch(rig, 0, sequence, &piece);
        }
        rig_await(rig, 0, 8);
        for (uint64_t sequence = 1; sequence <= 8; sequence++)
                EACH_SITE(rig, site) {
                        site_get(site, (sequence + 8) * 4096, element, sizeof(element));
                        for (unsigned i = 0; i < 512; i++) {
                                int32_t first = (int32_t)(i + sequence), second = first + 3;
                                int32_t wanted = sequence % 4 < 2 ? first + second : first * second;

                                assert_int_equal(element[i].integer,
                                                 element_of(sequence % 2 == 0, wanted).integer);
                        }
                }
}

/* The end of a payload comes from memory of the CPU, and goes there. */
TEST(a_tail_goes_with_them) {
        struct engine_piece piece = piece_of(WIRE__DTYPE__F32, 100, false);
        float value = 4;

        rig_form(rig, 2);
        assert_true(had_windows());
        put(rig, 100);
        EACH_SITE(rig, site) {
                memcpy(site->bytes, &value, sizeof(value));
                piece.tail = site->bytes;
                piece.tail_bytes = sizeof(value);
                site_launch(site, 0, 1, ENGINE_PAYLOAD, &piece);
        }
        rig_await(rig, 0, 1);
        EACH_SITE(rig, site) {
                memcpy(&value, site->bytes, sizeof(value));
                assert_float_equal(value, 8, 0);
        }
}

TEST(an_older_library_has_none) {
        rig_configure(rig, 3);
        rig->own.config.library = FAKE_NCCL_PLAIN;
        work(rig, false);
}

TEST(where_nccl_has_no_use_for_them_there_are_none) {
        rig_configure(rig, 3);
        setenv("NCCL_WIN_ENABLE", "0", 1);
        work(rig, false);
        setenv("NCCL_WIN_ENABLE", "1", 1);
}

/* NCCL is not asked for windows. */
TEST(between_hosts_there_are_none) {
        rig_configure(rig, 3);
        set_trouble(REGISTERS, "");
        for (uint32_t rank = 0; rank < rig->n; rank++) {
                rig->own.config.host = rank == 1 ? "there" : "here";
                site_open(rig, rank, rank);
        }
        rig_build(rig);
        rig_await_built(rig);
        assert_false(had_windows());
        sum_up_often(rig);
}

TEST(nor_is_what_does_not_end) {
        build_in_vain(rig, "", "window", TIMEOUT);
        set_trouble(REGISTERS, "");
        go_on(rig, false);
}

static void await_stuck_window(struct rig *rig) {
        stick_at("window");
        rig_build(rig);
        EACH_SITE(rig, site)
        UNTIL(rig, site->table != NULL);
        await_stuck();
}

/* The end of a node meanwhile is no failure of windows. */
TEST(what_is_aborted_may_be_tried_again) {
        rig_configure(rig, 3);
        rig_begin(rig);
        await_stuck_window(rig);
        rig_abort(rig);
        set_trouble("", "");
        rig->comm++;
        go_on(rig, true);
}
