/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a connection from options and environment, and exchanges HELLO and WELCOME. Tries the sockets in
 * their order and remembers them for the error that names them all.
 */
#include "client/lib/wire/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/start.h"
#include "client/lib/wire/context.h"
#include "client/lib/wire/hello.h"

static bool connect_tried_before(int error) {
        return error == ENOENT || error == ECONNREFUSED || error == ENOTDIR || error == ENOTSOCK;
}

void connect_note_tried(struct connect_attempt *attempt, const char *path, const char *why) {
        size_t used = strlen(attempt->tried);

        snprintf(attempt->tried + used, sizeof(attempt->tried) - used, "%s%s (%s)", used > 0 ? ", " : "",
                 path, why);
}

/* Connects by the deadline: connect() waits if the backlog is full. A signal handler ends connect(), and the
 * next one has only the time that is left. 0, or a negative errno. */
static int connect_within(int sock, const char *path, uint64_t deadline) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int error;

        memcpy(address.sun_path, path, strlen(path) + 1);
        do {
                uint64_t now = clock_ns(), left = deadline > now ? deadline - now : 0;
                struct timeval timeout = { .tv_sec = (time_t)(left / NSEC_PER_SEC),
                                           .tv_usec = (suseconds_t)(left % NSEC_PER_SEC / 1000) };

                /* A time-out of 0 would be none. */
                if (left < 1000)
                        return -ETIMEDOUT;
                setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
                error = connect(sock, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
        } while (error == EINTR);
        return error == EAGAIN ? -ETIMEDOUT : -error;
}

/* The socket is the link's from its first moment, so that a child which another thread forks meanwhile closes
 * its copy. */
static int connect_open_socket(struct gradsync *gs) {
        pthread_mutex_lock(&gs->link.lock);
        gs->link.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        int error = gs->link.sock < 0 ? -errno : 0;
        return context_leave(gs, error);
}

static void connect_close_socket(struct gradsync *gs) {
        pthread_mutex_lock(&gs->link.lock);
        close(gs->link.sock);
        gs->link.sock = -1;
        pthread_mutex_unlock(&gs->link.lock);
}

/* The connected socket, or a negative errno. */
static int connect_path(struct gradsync *gs, const char *path, uint64_t deadline) {
        int r = connect_open_socket(gs);

        if (r < 0)
                return r;
        r = connect_within(gs->link.sock, path, deadline);
        if (r < 0)
                connect_close_socket(gs);
        return r < 0 ? r : gs->link.sock;
}

static int connect_no_daemon(const struct connect_attempt *attempt, const char *path, int error,
                             const char *device, bool named) {
        char advice[FAIL_TEXT];

        start_advice(device, named ? path : NULL, advice, sizeof(advice));
        return fail(GRADSYNC_NO_DAEMON, "no gradsyncd is reachable; tried %s%s%s (%s). %s", attempt->tried,
                    *attempt->tried ? ", " : "", path, strerror(error), advice);
}

static int connect_error(const struct connect_attempt *attempt, const char *path, int error,
                         const char *device, bool named) {
        if (error == EACCES || error == EPERM)
                return fail(GRADSYNC_DENIED,
                            "no permission to connect to %s; join the group of the socket, or ask for "
                            "access (`gradsyncctl doctor` tells which)",
                            path);
        if (error == ETIMEDOUT)
                return fail(GRADSYNC_NO_DAEMON,
                            "gradsyncd at %s accepts no connection in time; it is stopped or overloaded",
                            path);
        if (error == EMFILE || error == ENFILE || error == ENOMEM)
                return fail(GRADSYNC_SYSTEM, "no socket could be made: %s", strerror(error));
        return connect_no_daemon(attempt, path, error, device, named);
}

/* Connects to the first socket that has a listener; -1 with *ret if there is none. */
static int connect_first(struct gradsync *gs, const struct environ_sockets *sockets, const char *device,
                         struct connect_attempt *attempt, int *ret) {
        for (unsigned i = 0; i < sockets->n; i++) {
                int sock = connect_path(gs, sockets->path[i], attempt->deadline);

                snprintf(gs->link.path, sizeof(gs->link.path), "%s", sockets->path[i]);
                if (sock >= 0)
                        return sock;
                *ret = connect_error(attempt, sockets->path[i], -sock, device, sockets->named);
                attempt->silent = sock == -ETIMEDOUT;
                if (!connect_tried_before(-sock))
                        return -1;
                connect_note_tried(attempt, sockets->path[i], strerror(-sock));
        }
        return -1;
}

static int connect_take_welcome(struct request *request, const ProtobufCMessage *message,
                                struct fdpass_packet *packet) {
        const Wire__Welcome *welcome = (const Wire__Welcome *)message;
        struct gradsync *gs = OWNER(request, struct gradsync, hello);
        char why[HELLO_WHY];

        if (!hello_is_understood(welcome, why))
                return fail(GRADSYNC_VERSION, "%s", why);
        gs->instance = welcome->instance;
        snprintf(gs->device_name, sizeof(gs->device_name), "%s", welcome->device ? welcome->device : "");
        snprintf(gs->device_uuid, sizeof(gs->device_uuid), "%s", welcome->uuid ? welcome->uuid : "");
        gs->device_mps = welcome->mps;
        gs->cluster = welcome->cluster;
        /* From here on a lost connection is replaced, because the daemon may go right after its WELCOME. */
        if (gs->reconnect_ms > 0)
                return link_reconnects(&gs->link, reconnect_lost, reconnect_retry);
        return GRADSYNC_OK;
}

/* The caller has no handle yet with which it could repeat the call, so a signal handler does not end the
 * wait. */
static int connect_shake_hands(struct gradsync *gs, struct connect_attempt *attempt) {
        int r = hello_send(gs, connect_take_welcome);

        if (r != GRADSYNC_OK)
                return r;
        do
                r = request_wait(gs, &gs->hello, attempt->deadline);
        while (r == GRADSYNC_INTERRUPTED);
        attempt->silent = r == GRADSYNC_DAEMON_LOST;
        if (r == GRADSYNC_DAEMON_LOST)
                return fail(GRADSYNC_NO_DAEMON, "%s", gs->link.why);
        return r;
}

int connect_daemon(struct gradsync *gs, const struct gradsync_options *options,
                   struct connect_attempt *attempt) {
        struct environ_sockets sockets;
        const char *variable = environ_launcher_variable();

        int r = environ_sockets(&sockets, options->socket, options->device);
        if (r != GRADSYNC_OK)
                return r;
        int sock = connect_first(gs, &sockets, options->device, attempt, &r);
        snprintf(gs->tried, sizeof(gs->tried), "%s", attempt->tried);
        gs->standalone = sock < 0 && r == GRADSYNC_NO_DAEMON && !sockets.named && variable == NULL;
        if (sock < 0 && !gs->standalone)
                return variable ? fail(r, "%s (%s is set, so this process is not alone)", fail_text(),
                                       variable)
                                : r;
        if (sock >= 0)
                gs->link.daemon = hello_peer_pid(sock);
        pthread_mutex_lock(&gs->link.lock);
        r = link_init(&gs->link, sock, request_message, gs->handlers->room, gs);
        if (r == GRADSYNC_OK && !gs->standalone) {
                hello_keep_program(gs, options->program);
                r = connect_shake_hands(gs, attempt);
        }
        return context_leave(gs, r);
}
