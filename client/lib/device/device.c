/* SPDX-License-Identifier: Apache-2.0 */
/* See device.h. */
#include "client/lib/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"

struct device {
        struct cuda cuda;
        cuda_device number;
        int ordinal;
        cuda_context context;
        cuda_stream stream;
        size_t granularity;
        char name[64]; /* as the daemon calls it */
};

/* Makes the GPU's context current in the calling thread; device_leave() brings the one before back. */
static cuda_result device_enter(const struct device *device, cuda_context *ret_before) {
        cuda_result r = device->cuda.context_get(ret_before);

        return r == CUDA_OK && *ret_before != device->context ? device->cuda.context_set(device->context) : r;
}

static void device_leave(const struct device *device, cuda_context before) {
        if (before != device->context)
                device->cuda.context_set(before);
}

static int device_fail(const struct device *device, const char *what, cuda_result result) {
        char name[64];

        return fail(result == CUDA_OUT_OF_MEMORY ? GRADSYNC_NO_MEMORY : GRADSYNC_SYSTEM, "%s: %s: %s",
                    device->name, what, cuda_error(&device->cuda, result, name, sizeof(name)));
}

static int device_find(struct device *device, const char *uuid) {
        device->ordinal = cuda_find_gpu(&device->cuda, uuid, &device->number);
        if (device->ordinal >= 0)
                return GRADSYNC_OK;
        return fail(GRADSYNC_UNSUPPORTED,
                    "gradsyncd serves the GPU %s (%s), which this process does not see: look at "
                    "CUDA_VISIBLE_DEVICES, or choose the daemon of another GPU (GRADSYNC_DEVICE)",
                    device->name, uuid);
}

static int device_start(struct device *device) {
        const struct cuda_properties properties = {
                .type = CUDA_ALLOCATION_PINNED,
                .handle_types = CUDA_HANDLE_FD,
                .location = { CUDA_LOCATION_DEVICE, device->number },
        };
        cuda_context before;
        cuda_result r = device->cuda.primary_retain(&device->context, device->number);

        if (r != CUDA_OK) {
                device->context = NULL;
                return device_fail(device, "this process gets no context on the GPU", r);
        }
        r = device_enter(device, &before);
        if (r == CUDA_OK)
                r = device->cuda.granularity(&device->granularity, &properties, CUDA_GRANULARITY_RECOMMENDED);
        if (r == CUDA_OK)
                r = device->cuda.stream_new(&device->stream, CUDA_STREAM_NON_BLOCKING, 0);
        device_leave(device, before);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail(device, "the GPU cannot be used", r);
}

/* In a process that has not initialised the driver, asking for the context fails. */
bool device_current(struct device_id *ret) {
        cuda_context context = NULL;
        struct cuda_uuid own;
        cuda_device number;
        struct cuda cuda;

        if (!cuda_look(&cuda, environ_get("GRADSYNC_CUDA_DRIVER")) || cuda.context_get(&context) != CUDA_OK ||
            context == NULL || cuda.context_device(&number) != CUDA_OK ||
            cuda.device_uuid(&own, number) != CUDA_OK)
                return false;
        cuda_uuid_text(&own, ret->uuid);
        ret->ordinal = cuda_find_gpu(&cuda, ret->uuid, &number);
        return true;
}

int device_ordinal(const struct device *device) {
        return device->ordinal;
}

/* Memory can be shared among the clients of one MPS server, or among processes without one. */
static int device_check_mps(struct device *device, bool mps) {
        int value = 0;
        cuda_result r = device->cuda.device_attribute(&value, CUDA_DEVICE_MPS, device->number);

        if (r != CUDA_OK)
                return device_fail(device, "the GPU does not say whether it is used through MPS", r);
        if ((value != 0) == mps)
                return GRADSYNC_OK;
        if (mps)
                return fail(GRADSYNC_UNSUPPORTED,
                            "gradsyncd uses the GPU %s through an MPS server, and this process does not: set "
                            "CUDA_MPS_PIPE_DIRECTORY as gradsyncd has it (`gradsyncctl doctor` looks at it)",
                            device->name);
        return fail(
                GRADSYNC_UNSUPPORTED,
                "this process uses the GPU %s through an MPS server, and gradsyncd does not: let its "
                "service see the server (PrivateTmp=no and CUDA_MPS_PIPE_DIRECTORY in its unit), or unset "
                "CUDA_MPS_PIPE_DIRECTORY here",
                device->name);
}

