/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/service/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/wire/peer.h"

struct remote_job {
        struct list link;
        struct attachment *attachment; /* its coordination is this; NULL once the job has been refused */
        uint32_t number;               /* on this connection, and all others of this run */
        struct post_attach which;
        /* The engine's latest table: said again on each connection until there is another one. */
        struct generation comm;
        void *table;
        size_t bytes;
};

struct remote {
        struct hub hub;
        struct remote_config config;
        char host[POST_HOST + 1], name[POST_NAME + 1];
        struct list jobs;
        uint32_t last;        /* number of a job */
        bool up, placed;      /* on this connection */
        struct post_place at; /* address HUB_UNKNOWN: never placed yet */
        struct scratch scratch;
        struct order order; /* that is being received */
        uint8_t out[POST_MAX];
};

_Static_assert(PEER_MAX <= POST_MAX, "one buffer for all");

static struct remote *remote_of(struct hub *hub) {
        return list_entry(hub, struct remote, hub);
}

static void remote_say(struct remote *remote, enum post_kind kind, uint32_t about, ssize_t length) {
        if (length >= 0)
                remote->config.send(remote->config.data, kind, about, remote->out, (size_t)length);
}

static void remote_say_table(struct remote *remote, const struct remote_job *job) {
        struct post_table table = {
                .comm = job->comm, .from = remote->at.address, .table = job->table, .bytes = job->bytes
        };

        if (remote->placed && job->table != NULL)
                remote_say(remote, POST_TABLE, job->number, post_encode_table(&table, remote->out));
}

static void remote_say_job(struct remote *remote, const struct remote_job *job) {
        if (!remote->placed || job->attachment->ended)
                return;
        remote_say(remote, POST_ATTACH, job->number, post_encode_attach(&job->which, remote->out));
        remote_say_table(remote, job);
}

static void attachment_place(struct attachment *attachment, const struct post_place *place) {
        attachment->address = place->address;
        attachment->host = place->host;
        attachment->times = place->times;
}

static int remote_attach(struct hub *hub, struct attachment *attachment, const struct hub_job *which,
                         struct refusal *refusal) {
        struct remote *remote = remote_of(hub);
        struct remote_job *job = calloc(1, sizeof(*job));

        if (job == NULL)
                return -ENOMEM;
        job->attachment = attachment;
        job->number = ++remote->last;
        job->which = (struct post_attach){ .uid = which->uid,
                                           .incarnation = which->incarnation,
                                           .token = which->token };
        strncpy(job->which.job, which->name, LIMIT_NAME);
        attachment->hub = hub;
        attachment->coordination = job;
        attachment_place(attachment, &remote->at);
        list_append(&remote->jobs, &job->link);
        remote_say_job(remote, job);
        return 0;
}

/* The coordinator makes room when it hears of them, or refuses. */
static int remote_reserve(struct attachment *attachment, uint32_t members, uint32_t world, uint32_t tracks,
                          struct refusal *refusal) {
        return 0;
}

static void remote_say_gone(struct remote *remote, const struct remote_job *job) {
        if (remote->placed)
                remote_say(remote, POST_DETACH, job->number, 0);
}

static void remote_forget_table(struct remote_job *job) {
        free(job->table);
        job->table = NULL;
        job->bytes = 0;
}

static void remote_renew(struct attachment *attachment) {
        struct remote *remote = remote_of(attachment->hub);
        struct remote_job *job = attachment->coordination;

        if (job == NULL)
                return;
        remote_say_gone(remote, job);
        remote_forget_table(job);
        job->number = ++remote->last;
        remote_say_job(remote, job);
}

static void remote_send(struct attachment *attachment, const struct report *report) {
        struct remote *remote = remote_of(attachment->hub);
        const struct remote_job *job = attachment->coordination;

        if (job != NULL && remote->placed)
                remote_say(remote, POST_REPORT, job->number,
                           peer_encode_report(&remote->scratch, report, remote->out));
}

/* Without memory for a copy it is said at least now. */
static void remote_publish(struct attachment *attachment, const struct generation *comm, const void *table,
                           size_t bytes) {
        struct remote *remote = remote_of(attachment->hub);
        struct remote_job *job = attachment->coordination;

        if (job == NULL)
                return;
        remote_forget_table(job);
        job->comm = *comm;
        job->table = malloc(bytes > 0 ? bytes : 1);
        if (job->table != NULL) {
                if (bytes > 0)
                        memcpy(job->table, table, bytes);
                job->bytes = bytes;
                remote_say_table(remote, job);
        }
}

static void remote_drop(struct remote_job *job) {
        list_remove(&job->link);
        remote_forget_table(job);
        free(job);
}

static void remote_detach(struct attachment *attachment) {
        struct remote_job *job = attachment->coordination;

        if (job == NULL)
                return;
        if (!attachment->stays)
                remote_say_gone(remote_of(attachment->hub), job);
        remote_drop(job);
        attachment->coordination = NULL;
}

static bool remote_post(struct attachment *attachment, const struct hub_letter *letter) {
        struct remote *remote = remote_of(attachment->hub);
        const struct remote_job *job = attachment->coordination;

        if (job == NULL || !remote->placed)
                return false;
        remote_say(remote, POST_LETTER, job->number, post_encode_letter(letter, remote->out));
        return true;
}

static const struct hub_ops remote_ops = {
        .attach = remote_attach,
        .reserve = remote_reserve,
        .renew = remote_renew,
        .send = remote_send,
        .publish = remote_publish,
        .post = remote_post,
        .detach = remote_detach,
};

