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
        /* Next memory of the job. */
        struct gradsync_memory *next;
        struct gradsync_job *job;
        struct memfd_file file;
        /* Offset of the range in the file, or in the GPU's allocation. */
        uint64_t offset;
        struct shared map;
        /* The memory is the GPU's. */
        bool on_gpu;
        /* `ipc` names it instead of a descriptor. */
        bool legacy;
        struct cuda_ipc ipc;
        /* The library has mapped it, not the trainer. */
        bool mapped_here;
        /* All pages of the range are there. */
        bool touched;
        /* The daemon's number for it. */
        uint32_t handle;
        /* The request of register and unregister. */
        struct request request;
        /* The connection on which `request` was sent. */
        uint32_t connection;
        /* The caller's descriptor while the memory is being registered; it recognises a repeated call. */
        int fd;
        /* A copy of the descriptor, for the daemon that may follow; -1: none. */
        int kept;
        /* The request that registers the memory with the daemon that follows. */
        struct request again;
        /* `again` has been sent. */
        bool told;
};

/* Offers the memory to the daemon that follows, by the request `again`; its refusal calls `refused`. The
 * answer comes before plans are offered. OK, or AGAIN. */
int registered_offer(struct gradsync_memory *memory, request_refused_fn refused);
/* Frees the structure, and unmaps the memory if the library had mapped it. The daemon, if it lives, does not
 * know the memory any more. */
void registered_free(struct gradsync_memory *memory);

/* Has the daemon give up its access to the memory. */
int registered_withdraw(struct gradsync_memory *memory);