int device_open(const char *name, const char *uuid, bool mps, struct device **ret) {
        struct device *device = calloc(1, sizeof(*device));
        char error[512];
        int r;

        if (device == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for a GPU");
        strncpy(device->name, name, sizeof(device->name) - 1);
        if (cuda_load(&device->cuda, environ_get("GRADSYNC_CUDA_DRIVER"), error, sizeof(error)) < 0)
                r = fail(GRADSYNC_UNSUPPORTED,
                         "gradsyncd serves the GPU %s, and this process cannot use it: %s", name, error);
        else
                r = device_find(device, uuid);
        if (r == GRADSYNC_OK)
                r = device_check_mps(device, mps);
        if (r == GRADSYNC_OK)
                r = device_start(device);
        if (r != GRADSYNC_OK) {
                device_free(device);
                return r;
        }
        *ret = device;
        return GRADSYNC_OK;
}

void device_free(struct device *device) {
        cuda_context before;

        if (device == NULL)
                return;
        if (device->stream != NULL && device_enter(device, &before) == CUDA_OK) {
                device->cuda.stream_free(device->stream);
                device_leave(device, before);
        }
        if (device->context != NULL)
                device->cuda.primary_release(device->number);
        free(device);
}

static cuda_result device_place(const struct device *device, cuda_handle handle, uint64_t bytes,
                                cuda_address *ret) {
        const struct cuda_access access = { { CUDA_LOCATION_DEVICE, device->number },
                                            CUDA_ACCESS_READ_WRITE };
        cuda_result r = device->cuda.reserve(ret, bytes, 0, 0, 0);

        if (r != CUDA_OK)
                return r;
        r = device->cuda.map(*ret, bytes, 0, handle, 0);
        if (r == CUDA_OK)
                r = device->cuda.set_access(*ret, bytes, &access, 1);
        if (r != CUDA_OK) {
                device->cuda.unmap(*ret, bytes);
                device->cuda.unreserve(*ret, bytes);
        }
        return r;
}

static uint64_t device_round_up(const struct device *device, uint64_t bytes) {
        return (bytes + device->granularity - 1) / device->granularity * device->granularity;
}

int device_map(struct device *device, int fd, uint64_t bytes, uint8_t **ret) {
        cuda_address address = 0;
        cuda_context before;
        cuda_handle handle;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK)
                r = device->cuda.import_handle(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD);
        if (r == CUDA_OK) {
                r = device_place(device, handle, device_round_up(device, bytes), &address);
                device->cuda.release(handle);
        }
        device_leave(device, before);
        if (r != CUDA_OK)
                return device_fail(device, "the arena cannot be mapped", r);
        *ret = (uint8_t *)(uintptr_t)address;
        return GRADSYNC_OK;
}

void device_unmap(struct device *device, uint8_t *mapped, uint64_t bytes) {
        cuda_address address = (uintptr_t)mapped;
        uint64_t whole = device_round_up(device, bytes);
        cuda_context before;

        if (device_enter(device, &before) == CUDA_OK) {
                device->cuda.unmap(address, whole);
                device->cuda.unreserve(address, whole);
        }
        device_leave(device, before);
}

/* The driver refuses streams of other contexts with one of two results. */
static int device_fail_stream(const struct device *device, const char *what, cuda_result result) {
        if (result != CUDA_INVALID_HANDLE && result != CUDA_INVALID_CONTEXT)
                return device_fail(device, what, result);
        return fail(
                GRADSYNC_INVALID,
                "%s: the stream is none of this GPU's primary context, in which the gradients are: it may "
                "be another GPU's. Mark the parameter on a stream of this GPU",
                device->name);
}

int device_clear_on(struct device *device, void *address, uint64_t bytes, cuda_stream stream) {
        cuda_context before;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK)
                r = device->cuda.set_async((uintptr_t)address, 0, bytes, stream);
        device_leave(device, before);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail_stream(device, "memory cannot be cleared", r);
}

int device_clear(struct device *device, void *address, uint64_t bytes, cuda_stream *stream) {
        *stream = device->stream;
        return device_clear_on(device, address, bytes, device->stream);
}

static int device_fail_capture(const struct device *device) {
        return fail(GRADSYNC_UNSUPPORTED,
                    "%s: the stream is being captured into a graph: mark the parameters after the graph has "
                    "been launched, on the stream that it was launched in",
                    device->name);
}

int device_record(struct device *device, cuda_event *event, cuda_stream stream) {
        unsigned capturing = 0;
        cuda_context before;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK)
                r = device->cuda.stream_capturing(stream, &capturing);
        if (r == CUDA_OK && capturing == 0 && *event == NULL)
                r = device->cuda.event_new(event, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC);
        if (r == CUDA_OK && capturing == 0)
                r = device->cuda.event_record(*event, stream);
        device_leave(device, before);
        if (r == CUDA_STREAM_CAPTURE_IMPLICIT || (r == CUDA_OK && capturing != 0))
                return device_fail_capture(device);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail_stream(device, "an event cannot be recorded", r);
}

