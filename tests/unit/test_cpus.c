/* SPDX-License-Identifier: Apache-2.0 */
/* CPU limits of cgroups in trees laid out here: both versions, ancestors, hybrids, and a container's cut
 * view. */
#include "tests.h"
#include "tree_fixture.h"

#include "base/cpus.h"

static unsigned limit(void) {
        return cpus_cgroup_limit(in_tree("sys"), in_tree("cgroup"));
}

TREE_TEST(unified_asks_every_ancestor) {
        put("cgroup", "0::/a.slice/b.service\n");
        put("sys/cgroup.controllers", "cpu memory\n");
        put("sys/a.slice/b.service/cpu.max", "max 100000\n");
        assert_int_equal(limit(), 0);
        put("sys/a.slice/cpu.max", "400000 100000\n");
        assert_int_equal(limit(), 4);
        put("sys/a.slice/b.service/cpu.max", "150000 100000\n");
        assert_int_equal(limit(), 2);
        put("sys/cpu.max", "100000 100000\n");
        assert_int_equal(limit(), 1);
}

TREE_TEST(small_quotas_count_as_one) {
        put("cgroup", "0::/\n");
        put("sys/cpu.max", "1000 100000\n");
        assert_int_equal(limit(), 1);
        put("sys/cpu.max", "nonsense here\n");
        assert_int_equal(limit(), 0);
        put("sys/cpu.max", "1000 0\n");
        assert_int_equal(limit(), 0);
        put("sys/cpu.max", "");
        assert_int_equal(limit(), 0);
}

TREE_TEST(legacy_asks_every_ancestor) {
        put("cgroup", "9:name=systemd:/x\n4:cpuset:/elsewhere\n3:cpu,cpuacct:/docker/abc\n");
        put("sys/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
        put("sys/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
        assert_int_equal(limit(), 0);
        put("sys/cpu,cpuacct/docker/cpu.cfs_quota_us", "250000\n");
        put("sys/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
        assert_int_equal(limit(), 3);
}

/* "cpuset" and "cpuacct" begin like "cpu" but have no quota. */
TREE_TEST(only_the_cpu_controller_counts) {
        put("cgroup", "2:cpuset:/\n3:cpuacct:/\n");
        put("sys/cpu/cpu.cfs_quota_us", "100000\n");
        put("sys/cpu/cpu.cfs_period_us", "100000\n");
        assert_int_equal(limit(), 0);
        put("cgroup", "2:cpuset:/\n3:cpuacct,cpu:/\n");
        assert_int_equal(limit(), 1);
}

TREE_TEST(hybrid_takes_the_tighter_side) {
        put("cgroup", "1:cpu:/job\n0::/job\n");
        put("sys/cpu/job/cpu.cfs_quota_us", "500000\n");
        put("sys/cpu/job/cpu.cfs_period_us", "100000\n");
        put("sys/unified/job/cgroup.procs", "");
        assert_int_equal(limit(), 5);
        put("sys/unified/job/cpu.max", "200000 100000\n");
        assert_int_equal(limit(), 2);
}

/* A container's own group is mounted as the root, while the process still names it from the host's view. */
TREE_TEST(an_invisible_path_means_the_mount) {
        put("cgroup", "0::/kubepods/pod1/c1\n");
        put("sys/cpu.max", "300000 100000\n");
        assert_int_equal(limit(), 3);
        put("cgroup", "1:cpu:/docker/far\n");
        put("sys/cpu/cpu.cfs_quota_us", "200000\n");
        put("sys/cpu/cpu.cfs_period_us", "100000\n");
        assert_int_equal(limit(), 2);
        put("cgroup", "0::/../outside\n");
        assert_int_equal(limit(), 3);
}

TREE_TEST(nothing_there_is_no_limit) {
        assert_int_equal(limit(), 0);
        put("cgroup", "garbage\n\n0:\n0::relative\n::\n");
        assert_int_equal(limit(), 0);
        assert_true(cpus_available() >= 1);
}

TEST_ALONE(lists_of_cpus) {
        static const char *const wrong[] = { "",     " ",      "a",           "1-",    "-1",
                                             "3-1",  "1,",     ",1",          "1,,2",  "1 2",
                                             "1024", "0-1024", "99999999999", "1-2-3", "0x1" };
        cpu_set_t set;

        assert_true(cpus_parse("0-3,8", &set));
        assert_int_equal(CPU_COUNT(&set), 5);
        assert_true(CPU_ISSET(0, &set) && CPU_ISSET(3, &set) && CPU_ISSET(8, &set) && !CPU_ISSET(4, &set));
        assert_true(cpus_parse("1023", &set));
        assert_int_equal(CPU_COUNT(&set), 1);
        assert_true(cpus_parse("5,5,5-5", &set));
        assert_int_equal(CPU_COUNT(&set), 1);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                if (cpus_parse(wrong[i], &set))
                        fail_msg("'%s' was accepted", wrong[i]);
}

static void assert_loss(const char *wanted, const char *usable, const char *expected) {
        cpu_set_t set, left;
        char text[400];

        assert_true(cpus_parse(wanted, &set));
        CPU_ZERO(&left);
        assert_true(usable[0] == '\0' || cpus_parse(usable, &left));
        cpus_describe_loss(&set, &left, text, sizeof(text));
        if (expected[0] == '\0')
                assert_string_equal(text, "");
        else if (strstr(text, expected) == NULL)
                fail_msg("'%s' is not in '%s'", expected, text);
}

/* Each machine has CPU 0, and hardly one all of the last ones. */
TEST_ALONE(lost_cpus_are_named) {
        assert_loss("0", "0", "");
        assert_loss("0", "", "this process may not use CPU 0 (");
        assert_loss("0,1000-1023", "0", "there is no CPU 1000-1023 in this machine, which has 0");
        assert_loss("0,1000-1023", "", ", and this process may not use CPU 0 (");
}

TEST_ALONE(a_set_is_tried) {
        cpu_set_t before, set, usable;

        assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
        assert_int_equal(cpus_usable(&before, &usable), 0);
        assert_true(CPU_EQUAL(&usable, &before));
        set = before;
        CPU_SET(1023, &set);
        assert_int_equal(cpus_usable(&set, &usable), 0);
        assert_true(CPU_EQUAL(&usable, &before));
        CPU_ZERO(&set);
        CPU_SET(1023, &set);
        assert_int_equal(cpus_usable(&set, &usable), 0);
        assert_int_equal(CPU_COUNT(&usable), 0);
        assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
        assert_true(CPU_EQUAL(&set, &before));
}

TEST_ALONE(a_set_is_written_as_it_is_read) {
        static const char *const sets[] = { "0", "0-1", "0-3,8", "1,3,5", "1020-1023" };
        char text[64], small[6];
        cpu_set_t set;

        for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
                assert_true(cpus_parse(sets[i], &set));
                cpus_format(&set, text, sizeof(text));
                assert_string_equal(text, sets[i]);
        }
        cpus_format(&set, small, sizeof(small));
        assert_string_equal(small, ""); /* rather than half a number */
}
