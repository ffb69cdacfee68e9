/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This layer shows the jobs to people, metrics and other daemons. It walks the state into rows: the messages
 * that answer STATUS and TRACE (proto/gradsync.proto). A client gets these rows, a coordinator's daemon gets
 * those of one job as a statement, and metrics are written from the same facts of a job. The layer also asks
 * other daemons for their rows, and answers questions of the job layer about members there (struct
 * jobs_observer). It knows clients as facts, not as connections. A `struct report` is another thing: what a
 * node tells the coordinator of its job (rendezvous/machine/message.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/loop.h"
#include "gradsync.pb-c.h"
#include "job/job.h"
#include "proto/codec.h"
#include "proto/metrics_sum.h"
#include "report/views.h"

struct reports;

/* A client as people are shown it. Its session keeps it up to date. */
struct client {
        struct list link;
        uint64_t id, connected; /* ascending from 1; clock_now() */
        bool open;              /* it is shown: it has said HELLO, and its session goes on */
        uid_t uid;
        gid_t gid;
        pid_t pid;
        bool admin;
        char program[64], library[64];
        struct list members; /* by owner_link */
};

/* The receiver of rows is shown the clients and jobs of its uid, or all of them. */
struct viewer {
        uid_t uid;
        bool sees_all, may_drain;
};

struct reports_identity {
        const char *node;        /* id of the daemon over all of its runs; "": it has none */
        uint64_t starts;         /* how many runs there have been */
        const char *no_identity; /* why it coordinates nothing beyond its own host; "": it may */
};

/* A connection to another daemon. */
struct reports_link {
        const char *role;                               /* of the other end: "coordinator" or "node" */
        const char *state;                              /* "connected" or "connecting" */
        const char *node, *host, *address, *key, *text; /* "": not known */
        uint64_t since, heard;                          /* clock_now(); 0: never */
        bool has_pulse;
        uint64_t round_trip;
        int64_t clock, wall; /* how far the other end's clocks are ahead */
        uint64_t sent, received;
};

/* All connections to other daemons since the start: see message StatusLinks. */
struct reports_traffic {
        uint64_t connects, ends, sent, received;
        const uint64_t *refused;
        unsigned n_refused;
};

/* Facts that a daemon of a cluster shows beyond its own jobs, and letters about jobs that it coordinates. */
struct reports_cluster {
        const char *host; /* this one's name, for people */
        /* The jobs of the cluster whose coordinator is here, by number: those that it met later have higher
         * ones. */
        void (*each)(void *data, void (*fn)(void *to, const struct hub_job *job), void *to);
        /* Calls for each node of one of these jobs, then, with the address HUB_UNKNOWN, for each daemon that
         * is connected and has none. `sight` is NULL for the node of this daemon. */
        void (*nodes)(void *data, const struct hub_job *job, hub_node_fn *fn, void *to);
        /* Sends a letter to one of its nodes, or to this daemon itself. */
        void (*post)(void *data, const struct hub_job *job, const struct hub_letter *letter);
        /* How far the coordinator's monotonic clock is ahead of this one's, in us; false: not known. */
        bool (*clock)(void *data, int64_t *ret_ahead, uint64_t *ret_round_trip);
        void (*links)(void *data, void (*fn)(void *to, const struct reports_link *link), void *to);
        /* False: there never was one. */
        bool (*traffic)(void *data, struct reports_traffic *ret);
        /* Why the coordinator does not answer. */
        void (*trouble)(void *data, char *text, size_t size);
        void *data;
};

struct reports_config {
        struct loop *loop;
        struct backend *backend;
        struct users *accounts;
        struct jobs *jobs; /* they ask here about other nodes from then on */
        const char *device, *socket;
        const struct reports_identity *identity; /* NULL: none */
        uint64_t instance;
};

int reports_new(const struct reports_config *config, struct reports **ret);
/* All clients must be gone. NULL is fine. */
struct reports *reports_free(struct reports *reports);
void reports_use_cluster(struct reports *reports, const struct reports_cluster *cluster); /* copied */
/* Gives the client its id. Its owner unlinks it before its memory goes. */
void reports_add_client(struct reports *reports, struct client *client);
/* A letter to this daemon as that of the job's coordinator. */
void reports_posted(struct reports *reports, const struct hub_job *job, const struct hub_letter *letter);
/* Whenever the job is looked at: shows this node's part in it to other daemons, if that is due. */
void reports_show(struct job *job);
/* Adds the counts of a job that is about to be freed to the sums. */
void reports_job_ended(const struct job *job);
/* A sentence about the members that a forming job of the cluster lacks; "": nothing is known. */
void peers_missing(struct job *job, char *text, size_t size);

/* A row of an answer; it is valid during its call. */
typedef void reports_row_fn(void *data, uint16_t type, const ProtobufCMessage *row);

/* A question of a viewer, and the receiver of the rows that answer it. */
struct query {
        struct reports *reports;
        struct viewer viewer;
        const char *asked; /* the job, as NAME or UID/NAME; NULL or "": all */
        reports_row_fn *row;
        void *data;
};

/* Each of these gives all rows of one answer, and at last a STATUS_END or TRACE_END. The answer to STATUS is
 * a piece of bounded size and time, which begins at that place; NULL: at the beginning. Its end says where
 * the next piece begins. */
void reports_status(const struct query *query, const Wire__StatusPlace *from);
/* Jobs that have ended, the youngest first, in one piece. */
void reports_archive(const struct query *query);
/* A piece of the flight records here. */
void reports_trace(const struct query *query, const Wire__Trace *trace);
/* The nodes of jobs that span daemons; the record of one. */
void reports_trace_nodes(const struct query *query);
void reports_trace_node(const struct query *query, uint32_t node);

/* Counts the views of the jobs asked for that are still to come. `ask`: asks for those that are not there
 * yet. */
unsigned reports_await(const struct query *query, const struct wanted_view *wanted, bool ask);
/* `complete` is called whenever a view is complete. It may ask again. */
void reports_on_complete(struct reports *reports, void (*complete)(void *data), void *data);

/* STATUS_DAEMON, as root sees it. */
void reports_describe(struct reports *reports, reports_row_fn *row, void *data);
/* Measures jobs here for metrics, one at a time: the job with the lowest handle that is above `after`, and
 * not above `until`. Nothing is looked at that `what` does not need. If several jobs have one name and uid,
 * only the last one is measured, unless `all` is set. */
struct reports_measure {
        enum metrics_need what;
        bool all;
        uint32_t after, until;
        uint32_t job, rank; /* the first rank of that job that is left; 0: none is */
};
/* The handle; 0: there is none. */
uint32_t reports_measure(struct reports *reports, struct reports_measure *measure,
                         void (*fn)(void *data, const struct metrics_job *job), void *data);
uint32_t reports_newest_job(const struct reports *reports);
/* The metrics of all jobs together, those that have ended included, added up one job at a time. A job that
 * ends meanwhile is counted once all the same, so that counters never fall. The struct must not be moved
 * meanwhile. */
struct reports_sum {
        struct list link;
        struct reports_measure at;
        struct metrics_sum sum;
};
void reports_sum_begin(struct reports *reports, struct reports_sum *sum);
/* Adds the next job. False: there was none left. */
bool reports_sum_go_on(struct reports *reports, struct reports_sum *sum);
/* Before its memory goes; harmless after its end. */
void reports_sum_end(struct reports_sum *sum);
