/* SPDX-License-Identifier: Apache-2.0 */
/* The loop thread's side of the engine: takes calls, delivers news, and watches that communicators which are
 * to end do. */
#include "engine/nccl/nccl.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/nccl/launcher.h"
#include "engine/nccl/reform.h"
#include "engine/nccl/registrar.h"
#include "engine/nccl/worker.h"
#include "gradsync.pb-c.h"
#include "proto/names.h"

#define LOOK (100 * USEC_PER_MSEC) /* time between two looks at deadlines while a communicator is to end */

#define CTAS_AT_MOST 32u    /* thread blocks of a kernel, if the configuration sets no smaller limit */
#define LANES_OF_JOB 2u     /* for the first plan, and for all others: each lane holds memory of the GPU */
#define QUEUES 32u          /* queues of the GPU, which streams share: see environment.c */
#define QUEUES_OF_OTHERS 6u /* queues of the backend's streams, and of the default stream */

struct nccl_engine {
        struct engine engine;
        struct engine_ops ops; /* with the version of its library */
        struct common common;
        pthread_t launcher;
        bool launching; /* the launcher has been started */
        bool failed;    /* failed() has been called */
        char abilities[256];
        int epoll, timer;
};

static struct nccl_engine *nccl_of(const struct engine *engine) {
        return (struct nccl_engine *)engine;
}

/* The lock is held. */
static struct communicator *nccl_find(const struct nccl_engine *nccl, uint64_t id) {
        struct communicator *comm;

        list_for_each(comm, &nccl->common.comms, link)
                if (comm->id == id && comm->state < COMMUNICATOR_ABORTED)
                        return comm;
        return NULL;
}

/* ---- memory ---- */

static void news_init(struct news *news, enum news_kind kind, struct communicator *comm,
                      struct common_memory *memory) {
        *news = (struct news){ .kind = kind, .comm = comm, .memory = memory };
        list_init(&news->link);
}

static bool nccl_any_works(const struct nccl_engine *nccl) {
        const struct communicator *comm;

        list_for_each(comm, &nccl->common.comms, link)
                if (comm->state == COMMUNICATOR_WORKING)
                        return true;
        return false;
}

static int nccl_share(struct engine *engine, uint64_t id, const struct engine_memory *what) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct common_memory *memory = calloc(1, sizeof(*memory));

        if (memory == NULL)
                return -ENOMEM;
        *memory = (struct common_memory){ .id = id,
                                          .address = (uint64_t)(uintptr_t)what->address,
                                          .bytes = what->bytes };
        list_init(&memory->registrations);
        news_init(&memory->shared, NEWS_SHARED, NULL, memory);
        news_init(&memory->unshared, NEWS_UNSHARED, NULL, memory);
        pthread_mutex_lock(&nccl->common.lock);
        bool later = registrar_is_of_use(&nccl->common) && nccl_any_works(nccl);
        memory->pending = later;
        nccl->common.unregistered = true;
        list_append(&nccl->common.memories, &memory->link);
        pthread_cond_signal(&nccl->common.work);
        pthread_mutex_unlock(&nccl->common.lock);
        return later;
}

static struct common_memory *nccl_memory(const struct nccl_engine *nccl, uint64_t id) {
        struct common_memory *memory;

        list_for_each(memory, &nccl->common.memories, link)
                if (memory->id == id && !memory->unwanted)
                        return memory;
        return NULL;
}

static void memory_drop(struct common_memory *memory) {
        list_remove(&memory->link);
        list_remove(&memory->shared.link);
        list_remove(&memory->unshared.link);
        free(memory);
}

static bool nccl_unshare(struct engine *engine, uint64_t id) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct common_memory *memory;
        bool gone = true;

        pthread_mutex_lock(&nccl->common.lock);
        memory = nccl_memory(nccl, id);
        if (memory != NULL && registrar_is_free(memory)) {
                memory_drop(memory);
        } else if (memory != NULL) {
                list_remove(&memory->shared.link);
                memory->unwanted = nccl->common.unregistered = true;
                memory->pending = gone = false;
                pthread_cond_signal(&nccl->common.work);
        }
        pthread_mutex_unlock(&nccl->common.lock);
        return gone;
}

