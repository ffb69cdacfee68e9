/* SPDX-License-Identifier: Apache-2.0 */
/* struct gradsync_memory: memory of the trainer's own, registered with the daemon, in which gradients of its plans lie. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/memory/shared.h"
#include "client/lib/wire/request.h"
#include "proto/memfd.h"

struct gradsync_job;

struct gradsync_memory {
        struct gradsync_memory *next; /* of its job */
        struct gradsync_job *job;
        struct memfd_file file;
        uint64_t offset; /* in the file */
        struct shared map;
        bool mapped_here;       /* and not by the trainer */
        bool touched;           /* all pages of the range are there */
        uint32_t handle;        /* with the daemon */
        struct request request; /* register, unregister */
        uint32_t connection;    /* on which that was asked */
        int fd;                 /* while it is being registered: how the caller is recognised. The caller's */
        int kept;               /* a copy, for the daemon that may follow; -1: none */
        struct request again;   /* registers it there */
        bool told;              /* that has been sent */
};

/* Offers it to the daemon that follows; the request `again`, with this function for its refusal, is
 * answered before plans are told. OK,
 * or AGAIN. */
int registered_offer(struct gradsync_memory *memory, request_refused_fn refused);
/* Frees it, and unmaps what was mapped here. The daemon, if it lives, does not know it any more. */
void registered_free(struct gradsync_memory *memory);

/* The daemon gives its access to it up. */
int registered_withdraw(struct gradsync_memory *memory);
