/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of an answer to STATUS about the daemon, a client, or a job. A caller sees the clients and jobs of
 * its own uid; root and the admin group see all. walk.c decides their order.
 */
#include "session/status.h"

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

struct peer_rows_jobs {
        const struct sessions *sessions;
        const struct session *viewer;
        unsigned n;
};

static void status_count_far_job(void *to, const struct hub_job *job) {
        struct peer_rows_jobs *jobs = to;

        jobs->n += session_sees(jobs->viewer, job->uid) && peers_find_job(jobs->sessions, job) == NULL;
}

/* With those that have their coordinator here, and no node. */
static unsigned status_visible_jobs(const struct answer *answer) {
        const struct sessions_cluster *cluster = &answer->sessions->cluster;
        struct peer_rows_jobs jobs = { answer->sessions, answer->viewer, 0 };
        const struct job *job;

        list_for_each(job, &answer->sessions->config.jobs->list, link)
                jobs.n += session_sees(answer->viewer, job->uid);
        if (answer->whole && cluster->each != NULL)
                cluster->each(cluster->data, status_count_far_job, &jobs);
        return jobs.n;
}

static unsigned status_visible_clients(const struct answer *answer) {
        struct session *other;
        unsigned n = 0;

        list_for_each(other, &answer->sessions->list, link)
                n += session_sees(answer->viewer, other->peer.uid) && !other->admin &&
                     other->state == SESSION_OPEN;
        return n;
}

/* The amount that all uids hold, if the viewer may see that; else only that of the viewer's uid. */
static uint64_t status_held(const struct answer *answer, enum account_slot slot) {
        const struct users *accounts = answer->sessions->config.accounts;

        return session_sees_all(answer->viewer) ? accounts_total(accounts, slot)
                                                : accounts_used(accounts, answer->viewer->peer.uid, slot);
}

static uint64_t status_pooled(const struct answer *answer, enum account_pool pool) {
        const struct users *accounts = answer->sessions->config.accounts;

        return session_sees_all(answer->viewer)
                       ? accounts_pooled(accounts, pool)
                       : accounts_pooled_by(accounts, answer->viewer->peer.uid, pool);
}

/* Adds the refusals of all uids. */
static void status_add_refusals(const struct users *accounts, Wire__StatusDaemon *row) {
        SET(*row, refused_clients, accounts_refused(accounts, ACCOUNT_CLIENTS));
        SET(*row, refused_jobs, accounts_refused(accounts, ACCOUNT_JOBS));
        SET(*row, refused_arenas, accounts_refused(accounts, ACCOUNT_ARENAS));
        SET(*row, refused_bytes, accounts_refused(accounts, ACCOUNT_BYTES));
        SET(*row, refused_plans, accounts_refused(accounts, ACCOUNT_PLANS));
        SET(*row, refused_fds, accounts_refused(accounts, ACCOUNT_FDS));
        SET(*row, refused_own, accounts_refused(accounts, ACCOUNT_OWN));
        SET(*row, refused_connects, accounts_noted(accounts, ACCOUNT_TOO_FAST));
        SET(*row, refused_uids, accounts_noted(accounts, ACCOUNT_CROWDED));
        SET(*row, denied, accounts_noted(accounts, ACCOUNT_DENIED));
}

static void status_add_process(Wire__StatusDaemon *row) {
        struct proc_usage usage;

        proc_usage(&usage);
        SET(*row, process_cpu_us, clock_process_cpu());
        SET_IF(*row, process_resident_bytes, usage.size > 0, usage.resident);
        SET_IF(*row, process_virtual_bytes, usage.size > 0, usage.size);
        SET_IF(*row, process_open_fds, usage.open_fds > 0, usage.open_fds);
        SET(*row, process_max_fds, usage.max_fds);
}

/* Ids of daemons are for the operator: with a key for the same users one could pass for that daemon. */
static void status_add_identity(const struct answer *answer, Wire__StatusDaemon *row) {
        const struct sessions_identity *identity = answer->sessions->config.identity;

        if (identity == NULL)
                return;
        SET_IF(*row, starts, identity->node[0] != '\0', identity->starts);
        if (row->has_starts && session_sees_all(answer->viewer))
                row->node = (char *)identity->node;
        if (identity->no_identity[0] != '\0')
                row->no_identity = (char *)identity->no_identity;
}