/* ---- making and ending ---- */

static struct communicator *communicator_new(struct common *common, const struct engine_build *build) {
        struct communicator *comm = calloc(1, sizeof(*comm));

        if (comm == NULL)
                return NULL;
        list_init(&comm->link);
        comm->common = common;
        comm->id = build->comm;
        comm->n_nodes = build->n_nodes;
        comm->self = build->self;
        comm->n_lanes = build->n_lanes;
        comm->suspect = build->n_nodes;
        news_init(&comm->publish, NEWS_PUBLISH, comm, NULL);
        news_init(&comm->built, NEWS_BUILT, comm, NULL);
        news_init(&comm->unreachable, NEWS_UNREACHABLE, comm, NULL);
        news_init(&comm->quiet, NEWS_QUIET, comm, NULL);
        news_init(&comm->ended, NEWS_ENDED, comm, NULL);
        for (uint32_t lane = 0; lane < NCCL_LANES; lane++)
                for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                        news_init(&comm->lane[lane].flight[i].news, NEWS_DONE, comm, NULL);
        comm->name = strdup(build->name);
        comm->node = calloc(build->n_nodes, sizeof(*comm->node));
        comm->table = calloc(build->n_nodes, sizeof(*comm->table));
        comm->learned = calloc(build->n_nodes, sizeof(*comm->learned));
        comm->transport = calloc(build->n_nodes, sizeof(*comm->transport));
        if (comm->node != NULL)
                memcpy(comm->node, build->node, build->n_nodes * sizeof(*comm->node));
        return comm;
}

static int nccl_begin(struct nccl_engine *nccl, struct communicator *comm, uint64_t older) {
        pthread_mutex_lock(&nccl->common.lock);
        reform_begin(comm, older != 0 ? nccl_find(nccl, older) : NULL);
        pthread_mutex_unlock(&nccl->common.lock);
        int r = communicator_start(comm);
        pthread_mutex_lock(&nccl->common.lock);
        if (r == 0)
                list_append(&nccl->common.comms, &comm->link);
        else
                reform_end(comm);
        pthread_mutex_unlock(&nccl->common.lock);
        return r;
}

static int nccl_build(struct engine *engine, const struct engine_build *build) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct communicator *comm;
        int r = -ENOMEM;

        if (build->n_lanes == 0 || build->n_lanes > NCCL_LANES || build->n_nodes < 2)
                return -EINVAL;
        comm = communicator_new(&nccl->common, build);
        if (comm != NULL && comm->name != NULL && comm->node != NULL && comm->table != NULL &&
            comm->learned != NULL && comm->transport != NULL)
                r = nccl_begin(nccl, comm, build->older);
        if (r < 0)
                communicator_free(comm);
        return r;
}

static int nccl_learn(struct engine *engine, uint64_t id, uint32_t rank, const void *table, size_t bytes) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct communicator *comm;
        struct table heard;
        int r = table_get(&heard, table, bytes) ? 0 : -EINVAL;

        pthread_mutex_lock(&nccl->common.lock);
        comm = nccl_find(nccl, id);
        if (comm == NULL || rank >= comm->n_nodes || rank == comm->self)
                r = -EINVAL;
        if (r == 0 && !comm->learned[rank]) {
                comm->table[rank] = heard;
                comm->learned[rank] = true;
                comm->n_learned++;
                pthread_cond_broadcast(&nccl->common.change);
        }
        pthread_mutex_unlock(&nccl->common.lock);
        return r;
}

/* Drops the flights and news of a communicator: nothing of it is launched or delivered any more. The lock is
 * held. */
static void communicator_forget(struct communicator *comm) {
        list_remove(&comm->publish.link);
        list_remove(&comm->built.link);
        list_remove(&comm->unreachable.link);
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                for (uint32_t i = 0; i < ENGINE_WINDOW; i++)
                        list_remove(&comm->lane[lane].flight[i].news.link);
}

