/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that the network between hosts sets: each process of a ring sends a number of bytes to the next
 * one while it receives as many from the one before, over one TCP connection each. No arithmetic, no service.
 * Commands:
 *
 *   prepare BYTES COUNT   BYTES are sent by each in an iteration; COUNT means nothing here
 *   run N                 N iterations; stamps
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"

#define PORT 7900
#define CHUNK (256u << 10) /* of one system call */
#define PATIENCE_NS (INT64_C(60) * 1000000000)

struct ring {
        struct gate *gate;
        unsigned int hosts;
        int next, previous;
        size_t bytes;
        char *out, *in;
};

static struct sockaddr_in address_of(const char *text) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

        if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
                bench_die("%s is no IPv4 address", text);
        return address;
}

static int listen_at(const char *text) {
        struct sockaddr_in address = address_of(text);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
            bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
                bench_die("cannot listen at %s:%d: %s", text, PORT, strerror(errno));
        return fd;
}

/* Connects as soon as the next process listens. */
static int connect_to(const char *text) {
        struct sockaddr_in address = address_of(text);
        int64_t end = bench_now_ns() + PATIENCE_NS;

        for (;;) {
                int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

                if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
                        return fd;
                if (fd < 0 || errno != ECONNREFUSED || bench_now_ns() > end)
                        bench_die("cannot reach %s:%d: %s", text, PORT, strerror(errno));
                close(fd);
                usleep(1000);
        }
}

static void make_ready(int fd) {
        int on = 1;

        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
            fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
                bench_die("a connection cannot be set up: %s", strerror(errno));
}

static void ring_open(struct ring *r, const char *own, const char *next) {
        int listener = listen_at(own);

        r->next = connect_to(next);
        r->previous = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (r->previous < 0)
                bench_die("accept: %s", strerror(errno));
        close(listener);
        make_ready(r->next);
        make_ready(r->previous);
}

static size_t least(size_t left) {
        return left < CHUNK ? left : CHUNK;
}

/* Bytes that went through; 0 if the call would have blocked. */
static size_t moved(ssize_t n, const char *what) {
        if (n > 0)
                return (size_t)n;
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
                bench_die("%s: %s", what, n == 0 ? "the other end has gone" : strerror(errno));
        return 0;
}

static void exchange(void *data) {
        struct ring *r = data;
        size_t sent = 0, got = 0;

        while (sent < r->bytes || got < r->bytes) {
                struct pollfd fds[2] = {
                        { .fd = sent < r->bytes ? r->next : -1, .events = POLLOUT },
                        { .fd = got < r->bytes ? r->previous : -1, .events = POLLIN },
                };

                if (poll(fds, 2, -1) < 0 && errno != EINTR)
                        bench_die("poll: %s", strerror(errno));
                if (fds[0].revents)
                        sent += moved(send(r->next, r->out + sent, least(r->bytes - sent), MSG_NOSIGNAL),
                                      "send");
                if (fds[1].revents)
                        got += moved(recv(r->previous, r->in + got, least(r->bytes - got), 0), "recv");
        }
}

static void release(void *data) {
        struct ring *r = data;

        free(r->out);
        free(r->in);
        r->out = r->in = NULL;
        r->bytes = 0;
}

static void prepare(struct ring *r, size_t bytes) {
        release(r);
        r->out = malloc(bytes);
        r->in = malloc(bytes);
        if (!r->out || !r->in)
                bench_die("out of memory");
        memset(r->out, 1, bytes);
        memset(r->in, 0, bytes);
        r->bytes = bytes;
}

static bool obey(void *data, struct control *c, const char *line) {
        size_t bytes;
        unsigned int n;

        if (sscanf(line, "prepare %zu %u", &bytes, &n) != 2 || bytes == 0)
                return false;
        prepare(data, bytes);
        control_reply(c, "ready");
        return true;
}

int main(int argc, char **argv) {
        struct ring r = { .next = -1 };
        struct control c;

        if (argc != 8)
                bench_die("usage: %s SOCKET GATE CONTENDER RANK HOSTS ADDRESS NEXT-ADDRESS", argv[0]);
        r.gate = gate_open(argv[2]);
        r.hosts = (unsigned int)strtoul(argv[5], NULL, 10);
        ring_open(&r, argv[6], argv[7]);
        control_open(&c, argv[1], argv[3], (unsigned int)strtoul(argv[4], NULL, 10));
        bench_serve(&(struct bench_peer){ .data = &r,
                                          .gate = r.gate,
                                          .members = r.hosts,
                                          .step = exchange,
                                          .release = release,
                                          .obey = obey },
                    &c);
        release(&r);
        close(r.next);
        close(r.previous);
        return 0;
}