static void status_add_gpu(const struct answer *answer, Wire__StatusDaemon *row, Wire__StatusGpu *gpu) {
        const struct sessions_config *config = &answer->sessions->config;
        struct backend_gpu seen;

        if (config->backend == NULL || !config->backend->ops->gpu(config->backend, &seen))
                return;
        gpu->uuid = (char *)seen.uuid;
        gpu->name = (char *)seen.name;
        gpu->mode = (char *)(seen.mps ? "mps" : "time slices");
        SET(*gpu, driver, (uint32_t)seen.driver);
        SET(*gpu, bytes, seen.bytes);
        SET(*gpu, free_bytes, seen.free);
        SET(*gpu, arena_bytes, status_held(answer, ACCOUNT_DEVICE));
        row->gpu = gpu;
}

static void status_add_links(const struct sessions_cluster *cluster, Wire__StatusDaemon *row,
                             Wire__StatusLinks *links) {
        struct sessions_traffic traffic;

        if (cluster->traffic == NULL || !cluster->traffic(cluster->data, &traffic))
                return;
        SET(*links, connects, traffic.connects);
        SET(*links, ends, traffic.ends);
        SET(*links, sent, traffic.sent);
        SET(*links, received, traffic.received);
        links->refused = (uint64_t *)(uintptr_t)traffic.refused;
        links->n_refused = traffic.n_refused;
        row->links = links;
}

static void status_add_engine(const struct jobs_config *config, Wire__StatusDaemon *row,
                              Wire__StatusEngine *engine) {
        const struct engine *from = config->engine;
        struct engine_description description = { 0 };

        if (from == NULL && config->no_engine == NULL)
                return;
        row->engine = engine;
        if (from == NULL) {
                engine->missing = (char *)config->no_engine;
                return;
        }
        if (from->ops->describe != NULL)
                from->ops->describe(from, &description);
        engine->name = (char *)from->ops->name;
        engine->version = (char *)from->ops->version(from);
        engine->library = (char *)description.library;
        engine->abilities = (char *)description.abilities;
}

void status_send_daemon(struct answer *answer) {
        const struct sessions_config *config = &answer->sessions->config;
        const struct backend_ops *ops = config->backend != NULL ? config->backend->ops : NULL;
        Wire__StatusDaemon row = WIRE__STATUS_DAEMON__INIT;
        Wire__StatusGpu gpu = WIRE__STATUS_GPU__INIT;
        Wire__StatusLinks links = WIRE__STATUS_LINKS__INIT;
        Wire__StatusEngine engine = WIRE__STATUS_ENGINE__INIT;

        row.device = (char *)config->device;
        row.version = (char *)GRADSYNC_RELEASE;
        row.socket = (char *)config->socket;
        row.simd = ops != NULL ? (char *)ops->simd(config->backend) : NULL;
        SET(row, pid, (int32_t)getpid());
        SET(row, uid, geteuid());
        SET(row, uptime_ms, (answer->now - answer->sessions->started) / USEC_PER_MSEC);
        SET(row, instance, config->instance);
        SET(row, clients, status_visible_clients(answer));
        SET(row, jobs, status_visible_jobs(answer));
        SET(row, workers, ops != NULL ? ops->workers(config->backend) : 0);
        SET(row, arenas, (uint32_t)status_held(answer, ACCOUNT_ARENAS));
        SET(row, arena_bytes, status_held(answer, ACCOUNT_BYTES));
        SET(row, own_bytes, status_pooled(answer, POOL_OWN));
        SET(row, loop_cpu_us, clock_thread_cpu());
        SET(row, worker_cpu_us, ops != NULL ? ops->cpu_us(config->backend) : 0);
        SET(row, process_start_time, answer->sessions->start_time);
        status_add_gpu(answer, &row, &gpu);
        status_add_engine(&config->jobs->config, &row, &engine);
        status_add_identity(answer, &row);
        status_add_process(&row);
        SET(row, complete, session_sees_all(answer->viewer));
        if (row.complete)
                status_add_refusals(config->accounts, &row);
        if (row.complete)
                status_add_links(&answer->sessions->cluster, &row, &links);
        SET_IF(row, refused_device, row.complete && row.gpu != NULL,
               accounts_refused(config->accounts, ACCOUNT_DEVICE));
        SET(row, draining, config->jobs->gate != GATE_OPEN);
        SET_IF(row, open, answer->viewer != NULL && session_may_drain(answer->viewer),
               jobs_open(config->jobs));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &row.base);
}

