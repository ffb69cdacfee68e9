/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_loop.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "fuzz.h"

#define SOURCES 16u
#define ROUNDS 100000u /* enough to deal with all bytes that were sent */

struct loop {
        struct loop_deferred *first, **last;
};

struct loop_io {
        int fd;
        unsigned events;
        loop_io_fn fn;
        void *data;
};

struct loop_timer {
        bool armed;
        loop_timer_fn fn;
        void *data;
};

static struct loop the_loop = { .last = &the_loop.first };
static struct loop_io *io[SOURCES];
static struct loop_timer *timer[SOURCES];
static unsigned n_sources;

/* ---- the connection ---- */

#define SOCK 1000 /* its descriptor, which the kernel does not know */

static struct {
        const uint8_t *in; /* bytes that were sent and not read yet */
        size_t n_in;
        bool waits, is_open, has_ended; /* not accepted yet; not closed; nothing more is sent */
} connection;

static struct fuzz_answer *out;

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
int __real_close(int fd);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
int __wrap_close(int fd);

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
        bool waits = connection.waits;

        connection.waits = false;
        if (!waits)
                errno = EAGAIN;
        else if (address != NULL)
                *(struct sockaddr_in *)(void *)address = (struct sockaddr_in){ .sin_family = AF_INET };
        return waits ? SOCK : -1;
}

/* The other end is a process of the same user. */
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
        must(fd == SOCK && connection.is_open && option == SO_PEERCRED);
        *(struct ucred *)value = (struct ucred){ 1, geteuid(), 1 };
        return 0;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) {
        size_t n = connection.n_in < size ? connection.n_in : size;

        must(fd == SOCK && connection.is_open && size > 0);
        if (n == 0 && !connection.has_ended) {
                errno = EAGAIN;
                return -1;
        }
        if (n > 0)
                memcpy(bytes, connection.in, n);
        if (!(flags & MSG_PEEK) && n > 0) {
                connection.in += n;
                connection.n_in -= n;
        }
        return (ssize_t)n;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
        must(message->msg_iovlen == 1);
        message->msg_controllen = 0;
        message->msg_flags = 0;
        return __wrap_recv(fd, message->msg_iov->iov_base, message->msg_iov->iov_len, flags);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
        must(fd == SOCK && connection.is_open && (flags & MSG_NOSIGNAL));
        must(out->n + size < sizeof(out->text));
        memcpy(out->text + out->n, bytes, size);
        out->n += size;
        out->text[out->n] = '\0';
        return (ssize_t)size;
}

int __wrap_close(int fd) {
        if (fd != SOCK)
                return __real_close(fd);
        must(connection.is_open);
        connection.is_open = false;
        return 0;
}

/* ---- the loop, and the log ---- */

void log_write(int priority, const struct log_context *context, const char *format, ...) {}

int loop_new(struct loop **ret) {
        *ret = &the_loop;
        return 0;
}

struct loop *loop_free(struct loop *loop) {
        return NULL;
}

/* A place in a table of pointers that is free, or that has this value. */
static void **place_of(void *table, const void *value) {
        void **at = table;

        for (unsigned i = 0; i < SOURCES; i++)
                if (at[i] == value)
                        return &at[i];
        abort();
}

int loop_io_new(struct loop *loop, int fd, unsigned events, loop_io_fn fn, void *data, struct loop_io **ret) {
        *ret = malloc(sizeof(**ret));
        must(*ret != NULL);
        **ret = (struct loop_io){ fd, events, fn, data };
        *place_of(io, NULL) = *ret;
        n_sources++;
        return 0;
}

int loop_io_set(struct loop_io *source, unsigned events) {
        source->events = events;
        return 0;
}

struct loop_io *loop_io_free(struct loop_io *source) {
        if (source == NULL)
                return NULL;
        *place_of(io, source) = NULL;
        n_sources--;
        free(source);
        return NULL;
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret) {
        *ret = malloc(sizeof(**ret));
        must(*ret != NULL);
        **ret = (struct loop_timer){ false, fn, data };
        *place_of(timer, NULL) = *ret;
        return 0;
}

int loop_timer_arm(struct loop_timer *of, uint64_t in_us) {
        of->armed = true;
        return 0;
}

void loop_timer_disarm(struct loop_timer *of) {
        of->armed = false;
}

struct loop_timer *loop_timer_free(struct loop_timer *of) {
        if (of != NULL)
                *place_of(timer, of) = NULL;
        free(of);
        return NULL;
}

void loop_defer(struct loop *loop, struct loop_deferred *deferred) {
        if (deferred->queued)
                return;
        deferred->queued = true;
        deferred->next = NULL;
        *loop->last = deferred;
        loop->last = &deferred->next;
}

void loop_defer_cancel(struct loop *loop, struct loop_deferred *deferred) {
        struct loop_deferred **at = &loop->first;

        while (*at != NULL && *at != deferred)
                at = &(*at)->next;
        if (*at == NULL)
                return;
        *at = deferred->next;
        if (loop->last == &deferred->next)
                loop->last = at;
        deferred->queued = false;
}

static void run_deferred(void) {
        while (the_loop.first != NULL) {
                struct loop_deferred *deferred = the_loop.first;

                loop_defer_cancel(&the_loop, deferred);
                deferred->fn(deferred->data);
        }
}

static bool is_ready(const struct loop_io *source) {
        if (source == NULL || source->fd != SOCK)
                return false;
        return source->events & LOOP_WRITE ||
               (source->events & LOOP_READ && (connection.n_in > 0 || connection.has_ended));
}

/* Runs the loop until there is nothing more to do. */
static void pass(void) {
        run_deferred();
        for (unsigned i = 0, rounds = 0; i < SOURCES; i++) {
                if (!is_ready(io[i]))
                        continue;
                must(rounds++ < ROUNDS);
                io[i]->fn(io[i]->data, SOCK, io[i]->events);
                run_deferred();
                i = UINT_MAX;
        }
}

int fuzz_listener(void) {
        int never = eventfd(0, EFD_CLOEXEC);

        must(never >= 0);
        return never;
}

void fuzz_connect(int listener, struct fuzz_answer *answer) {
        must(!connection.is_open);
        memset(&connection, 0, sizeof(connection));
        connection.waits = connection.is_open = true;
        out = answer;
        out->n = 0;
        out->text[0] = '\0';
        for (unsigned i = 0; i < SOURCES; i++)
                if (io[i] != NULL && io[i]->fd == listener)
                        io[i]->fn(io[i]->data, listener, LOOP_READ);
        must(!connection.waits);
        pass();
}

void fuzz_send(const uint8_t *data, size_t size) {
        connection.in = data;
        connection.n_in = size;
        pass();
}

void fuzz_hang_up(void) {
        connection.has_ended = true;
        pass();
}

bool fuzz_is_open(void) {
        return connection.is_open;
}

void fuzz_time_out(void) {
        for (unsigned i = 0; i < SOURCES; i++) {
                if (timer[i] == NULL || !timer[i]->armed)
                        continue;
                timer[i]->armed = false;
                timer[i]->fn(timer[i]->data);
                pass();
        }
}

unsigned fuzz_sources(void) {
        return n_sources;
}
