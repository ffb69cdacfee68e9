// SPDX-License-Identifier: Apache-2.0
/* Status for people: see text.h. */
#include <inttypes.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/base/user.h"
#include "client/cli/view/table.h"
#include "client/cli/view/text.h"

#define MANY_MEMBERS 32 /* a job with more members lists only those that stand out */
#define MANY_WAITS 4

static const char *text_or_empty(const char *text) {
        return text ? text : "";
}

static void text_gpu(const Wire__StatusGpu *g, bool color, FILE *to) {
        _cleanup_(freep) char *name = escape_text(g->name), *uuid = escape_text(g->uuid);
        bool mps = g->mode && strcmp(g->mode, "mps") == 0;
        char bytes[FORMAT_SIZE], all[FORMAT_SIZE], taken[FORMAT_SIZE];

        paint_printf(
                to, color, PAINT_DIM,
                "%s (%s), driver of CUDA %u.%u: %s of %s free, %s in arenas and registered buffers; %s\n",
                text_or_empty(name), text_or_empty(uuid), g->driver / 1000, g->driver % 1000 / 10,
                format_bytes(bytes, g->free_bytes), format_bytes(all, g->bytes),
                format_bytes(taken, g->arena_bytes),
                mps ? "MPS: processes work at the same time, and share their faults"
                    : "no MPS: processes work in turn");
}

static void text_engine(const Wire__StatusEngine *e, bool color, FILE *to) {
        _cleanup_(freep) char *name = escape_text(e->name), *version = escape_text(e->version);
        _cleanup_(freep) char *library = escape_text(e->library), *missing = escape_text(e->missing);

        if (missing && *missing)
                paint_line(to, "", color, PAINT_WARN, "jobs stay on this daemon: %s", missing);
        else
                paint_printf(to, color, PAINT_DIM, "exchanges with other daemons by %s %s%s%s\n",
                             text_or_empty(name), text_or_empty(version), library && *library ? ", " : "",
                             text_or_empty(library));
}

static void text_daemon_head(const struct snapshot *from, bool color, FILE *to) {
        const Wire__StatusDaemon *d = from->daemon;
        _cleanup_(freep) char *device = escape_text(d->device), *version = escape_text(d->version);
        _cleanup_(freep) char *simd = escape_text(d->simd), *path = escape_text(from->path);
        _cleanup_(freep) char *no_identity = escape_text(d->no_identity);
        char up[FORMAT_SIZE], bytes[FORMAT_SIZE];

        paint_printf(to, color, PAINT_BOLD, "gradsyncd %s on %s", text_or_empty(version),
                     text_or_empty(device));
        fprintf(to, ", up %s, pid %d: %u client%s, %u job%s\n", format_age(up, d->uptime_ms), d->pid,
                d->clients, format_plural(d->clients), d->jobs, format_plural(d->jobs));
        fprintf(to, "%s%s, %u worker%s", paint_on(color, PAINT_DIM), text_or_empty(path), d->workers,
                format_plural(d->workers));
        if (simd && *simd)
                fprintf(to, " (%s)", simd);
        if (d->arenas)
                fprintf(to, ", %s in %u arena%s", format_bytes(bytes, d->arena_bytes), d->arenas,
                        format_plural(d->arenas));
        fprintf(to, "%s\n", paint_off(color, PAINT_DIM));
        if (d->gpu)
                text_gpu(d->gpu, color, to);
        if (d->engine)
                text_engine(d->engine, color, to);
        if (no_identity && *no_identity)
                paint_printf(to, color, PAINT_DIM, "coordinates nothing beyond its own host: %s\n",
                             no_identity);
        if (d->draining)
                paint_line(to, "", color, PAINT_WARN,
                           "draining: no new jobs, members or steps until gradsyncctl resume");
        if (d->has_complete && !d->complete)
                paint_line(to, "", color, PAINT_DIM, "only your own jobs are shown");
}

