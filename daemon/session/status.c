/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to STATUS: a snapshot of the daemon, its clients and jobs, as a row of small frames. A caller
 * sees the clients and jobs of its own uid; root and the admin group see all.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/account.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proc.h"
#include "job/plan/plan.h"
#include "job/view.h"
#include "proto/names.h"
#include "session/private.h"

/* What is looked at in an answer; in each job of it for a viewer from whom nothing is hidden. */
#define THREADS 256u
#define MARKS 131072u

/* One process may be a member of many jobs: it is looked at once in an answer. A user has fewer processes
 * than these, unless the quota is raised. */
struct found {
        struct found_process {
                pid_t pid;
                bool threads;
                const char *state; /* NULL: no process has been looked at */
        } process[256];
        struct looks looks; /* that may still be taken */
};

struct answer {
        struct sessions *sessions;
        const struct session *viewer; /* NULL: one that sees all */
        uint64_t now;
        sessions_row_fn row;
        void *data;
        struct found *found;
};

static void status_send_row(const struct answer *answer, uint16_t type, const ProtobufCMessage *row) {
        answer->row(answer->data, type, row);
}

static unsigned status_visible_jobs(const struct answer *answer) {
        struct job *job;
        unsigned n = 0;

        list_for_each(job, &answer->sessions->config.jobs->list, link)
                n += session_sees(answer->viewer, job->uid);
        return n;
}

static unsigned status_visible_clients(const struct answer *answer) {
        struct session *other;
        unsigned n = 0;

        list_for_each(other, &answer->sessions->list, link)
                n += session_sees(answer->viewer, other->peer.uid) && !other->admin &&
                     other->state == SESSION_OPEN;
        return n;
}

/* Of all uids. */
static void status_add_refusals(const struct users *accounts, Wire__StatusDaemon *row) {
        row->has_refused_clients = row->has_refused_jobs = row->has_refused_arenas = row->has_refused_bytes =
                row->has_refused_fds = row->has_refused_connects = row->has_denied = true;
        row->refused_clients = accounts_refused(accounts, ACCOUNT_CLIENTS);
        row->refused_jobs = accounts_refused(accounts, ACCOUNT_JOBS);
        row->refused_arenas = accounts_refused(accounts, ACCOUNT_ARENAS);
        row->refused_bytes = accounts_refused(accounts, ACCOUNT_BYTES);
        row->refused_fds = accounts_refused(accounts, ACCOUNT_FDS);
        row->refused_connects = accounts_noted(accounts, ACCOUNT_TOO_FAST);
        row->denied = accounts_noted(accounts, ACCOUNT_DENIED);
}

static void status_add_process(Wire__StatusDaemon *row) {
        struct proc_usage usage;

        proc_usage(&usage);
        row->has_process_cpu_us = row->has_process_max_fds = true;
        row->has_process_resident_bytes = row->has_process_virtual_bytes = usage.size > 0;
        row->has_process_open_fds = usage.open_fds > 0;
        row->process_cpu_us = clock_process_cpu();
        row->process_resident_bytes = usage.resident;
        row->process_virtual_bytes = usage.size;
        row->process_open_fds = usage.open_fds;
        row->process_max_fds = usage.max_fds;
}

static void status_send_daemon(const struct answer *answer) {
        const struct sessions_config *config = &answer->sessions->config;
        const struct backend_ops *ops = config->backend->ops;
        Wire__StatusDaemon row = WIRE__STATUS_DAEMON__INIT;

        row.has_pid = row.has_uptime_ms = row.has_instance = row.has_clients = row.has_jobs =
                row.has_workers = true;
        row.has_arena_bytes = row.has_arenas = row.has_loop_cpu_us = row.has_worker_cpu_us = row.has_uid =
                row.has_complete = true;
        row.device = (char *)config->device;
        row.version = (char *)GRADSYNC_RELEASE;
        row.socket = (char *)config->socket;
        row.simd = (char *)ops->simd(config->backend);
        row.pid = (int32_t)getpid();
        row.uid = geteuid();
        row.uptime_ms = (answer->now - answer->sessions->started) / USEC_PER_MSEC;
        row.instance = config->instance;
        row.clients = status_visible_clients(answer);
        row.jobs = status_visible_jobs(answer);
        row.workers = ops->workers(config->backend);
        row.arenas = (uint32_t)accounts_total(config->accounts, ACCOUNT_ARENAS);
        row.arena_bytes = accounts_total(config->accounts, ACCOUNT_BYTES);
        row.loop_cpu_us = clock_thread_cpu();
        row.worker_cpu_us = ops->cpu_us(config->backend);
        row.has_process_start_time = true;
        row.process_start_time = answer->sessions->start_time;
        status_add_process(&row);
        row.complete = session_sees_all(answer->viewer);
        if (row.complete)
                status_add_refusals(config->accounts, &row);
        row.has_draining = true;
        row.draining = config->jobs->gate != GATE_OPEN;
        row.has_open = answer->viewer != NULL && session_may_drain(answer->viewer);
        row.open = row.has_open ? jobs_open(config->jobs) : 0;
        status_send_row(answer, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &row.base);
}

