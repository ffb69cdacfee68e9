/* SPDX-License-Identifier: Apache-2.0 */
/* Serving metrics: accept, hear what is said at once, write a piece of the text whenever the one before is
 * read, close. */
#include "core/exporter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "core/scrape.h"
#include "proto/fdpass.h"

#define CALLERS 8u                    /* at a time */
#define REQUEST_MAX 4096u             /* bytes of an HTTP request that are looked at */
#define DISCARDS 16u                  /* times REQUEST_MAX, of what comes after it */
#define SILENCE (100 * USEC_PER_MSEC) /* a caller that has said nothing for so long wants the text alone */
#define PATIENCE (5 * USEC_PER_SEC)   /* for a request, and again for each piece of the response to be read */
#define RETRY USEC_PER_SEC            /* after a failure to accept, as when fds are short */

struct caller {
        struct list link;
        struct exporter *exporter;
        int sock;
        uid_t uid;
        struct loop_io *io;
        struct loop_timer *timer;
        char request[REQUEST_MAX + 1];
        size_t heard;
        bool heard_out;
        struct scrape scrape; /* what is left of the text */
        char *text;           /* a piece of the response */
        size_t size, sent;
        struct loop_deferred reap;
};

struct exporter {
        struct loop *loop;
        struct closer *closer;
        struct sessions *sessions;
        int fd;
        char *path;
        struct loop_io *io;
        struct loop_timer *retry;
        struct list callers;
        unsigned n;
};

static void caller_free(struct caller *caller) {
        struct exporter *exporter = caller->exporter;

        loop_defer_cancel(exporter->loop, &caller->reap);
        loop_timer_free(caller->timer);
        loop_io_free(caller->io);
        closer_hang_up(exporter->closer, caller->sock, caller->uid);
        list_remove(&caller->link);
        free(caller->text);
        free(caller);
        exporter->n--;
}

static void caller_reap(void *data) {
        caller_free(data);
}

static void caller_finish(struct caller *caller) {
        loop_io_set(caller->io, 0);
        loop_timer_disarm(caller->timer);
        loop_defer(caller->exporter->loop, &caller->reap);
}

/* Whoever sends fds is not heard: the kernel would close them here, and wait for that if it has to. */
static ssize_t caller_receive(struct caller *caller, char *to, size_t size) {
        ssize_t n = fdpass_peek(caller->sock, to, size);

        return n > 0 && recv(caller->sock, to, (size_t)n, 0) != n ? -EIO : n;
}

/* Closing a socket with something unread in it takes the response away from the caller. */
static void caller_discard(struct caller *caller) {
        for (unsigned i = 0; i < DISCARDS; i++)
                if (caller_receive(caller, caller->request, REQUEST_MAX) <= 0)
                        return;
}

/* Is this the start of an HTTP request, as far as has been heard? */
static bool caller_speaks_http(const struct caller *caller) {
        static const char *const methods[] = { "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS " };

        for (size_t i = 0; i < array_size(methods); i++) {
                size_t length = strlen(methods[i]);

                if (length > caller->heard)
                        length = caller->heard;
                if (strncmp(caller->request, methods[i], length) == 0)
                        return caller->heard > 0;
        }
        return false;
}

static const char *caller_http_status(const struct caller *caller, bool head) {
        const char *path = caller->request + (head ? 5 : 4);
        size_t length = strcspn(path, " ?\r\n");

        if (!head && strncmp(caller->request, "GET ", 4) != 0)
                return "405 Method Not Allowed";
        if ((length == 1 && path[0] == '/') || (length == 8 && strncmp(path, "/metrics", 8) == 0))
                return "200 OK";
        return "404 Not Found";
}

/* The length of the text is not known before its end, which the hang-up shows, and "# EOF" before it. */
static void caller_write_head(const struct caller *caller, bool head, FILE *to) {
        const char *status = caller_http_status(caller, head);
        bool fine = strcmp(status, "200 OK") == 0;

        fprintf(to, "HTTP/1.1 %s\r\nContent-Type: %s\r\n%sConnection: close\r\n\r\n", status,
                fine ? METRICS_TYPE : "text/plain", fine ? "" : "Content-Length: 0\r\n");
}

