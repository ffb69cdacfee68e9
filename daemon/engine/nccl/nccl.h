/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine for memory of a GPU: NCCL, in this process, because a communicator belongs to the daemon. Each
 * lane is a communicator of NCCL with a stream of its own. Collectives of all of them are issued by one
 * thread, in the order in which launch() was called; whatever may take long, making and ending communicators,
 * is done by a thread of each. NCCL touches staging only, and nothing that it is given waits for another
 * process before it begins.
 */
#pragma once

#include "engine/engine.h"

#define NCCL_LANES 4u /* of a communicator, at most */

struct nccl_engine_config {
        const char *host;    /* the same for all daemons of this host, and for no others; copied */
        const char *uuid;    /* of the GPU, as nvidia-smi prints it */
        const char *driver;  /* path of the driver's library; NULL: where the system has it */
        const char *library; /* path of NCCL's; NULL: where the loader finds it */
        uint32_t timeout;    /* ms, for a communicator to be made, */
        uint32_t exchange;   /* … for a collective from when it is the first of its lane, */
        uint32_t ending;     /* … and for a communicator to be ended: whoever takes longer never ends it */
        unsigned ctas;       /* thread blocks of a lane's kernels, at most; 0: as many as NCCL likes */
        bool shares_gpu;     /* NCCL has been told that ranks may be on one GPU */
        int log;             /* where NCCL writes what it does, see environment.h; -1: nowhere */
        /* Called from dispatch(), once: this process cannot go on, because a communicator does not end, or
         * because the GPU is of no use to it any more. */
        void (*failed)(void *owner, const char *why);
        void *owner;
};

/* 0 and *ret; or -ENOENT, -ENOSYS, -ENODEV or another negative errno, with one sentence in `error`. */
int nccl_open(const struct nccl_engine_config *config, struct engine **ret, char *error, size_t size);
/* All communicators are dropped or aborted. NULL is fine. */
void nccl_close(struct engine *engine);
