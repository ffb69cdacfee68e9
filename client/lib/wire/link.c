/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing is queued here. A frame that does not fit the socket is the caller's to send again, so that no
 * amount of unread frames costs memory; `full` makes poll() watch for room meanwhile.
 */
#include "client/lib/wire/link.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"
#include "proto/cleanup.h"

static void link_watch(struct link *link, int operation, int fd, uint32_t events) {
        struct epoll_event event = { .events = events, .data.fd = fd };

        epoll_ctl(link->epoll, operation, fd, &event);
}

static int link_open_fds(struct link *link) {
        link->epoll = epoll_create1(EPOLL_CLOEXEC);
        link->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (link->epoll < 0 || link->wake < 0)
                return fail(GRADSYNC_SYSTEM,
                            "no file descriptors for a connection: %s; look at the limit of open files "
                            "(ulimit -n)",
                            strerror(errno));
        link_watch(link, EPOLL_CTL_ADD, link->wake, EPOLLIN);
        if (link->sock >= 0)
                link_watch(link, EPOLL_CTL_ADD, link->sock, EPOLLIN);
        return GRADSYNC_OK;
}

int link_init(struct link *link, int sock, link_message_fn message, link_event_fn room, void *owner) {
        link->sock = sock;
        link->epoll = link->wake = link->timer = -1;
        link->message = message;
        link->room = room;
        link->owner = owner;
        int r = link_open_fds(link);
        if (r != GRADSYNC_OK)
                return r;
        link->out = malloc(FRAME_MAX);
        link->in = malloc(LINK_BATCH * FRAME_MAX);
        if (link->out == NULL || link->in == NULL || codec_init(&link->codec) < 0)
                return fail(GRADSYNC_NO_MEMORY, "no memory for the buffers of a connection");
        return GRADSYNC_OK;
}

void link_abandon(struct link *link) {
        link->sock = fd_close(link->sock);
        link->epoll = fd_close(link->epoll);
        link->wake = fd_close(link->wake);
        link->timer = fd_close(link->timer);
}

void link_deinit(struct link *link) {
        link_abandon(link);
        free(link->out);
        free(link->in);
        codec_deinit(&link->codec);
}

const char *link_peer(const struct link *link, char *text, size_t size) {
        if (link->daemon > 0)
                snprintf(text, size, "gradsyncd (pid %d, socket %s)", (int)link->daemon, link->path);
        else
                snprintf(text, size, "gradsyncd (socket %s)", link->path);
        return text;
}

