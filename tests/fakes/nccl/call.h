/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a call of the fake NCCL begins: with the result that a test asks for, and a look at the communicator.
 */
#pragma once

#include "task.h"
#include "trouble.h"

#define EXPORT __attribute__((visibility("default")))

#define CALL_BEGIN(call)                                                                                     \
        do {                                                                                                 \
                nccl_result failed = trouble_begin(call);                                                    \
                if (failed != NCCL_OK)                                                                       \
                        return failed;                                                                       \
        } while (0)

/* `check` is one of the functions below. */
#define CALL_BEGIN_ON(comm, check, call)                                                                     \
        do {                                                                                                 \
                CALL_BEGIN(call);                                                                            \
                nccl_result unusable = check(comm, call);                                                    \
                if (unusable != NCCL_OK)                                                                     \
                        return unusable;                                                                     \
        } while (0)

/* The communicator is not gone. */
nccl_result call_check_known(const struct ncclComm *comm, const char *call);
/* It is not gone, and no call of it is in progress or has failed. */
nccl_result call_check_idle(const struct ncclComm *comm, const char *call);
/* As call_check_idle(), and it is neither finalized nor in the making. */
nccl_result call_check_alive(const struct ncclComm *comm, const char *call);

/* A call of a communicator has failed: so has the communicator. Returns `result`. */
nccl_result call_spoil(struct ncclComm *comm, nccl_result result);

/* Makes the communicator of `task`: which, `ret` says at once if it has no parent, else at the end. */
nccl_result call_make(struct task *task, const struct nccl_config *config, nccl_comm *ret);
