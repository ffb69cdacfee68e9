/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one client's session, from its connection to the end of its memberships. */
#include "session/session.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/proc.h"
#include "proto/names.h"
#include "session/private.h"

#define ASIDE USEC_PER_SEC /* for which a member that asks something passes for one that asks */

/* Its members go, then the connection. Runs at the end of a pass, outside every callback. */
static void session_end(void *data) {
        struct session *session = data;

        while (!list_empty(&session->client.members))
                member_gone(list_entry(session->client.members.next, struct member, owner_link),
                            session->cause);
        jobs_advance(session->sessions->config.jobs);
        session->ops->hangup(session->transport);
}

void session_set_state(struct session *session, enum session_state state) {
        assert(state > session->state);
        session->state = state;
        session->client.open = state == SESSION_OPEN;
}

static void session_begin_end(struct session *session, uint32_t cause) {
        uint64_t now = clock_now();
        struct member *member;

        if (session->state == SESSION_ENDING)
                return;
        session_set_state(session, SESSION_ENDING);
        list_for_each(member, &session->client.members, owner_link)
                member->noticed = now;
        if (session->cause == WIRE__CAUSE__CAUSE_NONE)
                session->cause = cause;
        loop_defer(session->sessions->config.loop, &session->ending);
}

/* It has a step that the daemon does not bring to its end: all that it sees is that the daemon has gone. */
static bool session_is_left_open(const struct session *session) {
        const struct member *member;

        list_for_each(member, &session->client.members, owner_link)
                if (member->job->handover == HANDOVER_OPEN)
                        return true;
        return false;
}

/* Not a refusal: the client comes back, if there is another daemon in time. */
static void session_tell_restarting(struct session *session, const char *why) {
        Wire__Restarting message = WIRE__RESTARTING__INIT;

        message.text = (char *)why;
        session_send(session, WIRE__MESSAGE_TYPE__RESTARTING, 0, &message.base);
        session_begin_end(session, WIRE__CAUSE__SHUTDOWN);
}

void sessions_shutdown(struct sessions *sessions, const char *why) {
        struct session *session, *spare;

        results_flush(&sessions->results);
        list_for_each_safe(session, spare, &sessions->list, link) {
                session->cause = WIRE__CAUSE__SHUTDOWN;
                if (session->returns && session_is_left_open(session))
                        session_begin_end(session, WIRE__CAUSE__SHUTDOWN);
                else if (session->returns)
                        session_tell_restarting(session, why);
                else
                        session_refuse(session, WIRE__CODE__DAEMON_LOST, why);
        }
}

static void session_handshake_late(void *data) {
        struct session *session = data;

        if (flood_admits(FLOOD_SILENT, session->client.uid, clock_now()))
                log_warning("client pid %d, uid %u sent no HELLO within %.1f s", (int)session->client.pid,
                            (unsigned)session->client.uid,
                            (double)session->sessions->config.handshake_timeout / 1e6);
        session_refuse(session, WIRE__CODE__TIMEOUT, "no HELLO came in time");
}

void session_drained(struct session *session) {
        session_begin_end(session, WIRE__CAUSE__EXITED);
}

/* The client's process has ended. If it has members, its last messages still count for their jobs; otherwise
 * they are of no use any more. */
static void session_process_ended(void *data, int fd, unsigned events) {
        struct session *session = data;

        session->cause = WIRE__CAUSE__EXITED;
        loop_io_set(session->pidfd_io, 0);
        if (list_empty(&session->client.members))
                session_drained(session);
        else
                session->ops->drain(session->transport);
}

int session_watch_pidfd(struct session *session, int pidfd) {
        int r = loop_io_new(session->sessions->config.loop, pidfd, LOOP_READ, session_process_ended, session,
                            &session->pidfd_io);

        if (r < 0)
                return r;
        session->pidfd = pidfd;
        return 0;
}

