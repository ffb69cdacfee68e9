/* SPDX-License-Identifier: Apache-2.0 */
/* Devices by name: which backend serves each, and what is said of the others. */
#include "tests.h"

#include "backend/pair.h"
#include "backend/registry.h"

static char error[256];

static const struct backend_ops *find(const char *device) {
        const struct backend_ops *ops = NULL;
        int r = registry_find(device, &ops, error, sizeof(error));

        assert_int_equal(r, ops != NULL ? 0 : -EINVAL);
        return ops;
}

TEST_ALONE(cpus_are_served_by_the_host_backend) {
        assert_ptr_equal(find("cpu"), &backend_host);
        assert_ptr_equal(find("cpu:left"), &backend_host);
        assert_ptr_equal(find("cpu:A-z.0_9"), &backend_host);
        assert_ptr_equal(find("cpu:12345678901234567890123456789012"), &backend_host);
}

TEST_ALONE(gpus_are_served_by_the_cuda_backend) {
        assert_ptr_equal(find("cuda:0"), &backend_cuda);
        assert_ptr_equal(find("cuda:GPU-8e0f3d2c-0000-1111-2222-0123456789ab"), &backend_cuda);
        assert_null(find("cuda"));
        assert_null(find("cuda:"));
        assert_null(find("cuda:GPU-8e0f3d2c-0000-1111-2222-0123456789abc"));
}

TEST_ALONE(labels_are_checked) {
        static const char *const wrong[] = {
                "cpu:", "cpu:../x", "cpu:a b", "cpu:123456789012345678901234567890123", "cpu left", "cpux",
        };

        for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_null(find(wrong[i]));
                assert_non_null(strstr(error, "is not a device"));
        }
}

TEST_ALONE(an_unknown_device_is_told_which_there_are) {
        assert_null(find("gpu"));
        assert_string_equal(error,
                            "'gpu' is not a device: cpu, or cpu:LABEL with up to 32 letters, digits, dots, "
                            "dashes or underscores, or cuda:N or cuda:UUID, for a GPU, or none, for "
                            "a daemon that coordinates only");
        assert_null(find(""));
        assert_non_null(strstr(error, "'' is not a device: cpu, or cpu:LABEL"));
}

TEST_ALONE(a_daemon_without_a_device_has_no_backend) {
        const struct backend_ops *ops = &backend_host;
        struct pair pair = { 0 };

        assert_int_equal(registry_find("none", &ops, error, sizeof(error)), 0);
        assert_null(ops);
        assert_null(find("none:x"));
        assert_non_null(strstr(error, "'none:x' is not a device"));
        assert_int_equal(pair_open(NULL, &(struct backend_config){ .workers = 2 }, &pair), 0);
        assert_null(pair.device);
        assert_null(pair.staging);
        assert_int_equal(pair_ping(&pair), 0);
        assert_int_equal(pair_workers(&pair), 0);
        pair_close(&pair);
}

/* A device of which no more is asked than to be opened and looked after. */
static struct backend device_opened;
static int device_open_error;

static const struct backend_ops device_ops;

static int device_open(const struct backend_config *config, struct backend **ret) {
        device_opened = (struct backend){ .ops = &device_ops };
        *ret = &device_opened;
        return device_open_error;
}

static struct backend *device_close(struct backend *backend) {
        assert_ptr_equal(backend, &device_opened);
        device_opened.ops = NULL;
        return NULL;
}

static unsigned device_ping(struct backend *backend) {
        return 5;
}

static unsigned device_workers(const struct backend *backend) {
        return 7;
}

static const struct backend_ops device_ops = {
        .open = device_open, .close = device_close, .ping = device_ping, .workers = device_workers
};

TEST_ALONE(cpus_need_no_second_backend) {
        struct pair pair;

        assert_int_equal(pair_open(&backend_host, &(struct backend_config){ .workers = 2 }, &pair), 0);
        assert_ptr_equal(pair.device, pair.staging);
        assert_int_equal(pair_workers(&pair), 2);
        assert_int_equal(pair_ping(&pair), 0);
        pair_close(&pair);
        assert_null(pair.device);
}

TEST_ALONE(another_device_has_the_host_beside_it) {
        struct pair pair;

        device_open_error = 0;
        assert_int_equal(pair_open(&device_ops, &(struct backend_config){ .workers = 2 }, &pair), 0);
        assert_ptr_equal(pair.device, &device_opened);
        assert_ptr_equal(pair.staging->ops, &backend_host);
        assert_int_equal(pair_workers(&pair), 9);
        assert_int_equal(pair_ping(&pair), 5);
        pair_close(&pair);
        assert_null(device_opened.ops);
}

/* A pair that fails to open leaves no backend open. A pair that was never open can be closed. */
TEST_ALONE(a_pair_is_opened_whole_or_not_at_all) {
        struct pair pair;

        device_open_error = 0;
        assert_int_equal(pair_open(&device_ops, &(struct backend_config){ .workers = 1u << 20 }, &pair),
                         -EINVAL);
        assert_null(device_opened.ops);
        assert_null(pair.device);
        device_open_error = -ENODEV;
        assert_int_equal(pair_open(&device_ops, &(struct backend_config){ .workers = 1 }, &pair), -ENODEV);
        assert_null(pair.staging);
        pair_close(&pair);
}
