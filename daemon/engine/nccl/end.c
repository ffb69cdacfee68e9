/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/end.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/nccl/gear.h"

#define NAP 500                    /* microseconds */
#define PARTING (2 * USEC_PER_SEC) /* for the others to end it, too; then it is aborted */

struct ending { /* of one lane */
        const struct nccl *nccl;
        const struct gpu *gpu;
        nccl_comm comm;
        pthread_t thread;
        bool started;
};

static void *end_abort_one(void *data) {
        struct ending *ending = data;

        gpu_enter(ending->gpu);
        ending->nccl->abort(ending->comm);
        return NULL;
}

/* All at once: one that waits for its kernels would keep the next one's from ending. False: there is none. */
static bool end_abort_all(struct communicator *comm) {
        struct ending ending[NCCL_LANES] = { 0 };
        bool any = false;

        for (uint32_t lane = 0; lane < comm->n_lanes; lane++) {
                ending[lane] = (struct ending){ .nccl = &comm->shop->gpu.nccl,
                                                .gpu = &comm->shop->gpu,
                                                .comm = lane_take_comm(&comm->lane[lane]) };
                if (ending[lane].comm != NULL)
                        ending[lane].started = thread_start(&ending[lane].thread, "gs-nccl-abort", 0,
                                                            end_abort_one, &ending[lane]) == 0;
        }
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++) {
                any |= ending[lane].comm != NULL;
                if (ending[lane].started)
                        pthread_join(ending[lane].thread, NULL);
                else if (ending[lane].comm != NULL)
                        end_abort_one(&ending[lane]);
        }
        return any;
}

/* A part that was being made is there once what it is part of has been aborted. */
static void end_abort(struct communicator *comm) {
        while (end_abort_all(comm))
                ;
}

/* False: some rank does not end it. */
static bool end_finalize(const struct nccl *nccl, nccl_comm comm, uint64_t deadline) {
        nccl_result r = nccl->finalize(comm);

        while (r == NCCL_IN_PROGRESS && clock_now() < deadline) {
                nccl_result state = NCCL_OK;

                usleep(NAP);
                r = nccl->async_error(comm, &state);
                r = r == NCCL_OK ? state : r;
        }
        return r == NCCL_OK;
}

/* Parts before what they are part of. */
static void end_destroy(struct communicator *comm) {
        const struct nccl *nccl = &comm->shop->gpu.nccl;
        uint64_t deadline = clock_now() + PARTING;

        for (uint32_t lane = comm->n_lanes; lane-- > 0;) {
                nccl_comm *of = &comm->lane[lane].comm;

                if (*of == NULL || !end_finalize(nccl, *of, deadline))
                        continue;
                nccl->destroy(*of);
                *of = NULL;
        }
        end_abort(comm);
}

/* What was behind an aborted collective in its stream still runs, over garbage. */
static void end_lane(const struct gpu *gpu, struct lane *lane) {
        const struct cuda *cuda = &gpu->cuda;

        while (lane->gear != NULL && lane->gear->stream != NULL &&
               cuda->stream_query(lane->gear->stream) == CUDA_NOT_READY)
                usleep(NAP);
}

void end_communicator(struct communicator *comm, bool abort) {
        if (abort)
                end_abort(comm);
        else
                end_destroy(comm);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                end_lane(&comm->shop->gpu, &comm->lane[lane]);
}
