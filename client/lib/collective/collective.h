/* SPDX-License-Identifier: Apache-2.0 */
/* struct collective: the operations of a job outside of steps, one at a time, and the memory through which
 * they go. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/memory/shared.h"
#include "client/lib/wire/request.h"

struct gradsync_job;

enum collective_phase {
        COLLECTIVE_IDLE,
        /* Asks for the staging memory. */
        COLLECTIVE_STAGING,
        /* Maps the memory, and faults its pages in. */
        COLLECTIVE_TOUCH,
        /* Informs the daemon that the memory is mapped. */
        COLLECTIVE_MAPPED,
        COLLECTIVE_CHUNKS,
        /* Failed with its generation; waits for the next one, or for the end of the job. */
        COLLECTIVE_VOID,
};

struct collective {
        struct gradsync_job *job;
        struct shared staging;
        /* Descriptor of the memory, kept until the mapping, or for the daemon that may follow; -1: none. */
        int staging_fd;
        /* The daemon knows that the memory is touched. */
        bool staging_agreed;
        /* Operations that have ended in this generation. */
        uint64_t sequence;
        /* The call that is under way, which may take many operations. */
        enum collective_phase phase;
        unsigned kind, dtype, reduce;
        uint32_t root;
        const void *in;
        void *out;
        bool sealed;
        /* OK, or why the GPU that data lies on did not copy. */
        int copied;
        /* Size of one member's part, see Wire__Operation. */
        uint64_t bytes;
        /* The generation in which the call was made, and the member's place in it. */
        uint32_t generation, rank, world;
        /* The connection on which the staging memory was asked for. */
        uint32_t connection;
        /* Bytes done, and bytes in the operation that is under way; chunk 0: none. */
        uint64_t at, chunk;
        struct request request;
};

/*
 * As gradsync_allgather_sealed() and gradsync_broadcast_sealed(), for gradsync_sync_state(). The allgather
 * begins whether or not the caller knows of the generation. The broadcast is void if the job is not in
 * `generation` any more. It sends `in` on rank `root`; on other ranks it receives into `out`, and nothing if
 * that is NULL.
 */
int collective_allgather(struct gradsync_job *job, const void *in, void *out, uint64_t bytes);
int collective_broadcast(struct gradsync_job *job, uint32_t generation, const void *in, void *out,
                         uint64_t bytes, uint32_t root);

/* The connection is lost. The operation stays open if others may know its end. */
void collective_lost(struct collective *collective, const char *why);
/* The job goes on, or is over: `operations` have ended in it (0: not known), the last of them with an
 * error if `failed`. */
void collective_settle(struct collective *collective, uint64_t operations, bool failed, const char *why);
