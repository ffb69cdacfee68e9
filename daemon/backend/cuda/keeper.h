/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that makes, takes over and frees memory of the GPU. The driver may take long for that, and waits
 * for kernels. Requests are done one after the other. */
#pragma once

#include "backend/cuda/vmm.h"

struct keeper;

/* `wake` is an eventfd that is written when there is something to deliver. */
int keeper_new(const struct card *card, int wake, struct keeper **ret);
/* Drops queued requests and results that were not delivered, with their memory. NULL is fine; returns
 * NULL. */
struct keeper *keeper_free(struct keeper *keeper);

/* Takes the request's descriptor over. 0 or -ENOMEM. */
int keeper_ask(struct keeper *keeper, const struct memory_request *request);
void keeper_cancel(struct keeper *keeper, uint64_t id);
/* Delivers the requests that are done. Returns CUDA_OK; or the error after which the GPU is of no use any
 * more, and in *ret_failing what was being done. */
cuda_result keeper_deliver(struct keeper *keeper, struct backend *backend, backend_made_fn made, void *owner,
                           const char **ret_failing);
bool keeper_ping(struct keeper *keeper);
/* Returns the free bytes of the GPU's memory when the thread last looked: after each request, and at each
 * ping. */
uint64_t keeper_free_bytes(const struct keeper *keeper);
uint64_t keeper_cpu_us(const struct keeper *keeper);