int device_wait_event(struct device *device, cuda_event event) {
        cuda_context before;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK)
                r = device->cuda.event_wait(event);
        device_leave(device, before);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail(device, "the work that makes a gradient failed", r);
}

void device_free_event(struct device *device, cuda_event event) {
        cuda_context before;

        if (event == NULL || device_enter(device, &before) != CUDA_OK)
                return;
        device->cuda.event_free(event);
        device_leave(device, before);
}

int device_wait(struct device *device) {
        cuda_context before;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK)
                r = device->cuda.stream_wait(device->stream);
        device_leave(device, before);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail(device, "work on the GPU failed", r);
}

static uint64_t device_attribute(const struct device *device, unsigned attribute, const void *address) {
        uint64_t value = 0;

        device->cuda.pointer_attribute(&value, attribute, (uintptr_t)address);
        return value;
}

static int device_fail_other(const struct device *device, const void *address) {
        return fail(GRADSYNC_INVALID, "%s: the memory at %p is another GPU's", device->name, address);
}

static bool device_is_own(const struct device *device, const void *address) {
        return (int)device_attribute(device, CUDA_POINTER_DEVICE_ORDINAL, address) == device->number;
}

static int device_check_range(struct device *device, const void *address, uint64_t bytes,
                              struct device_range *range) {
        uint64_t size = device_attribute(device, CUDA_POINTER_RANGE_SIZE, address);

        range->base = device_attribute(device, CUDA_POINTER_RANGE_START, address);
        range->offset = (uintptr_t)address - range->base;
        if (!device_has(device, address))
                return fail(GRADSYNC_INVALID, "%s: %p is no address of a GPU's memory", device->name,
                            address);
        if (device_attribute(device, CUDA_POINTER_IS_MANAGED, address) != 0)
                return fail(GRADSYNC_UNSUPPORTED,
                            "%s: managed memory cannot be shared: allocate it with cudaMalloc()",
                            device->name);
        if (!device_is_own(device, address))
                return device_fail_other(device, address);
        if (bytes == 0 || range->offset > size || bytes > size - range->offset)
                return fail(GRADSYNC_INVALID,
                            "%s: the %llu bytes at %p are not all of one allocation, which ends after %llu",
                            device->name, (unsigned long long)bytes, address,
                            (unsigned long long)(size - range->offset));
        return GRADSYNC_OK;
}

static cuda_result device_export(struct device *device, struct device_range *range) {
        cuda_handle handle;
        cuda_result r;

        range->legacy =
                (device_attribute(device, CUDA_POINTER_LEGACY_IPC, (void *)(uintptr_t)range->base) & 1) != 0;
        if (range->legacy)
                return device->cuda.ipc_get(&range->ipc, range->base);
        r = device->cuda.retain_handle(&handle, (void *)(uintptr_t)range->base);
        if (r != CUDA_OK)
                return r;
        r = device->cuda.export_handle(&range->fd, handle, CUDA_HANDLE_FD, 0);
        device->cuda.release(handle);
        return r;
}

int device_share(struct device *device, const void *address, uint64_t bytes, struct device_range *ret) {
        cuda_context before;
        cuda_result r = device_enter(device, &before);
        char name[64];

        *ret = (struct device_range){ .fd = -1 };
        int code = r == CUDA_OK ? device_check_range(device, address, bytes, ret)
                                : device_fail(device, "the GPU cannot be used", r);
        if (code == GRADSYNC_OK)
                r = device_export(device, ret);
        device_leave(device, before);
        if (code == GRADSYNC_OK && r != CUDA_OK)
                code = fail(
                        GRADSYNC_UNSUPPORTED,
                        "%s: this memory cannot be shared with other processes (%s): allocate it with "
                        "cudaMalloc(), not from a pool or in expandable segments, or let gradsyncd allocate "
                        "the gradients",
                        device->name, cuda_error(&device->cuda, r, name, sizeof(name)));
        return code;
}

/* Asks in the GPU's context, because some drivers need one for the question. */
bool device_has(struct device *device, const void *address) {
        cuda_context before;
        unsigned type = 0;
        cuda_result r = device_enter(device, &before);
        bool has = r == CUDA_OK &&
                   device->cuda.pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, (uintptr_t)address) ==
                           CUDA_OK &&
                   type == CUDA_MEMORY_DEVICE;

        device_leave(device, before);
        return has;
}

static bool device_holds(struct device *device, const void *address) {
        cuda_context before;
        bool own = device_enter(device, &before) == CUDA_OK && device_is_own(device, address);

        device_leave(device, before);
        return own;
}

