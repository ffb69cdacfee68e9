/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for the files of the session layer. */
#pragma once

#include <unistd.h>

#include "base/error.h"
#include "gradsync.pb-c.h"
#include "job/watch/deadlock.h"
#include "session/results.h"
#include "session/session.h"
#include "session/views.h"

#define SESSION_MEMBERS 64u /* memberships of one client */

enum session_state {
        SESSION_GREETING, /* HELLO has not come */
        SESSION_OPEN,
        SESSION_ENDING, /* hears nothing and says nothing any more */
};

/* The views that a request is about: see views.h. Their answers must be of `after` or later. */
struct wanted_view {
        enum view_of what;
        uint32_t node;
        uint64_t after;
};

/* A request that waits for what other nodes say. */
typedef void parked_fn(struct session *session, uint32_t request, const char *job, uint32_t node);
struct parked {
        struct list link;
        struct session *session;
        uint32_t request;
        parked_fn *answer;
        struct wanted_view wanted;
        char job[LIMIT_NAME + 16]; /* that is asked for; "": none */
};

struct sessions {
        struct sessions_config config;
        struct sessions_cluster cluster; /* all 0: it belongs to none */
        struct views *views;
        struct list parked;
        struct metrics_sum gone;    /* totals of jobs that have ended */
        struct list sums;           /* sums that are not complete yet */
        uint8_t letter[HUB_LETTER]; /* see struct packet */
        struct list list;
        unsigned n;
        uint64_t next_id, started, start_time; /* clock_now(), clock_wall() */
        struct codec codec;                    /* one message at a time is unpacked, on one thread */
        uint8_t frame[FRAME_MAX];
        struct results results;
};

struct session {
        struct list link;
        struct sessions *sessions;
        const struct session_link *ops;
        void *transport;
        enum session_state state;
        uint64_t id, connected;
        struct session_peer peer;
        int pidfd;
        struct charge pidfd_charge; /* for one that came with HELLO */
        struct loop_io *pidfd_io;
        struct loop_timer *deadline; /* of the handshake */
        struct loop_deferred ending;
        uint32_t cause; /* WIRE__CAUSE__… with which its members go */
        struct list members;
        uint32_t n_parked;
        uint64_t aside;        /* clock_now() of its last message that belongs to no step */
        uint32_t refused_plan; /* request of the last refused plan: its further frames get no answer */
        bool admin;
        bool returns; /* it comes back to the daemon that follows this one */
        char program[64], library[64];
};

/* events.c. Their data is the sessions. */
void sessions_on_event(void *data, const struct job_event *event);
extern const struct jobs_observer sessions_observer;

/* A request, as its handler gets it; fds that the handler keeps are set to -1. */
struct request {
        uint32_t id;
        int *fds;
        unsigned n_fds;
        struct member *member; /* the one it is about; NULL: the client itself */
        struct refusal refusal;
};

/* To a member that is gone, whose session is NULL, nothing is sent. Fds stay the caller's. */
void session_send(struct session *session, uint16_t type, uint32_t request, const ProtobufCMessage *message);
void session_send_fds(struct session *session, uint16_t type, uint32_t request, const int *fds,
                      unsigned n_fds, const ProtobufCMessage *message);
void session_send_refused(struct session *session, uint32_t request, const struct refusal *refusal);
/* The only writer of the state, which only goes forward. */
void session_set_state(struct session *session, enum session_state state);
/* Says why (request 0) and ends the session at the end of the pass. */
void session_evict(struct session *session, const struct refusal *refusal);
void session_protocol_error(struct session *session, const char *what, const char *why);
int session_watch_pidfd(struct session *session, int pidfd);
/* The common part of JOIN and REJOIN: checks whether the client may have a place in a job of this name and
 * size, and describes the client in *ret, without a token. 0, or a code with the request's refusal. */
int session_begin_join(struct session *session, struct request *request, const char *job, uint32_t min_world,
                       uint32_t max_world, struct job_join *ret);
/* Adds to a request for a rank which process of that rank it comes from. INVALID if no rank was asked for. */
int session_identify(struct membership_request *who, const char *job, uint64_t instance,
                     struct refusal *refusal);
/* Root and the admin group see every user's jobs and may act on them. */
static inline bool session_is_operator(const struct session *session) {
        return session->peer.uid == 0 || session->peer.in_admin_group;
}

/* The daemon's own uid may hold back all jobs, too. */
static inline bool session_may_drain(const struct session *session) {
        return session_is_operator(session) || session->peer.uid == geteuid();
}

/* NULL is a viewer from whom nothing is hidden. */
static inline bool session_sees_all(const struct session *viewer) {
        return viewer == NULL || session_is_operator(viewer);
}

/* A client sees the clients and jobs of its own uid. */
static inline bool session_sees(const struct session *viewer, uid_t uid) {
        return session_sees_all(viewer) || viewer->peer.uid == uid;
}

