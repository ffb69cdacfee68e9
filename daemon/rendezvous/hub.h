/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place where a node meets the coordinator of its job. Messages go both ways, and so do the tables that
 * the engines of the job's nodes have to know of one another. The coordinator is in the same process
 * (coordinators.h) or in another daemon (remote.h). The node's driver need not know which, except that in the
 * second case this node's address in the cluster may not be known yet.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "base/sha256.h"
#include "rendezvous/machine/message.h"

#define HUB_NODES 64u          /* of one job, at most */
#define HUB_UNKNOWN UINT32_MAX /* an address that is not known yet */
#define HUB_TABLE (64u << 10)  /* bytes that the engine of a node can publish */
#define HUB_WAITS (4u << 10)   /* bytes of a question */
#define HUB_ROWS (64u << 10)   /* bytes of a piece of an answer */
#define HUB_HOSTS 8u           /* hosts that are named in one */
#define HUB_HOST 255u          /* bytes of a host's name */

struct hub;

/* How the daemon of another node is, as its coordinator sees it. */
struct hub_sight {
        const char *name; /* of its host, for people */
        uint64_t heard;   /* when something came from it last, or, if it is away, since when it is */
        bool away;        /* it is not connected */
};

enum hub_host_state {
        HUB_SILENT = 1, /* it is connected, and nothing comes from it */
        HUB_AWAY,       /* it is not connected */
        HUB_EMPTY,      /* it is, and has no node of the job, which waits for members */
};

struct hub_host {
        enum hub_host_state how;
        uint64_t since; /* SILENT, AWAY: for how long, in us */
        char name[HUB_HOST + 1];
};

/*
 * A piece of the answer to a question: rows of another node about its part in the job, or, as the last piece,
 * the nodes that say nothing. The hub does not read questions and rows: only the nodes that ask and answer
 * do.
 */
struct hub_told {
        uint32_t id; /* of the question */
        bool last;
        const void *rows;
        size_t bytes;
        uint32_t n_hosts, more; /* hosts that are named; further EMPTY ones, without a name */
        struct hub_host host[HUB_HOSTS];
};

struct hub_job { /* nodes that name the same job meet the same coordinator */
        uid_t uid;
        const char *name;
        uint64_t incarnation;
        uint64_t number;  /* ascending in the order in which the coordinator met them; 0: not known */
        uint32_t address; /* of the node, if the caller knows it; HUB_UNKNOWN: the hub does */
        /* Digest of the job's token with its identity, all 0: it has none. That of the first node is the
         * job's, whatever its incarnation: all others say the same, or are refused. */
        struct sha256 token;
};

/* One node of one job, embedded in the struct that drives it. */
struct attachment {
        struct hub *hub;
        struct list link;   /* the hub's, */
        void *coordination; /* so is this */
        /* Set when the node attaches; or the address is HUB_UNKNOWN, and the others mean nothing, until
         * placed() is called. */
        uint32_t address;           /* of the node */
        uint32_t host;              /* number of its host; ranks go by it */
        struct machine_times times; /* as the coordinator has them */
        bool stays; /* its node comes back with the daemon that follows: detaching it says nothing */
        bool ended; /* its job has ended for the node: it is not attached anew at another coordinator */
        /* Set on the coordinator's side, if the node is in another daemon; else NULL. */
        const struct hub_sight *sight;
        /* Orders for the node, which it keeps until it can carry them out: the driver may be in the middle of
         * a call. `order` is the hub's. */
        void (*receive)(struct attachment *attachment, const struct order *order);
        /* The address has become known, or is another one than it was: the node begins anew. */
        void (*placed)(struct attachment *attachment);
        /* Node `from` has published this table of its engine for the communicator of that generation. Called
         * once or more. The bytes are the hub's. */
        void (*learn)(struct attachment *attachment, const struct generation *comm, uint32_t from,
                      const void *table, size_t bytes);
        /* The coordinator does not have this job, and never will: nothing more comes of it. */
        void (*refused)(struct attachment *attachment, const struct refusal *refusal);
        /* Another node asks. The answer goes to hub_tell(), in one call or more. */
        void (*asked)(struct attachment *attachment, uint32_t id, const void *waits, size_t bytes);
        /* The answer to this node's own question. */
        void (*told)(struct attachment *attachment, const struct hub_told *told);
};

struct hub_ops {
        int (*attach)(struct hub *hub, struct attachment *attachment, const struct hub_job *job,
                      struct refusal *refusal);
        int (*reserve)(struct attachment *attachment, uint32_t members, uint32_t world, uint32_t tracks,
                       struct refusal *refusal);
        void (*renew)(struct attachment *attachment);
        void (*send)(struct attachment *attachment, const struct report *report);
        void (*publish)(struct attachment *attachment, const struct generation *comm, const void *table,
                        size_t bytes);
        bool (*ask)(struct attachment *attachment, uint32_t id, const void *waits, size_t bytes);
        void (*tell)(struct attachment *attachment, uint32_t id, bool last, const void *rows, size_t bytes);
        void (*detach)(struct attachment *attachment);
};

struct hub {
        const struct hub_ops *ops;
};

/* The functions of the attachment are set. 0, a code with *refusal, or -ENOMEM. */
static inline int hub_attach(struct hub *hub, struct attachment *attachment, const struct hub_job *job,
                             struct refusal *refusal) {
        return hub->ops->attach(hub, attachment, job, refusal);
}

/* The node is about to report so many members and tracks, in all, and a generation of so many members on all
 * nodes: there has to be room for them before. 0, QUOTA with *refusal, or -ENOMEM. */
static inline int hub_reserve(struct attachment *attachment, uint32_t members, uint32_t world,
                              uint32_t tracks, struct refusal *refusal) {
        return attachment->hub->ops->reserve(attachment, members, world, tracks, refusal);
}

/* The node begins anew: the coordinator forgets all that the node has said so far. */
static inline void hub_renew(struct attachment *attachment) {
        attachment->hub->ops->renew(attachment);
}

static inline void hub_send(struct attachment *attachment, const struct report *report) {
        attachment->hub->ops->send(attachment, report);
}

/* Publishes the table of this node's engine, which the other nodes of that generation's communicator need to
 * build it: at most HUB_TABLE bytes. */
static inline void hub_publish(struct attachment *attachment, const struct generation *comm,
                               const void *table, size_t bytes) {
        attachment->hub->ops->publish(attachment, comm, table, bytes);
}

/*
 * A question to all other nodes of the job, with what this node waits for: at most HUB_WAITS bytes. The
 * answer comes in pieces, some of them perhaps before this returns; the last one after INQUIRY_WAIT
 * (inquiry.h) at the latest, unless the coordinator is silent itself. False: there is no way to it.
 */
static inline bool hub_ask(struct attachment *attachment, uint32_t id, const void *waits, size_t bytes) {
        return attachment->hub->ops->ask(attachment, id, waits, bytes);
}

/* A piece of the answer to question `id` of another node: at most HUB_ROWS bytes. */
static inline void hub_tell(struct attachment *attachment, uint32_t id, bool last, const void *rows,
                            size_t bytes) {
        attachment->hub->ops->tell(attachment, id, last, rows, bytes);
}

/* The node is gone, and so are its members. */
static inline void hub_detach(struct attachment *attachment) {
        attachment->hub->ops->detach(attachment);
}
