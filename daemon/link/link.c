/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection goes through these states: CONNECTING and SHAKING, only if it was dialled, because accepted
 * connections have proved themselves before they come here; GREETING, in which both ends say who they are;
 * UP; and DEAD, in which it waits for the end of the loop pass to be freed. While a connection with TLS is
 * SHAKING, the door has its socket, and this file neither uses nor ends it. Bytes that are read are bytes of
 * the wire first, then, through TLS or as they are, bytes of frames.
 */
#include "link/link_private.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/proc.h"
#include "link.pb-c.h"
#include "proto/frame.h"
#include "proto/names.h"

#define TYPE_HELLO 1u
#define TYPE_PING 2u
#define TYPE_PONG 3u
#define TYPE_REFUSED 4u
#define PULSE USEC_PER_SEC /* time between two pings */
#define HELLO_MOST 1024u   /* bytes of a frame before UP, and of any frame of this layer */
#define REFUSED_MOST 1000u
#define STRANGERS 64u                     /* accepted connections that have not said who they are */
#define UNSENT (8u << 20)                 /* bytes that may wait for a peer */
#define READS 8u                          /* reads of READ_BYTES from one peer in one pass */
#define AGAIN_FIRST (100 * USEC_PER_MSEC) /* delay after the first failed dial */
#define AGAIN_MOST (5 * USEC_PER_SEC)     /* the longest delay */
#define BACKLOG 1024
#define CROWD_QUIET (10 * USEC_PER_SEC)  /* a crowd is over after such a time without another connection */
#define EXPIRY_LOOK (600 * USEC_PER_SEC) /* longest time between two looks: the host's clock may be set */

/* ---- bytes ---- */

static int bytes_add(struct bytes *bytes, const void *data, size_t length) {
        size_t used = bytes->end - bytes->begin, room = bytes->room > 0 ? bytes->room : 4096;

        if (bytes->begin > 0 && bytes->room - bytes->end < length) {
                memmove(bytes->data, bytes->data + bytes->begin, used);
                bytes->begin = 0;
                bytes->end = used;
        }
        if (bytes->room - bytes->end < length) {
                while (room - used < length)
                        room *= 2;
                uint8_t *more = realloc(bytes->data, room);
                if (more == NULL)
                        return -ENOMEM;
                bytes->data = more;
                bytes->room = room;
        }
        if (length > 0)
                memcpy(bytes->data + bytes->end, data, length);
        bytes->end += length;
        return 0;
}

static size_t bytes_left(const struct bytes *bytes) {
        return bytes->end - bytes->begin;
}

static void bytes_skip(struct bytes *bytes, size_t length) {
        bytes->begin += length;
        if (bytes->begin == bytes->end)
                bytes->begin = bytes->end = 0;
}

/* ---- the end of a connection ---- */

static void dial_later(struct links *links);

static void peer_free(struct peer *peer) {
        struct links *links = peer->links;

        loop_defer_cancel(links->config.loop, &peer->reap);
        loop_timer_free(peer->deadline);
        loop_io_free(peer->io);
        close(peer->sock);
        tls_free(peer->tls);
        free(peer->in.data);
        free(peer->out.data);
        list_remove(&peer->link);
        free(peer);
}

static void dial_note(struct links *links, const char *why) {
        struct dial *dial = &links->dial;

        dial->failed = true;
        snprintf(dial->trouble, sizeof(dial->trouble), "%s", why);
        if (strcmp(dial->trouble, dial->logged) == 0)
                return; /* logged already */
        strcpy(dial->logged, dial->trouble);
        log_warning("no connection to the coordinator at %s: %s", dial->address.text, dial->trouble);
}

/* Logs a connection that was refused. Any host that reaches the port can cause this, so only the first ones
 * of a burst are named. */
static void log_turned_away(const char *name, const char *why) {
        if (flood_admits(FLOOD_STRANGERS, FLOOD_NO_UID, clock_now()))
                log_warning("%s was turned away: %s", name, why);
}

static void crowd_note(struct links *links, const char *name, unsigned count) {
        const struct door_limits *limits = &links->config.limits;
        struct crowd *crowd = &links->crowd;

        if (crowd->since == 0) {
                log_warning(
                        "%s was turned away: more connections come than can prove themselves (%u at once, "
                        "%" PRIu64 " a second from one address, %" PRIu64 " together); others are counted",
                        name, DOOR_PLACES, limits->per_address, limits->together);
                crowd->since = clock_now();
        }
        crowd->count += count;
        loop_timer_arm(crowd->quiet, CROWD_QUIET);
}

