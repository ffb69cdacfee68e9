/* SPDX-License-Identifier: Apache-2.0 */
/* Reading drains the socket in batches; what cannot be sent at once is queued, charged to the
 * client's uid. */
#include "socket/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/proc.h"
#include "gradsync.pb-c.h"

#define BATCHES 4u          /* read from one client before the others get their turn */
#define DRAIN_PACKETS 1024u /* more than a socket's buffer holds */
#define BATCH_SHARE 4u      /* the fds of one batch are at most this part of what the process may have */
#define OWN_FDS 64u         /* more than the daemon needs for itself */

struct packet { /* waiting to be sent */
        struct list link;
        struct charge charge, fd_charge;
        int fds[FRAME_FDS_MAX];
        unsigned n_fds;
        size_t size;
        uint8_t data[];
};

struct conn {
        struct list link;
        struct conns *conns;
        int sock;
        struct loop_io *io;
        struct session *session;
        struct session_peer peer;
        struct charge charge, sock_charge, pidfd_charge;
        struct list queue;
        size_t queued;
        uint64_t turn;  /* the next round of turns on the event thread that it may take part in */
        unsigned batch; /* packets that it may send in one go: fewer while they cost much */
        bool dead;      /* the session knows it; nothing more is read or sent */
        struct loop_deferred reap;
};

/* All fds that come with the packets of one batch must have room. */
static void conns_measure(struct conns *conns) {
        struct rlimit limit;

        conns->fds_room = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
        uint64_t batch = conns->fds_room / BATCH_SHARE / FDPASS_FDS_MAX;
        conns->batch_most = batch < 1 ? 1 : batch < FDPASS_BATCH ? (unsigned)batch : FDPASS_BATCH;
}

int conns_init(struct conns *conns, struct loop *loop, struct sessions *sessions, struct users *users,
               struct closer *closer) {
        *conns = (struct conns){ .loop = loop, .sessions = sessions, .users = users, .closer = closer };
        conns_measure(conns);
        list_init(&conns->list);
        conns->buffers = malloc((size_t)FDPASS_BATCH * FRAME_MAX);
        return conns->buffers != NULL ? tidy_init(&conns->tidy, loop) : -ENOMEM;
}

static void packet_free(struct packet *packet) {
        if (packet == NULL)
                return;
        list_remove(&packet->link);
        charge_release(&packet->charge);
        charge_release(&packet->fd_charge);
        while (packet->n_fds > 0)
                close(packet->fds[--packet->n_fds]);
        free(packet);
}

static void conn_free(struct conn *conn) {
        struct packet *packet, *spare;

        if (conn == NULL)
                return;
        loop_defer_cancel(conn->conns->loop, &conn->reap);
        session_free(conn->session);
        list_for_each_safe(packet, spare, &conn->queue, link)
                packet_free(packet);
        loop_io_free(conn->io);
        closer_hang_up(conn->conns->closer, conn->sock); /* with whatever lies unread in it */
        charge_release(&conn->pidfd_charge);
        charge_release(&conn->sock_charge);
        charge_release(&conn->charge);
        list_remove(&conn->link);
        tidy_later(&conn->conns->tidy);
        free(conn);
}

void conns_deinit(struct conns *conns) {
        struct conn *conn, *spare;

        if (conns->buffers == NULL)
                return;
        list_for_each_safe(conn, spare, &conns->list, link)
                conn_free(conn);
        tidy_deinit(&conns->tidy);
        free(conns->buffers);
        conns->buffers = NULL;
}

static void conn_reap(void *data) {
        conn_free(data);
}

static void conn_hang_up(void *link) {
        struct conn *conn = link;

        conn->dead = true;
        loop_io_set(conn->io, 0);
        loop_defer(conn->conns->loop, &conn->reap);
}

