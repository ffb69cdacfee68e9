// SPDX-License-Identifier: Apache-2.0
/* Lines of columns for programs: see plain.h. */
#include "client/cli/view/plain.h"

#include <inttypes.h>
#include <string.h>

#include "client/cli/base/user.h"
#include "proto/names.h"

/* A line that is being written. */
struct plain {
        FILE *to;
        bool begun;
};

static void plain_end(struct plain *line) {
        fputc('\n', line->to);
        line->begun = false;
}

static void plain_next(struct plain *line) {
        if (line->begun)
                fputc('\t', line->to);
        line->begun = true;
}

/* No byte of it is a tab or a newline, and a reader can get back what it was. */
static void plain_escape(const char *text, FILE *to) {
        size_t left = text ? strlen(text) : 0;

        while (left > 0) {
                uint32_t point;
                size_t length = utf8_decode(text, left, &point);
                bool fine = length > 0 && !text_is_deceptive(point);

                length = length ? length : 1;
                if (*text == '\t' || *text == '\n' || *text == '\\')
                        fprintf(to, "\\%c", *text == '\t' ? 't' : *text == '\n' ? 'n' : '\\');
                else if (fine)
                        fwrite(text, 1, length, to);
                else
                        for (size_t i = 0; i < length; i++)
                                fprintf(to, "\\x%02x", (unsigned char)text[i]);
                text += length;
                left -= length;
        }
}

static void plain_text(struct plain *line, const char *text) {
        plain_next(line);
        plain_escape(text, line->to);
}

static void plain_number(struct plain *line, bool known, uint64_t number) {
        plain_next(line);
        if (known)
                fprintf(line->to, "%" PRIu64, number);
}

static void plain_pid(struct plain *line, bool known, int32_t pid) {
        plain_number(line, known && pid > 0, (uint64_t)pid);
}

static void plain_ms(struct plain *line, bool known, uint64_t ms) {
        plain_next(line);
        if (known)
                fprintf(line->to, "%" PRIu64 ".%03" PRIu64, ms / 1000, ms % 1000);
}

static void plain_us(struct plain *line, bool known, int64_t us) {
        plain_next(line);
        if (known)
                fprintf(line->to, "%.6f", (double)us / 1e6);
}

/* Not known: below 0. */
static void plain_share(struct plain *line, double share) {
        plain_next(line);
        if (share >= 0)
                fprintf(line->to, "%.4f", share);
}

/* Not known: below 0. */
static void plain_rate(struct plain *line, double rate) {
        plain_next(line);
        if (rate >= 0)
                fprintf(line->to, "%.3f", rate);
}

/* As an order takes it: UID/NAME. */
static void plain_job_name(struct plain *line, const Wire__StatusJob *j) {
        plain_next(line);
        fprintf(line->to, "%u/", j->uid);
        plain_escape(j->name, line->to);
}

static void plain_begin(struct plain *line, const char *kind, const struct snapshot *from,
                        const Wire__StatusJob *j) {
        plain_text(line, kind);
        plain_text(line, from->daemon->device);
        if (j)
                plain_job_name(line, j);
}

static void plain_status_daemon(struct plain *line, const struct snapshot *from) {
        const Wire__StatusDaemon *d = from->daemon;

        plain_begin(line, "daemon", from, NULL);
        plain_text(line, d->version);
        plain_pid(line, true, d->pid);
        plain_number(line, true, d->uid);
        plain_text(line, from->path);
        plain_ms(line, true, d->uptime_ms);
        plain_number(line, true, d->clients);
        plain_number(line, true, d->jobs);
        plain_number(line, true, d->draining);
        plain_end(line);
}

static void plain_status_job(struct plain *line, const struct snapshot *from,
                             const struct snapshot_job *job) {
        const Wire__StatusJob *j = job->job;

        plain_begin(line, "job", from, j);
        plain_text(line, j->state);
        plain_number(line, true, j->step);
        plain_number(line, true, snapshot_places(job));
        plain_number(line, true, j->world);
        plain_number(line, true, j->generation);
        plain_rate(line, j->step_rate);
        plain_share(line, j->has_exposed ? j->exposed : -1);
        plain_number(line, true, j->buckets);
        plain_number(line, true, j->bytes);
        plain_number(line, true, j->bytes_reduced);
        plain_number(line, true, j->void_steps);
        plain_number(line, true, j->nonfinite);
        plain_next(line);
        if (j->has_norm && j->step > 0)
                fprintf(line->to, "%.9g", j->norm);
        plain_text(line, j->text);
        plain_end(line);
}

static void plain_status_member(struct plain *line, const struct snapshot *from,
                                const struct snapshot_job *job, const Wire__StatusMember *m) {
        plain_begin(line, "member", from, job->job);
        plain_number(line, !m->unranked, m->rank);
        plain_text(line, m->host);
        plain_pid(line, true, m->pid);
        plain_number(line, true, m->uid);
        plain_text(line, m->state);
        plain_number(line, true, m->step);
        plain_share(line, m->has_exposed ? m->exposed : -1);
        plain_text(line, m->process_state);
        plain_text(line, m->program);
        plain_end(line);
}

static void plain_status_wait(struct plain *line, const struct snapshot *from, const struct snapshot_job *job,
                              const Wire__StatusWait *wait) {
        bool step = snapshot_wait_is_step(wait);

        plain_begin(line, "wait", from, job->job);
        plain_number(line, !(wait->text && *wait->text), wait->rank);
        plain_text(line, wait->host);
        plain_pid(line, wait->has_pid, wait->pid);
        plain_text(line, wait->process_state);
        plain_text(line, wait->what);
        plain_number(line, step && wait->has_bucket, wait->bucket);
        plain_text(line, wait->parameter);
        plain_ms(line, true, wait->since_ms);
        plain_text(line, wait->text);
        plain_end(line);
}

