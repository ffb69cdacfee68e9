/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders of operators: end a member, pause a job and resume it, drain the daemon. The kernel names the uid
 * that gives an order, and what has been ordered is logged with it. A job that the caller may not know of is
 * not there for it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "job/restart/takeover.h"
#include "session/private.h"

/* The caller's own job goes before other users' of that name, and an open one before one that is over. */
static unsigned control_preference(const struct session *session, const struct job *job) {
        return (job->uid == session->client.uid ? 2 : 0) + (job->open ? 1 : 0);
}

/* *ret is NULL if there is none. A code with *refusal if the name means several. */
static int control_find_job(const struct session *session, const char *asked, struct job **ret,
                            struct refusal *refusal) {
        struct job *job, *best = NULL;
        bool several = false;

        list_for_each(job, &session->sessions->config.jobs->list, link) {
                if (!job_is_named(asked, job->uid, job->name) ||
                    (job->uid != session->client.uid && !session_is_operator(session)))
                        continue;
                if (best == NULL || control_preference(session, job) > control_preference(session, best)) {
                        best = job;
                        several = false;
                } else if (job->uid != best->uid &&
                           control_preference(session, job) == control_preference(session, best)) {
                        several = true;
                }
        }
        *ret = best;
        if (!several)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID, "several users have a job '%s'; say UID/%s", asked,
                      asked);
}

/* " of uid 1000" where an operator gives orders for another user's job: several may have one of the name. */
static const char *control_owner_text(const struct session *session, const struct job *job,
                                      char text[static 24]) {
        text[0] = '\0';
        if (job->uid != session->client.uid)
                snprintf(text, 24, " of uid %u", (unsigned)job->uid);
        return text;
}

static void control_log(const struct session *session, const struct job *job, const char *verb) {
        struct log_context context = LOG_CONTEXT_NONE;
        char owner[24];

        if (!flood_admits(FLOOD_ORDERS, session->client.uid, clock_now()))
                return;
        context.pid = session->client.pid;
        context.uid = session->client.uid;
        context.job = job != NULL ? job->name : NULL;
        if (job != NULL)
                log_write(LOG_NOTICE, &context, "uid %u %s job '%s'%s", (unsigned)session->client.uid, verb,
                          job->name, control_owner_text(session, job, owner));
        else
                log_write(LOG_NOTICE, &context, "uid %u %s the daemon", (unsigned)session->client.uid, verb);
}

static int control_evict(const struct session *session, struct job *job, const Wire__Control *control,
                         struct refusal *refusal) {
        if (job->state != JOB_RUNNING && job->state != JOB_REPLACING)
                return refuse(refusal, WIRE__CODE__STATE, "job '%s' %s: there is no rank to evict", job->name,
                              job->state == JOB_FORMING ? "has not formed yet" : "has ended");
        if (!control->has_rank || control->rank >= job->world)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s' has no rank %u; its ranks are 0 to %u",
                              job->name, control->rank, job->world - 1);
        struct member *member = member_of_rank(job, control->rank);
        if (member == NULL)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s': rank %u is on another node; give the order to the gradsyncd there",
                              job->name, control->rank);
        if (member->owner == NULL && takeover_forget(job, control->rank)) {
                control_log(session, job,
                            "has nobody wait any longer for a member that did not come back to");
                return 0;
        }
        if (member->owner == NULL)
                return refuse(refusal, WIRE__CODE__STATE, "job '%s': rank %u has gone already", job->name,
                              control->rank);
        member_evict(member, session->client.uid);
        /* Else its loss is told at once, with the operator's name. */
        if (job->state == JOB_REPLACING)
                member_tell_evicted(member);
        return 0;
}

/* For all jobs at once: operators, and whose daemon it is. */
static int control_hold(const struct session *session, bool on, struct refusal *refusal) {
        struct jobs *jobs = session->sessions->config.jobs;

        if (!session_may_drain(session))
                return refuse(
                        refusal, WIRE__CODE__DENIED,
                        "uid %u may not drain gradsyncd or lift that: root, uid %u and the members of its "
                        "admin group may",
                        (unsigned)session->client.uid, (unsigned)geteuid());
        if ((jobs->gate == GATE_HELD) != on)
                control_log(session, NULL, on ? "drains" : "resumes");
        jobs_hold(jobs, on);
        jobs_advance(jobs); /* before the answer says how many steps still go on */
        return 0;
}

/* Several people may share the owner's uid; the token shows whose job it is. */
static int control_check_token(const struct session *session, const struct job *job,
                               const Wire__Control *control, struct refusal *refusal) {
        struct token token;

        if (session_is_operator(session))
                return 0;
        if (token_set(&token, job->uid, job->name, control->token) == 0 && token_equal(&token, &job->token))
                return 0;
        return refuse(
                refusal, WIRE__CODE__DENIED,
                "job '%s' of uid %u has another token than this order, or only one of them has one: give the "
                "job's (--token, or GRADSYNC_JOB_TOKEN)",
                job->name, (unsigned)job->uid);
}

static int control_job(const struct session *session, struct job *job, const Wire__Control *control,
                       struct refusal *refusal) {
        switch (control->verb) {
        case WIRE__VERB__EVICT: return control_evict(session, job, control, refusal);
        case WIRE__VERB__PAUSE:
                if (!job_is_paused(job))
                        control_log(session, job, "pauses");
                job_pause(job);
                return 0;
        default:
                if (job_is_paused(job))
                        control_log(session, job, "resumes");
                job_resume(job);
                return 0;
        }
}

static bool control_is_for_all(const Wire__Control *control) {
        bool named = control->job != NULL && control->job[0] != '\0';

        return control->verb == WIRE__VERB__DRAIN || (control->verb == WIRE__VERB__RESUME && !named);
}

static int control_check(const Wire__Control *control, struct refusal *refusal) {
        if (control->verb == WIRE__VERB__VERB_NONE || control->verb > WIRE__VERB__RESUME)
                return refuse(refusal, WIRE__CODE__UNSUPPORTED, "order %u is unknown to gradsyncd %s",
                              (unsigned)control->verb, GRADSYNC_RELEASE);
        if (!control_is_for_all(control) && (control->job == NULL || control->job[0] == '\0'))
                return refuse(refusal, WIRE__CODE__INVALID, "the order names no job");
        return 0;
}

int on_control(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Control *control = CAST(Wire__Control, message);
        Wire__ControlDone done = WIRE__CONTROL_DONE__INIT;
        struct job *job = NULL;
        int r = control_check(control, &request->refusal);

        if (r == 0 && control_is_for_all(control))
                r = control_hold(session, control->verb == WIRE__VERB__DRAIN, &request->refusal);
        else if (r == 0)
                r = control_find_job(session, control->job, &job, &request->refusal);
        if (r == 0 && job != NULL)
                r = control_check_token(session, job, control, &request->refusal);
        if (r == 0 && job != NULL)
                r = control_job(session, job, control, &request->refusal);
        if (r != 0)
                return r;
        SET(done, found, job != NULL || control_is_for_all(control));
        SET_IF(done, open, control_is_for_all(control), jobs_open(session->sessions->config.jobs));
        session_send(session, WIRE__MESSAGE_TYPE__CONTROL_DONE, request->id, &done.base);
        return 0;
}
