/* SPDX-License-Identifier: Apache-2.0 */
/* Serves metrics: accepts a caller, reads what it has sent already, writes a piece of the text whenever the
 * one before is read, and closes. On the network every caller has to speak HTTP. */
#include "core/exporter.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "core/http.h"
#include "core/port.h"
#include "proto/fdpass.h"

#define CALLERS 8u                    /* at a time */
#define REQUEST_MAX 4096u             /* bytes of an HTTP request that are looked at */
#define DISCARDS 16u                  /* times REQUEST_MAX, of bytes that come after it */
#define SILENCE (100 * USEC_PER_MSEC) /* a caller that has said nothing for so long wants the text alone */
#define PATIENCE (5 * USEC_PER_SEC)   /* for a request, and again for each piece of the response to be read */
#define NAMES (2u + MAXDNSRCH)        /* of this host */
#define RETRY USEC_PER_SEC            /* after a failure to accept, as when fds are short */

struct caller {
        struct list link;
        struct exporter *exporter;
        int sock;
        uint64_t from; /* its uid, or its address: callers with the same one share the places */
        struct loop_io *io;
        struct loop_timer *timer;
        char request[REQUEST_MAX + 1];
        size_t heard;
        bool heard_out, is_http;
        struct http_request asked;
        bool chunks;          /* the response comes in chunks, the last of which has not been made */
        struct scrape scrape; /* the rest of the text */
        char *text;           /* a piece of the response */
        size_t size, sent;
        struct loop_deferred reap;
};

struct exporter {
        struct loop *loop;
        struct closer *closer;
        struct scrape_config scrape;
        char *address;         /* on the network; NULL: of a socket file */
        char *name[NAMES + 1]; /* of this host, then NULL */
        int fd;                /* -1: it does not listen on the address yet */
        char *path;            /* of the socket file; NULL: on the network */
        struct loop_io *io;
        struct loop_timer *retry;
        struct list callers;
        unsigned n;
};

static bool exporter_is_network(const struct exporter *exporter) {
        return exporter->address != NULL;
}

/* A caller on the network cannot send descriptors, so closing its socket waits for nothing. */
static void caller_hang_up(struct caller *caller) {
        if (exporter_is_network(caller->exporter))
                fd_close(caller->sock);
        else
                closer_hang_up(caller->exporter->closer, caller->sock, (uid_t)caller->from);
}

