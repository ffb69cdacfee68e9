/* SPDX-License-Identifier: Apache-2.0 */
/* Devices by name: which backend serves each, and what is said of the others. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "backend/registry.h"

static char error[256];

static const struct backend_ops *find(const char *device) {
        const struct backend_ops *ops = NULL;
        int r = registry_find(device, &ops, error, sizeof(error));

        assert_int_equal(r, ops ? 0 : -EINVAL);
        return ops;
}

static void cpus_are_served_by_the_host_backend(void **state) {
        assert_ptr_equal(find("cpu"), &backend_host);
        assert_ptr_equal(find("cpu:left"), &backend_host);
        assert_ptr_equal(find("cpu:A-z.0_9"), &backend_host);
        assert_ptr_equal(find("cpu:12345678901234567890123456789012"), &backend_host);
}

static void labels_are_checked(void **state) {
        static const char *const wrong[] = {
                "cpu:", "cpu:../x", "cpu:a b", "cpu:123456789012345678901234567890123", "cpu left", "cpux",
        };

        for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_null(find(wrong[i]));
                assert_non_null(strstr(error, "is not a device"));
        }
}

static void an_unknown_device_is_told_which_there_are(void **state) {
        assert_null(find("gpu"));
        assert_string_equal(error,
                            "'gpu' is not a device: cpu, or cpu:LABEL with up to 32 letters, digits, dots, "
                            "dashes or underscores");
        assert_null(find(""));
        assert_non_null(strstr(error, "'' is not a device: cpu, or cpu:LABEL"));
}

static void a_daemon_without_a_device_is_refused_by_name(void **state) {
        assert_null(find("none"));
        assert_string_equal(error, "a daemon for device 'none' is not supported yet");
        assert_null(find("none:x"));
        assert_non_null(strstr(error, "'none:x' is not a device"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(cpus_are_served_by_the_host_backend),
                cmocka_unit_test(labels_are_checked),
                cmocka_unit_test(an_unknown_device_is_told_which_there_are),
                cmocka_unit_test(a_daemon_without_a_device_is_refused_by_name),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
