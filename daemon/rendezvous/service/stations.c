/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/service/stations.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/wire/peer.h"

struct station {
        struct list link;
        struct stations *table;
        void *peer;     /* NULL: it is away, */
        uint64_t left;  /* since then */
        uint64_t since; /* it is connected, since then, in this run of the daemon: */
        uint64_t run;
        uint8_t node[STATION_NODE];
        bool placed; /* has said on this connection where it is */
        uint32_t address, host;
        struct hub_sight sight;
        char name[POST_NAME + 1]; /* of its host */
        struct list jobs;
        uint32_t n_jobs;
};

struct station_job {
        struct list link;
        struct station *station;
        struct attachment attachment; /* to the coordinators, for the node */
        uint32_t number;              /* on this connection; 0: not named on it yet, */
        uint32_t before; /* and this was it on the one before, in the same run; 0: there was none */
        struct post_attach which;
};

struct stations {
        struct stations_config config;
        struct list list;
        struct scratch scratch;
        struct report report; /* that is being received */
        char why[1200];
        uint8_t out[POST_MAX];
};

static void station_say(struct station *station, enum post_kind kind, uint32_t about, ssize_t length) {
        struct stations *table = station->table;

        if (station->peer != NULL && station->placed && length >= 0)
                table->config.send(table->config.data, station->peer, kind, about, table->out,
                                   (size_t)length);
}

/* ---- from the coordinators ---- */

static struct station_job *station_job_of(struct attachment *attachment) {
        return list_entry(attachment, struct station_job, attachment);
}

static void station_on_order(struct attachment *attachment, const struct order *order) {
        const struct station_job *job = station_job_of(attachment);
        struct stations *table = job->station->table;

        if (job->number != 0)
                station_say(job->station, POST_ORDER, job->number,
                            peer_encode_order(&table->scratch, order, table->out));
}

static void station_on_learn(struct attachment *attachment, const struct generation *comm, uint32_t from,
                             const void *bytes, size_t length) {
        const struct station_job *job = station_job_of(attachment);
        struct post_table table = { .comm = *comm, .from = from, .table = bytes, .bytes = length };

        if (job->number != 0)
                station_say(job->station, POST_TABLE, job->number,
                            post_encode_table(&table, job->station->table->out));
}

static void station_on_posted(struct attachment *attachment, const struct hub_letter *letter) {
        const struct station_job *job = station_job_of(attachment);

        if (job->number != 0)
                station_say(job->station, POST_LETTER, job->number,
                            post_encode_letter(letter, job->station->table->out));
}

static void station_drop_job(struct station_job *job) {
        hub_detach(&job->attachment);
        list_remove(&job->link);
        job->station->n_jobs--;
        free(job);
}

static void station_refuse(struct station *station, uint32_t number, const struct refusal *refusal) {
        station_say(station, POST_REFUSED, number, post_encode_refused(refusal, station->table->out));
}

/* ---- stations ---- */

static struct station *stations_find_peer(const struct stations *table, const void *peer) {
        struct station *station;

        list_for_each(station, &table->list, link)
                if (station->peer == peer)
                        return station;
        return NULL;
}

static struct station *stations_find_node(const struct stations *table, const uint8_t node[STATION_NODE]) {
        struct station *station;

        list_for_each(station, &table->list, link)
                if (memcmp(station->node, node, STATION_NODE) == 0)
                        return station;
        return NULL;
}

static void station_free(struct station *station) {
        struct station_job *job, *spare;

        list_for_each_safe(job, spare, &station->jobs, link)
                station_drop_job(job);
        station->table->config.left(station->table->config.data, station->node);
        list_remove(&station->link);
        free(station);
}

int stations_new(const struct stations_config *config, struct stations **ret) {
        struct stations *table = calloc(1, sizeof(*table));

        if (table == NULL)
                return -ENOMEM;
        table->config = *config;
        list_init(&table->list);
        table->scratch.size = PEER_SCRATCH;
        table->scratch.buffer = malloc(PEER_SCRATCH);
        if (table->scratch.buffer == NULL) {
                free(table);
                return -ENOMEM;
        }
        *ret = table;
        return 0;
}

struct stations *stations_free(struct stations *table) {
        struct station *station, *spare;

