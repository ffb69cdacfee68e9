/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as the product loads it, and the polling that a communicator that does not block needs. */
#pragma once

#include "actor.h"

#include "proto/nccl.h"

/* Loads the first library that is found and adds its path and version to the detail, or ends the fact with
 * "skipped". */
void library_open(struct actor *actor, struct nccl *nccl);

/* Calls a function of the library, and waits until it is done, or what was begun on `comm` is under way. Ends
 * the fact with "error" if it fails. */
#define NCCL(actor, nccl, comm, what, ...)                                                                   \
        (actor_doing((actor), (what)), call_await((actor), (nccl), (comm), (what), (__VA_ARGS__)))
void call_await(struct actor *actor, struct nccl *nccl, nccl_comm comm, const char *what, nccl_result result);

/* Adds `words` 32-bit integers of all ranks, in place, in `stream`. */
void call_allreduce(struct actor *actor, struct nccl *nccl, nccl_comm comm, cuda_address words, size_t n,
                    cuda_stream stream);
