/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for tests: the nodes of a job are in one process, and a fabric between them really exchanges
 * their bytes. It enforces the contract of an engine, and complains of each breach: a gap in the sequence
 * numbers, a size, type or reduction that differs between nodes, a piece outside of shared memory, a write to
 * a piece while its collective goes on. Its events wait until the test dispatches them. The test can have
 * them held back, lost or refused.
 */
#pragma once

#include "unit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/engine.h"
#include "gradsync.pb-c.h"
#include "proto/names.h"

#ifndef FABRIC_NODES
#define FABRIC_NODES 4u
#endif
#define FABRIC_COMMS 16u
#define FABRIC_LANES 4u
#define FABRIC_AHEAD 64u /* collectives of a lane that are not done on all nodes */
#define FABRIC_EVENTS (240u + 4u * FABRIC_NODES)
#define FABRIC_MEMORIES 32u
#define POISON 0xa5

enum fabric_state { FABRIC_NONE, FABRIC_BUILDING, FABRIC_WORKING, FABRIC_ABORTING, FABRIC_GONE };

struct fabric_collective {
        uint64_t sequence;
        bool launched[FABRIC_NODES];
        struct engine_launch launch[FABRIC_NODES];
        unsigned char *input[FABRIC_NODES]; /* as it was when it was launched */
        unsigned char *result;
        uint64_t value[ENGINE_VALUES];
};

struct fabric_comm {
        char name[128];
        uint32_t n_lanes, n_peers;
        uint32_t peer[FABRIC_NODES]; /* by rank: the address, which is the number in the fabric */
        uint64_t id[FABRIC_NODES];   /* by number in the fabric, like all that follows */
        enum fabric_state state[FABRIC_NODES];
        uint64_t learned[FABRIC_NODES]; /* bit n: what node n has published */
        uint64_t launched[FABRIC_LANES][FABRIC_NODES], done[FABRIC_LANES][FABRIC_NODES];
        uint64_t combined[FABRIC_LANES];
        struct fabric_collective ring[FABRIC_LANES][FABRIC_AHEAD];
};

enum fabric_event_kind { FABRIC_PUBLISH, FABRIC_BUILT, FABRIC_DONE, FABRIC_UNREACHABLE, FABRIC_ABORTED };

struct fabric_event {
        enum fabric_event_kind kind;
        struct fabric_comm *comm;
        uint32_t lane;
        struct fabric_collective *collective;
        uint32_t lost; /* unreachable: whom it does not reach */
};

struct fabric;

struct fake_engine {
        struct engine engine;
        struct fabric *fabric;
        uint32_t node;
        int fd;
        bool held; /* delivers nothing */
        bool lost; /* nothing of it reaches the others any more, and they are told */
        bool slow; /* memory is there, and let go of, when the test says so */
        /* Changes what a collective brings to this node on its way; NULL: as it is. */
        void (*between)(struct fake_engine *fake, unsigned char *data, uint64_t bytes);
        void (*values)(struct fake_engine *fake, uint64_t *value); /* the same of what is compared */
        uint64_t coming[FABRIC_MEMORIES], going[FABRIC_MEMORIES];
        unsigned n_coming, n_going;
        int launch_error; /* what launch() fails with */
        struct engine_memory memory[FABRIC_MEMORIES];
        uint64_t memory_id[FABRIC_MEMORIES]; /* 0: free */
        struct fabric_event event[FABRIC_EVENTS];
        unsigned n_events;
        unsigned n_payloads, n_votes, n_fillers; /* launched */
};

struct fabric {
        struct fake_engine node[FABRIC_NODES];
        struct fabric_comm comm[FABRIC_COMMS];
        unsigned n_comms;
        bool hangs; /* no collective ends */
        unsigned complaints;
        bool forgiving; /* complaints are only counted */
};

static void fabric_complain(struct fabric *fabric, const char *text) {
        fabric->complaints++;
        if (!fabric->forgiving)
                fail_msg("engine: %s", text);
}

static void fake_post(struct fake_engine *fake, const struct fabric_event *event) {
        uint64_t one = 1;

        assert(fake->n_events < FABRIC_EVENTS);
        fake->event[fake->n_events++] = *event;
        assert(write(fake->fd, &one, sizeof(one)) == sizeof(one));
}

static struct fabric_comm *fake_comm(struct fake_engine *fake, uint64_t id) {
        struct fabric *fabric = fake->fabric;

