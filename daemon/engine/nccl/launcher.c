/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/launcher.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/nccl/registrar.h"
#include "engine/nccl/resources.h"

#define LINGER UINT64_C(200) /* microseconds after news in which it polls without a pause */
#define NAP 50000            /* nanoseconds between polls after that */
#define LONG_NAP 500000      /* nanoseconds between polls when nothing has come for LONG */
#define LONG (20 * USEC_PER_MSEC)
#define ILL (2 * USEC_PER_MSEC)    /* time between two looks at a communicator's health */
#define TAKING (30 * USEC_PER_SEC) /* time for NCCL to take a collective: it connected before */

struct launcher {
        struct common *common;
        uint64_t asked; /* clock_now() at the last look at communicators' health */
};

/* ---- without the lock ---- */

struct outcome { /* results of calls */
        nccl_result nccl;
        cuda_result cuda;
};

static bool outcome_good(const struct outcome *outcome) {
        return outcome->nccl == NCCL_OK && outcome->cuda == CUDA_OK;
}

static void *device(uint64_t address) {
        return (void *)(uintptr_t)address;
}

static bool launcher_is_wanted(struct communicator *comm) {
        pthread_mutex_lock(&comm->common->lock);
        bool wanted = comm->state == COMMUNICATOR_WORKING;
        pthread_mutex_unlock(&comm->common->lock);
        return wanted;
}

/* Waits until NCCL has taken a collective. A communicator that does not block may take it later, and takes
 * nothing else until then. If it is to be ended meanwhile it may never do so, and only an abort helps, which
 * waits for this call. The thread of NCCL that takes it may need this processor, so this thread yields or
 * sleeps. */
static nccl_result launcher_await(struct communicator *comm, const struct lane *lane, nccl_result result) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        uint64_t begin = clock_now(), waited;

        while (result == NCCL_IN_PROGRESS && (waited = clock_now() - begin) < TAKING &&
               launcher_is_wanted(comm)) {
                nccl_result state = NCCL_OK;

                if (waited < LINGER)
                        sched_yield();
                else
                        nanosleep(&(struct timespec){ .tv_nsec = NAP }, NULL);
                result = nccl->async_error(lane->comm, &state);
                result = result == NCCL_OK ? state : result;
        }
        return result;
}

static void flight_vote(struct communicator *comm, const struct lane *lane, const struct flight *flight,
                        struct outcome *ret) {
        const struct gpu *gpu = &comm->common->gpu;
        const struct cuda *cuda = &gpu->cuda;
        size_t bytes = ENGINE_VALUES * sizeof(uint64_t);

        ret->cuda = cuda->copy_in(flight->votes, flight->values, bytes, lane->resources->stream);
        if (ret->cuda == CUDA_OK)
                ret->nccl = launcher_await(comm, lane,
                                           gpu->nccl.allreduce(device(flight->votes), device(flight->votes),
                                                               ENGINE_VALUES, NCCL_UINT64, NCCL_MIN,
                                                               lane->comm, lane->resources->stream));
        if (outcome_good(ret))
                ret->cuda = cuda->copy_out(flight->values, flight->votes, bytes, lane->resources->stream);
}

static void flight_sum(struct communicator *comm, const struct lane *lane, const struct flight *flight,
                       uint64_t from, uint64_t to, struct outcome *ret) {
        const struct gpu *gpu = &comm->common->gpu;

        ret->nccl =
                launcher_await(comm, lane,
                               gpu->nccl.allreduce(device(from), device(to), flight->elements, flight->type,
                                                   flight->operation, lane->comm, lane->resources->stream));
}

/* Goes through the window, at the place that all ranks have for the flight. */
static void flight_sum_windowed(struct communicator *comm, const struct lane *lane,
                                const struct flight *flight, struct outcome *ret) {
        const struct cuda *cuda = &comm->common->gpu.cuda;

        ret->cuda = cuda->copy(flight->pane, flight->input, flight->bytes, lane->resources->stream);
        if (ret->cuda == CUDA_OK)
                flight_sum(comm, lane, flight, flight->pane, flight->pane, ret);
        if (outcome_good(ret))
                ret->cuda = cuda->copy(flight->output, flight->pane, flight->bytes, lane->resources->stream);
}