void plain_status(const struct observation *observation, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < observation->n; i++) {
                const struct snapshot *from = &observation->snapshot[i];

                plain_status_daemon(&line, from);
                for (size_t k = 0; k < from->n_jobs; k++) {
                        const struct snapshot_job *job = &from->job[k];
                        plain_status_job(&line, from, job);
                        for (size_t m = 0; m < job->n_members; m++)
                                plain_status_member(&line, from, job, job->member[m]);
                        for (size_t w = 0; w < job->n_waits; w++)
                                plain_status_wait(&line, from, job, job->wait[w]);
                }
        }
}

static void plain_user(struct plain *line, uint32_t uid) {
        char name[USER_SIZE];

        plain_number(line, true, uid);
        plain_text(line, user_show(name, uid));
}

static void plain_jobs_line(struct plain *line, const struct snapshot *from, const struct snapshot_job *job) {
        const Wire__StatusJob *j = job->job;

        plain_text(line, j->name);
        plain_user(line, j->uid);
        plain_text(line, from->daemon->device);
        plain_text(line, j->state);
        plain_number(line, true, snapshot_places(job));
        plain_number(line, true, j->world);
        plain_number(line, true, j->generation);
        plain_number(line, true, j->step);
        plain_rate(line, j->step_rate);
        plain_number(line, true, j->bytes);
        plain_end(line);
}

void plain_jobs(const struct observation *observation, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_jobs; k++)
                        plain_jobs_line(&line, &observation->snapshot[i], &observation->snapshot[i].job[k]);
}

void plain_ended(const struct ended_jobs *jobs, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < jobs->n; i++) {
                const Wire__StatusEnded *e = jobs->job[i].row;
                plain_text(&line, e->name);
                plain_user(&line, e->uid);
                plain_text(&line, jobs->job[i].device);
                plain_number(&line, true, e->ended_at);
                plain_number(&line, true, e->world);
                plain_number(&line, true, e->generation);
                plain_number(&line, true, e->step);
                plain_text(&line, e->reason);
                plain_number(&line, e->has_rank, e->rank);
                plain_pid(&line, e->has_pid, e->pid);
                plain_number(&line, true, e->traced);
                plain_text(&line, e->text);
                plain_end(&line);
        }
}

void plain_clients(const struct observation *observation, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_clients; k++) {
                        const Wire__StatusClient *c = observation->snapshot[i].client[k];
                        plain_pid(&line, true, c->pid);
                        plain_user(&line, c->uid);
                        plain_text(&line, observation->snapshot[i].daemon->device);
                        plain_text(&line, c->program);
                        plain_text(&line, c->library);
                        plain_ms(&line, true, c->connected_ms);
                        plain_number(&line, true, c->jobs);
                        plain_end(&line);
                }
}

void plain_links(const struct observation *observation, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_links; k++) {
                        const Wire__StatusLink *l = observation->snapshot[i].link[k];
                        plain_text(&line, observation->snapshot[i].daemon->device);
                        plain_text(&line, l->role);
                        plain_text(&line, l->host);
                        plain_text(&line, l->address);
                        plain_text(&line, l->node);
                        plain_text(&line, l->state);
                        plain_ms(&line, true, l->since_ms);
                        plain_ms(&line, l->has_heard_ms, l->heard_ms);
                        plain_us(&line, l->has_round_trip_us, (int64_t)l->round_trip_us);
                        plain_us(&line, l->has_wall_us, l->wall_us);
                        plain_text(&line, l->key);
                        plain_number(&line, true, l->sent);
                        plain_number(&line, true, l->received);
                        plain_text(&line, l->text);
                        plain_end(&line);
                }
}

static void plain_top_job(struct plain *line, const struct figures_job *row) {
        const Wire__StatusWait *wait = row->is.wait;

        plain_begin(line, "job", row->from, row->job->job);
        plain_text(line, row->job->job->state);
        plain_number(line, true, row->job->job->step);
        plain_rate(line, row->is.rate);
        plain_share(line, row->is.exposed);
        plain_number(line, true, snapshot_places(row->job));
        plain_number(line, true, row->job->job->world);
        plain_number(line, true, row->job->n_waits);
        plain_ms(line, wait != NULL, wait ? wait->since_ms : 0);
        plain_end(line);
}

static void plain_top_member(struct plain *line, const struct figures_job *of,
                             const struct figures_member *row) {
        const Wire__StatusMember *m = row->member;
        const Wire__StatusWait *wait = row->is.wait;
        bool step = wait && snapshot_wait_is_step(wait);

        plain_begin(line, "member", of->from, of->job->job);
        plain_text(line, m->state);
        plain_number(line, true, m->step);
        plain_rate(line, row->is.rate);
        plain_share(line, row->is.exposed);
        plain_share(line, row->is.late);
        plain_number(line, !m->unranked, m->rank);
        plain_pid(line, true, m->pid);
        plain_ms(line, wait != NULL, wait ? wait->since_ms : 0);
        plain_text(line, wait ? wait->what : NULL);
        plain_number(line, step && wait->has_bucket, step ? wait->bucket : 0);
        plain_text(line, step ? wait->parameter : NULL);
        plain_end(line);
}

void plain_top(const struct figures_list *list, FILE *to) {
        struct plain line = { .to = to };

        for (size_t i = 0; i < list->n; i++) {
                plain_top_job(&line, &list->job[i]);
                for (size_t k = 0; k < list->job[i].job->n_members; k++)
                        plain_top_member(&line, &list->job[i], &list->job[i].member[k]);
        }
}