/* Shows the connections that have trouble; `list links` shows all of them. */
static void text_trouble(const struct snapshot *from, bool color, FILE *to) {
        for (size_t i = 0; i < from->n_links; i++) {
                const Wire__StatusLink *l = from->link[i];
                _cleanup_(freep) char *address = escape_text(l->address), *why = escape_text(l->text);
                char age[FORMAT_SIZE];

                if (l->state && strcmp(l->state, "connected") == 0)
                        continue;
                paint_line(to, "", color, PAINT_WARN, "no connection to the %s at %s for %s: %s",
                           l->role && strcmp(l->role, "node") == 0 ? "node" : "coordinator",
                           text_or_empty(address), format_age(age, l->since_ms), text_or_empty(why));
        }
}

static void text_job_head(const Wire__StatusJob *j, bool color, FILE *to) {
        _cleanup_(freep) char *name = escape_text(j->name), *state = escape_text(j->state);
        char number[FORMAT_SIZE];

        fputc('\n', to);
        paint_printf(to, color, PAINT_BOLD, "%s", text_or_empty(name));
        fputs("  ", to);
        paint_printf(to, color, paint_state(j->state), "%s", text_or_empty(state));
        fprintf(to, ", step %" PRIu64, j->step);
        if (j->step_rate > 0)
                fprintf(to, ", %s", format_rate(number, j->step_rate));
        if (j->has_exposed)
                fprintf(to, ", %s exposed", format_share(number, j->exposed));
        if (j->has_norm && j->step > 0)
                fprintf(to, ", gradient norm %s", format_norm(number, j->norm));
        fputc('\n', to);
}

static void text_job_facts(const Wire__StatusJob *j, bool color, FILE *to) {
        char bytes[FORMAT_SIZE], reduced[FORMAT_SIZE], both[USER_SIZE];
        _cleanup_(freep) char *user = escape_text(user_show_both(both, j->uid));

        fprintf(to, "  world size %u, generation %u, %s", j->world, j->generation, text_or_empty(user));
        if (j->buckets)
                fprintf(to, ", %u bucket%s, %s a step, %s reduced", j->buckets, format_plural(j->buckets),
                        format_bytes(bytes, j->bytes), format_bytes(reduced, j->bytes_reduced));
        if (j->operations)
                fprintf(to, ", %" PRIu64 " operation%s", j->operations, format_plural(j->operations));
        if (j->void_steps) {
                fputs(", ", to);
                paint_printf(to, color, PAINT_WARN, "%" PRIu64 " void step%s", j->void_steps,
                             format_plural(j->void_steps));
        }
        if (j->nonfinite) {
                fputs(", ", to);
                paint_printf(to, color, PAINT_BAD, "%" PRIu64 " non-finite value%s", j->nonfinite,
                             format_plural(j->nonfinite));
        }
        fputc('\n', to);
}

/* How the GPUs of a job reach each other. One that takes the network to a GPU of its own host is slow. */
static void text_job_peers(const Wire__StatusJob *j, bool color, FILE *to) {
        char took[FORMAT_SIZE];

        if (!j->has_communicator_us)
                return;
        fprintf(to, "  connected in %s:", format_short(took, j->communicator_us));
        for (size_t i = 0; i < j->n_peers; i++) {
                const Wire__StatusPeer *p = j->peers[i];
                _cleanup_(freep) char *transport = escape_text(p->transport);
                bool bad = p->same_host && transport && strncmp(transport, "NET", 3) == 0;

                fputs(i > 0 ? ", " : " ", to);
                paint_printf(to, color, bad ? PAINT_WARN : PAINT_NONE, "node %u %s%s", p->node,
                             transport && *transport ? transport : "in a way that is not known",
                             bad ? ", though it is in the same host" : "");
        }
        fputc('\n', to);
}

