/* SPDX-License-Identifier: Apache-2.0 */
/* The record of losses: the moments that count, and the end of a recovery. */
#include "tests.h"

#include "gradsync.pb-c.h"
#include "job/keep/recovery.h"
#include "proto/metrics.h"

static struct membership_loss loss(uint32_t rank, uint32_t cause) {
        return (struct membership_loss){
                .member = 7, .rank = rank, .pid = 100 + (int32_t)rank, .cause = cause
        };
}

static void lose(struct recovery *recovery, uint32_t rank, uint32_t cause, uint64_t now) {
        struct membership_loss lost = loss(rank, cause);

        recovery_begin(recovery, &lost, 3, 41, now);
}

TEST_ALONE(a_loss_and_its_end) {
        struct recovery recovery = { 0 };

        lose(&recovery, 2, WIRE__CAUSE__EXITED, 1000);
        recovery_void(&recovery);
        recovery_told(&recovery, 300, 1400);
        recovery_committed(&recovery, 1500); /* all were ready before it died: of the old generation */
        assert_true(recovery.open);
        recovery_regenerated(&recovery, WIRE__CAUSE__EXITED, 555, 90000);
        recovery_told(&recovery, 7, 95000); /* of something else */
        recovery_committed(&recovery, 101000);
        assert_true(recovery.any && !recovery.open);
        assert_int_equal(recovery.rank, 2);
        assert_int_equal(recovery.pid, 102);
        assert_int_equal(recovery.step, 41);
        assert_int_equal(recovery.generation, 3);
        assert_int_equal(recovery.void_steps, 1);
        assert_int_equal(recovery.told, 1400);
        assert_int_equal(recovery.filling, 300);
        assert_int_equal(recovery.regenerated, 90000);
        assert_int_equal(recovery.committed, 101000);
        assert_int_equal(recovery.successor, 555);
        assert_int_equal(recovery.recoveries, 1);
        assert_int_equal(recovery.us, 100000);
        assert_int_equal(recovery.class[5], 1); /* up to 100 ms, the bound included */
        recovery_committed(&recovery, 200000);
        assert_int_equal(recovery.committed, 101000);
        assert_int_equal(recovery.recoveries, 1);
}

TEST_ALONE(the_next_loss_begins_anew) {
        struct recovery recovery = { 0 };

        lose(&recovery, 2, WIRE__CAUSE__EXITED, 1000);
        recovery_void(&recovery);
        recovery_told(&recovery, 50, 1100);
        recovery_regenerated(&recovery, WIRE__CAUSE__EXITED, 555, 2000);
        lose(&recovery, 0, WIRE__CAUSE__EVICTED, 3000); /* before a step was committed */
        assert_int_equal(recovery.void_steps, 0);
        assert_int_equal(recovery.told, 0);
        assert_int_equal(recovery.filling, 0);
        assert_int_equal(recovery.regenerated, 0);
        assert_int_equal(recovery.successor, 0);
        assert_int_equal(recovery.cause, WIRE__CAUSE__EVICTED);
        recovery_regenerated(&recovery, WIRE__CAUSE__EVICTED, 0, 4000);
        recovery_committed(&recovery, 70004000);
        assert_int_equal(recovery.recoveries, 1);
        assert_int_equal(recovery.us, 70001000);
        assert_int_equal(recovery.class[RECOVERY_CLASSES], 1);
        assert_int_equal(recovery.rebuilds[WIRE__CAUSE__EXITED], 1);
        assert_int_equal(recovery.rebuilds[WIRE__CAUSE__EVICTED], 1);
}

TEST_ALONE(leaving_and_growing_are_no_losses) {
        struct recovery recovery = { 0 };

        lose(&recovery, 1, WIRE__CAUSE__LEAVING, 1000);
        recovery_void(&recovery);
        recovery_regenerated(&recovery, WIRE__CAUSE__LEAVING, 0, 2000);
        recovery_regenerated(&recovery, WIRE__CAUSE__CAUSE_NONE, 0, 3000);
        recovery_regenerated(&recovery, 4711, 0, 4000); /* nothing is written where there is no room for it */
        recovery_committed(&recovery, 5000);
        assert_false(recovery.any);
        assert_int_equal(recovery.recoveries, 0);
        assert_int_equal(recovery.void_steps, 0);
        assert_int_equal(recovery.rebuilds[WIRE__CAUSE__LEAVING], 1);
        assert_int_equal(recovery.rebuilds[WIRE__CAUSE__CAUSE_NONE], 2);
}

/* The record counts recoveries in the classes that the metrics name. */
TEST_ALONE(classes_are_those_of_the_metrics) {
        assert_int_equal(metrics_n_recovery_classes, RECOVERY_CLASSES + 1);
        for (unsigned i = 0; i < RECOVERY_CLASSES; i++)
                assert_int_equal(strtod(metrics_recovery_classes[i], NULL) * 1e6 + 0.5, recovery_class_us[i]);
        assert_string_equal(metrics_recovery_classes[RECOVERY_CLASSES], "+Inf");
}