static void flight_reduce(struct communicator *comm, const struct lane *lane, const struct flight *flight,
                          struct outcome *ret) {
        const struct cuda *cuda = &comm->common->gpu.cuda;
        bool tail = flight->tail_bytes > 0;

        if (tail)
                ret->cuda = cuda->copy_in(flight->input + flight->tail_at, flight->tail, flight->tail_bytes,
                                          lane->resources->stream);
        if (ret->cuda == CUDA_OK && flight->windowed)
                flight_sum_windowed(comm, lane, flight, ret);
        else if (ret->cuda == CUDA_OK)
                flight_sum(comm, lane, flight, flight->input, flight->output, ret);
        if (outcome_good(ret) && tail)
                ret->cuda = cuda->copy_out(flight->tail, flight->output + flight->tail_at, flight->tail_bytes,
                                           lane->resources->stream);
}

static struct outcome flight_launch(struct communicator *comm, const struct lane *lane,
                                    const struct flight *flight) {
        struct outcome outcome = { NCCL_OK, CUDA_OK };

        if (flight->is_vote)
                flight_vote(comm, lane, flight, &outcome);
        else
                flight_reduce(comm, lane, flight, &outcome);
        if (outcome_good(&outcome))
                outcome.cuda = comm->common->gpu.cuda.event_record(flight->event, lane->resources->stream);
        return outcome;
}

/* ---- with the lock, except around calls ---- */

static void launcher_leave(struct communicator *comm) {
        comm->calls++;
        pthread_mutex_unlock(&comm->common->lock);
}

static void launcher_return(struct communicator *comm) {
        pthread_mutex_lock(&comm->common->lock);
        if (--comm->calls == 0)
                pthread_cond_broadcast(&comm->common->change);
}

/* Breaks a communicator. NCCL's own text can be asked for here, because no call of NCCL for it is under
 * way. */
static void launcher_fail(struct communicator *comm, nccl_comm of, const char *what,
                          const struct outcome *outcome) {
        const struct gpu *gpu = &comm->common->gpu;
        char text[400], why[500];

        if (outcome->cuda != CUDA_OK)
                snprintf(why, sizeof(why), "%s: %s", what,
                         cuda_error(&gpu->cuda, outcome->cuda, text, sizeof(text)));
        else
                snprintf(why, sizeof(why), "%s: %s", what,
                         nccl_error(&gpu->nccl, of, outcome->nccl, text, sizeof(text)));
        communicator_break(comm, comm->n_nodes, why);
        if (cuda_is_sticky(outcome->cuda))
                common_fail(comm->common, why);
}

static void lane_note_launched(struct lane *lane, uint64_t sequence) {
        if (lane->launched == lane->ended)
                lane->since = clock_now();
        lane->launched = sequence;
}

/* Launches the next flight. Returns whether there was one. */
static bool launcher_launch(struct common *common) {
        if (list_empty(&common->queue))
                return false;
        struct flight *flight = list_entry(common->queue.next, struct flight, news.link);
        struct communicator *comm = flight->news.comm;
        struct lane *lane = &comm->lane[flight->lane];

        list_remove(&flight->news.link);
        if (comm->state != COMMUNICATOR_WORKING)
                return true; /* its result is not awaited */
        launcher_leave(comm);
        struct outcome outcome = flight_launch(comm, lane, flight);
        launcher_return(comm);
        if (outcome_good(&outcome))
                lane_note_launched(lane, flight->sequence);
        else if (comm->state == COMMUNICATOR_WORKING)
                launcher_fail(comm, lane->comm, "a collective could not be launched", &outcome);
        return true;
}

/* Returns errors of NCCL's own threads: a rank has gone, or differs. */
static nccl_result lane_health(const struct nccl *nccl, const struct lane *lane) {
        nccl_result state = NCCL_OK, r = nccl->async_error(lane->comm, &state);

        r = r == NCCL_OK ? state : r;
        return r == NCCL_IN_PROGRESS ? NCCL_OK : r;
}

/* Breaks a communicator whose oldest collective takes too long. All ranks launch at once, and a kernel waits
 * for nothing but its peers. So one of them is stuck, or the way to it, which NCCL does not report. */
static void launcher_judge(struct communicator *comm, const struct lane *lane, const struct flight *flight) {
        uint32_t timeout = comm->common->config.exchange;
        char why[128];

        if (clock_now() < lane->since + timeout * USEC_PER_MSEC)
                return;
        snprintf(why, sizeof(why), "a collective of %" PRIu64 " elements has not ended for %u ms",
                 flight->is_vote ? (uint64_t)ENGINE_VALUES : flight->elements, timeout);
        communicator_break(comm, comm->n_nodes, why);
}

/*
 * Whether the lane's oldest collective has ended. If NCCL has failed its kernels may end, too, with the
 * results that they have by then. The query of the event may take long, while other threads wait for the
 * whole GPU. So the lock is released: the communicator may be ended meanwhile, and with it the work that they
 * wait for.
 */
