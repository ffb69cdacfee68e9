/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for the files of the report layer. */
#pragma once

#include "job/watch/deadlock.h"
#include "report/answer.h"
#include "report/report.h"

struct reports {
        struct reports_config config;
        struct reports_cluster cluster; /* all 0: the daemon belongs to none */
        uint64_t started, start_time;   /* clock_now(), clock_wall() */
        struct list clients;            /* by id */
        uint64_t last_client;
        struct views *views;
        struct metrics_sum gone;    /* totals of jobs that have ended */
        struct list sums;           /* sums that are not complete yet */
        uint8_t letter[HUB_LETTER]; /* see struct packet */
};

static inline struct reports *reports_of(const struct job *job) {
        return job_observer_data(job);
}

static inline bool query_sees(const struct query *query, uid_t uid) {
        return query->viewer.sees_all || query->viewer.uid == uid;
}

static inline bool query_is_for_all(const struct query *query) {
        return query->asked == NULL || query->asked[0] == '\0';
}

static inline bool query_is_for(const struct query *query, uid_t uid, const char *name) {
        return query_is_for_all(query) || job_is_named(query->asked, uid, name);
}

/* It is for that job, and its viewer sees the job. */
static inline bool query_covers(const struct query *query, uid_t uid, const char *name) {
        return query_sees(query, uid) && query_is_for(query, uid, name);
}

/* facts.c: adds what a job's structs say: its whole row, except those fields that view.h has to compute. */
void job_facts_add(Wire__StatusJob *row, const struct job *job, uint64_t now);
/* The sum of the time by which the job has waited for the member; 0 if it has no record yet. */
uint64_t job_facts_late(const struct member *member);
/* daemon_rows.c. The link is for reports_cluster.links, with the answer as the receiver. */
void daemon_rows_send(struct answer *answer);
void daemon_rows_send_client(struct answer *answer, const struct client *client);
void daemon_rows_send_link(void *answer, const struct reports_link *link);
/* status.c: the job, its members by rank and then those that wait for a place, its agreed plans, and its
 * waits. */
void status_send_job(struct answer *answer, struct job *job);
/* The same about this node's part alone. */
void status_describe_job(const struct query *query, struct job *job);
/* trace.c: all records of that job. */
void trace_describe_job(const struct query *query, struct job *job);

/* peers.c: what other nodes say. See struct jobs_observer. */
bool peers_inquire(struct job *job, uint64_t after);
unsigned peers_blame(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max);
bool peers_entangled(struct job *job, const struct job_wait *wait, uint64_t after, struct entangled *ret);
void peers_host_of(struct job *job, const struct membership_loss *loss, char *text, size_t size);
struct hub_job peers_name(const struct job *job);
struct view *peers_view(const struct job *job);
/* The jobs that span daemons, and that a query covers. `job` is NULL if only the coordinator is here. */
typedef void peers_fn(void *to, struct job *job, const struct hub_job *name);
void peers_each(const struct query *query, peers_fn *fn, void *to);
/* The query covers that job, which has no node here. */
bool peers_covers_remote(const struct query *query, const struct hub_job *job);
/* Only those jobs. */
void peers_each_coordinated(const struct query *query, peers_fn *fn, void *to);

/* packet.c. A packet is a letter to another daemon while it is written, in reports->letter: rows are added
 * until it is sent. One that is full is sent, and the next one begun. */
struct packet {
        struct reports *reports;
        struct job *job;             /* NULL: it comes from the coordinator's daemon, */
        const struct hub_job *about; /* about that job */
        uint32_t to, request;
        bool one; /* rows that exceed it are left out instead */
        size_t used;
};
/* The packet takes the rows, as of a viewer who sees all. */
struct query packet_query(struct packet *packet);
void packet_add(void *packet, uint16_t type, const ProtobufCMessage *row);
bool packet_send(struct packet *packet); /* see hub_post() */
/* letters.c: letters between the daemons of a job. See struct jobs_observer. */
void letters_take(struct job *job, const struct hub_letter *letter);
/* wait_row.c: reads StatusWait.what or .purpose. False: it is none that is known here. */
bool wait_row_kind(const char *name, enum wait_kind *ret);
/* Makes the row about a wait, for other nodes and for people. `host` is this one; NULL: the job
 * has no other. Strings of the row lie in `parts`. */
struct wait_parts {
        char text[WAIT_TEXT], call[CALL_TEXT];
        uint32_t blocked[LIMIT_LOCAL];
};
void wait_row(const struct job *job, const struct job_wait *wait, uint64_t now, const char *host,
              struct wait_parts *parts, Wire__StatusWait *ret);
/* clock_now() at which another node's wait began. */
uint64_t wait_row_since(const Wire__StatusWait *row);
/* Reads another node's wait from its row (WAIT_NODES). False: it is none that is known here. */
bool wait_row_want(const Wire__StatusWait *row, struct want *ret);
/* peer_rows.c: the rows of other nodes in an answer to STATUS, about the job with that handle. */
struct peer_rows_members { /* where in the view they are; those with a rank first, by rank */
        unsigned n;
        struct peer_rows_member {
                uint32_t rank;
                bool unranked;
                size_t at;
        } member[2 * LIMIT_LOCAL];
};
void peer_rows_find_members(struct view *view, struct peer_rows_members *ret);
void peer_rows_send_member(struct answer *answer, struct view *view, const struct peer_rows_member *member,
                           uint32_t job);
/* Waits for members and nodes; how many. */
unsigned peer_rows_send_waits(struct answer *answer, struct view *view, uint32_t job, bool waiting);
/* The whole of a job that has no node here. False: nothing is known of it. */
bool peer_rows_send_job(struct answer *answer, struct view *view, uint32_t job);