        if (table == NULL)
                return NULL;
        list_for_each(station, &table->list, link)
                station->peer = NULL; /* the connections may be gone: nothing more is said to anybody */
        list_for_each_safe(station, spare, &table->list, link)
                station_free(station);
        free(table->scratch.buffer);
        free(table);
        return NULL;
}

/* A job that the daemon has not named on this connection. */
static struct station_job *station_find_unnamed(const struct station *station) {
        struct station_job *job;

        list_for_each(job, &station->jobs, link)
                if (job->number == 0)
                        return job;
        return NULL;
}

/* When jobs are dropped of which nothing has been heard: the daemon may have nodes until then that are in a
 * generation, and have not heard of their coordinators. One that is connected anew names its jobs, or, after
 * a restart, those of members that have come back. */
static uint64_t station_until(const struct station *station) {
        const struct machine_times *times = &station->table->config.cluster->times;
        uint64_t since = station->peer == NULL ? station->left : station->since;

        if (station->peer != NULL && station_find_unnamed(station) == NULL)
                return UINT64_MAX;
        return since + times->abandon + times->death;
}

static void stations_set_due(struct stations *table) {
        struct station *station;
        uint64_t soonest = UINT64_MAX;

        list_for_each(station, &table->list, link)
                if (station_until(station) < soonest)
                        soonest = station_until(station);
        table->config.due(table->config.data, soonest);
}

static void station_drop_unnamed(struct station *station) {
        struct station_job *job, *spare;

        list_for_each_safe(job, spare, &station->jobs, link)
                if (job->number == 0)
                        station_drop_job(job);
}

int stations_up(struct stations *table, void *peer, const uint8_t node[STATION_NODE], uint64_t run) {
        struct station *station = stations_find_node(table, node);
        struct station_job *job;

        if (station == NULL) {
                station = calloc(1, sizeof(*station));
                if (station == NULL)
                        return -ENOMEM;
                station->table = table;
                station->address = HUB_UNKNOWN;
                memcpy(station->node, node, STATION_NODE);
                strcpy(station->name, "a daemon that has not said where it is");
                station->sight.name = station->name;
                list_init(&station->jobs);
                list_append(&table->list, &station->link);
        }
        station->peer = peer;
        station->placed = false;
        station->sight.away = false;
        station->sight.heard = table->config.clock();
        station->since = station->sight.heard;
        list_for_each(job, &station->jobs, link) {
                job->before = station->run != run ? 0 : job->number != 0 ? job->number : job->before;
                job->number = 0;
        }
        station->run = run;
        stations_set_due(table);
        return 0;
}

void stations_down(struct stations *table, void *peer) {
        struct station *station = stations_find_peer(table, peer);

        if (station == NULL)
                return;
        station->peer = NULL;
        station->placed = false;
        station->left = station->sight.heard = table->config.clock();
        station->sight.away = true;
        if (list_empty(&station->jobs))
                station_free(station);
        stations_set_due(table);
}

void stations_tick(struct stations *table) {
        uint64_t now = table->config.clock();
        struct station *station, *spare;

        list_for_each_safe(station, spare, &table->list, link)
                if (now < station_until(station))
                        continue;
                else if (station->peer == NULL)
                        station_free(station);
                else
                        station_drop_unnamed(station);
        stations_set_due(table);
}

/* ---- from a connection ---- */

static const char *station_take_arrival(struct station *station, const void *bytes, size_t length) {
        struct stations *table = station->table;
        const struct stations_config *config = &table->config;
        struct post_arrival arrival;
        struct post_place place = { .times = config->cluster->times };
        struct refusal refusal;
        const char *why = post_decode_arrival(&table->scratch, bytes, length, &arrival);

        if (why != NULL)
                return why;
        int r = config->place(config->data, station->peer, station->node, &arrival, &place.address,
                              &place.host, &refusal);
        if (r != 0) {
                snprintf(table->why, sizeof(table->why), "%s", r > 0 ? refusal.text : strerror(-r));
                return table->why;
        }
        if (station->address != place.address && !list_empty(&station->jobs))
                return "it is somewhere else than before, with jobs";
        station->address = place.address;
        station->host = place.host;
        station->placed = true;
        memcpy(station->name, arrival.name, sizeof(station->name));
        station_say(station, POST_PLACE, 0, post_encode_place(&place, table->out));
        return NULL;
}

