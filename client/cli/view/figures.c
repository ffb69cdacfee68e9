// SPDX-License-Identifier: Apache-2.0
/* Rates, shares and their order: see figures.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/view/figures.h"

/* The job in the look before this one, or NULL. The figures cover the interval between the two looks; at the
 * first look, the time since the start. */
static const struct snapshot_job *figures_before(const struct observation *past, const struct snapshot *from,
                                                 const struct snapshot_job *job) {
        for (size_t i = 0; past && i < past->n; i++) {
                const struct snapshot *before = &past->snapshot[i];
                if (before->daemon->instance != from->daemon->instance)
                        continue;
                for (size_t k = 0; k < before->n_jobs; k++)
                        if (before->job[k].job->job == job->job->job)
                                return &before->job[k];
        }
        return NULL;
}

/* The growth of a counter; 0 if the counter began anew. */
static uint64_t figures_growth(uint64_t now, uint64_t before) {
        return now > before ? now - before : 0;
}

static uint64_t figures_reductions(const Wire__StatusJob *job) {
        uint64_t sum = 0;

        for (size_t i = 0; i < job->n_reduce_class; i++)
                sum += job->reduce_class[i];
        return sum;
}

/* The daemon adds up lateness over all buckets; a member that is late in a step is late in each of its
 * buckets. */
static uint64_t figures_late_us(const Wire__StatusJob *now, const Wire__StatusJob *before,
                                uint64_t over_all_buckets) {
        uint64_t buckets = figures_growth(figures_reductions(now), figures_reductions(before));
        uint64_t steps = figures_growth(now->committed, before->committed);

        return buckets > 0 ? (uint64_t)((double)over_all_buckets / (double)buckets * (double)steps) : 0;
}

/* The share of the interval by which a sum of microseconds grew; below 0 if it is not known. */
static double figures_share(bool known, uint64_t us, double seconds) {
        double share = known && seconds > 0 ? (double)us / 1e6 / seconds : 0;

        return !known ? -1 : share < 1 ? share : 1;
}

/* Things by number: a job may have tens of thousands of members, each of which is looked up. */
struct figures_index {
        struct figures_entry {
                uint64_t number;
                size_t place; /* of several entries with the same number, the first one counts */
                const void *what;
        } * entry;
        size_t n;
};

static int figures_compare_entries(const void *left, const void *right) {
        const struct figures_entry *a = left, *b = right;

        if (a->number != b->number)
                return a->number < b->number ? -1 : 1;
        return a->place < b->place ? -1 : a->place > b->place;
}

static void figures_index_add(struct figures_index *index, uint64_t number, const void *what) {
        index->entry[index->n] = (struct figures_entry){ number, index->n, what };
        index->n++;
}

