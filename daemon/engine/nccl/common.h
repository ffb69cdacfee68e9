/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that the engine's threads share: communicators, memories, collectives to launch, and news to deliver.
 * There are the loop thread (nccl.c), a thread that issues all collectives (launcher.c), and one for each
 * communicator, which makes and ends it (worker.c).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/list.h"
#include "engine/nccl/gpu.h"
#include "engine/nccl/nccl.h"
#include "engine/nccl/table.h"

#define TRANSPORT 24u /* bytes of a transport's name */

struct communicator;
struct resources;

/* An event that the loop thread has to deliver. */
struct news {
        struct list link; /* common->news */
        enum news_kind {
                NEWS_SHARED, /* of a memory, see engine.h */
                NEWS_UNSHARED,
                NEWS_PUBLISH,
                NEWS_BUILT,       /* the communicator works, or has failed for the reason in `error` */
                NEWS_DONE,        /* a flight is done */
                NEWS_UNREACHABLE, /* the communicator has failed */
                NEWS_QUIET,       /* the communicator runs nothing on the GPU any more, and will not */
                NEWS_ENDED,       /* nothing of the communicator is left */
        } kind;
        struct communicator *comm; /* the subject; NULL if that is `memory` */
        struct common_memory *memory;
};

/* A collective that was handed over. */
struct flight {
        struct news news; /* until it is launched, its link is in common->queue */
        bool is_vote;
        uint32_t lane;
        uint64_t sequence;
        uint64_t input, output; /* addresses on the device */
        uint64_t elements, bytes;
        enum nccl_type type;
        enum nccl_operation operation;
        unsigned char *tail;
        uint32_t tail_bytes;
        uint64_t tail_at;   /* where the tail begins in input and output, in bytes */
        uint64_t *values;   /* ENGINE_VALUES values in pinned memory */
        cuda_address votes; /* ENGINE_VALUES values on the device */
        cuda_event event;   /* one of the lane's resources, as `values` and `votes` are */
        uint64_t pane;      /* a place on the device that all ranks have in their windows; likewise */
        bool windowed;      /* it goes through `pane` */
};

struct lane {
        nccl_comm comm;
        struct resources *resources;         /* NULL if they were not made yet */
        void *window;                        /* NCCL's window of the lane's panes; NULL if it has none */
        struct flight flight[ENGINE_WINDOW]; /* by sequence number */
        uint64_t launched, ended;            /* sequence numbers: collectives between them are under way */
        uint64_t since;                      /* clock_now() when the first of these became the first */
};

/* A state changes only to a later one. */
enum communicator_state {
        COMMUNICATOR_FORMING, /* its worker makes it */
        COMMUNICATOR_WORKING, /* the launcher uses it */
        COMMUNICATOR_BROKEN,  /* nothing more is launched, or done */
        COMMUNICATOR_ABORTED, /* it has to be ended, whatever its state */
        COMMUNICATOR_DROPPED, /* it has to be ended in good order, without an event */
};

/* Memory that pieces may lie in. If NCCL can register memory, it is registered with every communicator before
 * any piece in it is launched on any node. */
struct common_memory {
        struct list link;
        uint64_t id, address, bytes;
        struct list registrations; /* with NCCL's communicators, by their lanes */
        unsigned busy;             /* threads that are adding or removing a registration */
        bool pending;              /* `shared` has to be queued */
        bool unwanted, told;       /* `unshared` has to be queued, and has been */
        struct news shared, unshared;
};

/* State that the loop thread, the launcher and the workers share. All of it is under the lock, except where a
 * comment says otherwise. */
struct common {
        struct nccl_engine_config config; /* constant, as is the GPU */
        struct gpu gpu;
        char host[TABLE_HOST];
        pthread_mutex_t lock;
        pthread_cond_t work;   /* for the launcher */
        pthread_cond_t change; /* for workers: a state, a table, or a use by the launcher has changed */
        struct list comms, memories;
        struct list resources; /* those of no lane */
        bool unregistered;     /* memory may have to be registered, or deregistered */
        struct list queue;     /* flights, in the order of launch() */
        struct list news;
        bool windowless; /* registering a window has failed, and is not tried again */
        bool stop;
        char failure[512]; /* "" if none */
        int wake;          /* eventfd that is written when there are news */
};

struct communicator {
        struct list link;
        struct common *common;
        uint64_t id;
        char *name;
        uint32_t n_nodes, self, n_lanes;
        uint32_t *node; /* addresses, by rank */
        enum communicator_state state;
        unsigned busy;  /* the launcher is using it, so it must stay */
        unsigned calls; /* NCCL is being called for it, so it must not be ended */
        bool made;      /* it has worked, so it can be revoked */
        bool over;      /* nothing of it is left on the GPU */
        bool registers; /* it is registering a window right now */
        bool windowed;  /* all lanes of all ranks have windows */
        /* Communicator of the same job, which it may be made of, lent to it; or NULL. */
        struct communicator *older;
        /* It is lent to the worker of another communicator: no other thread asks NCCL for anything of it. */
        bool lent;
        /* It is lent, or was. It is lent once only, so that all nodes know whether it is. */
        bool spent;
        pthread_t worker;
        struct table *table; /* by rank */
        bool *learned;
        uint32_t n_learned;
        struct news publish, built, unreachable, quiet, ended;
        bool told;                    /* NEWS_QUIET has been delivered; for the loop thread alone */
        char error[512];              /* why it failed; the first reason */
        uint32_t suspect;             /* rank that `error` is about; n_nodes: no single rank */
        uint64_t deadline;            /* clock_now() by which it has to have ended */
        uint64_t took;                /* microseconds that it took to be made */
        off_t log_from;               /* size of the log when its making began */
        bool log_mixed;               /* others were made at the same time, and the log mixes them */
        char (*transport)[TRANSPORT]; /* transport to each rank; "" if not known */
        struct lane lane[NCCL_LANES];
};

/* Takes NCCL's communicator out of the lane; the caller ends it. NULL if there is none. A thread of NCCL may
 * be making the communicator, and writes it into the lane when it has. */
nccl_comm lane_take_comm(struct lane *lane);

/* The lock is held in all of the following functions. This one is the only writer of the state: to an earlier
 * state it changes nothing. */
void communicator_set_state(struct communicator *comm, enum communicator_state state);
/* Breaks a communicator because of this rank (n_nodes: because of no single rank). The first reason
 * counts. */
void communicator_break(struct communicator *comm, uint32_t suspect, const char *why);
/* Whether the communicator's worker has to go on: it is not to end, and has time left until `deadline`. */
bool communicator_is_wanted(struct communicator *comm, uint64_t deadline);
/* Frees a communicator that no list and no thread uses. NULL is fine. */
void communicator_free(struct communicator *comm);
/* Hands news to the loop thread. */
void common_tell(struct common *common, struct news *news);
/* Whether some aborted communicator is not over yet. */
bool common_frees(const struct common *common);
/* Notes that this process cannot go on. The first reason counts. */
void common_fail(struct common *common, const char *why);