static void nccl_set_timer(const struct nccl_engine *nccl, bool on) {
        struct itimerspec when = { 0 };

        if (on)
                when.it_interval.tv_nsec = when.it_value.tv_nsec = LOOK * 1000;
        timerfd_settime(nccl->timer, 0, &when, NULL);
}

static void nccl_end(struct engine *engine, uint64_t id, enum communicator_state how) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct communicator *comm;

        pthread_mutex_lock(&nccl->common.lock);
        comm = nccl_find(nccl, id);
        if (comm != NULL) {
                communicator_forget(comm);
                comm->deadline = clock_now() + nccl->common.config.ending * USEC_PER_MSEC;
                communicator_set_state(comm, how);
                nccl_set_timer(nccl, true);
        }
        pthread_mutex_unlock(&nccl->common.lock);
}

static void nccl_drop(struct engine *engine, uint64_t id) {
        nccl_end(engine, id, COMMUNICATOR_DROPPED);
}

static void nccl_abort(struct engine *engine, uint64_t id) {
        nccl_end(engine, id, COMMUNICATOR_ABORTED);
}

/* ---- collectives ---- */

static int type_of(unsigned dtype, enum nccl_type *ret) {
        switch (dtype) {
        case WIRE__DTYPE__F32: *ret = NCCL_FLOAT32; return 0;
        case WIRE__DTYPE__F64: *ret = NCCL_FLOAT64; return 0;
        case WIRE__DTYPE__F16: *ret = NCCL_FLOAT16; return 0;
        case WIRE__DTYPE__BF16: *ret = NCCL_BFLOAT16; return 0;
        case WIRE__DTYPE__I32: *ret = NCCL_INT32; return 0;
        case WIRE__DTYPE__I64: *ret = NCCL_INT64; return 0;
        case WIRE__DTYPE__U8: *ret = NCCL_UINT8; return 0;
        default: return -EINVAL;
        }
}

static int operation_of(enum engine_reduce reduce, enum nccl_operation *ret) {
        switch (reduce) {
        case ENGINE_SUM: *ret = NCCL_SUM; return 0;
        case ENGINE_PROD: *ret = NCCL_PROD; return 0;
        case ENGINE_MIN: *ret = NCCL_MIN; return 0;
        case ENGINE_MAX: *ret = NCCL_MAX; return 0;
        default: return -EINVAL;
        }
}

/* NCCL's minimum and maximum take the number if one of two is NaN, and so hide the NaN. */
static bool nccl_can(const struct engine *engine, unsigned dtype, enum engine_reduce reduce) {
        enum nccl_type type;

        return type_of(dtype, &type) == 0 && reduce != ENGINE_COPY &&
               ((reduce != ENGINE_MIN && reduce != ENGINE_MAX) || type < NCCL_FLOAT16);
}

static int flight_fill_payload(const struct nccl_engine *nccl, struct flight *flight,
                               const struct engine_piece *piece) {
        const struct common_memory *memory = nccl_memory(nccl, piece->memory);
        uint64_t bytes = piece->elements * dtype_size(piece->dtype);

        if (memory == NULL || bytes > memory->bytes || piece->input > memory->bytes - bytes ||
            piece->output > memory->bytes - bytes || piece->tail_bytes > bytes)
                return -EINVAL;
        flight->input = memory->address + piece->input;
        flight->output = memory->address + piece->output;
        flight->elements = piece->elements;
        flight->bytes = bytes;
        flight->tail = piece->tail;
        flight->tail_bytes = piece->tail_bytes;
        flight->tail_at = bytes - piece->tail_bytes;
        int r = type_of(piece->dtype, &flight->type);
        return r == 0 ? operation_of(piece->reduce, &flight->operation) : r;
}

/* Whether NCCL has kernels in windows for the flight. Larger flights would gain less than the copies cost.
 * All ranks find the same. */
static bool flight_suits_window(const struct flight *flight) {
        return flight->operation == NCCL_SUM && flight->bytes <= TABLE_PANE &&
               (flight->type == NCCL_FLOAT32 || flight->type == NCCL_FLOAT16 ||
                flight->type == NCCL_BFLOAT16);
}

