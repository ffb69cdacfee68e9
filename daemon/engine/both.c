/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/both.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/list.h"

/* Each lane of a device holds memory of it. So there is one lane for the first plan, one for all others, one
 * for the host. */
#define LANES 3u

enum half_kind { DEVICE, HOST, HALVES };

struct both_memory {
        struct list link;
        uint64_t id;
        enum half_kind half;
};

/* The part of a communicator that belongs to one engine. */
struct half {
        bool there; /* it has lanes of the communicator, and has not reported their end */
        bool built; /* it has reported that they work */
        uint32_t n_lanes;
        uint32_t lane[32]; /* numbers of its lanes in the whole communicator */
        void *table;       /* the table that it has published; NULL if none yet */
        size_t table_bytes;
};

struct both_comm {
        struct list link;
        uint64_t id;
        bool published, told; /* told: it has been reported whether the communicator works */
        struct half half[HALVES];
        uint32_t on_host;
};

struct both;

/* The owner of one engine's events. It shows which engine an event comes from. */
struct side {
        struct both *both;
        struct engine *engine;
        enum half_kind kind;
};

struct both {
        struct engine engine;
        struct engine_ops ops; /* the name is that of the device's engine */
        struct side side[HALVES];
        struct list memories, comms;
        int epoll;
};

static struct both *both_of(const struct engine *engine) {
        return (struct both *)engine;
}

static struct both_comm *both_find(const struct both *both, uint64_t id) {
        struct both_comm *comm;

        list_for_each(comm, &both->comms, link)
                if (comm->id == id)
                        return comm;
        return NULL;
}

static void both_free(struct both_comm *comm) {
        list_remove(&comm->link);
        for (int h = 0; h < HALVES; h++)
                free(comm->half[h].table);
        free(comm);
}

/* ---- events of the two ---- */

static bool both_all(const struct both_comm *comm, bool (*is)(const struct half *half)) {
        for (int h = 0; h < HALVES; h++)
                if (comm->half[h].there && !is(&comm->half[h]))
                        return false;
        return true;
}

static bool half_has_published(const struct half *half) {
        return half->table != NULL;
}

static bool half_is_built(const struct half *half) {
        return half->built;
}

static bool half_is_gone(const struct half *half) {
        return !half->there;
}

/* Publishes one table: the length of the first table, the first table, the second one. */
static void both_publish(struct both *both, struct both_comm *comm) {
        const struct half *first = &comm->half[DEVICE], *second = &comm->half[HOST];
        uint32_t split = (uint32_t)first->table_bytes;
        size_t bytes = sizeof(split) + first->table_bytes + second->table_bytes;
        unsigned char *table = bytes <= ENGINE_TABLE ? malloc(bytes) : NULL;

        comm->published = true;
        if (table == NULL)
                return; /* the other nodes wait in vain, and report that */
        memcpy(table, &split, sizeof(split));
        if (first->table_bytes > 0)
                memcpy(table + sizeof(split), first->table, first->table_bytes);
        if (second->table_bytes > 0)
                memcpy(table + sizeof(split) + first->table_bytes, second->table, second->table_bytes);
        both->engine.events->publish(both->engine.owner, comm->id, table, bytes);
        free(table);
}

static void both_on_publish(void *owner, uint64_t id, const void *table, size_t bytes) {
        const struct side *side = owner;
        struct both_comm *comm = both_find(side->both, id);
        struct half *half = comm != NULL ? &comm->half[side->kind] : NULL;

        if (half == NULL || half->table != NULL)
                return;
        half->table = malloc(bytes + 1);
        if (half->table == NULL)
                return;
        memcpy(half->table, table, bytes);
        half->table_bytes = bytes;
        if (!comm->published && both_all(comm, half_has_published))
                both_publish(side->both, comm);
}

static void both_on_built(void *owner, uint64_t id, const uint32_t *unreachable, uint32_t n) {
        const struct side *side = owner;
        struct both_comm *comm = both_find(side->both, id);

        if (comm == NULL || comm->told)
                return;
        comm->half[side->kind].built = true;
        comm->told = n > 0 || both_all(comm, half_is_built);
        if (comm->told)
                side->both->engine.events->built(side->both->engine.owner, id, unreachable, n);
}

static void both_on_done(void *owner, uint64_t id, uint32_t lane, uint64_t sequence, const uint64_t *value) {
        const struct side *side = owner;
        const struct both_comm *comm = both_find(side->both, id);

        if (comm != NULL)
                side->both->engine.events->done(side->both->engine.owner, id,
                                                comm->half[side->kind].lane[lane], sequence, value);
}

/* Reports a loss. If the communicator is not built yet on the other side, the loss is the only report of its
 * being built. */
static void both_on_unreachable(void *owner, uint64_t id, const uint32_t *nodes, uint32_t n) {
        const struct side *side = owner;
        struct both_comm *comm = both_find(side->both, id);

        if (comm == NULL)
                return;
        if (comm->told) {
                side->both->engine.events->unreachable(side->both->engine.owner, id, nodes, n);
                return;
        }
        comm->told = true;
        side->both->engine.events->built(side->both->engine.owner, id, nodes, n);
}