/* NULL: nothing has the number. */
static const void *figures_index_find(const struct figures_index *index, uint64_t number) {
        size_t from = 0, to = index->n;

        while (from < to) {
                size_t middle = from + (to - from) / 2;

                if (index->entry[middle].number < number)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from < index->n && index->entry[from].number == number ? index->entry[from].what : NULL;
}

/* Indexes the members of the look before this one by id. `job` NULL: there was none. 0 or -ENOMEM. */
static int figures_index_members(const struct snapshot_job *job, struct figures_index *ret) {
        size_t n = job ? job->n_members : 0;

        *ret = (struct figures_index){ .entry = calloc(n + 1, sizeof *ret->entry) };
        if (!ret->entry)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                figures_index_add(ret, job->member[i]->member, job->member[i]);
        qsort(ret->entry, ret->n, sizeof *ret->entry, figures_compare_entries);
        return 0;
}

/* Indexes the waits for members by rank. 0 or -ENOMEM. */
static int figures_index_waits(const struct snapshot_job *job, struct figures_index *ret) {
        *ret = (struct figures_index){ .entry = calloc(job->n_waits + 1, sizeof *ret->entry) };
        if (!ret->entry)
                return -ENOMEM;
        for (size_t i = 0; i < job->n_waits; i++)
                if (job->wait[i]->has_pid)
                        figures_index_add(ret, job->wait[i]->rank, job->wait[i]);
        qsort(ret->entry, ret->n, sizeof *ret->entry, figures_compare_entries);
        return 0;
}

/* `before`: the member in the look before this one; NULL: it was not there. */
static struct figures figures_of_member(const struct snapshot_job *job, const struct snapshot_job *past,
                                        const Wire__StatusMember *m, const Wire__StatusMember *before,
                                        double seconds) {
        struct figures is = { .rate = -1,
                              .exposed = figures_share(m->has_exposed, (uint64_t)(m->exposed * 1e6), 1),
                              .late = -1 };

        if (!before)
                return is;
        if (seconds > 0)
                is.rate = (double)figures_growth(m->step, before->step) / seconds;
        is.exposed = figures_share(m->has_exposed_us && before->has_exposed_us,
                                   figures_growth(m->exposed_us, before->exposed_us), seconds);
        is.late = figures_share(m->has_late_us && before->has_late_us,
                                figures_late_us(job->job, past->job,
                                                figures_growth(m->late_us, before->late_us)),
                                seconds);
        return is;
}

static struct figures figures_of_job(const struct snapshot_job *job, const struct snapshot_job *past,
                                     double seconds) {
        const Wire__StatusJob *j = job->job;
        uint64_t steps = past ? figures_growth(j->committed, past->job->committed) : 0;
        double recent = j->has_step_rate ? j->step_rate : -1;

        return (struct figures){ .rate = past && seconds > 0 ? (double)steps / seconds : recent,
                                 .exposed = j->has_exposed ? j->exposed : -1,
                                 .late = -1,
                                 .wait = job->n_waits ? job->wait[0] : NULL };
}

static void figures_add_members(struct figures_job *added, const struct snapshot_job *past,
                                const struct figures_index *members, const struct figures_index *waits,
                                double seconds) {
        for (size_t i = 0; i < added->job->n_members; i++) {
                const Wire__StatusMember *m = added->job->member[i];
                struct figures is = figures_of_member(added->job, past, m,
                                                      figures_index_find(members, m->member), seconds);

                is.wait = m->unranked ? NULL : figures_index_find(waits, m->rank);
                added->member[i] = (struct figures_member){ .place = i, .member = m, .is = is };
                if (is.late > added->is.late)
                        added->is.late = is.late;
        }
}

static int figures_add(struct figures_list *list, const struct snapshot *from, const struct snapshot_job *job,
                       const struct snapshot_job *past, double seconds) {
        struct figures_job *added = &list->job[list->n];
        struct figures_index members = { 0 }, waits = { 0 };

        *added = (struct figures_job){ .place = list->n++,
                                       .from = from,
                                       .job = job,
                                       .is = figures_of_job(job, past, seconds),
                                       .member = calloc(job->n_members + 1, sizeof *added->member) };
        int r = added->member ? figures_index_members(past, &members) : -ENOMEM;
        if (r == 0)
                r = figures_index_waits(job, &waits);
        if (r == 0)
                figures_add_members(added, past, &members, &waits, seconds);
        free(members.entry);
        free(waits.entry);
        return r;
}

int figures_collect(const struct observation *now, const struct observation *past, uint64_t elapsed_ms,
                    struct figures_list *ret) {
        size_t jobs = 0;
        int r = 0;

        for (size_t i = 0; i < now->n; i++)
                jobs += now->snapshot[i].n_jobs;
        *ret = (struct figures_list){ .job = calloc(jobs + 1, sizeof *ret->job) };
        if (!ret->job)
                return -ENOMEM;
        for (size_t i = 0; i < now->n && r == 0; i++)
                for (size_t k = 0; k < now->snapshot[i].n_jobs && r == 0; k++) {
                        const struct snapshot_job *job = &now->snapshot[i].job[k];
                        r = figures_add(ret, &now->snapshot[i], job,
                                        figures_before(past, &now->snapshot[i], job),
                                        (double)elapsed_ms / 1000);
                }
        if (r < 0)
                figures_deinit(ret);
        return r;
}

void figures_deinit(struct figures_list *list) {
        for (size_t i = 0; i < list->n; i++)
                free(list->job[i].member);
        free(list->job);
        *list = (struct figures_list){ 0 };
}

struct figures_how {
        enum figures_order order;
        bool reverse;
};

/* Below 0 if `a` comes first. */
static int figures_more_first(double a, double b) {
        return a > b ? -1 : a < b;
}

static int figures_compare(enum figures_order order, const struct figures *a, const struct figures *b) {
        double a_waits = a->wait ? (double)a->wait->since_ms : -1;
        double b_waits = b->wait ? (double)b->wait->since_ms : -1;

        switch (order) {
        case FIGURES_BY_EXPOSED: return figures_more_first(a->exposed, b->exposed);
        case FIGURES_BY_LATE: return figures_more_first(a->late, b->late);
        case FIGURES_BY_WAIT: return figures_more_first(a_waits, b_waits);
        default: return 0;
        }
}

/* Equal entries stay in the order of the daemon's answer. */
static int figures_settle(int compared, size_t a, size_t b, const struct figures_how *how) {
        int settled = compared ? compared : a < b ? -1 : a > b;

        return how->reverse ? -settled : settled;
}

static int figures_compare_jobs(const void *left, const void *right, void *data) {
        const struct figures_job *a = left, *b = right;
        const struct figures_how *how = data;
        const char *a_name = a->job->job->name, *b_name = b->job->job->name;
        int compared = figures_compare(how->order, &a->is, &b->is);

        if (how->order == FIGURES_BY_JOB)
                compared = strcmp(a_name ? a_name : "", b_name ? b_name : "");
        if (how->order == FIGURES_BY_STEP)
                compared = figures_more_first((double)b->job->job->step, (double)a->job->job->step);
        return figures_settle(compared, a->place, b->place, how);
}

static int figures_compare_members(const void *left, const void *right, void *data) {
        const struct figures_member *a = left, *b = right;
        const struct figures_how *how = data;
        int compared = figures_compare(how->order, &a->is, &b->is);

        if (how->order == FIGURES_BY_STEP)
                compared = figures_more_first((double)b->member->step, (double)a->member->step);
        return figures_settle(compared, a->place, b->place, how);
}

void figures_sort(struct figures_list *list, enum figures_order order, bool reverse) {
        struct figures_how how = { order, reverse };

        for (size_t i = 0; i < list->n; i++)
                qsort_r(list->job[i].member, list->job[i].job->n_members, sizeof *list->job[i].member,
                        figures_compare_members, &how);
        qsort_r(list->job, list->n, sizeof *list->job, figures_compare_jobs, &how);
}
