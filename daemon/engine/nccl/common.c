/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"

nccl_comm lane_take_comm(struct lane *lane) {
        return __atomic_exchange_n(&lane->comm, NULL, __ATOMIC_ACQ_REL);
}

void communicator_set_state(struct communicator *comm, enum communicator_state state) {
        if (state <= comm->state)
                return;
        comm->state = state;
        pthread_cond_broadcast(&comm->common->change);
}

void communicator_break(struct communicator *comm, uint32_t suspect, const char *why) {
        if (comm->state >= COMMUNICATOR_BROKEN)
                return;
        bool working = comm->state == COMMUNICATOR_WORKING;
        comm->suspect = suspect;
        snprintf(comm->error, sizeof(comm->error), "%s", why);
        comm->common->windowless |= comm->registers;
        communicator_set_state(comm, COMMUNICATOR_BROKEN);
        common_tell(comm->common, working ? &comm->unreachable : &comm->built);
}

bool communicator_is_wanted(struct communicator *comm, uint64_t deadline) {
        return comm->state == COMMUNICATOR_FORMING && clock_now() < deadline;
}

void communicator_free(struct communicator *comm) {
        if (comm == NULL)
                return;
        free(comm->name);
        free(comm->node);
        free(comm->table);
        free(comm->learned);
        free(comm->transport);
        free(comm);
}

void common_tell(struct common *common, struct news *news) {
        list_append(&common->news, &news->link);
        eventfd_write(common->wake, 1);
}

bool common_frees(const struct common *common) {
        const struct communicator *comm;

        list_for_each(comm, &common->comms, link)
                if (comm->state == COMMUNICATOR_ABORTED && !comm->over)
                        return true;
        return false;
}

void common_fail(struct common *common, const char *why) {
        if (common->failure[0] != '\0')
                return;
        snprintf(common->failure, sizeof(common->failure), "%s", why);
        eventfd_write(common->wake, 1);
}