static void both_on_aborted(void *owner, uint64_t id) {
        const struct side *side = owner;
        struct both *both = side->both;
        struct both_comm *comm = both_find(both, id);

        if (comm == NULL)
                return;
        comm->half[side->kind].there = false;
        if (!both_all(comm, half_is_gone))
                return;
        both_free(comm);
        both->engine.events->aborted(both->engine.owner, id);
}

static void both_on_shared(void *owner, uint64_t memory) {
        const struct side *side = owner;

        side->both->engine.events->shared(side->both->engine.owner, memory);
}

static void both_on_unshared(void *owner, uint64_t memory) {
        const struct side *side = owner;

        side->both->engine.events->unshared(side->both->engine.owner, memory);
}

static const struct engine_events both_events = {
        .publish = both_on_publish,
        .built = both_on_built,
        .done = both_on_done,
        .unreachable = both_on_unreachable,
        .aborted = both_on_aborted,
        .shared = both_on_shared,
        .unshared = both_on_unshared,
};

/* ---- calls to the two ---- */

static int both_fd(const struct engine *engine) {
        return both_of(engine)->epoll;
}

static void both_dispatch(struct engine *engine) {
        for (int h = 0; h < HALVES; h++) {
                struct engine *half = both_of(engine)->side[h].engine;

                half->ops->dispatch(half);
        }
}

static const char *both_version(const struct engine *engine) {
        const struct engine *device = both_of(engine)->side[DEVICE].engine;

        return device->ops->version(device);
}

static void both_describe(const struct engine *engine, struct engine_description *ret) {
        const struct engine *device = both_of(engine)->side[DEVICE].engine;

        *ret = (struct engine_description){ 0 };
        if (device->ops->describe != NULL)
                device->ops->describe(device, ret);
}

static bool both_view(struct engine *engine, uint64_t id, struct engine_view *ret) {
        struct engine *device = both_of(engine)->side[DEVICE].engine;

        return device->ops->view != NULL && device->ops->view(device, id, ret);
}

static pid_t both_silent(struct engine *engine, uint64_t id, uint64_t *ret_since) {
        pid_t pid = 0;

        for (int h = 0; h < HALVES && pid == 0; h++) {
                struct engine *half = both_of(engine)->side[h].engine;

                if (half->ops->silent != NULL)
                        pid = half->ops->silent(half, id, ret_since);
        }
        return pid;
}

static int both_share(struct engine *engine, uint64_t id, const struct engine_memory *what) {
        struct both *both = both_of(engine);
        struct both_memory *memory = calloc(1, sizeof(*memory));

        if (memory == NULL)
                return -ENOMEM;
        *memory = (struct both_memory){ .id = id, .half = what->on_host ? HOST : DEVICE };
        struct engine *half = both->side[memory->half].engine;
        int r = half->ops->share(half, id, what);
        if (r < 0) {
                free(memory);
                return r;
        }
        list_append(&both->memories, &memory->link);
        return r;
}

static bool both_unshare(struct engine *engine, uint64_t id) {
        struct both *both = both_of(engine);
        struct both_memory *memory, *spare;
        bool gone = true;

        list_for_each_safe(memory, spare, &both->memories, link)
                if (memory->id == id) {
                        struct engine *half = both->side[memory->half].engine;

                        gone = half->ops->unshare(half, id);
                        list_remove(&memory->link);
                        free(memory);
                }
        return gone;
}

/* Asks the engine of the device. Where the memory lies is not known here, but the engine of the host can do
 * all. */
static bool both_can(const struct engine *engine, unsigned dtype, enum engine_reduce reduce) {
        const struct engine *device = both_of(engine)->side[DEVICE].engine;

        return device->ops->can == NULL || device->ops->can(device, dtype, reduce);
}

static void both_set_address(struct engine *engine, const char *address) {
        for (int h = 0; h < HALVES; h++) {
                struct engine *half = both_of(engine)->side[h].engine;

                if (half->ops->set_address != NULL)
                        half->ops->set_address(half, address);
        }
}

static void both_divide_lanes(struct both_comm *comm, const struct engine_build *build) {
        for (uint32_t lane = 0; lane < build->n_lanes; lane++) {
                struct half *half = &comm->half[build->on_host >> lane & 1 ? HOST : DEVICE];

                half->lane[half->n_lanes++] = lane;
        }
}

static int both_build_half(const struct both *both, struct both_comm *comm, enum half_kind kind,
                           const struct engine_build *build) {
        struct engine_build part = *build;
        struct engine *engine = both->side[kind].engine;
        struct half *half = &comm->half[kind];

        if (half->n_lanes == 0)
                return 0;
        part.n_lanes = half->n_lanes;
        part.on_host = kind == HOST ? (1u << half->n_lanes) - 1 : 0;
        half->there = true;
        int r = engine->ops->build(engine, &part);
        half->there = r == 0;
        return r;
}