static int flight_fill(const struct nccl_engine *nccl, struct flight *flight,
                       const struct engine_launch *launch) {
        flight->lane = launch->lane;
        flight->sequence = launch->sequence;
        flight->is_vote = launch->piece.elements == 0;
        if (!flight->is_vote)
                return flight_fill_payload(nccl, flight, &launch->piece);
        for (unsigned i = 0; i < ENGINE_VALUES; i++)
                flight->values[i] = launch->kind == ENGINE_FILLER ? 0 : launch->value[i];
        return 0;
}

static int nccl_launch(struct engine *engine, const struct engine_launch *launch) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct communicator *comm;
        int r = -EINVAL;

        pthread_mutex_lock(&nccl->common.lock);
        comm = nccl_find(nccl, launch->comm);
        if (comm != NULL && comm->state == COMMUNICATOR_BROKEN) {
                r = 0; /* it is about to be aborted */
        } else if (comm != NULL && comm->state == COMMUNICATOR_WORKING && launch->lane < comm->n_lanes) {
                struct lane *lane = &comm->lane[launch->lane];
                struct flight *flight = &lane->flight[launch->sequence % ENGINE_WINDOW];

                r = launch->sequence - lane->ended <= ENGINE_WINDOW ? flight_fill(nccl, flight, launch)
                                                                    : -EINVAL;
                if (r == 0) {
                        flight->windowed = comm->windowed && !flight->is_vote && flight_suits_window(flight);
                        list_append(&nccl->common.queue, &flight->news.link);
                        pthread_cond_signal(&nccl->common.work);
                }
        }
        pthread_mutex_unlock(&nccl->common.lock);
        return r;
}

/* ---- delivering news ---- */

static void nccl_deliver_publish(const struct nccl_engine *nccl, const struct communicator *comm) {
        unsigned char bytes[TABLE_BYTES];

        table_put(&comm->table[comm->self], bytes);
        nccl->engine.events->publish(nccl->engine.owner, comm->id, bytes, sizeof(bytes));
}

/* Lists the nodes to blame. If there is no single one, these are all of the others. */
static uint32_t communicator_suspects(const struct communicator *comm, uint32_t *ret) {
        uint32_t n = 0;

        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                if (rank != comm->self && (comm->suspect == comm->n_nodes || comm->suspect == rank))
                        ret[n++] = comm->node[rank];
        return n;
}

static void communicator_log(const struct communicator *comm, const char *what) {
        char who[32] = "";

        if (comm->suspect < comm->n_nodes)
                snprintf(who, sizeof(who), " node %u:", comm->node[comm->suspect]);
        log_warning("job %s: NCCL %s%s %s", comm->name, what, who, comm->error);
}

/* Warns of slow ways. Between GPUs of one host there are faster ways than the network, which NCCL leaves
 * without a word. */
static void communicator_warn(const struct communicator *comm) {
        const char *host = comm->table[comm->self].host;

        for (uint32_t rank = 0; rank < comm->n_nodes; rank++)
                if (rank != comm->self && strcmp(comm->table[rank].host, host) == 0 &&
                    strncmp(comm->transport[rank], "NET", 3) == 0)
                        log_warning(
                                "job %s: the GPU of node %u is in this host, but NCCL goes to it over the "
                                "network (%s): do both daemons see all /dev/nvidia*, and the same "
                                "/dev/shm?",
                                comm->name, comm->node[rank], comm->transport[rank]);
}

static void communicator_log_made(const struct communicator *comm) {
        static const char *const of[] = { [REFORM_NONE] = "",
                                          [REFORM_SHRINK] = " as a part of the one before",
                                          [REFORM_GROW] = " as an extension of the one before" };

        log_info("job %s: NCCL connects %u nodes%s%s, in %" PRIu64 " ms", comm->name, comm->n_nodes,
                 of[comm->table[0].reform], comm->windowed ? ", with windows for small sums" : "",
                 comm->took / USEC_PER_MSEC);
}