static struct station_job *station_find_job(const struct station *station, uint32_t number) {
        struct station_job *job;

        list_for_each(job, &station->jobs, link)
                if (job->number == number)
                        return job;
        return NULL;
}

static bool job_is(const struct station_job *job, uid_t uid, uint64_t incarnation, const char *name) {
        return job->which.uid == uid && job->which.incarnation == incarnation &&
               strcmp(job->which.job, name) == 0;
}

/* A daemon keeps the number of a job as long as it runs. Under another number it has another job of that
 * name, if the former one is at its end. A node of that has to hear of the end, if it has not yet. */
static bool job_may_be(const struct station_job *job, uint32_t number) {
        return !coordinators_is_over(&job->attachment) ||
               (job->number == 0 && (job->before == 0 || job->before == number));
}

/* The node of that job here; NULL if there is none. */
static struct station_job *station_find_same(const struct station *station, uint32_t number,
                                             const struct post_attach *which) {
        struct station_job *job;

        list_for_each(job, &station->jobs, link)
                if (job_is(job, which->uid, which->incarnation, which->job) && job_may_be(job, number))
                        return job;
        return NULL;
}

/* Also of a job that it has: its key may be another one than on the connection before. */
static int station_check(const struct station *station, const struct post_attach *which,
                         struct refusal *refusal) {
        const struct stations_config *config = &station->table->config;

        if (config->speaks_for(config->data, station->peer, which->uid))
                return 0;
        return refuse(
                refusal, WIRE__CODE__DENIED,
                "job '%s': the coordinator admits no jobs of uid %u from this host; give its key that uid "
                "(uids=), or use another key",
                which->job, (unsigned)which->uid);
}

/* All nodes hear why before the first of them counts as lost to the others. */
void stations_check(struct stations *table) {
        struct station_job *job, *spare;
        struct station *station;
        struct refusal refusal;

        list_for_each(station, &table->list, link)
                list_for_each(job, &station->jobs, link)
                        if (station->peer != NULL && station_check(station, &job->which, &refusal) != 0)
                                station_refuse(station, job->number, &refusal);
        list_for_each(station, &table->list, link)
                list_for_each_safe(job, spare, &station->jobs, link)
                        if (station->peer != NULL && station_check(station, &job->which, &refusal) != 0)
                                station_drop_job(job);
}

static int station_admit(const struct station *station, const struct post_attach *which,
                         struct refusal *refusal) {
        int r = station_check(station, which, refusal);

        if (r != 0)
                return r;
        if (station->n_jobs >= STATION_JOBS)
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "job '%s': this host has %u jobs over several nodes: no more can", which->job,
                              STATION_JOBS);
        return 0;
}

static int station_add_job(struct station *station, uint32_t number, const struct post_attach *which,
                           struct refusal *refusal) {
        struct hub_job hub_job = { .uid = which->uid,
                                   .name = which->job,
                                   .incarnation = which->incarnation,
                                   .address = station->address,
                                   .token = which->token };
        struct station_job *job;
        int r = station_admit(station, which, refusal);

        if (r != 0)
                return r;
        job = calloc(1, sizeof(*job));
        if (job == NULL)
                return -ENOMEM;
        job->station = station;
        job->which = *which;
        job->number = number;
        job->attachment.receive = station_on_order;
        job->attachment.learn = station_on_learn;
        job->attachment.posted = station_on_posted;
        job->attachment.sight = &station->sight;
        r = hub_attach(coordinators_hub(station->table->config.coordinators), &job->attachment, &hub_job,
                       refusal);
        if (r != 0) {
                free(job);
                return r;
        }
        station->n_jobs++;
        list_append(&station->jobs, &job->link);
        station->table->config.used(station->table->config.data, station->node);
        return 0;
}