static int both_build(struct engine *engine, const struct engine_build *build) {
        struct both *both = both_of(engine);
        struct both_comm *comm = calloc(1, sizeof(*comm));

        if (comm == NULL)
                return -ENOMEM;
        comm->id = build->comm;
        comm->on_host = build->on_host;
        both_divide_lanes(comm, build);
        list_append(&both->comms, &comm->link);
        int r = both_build_half(both, comm, DEVICE, build);
        if (r == 0)
                r = both_build_half(both, comm, HOST, build);
        if (r < 0 && comm->half[DEVICE].there) {
                struct engine *device = both->side[DEVICE].engine;

                device->ops->drop(device, build->comm);
        }
        if (r < 0)
                both_free(comm);
        return r;
}

static int both_learn(struct engine *engine, uint64_t id, uint32_t rank, const void *table, size_t bytes) {
        struct both *both = both_of(engine);
        const struct both_comm *comm = both_find(both, id);
        const unsigned char *at = table;
        uint32_t split;
        int r = 0;

        if (comm == NULL || bytes < sizeof(split))
                return -EINVAL;
        memcpy(&split, at, sizeof(split));
        at += sizeof(split);
        bytes -= sizeof(split);
        if (split > bytes)
                return -EINVAL;
        const size_t length[HALVES] = { split, bytes - split };
        const void *part[HALVES] = { at, at + split };
        for (int h = 0; h < HALVES && r == 0; h++) {
                struct engine *half = both->side[h].engine;

                if (comm->half[h].there)
                        r = half->ops->learn(half, id, rank, part[h], length[h]);
        }
        return r;
}

static int both_launch(struct engine *engine, const struct engine_launch *launch) {
        struct both *both = both_of(engine);
        const struct both_comm *comm = both_find(both, launch->comm);
        struct engine_launch part = *launch;

        if (comm == NULL || launch->lane >= comm->half[DEVICE].n_lanes + comm->half[HOST].n_lanes)
                return -EINVAL;
        enum half_kind kind = comm->on_host >> launch->lane & 1 ? HOST : DEVICE;
        const struct half *half = &comm->half[kind];
        for (part.lane = 0; half->lane[part.lane] != launch->lane; part.lane++)
                ;
        struct engine *to = both->side[kind].engine;
        return to->ops->launch(to, &part);
}

static void both_drop(struct engine *engine, uint64_t id) {
        struct both *both = both_of(engine);
        struct both_comm *comm = both_find(both, id);

        for (int h = 0; comm != NULL && h < HALVES; h++)
                if (comm->half[h].there)
                        both->side[h].engine->ops->drop(both->side[h].engine, id);
        if (comm != NULL)
                both_free(comm);
}

static void both_abort(struct engine *engine, uint64_t id) {
        struct both *both = both_of(engine);
        const struct both_comm *comm = both_find(both, id);

        for (int h = 0; comm != NULL && h < HALVES; h++)
                if (comm->half[h].there)
                        both->side[h].engine->ops->abort(both->side[h].engine, id);
}

int both_open(struct engine *device, struct engine *host, struct engine **ret) {
        struct epoll_event event = { .events = EPOLLIN };
        static const struct engine_ops ops = {
                .version = both_version,
                .describe = both_describe,
                .view = both_view,
                .silent = both_silent,
                .fd = both_fd,
                .dispatch = both_dispatch,
                .share = both_share,
                .unshare = both_unshare,
                .can = both_can,
                .set_address = both_set_address,
                .build = both_build,
                .learn = both_learn,
                .launch = both_launch,
                .drop = both_drop,
                .abort = both_abort,
        };
        struct both *both = calloc(1, sizeof(*both));

        if (both == NULL)
                return -ENOMEM;
        both->ops = ops;
        both->ops.name = device->ops->name;
        both->ops.most = device->ops->most;
        both->ops.kin = device->ops->kin;
        both->ops.lanes = LANES;
        both->ops.agreed = device->ops->agreed;
        both->engine.ops = &both->ops;
        list_init(&both->memories);
        list_init(&both->comms);
        both->epoll = epoll_create1(EPOLL_CLOEXEC);
        struct engine *half[HALVES] = { device, host };
        int r = both->epoll < 0 ? -errno : 0;
        for (int h = 0; h < HALVES && r == 0; h++) {
                both->side[h] = (struct side){ both, half[h], (enum half_kind)h };
                half[h]->events = &both_events;
                half[h]->owner = &both->side[h];
                if (epoll_ctl(both->epoll, EPOLL_CTL_ADD, half[h]->ops->fd(half[h]), &event) < 0)
                        r = -errno;
        }
        if (r < 0) {
                both_close(&both->engine);
                return r;
        }
        *ret = &both->engine;
        return 0;
}

void both_close(struct engine *engine) {
        struct both *both = engine != NULL ? both_of(engine) : NULL;

        if (both == NULL)
                return;
        while (!list_empty(&both->comms))
                both_free(list_entry(both->comms.next, struct both_comm, link));
        if (both->epoll >= 0)
                close(both->epoll);
        free(both);
}
