/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine's threads share: communicators, memories, and what is to be launched or delivered. There
 * are the loop thread (nccl.c), one that issues all collectives (launcher.c), and one for each communicator,
 * which makes and ends it (worker.c).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/list.h"
#include "engine/nccl/gpu.h"
#include "engine/nccl/nccl.h"
#include "engine/nccl/table.h"

#define TRANSPORT 24u /* bytes of a name */

struct communicator;
struct gear;

/* Something that the loop thread is to deliver. */
struct news {
        struct list link; /* shop->news */
        enum news_kind {
                NEWS_SHARED, /* of a memory, see engine.h */
                NEWS_UNSHARED,
                NEWS_PUBLISH,
                NEWS_BUILT,       /* or not, see `reached` */
                NEWS_DONE,        /* a flight */
                NEWS_UNREACHABLE, /* something has failed */
                NEWS_QUIET,       /* nothing of it runs on the GPU any more, or will */
                NEWS_ENDED,       /* nothing of it is left */
        } kind;
        struct communicator *comm; /* NULL: it is of */
        struct shop_memory *memory;
};

/* A collective that was handed over. */
struct flight {
        struct news news;      /* before: its link is that of shop->queue */
        bool is_vote, is_zero; /* zero: of a filler */
        uint32_t lane;
        uint64_t sequence;
        uint64_t input, output; /* addresses of the device */
        uint64_t elements, bytes;
        enum nccl_type type;
        enum nccl_operation operation;
        unsigned char *tail;
        uint32_t tail_bytes;
        uint64_t tail_at;   /* where it begins in input and output, in bytes */
        uint64_t *values;   /* pinned memory, ENGINE_VALUES of them */
        cuda_address votes; /* of the device, likewise */
        cuda_event event;   /* the gear's, like these two */
        uint64_t pane;      /* … and this place of the device, where all ranks have it in their windows */
        bool windowed;      /* it goes through that */
};

struct lane {
        nccl_comm comm;
        struct gear *gear;                   /* NULL: it was not made so far */
        void *window;                        /* NCCL's, of the gear's panes; NULL: it has none */
        struct flight flight[ENGINE_WINDOW]; /* by sequence number */
        uint64_t launched, ended;            /* sequence numbers: what is under way lies between them */
        uint64_t since;                      /* the first of that is it */
};

/* In this order only. */
enum communicator_state {
        COMMUNICATOR_FORMING, /* with its worker */
        COMMUNICATOR_WORKING, /* with the launcher */
        COMMUNICATOR_BROKEN,  /* nothing more is launched, or done */
        COMMUNICATOR_ABORTED, /* to be ended in whatever state it is, */
        COMMUNICATOR_DROPPED, /* … or in good order, without a word */
};

/* Memory that pieces may lie in. Where NCCL can be told of it beforehand it is registered with every
 * communicator, before anything in it is launched on any node. */
struct shop_memory {
        struct list link;
        uint64_t id, address, bytes;
        struct list registrations; /* with NCCL's communicators, by their lanes */
        unsigned busy;             /* somebody is about to add one */
        bool pending;              /* `shared` is to be told */
        bool unwanted, told;       /* `unshared` is, and has been */
        struct news shared, unshared;
};

/* What loop thread, launcher and workers share. All of it is under the lock, except where it says otherwise.
 * */
struct shop {
        struct nccl_engine_config config; /* constant, as is the GPU */
        struct gpu gpu;
        char host[TABLE_HOST];
        pthread_mutex_t lock;
        pthread_cond_t work;   /* for the launcher */
        pthread_cond_t change; /* for workers: of a state, a table, or whether the launcher is at it */
        struct list comms, memories;
        struct list gear;  /* of no lane */
        bool unregistered; /* perhaps something is to be registered, or the contrary */
        struct list queue; /* flights, in the order of launch() */
        struct list news;
        bool windowless; /* to register a window has failed: it is not tried again */
        bool stop;
        char failure[512]; /* "": none */
        int wake;          /* eventfd: there are news */
};

struct communicator {
        struct list link;
        struct shop *shop;
        uint64_t id;
        char *name;
        uint32_t n_nodes, self, n_lanes, dialect;
        uint32_t *node; /* addresses, by rank */
        enum communicator_state state;
        unsigned busy;              /* the launcher is at it, so it stays, */
        unsigned calls;             /* … in a call of NCCL for it, so it is not to be ended */
        bool made;                  /* it has worked, so it can be revoked */
        bool over;                  /* nothing of it is left on the GPU */
        bool registers;             /* a window, right now */
        bool windowed;              /* all lanes of all ranks have windows */
        struct communicator *older; /* of the same job, that it may be made of: lent by it; or NULL */
        bool lent;  /* to the worker of another one: nobody else asks NCCL for anything of it */
        bool spent; /* … or was: it is lent once, so that all nodes know whether it is */
        pthread_t worker;
        struct table *table; /* by rank */
        bool *learned;
        uint32_t n_learned;
        struct news publish, built, unreachable, quiet, ended;
        bool told;                    /* that it is quiet; the loop thread's own */
        char error[512];              /* of what went wrong first */
        uint32_t suspect;             /* rank that it is about; n_nodes: nobody in particular */
        uint64_t deadline;            /* once it is to end: clock_now() */
        uint64_t took;                /* microseconds that it took to be made */
        off_t log_from;               /* where the log was then */
        bool log_mixed;               /* others were made at the same time, and it does not tell who */
        char (*transport)[TRANSPORT]; /* to each rank; "": not known */
        struct lane lane[NCCL_LANES];
};

/* NULL, or NCCL's communicator, which is the caller's to end. A thread of NCCL may be making it, and writes
 * it into the lane when it has. */
nccl_comm lane_take_comm(struct lane *lane);

/* The lock is held in all of these. The only writer of its state: to an earlier one it changes nothing. */
void communicator_set_state(struct communicator *comm, enum communicator_state state);
/* It is no good any more, because of this rank (n_nodes: of nobody in particular). The first reason counts.
 * */
void communicator_break(struct communicator *comm, uint32_t suspect, const char *why);
/* Whether its worker is to go on: it is not to end, and has time left until `deadline`. */
bool communicator_is_wanted(struct communicator *comm, uint64_t deadline);
/* Nothing uses it: neither lists nor threads. NULL is fine. */
void communicator_free(struct communicator *comm);
/* For the loop thread. */
void shop_tell(struct shop *shop, struct news *news);
/* An aborted communicator is not over yet. */
bool shop_frees(const struct shop *shop);
/* This process cannot go on. The first reason counts. */
void shop_fail(struct shop *shop, const char *why);
