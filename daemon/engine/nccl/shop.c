/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/shop.h"

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
        pthread_cond_broadcast(&comm->shop->change);
}

void communicator_break(struct communicator *comm, uint32_t suspect, const char *why) {
        if (comm->state >= COMMUNICATOR_BROKEN)
                return;
        bool working = comm->state == COMMUNICATOR_WORKING;
        comm->suspect = suspect;
        snprintf(comm->error, sizeof(comm->error), "%s", why);
        comm->shop->windowless |= comm->registers;
        communicator_set_state(comm, COMMUNICATOR_BROKEN);
        shop_tell(comm->shop, working ? &comm->unreachable : &comm->built);
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

void shop_tell(struct shop *shop, struct news *news) {
        list_append(&shop->news, &news->link);
        eventfd_write(shop->wake, 1);
}

bool shop_frees(const struct shop *shop) {
        const struct communicator *comm;

        list_for_each(comm, &shop->comms, link)
                if (comm->state == COMMUNICATOR_ABORTED && !comm->over)
                        return true;
        return false;
}

void shop_fail(struct shop *shop, const char *why) {
        if (shop->failure[0] != '\0')
                return;
        snprintf(shop->failure, sizeof(shop->failure), "%s", why);
        eventfd_write(shop->wake, 1);
}