void status_send_client(struct answer *answer, const struct session *client) {
        Wire__StatusClient row = WIRE__STATUS_CLIENT__INIT;

        SET(row, id, client->id);
        SET(row, pid, (int32_t)client->peer.pid);
        SET(row, uid, client->peer.uid);
        SET(row, gid, client->peer.gid);
        row.program = (char *)client->program;
        row.library = (char *)client->library;
        SET(row, connected_ms, (answer->now - client->connected) / USEC_PER_MSEC);
        SET(row, admin, client->admin);
        SET(row, jobs, list_length(&client->members));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_CLIENT, &row.base);
}

static void status_add_totals(Wire__StatusJob *row, const struct record *record) {
        if (record == NULL)
                return; /* there has been no plan yet */
        const struct record_totals *totals = &record->totals;
        SET(*row, committed, totals->committed);
        SET(*row, step_us, totals->step_us);
        SET(*row, nonfinite_steps, totals->nonfinite_steps);
        row->n_reduce_class = array_size(totals->class);
        row->reduce_class = (uint64_t *)(uintptr_t)totals->class;
        SET(*row, reduce_us, totals->reduce_us);
        SET(*row, wait_us, totals->wait_us);
}

static void status_add_nonfinite(Wire__StatusJob *row, const struct nonfinite *nonfinite) {
        if (nonfinite->step == 0 || nonfinite->searched != NULL)
                return; /* nothing to say, or not yet */
        SET(*row, nonfinite_step, nonfinite->step);
        SET(*row, nonfinite_plan, nonfinite->plan);
        SET(*row, nonfinite_bucket, nonfinite->bucket);
        SET(*row, nonfinite_rank, nonfinite->rank);
        SET_IF(*row, nonfinite_pid, nonfinite->pid != 0, (int32_t)nonfinite->pid);
        SET(*row, nonfinite_values, nonfinite->count);
        row->nonfinite_parameter = (char *)(uintptr_t)nonfinite->parameter;
}

static void status_add_recovery(Wire__StatusJob *row, const struct recovery *recovery, uint64_t now) {
        SET(*row, recovery_us, recovery->us);
        row->n_recovery_class = array_size(recovery->class);
        row->recovery_class = (uint64_t *)(uintptr_t)recovery->class;
        row->n_rebuilds = array_size(recovery->rebuilds);
        row->rebuilds = (uint64_t *)(uintptr_t)recovery->rebuilds;
        if (!recovery->any)
                return;
        SET(*row, lost_rank, recovery->rank);
        SET(*row, lost_pid, recovery->pid);
        SET(*row, lost_cause, (Wire__Cause)recovery->cause);
        SET(*row, lost_step, recovery->step);
        SET(*row, lost_generation, recovery->generation);
        SET(*row, lost_us, recovery->noticed);
        SET(*row, lost_ago_ms, now > recovery->noticed ? (now - recovery->noticed) / USEC_PER_MSEC : 0);
        SET(*row, lost_void_steps, recovery->void_steps);
        SET_IF(*row, lost_void_us, recovery->told != 0, recovery->told - recovery->noticed);
        SET_IF(*row, lost_filling_us, recovery->filling != 0, recovery->filling);
        SET_IF(*row, lost_newgen_us, recovery->regenerated != 0, recovery->regenerated - recovery->noticed);
        SET_IF(*row, lost_commit_us, recovery->committed != 0, recovery->committed - recovery->noticed);
        SET_IF(*row, lost_successor, recovery->successor != 0, recovery->successor);
}

/* Pointers to the rows, which are beside them. */
struct status_peers {
        Wire__StatusPeer row[ENGINE_PEERS], *pointer[ENGINE_PEERS];
};

static void status_add_peers(Wire__StatusJob *row, const struct engine_view *view,
                             struct status_peers *peers) {
        SET(*row, communicator_us, view->took);
        for (uint32_t i = 0; i < view->n_peers; i++) {
                const struct engine_peer *peer = &view->peer[i];

                peers->pointer[i] = &peers->row[i];
                wire__status_peer__init(&peers->row[i]);
                SET(peers->row[i], node, peer->node);
                SET(peers->row[i], same_host, peer->same_host);
                peers->row[i].transport = peer->transport[0] != '\0' ? (char *)peer->transport : NULL;
        }
        row->n_peers = view->n_peers;
        row->peers = peers->pointer;
}