/* The daemon ends this, not the client. */
static void conn_disconnect(struct conn *conn, enum flood_kind kind, int priority, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
static void conn_disconnect(struct conn *conn, enum flood_kind kind, int priority, const char *format, ...) {
        char why[256];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(why, sizeof(why), format, arguments);
        va_end(arguments);
        if (flood_admits(kind, conn->peer.uid, clock_now()))
                log_write(priority, NULL, "client pid %d, uid %u is disconnected: %s", (int)conn->peer.pid,
                          (unsigned)conn->peer.uid, why);
        conn->dead = true;
        loop_io_set(conn->io, 0);
        session_given_up(conn->session);
}

/* Whether the client has closed the link. Kernels before 6.2 say ECONNREFUSED to a
 * process that sends at that moment. */
static bool conn_is_closed(int error) {
        return error == 0 || error == -EPIPE || error == -ECONNRESET || error == -ECONNREFUSED;
}

/* The link has failed, or, with 0, come to its end: the session ends itself and hangs up. */
static void conn_fail(struct conn *conn, int error) {
        if (conn->dead)
                return;
        if (!conn_is_closed(error)) {
                conn_disconnect(conn, FLOOD_FAILED, LOG_ERR, "nothing can be sent to it, or read from it: %s",
                                strerror(-error));
                return;
        }
        conn->dead = true;
        loop_io_set(conn->io, 0);
        session_closed(conn->session);
}

static int packet_charge(const struct conn *conn, struct packet *packet, size_t size, unsigned n_fds,
                         struct refusal *refusal) {
        struct users *users = conn->conns->users;
        int r = charge_take(&packet->charge, users, conn->peer.uid, ACCOUNT_BYTES, sizeof(*packet) + size,
                            refusal);

        if (r == 0 && n_fds > 0)
                r = charge_take(&packet->fd_charge, users, conn->peer.uid, ACCOUNT_FDS, n_fds, refusal);
        return r;
}

static int packet_keep_fds(struct packet *packet, const int *fds, unsigned n_fds) {
        while (packet->n_fds < n_fds) {
                int fd = fcntl(fds[packet->n_fds], F_DUPFD_CLOEXEC, 0);

                if (fd < 0)
                        return -errno;
                packet->fds[packet->n_fds++] = fd;
        }
        return 0;
}

static void conn_enqueue(struct conn *conn, const void *frame, size_t size, const int *fds, unsigned n_fds) {
        struct packet *packet;
        struct refusal refusal;

        if (conn->queued + size > CONN_QUEUE_MAX) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_WARNING,
                                "it does not read what is sent to it (%zu bytes wait)", conn->queued);
                return;
        }
        packet = calloc(1, sizeof(*packet) + size);
        if (packet != NULL)
                list_init(&packet->link);
        if (packet == NULL || packet_charge(conn, packet, size, n_fds, &refusal) != 0) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_WARNING, "no room for what waits to be sent to it");
                packet_free(packet);
                return;
        }
        int r = packet_keep_fds(packet, fds, n_fds);
        if (r < 0) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_ERR,
                                "no file descriptor is left to keep one for it: %s", strerror(-r));
                packet_free(packet);
                return;
        }
        packet->size = size;
        memcpy(packet->data, frame, size);
        list_append(&conn->queue, &packet->link);
        conn->queued += size;
        loop_io_set(conn->io, LOOP_WRITE);
}

static void conn_transmit(void *link, const void *frame, size_t size, const int *fds, unsigned n_fds) {
        struct conn *conn = link;

        if (conn->dead)
                return;
        if (!list_empty(&conn->queue)) {
                conn_enqueue(conn, frame, size, fds, n_fds);
                return;
        }
        int r = fdpass_send(conn->sock, frame, size, fds, n_fds);
        if (r == -EAGAIN)
                conn_enqueue(conn, frame, size, fds, n_fds);
        else if (r < 0)
                conn_fail(conn, r);
}

static void conn_flush(struct conn *conn) {
        while (!list_empty(&conn->queue)) {
                struct packet *packet = list_entry(conn->queue.next, struct packet, link);
                int r = fdpass_send(conn->sock, packet->data, packet->size, packet->fds, packet->n_fds);

                if (r == -EAGAIN)
                        return;
                if (r < 0) {
                        conn_fail(conn, r);
                        return;
                }
                conn->queued -= packet->size;
                packet_free(packet);
        }
        loop_io_set(conn->io, LOOP_READ);
}

static const char *packet_error(int error) {
        switch (error) {
        case -EMSGSIZE: return "a packet is larger than a frame can be";
        case -E2BIG: return "a packet carries more fds than a frame can";
        default: return "the fds of a packet were cut off";
        }
}

/* Too many descriptors of its user wait to be closed: nothing more is read from any client of that user. */
static void conn_refuse_fds(struct conn *conn, const char *text) {
        if (flood_admits(FLOOD_PROTOCOL, conn->peer.uid, clock_now()))
                log_warning(
                        "client pid %d, uid %u is disconnected: descriptors that it, or others of this uid, "
                        "sent cannot be "
                        "closed: %s",
                        (int)conn->peer.pid, (unsigned)conn->peer.uid, text);
        session_refuse(conn->session, WIRE__CODE__QUOTA, text);
}

/* An fd that nobody wants. */
static void conn_drop_fd(void *data, int fd) {
        struct conn *conn = data;
        struct refusal refusal;

        if (closer_take(conn->conns->closer, fd, conn->peer.uid, &refusal) > 0)
                conn_refuse_fds(conn, refusal.text);
}

