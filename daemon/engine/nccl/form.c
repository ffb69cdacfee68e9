/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/nccl/reform.h"
#include "engine/nccl/registrar.h"
#include "engine/nccl/resources.h"
#include "engine/nccl/transports.h"

#define NAP 500 /* microseconds between two looks at what NCCL is doing */

/* Elements of the collectives that a new communicator begins with. NCCL chooses a way by the size, and
 * connects for each way when it is first taken. */
static const uint64_t warm_elements[] = { 64, 16 << 10, 512 << 10, RESOURCES_SCRATCH / sizeof(float) };

/* Breaks the communicator. `suspect` is the rank to blame; n_nodes: no single rank. */
static void form_fail(struct communicator *comm, uint32_t suspect, const char *why) {
        pthread_mutex_lock(&comm->common->lock);
        communicator_break(comm, suspect, why);
        pthread_mutex_unlock(&comm->common->lock);
}

static void form_fail_nccl(struct communicator *comm, nccl_comm of, const char *what, nccl_result result) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        char text[400], why[500];

        snprintf(why, sizeof(why), "%s: %s", what, nccl_error(nccl, of, result, text, sizeof(text)));
        form_fail(comm, comm->n_nodes, why);
}

static void form_fail_cuda(struct communicator *comm, const char *what, cuda_result result) {
        const struct cuda *cuda = &comm->common->gpu.cuda;
        char name[64], why[200];

        snprintf(why, sizeof(why), "%s: %s", what, cuda_error(cuda, result, name, sizeof(name)));
        form_fail(comm, comm->n_nodes, why);
}

/* ---- tables ---- */

static bool form_say(struct communicator *comm) {
        const struct gpu *gpu = &comm->common->gpu;
        struct table own = { .version = gpu->nccl.version };
        nccl_result r = reform_offer(comm, &own);

        if (r != NCCL_OK) {
                form_fail_nccl(comm, NULL, "NCCL gives out no id", r);
                return false;
        }
        snprintf(own.uuid, sizeof(own.uuid), "%s", gpu->uuid);
        snprintf(own.host, sizeof(own.host), "%s", comm->common->host);
        pthread_mutex_lock(&comm->common->lock);
        comm->table[comm->self] = own;
        comm->learned[comm->self] = true;
        comm->n_learned++;
        common_tell(comm->common, &comm->publish);
        pthread_mutex_unlock(&comm->common->lock);
        return true;
}

/* Waits for a change until that time. `lock` is held. */
static void form_wait(struct communicator *comm, uint64_t until) {
        struct timespec at;
        uint64_t now = clock_now(), left = until > now ? until - now : 0;

        clock_gettime(CLOCK_REALTIME, &at);
        uint64_t ns = (uint64_t)at.tv_nsec + left % USEC_PER_SEC * 1000;
        at.tv_sec += (time_t)(left / USEC_PER_SEC + ns / 1000000000);
        at.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&comm->common->change, &comm->common->lock, &at);
}

static uint32_t form_find_silent(const struct communicator *comm) {
        uint32_t rank = 0;

        while (rank < comm->n_nodes && comm->learned[rank])
                rank++;
        return rank;
}

/* Waits for the tables of all other ranks. Returns whether all have come. */
static bool form_hear(struct communicator *comm, uint64_t deadline) {
        pthread_mutex_lock(&comm->common->lock);
        while (communicator_is_wanted(comm, deadline) && comm->n_learned < comm->n_nodes)
                form_wait(comm, deadline);
        bool all = comm->n_learned == comm->n_nodes;
        if (!all)
                communicator_break(comm, form_find_silent(comm), "it does not say who it is");
        all &= comm->state == COMMUNICATOR_FORMING;
        pthread_mutex_unlock(&comm->common->lock);
        return all;
}

/* Compares the tables. NCCL would refuse these differences, too, after a while and with other words. */
static bool form_compare(struct communicator *comm) {
        const struct table *own = &comm->table[comm->self];
        char version[NCCL_VERSION_TEXT], why[256] = "";
        uint32_t rank;

        for (rank = 0; rank < comm->n_nodes && why[0] == '\0'; rank++) {
                const struct table *other = &comm->table[rank];

                nccl_version_text(other->version, version);
                if (other->version != own->version)
                        snprintf(why, sizeof(why),
                                 "it has NCCL %s and this node %s: install the same on all nodes", version,
                                 comm->common->gpu.nccl.text);
                else if (rank != comm->self && strcmp(other->uuid, own->uuid) == 0 &&
                         !comm->common->config.shares_gpu)
                        snprintf(why, sizeof(why),
                                 "it serves the same GPU as this node, %s: one gradsyncd a GPU", own->uuid);
                else if (other->has_id != (rank == 0))
                        snprintf(why, sizeof(why), "it speaks for another rank");
        }
        if (why[0] != '\0')
                form_fail(comm, rank - 1, why);
        return why[0] == '\0';
}