void status_add_facts(Wire__StatusJob *row, const struct job *job, uint64_t now) {
        SET(*row, job, job->id);
        row->name = (char *)job->name;
        SET(*row, uid, job->uid);
        SET(*row, generation, job->generation);
        SET(*row, world, job->state == JOB_FORMING ? job->max_world : job->world);
        SET(*row, step, job->last_step);
        SET(*row, bytes_reduced, job->bytes_reduced);
        SET(*row, norm, job->norm);
        SET(*row, nonfinite, job->nonfinite);
        SET(*row, void_steps, job->void_steps);
        SET(*row, incarnation, job->incarnation);
        SET(*row, operations, job->operations);
        SET_IF(*row, communicators, job->cluster, job->communicators);
        status_add_totals(row, job->record);
        status_add_nonfinite(row, &job->blame);
        status_add_recovery(row, &job->recovery, now);
}

static void status_send_job(struct answer *answer, struct job *job, const struct job_view *view) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct status_peers peers;
        char missing[600] = "";

        if (!answer_wants(answer)) {
                answer_skip(answer);
                return;
        }
        status_add_facts(&row, job, answer->now);
        row.state = (char *)view->state;
        SET(row, buckets, view->buckets);
        SET(row, bytes, view->bytes);
        SET(row, step_rate, view->step_rate);
        SET_IF(row, exposed, view->exposed >= 0, view->exposed);
        if (view->has_engine)
                status_add_peers(&row, &view->engine, &peers);
        if (answer->whole && job->loss_text[0] == '\0')
                peers_missing(job, missing, sizeof(missing));
        row.text = missing[0] != '\0' ? missing : job->loss_text;
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_JOB, &row.base);
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

static const char *status_process_state(struct answer *answer, pid_t pid, bool threads) {
        struct found_process *process = status_found_at(&answer->found, pid);
        struct looks *looks = &answer->found.looks;
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

/* The host of the members here; NULL if the job has no other hosts. */
static const char *status_host(const struct answer *answer, const struct job *job) {
        return job->cluster ? answer->sessions->cluster.host : NULL;
}

static uint64_t status_member_number(const struct member *member) {
        return member->stable > 0 ? member->stable : member_id_count(member->id);
}

/* `places`: the row stands for so many places that differ only in their numbers. */
static void status_send_member(struct answer *answer, const struct member *member,
                               const struct job_view *view, uint32_t places) {
        const struct job *job = member->job;
        struct member_view seen = view_member(member, view);
        const char *process_state = status_process_state(answer, member->pid, seen.late);
        bool stopped = member->state == MEMBER_ACTIVE && strcmp(process_state, "stopped") == 0;
        bool joining = member->state == MEMBER_JOINING;
        Wire__StatusMember row = WIRE__STATUS_MEMBER__INIT;

        SET(row, job, job->id);
        SET(row, rank, member->rank);
        SET(row, local_rank, member->local_rank);
        SET(row, pid, (int32_t)member->pid);
        SET(row, uid, job->uid);
        row.process_state = (char *)process_state;
        row.state = (char *)(stopped ? process_state : seen.state);
        SET(row, step, member->last_step);
        SET(row, member, status_member_number(member));
        SET(row, client, member->client);
        row.program = (char *)member->program;
        row.host = (char *)status_host(answer, job);
        SET_IF(row, exposed, seen.exposed >= 0, seen.exposed);
        SET_IF(row, exposed_us, seen.exposed >= 0, seen.exposed_us);
        SET(row, unranked, joining);
        SET_IF(row, late_us, job->record != NULL && !joining, job->record->totals.late_us[member->local]);
        SET_IF(row, places, places > 1, places);
        answer_give(answer, places, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &row.base);
}

static uint32_t status_count_placed(const struct plan *plan) {
        uint32_t n = 0;

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                n += plan->part[local].claims != NULL;
        return n;
}

static void status_send_plan(struct answer *answer, const struct plan *plan) {
        const struct description *d = plan->reference;
        Wire__StatusPlan row = WIRE__STATUS_PLAN__INIT;

        SET(row, job, plan->job->id);
        SET(row, plan, plan->ordinal);
        SET(row, step, plan->step);
        SET(row, params, d->n_params);
        SET(row, buckets, d->n_buckets);
        SET(row, bytes, d->payload);
        SET(row, arena_bytes, d->arena_bytes);
        row.reduce = (char *)reduce_name(d->reduce);
        SET(row, open, plan_unit(plan) != UNIT_IDLE);
        SET(row, placed, status_count_placed(plan));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_PLAN, &row.base);
}

