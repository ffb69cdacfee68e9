/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor under any service behind a Unix socket: one packet of 32 bytes to a process that sleeps in
 * recv(), and one back. Nothing else happens: no memory, no second member, no arithmetic.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"

#define PACKET 32

static void echo(int fd) {
        char packet[PACKET];
        ssize_t n;

        while ((n = recv(fd, packet, sizeof(packet), 0)) > 0)
                if (send(fd, packet, (size_t)n, MSG_NOSIGNAL) != n)
                        _exit(1);
        _exit(n < 0);
}

static void round_trip(void *data) {
        int fd = *(int *)data;
        char packet[PACKET] = { 0 };

        if (send(fd, packet, sizeof(packet), MSG_NOSIGNAL) != sizeof(packet) ||
            recv(fd, packet, sizeof(packet), 0) != sizeof(packet))
                bench_die("the echo has gone: %s", strerror(errno));
}

static void release(void *data) {}

static bool obey(void *data, struct control *c, const char *line) {
        if (strncmp(line, "prepare", 7))
                return false;
        control_reply(c, "ready");
        return true;
}

int main(int argc, char **argv) {
        struct control c;
        int pair[2];
        pid_t child;

        if (argc != 4)
                bench_die("usage: %s SOCKET GATE CONTENDER", argv[0]);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                bench_die("socketpair: %s", strerror(errno));
        child = fork();
        if (child < 0)
                bench_die("fork: %s", strerror(errno));
        if (!child) {
                close(pair[0]);
                echo(pair[1]);
        }
        close(pair[1]);
        control_open(&c, argv[1], argv[3], 0);
        bench_serve(&(struct bench_peer){ .data = &pair[0],
                                          .step = round_trip,
                                          .release = release,
                                          .obey = obey },
                    &c);
        close(pair[0]);
        waitpid(child, NULL, 0);
        return 0;
}
