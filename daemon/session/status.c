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
#include "job/plan.h"
#include "proto/names.h"
#include "session/private.h"

#define THREADS 256u                    /* of members that are looked at in an answer, or in a job for those who see all, */
#define MARKS 131072u                   /* and parameters */

/* One process may be a member of many jobs: it is looked at once in an answer. A user has fewer processes than
 * these, unless the quota is raised. */
struct found {
        struct found_process {
                pid_t pid;
                bool threads;
                const char *state;      /* NULL: no process has been looked at */
        } process[256];
        struct looks looks;             /* that may still be taken */
};

struct answer {
        struct sessions *sessions;
        const struct session *viewer;   /* NULL: somebody who sees all */
        uint64_t now;
        sessions_row_fn row;
        void *data;
        struct found *found;
};

/* Without a viewer, all is told. */
static bool sees_all(const struct session *viewer) {
        return viewer == NULL || session_is_operator(viewer);
}

static bool sees(const struct session *viewer, uid_t uid) {
        return sees_all(viewer) || viewer->peer.uid == uid;
}

bool session_sees(const struct session *session, uid_t uid) {
        return sees(session, uid);
}

static void send_row(const struct answer *answer, uint16_t type, const ProtobufCMessage *row) {
        answer->row(answer->data, type, row);
}

static unsigned visible_jobs(const struct answer *answer) {
        struct job *job;
        unsigned n = 0;

        list_for_each(job, &answer->sessions->config.jobs->list, link)
                n += sees(answer->viewer, job->uid);
        return n;
}

static unsigned visible_clients(const struct answer *answer) {
        struct session *other;
        unsigned n = 0;

        list_for_each(other, &answer->sessions->list, link)
                n += sees(answer->viewer, other->peer.uid) && !other->admin && other->state == SESSION_OPEN;
        return n;
}

/* Of all uids. */
static void tell_refusals(const struct accounts *accounts, Wire__StatusDaemon *row) {
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

static void tell_process(Wire__StatusDaemon *row) {
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

static void send_daemon(const struct answer *answer) {
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
        row.clients = visible_clients(answer);
        row.jobs = visible_jobs(answer);
        row.workers = ops->workers(config->backend);
        row.arenas = (uint32_t)accounts_total(config->accounts, ACCOUNT_ARENAS);
        row.arena_bytes = accounts_total(config->accounts, ACCOUNT_BYTES);
        row.loop_cpu_us = clock_thread_cpu();
        row.worker_cpu_us = ops->cpu_us(config->backend);
        row.has_process_start_time = true;
        row.process_start_time = answer->sessions->start_time;
        tell_process(&row);
        row.complete = sees_all(answer->viewer);
        if (row.complete)
                tell_refusals(config->accounts, &row);
        row.has_draining = true;
        row.draining = config->jobs->gate != GATE_OPEN;
        row.has_open = answer->viewer != NULL && session_may_drain(answer->viewer);
        row.open = row.has_open ? jobs_open(config->jobs) : 0;
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &row.base);
}

static void send_client(const struct answer *answer, const struct session *client) {
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
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_CLIENT, &row.base);
}

static double member_exposed(const struct member *member) {
        struct plan *plan;
        double sum = 0;
        unsigned n = 0;

        if (member->owner == NULL || member->state != MEMBER_ACTIVE)
                return -1;
        list_for_each(plan, &member->job->plans, link) {
                double share = plan_exposed(plan, member->local);

                if (share < 0)
                        continue;
                sum += share;
                n++;
        }
        return n > 0 ? sum / n : -1;
}

static uint64_t member_exposed_us(const struct member *member) {
        struct plan *plan;
        uint64_t sum = 0;

        list_for_each(plan, &member->job->plans, link)
                sum += plan_exposed_us(plan, member->local);
        return sum;
}

static double job_exposed(const struct job *job) {
        struct member *member;
        double sum = 0;
        unsigned n = 0;

        list_for_each(member, &job->members, link) {
                double share = member_exposed(member);

                if (share < 0)
                        continue;
                sum += share;
                n++;
        }
        return n > 0 ? sum / n : -1;
}

static const char *job_state_text(const struct job *job, unsigned n_waits, uint64_t since, uint64_t now) {
        switch (job->state) {
        case JOB_FORMING:
                return "forming";
        case JOB_REPLACING:
                return "replacing";
        case JOB_LOST:
                return job->loss.cause == WIRE__CAUSE__LEAVING ? "ended" : "lost";
        default:
                if (job_is_paused(job))
                        return "paused";
                return n_waits > 0 && now - since >= job->table->config.stall_notice ? "stalled" : "running";
        }
}

static void add_totals(Wire__StatusJob *row, const struct record *record) {
        if (record == NULL)
                return;
        row->has_committed = row->has_step_us = row->has_nonfinite_steps = row->has_reduce_us =
                row->has_wait_us = true;
        row->committed = record->totals.committed;
        row->step_us = record->totals.step_us;
        row->nonfinite_steps = record->totals.nonfinite_steps;
        row->n_reduce_class = array_size(record->totals.class);
        row->reduce_class = (uint64_t *)(uintptr_t)record->totals.class;
        row->reduce_us = record->totals.reduce_us;
        row->wait_us = record->totals.wait_us;
}

