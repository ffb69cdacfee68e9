/* SPDX-License-Identifier: Apache-2.0 */
/* How each call begins. See call.h. */
#include "call.h"

nccl_result call_check_known(const struct ncclComm *comm, const char *call) {
        if (comm == NULL)
                return trouble(NCCL_INVALID_ARGUMENT, "%s : comm argument is NULL", call);
        if (!comm_is(comm) || comm->state == COMM_GONE)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "%s of a communicator that is gone", call);
        return NCCL_OK;
}

nccl_result call_check_idle(const struct ncclComm *comm, const char *call) {
        nccl_result result = call_check_known(comm, call);

        if (result == NCCL_OK)
                result = comm_result(comm);
        if (result == NCCL_IN_PROGRESS)
                return trouble_rule(NCCL_INVALID_ARGUMENT,
                                    "%s before the previous operation returned ncclSuccess", call);
        return result;
}

nccl_result call_check_alive(const struct ncclComm *comm, const char *call) {
        nccl_result result = call_check_idle(comm, call);

        if (result == NCCL_OK && comm->state == COMM_FINALIZED)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "%s of a communicator that was finalized", call);
        if (result == NCCL_OK && comm->state == COMM_NEW)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "%s of a communicator that is not made yet", call);
        return result;
}

nccl_result call_spoil(struct ncclComm *comm, nccl_result result) {
        pthread_mutex_lock(&comm_lock);
        if (comm->working == 0)
                comm->result = result;
        pthread_mutex_unlock(&comm_lock);
        return result;
}

nccl_result call_make(struct task *task, const struct nccl_config *config, nccl_comm *ret) {
        int ctas;
        nccl_result result = comm_configure(config, &ctas);

        *ret = NULL;
        if (result != NCCL_OK)
                return result;
        task->comm = comm_new(ctas);
        if (task->comm == NULL)
                return NCCL_CUDA_ERROR;
        task->makes = true;
        if (task->parent == NULL)
                *ret = task->comm;
        else
                task->ret = ret;
        return NCCL_OK;
}