/* Members that have given memory to the daemon, instead of getting some from it. */
static void text_job_places(const struct snapshot_job *job, FILE *to) {
        uint32_t placed = 0;

        for (size_t i = 0; i < job->n_plans; i++)
                placed = job->plan[i]->placed > placed ? job->plan[i]->placed : placed;
        if (placed > 0)
                fprintf(to, "  %u member%s %s gradients in memory of %s own\n", placed, format_plural(placed),
                        placed > 1 ? "have" : "has", placed > 1 ? "their" : "its");
}

static void text_job_nonfinite(const Wire__StatusJob *j, bool color, FILE *to) {
        _cleanup_(freep) char *parameter = escape_text(j->nonfinite_parameter);
        bool known = parameter && *parameter;
        char process[32] = "on another node";

        if (!j->has_nonfinite_step)
                return;
        if (j->has_nonfinite_pid)
                snprintf(process, sizeof(process), "pid %d", j->nonfinite_pid);
        paint_line(to, "  ", color, PAINT_BAD,
                   "step %" PRIu64 ": rank %u (%s) brought %" PRIu64 " non-finite value%s: bucket %u%s%s%s",
                   j->nonfinite_step, j->nonfinite_rank, process, j->nonfinite_values,
                   format_plural(j->nonfinite_values), j->nonfinite_bucket, known ? ", parameter \"" : "",
                   text_or_empty(parameter), known ? "\"" : "");
}

static const char *text_loss_cause(Wire__Cause cause) {
        switch (cause) {
        case WIRE__CAUSE__EXITED: return "its process ended";
        case WIRE__CAUSE__CLOSED: return "it closed its connection without leaving the job";
        case WIRE__CAUSE__EVICTED: return "it was evicted";
        case WIRE__CAUSE__UNREACHABLE: return "its daemon is not reached";
        default: return "it is gone";
        }
}

/* Which member was lost last, what that cost, and how fast the job was back. */
static void text_job_loss(const Wire__StatusJob *j, bool color, FILE *to) {
        char ago[FORMAT_SIZE], number[FORMAT_SIZE];

        if (!j->has_lost_rank)
                return;
        fprintf(to, "  %slost rank %u (pid %d) %s ago, after step %" PRIu64 ": %s; %" PRIu64 " step%s void",
                paint_on(color, PAINT_WARN), j->lost_rank, j->lost_pid, format_age(ago, j->lost_ago_ms),
                j->lost_step, text_loss_cause(j->lost_cause), j->lost_void_steps,
                format_plural(j->lost_void_steps));
        if (j->has_lost_void_us)
                fprintf(to, ", told after %s", format_short(number, j->lost_void_us));
        if (j->has_lost_filling_us)
                fprintf(to, " (%s for collectives under way)", format_short(number, j->lost_filling_us));
        if (j->has_lost_commit_us)
                fprintf(to, ", back after %s", format_short(number, j->lost_commit_us));
        else
                fputs(j->has_lost_newgen_us ? ", no step committed since" : ", not back yet", to);
        if (j->has_lost_successor)
                fprintf(to, " with pid %d in its place", j->lost_successor);
        else if (j->has_lost_newgen_us)
                fputs(" without it", to);
        fprintf(to, "%s\n", paint_off(color, PAINT_WARN));
}

static bool text_goes_on(const Wire__StatusJob *j) {
        return j->state && (strcmp(j->state, "running") == 0 || strcmp(j->state, "stalled") == 0 ||
                            strcmp(j->state, "paused") == 0);
}

static bool text_ordinary(const Wire__StatusMember *m) {
        return m->state && (strcmp(m->state, "computing") == 0 || strcmp(m->state, "waiting") == 0);
}

/* Members of a job on one daemon have no host. */
static bool text_has_hosts(const struct snapshot_job *job) {
        for (size_t i = 0; i < job->n_members; i++)
                if (job->member[i]->host)
                        return true;
        return false;
}