static bool form_agree(struct communicator *comm) {
        uint32_t unfit = reform_find_unfit(comm);

        if (unfit == comm->self)
                form_fail(comm, comm->n_nodes, "this node cannot go on from the communicator before");
        else if (unfit < comm->n_nodes)
                form_fail(comm, unfit, "it cannot go on from the communicator before");
        return unfit == comm->n_nodes;
}

/* ---- NCCL ---- */

/* Waits until NCCL has done what it has begun. Returns whether it has. */
static bool form_await(struct communicator *comm, nccl_comm of, const char *what, nccl_result result,
                       uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        bool wanted = true;

        while (result == NCCL_IN_PROGRESS && wanted) {
                nccl_result state = NCCL_OK;

                usleep(NAP);
                result = nccl->async_error(of, &state);
                result = result == NCCL_OK ? state : result;
                pthread_mutex_lock(&comm->common->lock);
                wanted = communicator_is_wanted(comm, deadline);
                pthread_mutex_unlock(&comm->common->lock);
        }
        if (result == NCCL_OK)
                return true;
        if (result == NCCL_IN_PROGRESS)
                form_fail(comm, comm->n_nodes, "not all of them came in time");
        else
                form_fail_nccl(comm, of, what, result);
        return false;
}

static struct nccl_config form_config(const struct communicator *comm) {
        struct nccl_config config = NCCL_CONFIG;

        config.blocking = 0;
        config.split_share = 0; /* lanes that share resources fail together */
        if (comm->common->config.ctas > 0)
                config.max_ctas = (int)comm->common->config.ctas;
        return config;
}

/* Waits for a part of another communicator. That one shows the progress at first, then the part, which may
 * not exist before. */
static bool form_await_part(struct communicator *comm, nccl_comm of, nccl_comm const *part, const char *what,
                            nccl_result result, uint64_t deadline) {
        if (!form_await(comm, of, what, result == NCCL_OK ? NCCL_IN_PROGRESS : result, deadline))
                return false;
        if (*part != NULL)
                return form_await(comm, *part, what, NCCL_IN_PROGRESS, deadline);
        form_fail(comm, comm->n_nodes, what);
        return false;
}

static bool form_init(struct communicator *comm, uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        struct nccl_config config = form_config(comm);
        struct lane *lane = &comm->lane[0];
        nccl_result r =
                nccl->init(&lane->comm, (int)comm->n_nodes, comm->table[0].id, (int)comm->self, &config);

        return form_await(comm, lane->comm, "NCCL makes no communicator", r, deadline);
}

static bool form_shrink(struct communicator *comm, uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        struct nccl_config config = form_config(comm);
        int left_out[comm->older->n_nodes], n = reform_list_left_out(comm, left_out);
        nccl_comm of = comm->older->lane[0].comm, *part = &comm->lane[0].comm;
        nccl_result r = nccl->shrink(of, left_out, n, part, &config, NCCL_SHRINK_IDLE);

        return form_await_part(comm, of, part, "NCCL does not shrink the communicator before", r, deadline);
}

/* Makes the communicator an extension of the older one. Rank 0 has made the id, and the new ranks need it. */
static bool form_grow(struct communicator *comm, uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        struct nccl_config config = form_config(comm);
        const struct table *first = &comm->table[0];
        struct lane *lane = &comm->lane[0];
        bool is_new = comm->self >= first->n_older;
        nccl_result r = nccl->grow(is_new ? NULL : comm->older->lane[0].comm, (int)comm->n_nodes,
                                   is_new || comm->self == 0 ? &first->id : NULL,
                                   is_new ? (int)comm->self : -1, &lane->comm, &config);

        return form_await(comm, lane->comm, "NCCL does not extend the communicator before", r, deadline);
}

/* Ends the older communicator, on which NCCL may still be working. The communicator that was asked for the
 * progress is aborted first. */
static void form_spoil_older(struct communicator *comm) {
        struct common *common = comm->common;
        struct communicator *older = comm->older;
        nccl_comm made = NULL;

        pthread_mutex_lock(&common->lock);
        communicator_set_state(older, COMMUNICATOR_BROKEN);
        while (older->calls > 0)
                pthread_cond_wait(&common->change, &common->lock);
        pthread_mutex_unlock(&common->lock);
        if (comm->table[0].reform == REFORM_GROW)
                made = lane_take_comm(&comm->lane[0]);
        if (made != NULL)
                common->gpu.nccl.abort(made);
        common->gpu.nccl.abort(lane_take_comm(&older->lane[0]));
}

