/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers memory with communicators, where the library has that (ncclCommRegister, 2.19). NCCL wants all
 * ranks to have registered what a collective uses, or none: so a communicator works only once all memory is
 * registered with it, and memory is there only once it is registered with all communicators that work; nodes
 * compare before each step, and do that only when both is so. The lock is held in all of these, and given up
 * around calls of NCCL.
 */
#pragma once

#include "engine/nccl/shop.h"

static inline bool registrar_is_of_use(const struct shop *shop) {
        return shop->gpu.nccl.register_buffer != NULL && shop->gpu.nccl.deregister != NULL;
}

/* For the worker, of a communicator that is being made: all memory that there is when it returns. */
void registrar_begin(struct communicator *comm);
/* For the launcher: what has come, or is unwanted, since it was called last. */
void registrar_run(struct shop *shop);
/* For the worker: NCCL has nothing of the communicator any more. */
void registrar_end(struct communicator *comm);
/* Nobody has it, or is about to. */
bool registrar_is_free(const struct shop_memory *memory);