static void caller_free(struct caller *caller) {
        struct exporter *exporter = caller->exporter;

        scrape_end(&caller->scrape);
        loop_defer_cancel(exporter->loop, &caller->reap);
        loop_timer_free(caller->timer);
        loop_io_free(caller->io);
        caller_hang_up(caller);
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

/* Does not read from a caller that sends fds: the kernel would close them in this call, and may wait for
 * that. */
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

/* Makes the text that is sent next. False: memory is short. */
static bool caller_compose(struct caller *caller, void (*fill)(struct caller *caller, FILE *to)) {
        free(caller->text);
        caller->text = NULL;
        caller->size = caller->sent = 0;
        FILE *to = open_memstream(&caller->text, &caller->size);
        if (to == NULL)
                return false;
        fill(caller, to);
        return fclose(to) == 0 && caller->text != NULL;
}

static void caller_begin_text(struct caller *caller, FILE *to) {
        if (caller->is_http)
                http_write_head(&caller->asked, to);
        if (caller->is_http && (caller->asked.head || !caller->asked.fine))
                scrape_end(&caller->scrape);
}

static void caller_go_on(struct caller *caller, FILE *to) {
        scrape_write(&caller->scrape, to);
}

static void caller_go_on_in_chunks(struct caller *caller, FILE *to) {
        http_begin_chunk(to);
        scrape_write(&caller->scrape, to);
        http_end_chunk(to);
}

static void caller_end_chunks(struct caller *caller, FILE *to) {
        fputs(HTTP_CHUNK_LAST, to);
}

/* A chunk that contains nothing is not sent. */
static void caller_finish_chunk(struct caller *caller) {
        if (caller->size > HTTP_CHUNK_HEAD + HTTP_CHUNK_TAIL)
                http_finish_chunk(caller->text, caller->size);
        else
                caller->size = 0;
}

static void caller_prepare(struct caller *caller, void (*fill)(struct caller *caller, FILE *to)) {
        if (!caller_compose(caller, fill)) {
                log_error("metrics cannot be given out: out of memory");
                caller_finish(caller);
                return;
        }
        loop_timer_arm(caller->timer, PATIENCE);
}

/* False: all of the response has been made. */
static bool caller_prepare_next(struct caller *caller) {
        bool over = scrape_is_over(&caller->scrape);

        if (over && !caller->chunks)
                return false;
        caller->chunks &= !over;
        if (over)
                caller_prepare(caller, caller_end_chunks);
        else
                caller_prepare(caller, caller->chunks ? caller_go_on_in_chunks : caller_go_on);
        if (!over && caller->chunks && !caller->reap.queued)
                caller_finish_chunk(caller);
        return true;
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
        if (n >= 0 && caller_prepare_next(caller))
                return;
        caller_discard(caller);
        caller_finish(caller);
}

static void caller_answer(struct caller *caller) {
        struct exporter *exporter = caller->exporter;

        caller->heard_out = true;
        caller->is_http = exporter_is_network(exporter) || http_begins(caller->request, caller->heard);
        http_parse(caller->request,
                   exporter_is_network(exporter) ? (const char *const *)exporter->name : NULL,
                   &caller->asked);
        if (exporter_is_network(exporter) && caller->asked.fine && caller->heard == REQUEST_MAX &&
            !http_is_complete(caller->request)) { /* for which host it is may not have been read */
                caller->asked.status = "431 Request Header Fields Too Large";
                caller->asked.fine = false;
        }
        caller->chunks =
                caller->is_http && caller->asked.chunked && caller->asked.fine && !caller->asked.head;
        scrape_begin(&caller->scrape, &exporter->scrape);
        loop_io_set(caller->io, LOOP_WRITE);
        caller_prepare(caller, caller_begin_text);
}

/* Whether the caller's request is complete. */
static bool caller_is_complete(const struct caller *caller) {
        return caller->heard == REQUEST_MAX || !http_begins(caller->request, caller->heard) ||
               http_is_complete(caller->request);
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
        if ((n == 0 && !exporter_is_network(caller->exporter)) || (n > 0 && caller_is_complete(caller)))
                caller_answer(caller);
        else if (n == 0)
                caller_finish(caller);
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

/* A caller that says nothing wants the text, except on the network. One whose request does not end, or that
 * does not read the response, is hung up. */
static void caller_on_silence(void *data) {
        struct caller *caller = data;

        if (!caller->heard_out && caller->heard == 0 && !exporter_is_network(caller->exporter))
                caller_answer(caller);
        else
                caller_finish(caller);
}

static int caller_new(struct exporter *exporter, int sock, uint64_t from, struct caller **ret) {
        struct caller *caller = calloc(1, sizeof(*caller));
        int r;

        if (caller == NULL) {
                closer_close_at_once(exporter->closer, sock);
                return -ENOMEM;
        }
        caller->exporter = exporter;
        caller->sock = sock;
        caller->from = from;
        caller->reap = (struct loop_deferred){ .fn = caller_reap, .data = caller };
        list_append(&exporter->callers, &caller->link);
        exporter->n++;
        r = loop_timer_new(exporter->loop, caller_on_silence, caller, &caller->timer);
        if (r == 0)
                r = loop_io_new(exporter->loop, sock, LOOP_READ, caller_on_ready, caller, &caller->io);
        if (r == 0)
                r = loop_timer_arm(caller->timer, exporter_is_network(exporter) ? PATIENCE : SILENCE);
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

static unsigned exporter_count(const struct exporter *exporter, uint64_t from) {
        const struct caller *caller;
        unsigned n = 0;

        list_for_each(caller, &exporter->callers, link)
                n += caller->from == from;
        return n;
}

/* Chooses the caller that makes way for the next one: the oldest one of the user or address that has most
 * callers. */
static struct caller *exporter_choose(const struct exporter *exporter) {
        struct caller *caller, *chosen = NULL;
        unsigned most = 0;

        list_for_each(caller, &exporter->callers, link) {
                unsigned n = exporter_count(exporter, caller->from);

                if (n > most) {
                        most = n;
                        chosen = caller;
                }
        }
        return chosen;
}

/* The number of an address; of IPv6 the part that a host does not choose for itself. */
static uint64_t exporter_number(const struct sockaddr_storage *address) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        uint64_t number = 0;

        if (address->ss_family == AF_INET)
                return ((const struct sockaddr_in *)address)->sin_addr.s_addr;
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
                memcpy(&number, &six->sin6_addr.s6_addr[12], 4);
        else
                memcpy(&number, &six->sin6_addr, sizeof(number));
        return number;
}

/* 0, or a negative errno: the socket is closed then. */
static int exporter_take(struct exporter *exporter, int sock, const struct sockaddr_storage *address,
                         struct caller **ret) {
        struct ucred who = { 0 };
        int r = exporter_is_network(exporter) ? 0 : proc_peer(sock, &who);

        if (exporter->n == CALLERS)
                caller_free(exporter_choose(exporter));
        if (r == 0)
                return caller_new(exporter, sock,
                                  exporter_is_network(exporter) ? exporter_number(address) : who.uid, ret);
        closer_close_at_once(exporter->closer, sock);
        return r;
}

/* A new caller does not wait for those that hold on. If it has sent its request already, that is read at
 * once. */
static void exporter_on_incoming(void *data, int fd, unsigned events) {
        struct exporter *exporter = data;

        for (unsigned i = 0; i < CALLERS; i++) {
                struct sockaddr_storage address = { 0 };
                socklen_t length = sizeof(address);
                int sock = accept4(fd, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
                struct caller *caller = NULL;

                if (sock < 0 && (errno == EINTR || errno == ECONNABORTED))
                        continue;
                if (sock < 0 && errno == EAGAIN)
                        return;
                if (sock < 0 || exporter_take(exporter, sock, &address, &caller) < 0) {
                        exporter_pause(exporter);
                        return;
                }
                caller_hear(caller);
        }
}

static int exporter_watch(struct exporter *exporter, char *error, size_t size) {
        int r = loop_io_new(exporter->loop, exporter->fd, LOOP_READ, exporter_on_incoming, exporter,
                            &exporter->io);

        if (r < 0)
                snprintf(error, size, "cannot watch %s: %s",
                         exporter->address ? exporter->address : exporter->path, strerror(-r));
        else if (exporter_is_network(exporter))
                log_info("http://%s/metrics gives %s to whoever reaches that address", exporter->address,
                         exporter->scrape.jobs ? "names and figures of all jobs" : "totals");
        return r;
}

/* Accepts again; or tries the address again, which another process had, or which this host did not have. */
static void exporter_on_retry(void *data) {
        struct exporter *exporter = data;
        char error[512];

        if (exporter->io != NULL) {
                loop_io_set(exporter->io, LOOP_READ);
                return;
        }
        if ((exporter->fd < 0 && port_listen(exporter->address, &exporter->fd, error, sizeof(error)) < 0) ||
            exporter_watch(exporter, error, sizeof(error)) < 0)
                loop_timer_arm(exporter->retry, RETRY);
}

bool exporter_may_wait(int r) {
        return r == -EADDRINUSE || r == -EADDRNOTAVAIL;
}

/* The socket file, or the port. */
static int exporter_bind(struct exporter *exporter, const struct exporter_config *config, char *error,
                         size_t size) {
        if (exporter_is_network(exporter))
                return port_listen(config->address, &exporter->fd, error, size);
        int r = listener_bind(&config->socket, SOCK_STREAM, &exporter->fd, error, size);
        if (r == 0) {
                exporter->path = strdup(config->socket.path);
                if (exporter->path == NULL) {
                        unlink(config->socket.path);
                        snprintf(error, size, "cannot listen on %s: %s", config->socket.path,
                                 strerror(ENOMEM));
                        return -ENOMEM;
                }
        }
        return r;
}

static int exporter_add_name(struct exporter *exporter, const char *host, size_t length, const char *domain) {
        unsigned n = 0;
        char *name;

        while (exporter->name[n] != NULL)
                n++;
        if (n == NAMES)
                return 0;
        if (asprintf(&name, "%.*s%s%s", (int)length, host, domain[0] != '\0' ? "." : "", domain) < 0)
                return -ENOMEM;
        exporter->name[n] = name;
        return 0;
}

/* The name of this host, its first part, and that in each domain in which its resolver looks for names. */
static int exporter_find_names(struct exporter *exporter) {
        char host[HOST_NAME_MAX + 1] = "";
        struct __res_state resolver = { 0 };

        if (gethostname(host, sizeof(host)) < 0)
                return 0;
        host[HOST_NAME_MAX] = '\0';
        size_t first = strcspn(host, ".");
        int r = exporter_add_name(exporter, host, strlen(host), "");
        if (r == 0 && host[first] != '\0')
                r = exporter_add_name(exporter, host, first, "");
        if (r < 0 || res_ninit(&resolver) < 0)
                return r;
        for (unsigned i = 0; r == 0 && i < MAXDNSRCH && resolver.dnsrch[i] != NULL; i++)
                r = exporter_add_name(exporter, host, first, resolver.dnsrch[i]);
        res_nclose(&resolver);
        return r;
}

int exporter_new(const struct exporter_config *config, struct exporter **ret, char *error, size_t size) {
        const char *where = config->address != NULL ? config->address : config->socket.path;
        struct exporter *exporter = calloc(1, sizeof(*exporter));

        if (exporter == NULL) {
                snprintf(error, size, "cannot listen on %s: %s", where, strerror(ENOMEM));
                return -ENOMEM;
        }
        exporter->loop = config->loop;
        exporter->closer = config->closer;
        exporter->scrape = config->scrape;
        exporter->address = config->address != NULL ? strdup(config->address) : NULL;
        exporter->fd = -1;
        list_init(&exporter->callers);
        int r = config->address == NULL     ? 0
                : exporter->address == NULL ? -ENOMEM
                                            : exporter_find_names(exporter);
        if (r == 0)
                r = loop_timer_new(config->loop, exporter_on_retry, exporter, &exporter->retry);
        if (r < 0)
                snprintf(error, size, "cannot listen on %s: %s", where, strerror(-r));
        if (r == 0)
                r = exporter_bind(exporter, config, error, size);
        if (r == 0) {
                r = exporter_watch(exporter, error, size);
        } else if (exporter_is_network(exporter) && exporter_may_wait(r)) {
                log_warning("%s; it is tried again every second", error);
                r = loop_timer_arm(exporter->retry, RETRY);
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
        if (exporter->path != NULL)
                unlink(exporter->path);
        closer_close_at_once(exporter->closer, exporter->fd);
        for (unsigned i = 0; exporter->name[i] != NULL; i++)
                free(exporter->name[i]);
        free(exporter->path);
        free(exporter->address);
        free(exporter);
        return NULL;
}
