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
#include "base/token_bucket.h"
#include "rendezvous/machine/message.h"

#define HUB_NODES 64u          /* of one job, at most */
#define HUB_UNKNOWN UINT32_MAX /* an address that is not known yet */
#define HUB_TABLE (64u << 10)  /* bytes that the engine of a node can publish */
#define HUB_LETTER (64u << 10) /* bytes of a letter */
#define HUB_WANTS (4u << 10)   /* bytes of a letter to HUB_ALL */

/* In place of an address, of a letter: */
#define HUB_ALL (UINT32_MAX - 1)         /* all other nodes of the job */
#define HUB_COORDINATOR (UINT32_MAX - 2) /* the daemon of the coordinator */

struct hub;

/* How the daemon of another node is, as its coordinator sees it. */
struct hub_sight {
        const char *name; /* of its host, for people */
        uint64_t heard;   /* when something came from it last, or, if it is away, since when it is */
        bool away;        /* it is not connected */
};

typedef void hub_node_fn(void *to, uint32_t address, const struct hub_sight *sight);

/* Daemons of a job write letters to each other for people's sake. The hub passes a letter on at once, or
 * drops it, and reads none. */
struct hub_letter {
        uint32_t node; /* to which it goes; for the receiver: from which it comes */
        const void *bytes;
        size_t size;
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
        struct token_bucket letters; /* that it may send; the hub's */
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
        void (*posted)(struct attachment *attachment, const struct hub_letter *letter);
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
        bool (*post)(struct attachment *attachment, const struct hub_letter *letter);
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

/* False: there is no way to the coordinator. */
static inline bool hub_post(struct attachment *attachment, const struct hub_letter *letter) {
        return attachment->hub->ops->post(attachment, letter);
}

/* The node is gone, and so are its members. */
static inline void hub_detach(struct attachment *attachment) {
        attachment->hub->ops->detach(attachment);
}