/* A message that codec_unpack() has checked to be of this type. */
#define CAST(type, from) (const type *)(const void *)(from)

/* Handlers: 0; a code with request->refusal, answered with REFUSED; a negative errno ends the session. */
typedef int session_handler(struct session *session, struct request *request,
                            const ProtobufCMessage *message);

session_handler on_hello, on_join, on_leave;
session_handler on_plan_begin, on_plan_params, on_plan_buckets, on_plan_commit, on_plan_mapped, on_plan_drop;
session_handler on_rejoin, on_rejoin_plan, on_rejoin_staging, on_rejoin_end;
session_handler on_register, on_unregister;
session_handler on_ready, on_staging, on_staging_mapped, on_operation;
session_handler on_status, on_control, on_trace;

/* status.c. Sends the rows about this node's part in a job. */
void status_describe_job(struct sessions *sessions, struct job *job, sessions_row_fn row, void *data);

/* peers.c: what other nodes say. See struct jobs_observer. */
bool peers_inquire(struct job *job, uint64_t after);
unsigned peers_blame(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max);
bool peers_entangled(struct job *job, const struct job_wait *wait, uint64_t after, struct entangled *ret);
void peers_host_of(struct job *job, const struct membership_loss *loss, char *text, size_t size);
void peers_missing(struct job *job, char *text, size_t size);
struct hub_job peers_name(const struct job *job);
struct view *peers_view(const struct job *job);
/* The part in a job of the cluster that this daemon has; NULL: none. */
struct job *peers_find_job(const struct sessions *sessions, const struct hub_job *which);
/* The jobs that span daemons, and that the viewer sees and asks for. `job` is NULL if only the coordinator is
 * here. */
typedef void peers_fn(void *to, struct job *job, const struct hub_job *name);
void peers_each(const struct session *viewer, const char *asked, peers_fn *fn, void *to);
/* Counts the views of these jobs that are to come. `ask`: asks for those that are not there yet. */
unsigned peers_refresh(const struct session *viewer, const char *asked, const struct wanted_view *wanted,
                       bool ask);
/* trace.c: sends all records of that job. */
void trace_describe_job(struct job *job, sessions_row_fn row, void *data);
/* sum.c: adds the counts of a job that is about to be freed. */
void sum_ended(const struct job *job);
/* on_status.c: answers a request for what other nodes say, at once or when that is known. */
int status_wait(struct session *session, struct request *request, const char *job, parked_fn *answer,
                const struct wanted_view *wanted);
/* packet.c. A packet is a letter to another daemon while it is written, in sessions->letter: rows are added
 * until it is sent. One that is full is sent, and the next one begun. */
struct packet {
        struct sessions *sessions;
        struct job *job;             /* NULL: it comes from the coordinator's daemon, */
        const struct hub_job *about; /* about that job */
        uint32_t to, request;
        bool one; /* rows that exceed it are left out instead */
        size_t used;
};
void packet_add(void *packet, uint16_t type, const ProtobufCMessage *row);
bool packet_send(struct packet *packet); /* see hub_post() */
/* letters.c: letters between the daemons of a job. See struct jobs_observer. */
void letters_show(struct job *job);
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
/* Reads another node's wait from its row (WAIT_NODES). False: it is none that is known here. */
bool wait_row_want(const Wire__StatusWait *row, struct want *ret);
/* peer_rows.c: the rows of other nodes in an answer to STATUS, about the job with that handle. */
struct peer_rows_members { /* where in the view they are; those with a rank first, by rank */
        unsigned n, n_spares;
        struct peer_rows_member {
                uint32_t rank;
                bool unranked;
                size_t at;
        } member[2 * LIMIT_LOCAL];
};
void peer_rows_find_members(struct view *view, struct peer_rows_members *ret);
void peer_rows_send_member(struct view *view, const struct peer_rows_member *member, uint32_t job,
                           sessions_row_fn row, void *data);
/* Waits for members and nodes; how many. */
unsigned peer_rows_send_waits(struct view *view, uint32_t job, bool waiting, sessions_row_fn row, void *data);
/* Answers TRACE: the nodes of jobs, and the record of one. */
parked_fn peer_rows_send_nodes, peer_rows_send_record;
/* The whole of a job that has no node here. False: nothing is known of it. */
bool peer_rows_send_job(struct view *view, uint32_t job, sessions_row_fn row, void *data);

/* Whether the job is meant by NAME, or UID/NAME; nothing asked for means every job. */
static inline bool status_asks_for_all(const char *asked) {
        return asked == NULL || asked[0] == '\0';
}

static inline bool status_asks_for(const char *asked, uid_t uid, const char *name) {
        return status_asks_for_all(asked) || job_is_named(asked, uid, name);
}
