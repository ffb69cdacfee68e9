/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that gives work to the GPU, the only one that launches kernels. Tasks wait in lanes, by their
 * turn. Each lane is a stream, so that tasks of one turn end in their order. In a lane users take turns, task
 * by task. Tasks that then follow each other and need the same kernel share a launch. The thread learns by
 * events which launches have ended; it never waits in a call of the driver.
 */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/card.h"

struct issuer;

int issuer_new(const struct card *card, int wake, struct issuer **ret, cuda_result *ret_cuda);
/* All tasks must be gone, or the GPU be of no use any more. NULL is fine; returns NULL. */
struct issuer *issuer_free(struct issuer *issuer);

size_t issuer_room(const struct backend_task *task);
/* 0; -EINVAL for a task that the contract does not allow; or -ENOMEM. */
int issuer_submit(struct issuer *issuer, const struct backend_task *task);
void issuer_cancel(struct issuer *issuer, uint64_t id);
/* Delivers the tasks that have ended. 0; or, after a failure, -EIO with a sentence in `error`. */
int issuer_deliver(struct issuer *issuer, backend_done_fn done, void *owner, char *error, size_t size);
bool issuer_ping(struct issuer *issuer);
uint64_t issuer_cpu_us(const struct issuer *issuer);