/* Makes what is sent next. False: memory is short. */
static bool caller_compose(struct caller *caller, void (*fill)(struct caller *caller, FILE *to)) {
        free(caller->text);
        caller->text = NULL;
        caller->size = caller->sent = 0;
        FILE *to = open_memstream(&caller->text, &caller->size);
        if (to == NULL)
                return false;
        fill(caller, to);
        return fclose(to) == 0;
}

static void caller_begin_text(struct caller *caller, FILE *to) {
        bool head = strncmp(caller->request, "HEAD ", 5) == 0, http = caller_speaks_http(caller);

        if (http)
                caller_write_head(caller, head, to);
        if (http && (head || strcmp(caller_http_status(caller, head), "200 OK") != 0))
                caller->scrape.stage = SCRAPE_OVER;
}

static void caller_go_on(struct caller *caller, FILE *to) {
        scrape_write(&caller->scrape, to);
}

static void caller_prepare(struct caller *caller, void (*fill)(struct caller *caller, FILE *to)) {
        if (!caller_compose(caller, fill)) {
                log_error("metrics cannot be given out: out of memory");
                caller_finish(caller);
                return;
        }
        loop_timer_arm(caller->timer, PATIENCE);
}

/* The next piece is made when the loop comes here again: others have their turn before. */
static void caller_transmit(struct caller *caller) {
        ssize_t n =
                send(caller->sock, caller->text + caller->sent, caller->size - caller->sent, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n > 0)
                caller->sent += (size_t)n;
        if (n >= 0 && caller->sent < caller->size)
                return;
        if (n >= 0 && !scrape_is_over(&caller->scrape)) {
                caller_prepare(caller, caller_go_on);
                return;
        }
        caller_discard(caller);
        caller_finish(caller);
}

static void caller_answer(struct caller *caller) {
        caller->heard_out = true;
        scrape_begin(&caller->scrape, caller->exporter->sessions);
        loop_io_set(caller->io, LOOP_WRITE);
        caller_prepare(caller, caller_begin_text);
}

/* Whether what the caller has to say is complete. */
static bool caller_is_complete(const struct caller *caller) {
        return caller->heard == REQUEST_MAX || !caller_speaks_http(caller) ||
               strstr(caller->request, "\r\n\r\n") != NULL || strstr(caller->request, "\n\n") != NULL;
}

static void caller_hear(struct caller *caller) {
        ssize_t n = caller_receive(caller, caller->request + caller->heard, REQUEST_MAX - caller->heard);

        if (n == -EAGAIN)
                return;
        if (n < 0) {
                caller_finish(caller);
                return;
        }
        /* not with each byte: a caller that sends one now and then would keep its place */
        if (caller->heard == 0)
                loop_timer_arm(caller->timer, PATIENCE);
        caller->heard += (size_t)n;
        caller->request[caller->heard] = '\0';
        if (n == 0 || caller_is_complete(caller))
                caller_answer(caller);
}

static void caller_on_ready(void *data, int fd, unsigned events) {
        struct caller *caller = data;

        if (caller->reap.queued)
                return;
        if (caller->heard_out)
                caller_transmit(caller);
        else
                caller_hear(caller);
}

/* A caller that says nothing wants the text. One whose request does not end, or that does not read the
 * response, is hung up. */
static void caller_on_silence(void *data) {
        struct caller *caller = data;

        if (!caller->heard_out && caller->heard == 0)
                caller_answer(caller);
        else
                caller_finish(caller);
}

