/* SPDX-License-Identifier: Apache-2.0 */
/* The gate that every call passes, and the waiting of those that wait. */
#include "client/lib/wire/context.h"

#include "client/lib/base/fail.h"
#include "client/lib/wire/fork.h"

int context_enter(struct gradsync *gs) {
        if (gs == NULL)
                return fail_constant(GRADSYNC_INVALID, "the handle is NULL");
        if (gs->epoch != fork_epoch())
                return fail_constant(
                        GRADSYNC_FORKED,
                        "the handle was opened by another process, before fork(); a child opens its own, "
                        "or leaves gradsync to its parent");
        pthread_mutex_lock(&gs->link.lock);
        return GRADSYNC_OK;
}

int context_leave(struct gradsync *gs, int r) {
        pthread_mutex_unlock(&gs->link.lock);
        return r;
}

int context_open_device(struct gradsync *gs) {
        static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
        struct device *device = NULL;
        int r = GRADSYNC_OK;

        if (gs->device != NULL)
                return GRADSYNC_OK;
        pthread_mutex_unlock(&gs->link.lock);
        pthread_mutex_lock(&opening);
        if (gs->device == NULL) /* several jobs may come here at once */
                r = device_open(gs->device_name, gs->device_uuid, gs->device_mps, &device);
        pthread_mutex_lock(&gs->link.lock);
        if (device != NULL)
                gs->device = device;
        pthread_mutex_unlock(&opening);
        return r;
}

int context_wait(struct gradsync *gs, uint64_t deadline) {
        if (gs->link.failed != 0)
                return link_failure(&gs->link);
        int r = link_wait(&gs->link, deadline);
        gs->handlers->waited(gs);
        return r;
}