        for (unsigned i = 0; i < fabric->n_comms; i++) {
                enum fabric_state state = fabric->comm[i].state[fake->node];

                if (fabric->comm[i].id[fake->node] == id && state != FABRIC_NONE && state != FABRIC_GONE)
                        return &fabric->comm[i];
        }
        fabric_complain(fabric, "there is no such communicator");
        return NULL;
}

static unsigned char *fake_address(struct fake_engine *fake, const struct engine_piece *piece,
                                   uint64_t offset) {
        uint64_t bytes = piece->elements * dtype_size(piece->dtype);

        for (unsigned i = 0; i < FABRIC_MEMORIES; i++) {
                const struct engine_memory *memory = &fake->memory[i];

                if (fake->memory_id[i] == 0 || fake->memory_id[i] != piece->memory)
                        continue;
                if (offset <= memory->bytes && bytes <= memory->bytes - offset)
                        return (unsigned char *)memory->address + offset;
        }
        fabric_complain(fake->fabric, "a piece does not lie in shared memory");
        return NULL;
}

/* ---- what is exchanged ---- */

#define FABRIC_FOLD(TYPE)                                                                                    \
        for (uint64_t i = 0; i < piece->elements; i++) {                                                     \
                TYPE a = ((TYPE *)to)[i], b = ((const TYPE *)from)[i];                                       \
                switch (piece->reduce) {                                                                     \
                case ENGINE_SUM: a = (TYPE)(a + b); break;                                                   \
                case ENGINE_PROD: a = (TYPE)(a * b); break;                                                  \
                case ENGINE_MIN: a = b < a || b != b ? b : a; break;                                         \
                case ENGINE_MAX: a = b > a || b != b ? b : a; break;                                         \
                case ENGINE_COPY: break;                                                                     \
                }                                                                                            \
                ((TYPE *)to)[i] = a;                                                                         \
        }

static void fabric_fold(struct fabric *fabric, const struct engine_piece *piece, void *to, const void *from) {
        switch (piece->dtype) {
        case WIRE__DTYPE__F32: FABRIC_FOLD(float) break;
        case WIRE__DTYPE__F64: FABRIC_FOLD(double) break;
        case WIRE__DTYPE__I32: FABRIC_FOLD(uint32_t) break;
        case WIRE__DTYPE__I64: FABRIC_FOLD(int64_t) break;
        case WIRE__DTYPE__U8: FABRIC_FOLD(uint8_t) break;
        default: fabric_complain(fabric, "this engine knows no such type");
        }
}

/* A filler takes part in anything that has its shape. */
static bool fabric_same(const struct engine_launch *a, const struct engine_launch *b) {
        const struct engine_piece *p = &a->piece, *q = &b->piece;

        if (p->elements != q->elements ||
            (a->kind != b->kind && a->kind != ENGINE_FILLER && b->kind != ENGINE_FILLER))
                return false;
        return p->elements == 0 || (p->dtype == q->dtype && p->reduce == q->reduce && p->root == q->root);
}

static void fabric_combine(struct fabric *fabric, struct fabric_comm *comm,
                           struct fabric_collective *collective) {
        const struct engine_launch *first = &collective->launch[comm->peer[0]];
        uint64_t bytes = first->piece.elements * dtype_size(first->piece.dtype);

        memset(collective->value, 0xff, sizeof(collective->value));
        collective->result = malloc(bytes + 1);
        for (uint32_t rank = 0; rank < comm->n_peers; rank++) {
                const struct engine_launch *launch = &collective->launch[comm->peer[rank]];
                const unsigned char *input = collective->input[comm->peer[rank]];

                if (!fabric_same(first, launch)) {
                        fabric_complain(fabric, "nodes launch different collectives under one number");
                        return;
                }
                for (unsigned i = 0; i < ENGINE_VALUES; i++) {
                        uint64_t value = launch->kind == ENGINE_FILLER ? 0 : launch->value[i];

                        collective->value[i] = value < collective->value[i] ? value : collective->value[i];
                }
                if (rank == 0 || (first->piece.reduce == ENGINE_COPY && rank == first->piece.root))
                        memcpy(collective->result, input, bytes);
                else if (bytes > 0)
                        fabric_fold(fabric, &first->piece, collective->result, input);
        }
        for (uint32_t rank = 0; rank < comm->n_peers; rank++)
                fake_post(&fabric->node[comm->peer[rank]],
                          &(struct fabric_event){ .kind = FABRIC_DONE,
                                                  .comm = comm,
                                                  .lane = first->lane,
                                                  .collective = collective });
}

