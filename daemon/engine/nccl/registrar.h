/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers memory with communicators, if the library can (ncclCommRegister, 2.19). NCCL wants all ranks to
 * have registered the memory that a collective uses, or none. So a communicator works only once all memory is
 * registered with it, and memory is there only once it is registered with all communicators that work. Nodes
 * compare before each step, and do so only when both conditions hold. The lock is held in all of these
 * functions, and released around calls of NCCL.
 */
#pragma once

#include "engine/nccl/common.h"

static inline bool registrar_is_of_use(const struct common *common) {
        return common->gpu.nccl.register_buffer != NULL && common->gpu.nccl.deregister != NULL;
}

/* For the worker of a communicator that is being made: registers all memory that there is when it returns. */
void registrar_begin(struct communicator *comm);
/* For the launcher: registers and deregisters memory that has come, or is unwanted, since the last call. */
void registrar_run(struct common *common);
/* For the worker: forgets the registrations of a communicator of which NCCL has nothing any more. */
void registrar_end(struct communicator *comm);
/* Whether no communicator has the memory registered, or is about to. */
bool registrar_is_free(const struct common_memory *memory);