static void status_send_client(const struct answer *answer, const struct session *client) {
        Wire__StatusClient row = WIRE__STATUS_CLIENT__INIT;
        const struct list *link;

        row.has_id = row.has_pid = row.has_uid = row.has_gid = row.has_minor = row.has_connected_ms =
                row.has_admin = row.has_jobs = true;
        row.id = client->id;
        row.pid = (int32_t)client->peer.pid;
        row.uid = client->peer.uid;
        row.gid = client->peer.gid;
        row.program = (char *)client->program;
        row.library = (char *)client->library;
        row.minor = client->minor;
        row.connected_ms = (answer->now - client->connected) / USEC_PER_MSEC;
        row.admin = client->admin;
        for (link = client->members.next; link != &client->members; link = link->next)
                row.jobs++;
        status_send_row(answer, WIRE__MESSAGE_TYPE__STATUS_CLIENT, &row.base);
}

static void status_add_totals(Wire__StatusJob *row, const struct record_totals *totals) {
        if (totals == NULL)
                return;
        row->has_committed = row->has_step_us = row->has_nonfinite_steps = row->has_reduce_us =
                row->has_wait_us = true;
        row->committed = totals->committed;
        row->step_us = totals->step_us;
        row->nonfinite_steps = totals->nonfinite_steps;
        row->n_reduce_class = array_size(totals->class);
        row->reduce_class = (uint64_t *)(uintptr_t)totals->class;
        row->reduce_us = totals->reduce_us;
        row->wait_us = totals->wait_us;
}

static void status_add_nonfinite(Wire__StatusJob *row, const struct nonfinite *nonfinite) {
        if (nonfinite == NULL)
                return;
        row->has_nonfinite_step = row->has_nonfinite_plan = row->has_nonfinite_bucket =
                row->has_nonfinite_rank = true;
        row->has_nonfinite_pid = row->has_nonfinite_values = true;
        row->nonfinite_step = nonfinite->step;
        row->nonfinite_plan = nonfinite->plan;
        row->nonfinite_bucket = nonfinite->bucket;
        row->nonfinite_rank = nonfinite->rank;
        row->nonfinite_pid = (int32_t)nonfinite->pid;
        row->nonfinite_values = nonfinite->count;
        row->nonfinite_parameter = (char *)(uintptr_t)nonfinite->parameter;
}

static void status_add_recovery(Wire__StatusJob *row, const struct recovery *recovery, uint64_t now) {
        row->has_recovery_us = true;
        row->recovery_us = recovery->us;
        row->n_recovery_class = array_size(recovery->class);
        row->recovery_class = (uint64_t *)(uintptr_t)recovery->class;
        row->n_rebuilds = array_size(recovery->rebuilds);
        row->rebuilds = (uint64_t *)(uintptr_t)recovery->rebuilds;
        if (!recovery->any)
                return;
        row->has_lost_rank = row->has_lost_pid = row->has_lost_cause = row->has_lost_step = true;
        row->has_lost_generation = row->has_lost_us = row->has_lost_ago_ms = row->has_lost_void_steps = true;
        row->lost_rank = recovery->rank;
        row->lost_pid = recovery->pid;
        row->lost_cause = (Wire__Cause)recovery->cause;
        row->lost_step = recovery->step;
        row->lost_generation = recovery->generation;
        row->lost_us = recovery->noticed;
        row->lost_ago_ms = now > recovery->noticed ? (now - recovery->noticed) / USEC_PER_MSEC : 0;
        row->lost_void_steps = recovery->void_steps;
        row->has_lost_void_us = recovery->told != 0;
        row->lost_void_us = row->has_lost_void_us ? recovery->told - recovery->noticed : 0;
        row->has_lost_newgen_us = recovery->regenerated != 0;
        row->lost_newgen_us = row->has_lost_newgen_us ? recovery->regenerated - recovery->noticed : 0;
        row->has_lost_commit_us = recovery->committed != 0;
        row->lost_commit_us = row->has_lost_commit_us ? recovery->committed - recovery->noticed : 0;
        row->has_lost_successor = recovery->successor != 0;
        row->lost_successor = recovery->successor;
}

