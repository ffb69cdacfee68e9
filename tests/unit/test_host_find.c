/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the first value that is not finite: each type and instruction set, wherever the task is done. */
#include "host_fixture.h"
#include "tests.h"

#include "backend/host/task.h"
#include "base/cleanup.h"
#include "kernel/kernel.h"

#define BYTES (UINT64_C(5) << 20)

/* The bits of NaN, infinity, its negative, and the largest number that there is. */
static const struct {
        unsigned dtype;
        size_t size;
        uint64_t nan, infinity, negative, largest;
} types[] = {
        { WIRE__DTYPE__F32, 4, 0x7fc00001, 0x7f800000, 0xff800000, 0x7f7fffff },
        { WIRE__DTYPE__F64, 8, 0x7ff8000000000001, 0x7ff0000000000000, 0xfff0000000000000,
          0x7fefffffffffffff },
        { WIRE__DTYPE__F16, 2, 0x7e01, 0x7c00, 0xfc00, 0x7bff },
        { WIRE__DTYPE__BF16, 2, 0x7fc1, 0x7f80, 0xff80, 0x7f7f },
};

static struct backend_task search(const struct backend_range *range, unsigned dtype, uint64_t elements) {
        struct backend_task task = task_on(range, 1, dtype, WIRE__REDUCE__REDUCE_NONE, elements);
        task.n_outputs = 0;
        task.find = true;
        return task;
}

static uint64_t found_by(struct backend *backend, struct done *done, const struct backend_task *task) {
        fixture_run(backend, done, task);
        assert_false(done->at[done->n - 1].cancelled);
        return done->at[--done->n].found;
}

static void put(const struct member *member, size_t size, uint64_t element, uint64_t bits) {
        memcpy(member->map + element * size, &bits, size);
}

/* On the loop thread, by a worker in small slices, and in large ones. */
static const uint64_t sizes[] = { 1, 15, 511, 512, 513, 40000, 131072 + 5, 600001 };

/* One such value at each place in turn, with numbers that are nearly like it around. */
static void try_places(struct backend *backend, struct done *done, const struct member *member, unsigned t) {
        struct backend_range range = { member->arena, 0 };
        size_t size = types[t].size;
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                uint64_t n = sizes[i], places[] = { 0, n / 2, n > 512 ? 511 : 0, n > 512 ? 512 : 0, n - 1 };
                struct backend_task task = search(&range, types[t].dtype, n);
                for (uint64_t at = 0; at < n; at++)
                        put(member, size, at, types[t].largest);
                assert_int_equal(found_by(backend, done, &task), BACKEND_NOWHERE);
                for (unsigned k = 0; k < sizeof places / sizeof places[0]; k++) {
                        uint64_t bits[] = { types[t].nan, types[t].infinity, types[t].negative };
                        put(member, size, places[k], bits[k % 3]);
                        task = search(&range, types[t].dtype, n);
                        assert_int_equal(found_by(backend, done, &task), places[k]);
                        put(member, size, n - 1, types[t].infinity);
                        assert_int_equal(found_by(backend, done, &task), places[k]);
                        put(member, size, n - 1, types[t].largest);
                        put(member, size, places[k], types[t].largest);
                }
        }
}

TEST_ALONE(test_first_of_each_type) {
        static const char *const sets[] = { "baseline", "avx2", "avx512" };
        struct done *done = malloc(sizeof *done);
        for (unsigned i = 0; i < sizeof sets / sizeof sets[0]; i++) {
                struct backend *backend;
                struct member member;
                if (!kernel_find(sets[i]))
                        continue;
                setenv("GRADSYNC_SIMD", sets[i], 1);
                backend = fixture_open(2, done);
                member = member_new(backend, BYTES);
                for (unsigned t = 0; t < sizeof types / sizeof types[0]; t++)
                        try_places(backend, done, &member, t);
                member_free(backend, &member);
                backend->ops->close(backend);
        }
        unsetenv("GRADSYNC_SIMD");
        free(done);
}

/* Workers may find elements in other slices at the same time, which does not change the result. The search
 * leaves out elements before `first`, and counts from the start of the range. */
