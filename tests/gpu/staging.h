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

/* At least so many bytes, of the current context's device. What fails is in `what`, which is constant. */
cuda_result staging_make(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl,
                         nccl_comm comm, size_t bytes, const char **what);
/* Nothing uses it. */
void staging_free(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl);
