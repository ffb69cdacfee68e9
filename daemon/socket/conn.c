/* SPDX-License-Identifier: Apache-2.0 */
/* Reading drains the socket in batches. Packets that cannot be sent at once are queued, charged to the
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
#include "proto/codec.h"

#define BATCHES 4u          /* batches read from one client before other clients get their turn */
#define DRAIN_PACKETS 1024u /* more packets than a socket's buffer holds */
#define BATCH_SHARE 4u      /* the fds of one batch are at most this part of the process' limit */
#define OBJECTS 16384u      /* bytes for a session, its timers, what waits there, and what the kernel keeps */

struct unsent { /* a packet that waits to be sent */
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
        struct charge charge, own_charge, sock_charge, pidfd_charge;
        struct list queue;
        size_t queued;
        struct line_place place;
        uint64_t turn;   /* the next round of turns (turn.h) that it may take part in */
        unsigned batch;  /* packets that are read from it at a time: fewer while they cost much */
        unsigned unread; /* packets that its socket may still hold, once its process has ended */
        bool dead;       /* the session knows that it has ended; nothing more is read or sent */
        struct loop_deferred reap;
};

static void conn_serve(struct line_place *place);

static enum line_class conns_class(const struct line_queue *queue) {
        return user_class(container_of(queue, struct user, line));
}

/* Sets how many packets a batch may have. All fds that come with them must have room. */
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
        int r = line_init(&conns->line, loop, conn_serve, conns_class);
        if (r < 0)
                return r;
        conns->buffers = malloc((size_t)FDPASS_BATCH * FRAME_MAX);
        if (conns->buffers != NULL)
                return tidy_init(&conns->tidy, loop);
        line_deinit(&conns->line);
        return -ENOMEM;
}

static void unsent_free(struct unsent *packet) {
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
        struct unsent *packet, *spare;

        if (conn == NULL)
                return;
        loop_defer_cancel(conn->conns->loop, &conn->reap);
        session_free(conn->session);
        list_for_each_safe(packet, spare, &conn->queue, link)
                unsent_free(packet);
        loop_io_free(conn->io);
        if (conn->charge.user != NULL) {
                line_leave(&conn->charge.user->line, &conn->place);
                conn->charge.user->operators -= conn->peer.in_admin_group;
        }
        closer_hang_up(conn->conns->closer, conn->sock, conn->peer.uid); /* with all that lies unread in it */
        charge_release(&conn->pidfd_charge);
        charge_release(&conn->sock_charge);
        charge_release(&conn->own_charge);
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
        line_deinit(&conns->line);
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

/* Ends a connection that the client has not ended, and logs the reason. */
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
        session_given_up(conn->session, why);
}

/* Whether the client has closed the link. A process that sends at that moment gets ECONNREFUSED from kernels
 * before 6.2. */
static bool conn_is_closed(int error) {
        return error == 0 || error == -EPIPE || error == -ECONNRESET || error == -ECONNREFUSED;
}

/* Ends the link after `error`, a negative errno, or 0 if the client has closed the link. The session then
 * ends itself and hangs up. */
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

static int unsent_charge(const struct conn *conn, struct unsent *packet, size_t size, unsigned n_fds,
                         struct refusal *refusal) {
        struct users *users = conn->conns->users;
        int r = charge_take(&packet->charge, users, conn->peer.uid, ACCOUNT_OWN, sizeof(*packet) + size,
                            refusal);

        if (r == 0 && n_fds > 0)
                r = charge_take(&packet->fd_charge, users, conn->peer.uid, ACCOUNT_FDS, n_fds, refusal);
        return r;
}

static int unsent_keep_fds(struct unsent *packet, const int *fds, unsigned n_fds) {
        while (packet->n_fds < n_fds) {
                int fd = fcntl(fds[packet->n_fds], F_DUPFD_CLOEXEC, 0);

                if (fd < 0)
                        return -errno;
                packet->fds[packet->n_fds++] = fd;
        }
        return 0;
}