static void status_send_job(const struct answer *answer, const struct job_view *job) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;

        row.has_job = row.has_uid = row.has_generation = row.has_world = row.has_step = row.has_buckets =
                row.has_bytes = true;
        row.has_bytes_reduced = row.has_step_rate = row.has_norm = row.has_nonfinite = row.has_void_steps =
                true;
        row.has_incarnation = row.has_operations = true;
        row.job = job->id;
        row.name = (char *)job->name;
        row.uid = job->uid;
        row.state = (char *)job->state;
        row.generation = job->generation;
        row.world = job->world;
        row.step = job->step;
        row.buckets = job->buckets;
        row.bytes = job->bytes;
        row.bytes_reduced = job->bytes_reduced;
        row.step_rate = job->step_rate;
        row.exposed = job->exposed;
        row.has_exposed = row.exposed >= 0;
        row.norm = job->norm;
        row.nonfinite = job->nonfinite;
        row.void_steps = job->void_steps;
        row.incarnation = job->incarnation;
        row.operations = job->operations;
        row.text = (char *)job->text;
        status_add_totals(&row, job->totals);
        status_add_nonfinite(&row, job->blame);
        status_add_recovery(&row, job->recovery, answer->now);
        status_send_row(answer, WIRE__MESSAGE_TYPE__STATUS_JOB, &row.base);
}

/* Where this process is noted, or will be: at a free place, or if there is none, in place of another one. */
static struct found_process *status_found_at(struct found *found, pid_t pid) {
        size_t n = array_size(found->process), home = (size_t)pid % n;

        for (size_t i = 0; i < n; i++) {
                struct found_process *process = &found->process[(home + i) % n];

                if (process->state == NULL || process->pid == pid)
                        return process;
        }
        return &found->process[home];
}

static const char *status_process_state(const struct answer *answer, pid_t pid, bool threads) {
        struct found_process *process = status_found_at(answer->found, pid);
        struct looks *looks = &answer->found->looks;
        bool known = process->state != NULL && process->pid == pid;

        threads = threads && looks->threads > 0;
        if (!known || (threads && !process->threads))
                *process = (struct found_process){
                        .pid = pid,
                        .threads = threads,
                        .state = threads ? proc_state_threads(pid, &looks->threads) : proc_state(pid),
                };
        return process->state;
}

/* What the rows of one job are made from. */
struct job_answer {
        const struct answer *answer;
        struct job_view job;
};

static void status_send_member(void *data, const struct member_view *member) {
        const struct job_answer *job = data;
        const char *process_state = status_process_state(job->answer, member->pid, member->late);
        bool stopped = member->active && strcmp(process_state, "stopped") == 0;
        Wire__StatusMember row = WIRE__STATUS_MEMBER__INIT;

        row.has_job = row.has_rank = row.has_local_rank = row.has_pid = row.has_uid = row.has_step =
                row.has_member = row.has_client = true;
        row.has_unranked = true;
        row.job = job->job.id;
        row.rank = member->rank;
        row.local_rank = member->local_rank;
        row.pid = (int32_t)member->pid;
        row.uid = job->job.uid;
        row.process_state = (char *)process_state;
        row.state = (char *)(stopped ? process_state : member->state);
        row.step = member->step;
        row.member = member->id;
        row.client = member->client;
        row.program = (char *)member->program;
        row.exposed = member->exposed;
        row.has_exposed = row.has_exposed_us = row.exposed >= 0;
        row.exposed_us = member->exposed_us;
        row.unranked = member->joining;
        row.has_late_us = member->has_late_us;
        row.late_us = member->late_us;
        status_send_row(job->answer, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &row.base);
}

static void status_send_plan(void *data, const struct plan_view *plan) {
        const struct job_answer *job = data;
        Wire__StatusPlan row = WIRE__STATUS_PLAN__INIT;

        row.has_job = row.has_plan = row.has_step = row.has_params = row.has_buckets = row.has_bytes =
                row.has_arena_bytes = row.has_open = true;
        row.job = job->job.id;
        row.plan = plan->ordinal;
        row.step = plan->step;
        row.params = plan->params;
        row.buckets = plan->buckets;
        row.bytes = plan->bytes;
        row.arena_bytes = plan->arena_bytes;
        row.reduce = (char *)reduce_name(plan->reduce);
        row.open = plan->open;
        status_send_row(job->answer, WIRE__MESSAGE_TYPE__STATUS_PLAN, &row.base);
}