static void status_look(struct answer *answer, struct job_wait *wait) {
        if (wait->member == NULL)
                return;
        wait->parameter = plan_wait_parameter(wait, &answer->found.looks);
        wait->process_state = status_process_state(answer, wait->pid, true);
}

/* How many from this one on are for ranks that come one after the other, and differ in nothing else. */
static uint32_t status_alike_waits(const struct job_view *view, unsigned first) {
        const struct job_wait *wait = &view->wait[first];
        uint32_t n = 1;

        while (wait->kind == WAIT_JOIN && first + n < view->n_waits && wait[n].kind == WAIT_JOIN &&
               wait[n].rank == wait->rank + n && wait[n].since == wait->since)
                n++;
        return n;
}

/* `ranks`: the row stands for so many ranks. */
static void status_send_wait(struct answer *answer, const struct job *job, struct job_wait *wait,
                             uint32_t ranks) {
        struct wait_parts parts;
        Wire__StatusWait row;

        status_look(answer, wait);
        wait_row(job, wait, answer->now, status_host(answer, job), &parts, &row);
        SET_IF(row, ranks, ranks > 1, ranks);
        answer_give(answer, ranks, WIRE__MESSAGE_TYPE__STATUS_WAIT, &row.base);
}

/* Those for nodes, or all others. */
static void status_send_waits_of(struct answer *answer, const struct job *job, struct job_view *view,
                                 bool nodes) {
        uint32_t n;

        for (unsigned i = 0; i < view->n_waits && !answer->full; i += n) {
                n = 1;
                if ((view->wait[i].kind == WAIT_NODES) != nodes)
                        continue;
                if (!answer_wants(answer)) {
                        answer_skip(answer);
                        continue;
                }
                n = answer->whole ? status_alike_waits(view, i) : 1;
                status_send_wait(answer, job, &view->wait[i], n);
        }
}

static bool status_has_wait(const struct job_view *view, enum wait_kind kind) {
        for (unsigned i = 0; i < view->n_waits; i++)
                if (view->wait[i].kind == kind)
                        return true;
        return false;
}

/* If members of other nodes that the job waits for are known, or a helper here does not answer, their rows
 * stand in place of the nodes' rows. */
static void status_send_waits(struct answer *answer, const struct job *job, struct view *others,
                              struct job_view *view) {
        status_send_waits_of(answer, job, view, false);
        if (answer->full)
                return;
        bool waits = status_has_wait(view, WAIT_NODES), helper = status_has_wait(view, WAIT_HELPER);
        unsigned far = others != NULL ? peer_rows_send_waits(others, job->id, waits, answer_row, answer) : 0;
        if (far == 0 && !helper)
                status_send_waits_of(answer, job, view, true);
}

/* No process has come back to the place. */
static bool status_is_empty(const struct member *member) {
        return member->state == MEMBER_LOST && member->owner == NULL && member->pid == 0;
}

static uint64_t status_late(const struct member *member) {
        return member->job->record != NULL ? member->job->record->totals.late_us[member->local] : 0;
}

/* Counts the places from this one on that are empty, and differ only in their numbers. */
static uint32_t status_alike_places(const struct job *job, uint32_t first) {
        const struct member *member = job->local[first];
        uint32_t n = 1;

        for (; status_is_empty(member) && first + n < job->n_local; n++) {
                const struct member *next = job->local[first + n];

                if (!status_is_empty(next) || next->rank != member->rank + n ||
                    next->local_rank != member->local_rank + n || next->last_step != member->last_step ||
                    status_member_number(next) != status_member_number(member) + n ||
                    status_late(next) != status_late(member))
                        break;
        }
        return n;
}