static void text_member_line(struct libscols_table *table, const Wire__StatusMember *m, bool hosts) {
        struct libscols_line *line = table_line(table);
        char share[FORMAT_SIZE], user[USER_SIZE];
        size_t cell = 0;

        if (m->unranked)
                table_text(line, &cell, "", PAINT_NONE);
        else
                table_printf(line, &cell, "%u", m->rank);
        if (hosts)
                table_text(line, &cell, m->host, PAINT_NONE);
        table_printf(line, &cell, "%d", m->pid);
        table_text(line, &cell, user_show(user, m->uid), PAINT_NONE);
        table_text(line, &cell, m->state, paint_state(m->state));
        table_printf(line, &cell, "%" PRIu64, m->step);
        table_text(line, &cell, m->has_exposed ? format_share(share, m->exposed) : "", PAINT_NONE);
        table_text(line, &cell, m->program, PAINT_NONE);
}

static void text_job_members(const struct snapshot_job *job, bool whole, bool color, FILE *to) {
        static const struct column columns[] = {
                { "RANK", true }, { "PID", true },     { "USER", false },    { "STATE", false },
                { "STEP", true }, { "EXPOSED", true }, { "PROGRAM", false },
        };
        static const struct column hosts_columns[] = {
                { "RANK", true },   { "HOST", false }, { "PID", true },     { "USER", false },
                { "STATE", false }, { "STEP", true },  { "EXPOSED", true }, { "PROGRAM", false },
        };
        bool hosts = text_has_hosts(job);
        size_t left_out = 0;

        if (job->n_members == 0)
                return;
        struct libscols_table *table = hosts ? table_new(hosts_columns, array_size(hosts_columns), color)
                                             : table_new(columns, array_size(columns), color);
        for (size_t i = 0; i < job->n_members; i++) {
                if (!whole && job->n_members > MANY_MEMBERS && text_ordinary(job->member[i]))
                        left_out++;
                else
                        text_member_line(table, job->member[i], hosts);
        }
        if (left_out < job->n_members)
                table_print(table, "  ", to);
        else
                scols_unref_table(table);
        if (left_out)
                fprintf(to, "  %zu member%s computing or waiting as usual\n", left_out,
                        format_plural(left_out));
}

/* The task of a member for which others wait, as in "waiting for rank 1 to join"; "" for a step, whose bucket
 * says it. */
static const char *text_wait_purpose(const char *what) {
        static const struct {
                const char *what, *purpose;
        } purposes[] = {
                { "step", "" },
                { "join", " to join" },
                { "plan", " to agree on a plan" },
                { "operation", " to take part in an operation" },
        };

        for (size_t i = 0; what && i < array_size(purposes); i++)
                if (strcmp(purposes[i].what, what) == 0)
                        return purposes[i].purpose;
        return "";
}

char *text_wait(const Wire__StatusWait *wait) {
        _cleanup_(freep) char *state = escape_text(wait->process_state),
                              *parameter = escape_text(wait->parameter), *other = escape_text(wait->text),
                              *host = escape_text(wait->host);
        bool process = wait->has_pid && wait->pid > 0,
             bucket = wait->has_bucket && snapshot_wait_is_step(wait);
        char since[FORMAT_SIZE], *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        if (!to)
                return NULL;
        fprintf(to, "waiting %s for ", format_age(since, wait->since_ms));
        if (other && *other) {
                fputs(other, to);
                fclose(to);
                return text;
        }
        fprintf(to, "rank %u", wait->rank);
        if (host && *host)
                fprintf(to, " on host %s", host);
        if (process)
                fprintf(to, " (pid %d%s%s)", wait->pid, state && *state ? ", " : "", text_or_empty(state));
        fputs(text_wait_purpose(wait->what), to);
        if (bucket)
                fprintf(to, ": bucket %u", wait->bucket);
        if (parameter && *parameter)
                fprintf(to, "%s parameter \"%s\"", bucket ? "," : ":", parameter);
        fclose(to);
        return text;
}

