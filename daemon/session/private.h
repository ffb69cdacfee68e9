/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for the files of the session layer. */
#pragma once

#include <unistd.h>

#include "base/error.h"
#include "gradsync.pb-c.h"
#include "proto/codec.h"
#include "report/report.h"
#include "session/events.h"
#include "session/session.h"

#define SESSION_MEMBERS 64u /* memberships of one client */

enum session_state {
        SESSION_GREETING, /* HELLO has not come */
        SESSION_OPEN,
        SESSION_ENDING, /* hears nothing and says nothing any more */
};

/* A request that waits for what other nodes say. */
struct parked {
        struct list link;
        struct session *session;
        uint32_t request;
        void (*answer)(const struct query *query, uint32_t node);
        struct wanted_view wanted;
        char job[LIMIT_NAME + 16]; /* that is asked for; "": none */
};

struct sessions {
        struct sessions_config config;
        struct list parked;
        struct list list;
        unsigned n;
        struct codec codec; /* one message at a time is unpacked, on one thread */
        uint8_t frame[FRAME_MAX];
        struct results results;
};

struct session {
        struct list link;
        struct sessions *sessions;
        const struct session_link *ops;
        void *transport;
        enum session_state state;
        struct client client;
        bool in_admin_group;
        int pidfd;
        struct charge pidfd_charge; /* for one that came with HELLO */
        struct loop_io *pidfd_io;
        struct loop_timer *deadline; /* of the handshake */
        struct loop_deferred ending;
        uint32_t cause; /* WIRE__CAUSE__… with which its members go */
        uint32_t n_parked;
        uint64_t aside;        /* clock_now() of its last message that belongs to no step */
        uint32_t refused_plan; /* request of the last refused plan: its further frames get no answer */
        bool returns;          /* it comes back to the daemon that follows this one */
};

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
        return session->client.uid == 0 || session->in_admin_group;
}

/* The daemon's own uid may hold back all jobs, too. */
static inline bool session_may_drain(const struct session *session) {
        return session_is_operator(session) || session->client.uid == geteuid();
}

/* Handlers: 0; a code with request->refusal, answered with REFUSED; a negative errno ends the session. */
typedef int session_handler(struct session *session, struct request *request,
                            const ProtobufCMessage *message);

session_handler on_hello, on_join, on_leave;
session_handler on_plan_begin, on_plan_params, on_plan_buckets, on_plan_commit, on_plan_mapped, on_plan_drop;
session_handler on_rejoin, on_rejoin_plan, on_rejoin_staging, on_rejoin_end;
session_handler on_register, on_unregister;
session_handler on_ready, on_staging, on_staging_mapped, on_operation;
session_handler on_status, on_control, on_trace;
/* See reports_on_complete(). `data` is the sessions. */
void on_status_told(void *data);