int session_new(struct sessions *sessions, const struct session_link *ops, void *link,
                const struct session_peer *peer, int pidfd, struct session **ret) {
        struct session *session = calloc(1, sizeof(*session));
        int r = -ENOMEM;

        if (session == NULL)
                goto fail;
        session->sessions = sessions;
        session->ops = ops;
        session->transport = link;
        session->client.uid = peer->uid;
        session->client.gid = peer->gid;
        session->client.pid = peer->pid;
        session->client.connected = clock_now();
        session->in_admin_group = peer->in_admin_group;
        session->pidfd = -1;
        session->ending = (struct loop_deferred){ .fn = session_end, .data = session };
        list_init(&session->client.members);
        if (pidfd >= 0) {
                r = session_watch_pidfd(session, pidfd);
                if (r < 0)
                        goto fail;
                pidfd = -1;
        }
        r = loop_timer_new(sessions->config.loop, session_handshake_late, session, &session->deadline);
        if (r < 0)
                goto fail;
        r = loop_timer_arm(session->deadline, sessions->config.handshake_timeout);
        if (r < 0)
                goto fail;
        list_append(&sessions->list, &session->link);
        reports_add_client(sessions->config.reports, &session->client);
        sessions->n++;
        *ret = session;
        return 0;

fail:
        closep(&pidfd);
        if (session != NULL) {
                loop_timer_free(session->deadline);
                loop_io_free(session->pidfd_io);
                fd_close(session->pidfd);
        }
        free(session);
        return r;
}

static void session_drop_parked(struct session *session) {
        struct parked *parked, *spare;

        list_for_each_safe(parked, spare, &session->sessions->parked, link) {
                if (parked->session != session)
                        continue;
                list_remove(&parked->link);
                free(parked);
        }
}

struct session *session_free(struct session *session) {
        if (session == NULL)
                return NULL;
        assert(list_empty(&session->client.members));
        loop_defer_cancel(session->sessions->config.loop, &session->ending);
        loop_timer_free(session->deadline);
        loop_io_free(session->pidfd_io);
        fd_close(session->pidfd);
        charge_release(&session->pidfd_charge);
        session_drop_parked(session);
        list_remove(&session->client.link);
        list_remove(&session->link);
        session->sessions->n--;
        free(session);
        return NULL;
}

void session_send(struct session *session, uint16_t type, uint32_t request, const ProtobufCMessage *message) {
        session_send_fds(session, type, request, NULL, 0, message);
}

void session_send_fds(struct session *session, uint16_t type, uint32_t request, const int *fds,
                      unsigned n_fds, const ProtobufCMessage *message) {
        if (session == NULL || session->state == SESSION_ENDING)
                return;
        ssize_t size = codec_pack(session->sessions->frame, type, request, n_fds, message);
        if (size < 0)
                log_error("a %s for pid %d does not fit a frame", codec_type_name(type),
                          (int)session->client.pid);
        else
                session->ops->send(session->transport, session->sessions->frame, (size_t)size, fds, n_fds);
}

void session_send_refused(struct session *session, uint32_t request, const struct refusal *refusal) {
        Wire__Refused refused = WIRE__REFUSED__INIT;

        if (refusal->code == WIRE__CODE__DENIED)
                accounts_note(session->sessions->config.accounts, ACCOUNT_DENIED);
        SET(refused, code, (Wire__Code)refusal->code);
        refused.text = (char *)refusal->text;
        SET_IF(refused, rank, refusal->has_culprit, refusal->rank);
        SET_IF(refused, pid, refusal->has_culprit, refusal->pid);
        refused.parameter = refusal->parameter[0] != '\0' ? (char *)refusal->parameter : NULL;
        session_send(session, WIRE__MESSAGE_TYPE__REFUSED, request, &refused.base);
}

/* Its jobs are told why. */
static void session_end_for(struct session *session, const char *why) {
        struct member *member;

        list_for_each(member, &session->client.members, owner_link)
                if (session->state != SESSION_ENDING)
                        member_note_fault(member, why);
        session_begin_end(session, WIRE__CAUSE__EVICTED);
}

void session_evict(struct session *session, const struct refusal *refusal) {
        session_send_refused(session, 0, refusal);
        session_end_for(session, refusal->text);
}

void session_refuse(struct session *session, uint32_t code, const char *text) {
        struct refusal refusal;

        refuse(&refusal, code, "%s", text);
        session_evict(session, &refusal);
}

