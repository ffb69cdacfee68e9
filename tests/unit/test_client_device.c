/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU as the library uses it, on a fake one. */
#include "fake_gpu_fixture.h"

#define TESTS_OWN_MAIN
#include "tests.h"

#undef fail /* cmocka's macro; the library has a function of that name */

#include "client/lib/device/device.h"
#include "gradsync/gradsync.h"

#define BYTES (2u << 20)

static cuda_context context;
static struct device *device;

static int open_device(void **state) {
        struct cuda_uuid uuid;
        char text[CUDA_UUID_TEXT];

        if (driver.primary_retain(&context, 0) != CUDA_OK || driver.context_set(context) != CUDA_OK ||
            driver.device_uuid(&uuid, 0) != CUDA_OK)
                return -1;
        cuda_uuid_text(&uuid, text);
        return device_open("cuda:0", text, false, &device);
}

static int close_device(void **state) {
        device_free(device);
        return driver.primary_release(0);
}

#define TEST(name) TEST_WITH(name, open_device, close_device)

static size_t free_bytes(void) {
        size_t free = 0, total;

        assert_int_equal(driver.memory_info(&free, &total), CUDA_OK);
        return free;
}

/* The mapping alone holds an arena: it goes with it. */
TEST(an_arena_that_is_unmapped_is_free) {
        struct cuda_properties properties = { .type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = CUDA_HANDLE_FD,
                                              .location = { CUDA_LOCATION_DEVICE, 0 } };
        size_t before = free_bytes();
        cuda_handle handle;
        uint8_t *arena;
        int fd;

        assert_int_equal(driver.create(&handle, BYTES, &properties, 0), CUDA_OK);
        assert_int_equal(driver.export_handle(&fd, handle, CUDA_HANDLE_FD, 0), CUDA_OK);
        assert_int_equal(driver.release(handle), CUDA_OK);
        assert_int_equal(device_map(device, fd, BYTES, &arena), GRADSYNC_OK);
        close(fd);
        assert_int_equal(free_bytes(), before - BYTES);
        device_unmap(device, arena, BYTES);
        assert_int_equal(free_bytes(), before);
}

/* An error of a copy shows only while the caller waits for its end. */
TEST(a_copy_is_waited_for) {
        static const char from[4096];
        cuda_address to;

        assert_int_equal(driver.allocate(&to, sizeof(from)), CUDA_OK);
        setenv("FAKE_GPU_FAIL", "cuStreamSynchronize:1:2", 1);
        assert_int_equal(device_copy_in(device, (void *)(uintptr_t)to, from, sizeof(from)),
                         GRADSYNC_NO_MEMORY);
        unsetenv("FAKE_GPU_FAIL");
        assert_int_equal(device_copy_in(device, (void *)(uintptr_t)to, from, sizeof(from)), GRADSYNC_OK);
        assert_int_equal(driver.free(to), CUDA_OK);
}

static int setup(void **state) {
        setenv("GRADSYNC_CUDA_DRIVER", FAKE_GPU_LIBRARY, 1);
        return gpu_setup("1");
}

int main(void) {
        return tests_run(setup, NULL) != 0 || !gpu_check();
}