static void add_nonfinite(Wire__StatusJob *row, const struct nonfinite *nonfinite) {
        if (nonfinite->step == 0 || nonfinite->searched != NULL)
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

static void add_recovery(Wire__StatusJob *row, const struct recovery *recovery, uint64_t now) {
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

static void send_job(const struct answer *answer, const struct job *job, const struct job_wait *waits,
                     unsigned n_waits) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct plan *plan;

        row.has_job = row.has_uid = row.has_generation = row.has_world = row.has_step = row.has_buckets =
                row.has_bytes = true;
        row.has_bytes_reduced = row.has_step_rate = row.has_norm = row.has_nonfinite = row.has_void_steps =
                true;
        row.has_incarnation = row.has_operations = true;
        row.job = job->id;
        row.name = job->name;
        row.uid = job->uid;
        row.state = (char *)job_state_text(job, n_waits, n_waits > 0 ? waits[0].since : 0, answer->now);
        row.generation = job->generation;
        row.world = job->state == JOB_FORMING ? job_max_world(job) : job_world(job);
        row.step = job->last_step;
        list_for_each(plan, &job->plans, link)
                if (plan->agreed) {
                        row.buckets += plan->reference->n_buckets;
                        row.bytes += plan->reference->payload;
                }
        row.bytes_reduced = job->bytes_reduced;
        row.step_rate = hist_rate(&job->steps, answer->now);
        row.exposed = job_exposed(job);
        row.has_exposed = row.exposed >= 0;
        row.norm = job->norm;
        row.nonfinite = job->nonfinite;
        row.void_steps = job->void_steps;
        row.incarnation = job->incarnation;
        row.operations = job->operations;
        row.text = (char *)job->loss_text;
        add_totals(&row, job->record);
        add_nonfinite(&row, &job->blame);
        add_recovery(&row, &job->recovery, answer->now);
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_JOB, &row.base);
}

static bool is_waited_for(const struct member *member, const struct job_wait *waits, unsigned n_waits) {
        for (unsigned i = 0; i < n_waits; i++)
                if (waits[i].member == member)
                        return true;
        return false;
}

/* Between agreed plans: has the member sent everything it can in some open step? */
static bool has_sent_all(const struct member *member) {
        struct plan *plan;

        list_for_each(plan, &member->job->plans, link)
                if (plan_is_open(plan) &&
                    plan->part[member->local].n_ready == plan->reference->n_buckets)
                        return true;
        return member->operation.pending;
}

static bool has_plan(const struct member *member) {
        struct plan *plan;

        list_for_each(plan, &member->job->plans, link)
                if (plan->agreed && plan->part[member->local].state == PART_MAPPED)
                        return true;
        return false;
}

static const char *member_state_text(const struct member *member, const char *process_state, bool late) {
        switch (member->state) {
        case MEMBER_JOINING:
                return member_waits(member) ? "spare" : "joining";
        case MEMBER_LEFT:
                return "left";
        case MEMBER_LOST:
                return "lost";
        default:
                break;
        }
        if (strcmp(process_state, "stopped") == 0)
                return "stopped";
        if (late)
                return "late";
        if (has_sent_all(member))
                return "waiting";
        return has_plan(member) ? "computing" : "planning";
}

/* Where this process is noted, or will be: at a free place, or, if there is none, at another one's. */
static struct found_process *found_at(struct found *found, pid_t pid) {
        size_t n = array_size(found->process), home = (size_t)pid % n;

        for (size_t i = 0; i < n; i++) {
                struct found_process *process = &found->process[(home + i) % n];

                if (process->state == NULL || process->pid == pid)
                        return process;
        }
        return &found->process[home];
}

static const char *process_state_of(const struct answer *answer, pid_t pid, bool threads) {
        struct found_process *process = found_at(answer->found, pid);
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

static void send_member(const struct answer *answer, const struct member *member, bool late) {
        Wire__StatusMember row = WIRE__STATUS_MEMBER__INIT;
        const char *process_state = process_state_of(answer, member->pid, late);

        row.has_job = row.has_rank = row.has_local_rank = row.has_pid = row.has_uid = row.has_step =
                row.has_member = row.has_client = true;
        row.has_unranked = true;
        row.job = member->job->id;
        row.rank = member->rank;
        row.local_rank = member->local_rank;
        row.pid = (int32_t)member->pid;
        row.uid = member->job->uid;
        row.process_state = (char *)process_state;
        row.state = (char *)member_state_text(member, process_state, late);
        row.step = member->last_step;
        row.member = member->stable > 0 ? member->stable : member->id;
        row.client = member->client;
        row.program = (char *)member->program;
        row.exposed = member_exposed(member);
        row.has_exposed = row.exposed >= 0;
        row.unranked = member->state == MEMBER_JOINING;
        row.has_late_us = member->job->record != NULL && member->state != MEMBER_JOINING;
        row.late_us = row.has_late_us ? member->job->record->totals.late_us[member->local] : 0;
        row.has_exposed_us = row.has_exposed;
        row.exposed_us = row.has_exposed ? member_exposed_us(member) : 0;
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &row.base);
}