static void text_job_waits(const struct snapshot_job *job, bool color, FILE *to) {
        for (size_t i = 0; i < job->n_waits && i < MANY_WAITS; i++) {
                _cleanup_(freep) char *text = text_wait(job->wait[i]);
                paint_line(to, "  ", color, PAINT_WARN, "%s", text_or_empty(text));
        }
        if (job->n_waits > MANY_WAITS)
                fprintf(to, "  and for %zu more\n", job->n_waits - MANY_WAITS);
}

static void text_missing_members(const struct snapshot_job *job, bool color, FILE *to) {
        const Wire__StatusJob *j = job->job;

        if (!j->state || strcmp(j->state, "forming") != 0 || j->world <= job->n_members)
                return;
        paint_line(to, "  ", color, PAINT_WARN, "waiting for %zu more member%s to join",
                   j->world - job->n_members, format_plural(j->world - job->n_members));
}

static void text_job(const struct snapshot_job *job, bool whole, bool color, FILE *to) {
        _cleanup_(freep) char *why = escape_text(job->job->text);

        text_job_head(job->job, color, to);
        text_job_facts(job->job, color, to);
        text_job_peers(job->job, color, to);
        text_job_places(job, to);
        text_job_nonfinite(job->job, color, to);
        text_job_members(job, whole, color, to);
        text_job_loss(job->job, color, to);
        /* After a job has recovered from a loss, the reason why it was held up is no longer shown. */
        if (why && *why && !(job->job->has_lost_rank && text_goes_on(job->job)))
                fprintf(to, "  %s\n", why);
        text_missing_members(job, color, to);
        text_job_waits(job, color, to);
}

void text_status(const struct observation *observation, bool whole, bool color, FILE *to) {
        for (size_t i = 0; i < observation->n; i++) {
                const struct snapshot *snapshot = &observation->snapshot[i];
                if (i > 0)
                        fputc('\n', to);
                text_daemon_head(snapshot, color, to);
                text_trouble(snapshot, color, to);
                for (size_t k = 0; k < snapshot->n_jobs; k++)
                        text_job(&snapshot->job[k], whole, color, to);
        }
}

static void text_jobs_line(struct libscols_table *table, const struct snapshot *from,
                           const struct snapshot_job *job) {
        struct libscols_line *line = table_line(table);
        const Wire__StatusJob *j = job->job;
        char number[FORMAT_SIZE], user[USER_SIZE];
        size_t cell = 0;

        table_text(line, &cell, j->name, PAINT_NONE);
        table_text(line, &cell, user_show(user, j->uid), PAINT_NONE);
        table_text(line, &cell, from->daemon->device, PAINT_NONE);
        table_text(line, &cell, j->state, paint_state(j->state));
        table_printf(line, &cell, "%zu/%u", snapshot_places(job), j->world);
        table_printf(line, &cell, "%u", j->generation);
        table_printf(line, &cell, "%" PRIu64, j->step);
        table_text(line, &cell, j->step_rate > 0 ? format_rate(number, j->step_rate) : "", PAINT_NONE);
        table_text(line, &cell, format_bytes(number, j->bytes), PAINT_NONE);
}

void text_jobs(const struct observation *observation, bool color, FILE *to) {
        static const struct column columns[] = {
                { "JOB", false },   { "USER", false },   { "DEVICE", false },
                { "STATE", false }, { "MEMBERS", true }, { "GENERATION", true },
                { "STEP", true },   { "RATE", true },    { "BYTES", true },
        };
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_jobs; k++)
                        text_jobs_line(table, &observation->snapshot[i], &observation->snapshot[i].job[k]);
        table_print(table, "", to);
}