static void crowd_on_quiet(void *data) {
        struct links *links = data;
        struct crowd *crowd = &links->crowd;

        log_warning("%" PRIu64 " connections were turned away within %.0f s", crowd->count,
                    (double)(clock_now() - crowd->since) / USEC_PER_SEC);
        crowd->since = crowd->count = 0;
}

static void peer_on_reap(void *data) {
        struct peer *peer = data;
        struct links *links = peer->links;

        links->stats.ends += peer->told;
        if (!peer->told && !peer->dialled)
                links->stats.refused[peer->refusal != LINK_NOT_REFUSED ? peer->refusal : LINK_REFUSED_LATE]++;
        if (peer->told)
                links->config.events->down(links->config.owner, peer, peer->why);
        if (links->dial.peer == peer) {
                links->dial.peer = NULL;
                if (peer->told)
                        links->dial.down_since = clock_now();
                dial_note(links, peer->why);
                dial_later(links);
        } else if (!peer->told) {
                log_turned_away(peer->name, peer->why);
        }
        peer_free(peer);
}

static void peer_set_state(struct peer *peer, enum peer_state state) {
        if (!peer->dialled && peer->state < UP && state >= UP)
                peer->links->strangers--;
        peer->state = state;
}

static void peer_hang_up(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void peer_hang_up(struct peer *peer, const char *format, ...) {
        va_list arguments;

        if (peer->state == DEAD)
                return;
        va_start(arguments, format);
        vsnprintf(peer->why, sizeof(peer->why), format, arguments);
        va_end(arguments);
        peer_set_state(peer, DEAD);
        loop_io_set(peer->io, 0);
        loop_defer(peer->links->config.loop, &peer->reap);
}

/* ---- sending ---- */

static void peer_flush(struct peer *peer) {
        while (bytes_left(&peer->out) > 0 && peer->state != DEAD) {
                ssize_t n = send(peer->sock, peer->out.data + peer->out.begin, bytes_left(&peer->out),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno != EAGAIN)
                        peer_hang_up(peer, "it cannot be reached any more: %s", strerror(errno));
                if (n < 0)
                        break;
                bytes_skip(&peer->out, (size_t)n);
        }
        if (peer->state != DEAD)
                loop_io_set(peer->io, LOOP_READ | (bytes_left(&peer->out) > 0 ? LOOP_WRITE : 0));
}

/* Queues the bytes that TLS has for the wire. */
static void peer_drain_tls(struct peer *peer) {
        uint8_t part[4096];
        size_t n;

        while (peer->tls != NULL && (n = tls_drain(peer->tls, part, sizeof(part))) > 0)
                if (bytes_add(&peer->out, part, n) < 0)
                        peer_hang_up(peer, "there is no memory for what it is to be sent");
}

static void peer_put(struct peer *peer, const void *bytes, size_t length) {
        int r = peer->tls != NULL ? tls_write(peer->tls, bytes, length)
                                  : bytes_add(&peer->out, bytes, length);

        if (r < 0)
                peer_hang_up(peer, "nothing can be sent to it: %s", strerror(-r));
}

static void peer_send_frame(struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                            size_t length) {
        struct frame_header header = {
                .major = FRAME_MAJOR, .type = (uint16_t)type, .length = (uint32_t)length, .request = about
        };
        uint8_t head[FRAME_HEADER];

        frame_encode(head, &header);
        peer->sent += sizeof(head) + length;
        peer->links->stats.sent += sizeof(head) + length;
        peer_put(peer, head, sizeof(head));
        peer_put(peer, bytes, length);
        peer_drain_tls(peer);
        if (bytes_left(&peer->out) > UNSENT)
                peer_hang_up(peer, "it does not take what it is sent: %u MiB wait for it", UNSENT >> 20);
        peer_flush(peer);
}

void peer_send(struct peer *peer, unsigned type, uint32_t about, const void *bytes, size_t length) {
        if (peer->state == UP && length <= LINK_PAYLOAD)
                peer_send_frame(peer, type, about, bytes, length);
}

static void peer_greet(struct peer *peer) {
        const struct links_config *config = &peer->links->config;
        Link__Hello hello = LINK__HELLO__INIT;
        uint8_t out[HELLO_MOST];

        hello.major = LINK_MAJOR;
        hello.minor = LINK_MINOR;
        hello.node = (ProtobufCBinaryData){ LINK_NODE, (uint8_t *)config->node };
        hello.instance = config->instance;
        hello.role = peer->dialled ? LINK_NODE_ROLE : LINK_COORDINATOR;
        hello.release = (char *)config->release;
        hello.host = (char *)config->host;
        hello.run = config->run;
        peer_send_frame(peer, TYPE_HELLO, 0, out, link__hello__pack(&hello, out));
}

static void peer_ping(struct peer *peer) {
        Link__Ping ping = LINK__PING__INIT;
        uint8_t out[32];

        if (peer->state != UP)
                return;
        ping.sent = clock_now();
        peer_send_frame(peer, TYPE_PING, 0, out, link__ping__pack(&ping, out));
}

static void links_on_pulse(void *data) {
        struct links *links = data;
        struct peer *peer;

        list_for_each(peer, &links->peers, link)
                peer_ping(peer);
        loop_timer_arm(links->pulse, PULSE);
}

/* ---- receiving ---- */

/* Returns the other connection with the same daemon, or with one that has its id; NULL if there is none. */
static struct peer *peer_find_other(const struct peer *peer) {
        struct peer *other;

        list_for_each(other, &peer->links->peers, link)
                if (other != peer && other->state == UP && other->dialled == peer->dialled &&
                    memcmp(other->node, peer->node, LINK_NODE) == 0)
                        return other;
        return NULL;
}

/* Decides whether a peer may be that daemon although there is another connection with its id. Returns NULL,
 * or why it may not. The connection of a daemon that has been restarted ends with its process, or falls
 * silent with its host. */
static const char *peer_judge_other(struct peer *peer) {
        struct peer *other = peer_find_other(peer);
        char *why = peer->links->why;

        if (other == NULL)
                return NULL;
        if (other->run == peer->run || clock_now() >= other->heard + peer->links->config.silence) {
                peer_hang_up(other, "the same daemon has connected again");
                return NULL;
        }
        snprintf(
                why, sizeof(peer->links->why),
                "a daemon with the same id is connected from %s (host '%s'), and lives: the state directory "
                "of one is a copy of the other's. Stop one, remove the identity file from its directory, and "
                "start it again: it is a new node then",
                other->name, other->host);
        return why;
}

static void peer_note_hello(struct peer *peer, const Link__Hello *hello) {
        memcpy(peer->node, hello->node.data, LINK_NODE);
        peer->instance = hello->instance;
        peer->run = hello->run;
        snprintf(peer->release, sizeof(peer->release), "%s",
                 name_valid(hello->release) ? hello->release : "of an unknown release");
        if (name_valid(hello->host))
                snprintf(peer->host, sizeof(peer->host), "%s", hello->host);
}

static const char *peer_judge_hello(struct peer *peer, const Link__Hello *hello) {
        enum link_role expected = peer->dialled ? LINK_COORDINATOR : LINK_NODE_ROLE;
        const struct links_config *config = &peer->links->config;
        const char *why = NULL;

        peer->refusal = hello->major != LINK_MAJOR ? LINK_REFUSED_VERSION : LINK_REFUSED_IDENTITY;
        if (hello->major != LINK_MAJOR) {
                snprintf(peer->links->why, sizeof(peer->links->why),
                         "gradsyncd %.64s on host '%.64s' speaks version %u of the protocol between daemons, "
                         "gradsyncd %s version %u: use one release",
                         name_valid(hello->release) ? hello->release : "?",
                         name_valid(hello->host) ? hello->host : "?", hello->major, config->release,
                         LINK_MAJOR);
                return peer->links->why;
        }
        if (hello->node.len != LINK_NODE)
                return "it does not say which daemon it is";
        if (memcmp(hello->node.data, config->node, LINK_NODE) == 0)
                return "it has this daemon's own id: this is a connection with itself, or the id was copied "
                       "with its state directory";
        if (hello->role != expected)
                return "it plays the wrong part";
        peer_note_hello(peer, hello);
        if (!peer->dialled && config->events->admit != NULL)
                why = config->events->admit(config->owner, peer, peer->node);
        return why != NULL ? why : peer_judge_other(peer);
}

/* Tells the other end why it is refused, if it still reads. */
static void peer_refuse(struct peer *peer, const char *why) {
        Link__Refused refused = LINK__REFUSED__INIT;
        uint8_t out[REFUSED_MOST];
        char text[REFUSED_MOST - 8];

        snprintf(text, sizeof(text), "%s", why);
        utf8_cut(text);
        refused.why = text;
        peer_send_frame(peer, TYPE_REFUSED, 0, out, link__refused__pack(&refused, out));
}

static void peer_on_refused(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        Link__Refused *refused = link__refused__unpack(NULL, header->length, payload);

        peer_hang_up(peer, "it refuses this daemon: %s",
                     refused != NULL && utf8_valid(refused->why, strlen(refused->why))
                             ? refused->why
                             : "it does not say why");
        if (refused != NULL)
                link__refused__free_unpacked(refused, NULL);
}

static void peer_on_hello(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        const struct links_config *config = &peer->links->config;
        Link__Hello *hello;

        peer->refusal = LINK_REFUSED_PROTOCOL;
        if (header->type == TYPE_REFUSED && peer->dialled) {
                peer_on_refused(peer, header, payload);
                return;
        }
        if (header->type != TYPE_HELLO) {
                peer_hang_up(peer, "it does not say who it is");
                return;
        }
        hello = link__hello__unpack(NULL, header->length, payload);
        const char *why = hello != NULL ? peer_judge_hello(peer, hello) : "its greeting is malformed";
        if (hello != NULL)
                link__hello__free_unpacked(hello, NULL);
        if (why != NULL) {
                peer_refuse(peer, why);
                peer_hang_up(peer, "%s", why);
                return;
        }
        if (!peer->dialled)
                peer_greet(peer);
        if (peer->state == DEAD)
                return;
        peer->deadline = loop_timer_free(peer->deadline);
        peer_set_state(peer, UP);
        peer->told = true;
        peer->refusal = LINK_NOT_REFUSED;
        peer->up_since = clock_now();
        peer->links->stats.connects++;
        if (peer == peer->links->dial.peer) {
                peer->links->dial.wait = 0;
                peer->links->dial.trouble[0] = peer->links->dial.logged[0] = '\0';
        }
        config->events->up(config->owner, peer);
        peer_ping(peer);
}

static void peer_on_ping(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        Link__Ping *ping = link__ping__unpack(NULL, header->length, payload);
        Link__Pong pong = LINK__PONG__INIT;
        uint8_t out[64];

        if (ping == NULL)
                return;
        pong.sent = ping->sent;
        pong.clock = clock_now();
        pong.wall = clock_read(CLOCK_REALTIME);
        link__ping__free_unpacked(ping, NULL);
        peer_send_frame(peer, TYPE_PONG, 0, out, link__pong__pack(&pong, out));
}

static void peer_on_pong(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        Link__Pong *pong = link__pong__unpack(NULL, header->length, payload);

        if (pong == NULL)
                return;
        pulse_add(&peer->pulse, pong->sent, clock_now(), clock_read(CLOCK_REALTIME), pong->clock, pong->wall);
        link__pong__free_unpacked(pong, NULL);
}

/* Handles frames of this layer. A type that is not known is of a newer version, and is ignored. */
static void peer_on_own(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        if (header->length > HELLO_MOST)
                return;
        if (header->type == TYPE_REFUSED && peer->dialled)
                peer_on_refused(peer, header, payload);
        else if (header->type == TYPE_PING)
                peer_on_ping(peer, header, payload);
        else if (header->type == TYPE_PONG)
                peer_on_pong(peer, header, payload);
}

static void peer_on_frame(struct peer *peer, const struct frame_header *header, const uint8_t *payload) {
        const struct links_config *config = &peer->links->config;
        const char *why = NULL;

        peer->heard = clock_now();
        peer->received += FRAME_HEADER + header->length;
        peer->links->stats.received += FRAME_HEADER + header->length;
        if (peer->state == GREETING)
                peer_on_hello(peer, header, payload);
        else if (header->type >= LINK_FIRST_TYPE)
                why = config->events->frame(config->owner, peer, header->type, header->request, payload,
                                            header->length);
        else
                peer_on_own(peer, header, payload);
        if (why != NULL) {
                peer_refuse(peer, why);
                peer_hang_up(peer, "what it sends is refused: %s", why);
        }
}

/* Takes a part of the stream of frames, and handles those that are complete. */
static void peer_take_stream(struct peer *peer, const uint8_t *data, size_t length) {
        struct frame_header header;

        if (bytes_add(&peer->in, data, length) < 0)
                peer_hang_up(peer, "there is no memory for what it sends");
        while (peer->state != DEAD && bytes_left(&peer->in) >= FRAME_HEADER) {
                const uint8_t *at = peer->in.data + peer->in.begin;
                enum frame_verdict verdict =
                        frame_decode_header(at, peer->state == UP ? LINK_PAYLOAD : HELLO_MOST, &header);

                if (verdict == FRAME_OK && header.fds > 0)
                        verdict = FRAME_BAD_FDS;
                if (verdict != FRAME_OK) {
                        peer->refusal = LINK_REFUSED_PROTOCOL;
                        peer_hang_up(peer, "%s", frame_verdict_text(verdict));
                        return;
                }
                if (bytes_left(&peer->in) - FRAME_HEADER < header.length)
                        return;
                peer_on_frame(peer, &header, at + FRAME_HEADER);
                bytes_skip(&peer->in, FRAME_HEADER + header.length);
        }
}

static void peer_take_wire(struct peer *peer, const uint8_t *data, size_t length) {
        ssize_t n = 0;
        uint8_t plain[16384];

        if (peer->tls == NULL) {
                peer_take_stream(peer, data, length);
                return;
        }
        if (tls_feed(peer->tls, data, length) < 0)
                peer_hang_up(peer, "there is no memory for what it sends");
        while (peer->state != DEAD && (n = tls_read(peer->tls, plain, sizeof(plain))) > 0)
                peer_take_stream(peer, plain, (size_t)n);
        if (n < 0)
                peer_hang_up(peer, "%s", n == -EPIPE ? "it has hung up" : tls_why(peer->tls));
}

static void peer_read(struct peer *peer) {
        struct links *links = peer->links;

        for (unsigned i = 0; i < READS && peer->state != DEAD; i++) {
                ssize_t n = recv(peer->sock, links->buffer, sizeof(links->buffer), MSG_DONTWAIT);

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n < 0)
                        peer_hang_up(peer, "it cannot be reached any more: %s", strerror(errno));
                else if (n == 0)
                        peer_hang_up(peer, "it has hung up");
                else
                        peer_take_wire(peer, links->buffer, (size_t)n);
        }
}

