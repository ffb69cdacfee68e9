// SPDX-License-Identifier: Apache-2.0
/* A blocking connection to a daemon: see link.h. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include "cli.h"
#include "link.h"
#include "proto/fdpass.h"
#include "proto/frame.h"

static enum link_result fail(struct link *link, enum link_result result, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static enum link_result fail(struct link *link, enum link_result result, const char *format, ...) {
        va_list args;

        va_start(args, format);
        vsnprintf(link->error, sizeof link->error, format, args);
        va_end(args);
        return result;
}

enum link_result link_failed(struct link *link, const char *why) {
        return fail(link, LINK_FAILED, "%s", why);
}

enum link_result link_confused(struct link *link, const char *why) {
        return fail(link, LINK_BROKEN, "%s", why);
}

static int64_t now_ms(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static enum link_result silent(struct link *link) {
        return fail(link, LINK_SILENT, "the daemon (pid %d) has not answered within %u s", (int)link->pid,
                    (link->timeout_ms + 999) / 1000);
}

/* Waits for the socket; returns LINK_OK when one of `events` is there. */
static enum link_result wait_for(struct link *link, short events, int64_t deadline) {
        struct pollfd poll_fd = { .fd = link->fd, .events = events };

        for (;;) {
                int64_t left = deadline - now_ms();
                int n = poll(&poll_fd, 1, left > 0 ? (int)left : 0);
                if (n > 0)
                        return LINK_OK;
                if (n == 0)
                        return silent(link);
                if (errno != EINTR)
                        return fail(link, LINK_FAILED, "poll: %s", strerror(errno));
        }
}

static enum link_result connect_failed(struct link *link, int error) {
        switch (error) {
        case ENOENT:
        case ENOTDIR: return fail(link, LINK_ABSENT, "no such socket");
        case ECONNREFUSED: return fail(link, LINK_ABSENT, "nobody listens there");
        case EACCES:
        case EPERM: return fail(link, LINK_DENIED, "permission denied");
        case EPROTOTYPE: return fail(link, LINK_BROKEN, "a socket, but not a gradsync daemon's");
        case EAGAIN: return fail(link, LINK_SILENT, "the daemon accepts no connection");
        default: return fail(link, LINK_FAILED, "%s", strerror(error));
        }
}

