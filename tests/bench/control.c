/* SPDX-License-Identifier: Apache-2.0 */
/* The measured processes' side of the benchmark's control line, and the gate; see control.h. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t bench_now_ns(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void bench_die(const char *format, ...) {
        va_list args;

        va_start(args, format);
        fputs("bench: ", stderr);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        va_end(args);
        exit(1);
}

void control_open(struct control *c, const char *path, const char *contender, unsigned int member) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        memset(c, 0, sizeof(*c));
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                bench_die("cannot reach the driver at %s: %s", path, strerror(errno));
        control_reply(c, "hello %s %u %d", contender, member, getpid());
}

bool control_read(struct control *c, char *line, size_t size) {
        for (;;) {
                char *end = (char *)memchr(c->buffer, '\n', c->have);
                ssize_t n;

                if (end) {
                        size_t length = (size_t)(end - c->buffer);

                        if (length >= size)
                                bench_die("a command is too long");
                        memcpy(line, c->buffer, length);
                        line[length] = '\0';
                        c->have -= length + 1;
                        memmove(c->buffer, end + 1, c->have);
                        return true;
                }
                if (c->have == sizeof(c->buffer))
                        bench_die("a command is too long");
                n = read(c->fd, c->buffer + c->have, sizeof(c->buffer) - c->have);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return false;
                c->have += (size_t)n;
        }
}

static void write_all(int fd, const char *data, size_t size) {
        while (size) {
                ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        exit(1); /* the driver has gone; it has said why */
                data += n;
                size -= (size_t)n;
        }
}

void control_reply(struct control *c, const char *format, ...) {
        char line[1024];
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(line, sizeof(line) - 1, format, args);
        va_end(args);
        if (n < 0 || (size_t)n >= sizeof(line) - 1)
                bench_die("a reply is too long");
        line[n] = '\n';
        write_all(c->fd, line, (size_t)n + 1);
}

void control_reply_stamps(struct control *c, const int64_t *ns, unsigned int n) {
        size_t size = 16 + (size_t)n * 22, used;
        char *line = (char *)malloc(size);

        if (!line)
                bench_die("out of memory");
        used = (size_t)snprintf(line, size, "stamps");
        for (unsigned int i = 0; i < n; i++)
                used += (size_t)snprintf(line + used, size - used, " %lld", (long long)ns[i]);
        line[used++] = '\n';
        write_all(c->fd, line, used);
        free(line);
}

struct gate *gate_open(const char *path) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        void *memory;

        if (fd < 0)
                bench_die("cannot open %s: %s", path, strerror(errno));
        memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED)
                bench_die("cannot map %s: %s", path, strerror(errno));
        close(fd);
        return (struct gate *)memory;
}

/*
 * A member that comes early sleeps. It must not spin: helper threads of the contender, or of a daemon, may
 * still work for members that have not come yet, and would find the processor taken.
 */
void gate_meet(struct gate *g, unsigned int members) {
        uint32_t turn = __atomic_load_n(&g->turn, __ATOMIC_ACQUIRE);

        if (__atomic_add_fetch(&g->arrived, 1, __ATOMIC_ACQ_REL) == members) {
                g->arrived = 0;
                __atomic_store_n(&g->turn, turn + 1, __ATOMIC_RELEASE);
                syscall(SYS_futex, &g->turn, FUTEX_WAKE, members, NULL, NULL, 0);
                return;
        }
        while (__atomic_load_n(&g->turn, __ATOMIC_ACQUIRE) == turn)
                syscall(SYS_futex, &g->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
}

static void bench_run(const struct bench_peer *peer, struct control *c, unsigned int n) {
        int64_t *ns = (int64_t *)malloc((n + 1) * sizeof(*ns));

        if (!ns)
                bench_die("out of memory");
        if (peer->gate)
                gate_meet(peer->gate, peer->members);
        ns[0] = bench_now_ns();
        for (unsigned int i = 1; i <= n; i++) {
                peer->step(peer->data);
                ns[i] = bench_now_ns();
        }
        control_reply_stamps(c, ns, n + 1);
        free(ns);
}

void bench_serve(const struct bench_peer *peer, struct control *c) {
        char line[256];
        unsigned int n;

        while (control_read(c, line, sizeof(line)) && strcmp(line, "quit")) {
                if (peer->obey(peer->data, c, line))
                        continue;
                if (peer->step && sscanf(line, "run %u", &n) == 1) {
                        bench_run(peer, c, n);
                } else if (!strcmp(line, "release")) {
                        peer->release(peer->data);
                        control_reply(c, "released");
                } else {
                        bench_die("unknown command \"%s\"", line);
                }
        }
}

static size_t whole_pages(size_t bytes) {
        return (bytes + 4095) & ~(size_t)4095;
}

float *bench_buffer(size_t bytes, float value, bool huge) {
        size_t size = whole_pages(bytes);
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        float *buffer = (float *)memory;

        if (memory == MAP_FAILED)
                bench_die("cannot allocate %zu bytes: %s", bytes, strerror(errno));
        madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        for (size_t i = 0; i < size / sizeof(float); i++)
                buffer[i] = value;
        return buffer;
}

void bench_buffer_free(float *buffer, size_t bytes) {
        munmap(buffer, whole_pages(bytes));
}

bool bench_check(const float *buffer, size_t count, float expected) {
        return buffer[0] == expected && buffer[count / 2] == expected && buffer[count - 1] == expected;
}
