/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub of this daemon's nodes whose coordinator is in another daemon. It knows no connection: the owner
 * says when there is one, passes frames both ways, and keeps the place, which has to outlive the daemon.
 *
 * Without a connection no message goes out, and nothing is lost by that: nodes say everything again in each
 * heartbeat, and act by their own times meanwhile. With each new connection the jobs are named anew. A daemon
 * that has never been in the cluster has no address; its nodes attach all the same, and begin when it has
 * one.
 */
#pragma once

#include "rendezvous/hub.h"
#include "rendezvous/wire/post.h"

struct remote;

struct remote_config {
        uint32_t device; /* see struct post_arrival */
        const char *host, *name;
        /* As an earlier run of this daemon was told; address HUB_UNKNOWN: none was. The times count until the
         * coordinator has told its own. */
        struct post_place place;
        /* A frame for the coordinator, about that job or, if it is 0, none; it is dropped if the connection
         * has just gone. Never calls back. */
        void (*send)(void *data, enum post_kind kind, uint32_t about, const void *bytes, size_t length);
        /* The coordinator has said where this daemon is, for the first time or otherwise than before; to be
         * kept for the next run. */
        void (*placed)(void *data, const struct post_place *place);
        void *data;
};

/* 0 or -ENOMEM. The strings are copied. */
int remote_new(const struct remote_config *config, struct remote **ret);
/* All nodes have detached. NULL is fine. */
struct remote *remote_free(struct remote *remote);
struct hub *remote_hub(struct remote *remote);

/* There is a connection to the coordinator; an earlier one is over. */
void remote_up(struct remote *remote);
void remote_down(struct remote *remote);
/* NULL; or what is wrong with the frame, a constant sentence: the connection is to be ended. */
const char *remote_receive(struct remote *remote, enum post_kind kind, uint32_t about, const void *bytes,
                           size_t length);
/* The coordinator has answered on the present connection. */
bool remote_is_placed(const struct remote *remote);
