/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of an answer to STATUS about a job. */
#include <string.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "job/plan/plan.h"
#include "job/view.h"
#include "proto/names.h"
#include "report/private.h"

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

static void status_send_job_row(struct answer *answer, struct job *job, const struct job_view *view) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct status_peers peers;
        char missing[600] = "";

        if (answer_skips(answer))
                return;
        job_facts_add(&row, job, answer->now);
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
        return job->cluster ? answer->query->reports->cluster.host : NULL;
}

static uint64_t status_member_number(const struct member *member) {
        return member->stable > 0 ? member->stable : member_id_count(member->id);
}

/* `places`: the row stands for so many places that differ only in their numbers. */
static void status_send_member(struct answer *answer, const struct member *member,
                               const struct job_view *view, uint32_t places) {
        const struct job *job = member->job;
        Wire__StatusMember row = WIRE__STATUS_MEMBER__INIT;

        if (answer_skips(answer))
                return;
        struct member_view seen = view_member(member, view);
        const char *process_state = status_process_state(answer, member->pid, seen.late);
        bool stopped = member->state == MEMBER_ACTIVE && strcmp(process_state, "stopped") == 0;
        bool joining = member->state == MEMBER_JOINING;
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
        SET_IF(row, late_us, job->record != NULL && !joining, job_facts_late(member));
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
                if (answer_skips(answer))
                        continue;
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
        unsigned remote = others != NULL ? peer_rows_send_waits(answer, others, job->id, waits) : 0;
        if (remote == 0 && !helper)
                status_send_waits_of(answer, job, view, true);
}

/* No process has come back to the place. */
static bool status_is_empty(const struct member *member) {
        return member->state == MEMBER_LOST && member->owner == NULL && member->pid == 0;
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
                    job_facts_late(next) != job_facts_late(member))
                        break;
        }
        return n;
}

/* The member at this place, or several that are alike; how many. */
static uint32_t status_send_places(struct answer *answer, const struct job *job, uint32_t local,
                                   const struct job_view *view) {
        uint32_t n = answer_wants(answer) && answer->whole ? status_alike_places(job, local) : 1;

        status_send_member(answer, job->local[local], view, n);
        return n;
}

static void status_send_joining(struct answer *answer, const struct job *job, const struct job_view *view) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_JOINING)
                        status_send_member(answer, member, view, 1);
}

/* By rank, wherever they are, then those that have none. */
static void status_send_members(struct answer *answer, const struct job *job, struct view *others,
                                const struct job_view *view) {
        struct peer_rows_members remote = { 0 };
        unsigned next = 0;

        if (others != NULL)
                peer_rows_find_members(others, &remote);
        for (uint32_t local = 0; local < job->n_local && !answer->full;
             local += status_send_places(answer, job, local, view))
                for (; next < remote.n && !remote.member[next].unranked &&
                       remote.member[next].rank < job->local[local]->rank;
                     next++)
                        peer_rows_send_member(answer, others, &remote.member[next], job->id);
        for (; next < remote.n && !remote.member[next].unranked; next++)
                peer_rows_send_member(answer, others, &remote.member[next], job->id);
        status_send_joining(answer, job, view);
        for (; next < remote.n; next++)
                peer_rows_send_member(answer, others, &remote.member[next], job->id);
}

void status_send_job(struct answer *answer, struct job *job) {
        struct view *others = answer->whole && job->cluster ? peers_view(job) : NULL;
        const struct plan *plan;
        struct job_view view;

        if (answer->query->viewer.sees_all) /* no user's jobs hide those of another one */
                answer->found.looks = ANSWER_LOOKS;
        view_job(job, answer->now, &view);
        status_send_job_row(answer, job, &view);
        status_send_members(answer, job, others, &view);
        list_for_each(plan, &job->plans, link)
                if (plan->agreed)
                        status_send_plan(answer, plan);
        status_send_waits(answer, job, others, &view);
}

void status_describe_job(const struct query *query, struct job *job) {
        struct answer answer = answer_to(query);

        status_send_job(&answer, job);
}
