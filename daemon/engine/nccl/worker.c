/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/worker.h"

#include "base/thread.h"
#include "engine/nccl/end.h"
#include "engine/nccl/form.h"
#include "engine/nccl/gear.h"
#include "engine/nccl/registrar.h"
#include "engine/nccl/way.h"

static bool communicator_is_last(const struct communicator *comm) {
        const struct communicator *other;

        list_for_each(other, &comm->shop->comms, link)
                if (!other->over)
                        return false;
        return true;
}

/* Takes the gear from the lanes once the launcher has left the communicator. The lock is held. */
static void communicator_strip(struct communicator *comm) {
        while (comm->busy > 0)
                pthread_cond_wait(&comm->shop->change, &comm->shop->lock);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                gear_leave(&comm->lane[lane], comm->shop);
        comm->over = true;
        pthread_cond_broadcast(&comm->shop->change);
        if (communicator_is_last(comm))
                gear_free(comm->shop);
}

/* Queues NEWS_QUIET. Callers that wait for the communicator's end may go on, although it is still to be
 * freed. */
static void communicator_hush(struct communicator *comm) {
        pthread_mutex_lock(&comm->shop->lock);
        shop_tell(comm->shop, &comm->quiet);
        pthread_mutex_unlock(&comm->shop->lock);
}

static void *communicator_main(void *data) {
        struct communicator *comm = data;
        struct shop *shop = comm->shop;

        gpu_enter(&shop->gpu);
        form_communicator(comm);
        pthread_mutex_lock(&shop->lock);
        way_end(comm);
        while (comm->state < COMMUNICATOR_ABORTED || comm->calls > 0 || comm->lent)
                pthread_cond_wait(&shop->change, &shop->lock);
        bool abort = comm->state == COMMUNICATOR_ABORTED;
        pthread_mutex_unlock(&shop->lock);
        if (abort && end_revoke(comm))
                communicator_hush(comm);
        end_communicator(comm, abort);
        pthread_mutex_lock(&shop->lock);
        communicator_strip(comm);
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
}