void text_ended(const struct ended_jobs *jobs, bool color, FILE *to) {
        static const struct column columns[] = {
                { "JOB", false },    { "USER", false }, { "DEVICE", false }, { "ENDED", true },
                { "MEMBERS", true }, { "STEP", true },  { "REASON", false }, { "WHY", false },
        };
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        for (size_t i = 0; i < jobs->n; i++) {
                const Wire__StatusEnded *row = jobs->job[i].row;
                struct libscols_line *line = table_line(table);
                bool fine = row->reason && strcmp(row->reason, "left") == 0;
                char age[FORMAT_SIZE], user[USER_SIZE];
                size_t cell = 0;

                table_text(line, &cell, row->name, PAINT_NONE);
                table_text(line, &cell, user_show(user, row->uid), PAINT_NONE);
                table_text(line, &cell, jobs->job[i].device, PAINT_NONE);
                table_printf(line, &cell, "%s ago", format_age(age, row->ago_ms));
                table_printf(line, &cell, "%u", row->world);
                table_printf(line, &cell, "%" PRIu64, row->step);
                table_text(line, &cell, row->reason, fine ? PAINT_GOOD : PAINT_WARN);
                table_text(line, &cell, row->text, PAINT_NONE);
        }
        table_print(table, "", to);
}

void text_clients(const struct observation *observation, bool color, FILE *to) {
        static const struct column columns[] = {
                { "PID", true },      { "USER", false },     { "DEVICE", false }, { "PROGRAM", false },
                { "LIBRARY", false }, { "CONNECTED", true }, { "JOBS", true },
        };
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_clients; k++) {
                        const Wire__StatusClient *c = observation->snapshot[i].client[k];
                        struct libscols_line *line = table_line(table);
                        char age[FORMAT_SIZE], user[USER_SIZE];
                        size_t cell = 0;
                        table_printf(line, &cell, "%d", c->pid);
                        table_text(line, &cell, user_show(user, c->uid), PAINT_NONE);
                        table_text(line, &cell, observation->snapshot[i].daemon->device, PAINT_NONE);
                        table_text(line, &cell, c->program, PAINT_NONE);
                        table_text(line, &cell, c->library, PAINT_NONE);
                        table_text(line, &cell, format_age(age, c->connected_ms), PAINT_NONE);
                        table_printf(line, &cell, "%u", c->jobs);
                }
        table_print(table, "", to);
}

static void text_links_line(struct libscols_table *table, const struct snapshot *from,
                            const Wire__StatusLink *l) {
        struct libscols_line *line = table_line(table);
        bool up = l->state && strcmp(l->state, "connected") == 0;
        char number[FORMAT_SIZE];
        size_t cell = 0;

        table_text(line, &cell, from->daemon->device, PAINT_NONE);
        table_text(line, &cell, l->role, PAINT_NONE);
        table_text(line, &cell, l->host, PAINT_NONE);
        table_text(line, &cell, l->address, PAINT_NONE);
        table_printf(line, &cell, "%.8s", text_or_empty(l->node));
        table_text(line, &cell, l->state, up ? PAINT_GOOD : PAINT_WARN);
        table_text(line, &cell, format_age(number, l->since_ms), PAINT_NONE);
        table_text(line, &cell, l->has_heard_ms ? format_age(number, l->heard_ms) : "", PAINT_NONE);
        table_text(line, &cell, l->has_round_trip_us ? format_short(number, l->round_trip_us) : "",
                   PAINT_NONE);
        if (l->has_wall_us)
                table_printf(line, &cell, "%+.1f ms", (double)l->wall_us / 1e3);
        else
                table_text(line, &cell, "", PAINT_NONE);
        table_text(line, &cell, l->key, PAINT_NONE);
        table_text(line, &cell, format_bytes(number, l->sent), PAINT_NONE);
        table_text(line, &cell, format_bytes(number, l->received), PAINT_NONE);
}

void text_links(const struct observation *observation, bool color, FILE *to) {
        static const struct column columns[] = {
                { "DEVICE", false },  { "TO", false },    { "HOST", false }, { "ADDRESS", false },
                { "NODE", false },    { "STATE", false }, { "SINCE", true }, { "HEARD", true },
                { "TRIP", true },     { "CLOCK", true },  { "KEY", false },  { "SENT", true },
                { "RECEIVED", true },
        };
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_links; k++)
                        text_links_line(table, &observation->snapshot[i], observation->snapshot[i].link[k]);
        table_print(table, "", to);
}