/* Makes the first lane's communicator, which is all that the older one is needed for. */
static bool form_first(struct communicator *comm, uint64_t deadline) {
        enum reform how = comm->table[0].reform;
        bool of_older = how == REFORM_SHRINK || (how == REFORM_GROW && comm->self < comm->table[0].n_older);
        bool good = how == REFORM_NONE     ? form_init(comm, deadline)
                    : how == REFORM_SHRINK ? form_shrink(comm, deadline)
                                           : form_grow(comm, deadline);

        if (!good && of_older)
                form_spoil_older(comm);
        pthread_mutex_lock(&comm->common->lock);
        reform_end(comm);
        pthread_mutex_unlock(&comm->common->lock);
        return good;
}

/* Makes another lane's communicator: a part of the first one that has all of its ranks. */
static bool form_next(struct communicator *comm, uint32_t lane, uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;
        struct nccl_config config = form_config(comm);
        nccl_comm first = comm->lane[0].comm, *part = &comm->lane[lane].comm;
        nccl_result r = nccl->split(first, 0, (int)comm->self, part, &config);

        return form_await_part(comm, first, part, "NCCL makes no second communicator", r, deadline);
}

static bool form_take_resources(struct communicator *comm, uint32_t lane) {
        cuda_result r = resources_take(comm->common, &comm->lane[lane], lane == 0);

        if (r != CUDA_OK)
                form_fail_cuda(comm, "the GPU has nothing left for a communicator", r);
        return r == CUDA_OK;
}

/* Waits for other communicators to end. To free their memory may wait for kernels, and would wait for kernels
 * that are launched now, which wait for other nodes. */
static void form_let_others_end(struct communicator *comm, uint64_t deadline) {
        pthread_mutex_lock(&comm->common->lock);
        while (communicator_is_wanted(comm, deadline) && common_frees(comm->common))
                form_wait(comm, deadline);
        pthread_mutex_unlock(&comm->common->lock);
}

/* ---- the first collectives ---- */

static bool form_await_stream(struct communicator *comm, cuda_stream stream, uint64_t deadline) {
        const struct cuda *cuda = &comm->common->gpu.cuda;
        bool wanted = true;
        cuda_result r;

        while ((r = cuda->stream_query(stream)) == CUDA_NOT_READY && wanted) {
                usleep(NAP);
                pthread_mutex_lock(&comm->common->lock);
                wanted = communicator_is_wanted(comm, deadline);
                pthread_mutex_unlock(&comm->common->lock);
        }
        if (r == CUDA_NOT_READY)
                form_fail(comm, comm->n_nodes, "the first collectives do not end");
        else if (r != CUDA_OK)
                form_fail_cuda(comm, "the first collectives fail", r);
        return r == CUDA_OK;
}

/* Reduces elements in place. */
static bool form_allreduce(struct communicator *comm, const struct lane *lane, void *at, uint64_t elements,
                           enum nccl_type type, enum nccl_operation operation, uint64_t deadline) {
        nccl_result r = comm->common->gpu.nccl.allreduce(at, at, elements, type, operation, lane->comm,
                                                         lane->resources->stream);

        return form_await(comm, lane->comm, "NCCL does not begin the first collective", r, deadline);
}

/* Finds the smallest of the values of all ranks. */
static bool form_vote(struct communicator *comm, uint64_t own, uint64_t *ret, uint64_t deadline) {
        const struct cuda *cuda = &comm->common->gpu.cuda;
        const struct lane *lane = &comm->lane[0];
        const struct flight *flight = &lane->flight[0];

        *flight->values = own;
        cuda_result r = cuda->copy_in(flight->votes, flight->values, sizeof(own), lane->resources->stream);
        if (r == CUDA_OK &&
            !form_allreduce(comm, lane, (void *)(uintptr_t)flight->votes, 1, NCCL_UINT64, NCCL_MIN, deadline))
                return false;
        if (r == CUDA_OK)
                r = cuda->copy_out(flight->values, flight->votes, sizeof(own), lane->resources->stream);
        if (r != CUDA_OK)
                form_fail_cuda(comm, "what this node says is not copied", r);
        if (r != CUDA_OK || !form_await_stream(comm, lane->resources->stream, deadline))
                return false;
        *ret = *flight->values;
        return true;
}

/* ---- windows ---- */

static bool form_is_on_one_host(const struct communicator *comm) {
        bool one = true;

        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                one &= strcmp(comm->table[rank].host, comm->table[comm->self].host) == 0;
        return one;
}

