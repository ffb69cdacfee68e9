/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client: handshake, requests, memberships. The session knows messages and members, not sockets: the
 * socket layer hands it whole packets and gives it two functions to answer with. Nothing a client sends ends
 * more than its own session.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/loop.h"
#include "base/sha256.h"
#include "job/job.h"
#include "proto/codec.h"
#include "proto/metrics_sum.h"

struct session;
struct sessions;

/* How a session answers. */
struct session_link {
        /* Sends or queues one frame; the kernel duplicates the fds. A link that cannot take it ends the
         * session by itself. */
        void (*send)(void *link, const void *frame, size_t size, const int *fds, unsigned n_fds);
        /* Hands over the packets that have arrived already, the first ones at once, then calls
         * session_drained(): the client is dead, and its earlier messages count. */
        void (*drain)(void *link);
        /* The session is over: close, and free both at the end of the pass. */
        void (*hangup)(void *link);
};

struct session_peer {
        uid_t uid;
        gid_t gid;
        pid_t pid;
        bool in_admin_group;
};

struct sessions_identity {
        const char *node;        /* id of the daemon over all of its runs; "": it has none */
        uint64_t starts;         /* how many runs there have been */
        const char *no_identity; /* why it coordinates nothing beyond its own host; "": it may */
};

/* A connection to another daemon. */
struct sessions_link {
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
struct sessions_traffic {
        uint64_t connects, ends, sent, received;
        const uint64_t *refused;
        unsigned n_refused;
};

/* Facts that a daemon of a cluster shows beyond its own jobs, and letters about jobs that it coordinates. */
struct sessions_cluster {
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
        void (*links)(void *data, void (*fn)(void *to, const struct sessions_link *link), void *to);
        /* False: there never was one. */
        bool (*traffic)(void *data, struct sessions_traffic *ret);
        /* Why the coordinator does not answer. */
        void (*trouble)(void *data, char *text, size_t size);
        void *data;
};

struct sessions_config {
        struct loop *loop;
        struct backend *backend;
        struct users *accounts;
        struct jobs *jobs; /* their events come here from then on */
        const char *device, *socket;
        const struct sessions_identity *identity; /* shown to people; NULL: none */
        uint64_t instance;
        uint64_t handshake_timeout;
        uint64_t staging_bytes;
};

int sessions_new(const struct sessions_config *config, struct sessions **ret);
struct sessions *sessions_free(struct sessions *sessions); /* all sessions must be gone */
void sessions_use_cluster(struct sessions *sessions, const struct sessions_cluster *cluster); /* copied */
/* A letter to this daemon as that of the job's coordinator. */
void sessions_posted(struct sessions *sessions, const struct hub_job *job, const struct hub_letter *letter);
void sessions_set_handshake_timeout(struct sessions *sessions, uint64_t us);
unsigned sessions_count(const struct sessions *sessions);
/* Sends every client the reason why the daemon goes, and hangs up. */
void sessions_shutdown(struct sessions *sessions, const char *why);

/* A row of an answer; it is valid during its call. */
typedef void (*sessions_row_fn)(void *data, uint16_t type, const ProtobufCMessage *row);
/* STATUS_DAEMON, as root sees it. */
void sessions_describe(struct sessions *sessions, sessions_row_fn row, void *data);
/* Measures jobs here for metrics, one at a time: the job with the lowest handle that is above `after`, and
 * not above `until`. Nothing is looked at that `what` does not need. If several jobs have one name and uid,
 * only the last one is measured, unless `all` is set. */
struct sessions_measure {
        enum metrics_need what;
        bool all;
        uint32_t after, until;
        uint32_t job, rank; /* the first rank of that job that is left; 0: none is */
};
/* The handle; 0: there is none. */
uint32_t sessions_measure(struct sessions *sessions, struct sessions_measure *measure,
                          void (*fn)(void *data, const struct metrics_job *job), void *data);
uint32_t sessions_newest_job(const struct sessions *sessions);
/* The metrics of all jobs together, those that have ended included, added up one job at a time. A job that
 * ends meanwhile is counted once all the same, so that counters never fall. The struct must not be moved
 * meanwhile. */
struct sessions_sum {
        struct list link;
        struct sessions_measure at;
        struct metrics_sum sum;
};
void sessions_sum_begin(struct sessions *sessions, struct sessions_sum *sum);
/* Adds the next job. False: there was none left. */
bool sessions_sum_go_on(struct sessions *sessions, struct sessions_sum *sum);
/* Before its memory goes; harmless after its end. */
void sessions_sum_end(struct sessions_sum *sum);

/* `pidfd` (or -1) is taken over. The link's send may be called from now on. */
int session_new(struct sessions *sessions, const struct session_link *ops, void *link,
                const struct session_peer *peer, int pidfd, struct session **ret);
struct session *session_free(struct session *session);
/* One packet with its fds. Those that it keeps are set to -1; the others stay the caller's. */
void session_packet(struct session *session, const void *packet, size_t size, int *fds, unsigned n_fds);
/* Whether the next message of this client is likely to belong to the steps of a running job: it is a member
 * of one, and has sent nothing else for a while. */
bool session_is_stepping(const struct session *session);
/* The packet could not be taken: truncated, or with more fds than are allowed. */
void session_bad_packet(struct session *session, const char *why);
/* The peer has hung up, or the link has failed. */
void session_closed(struct session *session);
/* The link has handed over all that the socket held when the client's process ended. */
void session_drained(struct session *session);
/* The link has given up a client that takes nothing more; it does not hear why, but the others do. */
void session_given_up(struct session *session, const char *why);
/* Sends the client a refusal of the socket layer. */
void session_refuse(struct session *session, uint32_t code, const char *text);
