/* SPDX-License-Identifier: Apache-2.0 */
/* struct gradsync_memory: memory of the trainer's own, registered with the daemon, in which gradients of
 * its plans lie. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/memory/shared.h"
#include "client/lib/wire/request.h"
#include "proto/cuda.h"
#include "proto/memfd.h"

struct gradsync_job;

struct gradsync_memory {
        /* Of its job. */
        struct gradsync_memory *next;
        struct gradsync_job *job;
        struct memfd_file file;
        /* In the file. */
        uint64_t offset;
        struct shared map;
        /* It is the GPU's. */
        bool on_gpu;
        /* And named by a handle instead of a descriptor. */
        bool legacy;
        struct cuda_ipc ipc;
        /* And not by the trainer. */
        bool mapped_here;
        /* All pages of the range are there. */
        bool touched;
        /* With the daemon. */
        uint32_t handle;
        /* Register, unregister. */
        struct request request;
        /* On which that was asked. */
        uint32_t connection;
        /* While it is being registered: how the caller is recognised. The caller's. */
        int fd;
        /* A copy, for the daemon that may follow; -1: none. */
        int kept;
        /* Registers it there. */
        struct request again;
        /* That has been sent. */
        bool told;
};

/* Offers it to the daemon that follows. The request `again`, with this function for its refusal, is
 * answered before plans are offered. OK, or AGAIN. */
int registered_offer(struct gradsync_memory *memory, request_refused_fn refused);
/* Frees it, and unmaps what was mapped here. The daemon, if it lives, does not know it any more. */
void registered_free(struct gradsync_memory *memory);

/* The daemon gives its access to it up. */
int registered_withdraw(struct gradsync_memory *memory);
