/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the GPU: an allocation of the daemon's, for itself or passed on as a descriptor, or one of
 * somebody else that a descriptor or an IPC handle names. All of this may take long, so it is done by the
 * keeper's thread.
 */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/card.h"
#include "backend/cuda/pinned.h"

struct vmm {
        struct backend_memory memory;
        uint64_t bytes; /* that can be used */
        cuda_address address;
        cuda_address base; /* what is mapped, and how much */
        uint64_t mapped;
        struct pinned_block *beside; /* NULL: none */
        bool legacy;                 /* opened by an IPC handle */
        int fd;                      /* -1: it has none */
};

/* What a request of kind SHARED, OWN, OFFERED or RETURNED asks for. `fd` is the memory's from then on. 0 and
 * *ret; INVALID or QUOTA (positive) with *refusal; or a negative errno. *sticky: the GPU is of no use any
 * more. */
int vmm_new(const struct card *card, struct pinned *pinned, cuda_stream stream,
            const struct memory_request *request, int fd, struct vmm **ret, struct refusal *refusal,
            cuda_result *sticky);
/* Nothing on the GPU uses it any more. NULL is fine. */
void vmm_free(const struct card *card, struct pinned *pinned, struct vmm *vmm);

static inline struct vmm *vmm_of(const struct backend_memory *memory) {
        return (struct vmm *)memory;
}
