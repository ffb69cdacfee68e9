/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/gear.h"

#include <stdlib.h>

static struct gear *gear_find(const struct shop *shop, bool scratch) {
        struct gear *gear, *found = NULL;

        list_for_each(gear, &shop->gear, link)
                if (found == NULL || (gear->scratch != 0) == scratch)
                        found = gear;
        return found;
}

static struct gear *gear_get(struct shop *shop, bool scratch) {
        pthread_mutex_lock(&shop->lock);
        struct gear *gear = gear_find(shop, scratch);

        if (gear != NULL)
                list_remove(&gear->link);
        pthread_mutex_unlock(&shop->lock);
        return gear != NULL ? gear : calloc(1, sizeof(*gear));
}

/* Makes the parts that the gear lacks. */
static cuda_result gear_make(const struct cuda *cuda, struct gear *gear, bool scratch) {
        size_t bytes = ENGINE_WINDOW * ENGINE_VALUES * sizeof(uint64_t);
        cuda_result r = CUDA_OK;

        if (gear->stream == NULL)
                r = cuda->stream_new(&gear->stream, CUDA_STREAM_NON_BLOCKING, 0);
        if (r == CUDA_OK && gear->pinned == NULL)
                r = cuda->host_alloc(&gear->pinned, bytes, CUDA_HOST_DEVICEMAP);
        if (r == CUDA_OK && gear->votes == 0)
                r = cuda->allocate(&gear->votes, bytes);
        for (uint32_t i = 0; i < ENGINE_WINDOW && r == CUDA_OK; i++)
                if (gear->event[i] == NULL)
                        r = cuda->event_new(&gear->event[i], CUDA_EVENT_DISABLE_TIMING);
        if (r == CUDA_OK && scratch && gear->scratch == 0)
                r = cuda->allocate(&gear->scratch, GEAR_SCRATCH);
        return r;
}

cuda_result gear_take(struct shop *shop, struct lane *lane, bool scratch) {
        struct gear *gear = gear_get(shop, scratch);

        if (gear == NULL)
                return CUDA_OUT_OF_MEMORY;
        lane->gear = gear;
        cuda_result r = gear_make(&shop->gpu.cuda, gear, scratch);
        for (uint32_t i = 0; i < ENGINE_WINDOW; i++) {
                struct flight *flight = &lane->flight[i];

                flight->values = (uint64_t *)gear->pinned + i * ENGINE_VALUES;
                flight->votes = gear->votes + i * ENGINE_VALUES * sizeof(uint64_t);
                flight->event = gear->event[i];
        }
        return r;
}

bool gear_take_panes(const struct nccl *nccl, struct lane *lane) {
        struct gear *gear = lane->gear;

        if (gear->panes == NULL && nccl->mem_alloc != NULL && nccl->mem_free != NULL &&
            nccl->register_window != NULL && nccl->mem_alloc(&gear->panes, GEAR_PANES) != NCCL_OK)
                gear->panes = NULL;
        for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                lane->flight[i].pane = (uintptr_t)gear->panes + (uint64_t)i * TABLE_PANE;
        return gear->panes != NULL;
}

void gear_leave(struct lane *lane, struct shop *shop) {
        if (lane->gear != NULL)
                list_append(&shop->gear, &lane->gear->link);
        lane->gear = NULL;
}

static void gear_free_one(const struct gpu *gpu, struct gear *gear) {
        const struct cuda *cuda = &gpu->cuda;

        for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                if (gear->event[i] != NULL)
                        cuda->event_free(gear->event[i]);
        if (gear->panes != NULL)
                gpu->nccl.mem_free(gear->panes);
        if (gear->scratch != 0)
                cuda->free(gear->scratch);
        if (gear->votes != 0)
                cuda->free(gear->votes);
        if (gear->pinned != NULL)
                cuda->host_free(gear->pinned);
        if (gear->stream != NULL)
                cuda->stream_free(gear->stream);
        free(gear);
}

void gear_free(struct shop *shop) {
        while (!list_empty(&shop->gear)) {
                struct gear *gear = list_entry(shop->gear.next, struct gear, link);

                list_remove(&gear->link);
                pthread_mutex_unlock(&shop->lock);
                gear_free_one(&shop->gpu, gear);
                pthread_mutex_lock(&shop->lock);
        }
}