int remote_new(const struct remote_config *config, struct remote **ret) {
        struct remote *remote = calloc(1, sizeof(*remote));

        if (remote == NULL)
                return -ENOMEM;
        remote->hub.ops = &remote_ops;
        remote->config = *config;
        strncpy(remote->host, config->host, POST_HOST);
        strncpy(remote->name, config->name, POST_NAME);
        remote->at = config->place;
        list_init(&remote->jobs);
        remote->scratch.size = PEER_SCRATCH;
        remote->scratch.buffer = malloc(PEER_SCRATCH);
        if (remote->scratch.buffer == NULL) {
                free(remote);
                return -ENOMEM;
        }
        *ret = remote;
        return 0;
}

struct remote *remote_free(struct remote *remote) {
        if (remote == NULL)
                return NULL;
        while (!list_empty(&remote->jobs))
                remote_drop(list_entry(remote->jobs.next, struct remote_job, link));
        free(remote->scratch.buffer);
        free(remote);
        return NULL;
}

struct hub *remote_hub(struct remote *remote) {
        return &remote->hub;
}

void remote_up(struct remote *remote) {
        struct post_arrival arrival = { .device = remote->config.device,
                                        .has_address = remote->at.address != HUB_UNKNOWN,
                                        .address = remote->at.address };

        remote->up = true;
        remote->placed = false;
        memcpy(arrival.host, remote->host, sizeof(arrival.host));
        memcpy(arrival.name, remote->name, sizeof(arrival.name));
        if (!arrival.has_address)
                arrival.address = 0;
        remote_say(remote, POST_ARRIVAL, 0, post_encode_arrival(&arrival, remote->out));
}

void remote_down(struct remote *remote) {
        remote->up = remote->placed = false;
}

bool remote_is_placed(const struct remote *remote) {
        return remote->placed;
}

static bool place_equal(const struct post_place *a, const struct post_place *b) {
        return a->address == b->address && a->host == b->host &&
               memcmp(&a->times, &b->times, sizeof(a->times)) == 0;
}

/* Nodes that are somewhere else than they were begin anew. If only times have changed, those that are there
 * keep theirs until they do. */
static void remote_place(struct remote *remote, const struct post_place *place) {
        bool same = place_equal(&remote->at, place);
        bool moved = remote->at.address != place->address || remote->at.host != place->host;
        struct remote_job *job, *spare;

        remote->at = *place;
        remote->placed = true;
        if (!same)
                remote->config.placed(remote->config.data, place);
        list_for_each(job, &remote->jobs, link)
                remote_say_job(remote, job);
        list_for_each_safe(job, spare, &remote->jobs, link) {
                if (!moved)
                        continue;
                remote_forget_table(job);
                attachment_place(job->attachment, place);
                job->attachment->placed(job->attachment);
        }
}

static struct remote_job *remote_find(const struct remote *remote, uint32_t number) {
        struct remote_job *job;

        list_for_each(job, &remote->jobs, link)
                if (job->number == number)
                        return job;
        return NULL;
}

static const char *remote_take_place(struct remote *remote, const void *bytes, size_t length) {
        struct post_place place;
        const char *why = post_decode_place(&remote->scratch, bytes, length, &place);

        if (why == NULL)
                remote_place(remote, &place);
        return why;
}

static const char *remote_take_order(struct remote *remote, struct remote_job *job, const void *bytes,
                                     size_t length) {
        const char *why;

        if (!peer_decode_order(&remote->scratch, bytes, length, &remote->order, &why))
                return why;
        if (job != NULL)
                job->attachment->receive(job->attachment, &remote->order);
        return NULL;
}

static const char *remote_take_refused(struct remote *remote, struct remote_job *job, const void *bytes,
                                       size_t length) {
        struct refusal refusal;
        const char *why = post_decode_refused(&remote->scratch, bytes, length, &refusal);

        if (why != NULL || job == NULL)
                return why;
        struct attachment *attachment = job->attachment;
        attachment->coordination = NULL;
        remote_drop(job);
        attachment->refused(attachment, &refusal);
        return NULL;
}

static const char *remote_take_table(struct remote *remote, struct remote_job *job, const void *bytes,
                                     size_t length) {
        struct post_table table;
        const char *why = post_decode_table(&remote->scratch, bytes, length, &table);

        if (why == NULL && job != NULL)
                job->attachment->learn(job->attachment, &table.comm, table.from, table.table, table.bytes);
        return why;
}

static const char *remote_take_letter(struct remote *remote, struct remote_job *job, const void *bytes,
                                      size_t length) {
        struct hub_letter letter;
        const char *why = post_decode_letter(&remote->scratch, bytes, length, &letter);

        if (why == NULL && job != NULL)
                job->attachment->posted(job->attachment, &letter);
        return why;
}

/* A frame about a job that is gone was on its way when the job went: it is dropped. */
const char *remote_receive(struct remote *remote, enum post_kind kind, uint32_t about, const void *bytes,
                           size_t length) {
        struct remote_job *job = remote_find(remote, about);

        if (kind != POST_PLACE && kind < POST_KINDS && !remote->placed)
                return "it comes before the place of this node";
        switch (kind) {
        case POST_PLACE: return remote_take_place(remote, bytes, length);
        case POST_ORDER: return remote_take_order(remote, job, bytes, length);
        case POST_REFUSED: return remote_take_refused(remote, job, bytes, length);
        case POST_TABLE: return remote_take_table(remote, job, bytes, length);
        case POST_LETTER: return remote_take_letter(remote, job, bytes, length);
        default: return NULL; /* of a newer version */
        }
}