static bool form_take_panes(struct communicator *comm) {
        pthread_mutex_lock(&comm->common->lock);
        bool all = !comm->common->windowless;
        pthread_mutex_unlock(&comm->common->lock);

        for (uint32_t lane = 0; lane < comm->n_lanes && all; lane++)
                all = resources_take_panes(&comm->common->gpu.nccl, &comm->lane[lane]);
        return all;
}

/* Whether all lanes have windows. NCCL may find no use for a window, and then makes none. */
static bool form_has_windows(const struct communicator *comm) {
        bool all = true;

        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                all &= comm->lane[lane].window != NULL;
        return all;
}

/* Notes that a window is being registered. If the communicator breaks meanwhile, no window is tried again,
 * since that may break the next one, too. */
static void form_set_registers(struct communicator *comm, bool registers) {
        pthread_mutex_lock(&comm->common->lock);
        comm->registers = registers;
        pthread_mutex_unlock(&comm->common->lock);
}

/* Registers a window of the lane, on all ranks together. */
static bool form_register(struct communicator *comm, struct lane *lane, uint64_t deadline) {
        const struct nccl *nccl = &comm->common->gpu.nccl;

        form_set_registers(comm, true);
        nccl_result r = nccl->register_window(lane->comm, lane->resources->panes, RESOURCES_PANES,
                                              &lane->window, NCCL_WINDOW_SYMMETRIC);

        /* The call does not return that it is in progress, so the progress is asked for. */
        bool good = form_await(comm, lane->comm, "NCCL registers no window",
                               r == NCCL_OK ? NCCL_IN_PROGRESS : r, deadline);
        form_set_registers(comm, false);
        return good;
}

/* Makes windows if all ranks can. False: the communicator is broken, or not wanted any more. */
static bool form_windows(struct communicator *comm, uint64_t deadline) {
        uint64_t all = 0;

        if (!form_is_on_one_host(comm))
                return true;
        if (!form_vote(comm, form_take_panes(comm), &all, deadline))
                return false;
        if (all == 0)
                return true;
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                if (!form_register(comm, &comm->lane[lane], deadline))
                        return false;
        if (!form_vote(comm, form_has_windows(comm), &all, deadline))
                return false;
        comm->windowed = all != 0;
        return true;
}

/* ---- the first use in all sizes ---- */

static bool form_use_memory(struct communicator *comm, const struct lane *lane, void *at, uint64_t bytes,
                            uint64_t deadline) {
        bool good = true;

        for (size_t i = 0; i < sizeof(warm_elements) / sizeof(warm_elements[0]) && good; i++)
                if (warm_elements[i] * sizeof(float) <= bytes)
                        good = form_allreduce(comm, lane, at, warm_elements[i], NCCL_FLOAT32, NCCL_SUM,
                                              deadline);
        return good;
}

/* Uses a lane in all sizes, also in a window, where the kernels are others. */
static bool form_use(struct communicator *comm, const struct lane *lane, uint64_t deadline) {
        void *at = (void *)(uintptr_t)comm->lane[0].resources->scratch;
        bool good = form_use_memory(comm, lane, at, RESOURCES_SCRATCH, deadline);

        if (good && comm->windowed)
                good = form_use_memory(comm, lane, lane->resources->panes, TABLE_PANE, deadline);
        return good && form_await_stream(comm, lane->resources->stream, deadline);
}

static void form_warm_up(struct communicator *comm, uint64_t deadline) {
        bool good = true;

        for (uint32_t lane = 0; lane < comm->n_lanes && good; lane++)
                good = form_use(comm, &comm->lane[lane], deadline);
}

void form_communicator(struct communicator *comm) {
        uint64_t begin = clock_now();
        uint64_t deadline = begin + comm->common->config.timeout * USEC_PER_MSEC;

        transports_begin(comm);
        if (!form_say(comm) || !form_hear(comm, deadline) || !form_compare(comm) || !form_agree(comm))
                return;
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                if (!(lane == 0 ? form_first(comm, deadline) : form_next(comm, lane, deadline)))
                        return;
        form_let_others_end(comm, deadline);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                if (!form_take_resources(comm, lane))
                        return;
        if (form_windows(comm, deadline))
                form_warm_up(comm, deadline);
        pthread_mutex_lock(&comm->common->lock);
        transports_end(comm);
        registrar_begin(comm);
        comm->took = clock_now() - begin;
        if (comm->state == COMMUNICATOR_FORMING) {
                communicator_set_state(comm, COMMUNICATOR_WORKING);
                comm->made = true;
                common_tell(comm->common, &comm->built);
        }
        pthread_cond_signal(&comm->common->work);
        pthread_mutex_unlock(&comm->common->lock);
}