static void send_plan(const struct answer *answer, const struct plan *plan) {
        Wire__StatusPlan row = WIRE__STATUS_PLAN__INIT;

        if (!plan->agreed)
                return;
        row.has_job = row.has_plan = row.has_step = row.has_params = row.has_buckets = row.has_bytes =
                row.has_arena_bytes = row.has_open = true;
        row.job = plan->job->id;
        row.plan = plan->ordinal;
        row.step = plan->step;
        row.params = plan->reference->n_params;
        row.buckets = plan->reference->n_buckets;
        row.bytes = plan->reference->payload;
        row.arena_bytes = plan->reference->arena_bytes;
        row.reduce = (char *)reduce_name(plan->reference->reduce);
        row.open = plan_unit(plan) != UNIT_IDLE;
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_PLAN, &row.base);
}

static void look(const struct answer *answer, struct job_wait *wait) {
        if (wait->member == NULL)
                return;
        wait->parameter = plan_wait_parameter(wait, &answer->found->looks);
        wait->process_state = process_state_of(answer, wait->member->pid, true);
}

static const char *const wait_names[] = {
        [WAIT_STEP] = "step", [WAIT_PLAN] = "plan", [WAIT_OPERATION] = "operation", [WAIT_JOIN] = "join"
};

static void send_wait(const struct answer *answer, const struct job *job, const struct job_wait *wait) {
        Wire__StatusWait row = WIRE__STATUS_WAIT__INIT;

        row.has_job = row.has_rank = row.has_plan = row.has_bucket = row.has_since_ms = row.has_step = true;
        row.has_pid = wait->member != NULL;
        row.job = job->id;
        row.rank = wait->member != NULL ? wait->member->rank : wait->rank;
        row.pid = wait->member != NULL ? (int32_t)wait->member->pid : 0;
        row.process_state = (char *)wait->process_state;
        row.plan = wait->plan;
        row.bucket = wait->bucket;
        row.parameter = (char *)wait->parameter;
        row.since_ms = answer->now > wait->since ? (answer->now - wait->since) / USEC_PER_MSEC : 0;
        row.what = (char *)wait_names[wait->kind];
        row.step = wait->step;
        send_row(answer, WIRE__MESSAGE_TYPE__STATUS_WAIT, &row.base);
}

static const struct looks all_looks = { THREADS, MARKS };

static void send_whole_job(const struct answer *answer, struct job *job) {
        struct job_wait waits[LIMIT_WORLD];
        unsigned n_waits = job_waits(job, waits, array_size(waits));
        struct member *member;
        struct plan *plan;

        if (sees_all(answer->viewer)) /* nobody's jobs hide those of others */
                answer->found->looks = all_looks;
        for (unsigned i = 0; i < n_waits; i++)
                look(answer, &waits[i]);
        send_job(answer, job, waits, n_waits);
        for (uint32_t local = 0; job->state != JOB_FORMING && local < job->n_local; local++)
                send_member(answer, job->local[local], is_waited_for(job->local[local], waits, n_waits));
        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_JOINING)
                        send_member(answer, member, false);
        list_for_each(plan, &job->plans, link)
                send_plan(answer, plan);
        for (unsigned i = 0; i < n_waits; i++)
                send_wait(answer, job, &waits[i]);
}

bool session_asks_for(const char *asked, uid_t uid, const char *name) {
        return asked == NULL || asked[0] == '\0' || job_is_named(asked, uid, name);
}

/* Everything but the end of the answer; whether the job asked for is there. */
static bool describe(const struct answer *answer, const char *asked) {
        bool found = asked == NULL || asked[0] == '\0';
        struct session *client;
        struct job *job;

        send_daemon(answer);
        list_for_each(client, &answer->sessions->list, link)
                if (sees(answer->viewer, client->peer.uid) && client->state == SESSION_OPEN)
                        send_client(answer, client);
        list_for_each(job, &answer->sessions->config.jobs->list, link) {
                if (!sees(answer->viewer, job->uid) || !session_asks_for(asked, job->uid, job->name))
                        continue;
                found = true;
                send_whole_job(answer, job);
        }
        return found;
}

void sessions_describe(struct sessions *sessions, sessions_row_fn row, void *data) {
        struct found found = { 0 };
        struct answer answer = { .sessions = sessions, .viewer = NULL, .now = clock_now(), .row = row,
                                 .data = data, .found = &found };

        describe(&answer, NULL);
}

struct reply {
        struct session *to;
        uint32_t request;
};

static void send_reply(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct reply *reply = data;

        session_send(reply->to, type, reply->request, -1, row);
}

int on_status(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Status *status = CAST(Wire__Status, message);
        struct reply reply = { .to = session, .request = request->id };
        struct found found = { 0 };
        struct answer answer = { .sessions = session->sessions, .viewer = session, .now = clock_now(),
                                 .row = send_reply, .data = &reply, .found = &found };
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        found.looks = all_looks;
        end.has_found = true;
        end.found = describe(&answer, status->job);
        send_reply(&reply, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
        return 0;
}
