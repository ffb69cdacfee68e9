// SPDX-License-Identifier: Apache-2.0
/* A blocking connection to a daemon: see talk.h. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "client/cli/ask/talk.h"
#include "client/cli/base/moment.h"
#include "proto/cleanup.h"
#include "proto/fdpass.h"
#include "proto/frame.h"

enum talk_result talk_fail(struct talk *talk, enum talk_result result, const char *format, ...) {
        va_list args;

        va_start(args, format);
        vsnprintf(talk->error, sizeof talk->error, format, args);
        va_end(args);
        return result;
}

static enum talk_result talk_silent(struct talk *talk) {
        return talk_fail(talk, TALK_SILENT, "the daemon (pid %d) has not answered within %u s",
                         (int)talk->pid, (talk->timeout_ms + 999) / 1000);
}

/* Waits for the socket; returns TALK_OK when one of `events` is there. */
static enum talk_result talk_wait_for(struct talk *talk, short events, int64_t deadline) {
        struct pollfd poll_fd = { .fd = talk->fd, .events = events };

        for (;;) {
                int64_t left = deadline - moment_ms();
                int n = poll(&poll_fd, 1, left > 0 ? (int)left : 0);
                if (n > 0)
                        return TALK_OK;
                if (n == 0)
                        return talk_silent(talk);
                if (errno != EINTR)
                        return talk_fail(talk, TALK_FAILED, "poll: %s", strerror(errno));
        }
}

static enum talk_result talk_connect_failed(struct talk *talk, int error) {
        switch (error) {
        case ENOENT:
        case ENOTDIR: return talk_fail(talk, TALK_ABSENT, "no such socket");
        case ECONNREFUSED: return talk_fail(talk, TALK_ABSENT, "nobody listens there");
        case EACCES:
        case EPERM: return talk_fail(talk, TALK_DENIED, "permission denied");
        case EPROTOTYPE: return talk_fail(talk, TALK_BROKEN, "a socket, but not a gradsync daemon's");
        case EAGAIN: return talk_fail(talk, TALK_SILENT, "the daemon accepts no connection");
        default: return talk_fail(talk, TALK_FAILED, "%s", strerror(error));
        }
}

