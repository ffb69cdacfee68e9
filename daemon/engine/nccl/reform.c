/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/reform.h"

#include <stdio.h>
#include <string.h>

void reform_begin(struct communicator *comm, struct communicator *older) {
        if (older == NULL || older->state != COMMUNICATOR_WORKING || older->lent || older->spent ||
            strlen(older->name) >= TABLE_OLDER)
                return;
        comm->older = older;
        older->lent = older->spent = true;
}

void reform_end(struct communicator *comm) {
        struct communicator *older = comm->older;

        if (older == NULL)
                return;
        older->lent = false;
        comm->older = NULL;
        comm->common->unregistered = true; /* registrations that were put off while it was lent */
        pthread_cond_signal(&comm->common->work);
        pthread_cond_broadcast(&comm->common->change);
}

/* ---- what this node has ---- */

/* Whether nothing of the communicator is under way. The lock is held. */
static bool reform_is_idle(const struct communicator *older) {
        const struct flight *flight;

        for (uint32_t lane = 0; lane < older->n_lanes; lane++)
                if (older->lane[lane].launched != older->lane[lane].ended)
                        return false;
        list_for_each(flight, &older->common->queue, news.link)
                if (flight->news.comm == older)
                        return false;
        return older->state == COMMUNICATOR_WORKING;
}

/* Whether the older communicator can be used. It waits for calls that began before it was lent, as long as
 * this one is wanted: NCCL may not take a collective. */
static bool reform_has_older(const struct communicator *comm) {
        struct common *common = comm->common;

        if (comm->older == NULL)
                return false;
        pthread_mutex_lock(&common->lock);
        while (comm->older->calls > 0 && comm->state == COMMUNICATOR_FORMING)
                pthread_cond_wait(&common->change, &common->lock);
        bool idle = comm->older->calls == 0 && reform_is_idle(comm->older);
        pthread_mutex_unlock(&common->lock);
        return idle;
}

static bool communicator_has_node(const struct communicator *comm, uint32_t address) {
        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                if (comm->node[rank] == address)
                        return true;
        return false;
}

int reform_list_left_out(const struct communicator *comm, int *ret) {
        const struct communicator *older = comm->older;
        int n = 0;

        for (uint32_t rank = 0; rank < older->n_nodes; rank++)
                if (!communicator_has_node(comm, older->node[rank]))
                        ret[n++] = (int)rank;
        return n;
}

static bool reform_is_part(const struct communicator *comm) {
        const struct communicator *older = comm->older;

        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                if (!communicator_has_node(older, comm->node[rank]))
                        return false;
        return comm->n_nodes < older->n_nodes;
}

static bool reform_is_extension(const struct communicator *comm) {
        const struct communicator *older = comm->older;

        return older->n_nodes < comm->n_nodes &&
               memcmp(older->node, comm->node, older->n_nodes * sizeof(*older->node)) == 0;
}

nccl_result reform_offer(struct communicator *comm, struct table *own) {
        const struct nccl *nccl = &comm->common->gpu.nccl;

        own->has_id = comm->self == 0;
        own->shrinks = nccl->shrink != NULL;
        own->grows = nccl->grow != NULL && nccl->grow_id != NULL;
        if (reform_has_older(comm)) {
                snprintf(own->older, sizeof(own->older), "%s", comm->older->name);
                own->n_older = comm->older->n_nodes;
        }
        if (!own->has_id)
                return NCCL_OK;
        if (own->older[0] != '\0' && own->shrinks && reform_is_part(comm)) {
                own->reform = REFORM_SHRINK;
                return NCCL_OK;
        }
        if (own->older[0] != '\0' && own->grows && reform_is_extension(comm) &&
            nccl->grow_id(comm->older->lane[0].comm, &own->id) == NCCL_OK) {
                own->reform = REFORM_GROW;
                return NCCL_OK;
        }
        return nccl->unique_id(&own->id);
}

/* ---- whether all can ---- */

static bool reform_needs_older(const struct table *first, uint32_t rank) {
        return first->reform == REFORM_SHRINK || rank < first->n_older;
}

static bool reform_is_fit(const struct table *table, const struct table *first, uint32_t rank) {
        bool able = first->reform == REFORM_SHRINK ? table->shrinks : table->grows;

        return able && (!reform_needs_older(first, rank) ||
                        (strcmp(table->older, first->older) == 0 && table->n_older == first->n_older));
}

uint32_t reform_find_unfit(const struct communicator *comm) {
        const struct table *first = &comm->table[0];
        uint32_t rank = 0;

        if (first->reform == REFORM_NONE)
                return comm->n_nodes;
        if (first->older[0] == '\0')
                return 0;
        while (rank < comm->n_nodes && reform_is_fit(&comm->table[rank], first, rank))
                rank++;
        if (rank < comm->n_nodes || !reform_needs_older(first, comm->self))
                return rank;
        return (first->reform == REFORM_SHRINK ? reform_is_part(comm) : reform_is_extension(comm)) ? rank : 0;
}
