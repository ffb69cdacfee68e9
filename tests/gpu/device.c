/* SPDX-License-Identifier: Apache-2.0 */
/* See device.h. */
#include "device.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "driver.h"

#define DEADLINE INT64_C(30000000000) /* nanoseconds, of one wait */

static bool device_check(struct device *device, const char *what, cuda_result result) {
        char name[64];

        if (result == CUDA_OK)
                return true;
        if (device->failed[0] == '\0')
                snprintf(device->failed, sizeof device->failed, "%s: %s", what,
                         cuda_error(&device->card.cuda, result, name, sizeof name));
        return false;
}

static bool device_prepare(struct device *device) {
        const struct cuda *cuda = &device->card.cuda;
        const size_t scratch = (GRID_SCRATCH_WORDS + 1) * sizeof(uint64_t);
        void *results = NULL;
        int l2 = 0;
        bool good =
                device_check(device, "the size of its cache",
                             cuda->device_attribute(&l2, CUDA_DEVICE_L2, device->card.device)) &&
                device_check(device, "a stream",
                             cuda->stream_new(&device->stream, CUDA_STREAM_NON_BLOCKING, 0)) &&
                device_check(device, "an event",
                             cuda->event_new(&device->event, CUDA_EVENT_DISABLE_TIMING)) &&
                device_check(device, "memory", cuda->allocate(&device->scratch, scratch)) &&
                device_check(device, "memory",
                             cuda->set_async(device->scratch, 0, scratch, device->stream)) &&
                device_check(device, "host memory",
                             cuda->host_alloc(&results, DEVICE_RESULTS * sizeof(uint64_t),
                                              CUDA_HOST_DEVICEMAP)) &&
                device_check(device, "host memory", cuda->host_address(&device->device_results, results, 0));

        device->results = results;
        device->l2 = (size_t)l2;
        return good && device_wait(device);
}

int device_present(char *error, size_t size) {
        struct cuda driver;
        int n = 0, r = cuda_load(&driver, NULL, error, size);

        /* -ENODEV: the driver could not start, which is another thing than a machine without a GPU. */
        if (r == -ENODEV && !driver_is_absent(&driver))
                return -EIO;
        if (r < 0)
                return r == -ENOENT || r == -ENODEV ? -ENODEV : -EIO;
        if (driver.device_count(&n) == CUDA_OK && n == 0) {
                snprintf(error, size, "the driver finds no GPU");
                return -ENODEV;
        }
        return 0;
}

int device_open(struct device *device) {
        int64_t begin = clock_ns();
        int r;

        *device = (struct device){ .stream = NULL };
        r = device_present(device->failed, sizeof device->failed);
        if (r < 0)
                return r;
        if (card_open(&device->card, "0", NULL, device->failed, sizeof device->failed) < 0 ||
            !device_prepare(device))
                return -EIO;
        device->open_ms = (double)(clock_ns() - begin) / 1e6;
        return 0;
}

void device_close(struct device *device) {
        const struct cuda *cuda = &device->card.cuda;

        if (device->memory != 0)
                cuda->free(device->memory);
        if (device->results != NULL)
                cuda->host_free(device->results);
        if (device->scratch != 0)
                cuda->free(device->scratch);
        if (device->event != NULL)
                cuda->event_free(device->event);
        if (device->stream != NULL)
                cuda->stream_free(device->stream);
        card_close(&device->card);
}

bool device_room(struct device *device, size_t bytes) {
        const struct cuda *cuda = &device->card.cuda;
        cuda_result r;

        if (device->failed[0] != '\0')
                return false;
        if (bytes <= device->bytes)
                return true;
        if (device->memory != 0 && !device_check(device, "cuMemFree", cuda->free(device->memory)))
                return false;
        device->memory = 0;
        device->bytes = 0;
        r = cuda->allocate(&device->memory, bytes);
        if (r == CUDA_OK)
                device->bytes = bytes;
        else
                device->memory = 0;
        return r != CUDA_OUT_OF_MEMORY && device_check(device, "cuMemAlloc", r);
}

/* Asks until `done` says something else than that it is not ready. */
static bool device_poll(struct device *device, cuda_result (*ask)(const struct device *)) {
        int64_t begin = clock_ns();
        cuda_result r;

        while ((r = ask(device)) == CUDA_NOT_READY) {
                if (clock_ns() - begin > DEADLINE) {
                        snprintf(device->failed, sizeof device->failed, "hang: work has not ended for %d s",
                                 (int)(DEADLINE / 1000000000));
                        return false;
                }
                sched_yield();
        }
        return device_check(device, "the work failed", r);
}

static cuda_result device_ask_stream(const struct device *device) {
        return device->card.cuda.stream_query(device->stream);
}

static cuda_result device_ask_event(const struct device *device) {
        return device->card.cuda.event_query(device->event);
}

bool device_wait(struct device *device) {
        return device->failed[0] == '\0' && device_poll(device, device_ask_stream);
}

bool device_wait_event(struct device *device) {
        return device->failed[0] == '\0' &&
               device_check(device, "cuEventRecord",
                            device->card.cuda.event_record(device->event, device->stream)) &&
               device_poll(device, device_ask_event);
}

bool device_put(struct device *device, const void *from, size_t bytes) {
        return device->failed[0] == '\0' &&
               device_check(device, "a copy to the GPU",
                            device->card.cuda.copy_in(device->memory, from, bytes, device->stream)) &&
               device_wait(device);
}

bool device_get(struct device *device, void *to, size_t bytes) {
        return device->failed[0] == '\0' &&
               device_check(device, "a copy from the GPU",
                            device->card.cuda.copy_out(to, device->memory, bytes, device->stream)) &&
               device_wait(device);
}

bool device_copy(struct device *device, size_t to, size_t from, size_t bytes) {
        return device->failed[0] == '\0' &&
               device_check(device, "a copy within the GPU",
                            device->card.cuda.copy(device->memory + to, device->memory + from, bytes,
                                                   device->stream));
}

bool device_repeat(struct device *device, size_t have, size_t bytes) {
        while (have < bytes) {
                size_t more = have < bytes - have ? have : bytes - have;
                if (!device_copy(device, have, 0, more))
                        return false;
                have += more;
        }
        return device_wait(device);
}

bool device_launch(struct device *device, struct launch *launch, unsigned cap) {
        void *parameters[] = { &launch->grid };

        if (device->failed[0] != '\0')
                return false;
        launch->grid.ticket = device->scratch;
        launch->grid.scratch = device->scratch + sizeof(uint64_t);
        launch->grid.results = device->device_results;
        device->launched[launch->kernel] = true;
        return device_check(device, launch_names[launch->kernel],
                            device->card.cuda.launch(device->card.kernel[launch->kernel],
                                                     launch_blocks(launch, cap), 1, 1, GRID_THREADS, 1, 1, 0,
                                                     device->stream, parameters, NULL));
}