static void status_look(const struct answer *answer, struct job_wait *wait) {
        if (wait->kind == WAIT_JOIN)
                return;
        wait->parameter = plan_wait_parameter(wait, &answer->found->looks);
        wait->process_state = status_process_state(answer, wait->pid, true);
}

static const char *const wait_names[] = {
        [WAIT_STEP] = "step", [WAIT_PLAN] = "plan", [WAIT_OPERATION] = "operation", [WAIT_JOIN] = "join"
};

static void status_send_wait(const struct job_answer *job, const struct job_wait *wait) {
        Wire__StatusWait row = WIRE__STATUS_WAIT__INIT;
        uint64_t now = job->answer->now;

        row.has_job = row.has_rank = row.has_plan = row.has_bucket = row.has_since_ms = row.has_step = true;
        row.has_pid = wait->kind != WAIT_JOIN;
        row.job = job->job.id;
        row.rank = wait->rank;
        row.pid = (int32_t)wait->pid;
        row.process_state = (char *)wait->process_state;
        row.plan = wait->plan;
        row.bucket = wait->bucket;
        row.parameter = (char *)wait->parameter;
        row.since_ms = now > wait->since ? (now - wait->since) / USEC_PER_MSEC : 0;
        row.what = (char *)wait_names[wait->kind];
        row.step = wait->step;
        status_send_row(job->answer, WIRE__MESSAGE_TYPE__STATUS_WAIT, &row.base);
}

static const struct looks all_looks = { THREADS, MARKS };

static void status_send_whole_job(const struct answer *answer, struct job *job) {
        struct job_answer whole = { .answer = answer };

        if (session_sees_all(answer->viewer)) /* no user's jobs hide those of another one */
                answer->found->looks = all_looks;
        view_job(job, answer->now, &whole.job);
        for (unsigned i = 0; i < whole.job.n_waits; i++)
                status_look(answer, &whole.job.wait[i]);
        status_send_job(answer, &whole.job);
        view_members(job, &whole.job, status_send_member, &whole);
        view_plans(job, status_send_plan, &whole);
        for (unsigned i = 0; i < whole.job.n_waits; i++)
                status_send_wait(&whole, &whole.job.wait[i]);
}

bool status_asks_for(const char *asked, uid_t uid, const char *name) {
        return asked == NULL || asked[0] == '\0' || job_is_named(asked, uid, name);
}

/* Everything except the end of the answer; whether the job asked for is there. */
static bool status_describe(const struct answer *answer, const char *asked) {
        bool found = asked == NULL || asked[0] == '\0';
        struct session *client;
        struct job *job;

        status_send_daemon(answer);
        list_for_each(client, &answer->sessions->list, link)
                if (session_sees(answer->viewer, client->peer.uid) && client->state == SESSION_OPEN)
                        status_send_client(answer, client);
        list_for_each(job, &answer->sessions->config.jobs->list, link) {
                if (!session_sees(answer->viewer, job->uid) || !status_asks_for(asked, job->uid, job->name))
                        continue;
                found = true;
                status_send_whole_job(answer, job);
        }
        return found;
}

void sessions_describe(struct sessions *sessions, sessions_row_fn row, void *data) {
        struct found found = { 0 };
        struct answer answer = { .sessions = sessions,
                                 .viewer = NULL,
                                 .now = clock_now(),
                                 .row = row,
                                 .data = data,
                                 .found = &found };

        status_describe(&answer, NULL);
}

struct reply {
        struct session *to;
        uint32_t request;
};

static void status_send_reply(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct reply *reply = data;

        session_send(reply->to, type, reply->request, -1, row);
}

int on_status(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Status *status = CAST(Wire__Status, message);
        struct reply reply = { .to = session, .request = request->id };
        struct found found = { 0 };
        struct answer answer = { .sessions = session->sessions,
                                 .viewer = session,
                                 .now = clock_now(),
                                 .row = status_send_reply,
                                 .data = &reply,
                                 .found = &found };
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        found.looks = all_looks;
        end.has_found = true;
        end.found = status_describe(&answer, status->job);
        status_send_reply(&reply, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
        return 0;
}