static void conn_drop_fds(struct conn *conn, const struct fdpass_packet *packet) {
        for (unsigned i = 0; i < packet->n_fds; i++)
                if (packet->fds[i] >= 0)
                        conn_drop_fd(conn, packet->fds[i]);
}

/* False once there is nothing more to read from it. */
static bool conn_take(struct conn *conn, struct fdpass_packet *packet) {
        if (conn->dead) {
                conn_drop_fds(conn, packet);
                return false;
        }
        if (packet->error != 0) {
                session_bad_packet(conn->session, packet_error(packet->error));
                return false;
        }
        if (packet->size == 0) {
                conn_fail(conn, 0);
                return false;
        }
        session_packet(conn->session, packet->data, packet->size, packet->fds, packet->n_fds);
        conn_drop_fds(conn, packet);
        return true;
}

/* The kernel closes fds for which there is no room, and waits for that if it has to. */
static int conn_receive_packets(struct conn *conn, struct fdpass_packet *packets) {
        struct conns *conns = conn->conns;
        uint64_t used = accounts_total(conns->users, ACCOUNT_FDS) + OWN_FDS;
        bool scarce = used + (uint64_t)conn->batch * FDPASS_FDS_MAX > conns->fds_room;

        if (scarce)
                closer_hurry(conns->closer);
        int n = fdpass_receive_dropping(conn->sock, packets, conn->batch, conn_drop_fd, conn);
        if (scarce)
                closer_calm(conns->closer);
        return n;
}

/* One batch; whether there may be more. */
static bool conn_receive(struct conn *conn) {
        struct fdpass_packet packets[FDPASS_BATCH];
        bool more = true;

        if (closer_is_overdrawn(conn->conns->closer, conn->peer.uid)) {
                conn_refuse_fds(
                        conn,
                        "too many of them wait for that; send none that is neither a memfd nor a pidfd");
                return false;
        }
        for (unsigned i = 0; i < FDPASS_BATCH; i++)
                packets[i] = (struct fdpass_packet){ .data = conn->conns->buffers + (size_t)i * FRAME_MAX };
        int n = conn_receive_packets(conn, packets);
        if (n < 0 && n != -EAGAIN)
                conn_fail(conn, n);
        for (int i = 0; i < n; i++)
                more = conn_take(conn, &packets[i]) && more;
        return more && n == (int)conn->batch;
}

/* A dead client sends nothing more, but a child of it may. Reading what a socket can hold is enough. */
static void conn_drain(void *link) {
        struct conn *conn = link;

        conn->batch = conn->conns->batch_most;
        for (unsigned packets = 0; packets < DRAIN_PACKETS; packets += conn->batch)
                if (conn->dead || !conn_receive(conn))
                        break;
}

static const struct session_link link_ops = {
        .send = conn_transmit,
        .drain = conn_drain,
        .hangup = conn_hang_up,
};

/* Reads some batches and looks at the time between them. A batch that alone took the whole budget was too
 * large. */
static void conn_converse(struct conn *conn, struct turn *turn) {
        uint64_t before = clock_now(), after;
        bool more = true;

        for (unsigned batch = 0; more && batch < BATCHES && !turn_is_over(turn); batch++) {
                more = !conn->dead && list_empty(&conn->queue) && conn_receive(conn);
                after = clock_now();
                turn_charge(turn, after - before);
                if (after - before >= TURN_BUDGET)
                        conn->batch = 1;
                else if (conn->batch * 2 <= conn->conns->batch_most)
                        conn->batch *= 2;
                before = after;
        }
}

/* The loop reports what is left again in its next pass. */
static void conn_on_ready(void *data, int fd, unsigned events) {
        struct conn *conn = data;
        struct turn *turn = &conn->charge.user->turn;
        uint64_t before;

        if (!turn_take(turn, loop_passes(conn->conns->loop), &conn->turn))
                return;
        if ((events & LOOP_WRITE) != 0 && !conn->dead) {
                before = clock_now();
                conn_flush(conn);
                turn_charge(turn, clock_now() - before);
        }
        if ((events & LOOP_READ) != 0)
                conn_converse(conn, turn);
}

static int conns_peer(const struct conns *conns, int sock, struct session_peer *ret) {
        struct ucred credentials;
        socklen_t size = sizeof(credentials);

        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
                return -errno;
        *ret = (struct session_peer){ .uid = credentials.uid,
                                      .gid = credentials.gid,
                                      .pid = credentials.pid };
        ret->in_admin_group =
                conns->has_admin_group && proc_peer_in_group(sock, credentials.gid, conns->admin_group);
        return 0;
}

