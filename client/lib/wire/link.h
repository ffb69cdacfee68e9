/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the daemon: it sends frames without ever blocking, receives and decodes what has come,
 * and waits. It knows nothing of jobs: each message goes to its owner, which it also calls when the socket
 * has room again.
 *
 * All functions are called with `lock` held. link_wait() gives it up while it waits: one thread polls for
 * all, the others sleep on a futex (not on a condition variable, which no signal handler can interrupt).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/codec.h"
#include "proto/fdpass.h"

/* Packets received with one system call. */
#define LINK_BATCH 4u
#define LINK_TEXT 2048u

/* `packet` holds the frame's fds: take them by setting n_fds to 0, else they are closed. A result other
 * than GRADSYNC_OK is the daemon's mistake, in the words of fail_text(), and ends the connection. */
typedef int (*link_message_fn)(void *owner, const struct frame_header *header,
                               const ProtobufCMessage *message, struct fdpass_packet *packet);
typedef void (*link_event_fn)(void *owner);

enum link_state {
        LINK_UP,
        /* The link has no connection. */
        LINK_DOWN,
        /* Connected again; takes nothing but HELLO until the owner says link_up(). */
        LINK_GREETING,
};

struct link {
        pthread_mutex_t lock;
        /* -1: none. epoll holds the others, for callers with a loop. */
        int sock, epoll, wake;
        /* Readable when an attempt is due; -1: a connection that is lost is not made again. */
        int timer;
        enum link_state state;
        /* Number of connections that were lost. */
        uint32_t connection;
        /* Path of the socket, for errors. */
        char path[108];
        /* Pid of the daemon; 0: not known. */
        pid_t daemon;
        bool nonblocking;
        /* A frame did not fit: EPOLLOUT is watched. */
        bool full;
        /* A thread is in poll() without the lock. */
        bool polling;
        /* The eventfd has been written. */
        bool woken;
        /* link_tend() is at work. */
        bool tending;
        /* The owner may have something to send. */
        bool pending;
        uint32_t sleepers;
        /* The futex: changes after each poll. */
        uint32_t turn;
        /* 0, or the result of every call from now on. */
        int failed;
        char why[LINK_TEXT];
        /* The daemon's words before it hung up; they stay until the link is up again. */
        char farewell[LINK_TEXT];
        int farewell_code;
        /* Buffers of FRAME_MAX and LINK_BATCH × FRAME_MAX bytes. */
        uint8_t *out, *in;
        struct codec codec;
        link_message_fn message;
        /* The socket may have room again, or there is something new to send; the connection is gone, and
         * another one is wanted; the time for another attempt has come. */
        link_event_fn room, lost, retry;
        void *owner;
};

/* Takes the connected socket, also if it fails; sock -1: a link without a daemon. The lock is there already.
 * NO_MEMORY or SYSTEM with the text. */
int link_init(struct link *link, int sock, link_message_fn message, link_event_fn room, void *owner);
void link_deinit(struct link *link);
/* Closes its descriptors. In a forked child this is called without the lock, since the thread that may
 * hold it does not exist there; elsewhere with it, before the handle goes. */
void link_abandon(struct link *link);

/*
 * From now on a connection that is lost is made again. `lost` is called when that happens, `retry` each time
 * that an attempt is due, which the owner sets by link_rearm(). The owner gives a connected socket to
 * link_attach(), which takes it.
 */
int link_reconnects(struct link *link, link_event_fn lost, link_event_fn retry);
/* Sets when the next attempt is due, as clock_ns(). */
void link_rearm(struct link *link, uint64_t at);
void link_attach(struct link *link, int sock);
void link_up(struct link *link);
/* Calls the owner for an attempt that is due, and for messages that it may have to send. Never waits. */
void link_tend(struct link *link);

/* GRADSYNC_OK; GRADSYNC_AGAIN if the socket is full, or there is none at the moment (call again when
 * link_wait() has returned); else the link has failed. fd -1: none. It stays the caller's. */
int link_send(struct link *link, uint16_t type, uint32_t request, const ProtobufCMessage *message, int fd);
int link_send_fds(struct link *link, uint16_t type, uint32_t request, const ProtobufCMessage *message,
                  const int *fds, unsigned n_fds);

/* Handles what has come. Returns the number of messages; errors are in link->failed. */
unsigned link_receive(struct link *link);

/* The same, by a thread that waits for no message: it wakes the threads that wait. */
void link_take(struct link *link);

/* Waits until something may have changed, and returns GRADSYNC_OK: look again. GRADSYNC_AGAIN on a
 * non-blocking link with nothing new, INTERRUPTED, or TIMEOUT (without text) once clock_ns() has passed
 * the deadline. */
int link_wait(struct link *link, uint64_t deadline);

/* Something has changed that did not come through the socket: threads that wait look again. */
void link_notify(struct link *link);
/* Sleeps until another thread has polled, or called link_notify(). OK or INTERRUPTED. */
int link_sleep(struct link *link);

/* Called by the caller's loop, through gradsync_dispatch(), when epoll is readable. */
void link_dispatch(struct link *link);

/* Ends the connection. The text is fail_text(). */
void link_fail(struct link *link, int code);
/* The result of a call on a link that has failed, with its text. */
int link_failure(const struct link *link);
/* "gradsyncd (pid 12, socket /run/…)". */
const char *link_peer(const struct link *link, char *text, size_t size);