static bool launcher_look(struct communicator *comm, struct lane *lane) {
        struct flight *flight = &lane->flight[(lane->ended + 1) % ENGINE_WINDOW];
        const struct gpu *gpu = &comm->common->gpu;
        struct outcome outcome = { NCCL_OK, CUDA_OK };

        if (comm->state != COMMUNICATOR_WORKING || lane->ended == lane->launched)
                return false;
        pthread_mutex_unlock(&comm->common->lock);
        outcome.cuda = gpu->cuda.event_query(flight->event);
        pthread_mutex_lock(&comm->common->lock);
        if (comm->state != COMMUNICATOR_WORKING)
                return false;
        if (outcome.cuda == CUDA_NOT_READY) {
                launcher_judge(comm, lane, flight);
                return false;
        }
        if (outcome.cuda == CUDA_OK) {
                launcher_leave(comm);
                outcome.nccl = lane_health(&gpu->nccl, lane);
                launcher_return(comm);
        }
        if (comm->state != COMMUNICATOR_WORKING)
                return false;
        if (!outcome_good(&outcome)) {
                launcher_fail(comm, lane->comm, "a collective failed", &outcome);
                return false;
        }
        lane->ended++;
        lane->since = clock_now();
        common_tell(comm->common, &flight->news);
        return true;
}

static void launcher_ask(struct communicator *comm, struct lane *lane) {
        struct outcome outcome = { NCCL_OK, CUDA_OK };

        if (comm->state != COMMUNICATOR_WORKING)
                return;
        launcher_leave(comm);
        outcome.nccl = lane_health(&comm->common->gpu.nccl, lane);
        launcher_return(comm);
        if (comm->state == COMMUNICATOR_WORKING && outcome.nccl != NCCL_OK)
                launcher_fail(comm, lane->comm, "NCCL reports", &outcome);
}

/* Returns the next communicator by id. Communicators go while the lock is released, so each step of a pass
 * begins behind the last one that was looked at. */
static struct communicator *launcher_next(struct common *common, uint64_t after) {
        struct communicator *comm, *next = NULL;

        list_for_each(comm, &common->comms, link)
                if (comm->id > after && (next == NULL || comm->id < next->id))
                        next = comm;
        return next;
}

/* Looks through all communicators. Returns whether a collective has ended; *ret_busy: whether one is under
 * way. */
static bool launcher_look_around(struct launcher *launcher, bool *ret_busy) {
        struct common *common = launcher->common;
        bool news = false, ask = clock_now() - launcher->asked > ILL;
        struct communicator *comm;
        uint64_t at = 0;

        *ret_busy = false;
        while ((comm = launcher_next(common, at)) != NULL) {
                comm->busy++; /* it has to stay */
                for (uint32_t l = 0; l < comm->n_lanes; l++) {
                        struct lane *lane = &comm->lane[l];

                        while (launcher_look(comm, lane))
                                news = true;
                        if (ask)
                                launcher_ask(comm, lane);
                        *ret_busy |= comm->state == COMMUNICATOR_WORKING && lane->ended != lane->launched;
                }
                at = comm->id;
                if (--comm->busy == 0)
                        pthread_cond_broadcast(&common->change);
        }
        if (ask)
                launcher->asked = clock_now();
        return news;
}

/* Waits for something to launch, or for a moment if a collective is under way. Health is asked for all the
 * same, because the collective may wait for a rank that is gone. */
static void launcher_rest(struct common *common, uint64_t busy_since, bool busy) {
        uint64_t idle = clock_now() - busy_since;
        struct timespec until;

        if (busy && idle < LINGER) {
                pthread_mutex_unlock(&common->lock);
                sched_yield();
                pthread_mutex_lock(&common->lock);
                return;
        }
        if (!busy) {
                pthread_cond_wait(&common->work, &common->lock);
                return;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += idle < LONG ? NAP : LONG_NAP;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&common->work, &common->lock, &until);
}

static void *launcher_main(void *data) {
        struct launcher launcher = { .common = data };
        struct common *common = data;
        uint64_t busy_since = 0;
        bool busy;

        gpu_enter(&common->gpu);
        pthread_mutex_lock(&common->lock);
        while (!common->stop) {
                bool news = false;

                while (launcher_launch(common))
                        news = true;
                registrar_run(common);
                news |= launcher_look_around(&launcher, &busy);
                if (news)
                        busy_since = clock_now();
                else if (!common->stop && !common->unregistered && list_empty(&common->queue))
                        launcher_rest(common, busy_since, busy);
        }
        pthread_mutex_unlock(&common->lock);
        return NULL;
}

int launcher_start(struct common *common, pthread_t *ret) {
        return thread_start(ret, "gs-nccl", 0, launcher_main, common);
}