/* Does each collective that all nodes have launched, unless the fabric hangs. */
static void fabric_advance(struct fabric *fabric, struct fabric_comm *comm, uint32_t lane) {
        uint64_t least = UINT64_MAX;

        for (uint32_t rank = 0; rank < comm->n_peers; rank++)
                if (comm->launched[lane][comm->peer[rank]] < least)
                        least = comm->launched[lane][comm->peer[rank]];
        while (comm->combined[lane] < least && !fabric->hangs)
                fabric_combine(fabric, comm, &comm->ring[lane][++comm->combined[lane] % FABRIC_AHEAD]);
}

/* Ends the hang: the collectives go on. */
static inline void fabric_go_on(struct fabric *fabric) {
        fabric->hangs = false;
        for (unsigned i = 0; i < fabric->n_comms; i++)
                for (uint32_t lane = 0; lane < fabric->comm[i].n_lanes; lane++)
                        fabric_advance(fabric, &fabric->comm[i], lane);
}

static void fabric_reuse(struct fabric_collective *collective) {
        for (uint32_t node = 0; node < FABRIC_NODES; node++)
                free(collective->input[node]);
        free(collective->result);
        memset(collective, 0, sizeof(*collective));
}

static int fake_launch(struct engine *engine, const struct engine_launch *launch) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        struct fabric_comm *comm = fake_comm(fake, launch->comm);
        const struct engine_piece *piece = &launch->piece;
        uint64_t bytes = piece->elements * dtype_size(piece->dtype);
        struct fabric_collective *collective;
        unsigned char *input = NULL, *output = NULL;

        if (fake->launch_error < 0)
                return fake->launch_error;
        if (comm == NULL || launch->lane >= comm->n_lanes || comm->state[fake->node] != FABRIC_WORKING ||
            launch->sequence != comm->launched[launch->lane][fake->node] + 1) {
                fabric_complain(fake->fabric, "this is not what comes next on the lane");
                return -EINVAL;
        }
        if (bytes > 0) {
                input = fake_address(fake, piece, piece->input);
                output = fake_address(fake, piece, piece->output);
                if (input == NULL || output == NULL)
                        return -EINVAL;
        }
        collective = &comm->ring[launch->lane][launch->sequence % FABRIC_AHEAD];
        if (collective->sequence != launch->sequence)
                fabric_reuse(collective);
        collective->sequence = launch->sequence;
        collective->launched[fake->node] = true;
        collective->launch[fake->node] = *launch;
        collective->input[fake->node] = malloc(bytes + 1);
        if (bytes > 0) {
                if (piece->tail_bytes > 0)
                        memcpy(input + bytes - piece->tail_bytes, piece->tail, piece->tail_bytes);
                memcpy(collective->input[fake->node], input, bytes);
                memset(output, POISON, bytes);
        }
        comm->launched[launch->lane][fake->node]++;
        fake->n_payloads += launch->kind == ENGINE_PAYLOAD;
        fake->n_votes += launch->kind == ENGINE_VOTE;
        fake->n_fillers += launch->kind == ENGINE_FILLER;
        if (!fake->lost)
                fabric_advance(fake->fabric, comm, launch->lane);
        return 0;
}

/* Complains if the input or the output of a collective has changed while it ran. */
static void fabric_check_hands_off(struct fake_engine *fake, const struct fabric_collective *collective,
                                   const unsigned char *output) {
        const struct engine_piece *piece = &collective->launch[fake->node].piece;
        uint64_t bytes = piece->elements * dtype_size(piece->dtype);

        for (uint64_t i = 0; i < bytes; i++)
                if (output[i] != POISON) {
                        fabric_complain(fake->fabric, "somebody has written to the output of a collective");
                        return;
                }
        if (piece->input != piece->output &&
            memcmp(collective->input[fake->node], fake_address(fake, piece, piece->input), bytes) != 0)
                fabric_complain(fake->fabric, "somebody has written to the input of a collective");
}

