/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread has a place for each connection. An accepted connection goes through these states: SILENT until
 * it says something, READY until its turn, then SHAKING. A dialled connection begins with SHAKING. The data
 * that the two threads exchange is under the lock: new listeners and the dialled connection in one direction,
 * results in the other. An eventfd for each direction wakes the receiver. Strangers (connections that have
 * not proved themselves) may cause some results a second, and a place in the queue is always left for the
 * result of the dialled connection.
 */
#include "link/door.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "link/share.h"

#define PLACES (DOOR_PLACES + 1) /* the last one is for a dialled connection */
#define DIALLED DOOR_PLACES
#define RESULTS (DOOR_PLACES + 2) /* of these, one is kept for a crowd, one for the dialled connection */
#define TOLD 50u                  /* strangers that are reported one by one in a second; others are counted */
#define CROWD_EVERY USEC_PER_SEC  /* time between two reports of a crowd */
#define ACCEPTS 256u              /* connections accepted from one listener in one pass */
#define PAUSE (100 * USEC_PER_MSEC) /* pause after an accept for which the system lacked resources */
#define BATCH (20 * USEC_PER_MSEC)  /* pause between accepts while there is a crowd */
#define PIECE 4096u

enum stranger_state { GONE, SILENT, READY, SHAKING };

struct stranger {
        enum stranger_state state;
        int sock;
        struct tls *tls;
        uint64_t id; /* of a dialled connection */
        struct sockaddr_storage address;
        unsigned source; /* its source in the share */
        uint64_t since, until;
        size_t heard, unsent;
        uint8_t out[PIECE]; /* bytes for the wire; one flight of a handshake has fewer */
        bool shaken;        /* the handshake is over, except for the bytes unsent */
};

struct door {
        struct door_config config;
        pthread_t thread;
        int wake, event; /* eventfds: for the thread, and for the loop */
        struct loop_io *io;
        pthread_mutex_t lock;
        /* Under the lock: */
        bool stop;
        struct keys keys;
        struct door_limits limits;
        int listener[DOOR_LISTENERS];
        unsigned n_listeners;
        /* The connection that the thread has to take; its sock is -1 if there is none. */
        struct stranger dialled;
        struct door_result result[RESULTS];
        unsigned n_results;
        /* For the loop thread alone: */
        struct door_result taken[RESULTS];
        /* For the thread alone, except in door_new() and door_free(): */
        struct stranger stranger[PLACES];
        struct share share;
        struct token_bucket pace, told;
        struct door_limits now_limits;
        struct keys now_keys;
        unsigned crowd;
        struct sockaddr_storage crowd_from;
        uint64_t crowd_told, crowd_seen, accept_from;
        struct pollfd poll[1 + PLACES + DOOR_LISTENERS];
};

/* ---- results ---- */

