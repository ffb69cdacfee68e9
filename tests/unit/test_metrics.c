/* SPDX-License-Identifier: Apache-2.0 */
/* The text of metrics, and sums over jobs. */
#include "tests.h"

#include "proto/metrics_sum.h"

static size_t family_of(const char *name) {
        for (size_t family = 0; family < metrics_n_families; family++) {
                char *text = NULL, wanted[64];
                size_t size;
                struct metrics_out to = { .file = open_memstream(&text, &size) };

                metrics_begin_family(&to, family);
                assert_int_equal(fclose(to.file), 0);
                snprintf(wanted, sizeof(wanted), "# TYPE gradsync_%s ", name);
                bool found = strncmp(text, wanted, strlen(wanted)) == 0;
                free(text);
                if (found)
                        return family;
        }
        fail_msg("there is no family %s", name);
        return 0;
}

static void assert_family(const char *name, const struct metrics_job *job, const char *expected) {
        char *text = NULL;
        size_t size, family = family_of(name);
        struct metrics_out to = { .file = open_memstream(&text, &size), .device = "cpu:\"x" };

        metrics_begin_family(&to, family);
        metrics_write_job(&to, family, job);
        assert_int_equal(fclose(to.file), 0);
        assert_string_equal(text, expected);
        free(text);
}

TEST_ALONE(a_family_has_a_type_and_help) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct metrics_job job = { .job = &row, .n_members = 2 };

        row.name = (char *)"a";
        row.uid = 7;
        row.operations = 5;
        assert_family("operations_total", &job,
                      "# TYPE gradsync_operations_total counter\n"
                      "# HELP gradsync_operations_total Collectives outside of steps.\n"
                      "gradsync_operations_total{device=\"cpu:\\\"x\",job_name=\"a\",uid=\"7\"} 5\n");
        job.together = true;
        assert_family("members", &job,
                      "# TYPE gradsync_members gauge\n# HELP gradsync_members Members that are there.\n"
                      "gradsync_members{device=\"cpu:\\\"x\"} 2\n");
}

static void assert_has(const char *text, const char *sample) {
        if (strstr(text, sample) == NULL)
                fail_msg("no %s in %s", sample, text);
}

TEST_ALONE(histograms_add_up_and_durations_are_seconds) {
        uint64_t classes[] = { 1, 2 };
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct metrics_job job = { .together = true, .job = &row };
        char *text = NULL;
        size_t size;
        struct metrics_out to = { .file = open_memstream(&text, &size), .device = "d" };

        row.n_reduce_class = 2;
        row.reduce_class = classes;
        row.reduce_us = 2000005;
        metrics_write_job(&to, family_of("collective_duration_seconds"), &job);
        assert_int_equal(fclose(to.file), 0);
        assert_has(text, "_bucket{device=\"d\",le=\"1e-05\"} 1\n");
        assert_has(text, "_bucket{device=\"d\",le=\"2.5e-05\"} 3\n");
        assert_has(text, "_bucket{device=\"d\",le=\"+Inf\"} 3\n");
        assert_has(text, "_count{device=\"d\"} 3\n");
        assert_has(text, "_sum{device=\"d\"} 2.000005\n");
        free(text);
}

TEST_ALONE(times_of_a_daemon_are_seconds) {
        Wire__StatusDaemon row = WIRE__STATUS_DAEMON__INIT;
        char *text = NULL;
        size_t size;
        struct metrics_out to = { .file = open_memstream(&text, &size), .device = "d" };

        row.uptime_ms = 1500;
        row.loop_cpu_us = 250;
        row.has_process_start_time = row.has_process_cpu_us = true;
        row.process_start_time = 1000000007;
        row.process_cpu_us = 3000000;
        metrics_write_daemon(&to, &row);
        assert_int_equal(fclose(to.file), 0);
        assert_has(text, "gradsync_uptime_seconds{device=\"d\"} 1.500000\n");
        assert_has(text, "gradsync_cpu_seconds_total{device=\"d\",thread=\"loop\"} 0.000250\n");
        assert_has(text, "gradsync_process_start_time_seconds{device=\"d\"} 1000000007.000000\n");
        assert_has(text, "gradsync_process_cpu_seconds_total{device=\"d\"} 3.000000\n");
        free(text);
}

/* One of a release with more causes than are known here. */
TEST_ALONE(sums_add_up) {
        uint64_t few[] = { 1, 2 }, many[LIMIT_CAUSES + 2] = { [LIMIT_CAUSES] = 3, [LIMIT_CAUSES + 1] = 4 };
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct metrics_job job = { .job = &row, .n_members = 2, .n_spares = 1 };
        struct metrics_sum sum = { 0 };

        row.state = (char *)"paused";
        row.world = 4;
        row.committed = 10;
        row.void_steps = 1;
        row.nonfinite_steps = 2;
        row.step_us = 3;
        row.reduce_us = 4;
        row.wait_us = 5;
        row.bytes_reduced = 6;
        row.operations = 7;
        row.recovery_us = 8;
        row.communicators = 9;
        row.n_reduce_class = 2;
        row.reduce_class = few;
        row.n_rebuilds = LIMIT_CAUSES + 2;
        row.rebuilds = many;
        metrics_sum_add(&sum, &job);
        row.state = (char *)"of another release";
        metrics_sum_add(&sum, &job);
        metrics_sum_count(&sum, &row);
        assert_int_equal(sum.job.world, 8);
        assert_int_equal(sum.members, 4);
        assert_int_equal(sum.spares, 2);
        assert_int_equal(sum.job.committed, 30);
        assert_int_equal(sum.job.void_steps, 3);
        const uint64_t sums[] = { sum.job.nonfinite_steps, sum.job.step_us,       sum.job.reduce_us,
                                  sum.job.wait_us,         sum.job.bytes_reduced, sum.job.operations,
                                  sum.job.recovery_us,     sum.job.communicators };
        for (uint64_t i = 0; i < 8; i++)
                assert_int_equal(sums[i], 3 * (i + 2));
        assert_int_equal(sum.reduce_class[1], 6);
        assert_int_equal(sum.rebuilds[LIMIT_CAUSES - 1], 21);
        assert_string_equal(metrics_states[3], "paused");
        for (size_t i = 0; i < METRICS_STATES; i++)
                assert_int_equal(sum.jobs[i], i == 3);
}
