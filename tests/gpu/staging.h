/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for allreduces, made and registered as the daemon makes and registers its own. */
#pragma once

#include "proto/cuda.h"
#include "proto/nccl.h"

struct staging {
        cuda_address address; /* 0: there is none */
        size_t bytes;
        nccl_comm comm;
        void *registration; /* NULL: none */
};

/* Makes at least `bytes` bytes on the current context's device. On an error `what` names the operation that
 * failed; the text is constant. */
cuda_result staging_make(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl,
                         nccl_comm comm, size_t bytes, const char **what);
/* The caller sees to it that no work uses the memory any more. */
void staging_free(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl);
