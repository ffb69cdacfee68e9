/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a node meets the coordinator of its job: messages go both ways, and beside them what the engines of
 * the job's nodes have to know of one another. Whether the coordinator is in the same process
 * (coordinators.h) or in another daemon (remote.h) is not for the node's driver to know, except that in the
 * second case it may not be known yet where in the cluster this node is.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "rendezvous/message.h"

#define HUB_NODES 64u          /* of one job, at most */
#define HUB_UNKNOWN UINT32_MAX /* an address that is not known yet */
#define HUB_TABLE (64u << 10)  /* bytes that the engine of a node can publish */

struct hub;

struct hub_job { /* which one; nodes that say the same meet the same coordinator */
        uid_t uid;
        const char *name;
        uint64_t incarnation;
        uint32_t address; /* of the node, if the caller knows it; HUB_UNKNOWN: the hub does */
};

/* One node of one job, embedded in what drives it. */
struct attachment {
        struct hub *hub;
        struct list link;   /* the hub's, */
        void *coordination; /* so is this */
        /* From attaching on. The address is HUB_UNKNOWN, and the rest means nothing, until placed() has been
         * called. */
        uint32_t address;           /* of the node */
        uint32_t host;              /* number of its host; ranks go by it */
        struct machine_times times; /* as the coordinator has them */
        bool stays; /* its node comes back with the daemon that follows: detaching it says nothing */
        /* Orders for the node, which it keeps until it can carry them out: the driver may be in the middle of
         * a call. `message` is the hub's. */
        void (*receive)(struct attachment *attachment, const struct message *message);
        /* The address has become known, or is another one than it was: the node begins anew. */
        void (*placed)(struct attachment *attachment);
        /* What the engine of that node has published for the communicator of that generation; once or more.
         * The bytes are the hub's. */
        void (*learn)(struct attachment *attachment, const struct generation *comm, uint32_t from,
                      const void *table, size_t bytes);
        /* The coordinator does not have this job, and never will: nothing more comes of it. */
        void (*refused)(struct attachment *attachment, const struct refusal *refusal);
};

struct hub_ops {
        int (*attach)(struct hub *hub, struct attachment *attachment, const struct hub_job *job,
                      struct refusal *refusal);
        int (*reserve)(struct attachment *attachment, uint32_t members, uint32_t tracks,
                       struct refusal *refusal);
        void (*renew)(struct attachment *attachment);
        void (*send)(struct attachment *attachment, const struct message *message);
        void (*publish)(struct attachment *attachment, const struct generation *comm, const void *table,
                        size_t bytes);
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

/* The node is about to report so many members and tracks, in all: there has to be room for them before. 0,
 * QUOTA with *refusal, or -ENOMEM. */
static inline int hub_reserve(struct attachment *attachment, uint32_t members, uint32_t tracks,
                              struct refusal *refusal) {
        return attachment->hub->ops->reserve(attachment, members, tracks, refusal);
}

/* The node begins anew: what it has said so far is forgotten. */
static inline void hub_renew(struct attachment *attachment) {
        attachment->hub->ops->renew(attachment);
}

static inline void hub_send(struct attachment *attachment, const struct message *message) {
        attachment->hub->ops->send(attachment, message);
}

/* What the other nodes of that generation's communicator, which is being built, need to know of this one's
 * engine: at most HUB_TABLE bytes. */
static inline void hub_publish(struct attachment *attachment, const struct generation *comm,
                               const void *table, size_t bytes) {
        attachment->hub->ops->publish(attachment, comm, table, bytes);
}

/* The node is gone, and so are its members. */
static inline void hub_detach(struct attachment *attachment) {
        attachment->hub->ops->detach(attachment);
}
