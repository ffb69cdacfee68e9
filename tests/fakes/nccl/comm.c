/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators. See comm.h. */
#include "comm.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "driver.h"
#include "registration.h"
#include "trouble.h"

#ifndef FAKE_NCCL_IS
#define FAKE_NCCL_IS 22809
#endif
#define MAGIC "fakeNCCL"
#define CTAS 4
#define POLL 200 /* microseconds */
#define LEAST_BYTES (offsetof(struct nccl_config, blocking) + sizeof(int))

pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms;

int comm_version(void) {
        return (int)machine_setting("FAKE_NCCL_VERSION", FAKE_NCCL_IS);
}

/* ---- making them ---- */

struct ncclComm *comm_new(int ctas) {
        struct ncclComm *comm = calloc(1, sizeof(*comm));
        struct cuda_uuid uuid;

        if (comm == NULL)
                abort();
        if (driver()->context_device(&comm->device) != CUDA_OK ||
            driver()->device_uuid(&uuid, comm->device) != CUDA_OK) {
                trouble_rule(NCCL_CUDA_ERROR, "a communicator is made without a current context");
                free(comm);
                return NULL;
        }
        memcpy(comm->uuid, &uuid, sizeof(comm->uuid));
        comm->ctas = ctas;
        comm->fd = -1;
        pthread_mutex_lock(&comm_lock);
        comm->next = comms;
        comms = comm;
        pthread_mutex_unlock(&comm_lock);
        return comm;
}

bool comm_is(const struct ncclComm *comm) {
        const struct ncclComm *found;

        pthread_mutex_lock(&comm_lock);
        for (found = comms; found != NULL && found != comm; found = found->next)
                ;
        pthread_mutex_unlock(&comm_lock);
        return found != NULL;
}

/* A thread that a call blocks cannot be told to give up, so no communicator of the product may do that. */
static nccl_result comm_configure_with(const struct nccl_config *config, int *ret_ctas) {
        if (config->blocking != 0)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "a communicator whose calls block");
        if ((config->min_ctas != NCCL_UNDEFINED && config->min_ctas <= 0) ||
            (config->max_ctas != NCCL_UNDEFINED && config->max_ctas <= 0) ||
            config->min_ctas > config->max_ctas)
                return trouble(NCCL_INVALID_ARGUMENT, "Invalid config min/max channels attribute value %d/%d",
                               config->min_ctas, config->max_ctas);
        int ctas = config->max_ctas != NCCL_UNDEFINED ? config->max_ctas : CTAS;
        *ret_ctas = (int)machine_setting("NCCL_MAX_CTAS", (uint64_t)ctas);
        return NCCL_OK;
}

nccl_result comm_configure(const struct nccl_config *config, int *ret_ctas) {
        struct nccl_config own = NCCL_CONFIG;

        if (config != NULL && (config->size < LEAST_BYTES || config->magic != NCCL_MAGIC))
                return trouble_rule(NCCL_INVALID_ARGUMENT,
                                    "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
        if (config != NULL)
                memcpy(&own, config, config->size < sizeof(own) ? config->size : sizeof(own));
        return comm_configure_with(&own, ret_ctas);
}

/* ---- ids ---- */

static uint64_t comm_hash(uint64_t seed, const void *data, size_t bytes) {
        const unsigned char *at = data;

        for (size_t i = 0; i < bytes; i++)
                seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
        return seed;
}

void comm_id_new(struct nccl_id *ret, bool grows) {
        memset(ret, 0, sizeof(*ret));
        memcpy(ret->bytes, MAGIC, strlen(MAGIC));
        if (getrandom(ret->bytes + strlen(MAGIC), BOARD_ID, 0) != BOARD_ID)
                abort();
        ret->bytes[strlen(MAGIC) + BOARD_ID] = (char)grows;
}

bool comm_id_is(const struct nccl_id *id, bool grows) {
        return memcmp(id->bytes, MAGIC, strlen(MAGIC)) == 0 &&
               id->bytes[strlen(MAGIC) + BOARD_ID] == (char)grows;
}

void comm_id_take(struct ncclComm *comm, const struct nccl_id *id) {
        memcpy(comm->id, id->bytes + strlen(MAGIC), BOARD_ID);
}

void comm_id_derive(struct ncclComm *child, const struct ncclComm *parent, uint64_t round, int64_t part) {
        uint64_t half[2];

        for (uint64_t i = 0; i < 2; i++) {
                half[i] = comm_hash(UINT64_C(0xcbf29ce484222325) + i, parent->id, sizeof(parent->id));
                half[i] = comm_hash(half[i], &round, sizeof(round));
                half[i] = comm_hash(half[i], &part, sizeof(part));
        }
        memcpy(child->id, half, sizeof(child->id));
}

/* ---- how it is with them ---- */

bool comm_is_at_work(const struct ncclComm *comm) {
        return comm->board != NULL && comm->board->rank[comm->rank].ended < comm->launched;
}

nccl_result comm_result(const struct ncclComm *comm) {
        pthread_mutex_lock(&comm_lock);
        nccl_result result = comm->working > 0 ? NCCL_IN_PROGRESS : comm->result;
        pthread_mutex_unlock(&comm_lock);
        if (result != NCCL_OK)
                return result;
        if (comm->board != NULL && comm->board->rank[comm->rank].differs)
                return trouble(NCCL_INTERNAL_ERROR, "the ranks differ in a collective");
        return NCCL_OK;
}

/* ---- ending them ---- */

static void comm_stop(struct ncclComm *comm, bool on) {
        comm->stops = on;
        if (comm->board != NULL)
                comm->board->rank[comm->rank].aborted = on;
}

void comm_interrupt(struct ncclComm *comm) {
        comm_stop(comm, true);
}

void comm_settle(struct ncclComm *comm) {
        unsigned working;

        for (;;) {
                pthread_mutex_lock(&comm_lock);
                working = comm->working;
                pthread_mutex_unlock(&comm_lock);
                if (working == 0)
                        break;
                usleep(POLL);
        }
        comm_stop(comm, true); /* it may have met the others meanwhile */
}

void comm_drain(const struct ncclComm *comm) {
        while (comm_is_at_work(comm))
                usleep(POLL);
}

void comm_resume(struct ncclComm *comm) {
        comm_stop(comm, false);
}

void comm_await_interrupt(const struct ncclComm *comm) {
        while (!comm->stops)
                usleep(POLL);
}

void comm_await_abort(const struct ncclComm *comm) {
        while (!comm->aborted)
                usleep(POLL);
}

void comm_leave(struct ncclComm *comm) {
        while (machine_has("nccl-keep"))
                usleep(POLL);
        registrations_drop(comm);
        if (comm->board != NULL)
                board_leave(comm->id, comm->fd, comm->board, comm->rank);
        comm->board = NULL;
        comm->state = COMM_GONE;
}