/* Poisons the output once more if a later collective of the lane has the same one. */
static void fabric_poison_next(struct fake_engine *fake, struct fabric_comm *comm, uint32_t lane,
                               const struct engine_piece *done) {
        for (uint64_t sequence = comm->done[lane][fake->node] + 1;
             sequence <= comm->launched[lane][fake->node]; sequence++) {
                const struct engine_piece *piece =
                        &comm->ring[lane][sequence % FABRIC_AHEAD].launch[fake->node].piece;

                if (piece->elements > 0 && piece->memory == done->memory && piece->output == done->output)
                        memset(fake_address(fake, piece, piece->output), POISON,
                               piece->elements * dtype_size(piece->dtype));
        }
}

static void fake_deliver_done(struct fake_engine *fake, const struct fabric_event *event) {
        struct fabric_collective *collective = event->collective;
        const struct engine_launch *launch = &collective->launch[fake->node];
        uint64_t bytes = launch->piece.elements * dtype_size(launch->piece.dtype);
        uint64_t value[ENGINE_VALUES];

        event->comm->done[event->lane][fake->node]++;
        memcpy(value, collective->value, sizeof(value));
        if (fake->values != NULL && launch->kind == ENGINE_VOTE)
                fake->values(fake, value);
        if (bytes > 0) {
                unsigned char *output = fake_address(fake, &launch->piece, launch->piece.output);

                fabric_check_hands_off(fake, collective, output);
                memcpy(output, collective->result, bytes);
                if (fake->between != NULL)
                        fake->between(fake, output, bytes);
                if (launch->piece.tail_bytes > 0)
                        memcpy(launch->piece.tail, output + bytes - launch->piece.tail_bytes,
                               launch->piece.tail_bytes);
                fabric_poison_next(fake, event->comm, event->lane, &launch->piece);
        }
        fake->engine.events->done(fake->engine.owner, launch->comm, event->lane, launch->sequence, value);
}

static void fake_deliver(struct fake_engine *fake, const struct fabric_event *event) {
        const struct engine_events *events = fake->engine.events;
        struct fabric_comm *comm = event->comm;
        uint64_t id = comm->id[fake->node];

        switch (event->kind) {
        case FABRIC_PUBLISH: {
                uint32_t table[2] = { (uint32_t)(comm - fake->fabric->comm), fake->node };

                events->publish(fake->engine.owner, id, table, sizeof(table));
                break;
        }
        case FABRIC_BUILT:
                comm->state[fake->node] = FABRIC_WORKING;
                events->built(fake->engine.owner, id, NULL, 0);
                break;
        case FABRIC_DONE: fake_deliver_done(fake, event); break;
        case FABRIC_UNREACHABLE: events->unreachable(fake->engine.owner, id, &event->lost, 1); break;
        case FABRIC_ABORTED:
                comm->state[fake->node] = FABRIC_GONE;
                events->aborted(fake->engine.owner, id);
                break;
        }
}

/* One at a time, so that a test can look at what lies between. False if there is nothing to deliver. */
static inline bool fake_dispatch_one(struct fake_engine *fake) {
        struct fabric_event event = fake->event[0];

        if (fake->held || fake->n_events == 0)
                return false;
        memmove(&fake->event[0], &fake->event[1], --fake->n_events * sizeof(event));
        fake_deliver(fake, &event);
        return true;
}

static void fake_dispatch(struct engine *engine) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        uint64_t n;

        (void)!read(fake->fd, &n, sizeof(n));
        while (fake_dispatch_one(fake))
                ;
}

static int fake_engine_fd(const struct engine *engine) {
        return ((const struct fake_engine *)engine)->fd;
}

static const char *fake_version(const struct engine *engine) {
        return "0";
}

static int fake_share(struct engine *engine, uint64_t id, const struct engine_memory *what) {
        struct fake_engine *fake = (struct fake_engine *)engine;

        for (unsigned i = 0; i < FABRIC_MEMORIES; i++)
                assert(fake->memory_id[i] != id);
        for (unsigned i = 0; i < FABRIC_MEMORIES; i++)
                if (fake->memory_id[i] == 0) {
                        fake->memory_id[i] = id;
                        fake->memory[i] = *what;
                        if (fake->slow)
                                fake->coming[fake->n_coming++] = id;
                        return fake->slow;
                }
        return -ENOSPC;
}

/* Whether some collective that was launched with it has not been delivered. */
static bool fabric_uses(const struct fake_engine *fake, const struct fabric_comm *comm, uint64_t memory) {
        for (uint32_t lane = 0; lane < comm->n_lanes; lane++)
                for (uint64_t sequence = comm->done[lane][fake->node] + 1;
                     sequence <= comm->launched[lane][fake->node]; sequence++) {
                        const struct engine_piece *piece =
                                &comm->ring[lane][sequence % FABRIC_AHEAD].launch[fake->node].piece;

                        if (piece->elements > 0 && piece->memory == memory)
                                return true;
                }
        return false;
}