MEMBER_TEST(test_the_first_of_many, 3, BYTES) {
        struct backend_range range = { member->arena, 64 };
        struct backend_task task = search(&range, WIRE__DTYPE__F32, 0);
        uint64_t n = BYTES / 4 - 16, seed = 11;
        for (unsigned turn = 0; turn < 300; turn++) {
                uint64_t lowest = BACKEND_NOWHERE, at;
                task.first = random_next(&seed) % n;
                task.elements = n - task.first;
                memset(member->map, 0, BYTES);
                for (unsigned i = 0; i < 6; i++) {
                        at = random_next(&seed) % n;
                        put(member, 4, 16 + at, types[0].nan);
                        if (at >= task.first && at < lowest)
                                lowest = at;
                }
                assert_int_equal(found_by(backend, done, &task), lowest);
        }
}

/* The search reads nothing after the first element: holes there stay holes. In huge pages one read makes 2
 * MiB. */
MEMBER_TEST(test_it_ends_with_what_it_has_found, 1, 8 * BYTES) {
        struct backend_range range = { member->arena, 0 };
        struct backend_task task = search(&range, WIRE__DTYPE__F64, 8 * BYTES / 8);
        put(member, 8, 5, types[1].nan);
        punch(member->arena, ARENA_PAGE, 8 * BYTES - ARENA_PAGE);
        assert_int_equal(found_by(backend, done, &task), 5);
        assert_true(touched(member->arena) <= (UINT64_C(4) << 20));
}

/* Holes cancel a search, as they cancel any task. */
MEMBER_TEST(test_holes_end_it, 2, 3 * TASK_LOOK_SLICES * KERNEL_SLICE_BYTES) {
        uint64_t bytes = member->bytes;
        struct backend_range range = { member->arena, 0 };
        struct backend_task task = search(&range, WIRE__DTYPE__F32, bytes / 4);
        put(member, 4, bytes / 4 - 1, types[0].nan);
        assert_int_equal(found_by(backend, done, &task), bytes / 4 - 1);
        punch(member->arena, 0, bytes);
        fixture_run(backend, done, &task);
        assert_true(done->at[0].cancelled);
        assert_ptr_equal(done->at[0].withdrawn, member->arena);
        assert_int_equal(done->at[0].found, BACKEND_NOWHERE);
        assert_int_equal(touched(member->arena), 0);
}

/* A search is cancelled by its id, whether it is queued, at work or done. Its result is the right one, or
 * none. */
MEMBER_TEST(test_cancel, 2, BYTES) {
        struct backend_range range = { member->arena, 0 };
        put(member, 4, BYTES / 4 - 1, types[0].nan);
        for (unsigned i = 0; i < 200; i++) {
                struct backend_task task = search(&range, WIRE__DTYPE__F32, BYTES / 4);
                struct backend_result result;
                assert_int_equal(backend->compute->submit(backend, &task, &result), 0);
                for (unsigned turn = 0; turn < i; turn++)
                        sched_yield();
                backend->compute->cancel(backend, task.id);
                fixture_wait(backend, done, i + 1);
                assert_int_equal(done->at[i].id, task.id);
                assert_int_equal(done->at[i].found, done->at[i].cancelled ? BACKEND_NOWHERE : BYTES / 4 - 1);
        }
}

/* A room for a task holds each one that is smaller, though that may be cut finer. */
TEST_ALONE(test_room) {
        struct backend_task task = { .dtype = WIRE__DTYPE__F32, .n_inputs = 1, .n_outputs = 1 };
        size_t most = 0;
        for (task.elements = 1; task.elements < 4 * BYTES / 4; task.elements += 4001) {
                size_t room = task_room(&task);
                assert_true(room >= most);
                most = room;
        }
}

MEMBER_TEST(test_refused, 1, BYTES) {
        struct backend_range range[2] = { { member->arena, 0 }, { member->arena, 0 } };
        struct backend_task wrong[5];
        struct backend_result result;
        for (unsigned i = 0; i < 5; i++)
                wrong[i] = search(range, WIRE__DTYPE__F32, 100);
        wrong[0].dtype = WIRE__DTYPE__I32;
        wrong[1].dtype = WIRE__DTYPE__U8;
        wrong[2].n_outputs = 1;
        wrong[2].outputs = range;
        wrong[3].n_inputs = 2;
        wrong[4].reduce = WIRE__REDUCE__SUM;
        for (unsigned i = 0; i < 5; i++) {
                assert_int_equal(backend->compute->submit(backend, &wrong[i], &result), -EINVAL);
                wrong[i].elements = BYTES / 8;
                assert_int_equal(backend->compute->submit(backend, &wrong[i], &result), -EINVAL);
        }
}
