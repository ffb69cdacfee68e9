/* SPDX-License-Identifier: Apache-2.0 */
/* Asks what the other nodes of jobs that span daemons say, and searches the answers. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "report/private.h"

/* The age of an answer by which something is decided. */
#define RECENT (5 * USEC_PER_SEC)

struct hub_job peers_name(const struct job *job) {
        return (struct hub_job){ .uid = job->uid, .name = job->name, .incarnation = job->incarnation };
}

struct view *peers_view(const struct job *job) {
        const struct hub_job name = peers_name(job);

        return views_find(reports_of(job)->views, &name, VIEW_OTHERS, 0);
}

/* The answer may come before this returns. NULL: the job has no node here, and its coordinator. */
static void peers_ask(struct reports *reports, struct job *job, const struct hub_job *name, struct view *view,
                      const struct wanted_view *wanted) {
        uint32_t id = view_begin(view);
        struct packet packet = { .reports = reports,
                                 .job = job,
                                 .about = name,
                                 .to = wanted->what == VIEW_OTHERS ? HUB_COORDINATOR : wanted->node,
                                 .request = id };
        Wire__Status status = WIRE__STATUS__INIT;
        Wire__Trace trace = WIRE__TRACE__INIT;

        if (wanted->what == VIEW_RECORD)
                packet_add(&packet, WIRE__MESSAGE_TYPE__TRACE, &trace.base);
        else
                packet_add(&packet, WIRE__MESSAGE_TYPE__STATUS, &status.base);
        view_asked(view, id, packet_send(&packet));
}

/* Asks, unless the view is of `after` or later. NULL: there is no memory for it, so that nothing is known. */
static struct view *peers_look(struct reports *reports, struct job *job, const struct hub_job *name,
                               const struct wanted_view *wanted) {
        struct view *view = views_get(reports->views, name, wanted->what, wanted->node);

        if (view != NULL && !view_is_of(view, wanted->after) && !view_is_coming(view) &&
            clock_now() >= wanted->after)
                peers_ask(reports, job, name, view, wanted);
        return view;
}

/* Statements may be that much older than an answer. */
bool peers_inquire(struct job *job, uint64_t after) {
        const struct wanted_view wanted = { .what = VIEW_OTHERS, .after = after + VIEWS_SHOW };
        const struct hub_job name = peers_name(job);
        const struct view *view = peers_look(reports_of(job), job, &name, &wanted);

        return view == NULL || view_is_of(view, wanted.after);
}

/* Whether one of the missing members is blocked in something else, according to this row of its node. */
static bool peers_take_entangled(const Wire__StatusWait *row, const struct job_wait *wait,
                                 const struct job_wait *missing, unsigned n, struct entangled *ret) {
        if (row->what == NULL || strcmp(row->what, "nodes") != 0 || row->call == NULL ||
            !wait_row_want(row, &ret->in) ||
            (ret->in.what == wait->purpose &&
             (wait->purpose == WAIT_OPERATION || ret->in.plan == wait->plan)))
                return false;
        for (unsigned i = 0; i < n; i++)
                for (size_t k = 0; k < row->n_blocked; k++) {
                        if (missing[i].rank != row->blocked[k] || missing[i].rank == UINT32_MAX)
                                continue;
                        ret->rank = missing[i].rank;
                        ret->pid = missing[i].pid;
                        ret->traced = strcmp(missing[i].process_state, "traced") == 0;
                        snprintf(ret->host, sizeof(ret->host), "%s", missing[i].host);
                        snprintf(ret->call, sizeof(ret->call), "%s", row->call);
                        snprintf(ret->lacks, sizeof(ret->lacks), "%s", missing[i].parameter);
                        return true;
                }
        return false;
}

unsigned peers_blame(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max) {
        return view_blame(peers_view(job), wait, waits, max);
}

bool peers_entangled(struct job *job, const struct job_wait *wait, uint64_t after, struct entangled *ret) {
        uint64_t recent = clock_now() - RECENT;
        struct view *view = peers_view(job);
        struct job_wait missing[VIEWS_NAMED];
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        if (view == NULL || !view_is_of(view, recent > after + VIEWS_SHOW ? recent : after + VIEWS_SHOW))
                return false;
        unsigned n = view_blame(view, wait, missing, VIEWS_NAMED);
        while (n > 0 && (row = view_next(view, &at, &type)) != NULL)
                if (type == WIRE__MESSAGE_TYPE__STATUS_WAIT &&
                    peers_take_entangled(CAST(Wire__StatusWait, row), wait, missing, n, ret))
                        return true;
        return false;
}

