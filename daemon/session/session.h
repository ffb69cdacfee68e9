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

#include "base/loop.h"
#include "job/job.h"

struct reports;
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

struct sessions_config {
        struct loop *loop;
        struct backend *backend;
        struct users *accounts;
        struct jobs *jobs; /* their events come here from then on */
        struct reports *reports;
        const char *device;
        uint64_t instance;
        uint64_t handshake_timeout;
        uint64_t staging_bytes;
};

int sessions_new(const struct sessions_config *config, struct sessions **ret);
struct sessions *sessions_free(struct sessions *sessions); /* all sessions must be gone */
void sessions_set_handshake_timeout(struct sessions *sessions, uint64_t us);
unsigned sessions_count(const struct sessions *sessions);
/* Sends every client the reason why the daemon goes, and hangs up. */
void sessions_shutdown(struct sessions *sessions, const char *why);

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