static bool fake_unshare(struct engine *engine, uint64_t memory) {
        struct fake_engine *fake = (struct fake_engine *)engine;

        for (unsigned i = 0; i < fake->fabric->n_comms; i++)
                if ((fake->fabric->comm[i].state[fake->node] == FABRIC_WORKING ||
                     fake->fabric->comm[i].state[fake->node] == FABRIC_ABORTING) &&
                    fabric_uses(fake, &fake->fabric->comm[i], memory))
                        fabric_complain(fake->fabric, "memory is taken away from a collective");
        for (unsigned i = 0; i < FABRIC_MEMORIES; i++)
                if (fake->memory_id[i] == memory) {
                        fake->memory_id[i] = 0;
                        if (fake->slow)
                                fake->going[fake->n_going++] = memory;
                        return !fake->slow;
                }
        fabric_complain(fake->fabric, "there is no such memory");
        return true;
}

/* The oldest memory that a slow one has got, or has yet to let go of. */
static inline void fake_take_shared(struct fake_engine *fake) {
        uint64_t id = fake->coming[0];

        assert(fake->n_coming > 0);
        memmove(fake->coming, fake->coming + 1, --fake->n_coming * sizeof(id));
        fake->engine.events->shared(fake->engine.owner, id);
}

static inline void fake_let_go_of_shared(struct fake_engine *fake) {
        uint64_t id = fake->going[0];

        assert(fake->n_going > 0);
        memmove(fake->going, fake->going + 1, --fake->n_going * sizeof(id));
        fake->engine.events->unshared(fake->engine.owner, id);
}

static struct fabric_comm *fabric_named(struct fabric *fabric, const struct engine_build *build) {
        struct fabric_comm *comm;

        for (unsigned i = 0; i < fabric->n_comms; i++)
                if (strcmp(fabric->comm[i].name, build->name) == 0)
                        return &fabric->comm[i];
        if (fabric->n_comms == FABRIC_COMMS && fabric->forgiving)
                return NULL;
        assert(fabric->n_comms < FABRIC_COMMS && build->n_lanes <= FABRIC_LANES);
        comm = &fabric->comm[fabric->n_comms++];
        strncpy(comm->name, build->name, sizeof(comm->name) - 1);
        comm->n_lanes = build->n_lanes;
        comm->n_peers = build->n_nodes;
        memcpy(comm->peer, build->node, build->n_nodes * sizeof(*build->node));
        return comm;
}

/* All of its nodes are there, and have learned of one another. */
static bool fabric_is_joined(const struct fabric *fabric, const struct fabric_comm *comm) {
        uint64_t all = 0;

        for (uint32_t rank = 0; rank < comm->n_peers; rank++)
                all |= UINT64_C(1) << comm->peer[rank];
        for (uint32_t rank = 0; rank < comm->n_peers; rank++) {
                uint32_t node = comm->peer[rank];

                if (comm->state[node] != FABRIC_BUILDING || fabric->node[node].lost ||
                    (comm->learned[node] | UINT64_C(1) << node) != all)
                        return false;
        }
        return true;
}

static void fabric_join(struct fabric *fabric, struct fabric_comm *comm) {
        for (uint32_t rank = 0; rank < comm->n_peers && fabric_is_joined(fabric, comm); rank++)
                fake_post(&fabric->node[comm->peer[rank]],
                          &(struct fabric_event){ .kind = FABRIC_BUILT, .comm = comm });
}

static int fake_build(struct engine *engine, const struct engine_build *build) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        struct fabric *fabric = fake->fabric;
        struct fabric_comm *comm = fabric_named(fabric, build);

        if (comm == NULL || comm->n_peers != build->n_nodes || comm->n_lanes != build->n_lanes ||
            comm->peer[build->self] != fake->node || comm->state[fake->node] != FABRIC_NONE) {
                fabric_complain(fabric, "nodes build different communicators under one name");
                return -EINVAL;
        }
        comm->state[fake->node] = FABRIC_BUILDING;
        comm->id[fake->node] = build->comm;
        fake_post(fake, &(struct fabric_event){ .kind = FABRIC_PUBLISH, .comm = comm });
        return 0;
}

