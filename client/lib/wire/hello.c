/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO, for a first connection and for the one that follows it. */
#include "client/lib/wire/hello.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/lib/wire/context.h"
#include "proto/cleanup.h"
#include "proto/names.h"

/* A service manager (pid 1) that opened the socket for the daemon is not the daemon. */
pid_t hello_peer_pid(int sock) {
        struct ucred peer;
        socklen_t size = sizeof(peer);

        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 1)
                return 0;
        return peer.pid;
}

void hello_keep_program(struct gradsync *gs, const char *program) {
        if (program == NULL)
                program = program_invocation_short_name;
        if (!utf8_valid(program, strlen(program)) || strlen(program) >= sizeof(gs->program))
                program = "?";
        snprintf(gs->program, sizeof(gs->program), "%s", program);
}

bool hello_is_understood(const Wire__Welcome *welcome, char why[HELLO_WHY]) {
        if (welcome->minor <= FRAME_MINOR)
                return true;
        snprintf(why, HELLO_WHY,
                 "gradsyncd %.64s answered with version %u.%u of the protocol, but libgradsync %s speaks "
                 "%u.%u",
                 welcome->version != NULL ? welcome->version : "?", FRAME_MAJOR, welcome->minor,
                 GRADSYNC_RELEASE, FRAME_MAJOR, FRAME_MINOR);
        return false;
}

int hello_send(struct gradsync *gs, request_answer_fn answer) {
        Wire__Hello hello = WIRE__HELLO__INIT;
        int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

        SET(hello, minor, FRAME_MINOR);
        hello.program = gs->program;
        SET_IF(hello, returns, gs->reconnect_ms > 0, true);
        hello.library = (char *)"libgradsync " GRADSYNC_RELEASE;
        SET(hello, pid, (int32_t)getpid());
        request_open(gs, &gs->hello, WIRE__MESSAGE_TYPE__WELCOME, answer);
        int r = link_send(&gs->link, WIRE__MESSAGE_TYPE__HELLO, gs->hello.id, &hello.base, pidfd);
        fd_close(pidfd);
        return r;
}