void session_protocol_error(struct session *session, const char *what, const char *why) {
        struct refusal refusal;

        if (session->state == SESSION_ENDING)
                return;
        if (flood_admits(FLOOD_PROTOCOL, session->client.uid, clock_now()))
                log_warning("client pid %d, uid %u is disconnected: %s%s%s", (int)session->client.pid,
                            (unsigned)session->client.uid, what, why[0] != '\0' ? ": " : "", why);
        refuse(&refusal, WIRE__CODE__PROTOCOL, "%s%s%s", what, why[0] != '\0' ? ": " : "", why);
        session_evict(session, &refusal);
}

void session_bad_packet(struct session *session, const char *why) {
        session_protocol_error(session, why, "");
}

/* The socket of a process that is being killed closes before its pidfd reports the end. So the state of the
 * process at this moment decides the cause. */
void session_closed(struct session *session) {
        struct pollfd poll_fd = { .fd = session->pidfd, .events = POLLIN };
        bool ended = session->pidfd >= 0 && poll(&poll_fd, 1, 0) > 0;

        session_begin_end(session, ended || proc_exiting(session->client.pid) ? WIRE__CAUSE__EXITED
                                                                              : WIRE__CAUSE__CLOSED);
}

void session_given_up(struct session *session, const char *why) {
        session_end_for(session, why);
}

/* A job is addressed by its handle, so one connection can hold one place in it. */
static bool session_has_joined(const struct session *session, const char *job) {
        const struct member *member;

        list_for_each(member, &session->client.members, owner_link)
                if (member->job->open && strcmp(member->job->name, job) == 0)
                        return true;
        return false;
}

static int session_check_job(const struct session *session, const char *job, uint32_t min_world,
                             uint32_t max_world, struct refusal *refusal) {
        if (job == NULL || !name_valid_job(job))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "a job's name is 1 to %u bytes of UTF-8 without control characters and '/'",
                              LIMIT_NAME);
        if (min_world < 1 || min_world > max_world || max_world > LIMIT_WORLD)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': a world of %u to %u members is not possible; 1 to %u are", job,
                              min_world, max_world, LIMIT_WORLD);
        if (session_has_joined(session, job))
                return refuse(refusal, WIRE__CODE__STATE,
                              "this connection is a member of job '%s' already; open another one for another "
                              "member",
                              job);
        if (list_length(&session->client.members) >= SESSION_MEMBERS)
                return refuse(refusal, WIRE__CODE__QUOTA, "one connection can be member of %u jobs",
                              SESSION_MEMBERS);
        return 0;
}

bool session_is_stepping(const struct session *session) {
        const struct member *member;

        if (session->state != SESSION_OPEN || list_empty(&session->client.members) ||
            clock_now() < session->aside + ASIDE)
                return false;
        list_for_each(member, &session->client.members, owner_link)
                if (member->state == MEMBER_ACTIVE && member->job->state == JOB_RUNNING)
                        return true;
        return false;
}

int session_begin_join(struct session *session, struct request *request, const char *job, uint32_t min_world,
                       uint32_t max_world, struct job_join *ret) {
        int r = session_check_job(session, job, min_world, max_world, &request->refusal);

        if (r != 0)
                return r;
        *ret = (struct job_join){ .name = job,
                                  .uid = session->client.uid,
                                  .pid = session->client.pid,
                                  .client = session->client.id,
                                  .program = session->client.program,
                                  .request = request->id,
                                  .returns = session->returns,
                                  .owner = session,
                                  .owner_members = &session->client.members };
        ret->membership.min_world = min_world;
        ret->membership.max_world = max_world;
        ret->membership.grace = session->sessions->config.jobs->config.rejoin_grace;
        return 0;
}

int session_identify(struct membership_request *who, const char *job, uint64_t instance,
                     struct refusal *refusal) {
        if (!who->has_rank)
                return refuse(
                        refusal, WIRE__CODE__INVALID,
                        "job '%s': an instance counts the processes of one rank, and none was asked for; "
                        "give the rank with it, or leave it out",
                        job);
        if (instance == UINT64_MAX)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s', rank %u: an instance is below %llu",
                              job, who->rank, (unsigned long long)UINT64_MAX);
        who->identity = 1 + (uint64_t)who->rank;
        who->instance = 1 + instance;
        return 0;
}