static void nccl_deliver_built(const struct nccl_engine *nccl, const struct communicator *comm) {
        uint32_t nodes[comm->n_nodes], n = 0;

        if (comm->error[0] != '\0') {
                communicator_log(comm, "does not connect this node;");
                n = communicator_suspects(comm, nodes);
        } else {
                communicator_log_made(comm);
                communicator_warn(comm);
        }
        nccl->engine.events->built(nccl->engine.owner, comm->id, nodes, n);
}

static void nccl_deliver_unreachable(const struct nccl_engine *nccl, const struct communicator *comm) {
        uint32_t nodes[comm->n_nodes], n = communicator_suspects(comm, nodes);

        communicator_log(comm, "has lost the other nodes;");
        nccl->engine.events->unreachable(nccl->engine.owner, comm->id, nodes, n);
}

/* Frees a communicator that has ended, and of which no news is left. */
static void nccl_forget(struct nccl_engine *nccl, struct communicator *comm) {
        pthread_mutex_lock(&nccl->common.lock);
        list_remove(&comm->link);
        pthread_mutex_unlock(&nccl->common.lock);
        communicator_free(comm);
}

static void nccl_deliver_quiet(const struct nccl_engine *nccl, struct communicator *comm) {
        comm->told = true;
        nccl->engine.events->aborted(nccl->engine.owner, comm->id);
}

static void nccl_deliver_ended(struct nccl_engine *nccl, struct communicator *comm) {
        bool untold = comm->state == COMMUNICATOR_ABORTED && !comm->told;
        uint64_t id = comm->id;

        communicator_join(comm);
        nccl_forget(nccl, comm);
        if (untold)
                nccl->engine.events->aborted(nccl->engine.owner, id);
}

static void nccl_deliver_unshared(struct nccl_engine *nccl, struct common_memory *memory) {
        uint64_t id = memory->id;

        pthread_mutex_lock(&nccl->common.lock);
        memory_drop(memory);
        pthread_mutex_unlock(&nccl->common.lock);
        nccl->engine.events->unshared(nccl->engine.owner, id);
}

static void nccl_deliver(struct nccl_engine *nccl, struct news *news) {
        struct communicator *comm = news->comm;
        const struct flight *flight;

        switch (news->kind) {
        case NEWS_SHARED: nccl->engine.events->shared(nccl->engine.owner, news->memory->id); break;
        case NEWS_UNSHARED: nccl_deliver_unshared(nccl, news->memory); break;
        case NEWS_PUBLISH: nccl_deliver_publish(nccl, comm); break;
        case NEWS_BUILT: nccl_deliver_built(nccl, comm); break;
        case NEWS_UNREACHABLE: nccl_deliver_unreachable(nccl, comm); break;
        case NEWS_QUIET: nccl_deliver_quiet(nccl, comm); break;
        case NEWS_ENDED: nccl_deliver_ended(nccl, comm); break;
        case NEWS_DONE:
                flight = container_of(news, struct flight, news);
                nccl->engine.events->done(nccl->engine.owner, comm->id, flight->lane, flight->sequence,
                                          flight->values);
        }
}

static struct news *nccl_next(struct nccl_engine *nccl) {
        struct news *news = NULL;

        pthread_mutex_lock(&nccl->common.lock);
        if (!list_empty(&nccl->common.news)) {
                news = list_entry(nccl->common.news.next, struct news, link);
                list_remove(&news->link);
        }
        pthread_mutex_unlock(&nccl->common.lock);
        return news;
}

/* Looks for communicators that do not end: they hold their kernels, and with them the GPU. The lock is
 * held. */
static void nccl_look_at_deadlines(struct nccl_engine *nccl) {
        struct communicator *comm;
        bool ending = false;
        char why[512];

        list_for_each(comm, &nccl->common.comms, link) {
                ending |= comm->state >= COMMUNICATOR_ABORTED;
                if (comm->state < COMMUNICATOR_ABORTED || clock_now() < comm->deadline)
                        continue;
                snprintf(why, sizeof(why), "job %s: NCCL has not ended a communicator for %u ms", comm->name,
                         nccl->common.config.ending);
                common_fail(&nccl->common, why);
        }
        if (!ending)
                nccl_set_timer(nccl, false);
}

