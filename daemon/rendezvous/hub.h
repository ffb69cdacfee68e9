/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a node meets the coordinator of its job: messages go both ways, and nothing else does. Whether the
 * coordinator is in the same process (coordinators.h) or elsewhere is not for the node's driver to know.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "rendezvous/message.h"

#define HUB_NODES 64u /* of one job, at most */

struct hub;

struct hub_job { /* which one; nodes that say the same meet the same coordinator */
        uid_t uid;
        const char *name;
        uint64_t incarnation;
};

/* One node of one job, embedded in what drives it. */
struct attachment {
        struct hub *hub;
        struct list link;   /* the hub's, */
        void *coordination; /* so is this */
        uint32_t address;   /* of the node, from attaching on */
        /* Orders for the node, which it keeps until it can carry them out: the driver may be in the middle of
         * a call. `message` is the hub's. */
        void (*receive)(struct attachment *attachment, const struct message *message);
};

struct hub_ops {
        int (*attach)(struct hub *hub, struct attachment *attachment, const struct hub_job *job,
                      struct refusal *refusal);
        int (*reserve)(struct attachment *attachment, uint32_t members, uint32_t tracks,
                       struct refusal *refusal);
        void (*renew)(struct attachment *attachment);
        void (*send)(struct attachment *attachment, const struct message *message);
        void (*detach)(struct attachment *attachment);
};

struct hub {
        const struct hub_ops *ops;
};

/* `receive` is set. 0, a code with *refusal, or -ENOMEM. */
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

/* The node is gone, and so are its members. */
static inline void hub_detach(struct attachment *attachment) {
        attachment->hub->ops->detach(attachment);
}