static void door_ring(int event) {
        uint64_t one = 1;

        while (write(event, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
}

/* Queues a result for the loop thread. Returns whether there was room. */
static bool door_tell(struct door *door, const struct door_result *result) {
        bool own = result->outcome == DOOR_SHAKEN || result->outcome == DOOR_FAILED;

        pthread_mutex_lock(&door->lock);
        bool room = door->n_results < (own                               ? RESULTS
                                       : result->outcome == DOOR_CROWDED ? RESULTS - 1
                                                                         : RESULTS - 2);
        if (room)
                door->result[door->n_results++] = *result;
        bool first = door->n_results == 1;
        pthread_mutex_unlock(&door->lock);
        if (room && first)
                door_ring(door->event);
        return room;
}

static void door_count(struct door *door, const struct sockaddr_storage *address) {
        door->crowd++;
        door->crowd_from = *address;
        door->crowd_seen = clock_now();
}

static void door_tell_crowd(struct door *door, uint64_t now) {
        struct door_result result = {
                .outcome = DOOR_CROWDED, .count = door->crowd, .address = door->crowd_from, .sock = -1
        };

        if (door->crowd == 0 || now < door->crowd_told + CROWD_EVERY)
                return;
        door->crowd_told = now;
        if (door_tell(door, &result))
                door->crowd = 0;
}

/* ---- a place ---- */

static void stranger_set_state(struct door *door, struct stranger *stranger, enum stranger_state state) {
        bool accepted = stranger != &door->stranger[DIALLED];

        assert(state == GONE || state > stranger->state);
        if (accepted && stranger->state == GONE)
                door->share.source[stranger->source].held++;
        else if (accepted && state == GONE)
                door->share.source[stranger->source].held--;
        stranger->state = state;
}

/* Ends a connection, and closes its socket unless the socket has been handed on. */
static void stranger_end(struct door *door, struct stranger *stranger) {
        tls_free(stranger->tls);
        if (stranger->sock >= 0)
                close(stranger->sock);
        stranger->tls = NULL;
        stranger->sock = -1;
        stranger_set_state(door, stranger, GONE);
}

static void stranger_turn_away(struct door *door, struct stranger *stranger, const char *why) {
        bool dialled = stranger == &door->stranger[DIALLED];
        struct door_result result = { .outcome = dialled ? DOOR_FAILED : DOOR_TURNED_AWAY,
                                      .id = stranger->id,
                                      .sock = -1,
                                      .address = stranger->address };

        snprintf(result.why, sizeof(result.why), "%s", why);
        if (dialled)
                stranger->sock = -1;
        stranger_end(door, stranger);
        if (dialled)
                door_tell(door, &result);
        else if (!token_bucket_take(&door->told, TOLD, clock_now()) || !door_tell(door, &result))
                door_count(door, &result.address);
}

/* Hands the connection to the loop thread. If that does not keep up, the connection ends. */
static void stranger_pass(struct door *door, struct stranger *stranger) {
        bool dialled = stranger == &door->stranger[DIALLED];
        struct door_result result = { .outcome = dialled ? DOOR_SHAKEN : DOOR_PASSED,
                                      .id = stranger->id,
                                      .sock = dialled ? -1 : stranger->sock,
                                      .tls = stranger->tls,
                                      .address = stranger->address };

        if (door_tell(door, &result)) {
                stranger->tls = NULL;
                stranger->sock = -1;
        } else {
                door_count(door, &result.address);
        }
        stranger_end(door, stranger);
}

/* ---- handshakes ---- */

/* Sends the bytes that TLS has for the wire. False: the connection has ended. */
static bool stranger_flush(struct door *door, struct stranger *stranger) {
        for (;;) {
                stranger->unsent += tls_drain(stranger->tls, stranger->out + stranger->unsent,
                                              sizeof(stranger->out) - stranger->unsent);
                if (stranger->unsent == 0)
                        return true;
                ssize_t n =
                        send(stranger->sock, stranger->out, stranger->unsent, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EAGAIN)
                        return true;
                if (n < 0 && errno != EINTR) {
                        stranger_turn_away(door, stranger, strerror(errno));
                        return false;
                }
                if (n > 0) {
                        stranger->unsent -= (size_t)n;
                        memmove(stranger->out, stranger->out + n, stranger->unsent);
                }
        }
}

static void stranger_shake(struct door *door, struct stranger *stranger) {
        int r = tls_shake_hands(stranger->tls);
        char why[320];

        if (r < 0) {
                snprintf(why, sizeof(why), "%s", tls_why(stranger->tls));
                if (stranger_flush(door, stranger)) /* TLS tells the other end, too */
                        stranger_turn_away(door, stranger, why);
                return;
        }
        stranger->shaken = r == 1;
        if (stranger_flush(door, stranger) && stranger->shaken && stranger->unsent == 0)
                stranger_pass(door, stranger);
}

static void stranger_hear(struct door *door, struct stranger *stranger) {
        uint8_t piece[PIECE];
        ssize_t n = recv(stranger->sock, piece, sizeof(piece), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        stranger->heard += n > 0 ? (size_t)n : 0;
        if (n < 0)
                stranger_turn_away(door, stranger, strerror(errno));
        else if (n == 0)
                stranger_turn_away(door, stranger, "it has hung up");
        else if (stranger->heard > DOOR_HEARD)
                stranger_turn_away(door, stranger, "it says too much before it has proved itself");
        else if (tls_feed(stranger->tls, piece, (size_t)n) < 0)
                stranger_turn_away(door, stranger, "there is no memory for what it sends");
        else
                stranger_shake(door, stranger);
}

/* Begins the handshake of a connection that has its turn. From now on the connection costs something. */
static void stranger_begin(struct door *door, struct stranger *stranger) {
        if (door->config.tls == NULL) {
                stranger_pass(door, stranger);
                return;
        }
        int r = tls_new(door->config.tls, &door->now_keys, true, &stranger->tls);
        if (r < 0) {
                stranger_turn_away(door, stranger, strerror(-r));
                return;
        }
        stranger_set_state(door, stranger, SHAKING);
        stranger_hear(door, stranger);
}

/* ---- accepting ---- */

/* Returns a place for a connection of that source: a free place, or the place of the oldest connection of the
 * source that holds most, if that holds more than this source. NULL: there is none. */
static struct stranger *door_place(struct door *door, unsigned source) {
        struct stranger *oldest = NULL;
        unsigned most = door->share.source[source].held;

        for (unsigned i = 0; i < DOOR_PLACES; i++) {
                struct stranger *stranger = &door->stranger[i];
                unsigned held = door->share.source[stranger->source].held;

                if (stranger->state == GONE)
                        return stranger;
                if (held > most || (oldest != NULL && held == most && stranger->since < oldest->since)) {
                        most = held;
                        oldest = stranger;
                }
        }
        if (oldest != NULL) {
                door_count(door, &oldest->address);
                stranger_end(door, oldest);
        }
        return oldest;
}

/* Closes a socket with a reset, because an orderly end would cost more packets. */
static void door_slam(int sock) {
        struct linger at_once = { .l_onoff = 1 };

        setsockopt(sock, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(sock);
}

static void door_take(struct door *door, int sock, const struct sockaddr_storage *address, uint64_t now) {
        struct sockaddr_storage local = { 0 };
        struct stranger *stranger = NULL;

        (void)getsockname(sock, (struct sockaddr *)&local, &(socklen_t){ sizeof(local) });
        unsigned source = share_find(&door->share, address, &local, now);

        if (share_admits(&door->share, source, door->now_limits.per_address, now))
                stranger = door_place(door, source);
        if (stranger == NULL) {
                door_count(door, address);
                door_slam(sock);
                return;
        }
        *stranger = (struct stranger){ .sock = sock,
                                       .address = *address,
                                       .source = source,
                                       .since = now,
                                       .until = now + door->now_limits.patience };
        stranger_set_state(door, stranger, SILENT);
}

/* Accepts connections. While there is a crowd they are accepted in batches: to wake up for each of them would
 * disturb other threads. */
static void door_accept(struct door *door, int fd) {
        if (door->crowd_seen + CROWD_EVERY > clock_now())
                door->accept_from = clock_now() + BATCH;
        for (unsigned i = 0; i < ACCEPTS; i++) {
                struct sockaddr_storage address = { 0 };
                socklen_t length = sizeof(address);
                int sock = accept4(fd, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (sock < 0) {
                        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                                door->accept_from = clock_now() + PAUSE;
                        return;
                }
                door_take(door, sock, &address, clock_now());
        }
}

/* ---- the thread ---- */

/* Handles a silent connection that has said something, or has ended. */
static void stranger_wake(struct door *door, struct stranger *stranger) {
        char first;
        ssize_t n = recv(stranger->sock, &first, 1, MSG_DONTWAIT | MSG_PEEK);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0)
                stranger_set_state(door, stranger, READY);
        else
                stranger_turn_away(door, stranger, n == 0 ? "it has hung up" : strerror(errno));
}

static void stranger_on_ready(struct door *door, struct stranger *stranger, unsigned events) {
        if (stranger->state == SILENT)
                stranger_wake(door, stranger);
        else if (events & POLLOUT)
                stranger_shake(door, stranger);
        else if (stranger->state == SHAKING)
                stranger_hear(door, stranger);
}

static struct stranger *door_next(struct door *door) {
        struct stranger *next = NULL;

        for (unsigned i = 0; i < DOOR_PLACES; i++) {
                struct stranger *stranger = &door->stranger[i];

                if (stranger->state == READY &&
                    (next == NULL || share_precedes(&door->share, stranger->source, next->source) ||
                     (stranger->source == next->source && stranger->since < next->since)))
                        next = stranger;
        }
        return next;
}

/* Begins the handshakes of as many connections as may have their turn now. Returns whether others have to
 * wait. */
static bool door_serve(struct door *door, uint64_t now) {
        struct stranger *next;

        while ((next = door_next(door)) != NULL) {
                if (!token_bucket_take(&door->pace, door->now_limits.together, now))
                        return true;
                share_serve(&door->share, next->source);
                stranger_begin(door, next);
        }
        return false;
}

static void door_expire(struct door *door, uint64_t now) {
        for (unsigned i = 0; i < PLACES; i++)
                if (door->stranger[i].state != GONE && now >= door->stranger[i].until)
                        stranger_turn_away(door, &door->stranger[i], "it has not said in time who it is");
}

static short stranger_awaits(const struct stranger *stranger) {
        if (stranger->state == SILENT)
                return POLLIN;
        if (stranger->state != SHAKING)
                return 0;
        return stranger->unsent > 0 ? POLLOUT : POLLIN;
}

/* Waits until something comes, or until something is due. */
static void door_wait(struct door *door, unsigned n_listeners, bool queue, uint64_t now) {
        uint64_t next = now + 3600 * USEC_PER_SEC;
        bool paused = now < door->accept_from;

        door->poll[0] = (struct pollfd){ .fd = door->wake, .events = POLLIN };
        for (unsigned i = 0; i < PLACES; i++) {
                const struct stranger *stranger = &door->stranger[i];
                short events = stranger_awaits(stranger);

                door->poll[1 + i] =
                        (struct pollfd){ .fd = events != 0 ? stranger->sock : -1, .events = events };
                if (stranger->state != GONE && stranger->until < next)
                        next = stranger->until;
        }
        for (unsigned i = 0; i < n_listeners; i++)
                door->poll[1 + PLACES + i] =
                        (struct pollfd){ .fd = paused ? -1 : door->listener[i], .events = POLLIN };
        if (paused && door->accept_from < next)
                next = door->accept_from;
        if (door->crowd > 0 && door->crowd_told + CROWD_EVERY < next)
                next = door->crowd_told + CROWD_EVERY;
        if (queue && now + USEC_PER_SEC / door->now_limits.together < next)
                next = now + USEC_PER_SEC / door->now_limits.together;
        poll(door->poll, 1 + PLACES + n_listeners,
             next > now ? (int)((next - now + USEC_PER_MSEC - 1) / USEC_PER_MSEC) : 0);
}

/* Takes over the changes that the loop thread has made. Returns whether to go on. */
static bool door_look(struct door *door, unsigned *n_listeners) {
        struct stranger *place = &door->stranger[DIALLED];
        uint64_t now = clock_now();

        pthread_mutex_lock(&door->lock);
        bool stop = door->stop, dialled = door->dialled.sock >= 0;
        door->now_limits = door->limits;
        door->now_keys = door->keys;
        *n_listeners = door->n_listeners;
        if (dialled) {
                assert(place->state == GONE);
                *place = door->dialled;
                door->dialled.sock = -1;
        }
        pthread_mutex_unlock(&door->lock);
        if (dialled) {
                place->until = now + door->now_limits.patience;
                stranger_set_state(door, place, SHAKING);
                stranger_shake(door, place);
        }
        return !stop;
}

static void *door_run(void *data) {
        struct door *door = data;
        unsigned n_listeners;
        uint64_t count;

        thread_stand_back();
        while (door_look(door, &n_listeners)) {
                uint64_t now = clock_now();

                door_expire(door, now);
                bool queue = door_serve(door, now);
                door_tell_crowd(door, now);
                door_wait(door, n_listeners, queue, clock_now());
                if (door->poll[0].revents != 0)
                        (void)!read(door->wake, &count, sizeof(count));
                for (unsigned i = 0; i < PLACES; i++)
                        if (door->poll[1 + i].revents != 0)
                                stranger_on_ready(door, &door->stranger[i],
                                                  (unsigned)door->poll[1 + i].revents);
                for (unsigned i = 0; i < n_listeners; i++)
                        if (door->poll[1 + PLACES + i].revents != 0)
                                door_accept(door, door->poll[1 + PLACES + i].fd);
        }
        return NULL;
}

/* ---- the loop thread's side ---- */

static void door_on_result(void *data, int fd, unsigned events) {
        struct door *door = data;
        uint64_t count;

        (void)!read(fd, &count, sizeof(count));
        pthread_mutex_lock(&door->lock);
        unsigned n = door->n_results;
        memcpy(door->taken, door->result, n * sizeof(door->result[0]));
        door->n_results = 0;
        pthread_mutex_unlock(&door->lock);
        for (unsigned i = 0; i < n; i++)
                door->config.fn(door->config.data, &door->taken[i]);
}

static void door_deinit(struct door *door) {
        loop_io_free(door->io);
        if (door->event >= 0)
                close(door->event);
        if (door->wake >= 0)
                close(door->wake);
        pthread_mutex_destroy(&door->lock);
        keys_clear(&door->keys);
        keys_clear(&door->now_keys);
        free(door);
}

int door_new(const struct door_config *config, const struct keys *keys, const struct door_limits *limits,
             struct door **ret) {
        struct door *door = calloc(1, sizeof(*door));

        if (door == NULL)
                return -ENOMEM;
        door->config = *config;
        door->keys = *keys;
        door->limits = *limits;
        door->dialled.sock = -1;
        for (unsigned i = 0; i < PLACES; i++)
                door->stranger[i].sock = -1;
        pthread_mutex_init(&door->lock, NULL);
        door->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        door->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int r = door->event < 0 || door->wake < 0 ? -errno : 0;
        if (r == 0)
                r = loop_io_new(config->loop, door->event, LOOP_READ, door_on_result, door, &door->io);
        if (r == 0)
                r = thread_start(&door->thread, "gs-door", 0, door_run, door);
        if (r < 0) {
                door_deinit(door);
                return r;
        }
        *ret = door;
        return 0;
}

struct door *door_free(struct door *door) {
        if (door == NULL)
                return NULL;
        pthread_mutex_lock(&door->lock);
        door->stop = true;
        pthread_mutex_unlock(&door->lock);
        door_ring(door->wake);
        pthread_join(door->thread, NULL);
        door->stranger[DIALLED].sock = -1; /* the caller owns it */
        for (unsigned i = 0; i < PLACES; i++)
                if (door->stranger[i].state != GONE)
                        stranger_end(door, &door->stranger[i]);
        for (unsigned i = 0; i < door->n_results; i++) {
                tls_free(door->result[i].tls);
                if (door->result[i].sock >= 0)
                        close(door->result[i].sock);
        }
        if (door->dialled.sock >= 0)
                tls_free(door->dialled.tls);
        for (unsigned i = 0; i < door->n_listeners; i++)
                close(door->listener[i]);
        door_deinit(door);
        return NULL;
}

int door_listen(struct door *door, int fd) {
        int r = -ENOSPC;

        pthread_mutex_lock(&door->lock);
        if (door->n_listeners < DOOR_LISTENERS) {
                door->listener[door->n_listeners++] = fd;
                r = 0;
        }
        pthread_mutex_unlock(&door->lock);
        door_ring(door->wake);
        return r;
}

void door_shake(struct door *door, uint64_t id, int sock, struct tls *tls) {
        pthread_mutex_lock(&door->lock);
        assert(door->dialled.sock < 0);
        door->dialled = (struct stranger){ .id = id, .sock = sock, .tls = tls };
        pthread_mutex_unlock(&door->lock);
        door_ring(door->wake);
}

void door_change(struct door *door, const struct keys *keys, const struct door_limits *limits) {
        pthread_mutex_lock(&door->lock);
        door->keys = *keys;
        door->limits = *limits;
        pthread_mutex_unlock(&door->lock);
        door_ring(door->wake);
}
