/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/resources.h"

#include <stdlib.h>

static struct resources *resources_find(const struct common *common, bool scratch) {
        struct resources *resources, *found = NULL;

        list_for_each(resources, &common->resources, link)
                if (found == NULL || (resources->scratch != 0) == scratch)
                        found = resources;
        return found;
}

static struct resources *resources_get(struct common *common, bool scratch) {
        pthread_mutex_lock(&common->lock);
        struct resources *resources = resources_find(common, scratch);

        if (resources != NULL)
                list_remove(&resources->link);
        pthread_mutex_unlock(&common->lock);
        return resources != NULL ? resources : calloc(1, sizeof(*resources));
}

/* Makes the parts that are missing. */
static cuda_result resources_make(const struct cuda *cuda, struct resources *resources, bool scratch) {
        size_t bytes = ENGINE_WINDOW * ENGINE_VALUES * sizeof(uint64_t);
        cuda_result r = CUDA_OK;

        if (resources->stream == NULL)
                r = cuda->stream_new(&resources->stream, CUDA_STREAM_NON_BLOCKING, 0);
        if (r == CUDA_OK && resources->pinned == NULL)
                r = cuda->host_alloc(&resources->pinned, bytes, CUDA_HOST_DEVICEMAP);
        if (r == CUDA_OK && resources->votes == 0)
                r = cuda->allocate(&resources->votes, bytes);
        for (uint32_t i = 0; i < ENGINE_WINDOW && r == CUDA_OK; i++)
                if (resources->event[i] == NULL)
                        r = cuda->event_new(&resources->event[i], CUDA_EVENT_DISABLE_TIMING);
        if (r == CUDA_OK && scratch && resources->scratch == 0)
                r = cuda->allocate(&resources->scratch, RESOURCES_SCRATCH);
        return r;
}

cuda_result resources_take(struct common *common, struct lane *lane, bool scratch) {
        struct resources *resources = resources_get(common, scratch);

        if (resources == NULL)
                return CUDA_OUT_OF_MEMORY;
        lane->resources = resources;
        cuda_result r = resources_make(&common->gpu.cuda, resources, scratch);
        for (uint32_t i = 0; i < ENGINE_WINDOW; i++) {
                struct flight *flight = &lane->flight[i];

                flight->values = (uint64_t *)resources->pinned + i * ENGINE_VALUES;
                flight->votes = resources->votes + i * ENGINE_VALUES * sizeof(uint64_t);
                flight->event = resources->event[i];
        }
        return r;
}

bool resources_take_panes(const struct nccl *nccl, struct lane *lane) {
        struct resources *resources = lane->resources;

        if (resources->panes == NULL && nccl->mem_alloc != NULL && nccl->mem_free != NULL &&
            nccl->register_window != NULL && nccl->mem_alloc(&resources->panes, RESOURCES_PANES) != NCCL_OK)
                resources->panes = NULL;
        for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                lane->flight[i].pane = (uintptr_t)resources->panes + (uint64_t)i * TABLE_PANE;
        return resources->panes != NULL;
}

void resources_leave(struct lane *lane, struct common *common) {
        if (lane->resources != NULL)
                list_append(&common->resources, &lane->resources->link);
        lane->resources = NULL;
}

static void resources_free_one(const struct gpu *gpu, struct resources *resources) {
        const struct cuda *cuda = &gpu->cuda;

        for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                if (resources->event[i] != NULL)
                        cuda->event_free(resources->event[i]);
        if (resources->panes != NULL)
                gpu->nccl.mem_free(resources->panes);
        if (resources->scratch != 0)
                cuda->free(resources->scratch);
        if (resources->votes != 0)
                cuda->free(resources->votes);
        if (resources->pinned != NULL)
                cuda->host_free(resources->pinned);
        if (resources->stream != NULL)
                cuda->stream_free(resources->stream);
        free(resources);
}

void resources_free(struct common *common) {
        while (!list_empty(&common->resources)) {
                struct resources *resources = list_entry(common->resources.next, struct resources, link);

                list_remove(&resources->link);
                pthread_mutex_unlock(&common->lock);
                resources_free_one(&common->gpu, resources);
                pthread_mutex_lock(&common->lock);
        }
}