static void link_wake_sleepers(struct link *link) {
        __atomic_fetch_add(&link->turn, 1, __ATOMIC_RELEASE);
        if (link->sleepers > 0)
                syscall(SYS_futex, &link->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Makes poll() return, and the caller's epoll readable. */
static void link_wake_poller(struct link *link) {
        if (link->woken)
                return;
        link->woken = true;
        eventfd_write(link->wake, 1);
}

/* Wakes all threads that wait in the library. */
static void link_wake_threads(struct link *link) {
        if (link->polling)
                link_wake_poller(link);
        link_wake_sleepers(link);
}

void link_notify(struct link *link) {
        /* The caller's loop looks again. */
        if (link->nonblocking)
                link_wake_poller(link);
        link_wake_threads(link);
}

static void link_wake_clear(struct link *link) {
        eventfd_t value;

        if (!link->woken)
                return;
        link->woken = false;
        eventfd_read(link->wake, &value);
}

void link_fail(struct link *link, int code) {
        if (link->failed != 0)
                return;
        link->failed = code;
        snprintf(link->why, sizeof(link->why), "%s", fail_text());
        /* The socket stays readable, so that a caller's loop notices the failure. */
        if (link->sock >= 0)
                shutdown(link->sock, SHUT_RDWR);
        /* Without a connection the eventfd makes epoll readable. */
        if (link->state != LINK_UP)
                link_wake_poller(link);
        link_notify(link);
}

int link_failure(const struct link *link) {
        return fail(link->failed, "%s", link->why);
}

static void link_set_timer(const struct link *link, uint64_t at) {
        struct itimerspec when = { .it_value = { .tv_sec = (time_t)(at / NSEC_PER_SEC),
                                                 .tv_nsec = (long)(at % NSEC_PER_SEC) } };

        timerfd_settime(link->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void link_rearm(struct link *link, uint64_t at) {
        link_set_timer(link, at > 0 ? at : 1);
}

/* Nothing more is read from this socket. A thread that polls it closes it later. */
static void link_let_go(struct link *link) {
        epoll_ctl(link->epoll, EPOLL_CTL_DEL, link->sock, NULL);
        shutdown(link->sock, SHUT_RDWR);
        if (!link->polling)
                link->sock = fd_close(link->sock);
}

/* The link has not failed: another attempt is due at once. */
static void link_go_down(struct link *link) {
        link_let_go(link);
        link->state = LINK_DOWN;
        link->connection++;
        link->full = false;
        link->farewell_code = 0;
        link_rearm(link, clock_ns());
        link->lost(link->owner);
        link_notify(link);
}

/* The peer is gone. If it has said why, that is the reason that callers see. */
static void link_peer_gone(struct link *link, int error) {
        char peer[192], reason[160] = "";

        if (link->timer >= 0 && (link->state == LINK_GREETING || link->farewell_code == 0)) {
                link_go_down(link);
                return;
        }

        link_peer(link, peer, sizeof(peer));
        if (link->farewell_code != 0) {
                fail(link->farewell_code, "%s ended the connection: %s", peer, link->farewell);
                link_fail(link, link->farewell_code);
                return;
        }
        if (error != 0)
                snprintf(reason, sizeof(reason), " (%s)", strerror(error));
        fail(GRADSYNC_DAEMON_LOST,
             "%s closed the connection%s: it has ended or crashed; look at its log, start it again, "
             "then open, join and plan anew",
             peer, reason);
        link_fail(link, GRADSYNC_DAEMON_LOST);
}

static void link_protocol_error(struct link *link, const char *why) {
        char peer[192];

        fail(GRADSYNC_PROTOCOL,
             "%s sent something that libgradsync %s does not understand: %s; are both of the same release?",
             link_peer(link, peer, sizeof(peer)), GRADSYNC_RELEASE, why);
        link_fail(link, GRADSYNC_PROTOCOL);
}

static void link_refuse_major(struct link *link, unsigned major) {
        char peer[192];

        fail(GRADSYNC_VERSION,
             "%s speaks version %u of the protocol, libgradsync %s version %u; use a library of the daemon's "
             "release",
             link_peer(link, peer, sizeof(peer)), major, GRADSYNC_RELEASE, FRAME_MAJOR);
        link_fail(link, GRADSYNC_VERSION);
}

static void link_set_full(struct link *link, bool full) {
        if (link->full == full)
                return;
        link->full = full;
        link_watch(link, EPOLL_CTL_MOD, link->sock, full ? EPOLLIN | EPOLLOUT : EPOLLIN);
        if (full && link->polling)
                link_wake_poller(link);
}

static int link_not_now(const struct link *link) {
        if (link->failed != 0)
                return link_failure(link);
        return fail_constant(GRADSYNC_AGAIN, "gradsyncd is gone, and waited for");
}

int link_send(struct link *link, uint16_t type, uint32_t request, const ProtobufCMessage *message, int fd) {
        return link_send_fds(link, type, request, message, &fd, fd >= 0);
}

int link_send_fds(struct link *link, uint16_t type, uint32_t request, const ProtobufCMessage *message,
                  const int *fds, unsigned n_fds) {
        if (link->failed != 0)
                return link_failure(link);
        if (link->state == LINK_DOWN || (link->state == LINK_GREETING && type != WIRE__MESSAGE_TYPE__HELLO))
                return link_not_now(link);
        ssize_t size = codec_pack(link->out, type, request, n_fds, message);
        if (size < 0)
                return fail(GRADSYNC_INVALID, "a message %s would be larger than a frame",
                            codec_type_name(type));
        int r = fdpass_send(link->sock, link->out, (size_t)size, fds, n_fds);
        if (r == 0)
                return GRADSYNC_OK;
        if (r == -EAGAIN || r == -ENOBUFS) {
                link_set_full(link, true);
                return fail_constant(GRADSYNC_AGAIN, "gradsyncd has not read what was sent so far");
        }
        uint32_t connection = link->connection;
        /* A farewell may be waiting. */
        link_receive(link);
        if (link->connection == connection && link->failed == 0)
                link_peer_gone(link, -r);
        return link_not_now(link);
}

/* A REFUSED that answers no request precedes the end of the connection. */
static void link_keep_farewell(struct link *link, const ProtobufCMessage *message) {
        const Wire__Refused *refused = (const Wire__Refused *)message;

        if (link->farewell_code != 0)
                return;
        link->farewell_code = refused->code > 0 ? (int)refused->code : GRADSYNC_PROTOCOL;
        snprintf(link->farewell, sizeof(link->farewell), "%s",
                 refused->text ? refused->text : "no reason given");
}

static void link_take_frame(struct link *link, struct fdpass_packet *packet) {
        struct frame_header header;
        enum frame_verdict verdict = frame_decode(packet->data, packet->size, &header);
        const char *why = "";

        if (verdict == FRAME_BAD_MAJOR) {
                link_refuse_major(link, header.major);
                return;
        }
        if (verdict != FRAME_OK || header.fds != packet->n_fds) {
                link_protocol_error(link,
                                    verdict != FRAME_OK
                                            ? frame_verdict_text(verdict)
                                            : "a frame came with another number of fds than it announces");
                return;
        }
        /* The frame is a notice that this version does not know. */
        if (header.request == 0 && codec_descriptor(header.type) == NULL)
                return;
        const ProtobufCMessage *message =
                codec_unpack(&link->codec, header.type, packet->data + FRAME_HEADER, header.length, &why);
        if (message == NULL) {
                link_protocol_error(link, why);
                return;
        }
        if (header.type == WIRE__MESSAGE_TYPE__REFUSED && header.request == 0) {
                link_keep_farewell(link, message);
                return;
        }
        int r = link->message(link->owner, &header, message, packet);
        if (r != GRADSYNC_OK)
                link_fail(link, r);
}

/* Takes one packet; false if the link has failed. */
static bool link_take_packet(struct link *link, struct fdpass_packet *packet) {
        if (packet->error != 0)
                link_protocol_error(link, strerror(-packet->error));
        else if (packet->size == 0)
                link_peer_gone(link, 0);
        else
                link_take_frame(link, packet);
        return link->failed == 0;
}

static bool link_connected(const struct link *link) {
        return link->sock >= 0 && link->failed == 0 && link->state != LINK_DOWN;
}

unsigned link_receive(struct link *link) {
        struct fdpass_packet packets[LINK_BATCH];
        uint32_t connection = link->connection;
        unsigned handled = 0;
        int n = LINK_BATCH;

        while (link_connected(link) && n == (int)LINK_BATCH) {
                for (unsigned i = 0; i < LINK_BATCH; i++)
                        packets[i] = (struct fdpass_packet){ .data = link->in + i * FRAME_MAX };
                n = fdpass_receive(link->sock, packets, LINK_BATCH);
                if (n == -EAGAIN || n == -EINTR)
                        break;
                if (n < 0) {
                        link_peer_gone(link, -n);
                        break;
                }
                for (int i = 0; i < n; i++) {
                        if (link->failed == 0 && link->connection == connection)
                                link_take_packet(link, &packets[i]);
                        fdpass_close(&packets[i]);
                }
                handled += (unsigned)n;
        }
        return handled;
}

void link_take(struct link *link) {
        if (link_receive(link) > 0)
                link_notify(link);
}

static void link_make_room(struct link *link) {
        link_set_full(link, false);
        link->room(link->owner);
}

static int link_sleep_turn(struct link *link, uint64_t deadline) {
        uint64_t now = clock_ns();
        uint64_t left = deadline == NEVER ? 3600 * NSEC_PER_SEC : deadline > now ? deadline - now : 0;
        struct timespec timeout = { .tv_sec = (time_t)(left / NSEC_PER_SEC),
                                    .tv_nsec = (long)(left % NSEC_PER_SEC) };
        uint32_t turn = __atomic_load_n(&link->turn, __ATOMIC_ACQUIRE);
        int error = 0;

        link->sleepers++;
        pthread_mutex_unlock(&link->lock);
        if (syscall(SYS_futex, &link->turn, FUTEX_WAIT_PRIVATE, turn, &timeout, NULL, 0) < 0)
                error = errno;
        pthread_mutex_lock(&link->lock);
        link->sleepers--;
        if (error == EINTR)
                return fail_constant(
                        GRADSYNC_INTERRUPTED,
                        "a signal handler ran while the call waited; call it again to go on waiting");
        return error == ETIMEDOUT && deadline != NEVER ? GRADSYNC_TIMEOUT : GRADSYNC_OK;
}

int link_sleep(struct link *link) {
        return link_sleep_turn(link, NEVER);
}

static int link_poll_timeout(uint64_t deadline) {
        uint64_t now = clock_ns();

        if (deadline == NEVER)
                return -1;
        uint64_t ms = deadline > now ? (deadline - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0;
        return ms > INT_MAX ? INT_MAX : (int)ms;
}

static int link_poll_turn(struct link *link, uint64_t deadline) {
        struct pollfd fds[3] = {
                { .fd = link->state == LINK_DOWN ? -1 : link->sock,
                  .events = (short)(POLLIN | (link->full ? POLLOUT : 0)) },
                { .fd = link->wake, .events = POLLIN },
                { .fd = link->timer, .events = POLLIN },
        };
        uint32_t connection = link->connection;

        link->polling = true;
        pthread_mutex_unlock(&link->lock);
        int n = poll(fds, 3, deadline == NEVER ? -1 : link_poll_timeout(deadline));
        int error = errno;
        pthread_mutex_lock(&link->lock);
        link->polling = false;
        link_wake_clear(link);
        if (n > 0 && (fds[0].revents & POLLOUT) != 0 && link->connection == connection)
                link_make_room(link);
        if (n > 0 && (fds[0].revents & ~POLLOUT) != 0 && link->connection == connection)
                link_receive(link);
        link_tend(link);
        link_wake_sleepers(link);
        if (n < 0 && error == EINTR)
                return fail_constant(
                        GRADSYNC_INTERRUPTED,
                        "a signal handler ran while the call waited; call it again to go on waiting");
        return n == 0 && deadline != NEVER && clock_ns() >= deadline ? GRADSYNC_TIMEOUT : GRADSYNC_OK;
}

/* Messages that are taken here, not in the caller's dispatch, may complete any call: epoll stays readable
 * until the caller's loop has looked. A full socket is left to dispatch as well, or nothing would watch for
 * room while that loop sleeps. */
static int link_try_turn(struct link *link) {
        unsigned handled = link_receive(link);

        link_tend(link);
        if (handled == 0 && link->failed == 0)
                return fail_constant(
                        GRADSYNC_AGAIN,
                        "not finished yet: wait until gradsync_fd() is readable, dispatch, and call again");
        link_wake_poller(link);
        return GRADSYNC_OK;
}

int link_wait(struct link *link, uint64_t deadline) {
        if (link->failed != 0)
                return GRADSYNC_OK;
        if (link->nonblocking)
                return link_try_turn(link);
        return link->polling ? link_sleep_turn(link, deadline) : link_poll_turn(link, deadline);
}

void link_dispatch(struct link *link) {
        if (link->failed == 0) {
                if (link->full)
                        link_make_room(link);
                if (link_receive(link) > 0)
                        link_wake_threads(link);
                link_tend(link);
        }
        /* A thread in poll() clears the eventfd itself. The caller looks at everything again now. */
        if (!link->polling)
                link_wake_clear(link);
}

int link_reconnects(struct link *link, link_event_fn lost_fn, link_event_fn retry) {
        link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (link->timer < 0)
                return fail(GRADSYNC_SYSTEM,
                            "no file descriptor for a timer: %s; look at the limit of open files (ulimit -n)",
                            strerror(errno));
        link_watch(link, EPOLL_CTL_ADD, link->timer, EPOLLIN);
        link->lost = lost_fn;
        link->retry = retry;
        return GRADSYNC_OK;
}

void link_attach(struct link *link, int sock) {
        fd_close(link->sock);
        link->sock = sock;
        link->state = LINK_GREETING;
        link_watch(link, EPOLL_CTL_ADD, sock, EPOLLIN);
}

void link_up(struct link *link) {
        uint64_t expired;

        link_set_timer(link, 0);
        if (read(link->timer, &expired, sizeof(expired)) < 0)
                expired = 0;
        link->state = LINK_UP;
        link->farewell[0] = '\0';
        link->pending = true;
}

/* Reading the timer makes it unreadable until it is armed again. */
static bool link_is_due(const struct link *link) {
        uint64_t expired;

        return read(link->timer, &expired, sizeof(expired)) == sizeof(expired);
}

/* If a thread is in poll(), that thread does this when it returns, because the socket may be replaced. */
void link_tend(struct link *link) {
        if (link->timer < 0 || link->tending || link->polling || link->failed != 0)
                return;
        link->tending = true;
        if (link->state != LINK_UP && link_is_due(link))
                link->retry(link->owner);
        while (link->pending && link->failed == 0) {
                link->pending = false;
                link->room(link->owner);
        }
        link->tending = false;
}
