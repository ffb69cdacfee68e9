/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/registrar.h"

#include <stdlib.h>

#include "base/log.h"

struct registration {
        struct list link; /* in memory->registrations */
        struct communicator *comm;
        uint32_t lane;
        void *handle;
};

bool registrar_is_free(const struct common_memory *memory) {
        return list_empty(&memory->registrations) && memory->busy == 0;
}

static bool memory_is_with(const struct common_memory *memory, const struct communicator *comm) {
        const struct registration *registration;

        list_for_each(registration, &memory->registrations, link)
                if (registration->comm == comm)
                        return true;
        return false;
}

/* Registers a memory for a lane. That is a matter of speed: if it fails NCCL goes another way. */
static void registrar_add_lane(struct communicator *comm, uint32_t lane, struct common_memory *memory) {
        struct registration *registration = calloc(1, sizeof(*registration));
        const struct nccl *nccl = &comm->common->gpu.nccl;
        nccl_result r = NCCL_SYSTEM_ERROR;

        if (registration == NULL)
                return;
        pthread_mutex_unlock(&comm->common->lock);
        r = nccl->register_buffer(comm->lane[lane].comm, (void *)(uintptr_t)memory->address, memory->bytes,
                                  &registration->handle);
        pthread_mutex_lock(&comm->common->lock);
        registration->comm = comm;
        registration->lane = r == NCCL_OK ? lane : NCCL_LANES; /* failed: not to be tried again */
        list_append(&memory->registrations, &registration->link);
}

static void registrar_add(struct communicator *comm, struct common_memory *memory) {
        memory->busy++;
        comm->calls++;
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                registrar_add_lane(comm, lane, memory);
        comm->calls--;
        memory->busy--;
        pthread_cond_broadcast(&comm->common->change);
}

static struct common_memory *registrar_next(const struct communicator *comm) {
        struct common_memory *memory;

        list_for_each(memory, &comm->common->memories, link)
                if (!memory->unwanted && !memory_is_with(memory, comm))
                        return memory;
        return NULL;
}

void registrar_begin(struct communicator *comm) {
        struct common_memory *memory;

        while (registrar_is_of_use(comm->common) && comm->state == COMMUNICATOR_FORMING &&
               (memory = registrar_next(comm)) != NULL)
                registrar_add(comm, memory);
        comm->common->unregistered = true; /* a memory may have waited for this communicator */
}

/* Whether registrations of the communicator may change. One that is lent is NCCL's to make another one of. */
static bool registrar_may(const struct communicator *comm) {
        return comm->state == COMMUNICATOR_WORKING && !comm->lent;
}

/* Finds a registration of an unwanted memory with a communicator that works. */
static struct registration *registrar_find_superfluous(const struct common_memory *memory) {
        struct registration *registration;

        list_for_each(registration, &memory->registrations, link)
                if (memory->unwanted && registrar_may(registration->comm))
                        return registration;
        return NULL;
}

static void registrar_remove(struct common *common, struct common_memory *memory,
                             struct registration *registration) {
        struct communicator *comm = registration->comm;

        list_remove(&registration->link);
        memory->busy++;
        comm->calls++;
        pthread_mutex_unlock(&common->lock);
        if (registration->lane < NCCL_LANES)
                common->gpu.nccl.deregister(comm->lane[registration->lane].comm, registration->handle);
        free(registration);
        pthread_mutex_lock(&common->lock);
        memory->busy--;
        if (--comm->calls == 0)
                pthread_cond_broadcast(&common->change);
}

static void registrar_tell(struct common *common, struct common_memory *memory) {
        if (memory->unwanted && !memory->told && registrar_is_free(memory)) {
                memory->told = true;
                common_tell(common, &memory->unshared);
        } else if (memory->pending && !memory->unwanted) {
                memory->pending = false;
                common_tell(common, &memory->shared);
        }
}

/* Adds or removes one registration. True: the lock was released meanwhile. */
static bool registrar_step(struct common *common) {
        struct registration *registration;
        struct common_memory *memory;
        struct communicator *comm;

        list_for_each(comm, &common->comms, link)
                if (registrar_may(comm) && (memory = registrar_next(comm)) != NULL) {
                        registrar_add(comm, memory);
                        return true;
                }
        list_for_each(memory, &common->memories, link)
                if ((registration = registrar_find_superfluous(memory)) != NULL) {
                        registrar_remove(common, memory, registration);
                        return true;
                }
        return false;
}

void registrar_run(struct common *common) {
        struct common_memory *memory;

        if (!common->unregistered)
                return;
        common->unregistered = false;
        while (registrar_is_of_use(common) && registrar_step(common))
                ;
        list_for_each(memory, &common->memories, link)
                registrar_tell(common, memory);
}

void registrar_end(struct communicator *comm) {
        struct registration *registration, *spare;
        struct common_memory *memory;

        list_for_each(memory, &comm->common->memories, link) {
                list_for_each_safe(registration, spare, &memory->registrations, link)
                        if (registration->comm == comm) {
                                list_remove(&registration->link);
                                free(registration);
                        }
        }
        comm->common->unregistered = true;
        pthread_cond_signal(&comm->common->work);
}