static void nccl_dispatch(struct engine *engine) {
        struct nccl_engine *nccl = nccl_of(engine);
        struct news *news;
        uint64_t ignored;

        (void)!read(nccl->common.wake, &ignored, sizeof(ignored));
        (void)!read(nccl->timer, &ignored, sizeof(ignored));
        while ((news = nccl_next(nccl)) != NULL)
                nccl_deliver(nccl, news);
        pthread_mutex_lock(&nccl->common.lock);
        nccl_look_at_deadlines(nccl);
        bool failed = nccl->common.failure[0] != '\0' && !nccl->failed;
        nccl->failed |= failed;
        pthread_mutex_unlock(&nccl->common.lock);
        if (failed && nccl->common.config.failed != NULL)
                nccl->common.config.failed(nccl->common.config.owner, nccl->common.failure);
}

static int nccl_fd(const struct engine *engine) {
        return nccl_of(engine)->epoll;
}

static const char *nccl_version(const struct engine *engine) {
        return nccl_of(engine)->common.gpu.nccl.text;
}

/* Lists which of the library's newer functions are used, and which are not there. */
static void nccl_list_abilities(struct nccl_engine *nccl) {
        const struct nccl *library = &nccl->common.gpu.nccl;
        char *to = nccl->abilities;

#define NCCL_ABILITY(member, name, since, arguments)                                                         \
        to += snprintf(to, sizeof(nccl->abilities) - (size_t)(to - nccl->abilities), "%s%s%s",               \
                       to == nccl->abilities ? "" : ", ", library->member != NULL ? "" : "no ", #member);
        NCCL_EXTRAS(NCCL_ABILITY)
#undef NCCL_ABILITY
}

static void nccl_describe(const struct engine *engine, struct engine_description *ret) {
        const struct nccl_engine *nccl = nccl_of(engine);

        *ret = (struct engine_description){ .library = nccl->common.gpu.nccl.path,
                                            .abilities = nccl->abilities };
}

static bool nccl_view(struct engine *engine, uint64_t id, struct engine_view *ret) {
        struct nccl_engine *nccl = nccl_of(engine);
        const struct communicator *comm;

        *ret = (struct engine_view){ 0 };
        pthread_mutex_lock(&nccl->common.lock);
        comm = nccl_find(nccl, id);
        bool works = comm != NULL && comm->state == COMMUNICATOR_WORKING;
        if (works)
                ret->took = comm->took;
        for (uint32_t rank = 0; works && rank < comm->n_nodes && ret->n_peers < ENGINE_PEERS; rank++) {
                struct engine_peer *peer = &ret->peer[ret->n_peers];

                if (rank == comm->self)
                        continue;
                peer->node = comm->node[rank];
                peer->same_host = strcmp(comm->table[rank].host, comm->table[comm->self].host) == 0;
                snprintf(peer->transport, sizeof(peer->transport), "%s", comm->transport[rank]);
                ret->n_peers++;
        }
        pthread_mutex_unlock(&nccl->common.lock);
        return works;
}

static const struct engine_ops nccl_ops = {
        .name = "nccl",
        .lanes = LANES_OF_JOB,
        .agreed = true,
        .version = nccl_version,
        .describe = nccl_describe,
        .view = nccl_view,
        .fd = nccl_fd,
        .dispatch = nccl_dispatch,
        .share = nccl_share,
        .unshare = nccl_unshare,
        .can = nccl_can,
        .build = nccl_build,
        .learn = nccl_learn,
        .launch = nccl_launch,
        .drop = nccl_drop,
        .abort = nccl_abort,
};

/* ---- opening and closing ---- */

static int nccl_watch(const struct nccl_engine *nccl, int fd) {
        struct epoll_event event = { .events = EPOLLIN };

        return fd >= 0 && epoll_ctl(nccl->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/*
 * Returns how many communicators may work at a time. A kernel of NCCL waits for those of other ranks. If two
 * of them need room that only the other one's end gives, or stand in one queue, both wait for ever, so all
 * must fit side by side. A thread block takes most of a multiprocessor. Each lane needs a queue, and the
 * backend has some of its own.
 */
static uint32_t nccl_most(const struct common *common) {
        unsigned ctas = common->config.ctas > 0 ? common->config.ctas : CTAS_AT_MOST;
        uint32_t room = (uint32_t)common->gpu.processors / (ctas * LANES_OF_JOB);
        uint32_t queues = (QUEUES - QUEUES_OF_OTHERS) / LANES_OF_JOB;

        if (room > queues)
                room = queues;
        return room > 0 ? room : 1;
}

static int nccl_start(struct nccl_engine *nccl, const struct nccl_engine_config *config, char *error,
                      size_t size) {
        struct common *common = &nccl->common;
        int r = gpu_open(&common->gpu, config->uuid, config->driver, config->library, error, size);

        if (r < 0)
                return r;
        nccl->ops.kin = (uint32_t)common->gpu.nccl.version;
        nccl->ops.most = nccl_most(common);
        nccl_list_abilities(nccl);
        nccl->epoll = epoll_create1(EPOLL_CLOEXEC);
        common->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        nccl->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        r = nccl->epoll >= 0 ? nccl_watch(nccl, common->wake) : -errno;
        if (r == 0)
                r = nccl_watch(nccl, nccl->timer);
        if (r == 0)
                r = launcher_start(common, &nccl->launcher);
        nccl->launching = r == 0;
        if (r < 0)
                snprintf(error, size, "the engine for NCCL cannot start: %s", strerror(-r));
        return r;
}

int nccl_open(const struct nccl_engine_config *config, struct engine **ret, char *error, size_t size) {
        struct nccl_engine *nccl = calloc(1, sizeof(*nccl));

        if (nccl == NULL)
                return -ENOMEM;
        nccl->ops = nccl_ops;
        nccl->engine.ops = &nccl->ops;
        nccl->common.config = *config;
        snprintf(nccl->common.host, sizeof(nccl->common.host), "%s", config->host);
        nccl->epoll = nccl->timer = nccl->common.wake = -1;
        list_init(&nccl->common.memories);
        list_init(&nccl->common.comms);
        list_init(&nccl->common.resources);
        list_init(&nccl->common.queue);
        list_init(&nccl->common.news);
        pthread_mutex_init(&nccl->common.lock, NULL);
        pthread_cond_init(&nccl->common.work, NULL);
        pthread_cond_init(&nccl->common.change, NULL);
        int r = nccl_start(nccl, config, error, size);
        if (r == 0)
                *ret = &nccl->engine;
        else
                nccl_close(&nccl->engine);
        return r;
}

/* Waits for communicators that were dropped, or are quiet, and have not ended yet. Their news is not
 * delivered, but stays in one list until the last of them has ended. */
static void nccl_wait_for_ends(struct nccl_engine *nccl) {
        struct communicator *comm, *spare;

        list_for_each(comm, &nccl->common.comms, link) {
                assert(comm->state == COMMUNICATOR_DROPPED || comm->told);
                communicator_join(comm);
        }
        list_init(&nccl->common.news);
        list_for_each_safe(comm, spare, &nccl->common.comms, link)
                nccl_forget(nccl, comm);
}

static void nccl_stop(struct nccl_engine *nccl) {
        if (!nccl->launching)
                return;
        pthread_mutex_lock(&nccl->common.lock);
        nccl->common.stop = true;
        pthread_cond_signal(&nccl->common.work);
        pthread_mutex_unlock(&nccl->common.lock);
        pthread_join(nccl->launcher, NULL);
}

void nccl_close(struct engine *engine) {
        struct nccl_engine *nccl = engine != NULL ? nccl_of(engine) : NULL;

        if (nccl == NULL)
                return;
        nccl_stop(nccl);
        nccl_wait_for_ends(nccl);
        assert(list_empty(&nccl->common.memories));
        gpu_close(&nccl->common.gpu);
        fd_close(nccl->timer);
        fd_close(nccl->common.wake);
        fd_close(nccl->epoll);
        pthread_cond_destroy(&nccl->common.change);
        pthread_cond_destroy(&nccl->common.work);
        pthread_mutex_destroy(&nccl->common.lock);
        free(nccl);
}
