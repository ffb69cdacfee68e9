/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory of the driver's virtual memory management: created, exported as a descriptor, imported,
 * mapped. Used by every fact in which a daemon owns memory and others map it.
 */
#pragma once

#include "actor.h"

struct vmm {
        cuda_handle handle;
        cuda_address address; /* 0: not mapped */
        size_t size;          /* bytes */
};

/* The size that allocations and mappings are multiples of. */
size_t vmm_granularity(struct actor *actor);

/* `granules` times the granularity, exportable as a descriptor, mapped for reading and writing. */
struct vmm vmm_new(struct actor *actor, unsigned granules);

/* Another descriptor of it, the caller's. */
int vmm_export(struct actor *actor, const struct vmm *vmm);

/* The memory of a descriptor whose sender has told the size; vmm_map() maps it for reading and writing. */
struct vmm vmm_import(struct actor *actor, int fd, size_t size);
cuda_result vmm_import_try(struct actor *actor, struct vmm *vmm, int fd, size_t size);
void vmm_map(struct actor *actor, struct vmm *vmm);

/* Sends a descriptor of it and its size, as `word`. */
void vmm_send(struct actor *actor, int channel, const struct vmm *vmm, const char *word);

/* Receives, imports and maps what a peer, or the starter of this process, sends. */
struct vmm vmm_receive_from(struct actor *actor, struct peer *peer, const char *word);
struct vmm vmm_receive(struct actor *actor, const char *word);

/* Whether first, middle and last word of it are `word`. */
bool vmm_holds(struct actor *actor, cuda_stream stream, const struct vmm *vmm, uint32_t word);