/* The member at this place, or several that are alike; how many. */
static uint32_t status_send_places(struct answer *answer, const struct job *job, uint32_t local,
                                   const struct job_view *view) {
        uint32_t n = answer_wants(answer) && answer->whole ? status_alike_places(job, local) : 1;

        if (answer_wants(answer))
                status_send_member(answer, job->local[local], view, n);
        else
                answer_skip(answer);
        return n;
}

static void status_send_joining(struct answer *answer, const struct job *job, const struct job_view *view) {
        const struct member *member;

        list_for_each(member, &job->members, link) {
                if (member->state != MEMBER_JOINING)
                        continue;
                if (answer_wants(answer))
                        status_send_member(answer, member, view, 1);
                else
                        answer_skip(answer);
        }
}

/* By rank, wherever they are, then those that have none. */
static void status_send_members(struct answer *answer, const struct job *job, struct view *others,
                                const struct job_view *view) {
        struct peer_rows_members far = { 0 };
        unsigned next = 0;

        if (others != NULL)
                peer_rows_find_members(others, &far);
        for (uint32_t local = 0; local < job->n_local && !answer->full;
             local += status_send_places(answer, job, local, view))
                for (; next < far.n && !far.member[next].unranked &&
                       far.member[next].rank < job->local[local]->rank;
                     next++)
                        peer_rows_send_member(others, &far.member[next], job->id, answer_row, answer);
        for (; next < far.n && !far.member[next].unranked; next++)
                peer_rows_send_member(others, &far.member[next], job->id, answer_row, answer);
        status_send_joining(answer, job, view);
        for (; next < far.n; next++)
                peer_rows_send_member(others, &far.member[next], job->id, answer_row, answer);
}

void status_send_whole_job(struct answer *answer, struct job *job) {
        struct view *others = answer->whole && job->cluster ? peers_view(job) : NULL;
        const struct plan *plan;
        struct job_view view;

        if (session_sees_all(answer->viewer)) /* no user's jobs hide those of another one */
                answer->found.looks = ANSWER_LOOKS;
        view_job(job, answer->now, &view);
        status_send_job(answer, job, &view);
        status_send_members(answer, job, others, &view);
        list_for_each(plan, &job->plans, link)
                if (plan->agreed)
                        status_send_plan(answer, plan);
        status_send_waits(answer, job, others, &view);
}

void status_send_link(void *to, const struct sessions_link *link) {
        struct answer *answer = to;
        Wire__StatusLink row = WIRE__STATUS_LINK__INIT;

        row.role = (char *)link->role;
        row.state = (char *)link->state;
        row.node = link->node[0] != '\0' && session_sees_all(answer->viewer) ? (char *)link->node : NULL;
        row.host = link->host[0] != '\0' ? (char *)link->host : NULL;
        row.address = link->address[0] != '\0' ? (char *)link->address : NULL;
        row.key = link->key[0] != '\0' ? (char *)link->key : NULL;
        row.text = link->text[0] != '\0' ? (char *)link->text : NULL;
        SET(row, since_ms, (answer->now - link->since) / USEC_PER_MSEC);
        SET_IF(row, heard_ms, link->heard != 0, (answer->now - link->heard) / USEC_PER_MSEC);
        SET_IF(row, round_trip_us, link->has_pulse, link->round_trip);
        SET_IF(row, clock_us, link->has_pulse, link->clock);
        SET_IF(row, wall_us, link->has_pulse, link->wall);
        SET(row, sent, link->sent);
        SET(row, received, link->received);
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_LINK, &row.base);
}

void status_describe_job(struct sessions *sessions, struct job *job, sessions_row_fn row, void *data) {
        struct answer answer = { .sessions = sessions,
                                 .now = clock_now(),
                                 .row = row,
                                 .data = data,
                                 .most = SIZE_MAX,
                                 .end = UINT64_MAX,
                                 .found.looks = ANSWER_LOOKS };

        status_send_whole_job(&answer, job);
}

void sessions_describe(struct sessions *sessions, sessions_row_fn row, void *data) {
        struct answer answer = { .sessions = sessions,
                                 .now = clock_now(),
                                 .row = row,
                                 .data = data,
                                 .most = SIZE_MAX,
                                 .end = UINT64_MAX };

        status_send_daemon(&answer);
}