static void conn_enqueue(struct conn *conn, const void *frame, size_t size, const int *fds, unsigned n_fds) {
        struct unsent *packet;
        struct refusal refusal;

        if (conn->queued + size > CONN_QUEUE_MAX) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_WARNING,
                                "it does not read what is sent to it (%zu bytes wait)", conn->queued);
                return;
        }
        packet = calloc(1, sizeof(*packet) + size);
        if (packet != NULL)
                list_init(&packet->link);
        if (packet == NULL || unsent_charge(conn, packet, size, n_fds, &refusal) != 0) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_WARNING, "no room for what waits to be sent to it");
                unsent_free(packet);
                return;
        }
        int r = unsent_keep_fds(packet, fds, n_fds);
        if (r < 0) {
                conn_disconnect(conn, FLOOD_UNREAD, LOG_ERR,
                                "no file descriptor is left to keep one for it: %s", strerror(-r));
                unsent_free(packet);
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
                struct unsent *packet = list_entry(conn->queue.next, struct unsent, link);
                int r = fdpass_send(conn->sock, packet->data, packet->size, packet->fds, packet->n_fds);

                if (r == -EAGAIN)
                        return;
                if (r < 0) {
                        conn_fail(conn, r);
                        return;
                }
                conn->queued -= packet->size;
                unsent_free(packet);
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

/* Refuses further packets because too many descriptors of the user wait to be closed. Then no client of that
 * user is read from. */
static void conn_refuse_fds(struct conn *conn, const char *text) {
        if (flood_admits(FLOOD_PROTOCOL, conn->peer.uid, clock_now()))
                log_warning(
                        "client pid %d, uid %u is disconnected: descriptors that it, or others of this uid, "
                        "sent cannot be "
                        "closed: %s",
                        (int)conn->peer.pid, (unsigned)conn->peer.uid, text);
        session_refuse(conn->session, WIRE__CODE__QUOTA, text);
}

/* Refuses a packet because the daemon has no room for its fds. None of them must be received then. */
static void conn_refuse_room(struct conn *conn) {
        if (flood_admits(FLOOD_NO_FDS, conn->peer.uid, clock_now()))
                log_error(
                        "client pid %d, uid %u is disconnected: no file descriptors are left for those that "
                        "it sends; raise LimitNOFILE",
                        (int)conn->peer.pid, (unsigned)conn->peer.uid);
        session_refuse(conn->session, WIRE__CODE__QUOTA,
                       "the daemon has no file descriptors left for those that you send; try again, or have "
                       "LimitNOFILE of its service raised");
}

/* Closes an fd that the daemon does not use. */
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

/* Handles one packet. Returns false once nothing more is to be read from the client. */
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

/* Returns how many packets may be read. All fds that may come with them need room: the kernel would release
 * an fd for which no number is left, and would do so in this thread. */
static unsigned conn_room(const struct conn *conn) {
        const struct conns *conns = conn->conns;
        uint64_t used = accounts_total(conns->users, ACCOUNT_FDS) + CONN_OWN_FDS;
        uint64_t room = conns->fds_room > used ? (conns->fds_room - used) / FDPASS_FDS_MAX : 0;

        return conn->batch < room ? conn->batch : (unsigned)room;
}

/* Receives packets. Returns their number, at most *ret_most, or a negative errno: -EAGAIN if there is none,
 * or none is taken. */
static int conn_receive_packets(struct conn *conn, struct fdpass_packet *packets, unsigned *ret_most) {
        uint8_t byte;

        *ret_most = conn_room(conn);
        if (*ret_most == 0 && fdpass_peek(conn->sock, &byte, 1) == -EPROTO) {
                conn_refuse_room(conn);
                return -EAGAIN;
        }
        if (*ret_most == 0)
                *ret_most = 1;
        return fdpass_receive_dropping(conn->sock, packets, *ret_most, conn_drop_fd, conn);
}

/* Receives and handles one batch. Returns whether there may be more. */
static bool conn_receive(struct conn *conn) {
        struct fdpass_packet packets[FDPASS_BATCH];
        unsigned most;
        bool more = true;

        if (closer_is_overdrawn(conn->charge.user)) {
                conn_refuse_fds(
                        conn,
                        "too many of them wait for that; send none that is neither a memfd nor a pidfd");
                return false;
        }
        for (unsigned i = 0; i < FDPASS_BATCH; i++)
                packets[i] = (struct fdpass_packet){ .data = conn->conns->buffers + (size_t)i * FRAME_MAX };
        int n = conn_receive_packets(conn, packets, &most);
        if (n < 0 && n != -EAGAIN)
                conn_fail(conn, n);
        for (int i = 0; i < n; i++)
                more = conn_take(conn, &packets[i]) && more;
        return more && n == (int)most;
}

static void conn_stand_in_line(struct conn *conn) {
        loop_io_set(conn->io, 0);
        line_add(&conn->conns->line, &conn->charge.user->line, &conn->place);
}

/* Reads one batch of what the client has sent before its process ended. Then stands in line for the rest, or
 * tells the session that there is none. */
static void conn_drain_batch(struct conn *conn) {
        conn->batch = conn->conns->batch_most;
        bool more = !conn->dead && conn_receive(conn) && !conn->dead;

        conn->unread -= conn->unread < conn->batch ? conn->unread : conn->batch;
        if (more && conn->unread > 0)
                conn_stand_in_line(conn);
        else
                session_drained(conn->session);
}

/* Reads what a client has sent that is dead by now. A child of it may go on sending, so only as much is read
 * as a socket can hold. */
static void conn_drain(void *link) {
        struct conn *conn = link;

        conn->unread = DRAIN_PACKETS;
        conn_drain_batch(conn);
}

static const struct session_link link_ops = {
        .send = conn_transmit,
        .drain = conn_drain,
        .hangup = conn_hang_up,
};

/* Sends packets that wait, or reads some batches and looks at the time between them. A batch that alone took
 * a whole budget was too large. A client in steps that asks for something else is not read on: the rest
 * stands in line. Returns the time taken, in us. */
static uint64_t conn_converse(struct conn *conn, uint64_t budget, bool stepping) {
        uint64_t begin = clock_now(), before = begin, after = begin;
        bool more = true;

        if (conn->unread > 0) {
                conn_drain_batch(conn);
                return clock_now() - begin;
        }

        if (!list_empty(&conn->queue) && !conn->dead)
                conn_flush(conn);
        for (unsigned batch = 0; more && batch < BATCHES && after - begin < budget; batch++) {
                more = !conn->dead && list_empty(&conn->queue) && conn_receive(conn);
                after = clock_now();
                if (after - before >= TURN_BUDGET)
                        conn->batch = 1;
                else if (conn->batch * 2 <= conn->conns->batch_most)
                        conn->batch *= 2;
                before = after;
                if (stepping && !session_is_stepping(conn->session)) {
                        conn->batch = 1;
                        break;
                }
        }
        return after - begin;
}

/* Serves a connection that has stood in line. The loop has not reported it meanwhile, and does so again from
 * now on. */
static void conn_serve(struct line_place *place) {
        struct conn *conn = container_of(place, struct conn, place);

        if (conn->dead)
                return;
        line_charge(&conn->conns->line, &conn->charge.user->line, conn_converse(conn, LINE_BUDGET, false));
        if (!conn->dead && conn->unread == 0)
                loop_io_set(conn->io, list_empty(&conn->queue) ? LOOP_READ : LOOP_WRITE);
}

static void conn_ask(struct conn *conn) {
        struct line *line = &conn->conns->line;
        struct line_queue *queue = &conn->charge.user->line;
        uint64_t left = line_left(line, queue);

        if (left > 0) {
                line_charge(line, queue, conn_converse(conn, left, false));
                return;
        }
        conn_stand_in_line(conn);
}

/* Serves a connection that can be read or written. The loop reports what is left again in its next pass. */
static void conn_on_ready(void *data, int fd, unsigned events) {
        struct conn *conn = data;
        struct turn *turn = &conn->charge.user->turn;

        if (conn->dead)
                return;
        if (!session_is_stepping(conn->session)) {
                conn_ask(conn);
                return;
        }
        line_stepped(&conn->conns->line);
        if (turn_take(turn, loop_passes(conn->conns->loop), &conn->turn))
                turn_charge(turn, conn_converse(conn, turn_left(turn), true));
}

static int conns_peer(const struct conns *conns, int sock, struct session_peer *ret) {
        struct ucred credentials;
        int r = proc_peer(sock, &credentials);

        if (r < 0)
                return r;
        *ret = (struct session_peer){ .uid = credentials.uid,
                                      .gid = credentials.gid,
                                      .pid = credentials.pid };
        ret->in_admin_group =
                conns->has_admin_group && proc_peer_in_group(sock, credentials.gid, conns->admin_group);
        return 0;
}

/* Returns the bytes that a connection costs. Data that the client does not read lies in the kernel's buffer,
 * which takes one more packet when it is almost full. That memory is charged to the sender, the daemon. */
static uint64_t conn_bytes(int sock) {
        int buffer = 0;
        socklen_t size = sizeof(buffer);

        getsockopt(sock, SOL_SOCKET, SO_SNDBUF, &buffer, &size);
        return sizeof(struct conn) + OBJECTS + (unsigned)buffer + FRAME_MAX;
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

/* Refuses uid 65534 unless it is allowed. Strangers that share this uid would be one user to the daemon and
 * reach each other's jobs. */
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

/* Sends the client the reason why it is turned away, without a session: its uid may not connect, or has too
 * many clients. */
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

/* Checks how fast the uid connects, before anything is spent on the connection. */
static int conns_check_pace(struct conns *conns, const struct session_peer *peer, struct refusal *refusal) {
        struct user *user = user_get(conns->users, peer->uid);

        if (user == NULL)
                return -ENOMEM;
        if (token_bucket_take(&user->pace, conns->connects_per_uid, clock_now()))
                return 0;
        accounts_note(conns->users, ACCOUNT_TOO_FAST);
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "uid %u has opened more than %" PRIu64
                      " connections within a second: keep one open, or raise "
                      "connects_per_uid in section [limits] of the daemon's configuration",
                      (unsigned)peer->uid, conns->connects_per_uid);
}

/* Checks whether one more user may be present. Trusted users always get in. */
static int conns_check_room(const struct conns *conns, const struct session_peer *peer,
                            struct refusal *refusal) {
        if (peer->in_admin_group || user_is_trusted(NULL, peer->uid))
                return 0;
        return accounts_check_uid(conns->users, peer->uid, refusal);
}

static bool conns_admit(struct conns *conns, int sock, struct session_peer *ret) {
        struct refusal refusal;
        int r = conns_peer(conns, sock, ret);

        if (r == 0)
                r = conns_check_uid(conns, ret, &refusal);
        if (r == 0)
                r = conns_check_pace(conns, ret, &refusal);
        if (r == 0)
                r = conns_check_room(conns, ret, &refusal);
        if (r > 0)
                conn_turn_away(sock, ret, &refusal);
        return r == 0;
}

void conn_shed(struct conns *conns, int sock) {
        struct session_peer peer = { .uid = CONN_NOBODY };

        conns_peer(conns, sock, &peer);
        closer_hang_up(conns->closer, sock, peer.uid);
}

bool conn_accept(struct conns *conns, int sock) {
        struct session_peer peer = { .uid = CONN_NOBODY };
        struct refusal refusal;
        struct conn *conn = conns_admit(conns, sock, &peer) ? calloc(1, sizeof(*conn)) : NULL;

        if (conn == NULL) {
                closer_hang_up(conns->closer, sock, peer.uid);
                return false;
        }
        conn->conns = conns;
        conn->sock = sock;
        conn->batch = 1;
        conn->reap = (struct loop_deferred){ .fn = conn_reap, .data = conn };
        list_init(&conn->queue);
        line_place_init(&conn->place);
        list_append(&conns->list, &conn->link);
        conn->peer = peer;
        int r = charge_take(&conn->charge, conns->users, conn->peer.uid, ACCOUNT_CLIENTS, 1, &refusal);
        if (r == 0)
                conn->charge.user->operators += peer.in_admin_group;
        if (r == 0)
                r = charge_take(&conn->own_charge, conns->users, conn->peer.uid, ACCOUNT_OWN,
                                conn_bytes(sock), &refusal);
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