static int caller_new(struct exporter *exporter, int sock, struct caller **ret) {
        struct caller *caller = calloc(1, sizeof(*caller));
        struct ucred who;
        int r = proc_peer(sock, &who);

        if (caller == NULL || r < 0) {
                closer_close_at_once(exporter->closer, sock);
                free(caller);
                return caller == NULL ? -ENOMEM : r;
        }
        caller->exporter = exporter;
        caller->sock = sock;
        caller->uid = who.uid;
        caller->reap = (struct loop_deferred){ .fn = caller_reap, .data = caller };
        list_append(&exporter->callers, &caller->link);
        exporter->n++;
        r = loop_timer_new(exporter->loop, caller_on_silence, caller, &caller->timer);
        if (r == 0)
                r = loop_io_new(exporter->loop, sock, LOOP_READ, caller_on_ready, caller, &caller->io);
        if (r == 0)
                r = loop_timer_arm(caller->timer, SILENCE);
        if (r < 0)
                caller_free(caller);
        else
                *ret = caller;
        return r;
}

static void exporter_pause(struct exporter *exporter) {
        loop_io_set(exporter->io, 0);
        loop_timer_arm(exporter->retry, RETRY);
}

static void exporter_on_retry(void *data) {
        struct exporter *exporter = data;

        loop_io_set(exporter->io, LOOP_READ);
}

static unsigned exporter_count(const struct exporter *exporter, uid_t uid) {
        const struct caller *caller;
        unsigned n = 0;

        list_for_each(caller, &exporter->callers, link)
                n += caller->uid == uid;
        return n;
}

/* Who has to go for the next one: of the user that has most of them, the one that has been here longest. */
static struct caller *exporter_choose(const struct exporter *exporter) {
        struct caller *caller, *chosen = NULL;
        unsigned most = 0;

        list_for_each(caller, &exporter->callers, link) {
                unsigned n = exporter_count(exporter, caller->uid);

                if (n > most) {
                        most = n;
                        chosen = caller;
                }
        }
        return chosen;
}

/* Nobody waits for callers that hold on. What a caller has said by now is heard at once. */
static void exporter_on_incoming(void *data, int fd, unsigned events) {
        struct exporter *exporter = data;

        for (unsigned i = 0; i < CALLERS; i++) {
                int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                struct caller *caller = NULL;

                if (sock < 0 && (errno == EINTR || errno == ECONNABORTED))
                        continue;
                if (sock < 0 && errno == EAGAIN)
                        return;
                if (sock >= 0 && exporter->n == CALLERS)
                        caller_free(exporter_choose(exporter));
                if (sock < 0 || caller_new(exporter, sock, &caller) < 0) {
                        exporter_pause(exporter);
                        return;
                }
                caller_hear(caller);
        }
}

int exporter_new(struct loop *loop, struct sessions *sessions, struct closer *closer,
                 const struct listener_config *config, struct exporter **ret, char *error, size_t size) {
        struct exporter *exporter = calloc(1, sizeof(*exporter));
        int r = -ENOMEM;

        if (exporter != NULL) {
                exporter->loop = loop;
                exporter->sessions = sessions;
                exporter->closer = closer;
                list_init(&exporter->callers);
                exporter->fd = -1;
                exporter->path = strdup(config->path);
        }
        if (exporter == NULL || exporter->path == NULL) {
                free(exporter);
                snprintf(error, size, "cannot listen on %s: %s", config->path, strerror(-r));
                return r;
        }
        r = listener_bind(config, SOCK_STREAM, &exporter->fd, error, size);
        if (r == 0) {
                r = loop_timer_new(loop, exporter_on_retry, exporter, &exporter->retry);
                if (r == 0)
                        r = loop_io_new(loop, exporter->fd, LOOP_READ, exporter_on_incoming, exporter,
                                        &exporter->io);
                if (r < 0)
                        snprintf(error, size, "cannot watch %s: %s", config->path, strerror(-r));
        }
        if (r < 0) {
                exporter_free(exporter);
                return r;
        }
        *ret = exporter;
        return 0;
}

struct exporter *exporter_free(struct exporter *exporter) {
        struct caller *caller, *spare;

        if (exporter == NULL)
                return NULL;
        list_for_each_safe(caller, spare, &exporter->callers, link)
                caller_free(caller);
        loop_io_free(exporter->io);
        loop_timer_free(exporter->retry);
        if (exporter->fd >= 0)
                unlink(exporter->path);
        closer_close_at_once(exporter->closer, exporter->fd);
        free(exporter->path);
        free(exporter);
        return NULL;
}