/* Copies between two places, of which at least one is on the GPU. */
static int device_copy(struct device *device, void *to, bool to_gpu, const void *from, bool from_gpu,
                       uint64_t bytes) {
        const void *other = to_gpu ? to : NULL;
        cuda_context before;
        cuda_result r = device_enter(device, &before);

        if (r == CUDA_OK && other != NULL && device_is_own(device, other))
                other = NULL;
        if (r == CUDA_OK && other == NULL && from_gpu && !device_is_own(device, from))
                other = from;
        if (r == CUDA_OK && other != NULL) {
                device_leave(device, before);
                return device_fail_other(device, other);
        }
        if (r == CUDA_OK && to_gpu && from_gpu)
                r = device->cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, device->stream);
        else if (r == CUDA_OK)
                r = to_gpu ? device->cuda.copy_in((uintptr_t)to, from, bytes, device->stream)
                           : device->cuda.copy_out(to, (uintptr_t)from, bytes, device->stream);
        if (r == CUDA_OK)
                r = device->cuda.stream_wait(device->stream);
        device_leave(device, before);
        return r == CUDA_OK ? GRADSYNC_OK : device_fail(device, "a copy failed", r);
}

int device_check_own(struct device *device, const void *address) {
        return address == NULL || !device_has(device, address) || device_holds(device, address)
                       ? GRADSYNC_OK
                       : device_fail_other(device, address);
}

int device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes) {
        return device_copy(device, to, true, from, false, bytes);
}

int device_copy_out(struct device *device, void *to, const void *from, uint64_t bytes) {
        return device_copy(device, to, false, from, true, bytes);
}

/* ---- without a daemon ---- */

/* Whether this process has a context on the GPU. Where memory of a GPU exists, its context does, so none is
 * made only to find out whose memory it is. */
static bool device_is_active(const struct device *device) {
        unsigned flags = 0;
        cuda_device current;
        int active = 0;

        if (device->cuda.primary_state(device->number, &flags, &active) == CUDA_OK && active != 0)
                return true;
        return device->cuda.context_device(&current) == CUDA_OK && current == device->number;
}

/* *ret_done: the data is copied, or the copy failed; else another GPU has to be asked. */
static int device_copy_here(struct device *device, void *to, const void *from, uint64_t bytes,
                            bool *ret_done) {
        int r = device_start(device);
        bool to_gpu = r == GRADSYNC_OK && device_has(device, to);
        bool from_gpu = r == GRADSYNC_OK && device_has(device, from);

        *ret_done = true;
        if (r != GRADSYNC_OK)
                return r;
        if (!to_gpu && !from_gpu)
                memmove(to, from, bytes);
        else if (device_holds(device, to_gpu ? to : from))
                return device_copy(device, to, to_gpu, from, from_gpu, bytes);
        else
                *ret_done = false;
        return *ret_done
                       ? GRADSYNC_OK
                       : fail(GRADSYNC_UNSUPPORTED,
                              "the memory at %p is of a GPU whose primary context this process does not have",
                              to_gpu ? to : from);
}

/* Tries a copy by GPU number `ordinal` of those that this process sees, if the process uses that GPU. */
static int device_try_copy(const struct cuda *cuda, int ordinal, void *to, const void *from, uint64_t bytes,
                           bool *ret_done) {
        struct device *device = calloc(1, sizeof(*device));
        int r = GRADSYNC_OK;

        if (device == NULL) {
                *ret_done = true;
                return fail(GRADSYNC_NO_MEMORY, "no memory for a GPU");
        }
        device->cuda = *cuda;
        device->ordinal = ordinal;
        snprintf(device->name, sizeof(device->name), "GPU %d", ordinal);
        if (device->cuda.device_get(&device->number, ordinal) == CUDA_OK && device_is_active(device))
                r = device_copy_here(device, to, from, bytes, ret_done);
        device_free(device);
        return r;
}

int device_copy_alone(void *to, const void *from, uint64_t bytes) {
        int r = GRADSYNC_OK, n = 0;
        struct cuda cuda;

        /* Where the driver is not initialised, there is no memory of a GPU. */
        if (!cuda_look(&cuda, environ_get("GRADSYNC_CUDA_DRIVER")) || cuda.device_count(&n) != CUDA_OK)
                n = 0;
        for (int i = 0; i < n; i++) {
                bool done = false;
                int one = device_try_copy(&cuda, i, to, from, bytes, &done);

                if (done)
                        return one;
                if (one != GRADSYNC_OK)
                        r = one;
        }
        if (r == GRADSYNC_OK)
                memmove(to, from, bytes);
        return r;
}
