/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU as reductions.c uses it: opened as the daemon opens it, with one stream, one buffer, and the memory
 * that a launch of the reduction kernels needs. No wait is without an end. The first failure is kept in
 * words; after it every call fails.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/card.h"
#include "backend/cuda/launch.h"

#define DEVICE_RESULTS (1u << 12) /* words */

struct device {
        struct card card;
        cuda_stream stream;
        cuda_event event;
        cuda_address scratch, memory;
        size_t bytes;      /* of the memory */
        size_t l2;         /* bytes of its cache */
        uint64_t *results; /* host memory that the GPU writes */
        cuda_address device_results;
        bool launched[GRID_KERNELS];
        double open_ms; /* with the loading of the kernels */
        char failed[320];
};

/* 0, or a negative errno with the reason in `error`: -ENODEV if there is no driver or no GPU, -EIO if there
 * is one that does not work. */
int device_present(char *error, size_t size);

/* Likewise, with the reason in `failed`. */
int device_open(struct device *device);
void device_close(struct device *device);

/* Makes the buffer at least so large; its old contents are lost. False without a failure: no memory left. */
bool device_room(struct device *device, size_t bytes);

/* Both wait. */
bool device_put(struct device *device, const void *from, size_t bytes);
bool device_get(struct device *device, void *to, size_t bytes);
/* The buffer's first `have` bytes again and again, until it holds `bytes` of them. Waits. */
bool device_repeat(struct device *device, size_t have, size_t bytes);
/* Copies from offset to offset of the buffer; does not wait. */
bool device_copy(struct device *device, size_t to, size_t from, size_t bytes);

/* Does not wait. */
bool device_launch(struct device *device, struct launch *launch, unsigned cap);
bool device_wait(struct device *device);
/* Waits as the daemon does: records an event and asks for it. */
bool device_wait_event(struct device *device);
