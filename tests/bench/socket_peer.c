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

static void round_trip(int fd) {
        char packet[PACKET] = { 0 };

        if (send(fd, packet, sizeof(packet), MSG_NOSIGNAL) != sizeof(packet) ||
            recv(fd, packet, sizeof(packet), 0) != sizeof(packet))
                bench_die("the echo has gone: %s", strerror(errno));
}

static void run(struct control *c, int fd, unsigned int n) {
        int64_t *ns = malloc((n + 1) * sizeof(*ns));

        if (!ns)
                bench_die("out of memory");
        ns[0] = bench_now_ns();
        for (unsigned int i = 1; i <= n; i++) {
                round_trip(fd);
                ns[i] = bench_now_ns();
        }
        control_reply_stamps(c, ns, n + 1);
        free(ns);
}

static void serve(struct control *c, int fd) {
        char line[256];
        unsigned int n;

        while (control_read(c, line, sizeof(line)) && strcmp(line, "quit")) {
                if (sscanf(line, "run %u", &n) == 1)
                        run(c, fd, n);
                else if (!strncmp(line, "prepare", 7))
                        control_reply(c, "ready");
                else if (!strcmp(line, "release"))
                        control_reply(c, "released");
                else
                        bench_die("unknown command \"%s\"", line);
        }
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
        serve(&c, pair[0]);
        close(pair[0]);
        waitpid(child, NULL, 0);
        return 0;
}