/* ---- the beginning of a connection ---- */

/* Begins the greeting. The other end has proved itself, as far as it has to, and may have said something
 * already. The end that has dialled greets first, so that a daemon that is refused gets the reason instead of
 * a greeting. */
static void peer_begin(struct peer *peer) {
        uint8_t nothing = 0;

        loop_io_set(peer->io, LOOP_READ);
        peer_set_state(peer, GREETING);
        if (peer->dialled)
                peer_greet(peer);
        if (peer->tls != NULL && peer->state != DEAD)
                peer_take_wire(peer, &nothing, 0);
}

static void dial_prove(struct peer *peer);

static void peer_on_ready(void *data, int fd, unsigned events) {
        struct peer *peer = data;
        int error = 0;
        socklen_t length = sizeof(error);

        if (peer->state == CONNECTING) {
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
                if (error != 0)
                        peer_hang_up(peer, "%s", strerror(error));
                else
                        dial_prove(peer);
                return;
        }
        if (events & LOOP_READ)
                peer_read(peer);
        if (events & LOOP_WRITE && peer->state != DEAD)
                peer_flush(peer);
}

static void peer_on_deadline(void *data) {
        peer_hang_up(data, "it has not said in time who it is");
}

/* Sets options that let a broken connection be noticed even while neither end sends. */
static void peer_set_options(const struct peer *peer) {
        unsigned silence = (unsigned)(peer->links->config.silence / USEC_PER_MSEC);
        int on = 1, every = 1, idle = 2, probes = (int)(silence / 1000) + 1;

        setsockopt(peer->sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(peer->sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        setsockopt(peer->sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        setsockopt(peer->sock, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
        setsockopt(peer->sock, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
        setsockopt(peer->sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
}

/* Makes a peer. Takes the socket and `tls` (NULL if none) in any case. */
static int peer_new(struct links *links, int sock, struct tls *tls, bool dialled, bool local,
                    struct peer **ret) {
        struct peer *peer = calloc(1, sizeof(*peer));

        if (peer == NULL) {
                close(sock);
                tls_free(tls);
                return -ENOMEM;
        }
        *peer = (struct peer){
                .links = links, .sock = sock, .tls = tls, .dialled = dialled, .local = local, .uid = (uid_t)-1
        };
        peer->reap = (struct loop_deferred){ .fn = peer_on_reap, .data = peer };
        list_init(&peer->link);
        if (!local)
                peer_set_options(peer);
        int r = loop_timer_new(links->config.loop, peer_on_deadline, peer, &peer->deadline);
        if (r == 0)
                r = loop_io_new(links->config.loop, sock, LOOP_READ, peer_on_ready, peer, &peer->io);
        if (r < 0) {
                peer_free(peer);
                return r;
        }
        loop_timer_arm(peer->deadline, links->config.limits.patience);
        links->strangers += !dialled;
        list_append(&links->peers, &peer->link);
        *ret = peer;
        return 0;
}

/* Checks the process at the other end of a Unix socket, which the kernel names. Hangs up if it may not
 * connect. */
static bool peer_check_local(struct peer *peer) {
        struct ucred who;
        int r = proc_peer(peer->sock, &who);

        if (r < 0) {
                peer_hang_up(peer, "the kernel does not say whose process it is: %s", strerror(-r));
                return false;
        }
        peer->uid = who.uid;
        if (!peer->dialled)
                snprintf(peer->name, sizeof(peer->name), "pid %d of uid %u on a Unix socket", (int)who.pid,
                         (unsigned)who.uid);
        if (who.uid == 0 || who.uid == geteuid())
                return true;
        peer->refusal = LINK_REFUSED_UID;
        peer_hang_up(peer, "it belongs to uid %u, and only root's and uid %u's daemons may connect",
                     (unsigned)who.uid, (unsigned)geteuid());
        return false;
}

/* ---- dialling ---- */

static void dial_try(struct links *links);

static void dial_on_again(void *data) {
        dial_try(data);
}

/* Dials again after a delay. It is partly random, so that the nodes of a coordinator that has come back do
 * not all come at once. */
static void dial_later(struct links *links) {
        struct dial *dial = &links->dial;
        uint32_t chance = 0;

        dial->wait = dial->wait == 0               ? AGAIN_FIRST
                     : 2 * dial->wait < AGAIN_MOST ? 2 * dial->wait
                                                   : AGAIN_MOST;
        (void)!getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
        loop_timer_arm(dial->again, dial->wait / 2 + chance % (dial->wait / 2 + 1));
}

static void dial_fail(struct links *links, const char *why) {
        dial_note(links, why);
        dial_later(links);
}

static int links_open_door(struct links *links);

/* Lets a dialled connection prove itself. The door has the connection from now on, until it reports the
 * result. */
static void dial_prove(struct peer *peer) {
        struct links *links = peer->links;
        struct tls *tls;

        links->dial.met = true;
        if (peer->local || links->tls == NULL) {
                peer_begin(peer);
                return;
        }
        int r = links_open_door(links);
        if (r == 0)
                r = tls_new(links->tls, links->config.keys, false, &tls);
        if (r < 0) {
                peer_hang_up(peer, "%s",
                             r == -ENOKEY ? "no key of key_file is in force any more" : strerror(-r));
                return;
        }
        loop_io_set(peer->io, 0);
        loop_timer_disarm(peer->deadline);
        peer_set_state(peer, SHAKING);
        door_shake(links->door, ++links->dial.id, peer->sock, tls);
}

static void dial_on_proved(struct links *links, const struct door_result *result) {
        struct peer *peer = links->dial.peer;

        if (peer == NULL || peer->state != SHAKING || result->id != links->dial.id) {
                tls_free(result->tls);
                return;
        }
        peer->tls = result->tls;
        if (result->outcome == DOOR_FAILED) {
                peer_hang_up(peer, "%s", result->why);
                return;
        }
        loop_timer_arm(peer->deadline, links->config.limits.patience);
        peer_begin(peer);
}

static void dial_connect(struct links *links, const struct sockaddr_storage *address, socklen_t length) {
        struct dial *dial = &links->dial;
        bool local = address->ss_family == AF_UNIX;
        int sock = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

        dial->met = false;
        if (sock < 0) {
                dial_fail(links, strerror(errno));
                return;
        }
        r = peer_new(links, sock, NULL, true, local, &dial->peer);
        if (r < 0) {
                dial_fail(links, strerror(-r));
                return;
        }
        snprintf(dial->peer->name, sizeof(dial->peer->name), "the coordinator at %s", dial->address.text);
        if (connect(sock, (const struct sockaddr *)address, length) == 0) {
                if (!local || peer_check_local(dial->peer))
                        dial_prove(dial->peer);
        } else if (errno == EINPROGRESS) {
                loop_io_set(dial->peer->io, LOOP_WRITE);
        } else {
                peer_hang_up(dial->peer, "%s", strerror(errno));
        }
}

static void dial_on_resolved(void *data, int r, const struct sockaddr_storage *address, socklen_t length,
                             const char *error) {
        struct links *links = data;

        links->dial.resolver = resolver_free(links->dial.resolver);
        if (r < 0)
                dial_fail(links, error);
        else
                dial_connect(links, address, length);
}

static void dial_try(struct links *links) {
        struct dial *dial = &links->dial;
        struct sockaddr_storage address;
        socklen_t length;
        int r = address_resolve_here(&dial->address, false, &address, &length);

        if (r == 0) {
                dial_connect(links, &address, length);
                return;
        }
        if (r == -ENOENT)
                r = resolver_new(links->config.loop, &dial->address, dial_on_resolved, links,
                                 &dial->resolver);
        if (r < 0)
                dial_fail(links, strerror(-r));
}

/* ---- listening ---- */

static void links_take(struct links *links, int sock, struct tls *tls,
                       const struct sockaddr_storage *address) {
        const struct key *key = tls != NULL ? tls_key(tls) : NULL;
        char name[ADDRESS_TEXT];
        struct peer *peer;

        address_format(address, name, sizeof(name));
        if (links->strangers >= STRANGERS) {
                crowd_note(links, name, 1);
                links->stats.refused[LINK_REFUSED_MANY]++;
                close(sock);
                tls_free(tls);
                return;
        }
        if (peer_new(links, sock, tls, false, address->ss_family == AF_UNIX, &peer) < 0)
                return;
        snprintf(peer->name, sizeof(peer->name), "%s", name);
        if (key != NULL && keys_still_have(links->config.keys, key, time(NULL)) == NULL)
                peer_hang_up(peer, "its key '%s' is not in force any more", key->name);
        else if (!peer->local || peer_check_local(peer))
                peer_begin(peer);
}

static void listener_on_ready(void *data, int fd, unsigned events) {
        struct link_listener *listener = data;
        struct sockaddr_storage address = { .ss_family = AF_UNIX };
        int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (sock >= 0)
                links_take(listener->links, sock, NULL, &address);
}

static void links_on_door(void *data, const struct door_result *result) {
        struct links *links = data;
        char name[ADDRESS_TEXT];

        address_format(&result->address, name, sizeof(name));
        switch (result->outcome) {
        case DOOR_PASSED: links_take(links, result->sock, result->tls, &result->address); break;
        case DOOR_SHAKEN:
        case DOOR_FAILED: dial_on_proved(links, result); break;
        case DOOR_TURNED_AWAY:
                links->stats.refused[LINK_REFUSED_KEY]++;
                log_turned_away(name, result->why);
                break;
        case DOOR_CROWDED:
                links->stats.refused[LINK_REFUSED_MANY] += result->count;
                crowd_note(links, name, result->count);
                break;
        }
}

static int links_open_door(struct links *links) {
        struct door_config config = {
                .loop = links->config.loop, .tls = links->tls, .fn = links_on_door, .data = links
        };

        return links->door != NULL
                       ? 0
                       : door_new(&config, links->config.keys, &links->config.limits, &links->door);
}

int links_accept_on(struct links *links, int fd) {
        struct link_listener *listener = calloc(1, sizeof(*listener));

        if (listener == NULL)
                return -ENOMEM;
        *listener = (struct link_listener){ .links = links, .fd = fd };
        int r = loop_io_new(links->config.loop, fd, LOOP_READ, listener_on_ready, listener, &listener->io);
        if (r < 0) {
                free(listener);
                return r;
        }
        list_append(&links->listeners, &listener->link);
        return 0;
}

/* Refuses TCP without a key: any host that reaches the port could have a part in any job. */
static int links_check_secure(const struct links *links, const struct address *address, char *error,
                              size_t size) {
        if (address->local || links->config.insecure || links->config.keys->n > 0)
                return 0;
        snprintf(error, size, "%s: " LINKS_NO_KEY "; " LINKS_KEY_FIX, address->text);
        return -ENOKEY;
}

int links_listen(struct links *links, const struct address *address, char *error, size_t size) {
        struct sockaddr_storage at;
        socklen_t length;
        int on = 1, sock = -1, r = links_check_secure(links, address, error, size);

        if (r < 0)
                return r;
        r = address_resolve_here(address, true, &at, &length);
        if (r == -ENOENT) {
                snprintf(error, size, "listen: '%s' is neither an address nor an interface of this host",
                         address->host);
                return r;
        }
        if (r == 0)
                sock = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (r == 0 && (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
                       bind(sock, (struct sockaddr *)&at, length) < 0 || listen(sock, BACKLOG) < 0))
                r = -errno;
        if (r == 0)
                r = links_open_door(links);
        if (r == 0)
                r = door_listen(links->door, sock);
        if (r == 0)
                return 0;
        if (sock >= 0)
                close(sock);
        snprintf(error, size, "cannot listen on %s: %s", address->text, strerror(-r));
        return r;
}

/* ---- keys ---- */

/* Ends the connections whose key is gone or has expired, and looks again when the next key expires. */
static void links_check_keys(struct links *links) {
        const struct keys *keys = links->config.keys;
        uint64_t next = EXPIRY_LOOK;
        time_t now = time(NULL);
        struct peer *peer;

        list_for_each(peer, &links->peers, link)
                if (peer->state != DEAD && peer->tls != NULL && peer_key(peer) == NULL)
                        peer_hang_up(peer, "its key '%s' is not in force any more", tls_key(peer->tls)->name);
        for (unsigned i = 0; i < keys->n; i++)
                if (keys->key[i].until > now && (uint64_t)(keys->key[i].until - now) * USEC_PER_SEC < next)
                        next = (uint64_t)(keys->key[i].until - now) * USEC_PER_SEC;
        if (keys->n > 0)
                loop_timer_arm(links->expiry, next);
}

static void links_on_expiry(void *data) {
        links_check_keys(data);
}

/* ---- all of them ---- */

int links_new(const struct links_config *config, struct links **ret) {
        struct links *links = calloc(1, sizeof(*links));
        int r = 0;

        if (links == NULL)
                return -ENOMEM;
        links->config = *config;
        list_init(&links->peers);
        list_init(&links->listeners);
        if (config->keys->n > 0)
                r = tls_context_new(&links->tls);
        if (r == 0)
                r = loop_timer_new(config->loop, dial_on_again, links, &links->dial.again);
        if (r == 0)
                r = loop_timer_new(config->loop, crowd_on_quiet, links, &links->crowd.quiet);
        if (r == 0)
                r = loop_timer_new(config->loop, links_on_expiry, links, &links->expiry);
        if (r == 0)
                r = loop_timer_new(config->loop, links_on_pulse, links, &links->pulse);
        if (r == 0)
                r = loop_timer_arm(links->pulse, PULSE);
        if (r < 0) {
                links_free(links);
                return r;
        }
        links_check_keys(links);
        *ret = links;
        return 0;
}

struct links *links_free(struct links *links) {
        struct link_listener *listener, *next_listener;
        struct peer *peer, *next_peer;

        if (links == NULL)
                return NULL;
        door_free(links->door);
        list_for_each_safe(listener, next_listener, &links->listeners, link) {
                loop_io_free(listener->io);
                close(listener->fd);
                list_remove(&listener->link);
                free(listener);
        }
        list_for_each_safe(peer, next_peer, &links->peers, link)
                peer_free(peer);
        resolver_free(links->dial.resolver);
        loop_timer_free(links->dial.again);
        loop_timer_free(links->crowd.quiet);
        loop_timer_free(links->expiry);
        loop_timer_free(links->pulse);
        tls_context_free(links->tls);
        free(links);
        return NULL;
}

int links_dial(struct links *links, const struct address *address, char *error, size_t size) {
        int r = links_check_secure(links, address, error, size);

        if (r < 0)
                return r;
        links->dial.wanted = true;
        links->dial.address = *address;
        links->dial.down_since = clock_now();
        snprintf(links->dial.trouble, sizeof(links->dial.trouble), "it is being tried");
        dial_try(links);
        return 0;
}

void links_change(struct links *links, const struct door_limits *limits) {
        links->config.limits = *limits;
        if (links->door != NULL)
                door_change(links->door, links->config.keys, limits);
        links_check_keys(links);
}