/* The host of a member that a node has shown lately. */
static bool peers_find_host(struct view *view, const struct membership_loss *loss, char *text, size_t size) {
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        while ((row = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusMember *member = CAST(Wire__StatusMember, row);

                if (type != WIRE__MESSAGE_TYPE__STATUS_MEMBER || member->host == NULL || !member->has_rank ||
                    member->rank != loss->rank || member->pid != loss->pid || strlen(member->host) >= size)
                        continue;
                snprintf(text, size, "%s", member->host);
                return true;
        }
        return false;
}

void peers_host_of(struct job *job, const struct membership_loss *loss, char *text, size_t size) {
        struct view *view = job->cluster ? peers_view(job) : NULL;
        struct job_wait silent[VIEWS_NAMED];
        size_t used = 0;

        text[0] = '\0';
        if (view == NULL || peers_find_host(view, loss, text, size) ||
            loss->cause != WIRE__CAUSE__UNREACHABLE)
                return;
        unsigned n = view_silent(view, silent, VIEWS_NAMED);
        for (unsigned i = 0; i < n && used < size; i++)
                used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? " or " : "",
                                         silent[i].host);
        if (used >= size)
                snprintf(text, size, "one of %u hosts", n);
}

void peers_missing(struct job *job, char *text, size_t size) {
        struct view *view = job->cluster ? peers_view(job) : NULL;
        const struct member *member;
        unsigned here = 0;

        text[0] = '\0';
        if (view == NULL || !view_is_of(view, 1) || job->state != JOB_FORMING)
                return;
        list_for_each(member, &job->members, link)
                here += !member->spare;
        view_missing(view, here, job->max_world, text, size);
}

/* Whether this daemon has a part in that job of the cluster. */
static bool peers_is_here(const struct reports *reports, const struct hub_job *which) {
        const struct job *job;

        list_for_each(job, &reports->config.jobs->list, link)
                if (job->cluster && job->uid == which->uid && job->incarnation == which->incarnation &&
                    strcmp(job->name, which->name) == 0)
                        return true;
        return false;
}

bool peers_covers_remote(const struct query *query, const struct hub_job *job) {
        return query_covers(query, job->uid, job->name) && !peers_is_here(query->reports, job);
}

struct peers_walk {
        const struct query *query;
        peers_fn *fn;
        void *to;
};

static void peers_on_coordinated(void *to, const struct hub_job *job) {
        const struct peers_walk *walk = to;

        if (peers_covers_remote(walk->query, job))
                walk->fn(walk->to, NULL, job);
}

void peers_each_coordinated(const struct query *query, peers_fn *fn, void *to) {
        const struct reports_cluster *cluster = &query->reports->cluster;

        if (cluster->each != NULL)
                cluster->each(cluster->data, peers_on_coordinated, &(struct peers_walk){ query, fn, to });
}

void peers_each(const struct query *query, peers_fn *fn, void *to) {
        struct job *job;

        list_for_each(job, &query->reports->config.jobs->list, link) {
                const struct hub_job name = peers_name(job);

                if (job->cluster && job->state != JOB_LOST && query_covers(query, job->uid, job->name))
                        fn(to, job, &name);
        }
        peers_each_coordinated(query, fn, to);
}

struct awaited {
        struct reports *reports;
        const struct wanted_view *wanted;
        bool ask;
        unsigned open;
};

static void awaited_look(void *to, struct job *job, const struct hub_job *name) {
        struct awaited *awaited = to;
        const struct wanted_view *wanted = awaited->wanted;
        struct view *view = awaited->ask
                                    ? peers_look(awaited->reports, job, name, wanted)
                                    : views_find(awaited->reports->views, name, wanted->what, wanted->node);

        awaited->open += view != NULL && view_is_coming(view) && !view_is_of(view, wanted->after);
}

unsigned reports_await(const struct query *query, const struct wanted_view *wanted, bool ask) {
        struct awaited awaited = { query->reports, wanted, ask, 0 };

        peers_each(query, awaited_look, &awaited);
        return awaited.open;
}