static enum link_result connect_to(struct link *link, const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct timeval patience = { .tv_sec = link->timeout_ms / 1000,
                                    .tv_usec = link->timeout_ms % 1000 * 1000 };
        struct ucred peer;
        socklen_t length = sizeof peer;

        if (strlen(path) >= sizeof address.sun_path)
                return fail(link, LINK_FAILED, "the path is longer than %zu bytes",
                            sizeof address.sun_path - 1);
        strcpy(address.sun_path, path);
        link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (link->fd < 0)
                return fail(link, LINK_FAILED, "socket: %s", strerror(errno));
        setsockopt(link->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        while (connect(link->fd, (struct sockaddr *)&address, sizeof address) < 0)
                if (errno != EINTR)
                        return connect_failed(link, errno);
        if (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0)
                link->pid = peer.pid;
        return LINK_OK;
}

enum link_result link_send(struct link *link, uint16_t type, const ProtobufCMessage *message) {
        int64_t deadline = now_ms() + link->timeout_ms;
        enum link_result r;

        link->request++;
        ssize_t size = codec_pack(link->buffer, type, link->request, 0, message);
        if (size < 0)
                return fail(link, LINK_FAILED, "the request does not fit into one frame");
        for (;;) {
                int sent = fdpass_send(link->fd, link->buffer, (size_t)size, NULL, 0);
                if (sent == 0)
                        return LINK_OK;
                /* A daemon that refuses a newcomer hangs up before it has read anything: its reason is still
                 * to be read. */
                if (sent == -EPIPE || sent == -ECONNRESET)
                        return LINK_OK;
                if (sent != -EAGAIN)
                        return fail(link, LINK_BROKEN, "the connection broke: %s", strerror(-sent));
                if ((r = wait_for(link, POLLOUT, deadline)))
                        return r;
        }
}

static enum link_result refused(struct link *link, const Wire__Refused *refusal) {
        const char *text = refusal->text && *refusal->text ? refusal->text : "the daemon gave no reason";

        if (refusal->code == WIRE__CODE__VERSION)
                return fail(link, LINK_VERSION, "%s", text);
        if (refusal->code == WIRE__CODE__DAEMON_LOST)
                return fail(link, LINK_GONE, "%s", text);
        return fail(link, refusal->code == WIRE__CODE__DENIED ? LINK_DENIED : LINK_REFUSED, "%s", text);
}

static enum link_result receive_packet(struct link *link, int64_t deadline, struct fdpass_packet *packet) {
        for (;;) {
                *packet = (struct fdpass_packet){ .data = link->buffer };
                int n = fdpass_receive(link->fd, packet, 1);
                if (n == -ECONNRESET || (n == 1 && packet->size == 0 && !packet->error))
                        return fail(link, LINK_GONE, "the daemon has hung up");
                if (n == 1 && packet->error)
                        return fail(link, LINK_BROKEN, "the daemon sent a packet that breaks the protocol");
                if (n == 1)
                        return LINK_OK;
                if (n != -EAGAIN && n != -EINTR && n != 0)
                        return fail(link, LINK_BROKEN, "the connection broke: %s", strerror(-n));
                enum link_result r = wait_for(link, POLLIN, deadline);
                if (r)
                        return r;
        }
}

enum link_result link_receive(struct link *link, uint16_t *ret_type, const ProtobufCMessage **ret_message,
                              const uint8_t **ret_payload, size_t *ret_length) {
        int64_t deadline = now_ms() + link->timeout_ms;

        for (;;) {
                struct fdpass_packet packet;
                struct frame_header header;
                const char *why = NULL;
                enum link_result r = receive_packet(link, deadline, &packet);
                if (r)
                        return r;
                fdpass_close(&packet);
                enum frame_verdict verdict = frame_decode(packet.data, packet.size, &header);
                if (verdict == FRAME_BAD_MAJOR)
                        return fail(link, LINK_VERSION,
                                    "the daemon speaks version %u of the protocol, gradsyncctl %u",
                                    header.major, FRAME_MAJOR);
                if (verdict)
                        return fail(link, LINK_BROKEN, "not a gradsync daemon: %s",
                                    frame_verdict_text(verdict));
                if (!codec_descriptor(header.type))
                        continue; /* a notice of a newer daemon */
                *ret_message = codec_unpack(&link->codec, header.type, packet.data + FRAME_HEADER,
                                            header.length, &why);
                if (!*ret_message)
                        return fail(link, LINK_BROKEN, "the daemon sent a %s that breaks the protocol: %s",
                                    codec_type_name(header.type), why ? why : "malformed");
                if (header.type == WIRE__MESSAGE_TYPE__REFUSED &&
                    (header.request == link->request || !header.request))
                        return refused(link, (const Wire__Refused *)*ret_message);
                if (header.request != link->request)
                        continue;
                *ret_type = header.type;
                *ret_payload = packet.data + FRAME_HEADER;
                *ret_length = header.length;
                return LINK_OK;
        }
}

static enum link_result greet(struct link *link) {
        Wire__Hello hello = WIRE__HELLO__INIT;
        const ProtobufCMessage *message;
        const uint8_t *payload;
        size_t length;
        uint16_t type;

        hello.has_minor = hello.has_admin = hello.has_pid = true;
        hello.minor = FRAME_MINOR;
        hello.admin = true;
        hello.pid = getpid();
        hello.program = (char *)"gradsyncctl";
        hello.library = (char *)"gradsyncctl " GRADSYNC_RELEASE;
        enum link_result r = link_send(link, WIRE__MESSAGE_TYPE__HELLO, &hello.base);
        if (!r)
                r = link_receive(link, &type, &message, &payload, &length);
        if (r)
                return r;
        if (type != WIRE__MESSAGE_TYPE__WELCOME)
                return fail(link, LINK_BROKEN, "the daemon answered the greeting with %s",
                            codec_type_name(type));
        const Wire__Welcome *welcome = (const Wire__Welcome *)message;
        link->minor = welcome->minor;
        link->version = strdup(welcome->version ? welcome->version : "");
        link->device = strdup(welcome->device ? welcome->device : "");
        if (!link->version || !link->device)
                return fail(link, LINK_FAILED, "out of memory");
        return LINK_OK;
}

enum link_result link_open(struct link *link, const char *path, unsigned timeout_ms) {
        *link = (struct link){ .fd = -1, .timeout_ms = timeout_ms };
        link->buffer = malloc(FRAME_MAX);
        if (!link->buffer || codec_init(&link->codec) < 0)
                return fail(link, LINK_FAILED, "out of memory");
        enum link_result r = connect_to(link, path);
        return r ? r : greet(link);
}

void link_close(struct link *link) {
        if (link->fd >= 0)
                close(link->fd);
        link->fd = -1;
        codec_deinit(&link->codec);
        free(link->buffer);
        free(link->version);
        free(link->device);
        link->buffer = NULL;
        link->version = link->device = NULL;
}
