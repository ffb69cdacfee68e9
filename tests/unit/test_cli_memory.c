// SPDX-License-Identifier: Apache-2.0
/* How much memory a control group leaves, on trees laid out as cgroup v1 and v2 do. */
#include "tests.h"

#include "tree_fixture.h"

#include "client/cli/doctor/headroom.h"

static struct headroom room(void) {
        return headroom_cgroup(in_tree("sys"), in_tree("cgroup"));
}

TREE_TEST(no_limit) {
        put("cgroup", "0::/user.slice\n");
        put("sys/user.slice/memory.max", "max\n");
        put("sys/user.slice/memory.current", "4096\n");
        assert_false(room().limited);
}

TREE_TEST(version_2_counts_every_ancestor) {
        put("cgroup", "0::/a/b\n");
        put("sys/a/b/memory.max", "1000000\n");
        put("sys/a/b/memory.current", "100000\n");
        put("sys/a/memory.max", "2000000\n");
        put("sys/a/memory.current", "1900000\n");
        assert_true(room().limited);
        assert_int_equal(room().limit, 2000000);
        assert_int_equal(room().left, 100000);
}

TREE_TEST(cache_that_can_go_is_room) {
        put("cgroup", "0::/a\n");
        put("sys/a/memory.max", "1000000\n");
        put("sys/a/memory.current", "900000\n");
        put("sys/a/memory.stat", "anon 1\ninactive_file 500000\n");
        assert_int_equal(room().left, 600000);
}

TREE_TEST(version_1) {
        put("cgroup", "12:cpu,cpuacct:/x\n10:memory2:/less\n9:memory:/job\n1:name=systemd:/x\n");
        put("sys/memory2/less/memory.limit_in_bytes", "1000\n"); /* another controller's */
        put("sys/memory2/less/memory.usage_in_bytes", "1000\n");
        put("sys/memory/job/memory.limit_in_bytes", "500000\n");
        put("sys/memory/job/memory.usage_in_bytes", "600000\n");
        put("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
        put("sys/memory/memory.usage_in_bytes", "700000\n");
        assert_int_equal(room().limit, 500000);
        assert_int_equal(room().left, 0);
}

TREE_TEST(nothing_to_read) {
        assert_false(room().limited);
        put("cgroup", "nonsense\n\n:\n");
        assert_false(room().limited);
}

TREE_TEST(lines_of_meminfo) {
        uint64_t value;

        put("meminfo", "MemTotal:       100 kB\nMemAvailable:    50 kB\n");
        assert_true(headroom_meminfo(in_tree("meminfo"), "MemAvailable", &value));
        assert_int_equal(value, 50 * 1024);
        assert_false(headroom_meminfo(in_tree("meminfo"), "Mem", &value));
}
