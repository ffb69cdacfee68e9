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
        /* Hands over what has arrived already, the first of it at once, then calls session_drained():
         * the client is dead, and what it said before counts. */
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

/* A job of the cluster. Those that the coordinator met later have higher numbers. */
typedef void sessions_far_fn(void *to, uint64_t number, uid_t uid, const char *name, uint64_t incarnation);

/* What a daemon of a cluster shows beyond its own jobs. */
struct sessions_cluster {
        const char *host; /* this one's name, for people */
        /* The jobs of the cluster whose coordinator is here, by number. */
        void (*each)(void *data, sessions_far_fn *fn, void *to);
        /* A question to all nodes of one of these, see hub_ask(); answered by sessions_told(). False: it
         * cannot be asked. */
        bool (*ask)(void *data, uid_t uid, const char *name, uint64_t incarnation, uint32_t id,
                    const void *question, size_t bytes);
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
        struct jobs *jobs; /* what happens there comes here from then on */
        const char *device, *socket;
        const struct sessions_identity *identity; /* what is shown of it; NULL: nothing */
        uint64_t instance;
        struct sha256 proof_key; /* drawn at random: see sessions_use_key() */
        uint64_t handshake_timeout;
        uint64_t staging_bytes;
};

int sessions_new(const struct sessions_config *config, struct sessions **ret);
struct sessions *sessions_free(struct sessions *sessions); /* all sessions must be gone */
void sessions_use_cluster(struct sessions *sessions, const struct sessions_cluster *cluster); /* copied */
/* Members prove by this one that they were members of another run of this daemon, see proof.h; 32 bytes,
 * copied. */
void sessions_use_key(struct sessions *sessions, const uint8_t *key);
void sessions_told(struct sessions *sessions, const struct hub_told *told);
void sessions_set_handshake_timeout(struct sessions *sessions, uint64_t us);
unsigned sessions_count(const struct sessions *sessions);
/* Sends every client the reason why the daemon goes, and hangs up. */
void sessions_shutdown(struct sessions *sessions, const char *why);

/* A row of an answer; it is valid during its call. */
typedef void (*sessions_row_fn)(void *data, uint16_t type, const ProtobufCMessage *row);
/* STATUS_DAEMON, as root sees it. */
void sessions_describe(struct sessions *sessions, sessions_row_fn row, void *data);
/* What metrics say of the jobs here, one at a time: of the one with the lowest handle that is above
 * `after`, and below or at `until`. Nothing is looked at that `what` does not need. Of several jobs with
 * one name and uid the last one is meant, unless `all` are. */
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
/* What metrics say of all jobs together, those that have ended included, put together one job at a time. A
 * job that ends meanwhile is in it once all the same: its counters never fall. It must not be moved
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
/* Whether what comes from this client now is likely to belong to the steps of a running job: it is a
 * member of one, and has sent nothing else for a while. */
bool session_is_stepping(const struct session *session);
/* The packet could not be taken: truncated, or with more fds than are allowed. */
void session_bad_packet(struct session *session, const char *why);
/* The peer has hung up, or the link has failed. */
void session_closed(struct session *session);
/* Of what the socket held when the client's process ended nothing is left. */
void session_drained(struct session *session);
/* The link has given up a client that takes nothing more; it does not hear why, but the others do. */
void session_given_up(struct session *session, const char *why);
/* What the socket layer says about it in its own refusals. */
void session_refuse(struct session *session, uint32_t code, const char *text);
