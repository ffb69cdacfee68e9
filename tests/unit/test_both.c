/* SPDX-License-Identifier: Apache-2.0 */
/* An engine made of two: which of them is asked. That both exchange bytes is seen in tests/gpu. */
#include "tests.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/both.h"

#define COMM 7u

/* Half of an engine: the process of the communicator, and since when it is silent. */
struct side {
        struct engine engine;
        struct engine_ops ops;
        pid_t silent;
        uint64_t since;
        int fd;
};

static struct side device, host;
static struct engine *engine;

static int side_fd(const struct engine *of) {
        return ((const struct side *)of)->fd;
}

static pid_t side_silent(struct engine *of, uint64_t comm, uint64_t *ret_since) {
        const struct side *side = (const struct side *)of;

        assert_int_equal(comm, COMM);
        if (side->silent != 0)
                *ret_since = side->since;
        return side->silent;
}

static void side_init(struct side *side) {
        *side = (struct side){ .ops = { .name = "side", .fd = side_fd, .silent = side_silent },
                               .fd = eventfd(0, EFD_CLOEXEC) };
        side->engine.ops = &side->ops;
        assert_true(side->fd >= 0);
}

static int setup(void **state) {
        side_init(&device);
        side_init(&host);
        return both_open(&device.engine, &host.engine, &engine);
}

static int teardown(void **state) {
        both_close(engine);
        close(device.fd);
        close(host.fd);
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

static void expect_silent(pid_t pid, uint64_t since) {
        uint64_t from = 0;

        assert_int_equal(engine->ops->silent(engine, COMM, &from), pid);
        assert_int_equal(from, since);
}

TEST(a_silent_helper_of_either_half_is_named) {
        expect_silent(0, 0);
        host.silent = 42;
        host.since = 1000;
        expect_silent(42, 1000);
        device.ops.silent = NULL; /* its communicators have no processes */
        expect_silent(42, 1000);
        host.silent = 0;
        expect_silent(0, 0);
        device.ops.silent = side_silent;
        device.silent = 43;
        device.since = 2000;
        expect_silent(43, 2000);
}
