/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU that the daemon serves, as this process uses it: its primary context, and a stream of the library's
 * own. The driver is loaded when a job first needs it. Calls may come from any thread, and leave the thread's
 * current context as it was. No call is made in a forked child.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/cuda.h"

struct device;

/* Whether a daemon's device is a GPU. */
static inline bool device_is_cuda(const char *name) {
        return name[0] == 'c' && name[1] == 'u';
}

struct device_id {
        char uuid[CUDA_UUID_TEXT];
        /* Number of the GPU in this process; -1: not known. */
        int ordinal;
};

/* Finds the GPU whose context is current in the calling thread; false if there is none. Loads nothing. Not
 * for a forked child, where the driver is of no use. */
bool device_current(struct device_id *ret);

/* Opens the GPU. `name` is the daemon's name for it, for errors; `mps`: the daemon uses it through an MPS
 * server. UNSUPPORTED with the text, if this process has no driver, cannot see the GPU, or is on the other
 * side of MPS; SYSTEM or NO_MEMORY if the GPU cannot be used. */
int device_open(const char *name, const char *uuid, bool mps, struct device **ret);
/* NULL is fine. */
void device_free(struct device *device);

/* Returns the number of the GPU in this process, as cudaSetDevice() takes it. */
int device_ordinal(const struct device *device);

/* Maps an arena that the daemon has made. The fd stays the caller's. */
int device_map(struct device *device, int fd, uint64_t bytes, uint8_t **ret);
void device_unmap(struct device *device, uint8_t *address, uint64_t bytes);

/* Clears memory on the library's own stream, and returns that in *stream. */
int device_clear(struct device *device, void *address, uint64_t bytes, cuda_stream *stream);
/* Clears memory on the caller's stream. */
int device_clear_on(struct device *device, void *address, uint64_t bytes, cuda_stream stream);
/* Records an event in the stream: when the event has ended, all work that was in the stream before has. Makes
 * a new event if *event is NULL. INVALID if the stream is none of this GPU's; UNSUPPORTED if it is being
 * captured, because the event would stand for work that never runs. */
int device_record(struct device *device, cuda_event *event, cuda_stream stream);
/* Sleeps until the event has ended. Called without any lock. */
int device_wait_event(struct device *device, cuda_event event);
void device_free_event(struct device *device, cuda_event event);

struct device_range {
        uint64_t base;   /* address of the allocation */
        uint64_t offset; /* offset of the range in the allocation */
        bool legacy;     /* `ipc` names the allocation for other processes; else `fd` does */
        struct cuda_ipc ipc;
        int fd; /* owned by the caller; -1: none */
};

/* Fills *ret, which lets other processes use the trainer's own memory. INVALID or UNSUPPORTED, with the
 * reason, for memory that is none of this GPU's, is not all of one allocation, or cannot be shared. */
int device_share(struct device *device, const void *address, uint64_t bytes, struct device_range *ret);

/* Waits for the library's own stream. */
int device_wait(struct device *device);

/* Whether the address is one of a GPU's memory: this one's, or another's of this process. */
bool device_has(struct device *device, const void *address);
/* INVALID for memory of another GPU. Host memory and NULL are fine. */
int device_check_own(struct device *device, const void *address);
/* Copies between host memory and the GPU's, and waits. INVALID for memory of another GPU. */
int device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes);
int device_copy_out(struct device *device, void *to, const void *from, uint64_t bytes);

/* Copies in a process without a daemon. Each side is host memory, or memory of any GPU whose primary context
 * exists here. Loads nothing. INVALID if the two sides lie on different GPUs. */
int device_copy_alone(void *to, const void *from, uint64_t bytes);