static int conn_start(struct conn *conn, struct refusal *refusal) {
        int pidfd = proc_peer_pidfd(conn->sock);
        int r = 0;

        if (pidfd >= 0)
                r = charge_take(&conn->pidfd_charge, conn->conns->users, conn->peer.uid, ACCOUNT_FDS, 1,
                                refusal);
        if (r == 0)
                r = loop_io_new(conn->conns->loop, conn->sock, LOOP_READ, conn_on_ready, conn, &conn->io);
        if (r != 0) {
                closep(&pidfd);
                return r;
        }
        return session_new(conn->conns->sessions, &link_ops, conn, &conn->peer, pidfd >= 0 ? pidfd : -1,
                           &conn->session);
}

/* Strangers that share one uid would be one user to the daemon and reach each other's jobs. */
static int conns_check_uid(const struct conns *conns, const struct session_peer *peer,
                           struct refusal *refusal) {
        if (peer->uid != CONN_NOBODY || conns->allow_nobody || geteuid() == CONN_NOBODY)
                return 0;
        accounts_note(conns->users, ACCOUNT_DENIED);
        return refuse(
                refusal, WIRE__CODE__DENIED,
                "uid %u (nobody) stands for whoever has no uid of its own here, so it may not connect; run "
                "the program under a uid of its own, or set allow_nobody in section [daemon] of the "
                "daemon's configuration",
                CONN_NOBODY);
}

/* This uid may not connect, or has too many clients: the client is sent the reason, without a session. */
static void conn_turn_away(int sock, const struct session_peer *peer, const struct refusal *refusal) {
        Wire__Refused refused = WIRE__REFUSED__INIT;
        _cleanup_(freep) uint8_t *frame = malloc(FRAME_MAX);

        if (flood_admits(FLOOD_TURNED_AWAY, peer->uid, clock_now()))
                log_warning("client pid %d, uid %u is turned away: %s", (int)peer->pid, (unsigned)peer->uid,
                            refusal->text);
        if (frame == NULL)
                return;
        SET(refused, code, (Wire__Code)refusal->code);
        refused.text = (char *)refusal->text;
        ssize_t size = codec_pack(frame, WIRE__MESSAGE_TYPE__REFUSED, 0, 0, &refused.base);
        if (size > 0)
                fdpass_send(sock, frame, (size_t)size, NULL, 0);
}

/* Before anything is spent on it. */
static int conns_check_pace(struct conns *conns, const struct session_peer *peer, struct refusal *refusal) {
        struct user *user = user_get(conns->users, peer->uid);

        if (user == NULL)
                return -ENOMEM;
        if (pace_admits(&user->pace, conns->connects_per_uid, clock_now()))
                return 0;
        accounts_note(conns->users, ACCOUNT_TOO_FAST);
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "uid %u has opened more than %" PRIu64
                      " connections within a second: keep one open, or raise "
                      "connects_per_uid in section [limits] of the daemon's configuration",
                      (unsigned)peer->uid, conns->connects_per_uid);
}

static bool conns_admit(struct conns *conns, int sock, struct session_peer *ret) {
        struct refusal refusal;
        int r = conns_peer(conns, sock, ret);

        if (r == 0)
                r = conns_check_uid(conns, ret, &refusal);
        if (r == 0)
                r = conns_check_pace(conns, ret, &refusal);
        if (r > 0)
                conn_turn_away(sock, ret, &refusal);
        return r == 0;
}

bool conn_accept(struct conns *conns, int sock) {
        struct session_peer peer;
        struct refusal refusal;
        struct conn *conn = conns_admit(conns, sock, &peer) ? calloc(1, sizeof(*conn)) : NULL;

        if (conn == NULL) {
                closer_hang_up(conns->closer, sock);
                return false;
        }
        conn->conns = conns;
        conn->sock = sock;
        conn->batch = 1;
        conn->reap = (struct loop_deferred){ .fn = conn_reap, .data = conn };
        list_init(&conn->queue);
        list_append(&conns->list, &conn->link);
        conn->peer = peer;
        int r = charge_take(&conn->charge, conns->users, conn->peer.uid, ACCOUNT_CLIENTS, 1, &refusal);
        if (r == 0)
                r = charge_take(&conn->sock_charge, conns->users, conn->peer.uid, ACCOUNT_FDS, 1, &refusal);
        if (r == 0)
                r = conn_start(conn, &refusal);
        if (r > 0)
                conn_turn_away(sock, &conn->peer, &refusal);
        if (r < 0 && flood_admits(FLOOD_FAILED, conn->peer.uid, clock_now()))
                log_error("client pid %d, uid %u could not be accepted: %s", (int)conn->peer.pid,
                          (unsigned)conn->peer.uid, strerror(-r));
        if (r != 0)
                conn_free(conn);
        return r == 0;
}