static enum talk_result talk_connect_to(struct talk *talk, const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct timeval patience = { .tv_sec = talk->timeout_ms / 1000,
                                    .tv_usec = talk->timeout_ms % 1000 * 1000 };
        struct ucred peer;
        socklen_t length = sizeof peer;

        if (strlen(path) >= sizeof address.sun_path)
                return talk_fail(talk, TALK_FAILED, "the path is longer than %zu bytes",
                                 sizeof address.sun_path - 1);
        strcpy(address.sun_path, path);
        talk->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (talk->fd < 0)
                return talk_fail(talk, TALK_FAILED, "socket: %s", strerror(errno));
        setsockopt(talk->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        while (connect(talk->fd, (struct sockaddr *)&address, sizeof address) < 0)
                if (errno != EINTR)
                        return talk_connect_failed(talk, errno);
        if (getsockopt(talk->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0)
                talk->pid = peer.pid;
        return TALK_OK;
}

enum talk_result talk_send(struct talk *talk, uint16_t type, const ProtobufCMessage *message) {
        int64_t deadline = moment_ms() + talk->timeout_ms;
        enum talk_result r;

        talk->request++;
        talk->answered = false;
        ssize_t size = codec_pack(talk->buffer, type, talk->request, 0, message);
        if (size < 0)
                return talk_fail(talk, TALK_FAILED, "the request does not fit into one frame");
        for (;;) {
                int sent = fdpass_send(talk->fd, talk->buffer, (size_t)size, NULL, 0);
                if (sent == 0)
                        return TALK_OK;
                /* A daemon that refuses a connection hangs up before it has read anything. Its reason can
                 * still be read. */
                if (sent == -EPIPE || sent == -ECONNRESET)
                        return TALK_OK;
                if (sent != -EAGAIN)
                        return talk_fail(talk, TALK_BROKEN, "the connection broke: %s", strerror(-sent));
                if ((r = talk_wait_for(talk, POLLOUT, deadline)))
                        return r;
        }
}

static enum talk_result talk_refused(struct talk *talk, const Wire__Refused *refusal) {
        const char *text = refusal->text && *refusal->text ? refusal->text : "the daemon gave no reason";

        if (refusal->code == WIRE__CODE__VERSION)
                return talk_fail(talk, TALK_VERSION, "%s", text);
        if (refusal->code == WIRE__CODE__DAEMON_LOST)
                return talk_fail(talk, TALK_GONE, "%s", text);
        return talk_fail(talk, refusal->code == WIRE__CODE__DENIED ? TALK_DENIED : TALK_REFUSED, "%s", text);
}

/* The daemon gives no reason to the client; its log has it. */
static enum talk_result talk_hung_up(struct talk *talk) {
        if (!talk->answered)
                return talk_fail(talk, TALK_GONE, "the daemon has hung up");
        return talk_fail(talk, TALK_CUT,
                         "the daemon (pid %d) has hung up in the middle of an answer; its log says why, "
                         "if it has not ended at that moment",
                         (int)talk->pid);
}

static enum talk_result talk_receive_packet(struct talk *talk, int64_t deadline,
                                            struct fdpass_packet *packet) {
        for (;;) {
                *packet = (struct fdpass_packet){ .data = talk->buffer };
                int n = fdpass_receive(talk->fd, packet, 1);
                if (n == -ECONNRESET || (n == 1 && packet->size == 0 && !packet->error))
                        return talk_hung_up(talk);
                if (n == 1 && packet->error)
                        return talk_fail(talk, TALK_BROKEN,
                                         "the daemon sent a packet that breaks the protocol");
                if (n == 1)
                        return TALK_OK;
                if (n != -EAGAIN && n != -EINTR && n != 0)
                        return talk_fail(talk, TALK_BROKEN, "the connection broke: %s", strerror(-n));
                enum talk_result r = talk_wait_for(talk, POLLIN, deadline);
                if (r)
                        return r;
        }
}

enum talk_result talk_receive(struct talk *talk, struct talk_reply *ret) {
        int64_t deadline = moment_ms() + talk->timeout_ms;

        for (;;) {
                struct fdpass_packet packet;
                struct frame_header header;
                const char *why = NULL;
                enum talk_result r = talk_receive_packet(talk, deadline, &packet);
                if (r)
                        return r;
                fdpass_close(&packet);
                enum frame_verdict verdict = frame_decode(packet.data, packet.size, &header);
                if (verdict == FRAME_BAD_MAJOR)
                        return talk_fail(talk, TALK_VERSION,
                                         "the daemon speaks version %u of the protocol, gradsyncctl %u",
                                         header.major, FRAME_MAJOR);
                if (verdict)
                        return talk_fail(talk, TALK_BROKEN, "not a gradsync daemon: %s",
                                         frame_verdict_text(verdict));
                if (!codec_descriptor(header.type))
                        continue; /* a notice that this version does not know */
                *ret = (struct talk_reply){ .type = header.type,
                                            .message = codec_unpack(&talk->codec, header.type,
                                                                    packet.data + FRAME_HEADER, header.length,
                                                                    &why),
                                            .payload = packet.data + FRAME_HEADER,
                                            .length = header.length };
                if (!ret->message)
                        return talk_fail(talk, TALK_BROKEN,
                                         "the daemon sent a %s that breaks the protocol: %s",
                                         codec_type_name(header.type), why ? why : "malformed");
                if (header.type == WIRE__MESSAGE_TYPE__REFUSED &&
                    (header.request == talk->request || !header.request))
                        return talk_refused(talk, (const Wire__Refused *)ret->message);
                if (header.request == talk->request) {
                        talk->answered = true;
                        return TALK_OK;
                }
        }
}

enum talk_result talk_ask(struct talk *talk, uint16_t type, const ProtobufCMessage *message,
                          uint16_t expected, const char *what, const ProtobufCMessage **ret) {
        struct talk_reply reply;
        enum talk_result r = talk_send(talk, type, message);

        if (!r)
                r = talk_receive(talk, &reply);
        if (!r && reply.type != expected)
                r = talk_fail(talk, TALK_BROKEN, "the daemon answered %s with %s", what,
                              codec_type_name(reply.type));
        if (!r)
                *ret = reply.message;
        return r;
}

static enum talk_result talk_greet(struct talk *talk) {
        Wire__Hello hello = WIRE__HELLO__INIT;
        const ProtobufCMessage *reply;

        SET(hello, minor, FRAME_MINOR);
        SET(hello, admin, true);
        SET(hello, pid, getpid());
        hello.program = (char *)"gradsyncctl";
        hello.library = (char *)"gradsyncctl " GRADSYNC_RELEASE;
        enum talk_result r = talk_ask(talk, WIRE__MESSAGE_TYPE__HELLO, &hello.base,
                                      WIRE__MESSAGE_TYPE__WELCOME, "the greeting", &reply);
        if (r)
                return r;
        const Wire__Welcome *welcome = (const Wire__Welcome *)reply;
        if (welcome->minor > FRAME_MINOR)
                return talk_fail(
                        talk, TALK_VERSION,
                        "gradsyncd %.64s answered with version %u.%u of the protocol, but gradsyncctl "
                        "%s speaks %u.%u",
                        welcome->version ? welcome->version : "?", FRAME_MAJOR, welcome->minor,
                        GRADSYNC_RELEASE, FRAME_MAJOR, FRAME_MINOR);
        talk->minor = welcome->minor;
        talk->version = strdup(welcome->version ? welcome->version : "");
        talk->device = strdup(welcome->device ? welcome->device : "");
        if (!talk->version || !talk->device)
                return talk_fail(talk, TALK_FAILED, "out of memory");
        return TALK_OK;
}

enum talk_result talk_open(struct talk *talk, const char *path, unsigned timeout_ms) {
        *talk = (struct talk){ .fd = -1, .timeout_ms = timeout_ms };
        talk->buffer = malloc(FRAME_MAX);
        if (!talk->buffer || codec_init(&talk->codec) < 0)
                return talk_fail(talk, TALK_FAILED, "out of memory");
        enum talk_result r = talk_connect_to(talk, path);
        return r ? r : talk_greet(talk);
}

void talk_close(struct talk *talk) {
        talk->fd = fd_close(talk->fd);
        codec_deinit(&talk->codec);
        free(talk->buffer);
        free(talk->version);
        free(talk->device);
        talk->buffer = NULL;
        talk->version = talk->device = NULL;
}
