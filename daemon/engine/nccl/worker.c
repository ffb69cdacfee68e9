/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/worker.h"

#include "base/thread.h"
#include "engine/nccl/form.h"
#include "engine/nccl/reform.h"
#include "engine/nccl/registrar.h"
#include "engine/nccl/resources.h"
#include "engine/nccl/teardown.h"

static bool communicator_is_last(const struct communicator *comm) {
        const struct communicator *other;

        list_for_each(other, &comm->common->comms, link)
                if (!other->over)
                        return false;
        return true;
}

/* Takes the resources from the lanes once the launcher has left the communicator. The lock is held. */
static void communicator_strip(struct communicator *comm) {
        while (comm->busy > 0)
                pthread_cond_wait(&comm->common->change, &comm->common->lock);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                resources_leave(&comm->lane[lane], comm->common);
        comm->over = true;
        pthread_cond_broadcast(&comm->common->change);
        if (communicator_is_last(comm))
                resources_free(comm->common);
}

/* Queues NEWS_QUIET. Callers that wait for the communicator's end may go on, although it is still to be
 * freed. */
static void communicator_hush(struct communicator *comm) {
        pthread_mutex_lock(&comm->common->lock);
        common_tell(comm->common, &comm->quiet);
        pthread_mutex_unlock(&comm->common->lock);
}

static void *communicator_main(void *data) {
        struct communicator *comm = data;
        struct common *common = comm->common;

        gpu_enter(&common->gpu);
        form_communicator(comm);
        pthread_mutex_lock(&common->lock);
        reform_end(comm);
        while (comm->state < COMMUNICATOR_ABORTED || comm->calls > 0 || comm->lent)
                pthread_cond_wait(&common->change, &common->lock);
        bool abort = comm->state == COMMUNICATOR_ABORTED;
        pthread_mutex_unlock(&common->lock);
        if (abort && teardown_revoke(comm))
                communicator_hush(comm);
        teardown(comm, abort);
        pthread_mutex_lock(&common->lock);
        communicator_strip(comm);
        registrar_end(comm);
        common_tell(common, &comm->ended);
        pthread_mutex_unlock(&common->lock);
        return NULL;
}

int communicator_start(struct communicator *comm) {
        return thread_start(&comm->worker, "gs-nccl-comm", 0, communicator_main, comm);
}

void communicator_join(struct communicator *comm) {
        pthread_join(comm->worker, NULL);
}
