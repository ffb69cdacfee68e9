/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/teardown.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/nccl/resources.h"

#define NAP 500                    /* microseconds */
#define PARTING (2 * USEC_PER_SEC) /* time for the other ranks to end it, too; then it is aborted */

/* Waits until NCCL has done what it has begun. Returns whether it has, in time and without an error. */
static bool teardown_await(const struct nccl *nccl, nccl_comm comm, nccl_result result, uint64_t deadline) {
        while (result == NCCL_IN_PROGRESS && clock_now() < deadline) {
                nccl_result state = NCCL_OK;

                usleep(NAP);
                result = nccl->async_error(comm, &state);
                result = result == NCCL_OK ? state : result;
        }
        return result == NCCL_OK;
}

/* Waits until NCCL has done what it was asked for before: until then it takes no call but a revoke or an
 * abort. */
static bool teardown_await_idle(const struct nccl *nccl, nccl_comm comm, uint64_t deadline) {
        nccl_result state = NCCL_OK, r = nccl->async_error(comm, &state);

        return teardown_await(nccl, comm, r == NCCL_OK ? state : r, deadline);
}

struct ending { /* the end of one lane */
        struct communicator *of;
        nccl_comm comm; /* NULL if there is none */
        pthread_t thread;
        bool started, good;
};

static void *teardown_abort_one(void *data) {
        struct ending *ending = data;

        gpu_enter(&ending->of->common->gpu);
        ending->of->common->gpu.nccl.abort(ending->comm);
        return NULL;
}

/* Revokes one lane. If NCCL does not answer, there is time left to abort it. */
static void *teardown_revoke_one(void *data) {
        struct ending *ending = data;
        const struct common *common = ending->of->common;
        uint64_t deadline = ending->of->deadline - common->config.ending * USEC_PER_MSEC / 2;

        gpu_enter(&common->gpu);
        nccl_result r = common->gpu.nccl.revoke(ending->comm, 0);
        ending->good = teardown_await(&common->gpu.nccl, ending->comm, r, deadline);
        return NULL;
}

/* Ends all lanes at once: an end that waits for its own kernels would keep those of the next lane from
 * ending. */
static void teardown_side_by_side(struct ending ending[NCCL_LANES], void *(*what)(void *)) {
        for (uint32_t lane = 0; lane < NCCL_LANES; lane++)
                if (ending[lane].comm != NULL)
                        ending[lane].started = thread_start(&ending[lane].thread, "gs-nccl-end", 0, what,
                                                            &ending[lane]) == 0;
        for (uint32_t lane = 0; lane < NCCL_LANES; lane++)
                if (ending[lane].started)
                        pthread_join(ending[lane].thread, NULL);
                else if (ending[lane].comm != NULL)
                        what(&ending[lane]);
}

/* Aborts all lanes. False if there is none. */
static bool teardown_abort_all(struct communicator *comm) {
        struct ending ending[NCCL_LANES] = { 0 };
        bool any = false;

        for (uint32_t lane = 0; lane < comm->n_lanes; lane++) {
                ending[lane].of = comm;
                ending[lane].comm = lane_take_comm(&comm->lane[lane]);
                any |= ending[lane].comm != NULL;
        }
        teardown_side_by_side(ending, teardown_abort_one);
        return any;
}

static bool teardown_revoke_all(struct communicator *comm) {
        struct ending ending[NCCL_LANES] = { 0 };
        bool good = true;

        for (uint32_t lane = 0; lane < comm->n_lanes; lane++) {
                ending[lane].of = comm;
                ending[lane].comm = comm->lane[lane].comm;
        }
        teardown_side_by_side(ending, teardown_revoke_one);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                good &= ending[lane].good;
        return good;
}

/* Aborts until there is no lane. A part that was being made is there once the communicator that it is a part
 * of has been aborted. */
static void teardown_abort(struct communicator *comm) {
        while (teardown_abort_all(comm))
                ;
}

/* Deregisters the window of a lane, which NCCL does not do. */
static void teardown_window(const struct nccl *nccl, struct lane *lane) {
        if (lane->window != NULL && nccl->deregister_window != NULL)
                nccl->deregister_window(lane->comm, lane->window);
        lane->window = NULL;
}

/* Ends parts before the communicator that they are part of. If some rank does not end it, it is aborted. */
static void teardown_destroy(struct communicator *comm) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        uint64_t deadline = clock_now() + PARTING;

        for (uint32_t lane = comm->n_lanes; lane-- > 0;) {
                nccl_comm *of = &comm->lane[lane].comm;

                if (*of == NULL || !teardown_await_idle(nccl, *of, deadline))
                        continue;
                teardown_window(nccl, &comm->lane[lane]);
                if (!teardown_await(nccl, *of, nccl->finalize(*of), deadline))
                        continue;
                nccl->destroy(*of);
                *of = NULL;
        }
        teardown_abort(comm);
}

/* Waits until the lane's stream is empty: the work behind an aborted collective still runs, over garbage. */
static void teardown_lane(const struct gpu *gpu, const struct lane *lane) {
        const struct cuda *cuda = &gpu->cuda;

        while (lane->resources != NULL && lane->resources->stream != NULL &&
               cuda->stream_query(lane->resources->stream) == CUDA_NOT_READY)
                usleep(NAP);
}

static void teardown_lanes(const struct communicator *comm) {
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                teardown_lane(&comm->common->gpu, &comm->lane[lane]);
}

static bool teardown_can_revoke(const struct communicator *comm) {
        bool can = comm->made && comm->common->gpu.nccl.revoke != NULL;

        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                can &= comm->lane[lane].comm != NULL;
        return can;
}

bool teardown_revoke(struct communicator *comm) {
        if (!teardown_can_revoke(comm) || !teardown_revoke_all(comm))
                return false;
        teardown_lanes(comm);
        return true;
}

void teardown(struct communicator *comm, bool abort) {
        if (abort)
                teardown_abort(comm);
        else
                teardown_destroy(comm);
        teardown_lanes(comm);
}
