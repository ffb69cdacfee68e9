/* SPDX-License-Identifier: Apache-2.0 */
/* Members that punch holes into memory that a task uses: see backend/host/guard.h. */
#include "host_fixture.h"
#include "tests.h"

#include "kernel/kernel.h"

/* Runs the task with holes in the memory of this member, and then without. The first run names the member,
 * and allocates no page. */
static void run_with_holes(struct backend *backend, struct done *done, const struct backend_task *task,
                           const struct member *member, uint64_t offset, uint64_t bytes) {
        unsigned n = done->n;
        punch(member->arena, offset, bytes);
        uint64_t before = touched(member->arena);
        fixture_run(backend, done, task);
        assert_true(done->at[n].cancelled);
        assert_ptr_equal(done->at[n].withdrawn, member->arena);
        assert_int_equal(touched(member->arena), before);
        memset(member->map + offset, 0, bytes);
        fixture_run(backend, done, task);
        assert_false(done->at[n + 1].cancelled);
        assert_null(done->at[n + 1].withdrawn);
}

/* Holes at any place in inputs and outputs, for small tasks of the caller's thread and large ones of the
 * workers. */
HOST_TEST(test_holes, 2) {
        static const uint64_t sizes[] = { ARENA_PAGE, KERNEL_SMALL_TASK, 12u << 20 };
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                struct member members[3];
                struct backend_range range[3] = { { 0 } };
                struct backend_task task =
                        task_on(range, 3, WIRE__DTYPE__F32, WIRE__REDUCE__SUM, sizes[i] / 4);
                members_new(backend, members, range, 3, sizes[i]);
                run_with_holes(backend, done, &task, &members[1], 0, ARENA_PAGE);
                run_with_holes(backend, done, &task, &members[2], sizes[i] - ARENA_PAGE, ARENA_PAGE);
                run_with_holes(backend, done, &task, &members[0], 0, sizes[i]);
                task = task_on(range, 1, WIRE__DTYPE__U8, WIRE__REDUCE__REDUCE_NONE, sizes[i]);
                task.n_outputs = 2;
                task.outputs = range + 1;
                run_with_holes(backend, done, &task, &members[2], sizes[i] - ARENA_PAGE, ARENA_PAGE);
                run_with_holes(backend, done, &task, &members[0], 0, ARENA_PAGE);
                members_free(backend, members, 3);
        }
}
