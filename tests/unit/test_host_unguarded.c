/* SPDX-License-Identifier: Apache-2.0 */
/* The host backend where userfaultfd(2) is not allowed: tasks look for holes before their first slice, and
 * again after some. */
#include "host_fixture.h"
#include "tests.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "backend/host/guard.h"
#include "backend/host/task.h"

/* For good, so it is called before anything else. */
static int forbid_userfaultfd(void **state) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

        assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
        return guard_open() == -EPERM ? 0 : -1;
}

HOST_TEST_WITH(holes_are_looked_for, 2, 0, forbid_userfaultfd, NULL) {
        uint64_t bytes = 3 * TASK_LOOK_SLICES * KERNEL_SLICE_BYTES;
        struct member members[3];
        struct backend_range range[3] = { { 0 } };
        struct backend_task task = task_on(range, 3, WIRE__DTYPE__F32, WIRE__REDUCE__SUM, bytes / 4);

        members_new(backend, members, range, 3, bytes);
        fixture_run(backend, done, &task);
        assert_false(done->at[0].cancelled);
        assert_null(done->at[0].withdrawn);
        punch(members[1].arena, 0, bytes);
        fixture_run(backend, done, &task);
        assert_true(done->at[1].cancelled);
        assert_ptr_equal(done->at[1].withdrawn, members[1].arena);
        /* By the other worker, while the first looks; in huge pages it is the whole of what lies before
         * the next look. */
        assert_true(touched(members[1].arena) <= TASK_LOOK_SLICES * KERNEL_SLICE_BYTES);
        members_free(backend, members, 3);
}