/* The communicator is the one of that number, and the table that node's. */
static int fake_learn(struct engine *engine, uint64_t id, uint32_t rank, const void *table, size_t bytes) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        struct fabric_comm *comm = fake_comm(fake, id);
        uint32_t said[2];

        if (comm == NULL || bytes != sizeof(said) || rank >= comm->n_peers)
                return -EINVAL;
        memcpy(said, table, sizeof(said));
        if (said[0] != comm - fake->fabric->comm || said[1] != comm->peer[rank])
                return -EINVAL;
        comm->learned[fake->node] |= UINT64_C(1) << said[1];
        if (comm->state[fake->node] == FABRIC_BUILDING)
                fabric_join(fake->fabric, comm);
        return 0;
}

/* Nothing more of this communicator is delivered here. */
static void fake_forget(struct fake_engine *fake, const struct fabric_comm *comm) {
        unsigned n = 0;

        for (unsigned i = 0; i < fake->n_events; i++)
                if (fake->event[i].comm != comm)
                        fake->event[n++] = fake->event[i];
        fake->n_events = n;
}

static void fake_drop(struct engine *engine, uint64_t id) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        struct fabric_comm *comm = fake_comm(fake, id);

        for (uint32_t lane = 0; comm != NULL && lane < comm->n_lanes; lane++)
                if (comm->done[lane][fake->node] < comm->launched[lane][fake->node])
                        fabric_complain(fake->fabric, "a communicator is dropped before it has ended");
        if (comm == NULL)
                return;
        fake_forget(fake, comm);
        comm->state[fake->node] = FABRIC_GONE;
}

static void fake_abort(struct engine *engine, uint64_t id) {
        struct fake_engine *fake = (struct fake_engine *)engine;
        struct fabric_comm *comm = fake_comm(fake, id);

        if (comm == NULL)
                return;
        fake_forget(fake, comm);
        comm->state[fake->node] = FABRIC_ABORTING;
        fake_post(fake, &(struct fabric_event){ .kind = FABRIC_ABORTED, .comm = comm });
}

/* The engine reports that it does not reach a node, in each communicator with it. */
static inline void fake_accuse(struct fake_engine *fake, uint32_t node) {
        struct fabric *fabric = fake->fabric;

        for (unsigned i = 0; i < fabric->n_comms; i++)
                if (fabric->comm[i].state[fake->node] == FABRIC_WORKING &&
                    fabric->comm[i].state[node] == FABRIC_WORKING)
                        fake_post(fake, &(struct fabric_event){ .kind = FABRIC_UNREACHABLE,
                                                                .comm = &fabric->comm[i],
                                                                .lost = node });
}

/* The node is gone without a word: what it has not launched is never done, and the others are told. */
static inline void fake_lose(struct fake_engine *fake) {
        fake->lost = fake->held = true;
        for (uint32_t node = 0; node < FABRIC_NODES; node++)
                if (node != fake->node)
                        fake_accuse(&fake->fabric->node[node], fake->node);
}

static const struct engine_ops fake_engine_ops = {
        .name = "fake",
        .version = fake_version,
        .fd = fake_engine_fd,
        .dispatch = fake_dispatch,
        .share = fake_share,
        .unshare = fake_unshare,
        .build = fake_build,
        .learn = fake_learn,
        .launch = fake_launch,
        .drop = fake_drop,
        .abort = fake_abort,
};

static struct fabric *fabric_new(void) {
        struct fabric *fabric = calloc(1, sizeof(*fabric));

        for (uint32_t node = 0; node < FABRIC_NODES; node++) {
                struct fake_engine *fake = &fabric->node[node];

                fake->engine.ops = &fake_engine_ops;
                fake->fabric = fabric;
                fake->node = node;
                fake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        }
        return fabric;
}

/* Everything shared has been taken back. */
static struct fabric *fabric_free(struct fabric *fabric) {
        for (unsigned i = 0; i < fabric->n_comms; i++)
                for (uint32_t lane = 0; lane < FABRIC_LANES; lane++)
                        for (unsigned n = 0; n < FABRIC_AHEAD; n++)
                                fabric_reuse(&fabric->comm[i].ring[lane][n]);
        for (uint32_t node = 0; node < FABRIC_NODES; node++) {
                for (unsigned i = 0; i < FABRIC_MEMORIES; i++)
                        assert_int_equal(fabric->node[node].memory_id[i], 0);
                close(fabric->node[node].fd);
        }
        free(fabric);
        return NULL;
}
