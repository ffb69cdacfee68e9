/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of memory that a daemon runs under, in trees of control groups that are laid out here. */
#include "tests.h"
#include "tree_fixture.h"

#include "core/ceiling.h"

static uint64_t found(const char *cgroup) {
        put("cgroup", cgroup);
        return ceiling_read(in_tree("sys"), in_tree("cgroup"));
}

TREE_TEST(the_least_one_counts) {
        put("sys/memory.max", "max\n");
        put("sys/system.slice/memory.max", "2147483648\n");
        put("sys/system.slice/gradsyncd@cpu.service/memory.max", "1610612736\n");
        assert_int_equal(found("0::/system.slice/gradsyncd@cpu.service\n"), 1536 << 20);
        put("sys/system.slice/memory.max", "1073741824\n");
        assert_int_equal(found("0::/system.slice/gradsyncd@cpu.service\n"), 1024 << 20);
}

TREE_TEST(there_may_be_none) {
        put("sys/memory.max", "max\n");
        assert_int_equal(found("0::/\n"), 0);
        assert_int_equal(found(""), 0);
        put("sys/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        assert_int_equal(found("5:memory:/a\n"), 0);
        put("sys/memory/a/memory.limit_in_bytes", "4194304\n");
        assert_int_equal(found("5:memory:/a\n"), 4 << 20);
}

/* The limit of this process may be any: 2^60 bytes exceed it, and 0 bytes do not. */
TREE_TEST(it_is_compared) {
        uint64_t limit = ceiling_read("/sys/fs/cgroup", "/proc/self/cgroup");
        char text[512] = "";

        assert_int_equal(ceiling_is_low(UINT64_C(1) << 60, text, sizeof(text)), limit > 0);
        if (limit > 0)
                assert_non_null(strstr(text, "daemon_bytes is 1099511627776 MiB"));
        if (limit == 0 || limit > CEILING_REST)
                assert_false(ceiling_is_low(0, text, sizeof(text)));
}
