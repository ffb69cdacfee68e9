/* SPDX-License-Identifier: Apache-2.0 */
/* Serving metrics: accept, hear what is said at once, gather the rows of a status answer, write, close. */
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
#include "proto/metrics.h"

#define CALLERS 8u                    /* at a time */
#define REQUEST_MAX 4096u             /* bytes of an HTTP request that are looked at */
#define DISCARDS 16u                  /* times REQUEST_MAX, of what comes after it */
#define SILENCE (100 * USEC_PER_MSEC) /* a caller that has said nothing for so long wants the text alone */
#define PATIENCE (5 * USEC_PER_SEC)   /* for a request, and again for the response to be read */
#define RETRY USEC_PER_SEC            /* after a failure to accept, as when fds are short */

struct caller {
        struct list link;
        struct exporter *exporter;
        int sock;
        struct loop_io *io;
        struct loop_timer *timer;
        char request[REQUEST_MAX + 1];
        size_t heard;
        char *text; /* the response; NULL while the caller is heard */
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

/* A status answer, row by row. */
struct gathering {
        Wire__StatusDaemon *daemon;
        struct metrics_job *job;
        size_t n_jobs;
        bool failed;
};

static ProtobufCMessage *exporter_copy(const ProtobufCMessage *message) {
        size_t size = protobuf_c_message_get_packed_size(message);
        _cleanup_(freep) uint8_t *bytes = malloc(size + 1);

        if (bytes == NULL)
                return NULL;
        protobuf_c_message_pack(message, bytes);
        return protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
}

/* Room for one more element. */
static bool gathering_grow(void *array, size_t n, size_t size) {
        void *grown = realloc(*(void **)array, (n + 1) * size);

        if (grown != NULL)
                *(void **)array = grown;
        return grown != NULL;
}

static bool gathering_add_member(struct metrics_job *job, const ProtobufCMessage *row) {
        Wire__StatusMember **list = (Wire__StatusMember **)(uintptr_t)job->member;
        bool room = gathering_grow(&list, job->n_members, sizeof(*list));

        job->member = list;
        if (!room)
                return false;
        list[job->n_members] = (Wire__StatusMember *)exporter_copy(row);
        if (list[job->n_members] == NULL)
                return false;
        job->n_members++;
        return true;
}

static bool gathering_add_job(struct gathering *gathering, const ProtobufCMessage *row) {
        if (!gathering_grow(&gathering->job, gathering->n_jobs, sizeof(*gathering->job)))
                return false;
        const Wire__StatusJob *job = (const Wire__StatusJob *)exporter_copy(row);
        if (job == NULL)
                return false;
        gathering->job[gathering->n_jobs++] = (struct metrics_job){ .job = job };
        return true;
}

static void gathering_add(void *data, uint16_t type, const ProtobufCMessage *row) {
        struct gathering *gathering = data;
        bool fine = true;

        if (gathering->failed)
                return;
        if (type == WIRE__MESSAGE_TYPE__STATUS_DAEMON)
                fine = (gathering->daemon = (Wire__StatusDaemon *)exporter_copy(row)) != NULL;
        else if (type == WIRE__MESSAGE_TYPE__STATUS_JOB)
                fine = gathering_add_job(gathering, row);
        else if (type == WIRE__MESSAGE_TYPE__STATUS_MEMBER)
                fine = gathering_add_member(&gathering->job[gathering->n_jobs - 1], row);
        gathering->failed = !fine;
}

static void gathering_deinit(struct gathering *gathering) {
        for (size_t i = 0; i < gathering->n_jobs; i++) {
                for (size_t k = 0; k < gathering->job[i].n_members; k++)
                        protobuf_c_message_free_unpacked(&gathering->job[i].member[k]->base, NULL);
                free((void *)(uintptr_t)gathering->job[i].member);
                protobuf_c_message_free_unpacked((ProtobufCMessage *)(uintptr_t)gathering->job[i].job, NULL);
        }
        free(gathering->job);
        if (gathering->daemon != NULL)
                protobuf_c_message_free_unpacked(&gathering->daemon->base, NULL);
}

/* The metrics as text; NULL if memory is short. */
static char *exporter_compose(struct exporter *exporter, size_t *ret_size) {
        struct gathering gathering = { 0 };
        char *text = NULL;

        sessions_describe(exporter->sessions, gathering_add, &gathering);
        FILE *to = gathering.failed ? NULL : open_memstream(&text, ret_size);
        if (to != NULL) {
                metrics_write(to, gathering.daemon, gathering.job, gathering.n_jobs);
                if (fclose(to) != 0) {
                        free(text);
                        text = NULL;
                }
        }
        gathering_deinit(&gathering);
        return text;
}

static void caller_free(struct caller *caller) {
        struct exporter *exporter = caller->exporter;

        loop_defer_cancel(exporter->loop, &caller->reap);
        loop_timer_free(caller->timer);
        loop_io_free(caller->io);
        closer_hang_up(exporter->closer, caller->sock);
        list_remove(&caller->link);
        free(caller->text);
        free(caller);
        if (exporter->n-- == CALLERS)
                loop_io_set(exporter->io, LOOP_READ);
}

static void caller_reap(void *data) {
        caller_free(data);
}

static void caller_finish(struct caller *caller) {
        loop_io_set(caller->io, 0);
        loop_timer_disarm(caller->timer);
        loop_defer(caller->exporter->loop, &caller->reap);
}

/* If fds come with it, the kernel closes them, and waits for that if it has to. */
static ssize_t caller_receive(struct caller *caller, char *to, size_t size) {
        struct closer *closer = caller->exporter->closer;

        closer_hurry(closer);
        ssize_t n = recv(caller->sock, to, size, 0);
        closer_calm(closer);
        return n;
}

/* Closing a socket with something unread in it takes the response away from the caller. */
static void caller_discard(struct caller *caller) {
        for (unsigned i = 0; i < DISCARDS; i++)
                if (caller_receive(caller, caller->request, REQUEST_MAX) <= 0)
                        return;
}

static void caller_transmit(struct caller *caller) {
        while (caller->sent < caller->size) {
                ssize_t n = send(caller->sock, caller->text + caller->sent, caller->size - caller->sent,
                                 MSG_NOSIGNAL);

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n < 0)
                        break;
                caller->sent += (size_t)n;
        }
        caller_discard(caller);
        caller_finish(caller);
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

static char *caller_respond(const struct caller *caller, const char *body, size_t body_size,
                            size_t *ret_size) {
        bool head = strncmp(caller->request, "HEAD ", 5) == 0;
        const char *status = caller_http_status(caller, head);
        bool fine = strcmp(status, "200 OK") == 0;
        char *text = NULL;
        FILE *to = open_memstream(&text, ret_size);

        if (to == NULL)
                return NULL;
        fprintf(to, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                status, fine ? METRICS_TYPE : "text/plain", fine ? body_size : 0);
        if (fine && !head)
                fwrite(body, 1, body_size, to);
        if (fclose(to) == 0)
                return text;
        free(text);
        return NULL;
}

static void caller_answer(struct caller *caller) {
        caller->text = exporter_compose(caller->exporter, &caller->size);
        if (caller->text != NULL && caller_speaks_http(caller)) {
                char *body = caller->text;

                caller->text = caller_respond(caller, body, caller->size, &caller->size);
                free(body);
        }
        if (caller->text == NULL) {
                log_error("metrics cannot be given out: out of memory");
                caller_finish(caller);
                return;
        }
        loop_io_set(caller->io, LOOP_WRITE);
        loop_timer_arm(caller->timer, PATIENCE);
        caller_transmit(caller);
}

/* Whether what the caller has to say is complete. */
static bool caller_is_complete(const struct caller *caller) {
        return caller->heard == REQUEST_MAX || !caller_speaks_http(caller) ||
               strstr(caller->request, "\r\n\r\n") != NULL || strstr(caller->request, "\n\n") != NULL;
}

static void caller_hear(struct caller *caller) {
        ssize_t n = caller_receive(caller, caller->request + caller->heard, REQUEST_MAX - caller->heard);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
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
        if (caller->text == NULL)
                caller_hear(caller);
        else
                caller_transmit(caller);
}

/* A caller that says nothing wants the text. One whose request does not end, or that does not read the
 * response, is hung up. */
static void caller_on_silence(void *data) {
        struct caller *caller = data;

        if (caller->text == NULL && caller->heard == 0)
                caller_answer(caller);
        else
                caller_finish(caller);
}

static int caller_new(struct exporter *exporter, int sock) {
        struct caller *caller = calloc(1, sizeof(*caller));

        if (caller == NULL) {
                closer_hang_up(exporter->closer, sock);
                return -ENOMEM;
        }
        caller->exporter = exporter;
        caller->sock = sock;
        caller->reap = (struct loop_deferred){ .fn = caller_reap, .data = caller };
        list_append(&exporter->callers, &caller->link);
        exporter->n++;
        int r = loop_timer_new(exporter->loop, caller_on_silence, caller, &caller->timer);
        if (r == 0)
                r = loop_io_new(exporter->loop, sock, LOOP_READ, caller_on_ready, caller, &caller->io);
        if (r == 0)
                r = loop_timer_arm(caller->timer, SILENCE);
        if (r < 0)
                caller_free(caller);
        return r;
}

static void exporter_pause(struct exporter *exporter) {
        loop_io_set(exporter->io, 0);
        loop_timer_arm(exporter->retry, RETRY);
}

static void exporter_on_retry(void *data) {
        struct exporter *exporter = data;

        if (exporter->n < CALLERS)
                loop_io_set(exporter->io, LOOP_READ);
}

static void exporter_on_incoming(void *data, int fd, unsigned events) {
        struct exporter *exporter = data;

        while (exporter->n < CALLERS) {
                int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (sock < 0 && (errno == EINTR || errno == ECONNABORTED))
                        continue;
                if (sock < 0 && errno == EAGAIN)
                        return;
                if (sock < 0 || caller_new(exporter, sock) < 0) {
                        exporter_pause(exporter);
                        return;
                }
        }
        loop_io_set(exporter->io, 0); /* until one of them has ended */
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
        closer_hang_up(exporter->closer, exporter->fd);
        free(exporter->path);
        free(exporter);
        return NULL;
}
