/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the GPU: an allocation of the daemon, for itself or shared as a descriptor; or an allocation of
 * another process, which a descriptor or an IPC handle names. All of this may take long, so the keeper's
 * thread does it.
 */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/card.h"
#include "backend/cuda/pinned.h"

struct vmm {
        struct backend_memory memory;
        uint64_t bytes; /* bytes that can be used */
        cuda_address address;
        cuda_address base; /* address of the mapping, which has `mapped` bytes */
        uint64_t mapped;
        struct pinned_block *companion; /* NULL if none */
        bool legacy;                    /* opened by an IPC handle */
        int fd;                         /* -1 if it has none */
};

/* Makes or opens the memory for a request of kind SHARED, OWN, OFFERED or RETURNED. Takes `fd`. 0 and *ret;
 * INVALID or QUOTA (positive) with *refusal; or a negative errno. *sticky is set to an error after which the
 * GPU is of no use any more. */
int vmm_new(const struct card *card, struct pinned *pinned, cuda_stream stream,
            const struct memory_request *request, int fd, struct vmm **ret, struct refusal *refusal,
            cuda_result *sticky);
/* Frees memory that nothing on the GPU uses any more. NULL is fine. */
void vmm_free(const struct card *card, struct pinned *pinned, struct vmm *vmm);

static inline struct vmm *vmm_of(const struct backend_memory *memory) {
        return (struct vmm *)memory;
}
