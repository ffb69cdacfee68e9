/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces a connection that was lost: attempts at growing intervals, until another daemon than the one
 * before answers, or the time for it is over. member/rejoin.c then tells that daemon about the jobs. Nothing
 * here waits: the functions are called by a thread that waits, marks or dispatches at that moment.
 */
#include "client/lib/wire/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/wire/context.h"
#include "client/lib/wire/hello.h"

#define FIRST_DELAY (2 * NSEC_PER_MSEC)
#define MOST_DELAY (200 * NSEC_PER_MSEC)

static void reconnect_try_later(struct gradsync *gs) {
        uint64_t at = clock_ns() + gs->delay_ns;

        gs->delay_ns = gs->delay_ns * 2 < MOST_DELAY ? gs->delay_ns * 2 : MOST_DELAY;
        link_rearm(&gs->link, at < gs->give_up_ns ? at : gs->give_up_ns);
}

void reconnect_lost(void *owner) {
        struct gradsync *gs = owner;

        request_close(gs, &gs->hello);
        /* The daemon had not answered HELLO. */
        if (gs->give_up_ns != 0) {
                reconnect_try_later(gs);
                return;
        }
        gs->give_up_ns = clock_after_ms(gs->reconnect_ms);
        gs->delay_ns = FIRST_DELAY;
        gs->handlers->lost(gs);
}

/* The text says if a daemon has answered and refused this process. */
static void reconnect_give_up(struct gradsync *gs) {
        const char *refusal = gs->link.farewell;
        char peer[192];

        link_peer(&gs->link, peer, sizeof(peer));
        if (*refusal != '\0')
                fail(GRADSYNC_DAEMON_LOST,
                     "%s closed the connection: it has ended or crashed, and within %.1f s no other "
                     "one has taken this process back at %s. The last that answered refused it: %s. Remove "
                     "the cause, then open, join and plan anew",
                     peer, (double)gs->reconnect_ms / 1e3, gs->link.path, refusal);
        else
                fail(GRADSYNC_DAEMON_LOST,
                     "%s closed the connection: it has ended or crashed, and within %.1f s no other "
                     "one has answered at %s; look at its log, start it again, then open, join and plan "
                     "anew",
                     peer, (double)gs->reconnect_ms / 1e3, gs->link.path);
        link_fail(&gs->link, GRADSYNC_DAEMON_LOST);
}

/* Returns a connected socket; -1: not now. */
static int reconnect_open_socket(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (sock < 0)
                return -1;
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (connect(sock, (const struct sockaddr *)&address, sizeof(address)) == 0)
                return sock;
        close(sock);
        return -1;
}

static int reconnect_refuse_daemon(struct gradsync *gs, const char *why) {
        char peer[192];

        fail(GRADSYNC_DAEMON_LOST, "%s closed the connection, and %s; open, join and plan anew",
             link_peer(&gs->link, peer, sizeof(peer)), why);
        link_fail(&gs->link, GRADSYNC_DAEMON_LOST);
        return GRADSYNC_OK;
}

static void reconnect_name_device(const char *name, const char *uuid, char text[256]) {
        snprintf(text, 256, *uuid != '\0' ? "%s (%s)" : "%s", name, uuid);
}

/* Compares the new daemon's device with the one before; `why` is the reason against the daemon, or "". This
 * process has memory of one GPU mapped, on one side of MPS: with the daemon of another GPU, or of the other
 * side, it can share nothing. */
static void reconnect_compare_device(const struct gradsync *gs, const Wire__Welcome *welcome,
                                     char why[1024]) {
        const char *uuid = welcome->uuid != NULL ? welcome->uuid : "";
        const char *name = welcome->device != NULL ? welcome->device : "?";
        char before[256], now[256];

        *why = '\0';
        reconnect_name_device(gs->device_name, gs->device_uuid, before);
        reconnect_name_device(name, uuid, now);
        if (strcmp(uuid, gs->device_uuid) != 0)
                snprintf(why, 1024, "the one that follows serves another device: %s, not %s", now, before);
        else if ((welcome->mps != 0) != gs->device_mps)
                snprintf(why, 1024,
                         "the one that follows uses the GPU %s %s an MPS server, unlike the one before: give "
                         "both the same CUDA_MPS_PIPE_DIRECTORY",
                         now, welcome->mps ? "through" : "without");
}

static int reconnect_take_welcome(struct request *request, const ProtobufCMessage *message,
                                  struct fdpass_packet *packet) {
        struct gradsync *gs = OWNER(request, struct gradsync, hello);
        const Wire__Welcome *welcome = (const Wire__Welcome *)message;
        char why[1024];

        if (welcome->instance == gs->instance)
                return reconnect_refuse_daemon(gs, "goes on without this process");
        if (!hello_is_understood(welcome, why))
                return reconnect_refuse_daemon(gs, why);
        reconnect_compare_device(gs, welcome, why);
        if (*why != '\0')
                return reconnect_refuse_daemon(gs, why);
        gs->instance = welcome->instance;
        gs->link.daemon = hello_peer_pid(gs->link.sock);
        gs->give_up_ns = 0;
        link_up(&gs->link);
        return GRADSYNC_OK;
}

void reconnect_retry(void *owner) {
        struct gradsync *gs = owner;

        if (clock_ns() >= gs->give_up_ns) {
                reconnect_give_up(gs);
                return;
        }
        int sock = reconnect_open_socket(gs->link.path);
        if (sock < 0) {
                reconnect_try_later(gs);
                return;
        }
        link_attach(&gs->link, sock);
        link_rearm(&gs->link, gs->give_up_ns);
        hello_send(gs, reconnect_take_welcome);
}