static const char *station_take_attach(struct station *station, uint32_t number, const void *bytes,
                                       size_t length) {
        struct post_attach which;
        struct refusal refusal;
        const char *why = post_decode_attach(&station->table->scratch, bytes, length, &which);

        if (why != NULL)
                return why;
        if (number == 0 || station_find_job(station, number) != NULL)
                return "it names a job by a number that it has used";
        struct station_job *job = station_find_same(station, number, &which);
        if (job != NULL && job->number == 0 && sha256_equal(&job->which.token, &which.token) &&
            station_check(station, &which, &refusal) == 0) {
                job->number = number;
                coordinators_repeat(&job->attachment);
                return NULL;
        }
        /* A job of that name has begun there meanwhile, and the former one is gone. A daemon that names one
         * job twice on a connection is wrong: its last word counts. */
        if (job != NULL)
                station_drop_job(job);
        int r = station_add_job(station, number, &which, &refusal);
        if (r < 0)
                refuse(&refusal, WIRE__CODE__QUOTA, "job '%s': the coordinator has no memory for it: %s",
                       which.job, strerror(-r));
        if (r != 0)
                station_refuse(station, number, &refusal);
        return NULL;
}

/* Each plan is going to have a track. */
static uint32_t station_tracks(const struct report *report) {
        uint32_t wanted = TRACK_STEP + report->n_plans;

        return wanted > report->n_tracks ? wanted : report->n_tracks;
}

static const char *station_take_report(struct station *station, struct station_job *job, const void *bytes,
                                       size_t length) {
        struct stations *table = station->table;
        const struct report *report = &table->report;
        struct refusal refusal;
        const char *why;

        if (!peer_decode_report(&table->scratch, bytes, length, &table->report, &why))
                return why;
        if (report->from != station->address || report->host != station->host)
                return "it speaks for another node";
        if (job == NULL)
                return NULL; /* it has been refused meanwhile */
        int r = hub_reserve(&job->attachment, report->n_members, report->world, station_tracks(report),
                            &refusal);
        if (r == 0) {
                hub_send(&job->attachment, report);
                return NULL;
        }
        if (r < 0)
                return NULL; /* as if it had been lost: it will be said again */
        uint32_t number = job->number;
        station_drop_job(job);
        station_refuse(station, number, &refusal);
        return NULL;
}

static const char *station_take_table(struct station *station, struct station_job *job, const void *bytes,
                                      size_t length) {
        struct post_table table;
        const char *why = post_decode_table(&station->table->scratch, bytes, length, &table);

        if (why == NULL && table.from != station->address)
                why = "it speaks for another node";
        if (why == NULL && job != NULL)
                hub_publish(&job->attachment, &table.comm, table.table, table.bytes);
        return why;
}

static const char *station_take_letter(struct station *station, struct station_job *job, const void *bytes,
                                       size_t length) {
        struct hub_letter letter;
        const char *why = post_decode_letter(&station->table->scratch, bytes, length, &letter);

        if (why == NULL && job != NULL)
                hub_post(&job->attachment, &letter);
        return why;
}

const char *stations_receive(struct stations *table, void *peer, enum post_kind kind, uint32_t about,
                             const void *bytes, size_t length) {
        struct station *station = stations_find_peer(table, peer);
        struct station_job *job = station != NULL && about != 0 ? station_find_job(station, about) : NULL;

        if (station == NULL)
                return "its daemon is not known";
        station->sight.heard = table->config.clock();
        if (kind == POST_ARRIVAL)
                return station_take_arrival(station, bytes, length);
        if (kind < POST_KINDS && !station->placed)
                return "it comes before the daemon has said where it is";
        switch (kind) {
        case POST_ATTACH: return station_take_attach(station, about, bytes, length);
        case POST_REPORT: return station_take_report(station, job, bytes, length);
        case POST_TABLE: return station_take_table(station, job, bytes, length);
        case POST_LETTER: return station_take_letter(station, job, bytes, length);
        case POST_DETACH:
                if (job != NULL)
                        station_drop_job(job);
                return NULL;
        default: return NULL; /* of a newer version */
        }
}

static bool station_has(const struct station *station, const struct hub_job *which) {
        const struct station_job *job;

        list_for_each(job, &station->jobs, link)
                if (job_is(job, which->uid, which->incarnation, which->name))
                        return true;
        return false;
}

void stations_each_empty(const struct stations *table, const struct hub_job *job, hub_node_fn *fn, void *to) {
        const struct station *station;

        list_for_each(station, &table->list, link)
                if (station->peer != NULL && station->placed && !station_has(station, job) &&
                    table->config.speaks_for(table->config.data, station->peer, job->uid))
                        fn(to, HUB_UNKNOWN, &station->sight);
}
