/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine for memory of a GPU: NCCL, in this process, because a communicator belongs to the daemon. Each
 * lane is a communicator of NCCL with a stream of its own. One thread issues the collectives of all of them,
 * in the order in which launch() was called. Each communicator has a thread that makes and ends it, because
 * both may take long. NCCL touches staging only, and no work that it is given waits for another process
 * before it begins.
 */
#pragma once

#include "engine/engine.h"

#define NCCL_LANES 4u /* most lanes of a communicator */

struct nccl_engine_config {
        const char *host;    /* the same for all daemons of this host, and for no others; copied */
        const char *uuid;    /* UUID of the GPU, as nvidia-smi prints it */
        const char *driver;  /* path of the driver's library; NULL: where the system has it */
        const char *library; /* path of NCCL's library; NULL: where the loader finds it */
        uint32_t timeout;    /* ms for a communicator to be made */
        uint32_t exchange;   /* ms for a collective, from when it is the first of its lane */
        uint32_t ending;     /* ms for a communicator to be ended; one that takes longer never ends */
        unsigned ctas;       /* most thread blocks of a lane's kernels; 0: as many as NCCL likes */
        bool shares_gpu;     /* NCCL has been told that ranks may be on one GPU */
        int log;             /* descriptor to which NCCL logs, see environment.h; -1 if none */
        /* Called from dispatch(), once: this process cannot go on, because a communicator does not end, or
         * because the GPU is of no use to it any more. */
        void (*failed)(void *owner, const char *why);
        void *owner;
};

/* 0 and *ret; or -ENOENT, -ENOSYS, -ENODEV or another negative errno, with one sentence in `error`. */
int nccl_open(const struct nccl_engine_config *config, struct engine **ret, char *error, size_t size);
/* All communicators must be dropped or aborted. NULL is fine. */
void nccl_close(struct engine *engine);
