/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/worker.h"

#include "base/thread.h"
#include "engine/nccl/end.h"
#include "engine/nccl/form.h"
#include "engine/nccl/registrar.h"

static void *communicator_main(void *data) {
        struct communicator *comm = data;
        struct shop *shop = comm->shop;

        gpu_enter(&shop->gpu);
        form_communicator(comm);
        pthread_mutex_lock(&shop->lock);
        while (comm->state < COMMUNICATOR_ABORTED || comm->busy > 0)
                pthread_cond_wait(&shop->change, &shop->lock);
        bool abort = comm->state == COMMUNICATOR_ABORTED;
        pthread_mutex_unlock(&shop->lock);
        end_communicator(comm, abort);
        pthread_mutex_lock(&shop->lock);
        registrar_end(comm);
        shop_tell(shop, &comm->ended);
        pthread_mutex_unlock(&shop->lock);
        return NULL;
}

int communicator_start(struct communicator *comm) {
        return thread_start(&comm->worker, "gs-nccl-comm", 0, communicator_main, comm);
}

void communicator_join(struct communicator *comm) {
        pthread_join(comm->worker, NULL);
        communicator_free(comm);
}
