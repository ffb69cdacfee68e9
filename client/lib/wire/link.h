/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the daemon: sends frames without ever blocking, receives and decodes what has come, and waits. It
 * knows nothing of jobs: its owner is told each message, and when the socket has room again.
 *
 * All functions are called with `lock` held. link_wait() gives it up while it waits: one thread polls for all, the others
 * sleep on a futex (not on a condition variable, which no signal handler can interrupt).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/codec.h"
#include "proto/fdpass.h"

/* A field of a message that is there. */
#define SET(message, field, value) ((message).has_##field = true, (message).field = (value))

#define LINK_BATCH 4u /* packets received with one system call */
#define LINK_TEXT 2048u

/* `packet` holds the frame's fds: take them by setting n_fds to 0, else they are closed. A result other than GRADSYNC_OK is
 * the daemon's mistake, in the words of fail_text(), and ends the connection. */
typedef int (*link_message_fn)(void *owner, const struct frame_header *header,
                               const ProtobufCMessage *message, struct fdpass_packet *packet);
typedef void (*link_event_fn)(void *owner);

enum link_state {
        LINK_UP,
        LINK_DOWN,     /* nobody is there */
        LINK_GREETING, /* connected again; takes nothing but HELLO until the owner says link_up() */
};

struct link {
        pthread_mutex_t lock;
        int sock, epoll, wake; /* -1: none. epoll holds the others, for callers with a loop */
        int timer; /* readable when an attempt is due; -1: a connection that is lost is not made again */
        enum link_state state;
        uint32_t connection; /* counts those that were lost */
        char path[108];      /* of the socket, for errors */
        pid_t daemon;        /* 0: not known */
        bool nonblocking;
        bool full;    /* a frame did not fit: EPOLLOUT is watched */
        bool polling; /* a thread is in poll() without the lock */
        bool woken;   /* the eventfd has been written */
        bool tending; /* link_tend() is at work */
        bool pending; /* the owner has something to say */
        uint32_t sleepers;
        uint32_t turn; /* the futex: changes after each poll */
        int failed;    /* 0, or the result of every call from now on */
        char why[LINK_TEXT];
        char farewell
                [LINK_TEXT]; /* what the daemon said before it hung up; stays until the link is up again */
        int farewell_code;
        uint8_t *out, *in; /* FRAME_MAX and LINK_BATCH × FRAME_MAX bytes */
        struct codec codec;
        link_message_fn message;
        /* The socket may have room again, or there is something new to say; the connection is gone, and another one is
         * wanted; the time for another attempt has come. */
        link_event_fn room, lost, retry;
        void *owner;
};

/* Takes the connected socket in any case; sock -1: a link without a daemon. The lock is there already. NO_MEMORY or SYSTEM
 * with the text. */
int link_init(struct link *link, int sock, link_message_fn message, link_event_fn room, void *owner);
void link_deinit(struct link *link);
/* Closes its descriptors: in a forked child, without a lock, for whoever held it is not here; else with it, before the handle goes. */
void link_abandon(struct link *link);

/*
 * From now on a connection that is lost is made again: the owner hears of it, and then, as often as it says by link_rearm(),
 * that an attempt is due. A connected socket of its own it gives to link_attach(), which takes it.
 */
int link_reconnects(struct link *link, link_event_fn lost, link_event_fn retry);
void link_rearm(struct link *link, uint64_t at); /* clock_ns() */
void link_attach(struct link *link, int sock);
void link_up(struct link *link);
/* Makes an attempt that is due, takes what has come, says what there is to say. Never waits. */
void link_tend(struct link *link);

/* GRADSYNC_OK; GRADSYNC_AGAIN if the socket is full, or there is none at the moment (call again when link_wait() has returned);
 * else the link has failed. fd -1: none. It stays the caller's. */
int link_send(struct link *link, uint16_t type, uint32_t request, const ProtobufCMessage *message, int fd);

/* Handles whatever has come. Number of messages; errors are in link->failed. */
unsigned link_receive(struct link *link);

/* The same by a thread that waits for none of it: whoever does is told. */
void link_take(struct link *link);

/* Waits until something may have changed, and returns GRADSYNC_OK: look again. GRADSYNC_AGAIN on a non-blocking link with
 * nothing new, INTERRUPTED, or TIMEOUT (without text) once clock_ns() has passed the deadline. */
int link_wait(struct link *link, uint64_t deadline);

/* Something has changed that did not come through the socket: whoever waits looks again. */
void link_notify(struct link *link);
/* Sleeps until another thread has polled, or called link_notify(). OK or INTERRUPTED. */
int link_sleep(struct link *link);

/* What the caller's loop calls when epoll is readable. */
void link_dispatch(struct link *link);

/* Ends the connection. The text is fail_text(). */
void link_fail(struct link *link, int code);
/* The result of a call on a link that has failed, with its text. */
int link_failure(const struct link *link);
/* "gradsyncd (pid 12, socket /run/…)". */
const char *link_peer(const struct link *link, char *text, size_t size);
