/* SPDX-License-Identifier: Apache-2.0 */
/* The families of metrics, one table row each. Names follow the practice of Prometheus: base units, _total on
 * counters, and the daemon's device on each sample, so that the samples of several daemons of a host can be
 * put together. */
#include "proto/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/cleanup.h"
#include "proto/frame.h"
#include "proto/names.h"

const char *const metrics_classes[] = { "1e-05", "2.5e-05", "5e-05", "0.0001", "0.00025", "0.0005",
                                        "0.001", "0.0025",  "0.005", "0.01",   "0.025",   "0.05",
                                        "0.1",   "0.25",    "1.0",   "10.0",   "+Inf" };
const size_t metrics_n_classes = array_size(metrics_classes);
const char *const metrics_recovery_classes[] = { "0.001", "0.005", "0.01", "0.025", "0.05",
                                                 "0.1",   "0.25",  "0.5",  "1.0",   "2.5",
                                                 "5.0",   "10.0",  "30.0", "60.0",  "+Inf" };
const size_t metrics_n_recovery_classes = array_size(metrics_recovery_classes);

const char *const metrics_states[METRICS_STATES] = { "forming",   "running", "stalled", "paused",
                                                     "replacing", "lost",    "ended" };

static void metrics_write_double(const struct metrics_out *to, double value) {
        if (isnan(value))
                fputs("NaN\n", to->file);
        else if (isinf(value))
                fputs(value > 0 ? "+Inf\n" : "-Inf\n", to->file);
        else
                fprintf(to->file, "%.9g\n", value);
}

static void metrics_write_seconds(const struct metrics_out *to, uint64_t us) {
        fprintf(to->file, "%" PRIu64 ".%06u\n", us / 1000000, (unsigned)(us % 1000000));
}

/* Labels show \\xNN for bytes that could deceive their reader. */
static void metrics_write_escaped(const struct metrics_out *to, const char *text) {
        size_t left = text != NULL ? strlen(text) : 0, length;
        uint32_t point;

        for (; left > 0; text += length, left -= length) {
                length = utf8_decode(text, left, &point);
                if (length == 1 && (*text == '\\' || *text == '"')) {
                        fprintf(to->file, "\\%c", *text);
                } else if (length == 1 && *text == '\n') {
                        fputs("\\n", to->file);
                } else if (length > 0 && !text_is_deceptive(point)) {
                        fwrite(text, 1, length, to->file);
                } else {
                        length = length > 0 ? length : 1;
                        for (size_t i = 0; i < length; i++)
                                fprintf(to->file, "\\\\x%02x", (unsigned)(unsigned char)text[i]);
                }
        }
}

/* `name{device="…"`; the caller adds labels and closes the brace. */
static void metrics_begin(const struct metrics_out *to, const char *name) {
        fprintf(to->file, "gradsync_%s{device=\"", name);
        metrics_write_escaped(to, to->device);
        fputs("\"", to->file);
}

/* `name{device="…",job_name="…",uid="…"`; the sum of all jobs has neither a name nor a uid. */
static void metrics_begin_job(const struct metrics_out *to, const char *name,
                              const struct metrics_job *from) {
        metrics_begin(to, name);
        if (from->together)
                return;
        fputs(",job_name=\"", to->file);
        metrics_write_escaped(to, from->job->name);
        fprintf(to->file, "\",uid=\"%u\"", from->job->uid);
}

static void metrics_job_count(const struct metrics_out *to, const char *name, const struct metrics_job *from,
                              const char *labels, uint64_t value) {
        metrics_begin_job(to, name, from);
        fprintf(to->file, "%s} %" PRIu64 "\n", labels, value);
}

static void metrics_job_seconds(const struct metrics_out *to, const char *name,
                                const struct metrics_job *from, uint64_t us) {
        metrics_begin_job(to, name, from);
        fputs("} ", to->file);
        metrics_write_seconds(to, us);
}

static void metrics_write_state(const struct metrics_out *to, const struct metrics_job *from) {
        for (size_t i = 0; i < METRICS_STATES; i++) {
                metrics_begin_job(to, "job_state", from);
                fprintf(to->file, ",gradsync_job_state=\"%s\"} %d\n", metrics_states[i],
                        from->job->state != NULL && strcmp(from->job->state, metrics_states[i]) == 0);
        }
}

static void metrics_write_world(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "world_size", from, "", from->job->world);
}

static void metrics_write_members(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "members", from, "", from->n_members);
}

static void metrics_write_spares(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "spares", from, "", from->n_spares);
}

static void metrics_write_generation(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "generation", from, "", from->job->generation);
}

static void metrics_write_steps(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "steps_total", from, ",outcome=\"committed\"", from->job->committed);
        metrics_job_count(to, "steps_total", from, ",outcome=\"void\"", from->job->void_steps);
}

static void metrics_write_step_duration(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "step_duration_seconds_count", from, "", from->job->committed);
        metrics_job_seconds(to, "step_duration_seconds_sum", from, from->job->step_us);
}

static void metrics_write_histogram(const struct metrics_out *to, const char *name,
                                    const struct metrics_job *from, const char *const *bounds,
                                    size_t n_bounds, const uint64_t *counts, size_t n_counts, uint64_t us) {
        char label[32], series[64];
        uint64_t sum = 0;

        snprintf(series, sizeof(series), "%s_bucket", name);
        for (size_t i = 0; i < n_bounds; i++) {
                sum += i < n_counts ? counts[i] : 0;
                snprintf(label, sizeof(label), ",le=\"%s\"", bounds[i]);
                metrics_job_count(to, series, from, label, sum);
        }
        snprintf(series, sizeof(series), "%s_count", name);
        metrics_job_count(to, series, from, "", sum);
        snprintf(series, sizeof(series), "%s_sum", name);
        metrics_job_seconds(to, series, from, us);
}

static void metrics_write_collective_duration(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_write_histogram(to, "collective_duration_seconds", from, metrics_classes, metrics_n_classes,
                                from->job->reduce_class, from->job->n_reduce_class, from->job->reduce_us);
}

static void metrics_write_recovery(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_write_histogram(to, "recovery_seconds", from, metrics_recovery_classes,
                                metrics_n_recovery_classes, from->job->recovery_class,
                                from->job->n_recovery_class, from->job->recovery_us);
}

/* Writes all reasons, so that each series exists before it first counts. */
static void metrics_write_rebuilds(const struct metrics_out *to, const struct metrics_job *from) {
        uint64_t other = 0;
        char label[64];

        for (unsigned cause = 0; cause < LIMIT_CAUSES; cause++) {
                uint64_t n = cause < from->job->n_rebuilds ? from->job->rebuilds[cause] : 0;

                if (strcmp(cause_name(cause), "?") == 0) {
                        other += n;
                        continue;
                }
                snprintf(label, sizeof(label), ",reason=\"%s\"", cause_name(cause));
                metrics_job_count(to, "rebuilds_total", from, label, n);
        }
        if (other > 0)
                metrics_job_count(to, "rebuilds_total", from, ",reason=\"other\"", other);
}

static void metrics_write_bytes(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "bytes_reduced_total", from, "", from->job->bytes_reduced);
}

/* Counts as nccl-tests do: the bytes that each of n members would have to move. */
static void metrics_write_bandwidth(const struct metrics_out *to, const struct metrics_job *from) {
        const Wire__StatusJob *job = from->job;
        double share = job->world > 0 ? 2.0 * (job->world - 1) / job->world : 0;

        metrics_begin_job(to, "bus_bandwidth_bytes_per_second", from);
        fputs("} ", to->file);
        metrics_write_double(to, job->reduce_us > 0
                                         ? (double)job->bytes_reduced * share / ((double)job->reduce_us / 1e6)
                                         : 0);
}

static void metrics_write_wait(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_seconds(to, "wait_seconds_total", from, from->job->wait_us);
}

static void metrics_write_operations(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "operations_total", from, "", from->job->operations);
}

static void metrics_write_communicators(const struct metrics_out *to, const struct metrics_job *from) {
        if (from->job->has_communicators)
                metrics_job_count(to, "communicators_total", from, "", from->job->communicators);
}

static void metrics_write_norm(const struct metrics_out *to, const struct metrics_job *from) {
        if (from->job->step == 0)
                return;
        metrics_begin_job(to, "gradient_norm", from);
        fputs("} ", to->file);
        metrics_write_double(to, from->job->norm);
}

static void metrics_write_nonfinite(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_job_count(to, "nonfinite_steps_total", from, "", from->job->nonfinite_steps);
}

static void metrics_write_by_rank(const struct metrics_out *to, const char *name,
                                  const struct metrics_job *from) {
        for (size_t i = 0; i < from->n_ranks; i++) {
                metrics_begin_job(to, name, from);
                fprintf(to->file, ",rank=\"%u\"} ", from->rank[i].rank);
                metrics_write_seconds(to, from->rank[i].us);
        }
}

static void metrics_write_lateness(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_write_by_rank(to, "rank_lateness_seconds_total", from);
}

static void metrics_write_exposed(const struct metrics_out *to, const struct metrics_job *from) {
        metrics_write_by_rank(to, "exposed_seconds_total", from);
}

static const struct {
        const char *name, *type, *help;
        void (*write)(const struct metrics_out *to, const struct metrics_job *job);
        bool sums; /* over jobs, too */
} families[] = {
        { "job_state", "gauge", "State of the job.", metrics_write_state, false },
        { "world_size", "gauge", "Members that the job has, or wants while it forms.", metrics_write_world,
          true },
        { "members", "gauge", "Members that are there.", metrics_write_members, true },
        { "spares", "gauge", "Processes that wait for the place of a member that is lost.",
          metrics_write_spares, true },
        { "generation", "gauge", "Number of the membership of the job.", metrics_write_generation, false },
        { "rebuilds_total", "counter", "Generations behind the first one, by what ended the one before.",
          metrics_write_rebuilds, true },
        { "recovery_seconds", "histogram",
          "Lost members, by the time from the loss to the next committed step.", metrics_write_recovery,
          true },
        { "steps_total", "counter", "Steps that have ended.", metrics_write_steps, true },
        { "step_duration_seconds", "summary", "Committed steps, from the first READY to the commit.",
          metrics_write_step_duration, true },
        { "collective_duration_seconds", "histogram",
          "Reductions of buckets, from the last READY to the result.", metrics_write_collective_duration,
          true },
        { "bytes_reduced_total", "counter", "Payload that committed steps have reduced.", metrics_write_bytes,
          true },
        { "bus_bandwidth_bytes_per_second", "gauge",
          "Payload of committed steps by the time of all reductions, times 2(n-1)/n, since the job began.",
          metrics_write_bandwidth, false },
        { "wait_seconds_total", "counter",
          "Time of members from READY to the start of the reduction, over all buckets.", metrics_write_wait,
          true },
        { "operations_total", "counter", "Collectives outside of steps.", metrics_write_operations, true },
        { "communicators_total", "counter", "Communicators that were begun between the daemons of the job.",
          metrics_write_communicators, true },
        { "gradient_norm", "gauge", "Norm of the averaged gradient of the last committed step.",
          metrics_write_norm, false },
        { "nonfinite_steps_total", "counter",
          "Committed steps with a value in some input that was not finite.", metrics_write_nonfinite, true },
        { "rank_lateness_seconds_total", "counter",
          "How much later than the first READY of a bucket came that of the rank, over all buckets.",
          metrics_write_lateness, false },
        { "exposed_seconds_total", "counter",
          "Time that the member was blocked on gradsync, as its library says.", metrics_write_exposed,
          false },
};
const size_t metrics_n_families = array_size(families);

static void metrics_head(const struct metrics_out *to, const char *name, const char *type, const char *help) {
        fprintf(to->file, "# TYPE gradsync_%s %s\n# HELP gradsync_%s %s\n", name, type, name, help);
}

/* Writes a sample with at most one label: "", or `,name="value"`. */
static void metrics_sample(const struct metrics_out *to, const char *name, const char *label,
                           uint64_t value) {
        metrics_begin(to, name);
        fprintf(to->file, "%s} %" PRIu64 "\n", label, value);
}

static void metrics_sample_seconds(const struct metrics_out *to, const char *name, const char *label,
                                   uint64_t us) {
        metrics_begin(to, name);
        fprintf(to->file, "%s} ", label);
        metrics_write_seconds(to, us);
}

static void metrics_gauge(const struct metrics_out *to, const char *name, const char *help, uint64_t value) {
        metrics_head(to, name, "gauge", help);
        metrics_sample(to, name, "", value);
}

/* A caller that may not know the refusals gets no sample: a zero would be a lie. */
static void metrics_write_refusals(const struct metrics_out *to, const Wire__StatusDaemon *daemon) {
        const struct {
                const char *resource;
                protobuf_c_boolean known;
                uint64_t n;
        } quotas[] = {
                { "clients", daemon->has_refused_clients, daemon->refused_clients },
                { "connects", daemon->has_refused_connects, daemon->refused_connects },
                { "uids", daemon->has_refused_uids, daemon->refused_uids },
                { "jobs", daemon->has_refused_jobs, daemon->refused_jobs },
                { "arenas", daemon->has_refused_arenas, daemon->refused_arenas },
                { "fds", daemon->has_refused_fds, daemon->refused_fds },
                { "bytes", daemon->has_refused_bytes, daemon->refused_bytes },
                { "plan_bytes", daemon->has_refused_plans, daemon->refused_plans },
                { "daemon_bytes", daemon->has_refused_own, daemon->refused_own },
                { "device_bytes", daemon->has_refused_device, daemon->refused_device },
        };
        char label[64];

        metrics_head(to, "quota_rejections_total", "counter",
                     "Requests that were refused because of a limit of their uid.");
        for (size_t i = 0; i < array_size(quotas); i++) {
                snprintf(label, sizeof(label), ",resource=\"%s\"", quotas[i].resource);
                if (quotas[i].known)
                        metrics_sample(to, "quota_rejections_total", label, quotas[i].n);
        }
        metrics_head(to, "auth_failures_total", "counter",
                     "Connections, joins and orders of somebody who may not.");
        if (daemon->has_denied)
                metrics_sample(to, "auth_failures_total", "", daemon->denied);
}

static void metrics_counter(const struct metrics_out *to, const char *name, const char *help,
                            uint64_t value) {
        metrics_head(to, name, "counter", help);
        metrics_sample(to, name, "", value);
}

/* Called only for a daemon with a cluster. */
static void metrics_write_links(const struct metrics_out *to, const Wire__StatusLinks *links) {
        static const char *const reasons[] = {
                "key", "uid", "version", "identity", "protocol", "late", "many"
        };
        char label[64];

        metrics_gauge(to, "link_connections", "Connections to other daemons.", links->connects - links->ends);
        metrics_counter(to, "link_connects_total", "Connections to other daemons that were up.",
                        links->connects);
        metrics_counter(to, "link_sent_bytes_total", "Bytes of messages to other daemons.", links->sent);
        metrics_counter(to, "link_received_bytes_total", "Bytes of messages from other daemons.",
                        links->received);
        metrics_head(to, "link_refusals_total", "counter", "Connections that were turned away.");
        for (size_t i = 0; i < array_size(reasons); i++) {
                snprintf(label, sizeof(label), ",reason=\"%s\"", reasons[i]);
                metrics_sample(to, "link_refusals_total", label,
                               i + 1 < links->n_refused ? links->refused[i + 1] : 0);
        }
}

/* Metrics with the meanings that Prometheus has for processes of any kind. The names are gradsync's own: a
 * collector that reads files has metrics of its own process with the usual names. */
static void metrics_write_process(const struct metrics_out *to, const Wire__StatusDaemon *daemon) {
        const struct {
                const char *name, *type, *help;
                protobuf_c_boolean known;
                uint64_t value;
        } rows[] = {
                { "process_start_time_seconds", "gauge", "When the daemon started, in seconds since 1970.",
                  daemon->has_process_start_time, daemon->process_start_time * 1000000 },
                { "process_cpu_seconds_total", "counter", "CPU time of the daemon.",
                  daemon->has_process_cpu_us, daemon->process_cpu_us },
                { "process_resident_memory_bytes", "gauge",
                  "Resident memory, which includes what it has of the members' arenas.",
                  daemon->has_process_resident_bytes, daemon->process_resident_bytes },
                { "process_virtual_memory_bytes", "gauge", "Address space.",
                  daemon->has_process_virtual_bytes, daemon->process_virtual_bytes },
                { "process_open_fds", "gauge", "Open file descriptors.", daemon->has_process_open_fds,
                  daemon->process_open_fds },
                { "process_max_fds", "gauge", "The limit of open file descriptors.",
                  daemon->has_process_max_fds, daemon->process_max_fds },
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                const char *name = rows[i].name;

                if (!rows[i].known)
                        continue;
                metrics_head(to, name, rows[i].type, rows[i].help);
                if (strstr(name, "_seconds") != NULL)
                        metrics_sample_seconds(to, name, "", rows[i].value);
                else
                        metrics_sample(to, name, "", rows[i].value);
        }
}

void metrics_write_daemon(const struct metrics_out *to, const Wire__StatusDaemon *daemon) {
        metrics_head(to, "build_info", "gauge", "The daemon.");
        metrics_begin(to, "build_info");
        fputs(",version=\"", to->file);
        metrics_write_escaped(to, daemon->version);
        fputs("\",simd=\"", to->file);
        metrics_write_escaped(to, daemon->simd);
        fputs("\"} 1\n", to->file);
        metrics_head(to, "uptime_seconds", "gauge", "Time since the daemon started.");
        metrics_sample_seconds(to, "uptime_seconds", "", daemon->uptime_ms * 1000);
        metrics_gauge(to, "workers", "Threads that reduce.", daemon->workers);
        metrics_gauge(to, "clients", "Processes of trainers that are connected.", daemon->clients);
        metrics_gauge(to, "jobs", "Jobs.", daemon->jobs);
        metrics_gauge(to, "arenas", "Arenas and staging memories.", daemon->arenas);
        metrics_gauge(to, "arena_bytes", "Bytes of these.", daemon->arena_bytes);
        if (daemon->has_own_bytes)
                metrics_gauge(to, "own_bytes", "Memory that is the daemon's own.", daemon->own_bytes);
        if (daemon->gpu != NULL) {
                metrics_gauge(to, "gpu_memory_bytes", "Memory of the GPU.", daemon->gpu->bytes);
                metrics_gauge(to, "gpu_memory_free_bytes", "What nobody has taken of it.",
                              daemon->gpu->free_bytes);
                metrics_gauge(to, "gpu_arena_bytes", "Arenas and registered buffers on the GPU.",
                              daemon->gpu->arena_bytes);
        }
        metrics_head(to, "cpu_seconds_total", "counter", "CPU time of the daemon's threads.");
        metrics_sample_seconds(to, "cpu_seconds_total", ",thread=\"loop\"", daemon->loop_cpu_us);
        metrics_sample_seconds(to, "cpu_seconds_total", ",thread=\"worker\"", daemon->worker_cpu_us);
        metrics_write_refusals(to, daemon);
        if (daemon->links != NULL)
                metrics_write_links(to, daemon->links);
        metrics_write_process(to, daemon);
}

enum metrics_need metrics_needs(size_t family) {
        if (families[family].write == metrics_write_state)
                return METRICS_STATE;
        if (families[family].write == metrics_write_lateness)
                return METRICS_LATE;
        return families[family].write == metrics_write_exposed ? METRICS_EXPOSED : METRICS_TOTALS;
}

void metrics_begin_family(const struct metrics_out *to, size_t family) {
        metrics_head(to, families[family].name, families[family].type, families[family].help);
}

void metrics_write_job(const struct metrics_out *to, size_t family, const struct metrics_job *job) {
        families[family].write(to, job);
}

bool metrics_has_sum(size_t family) {
        return families[family].sums;
}

void metrics_write_states(const struct metrics_out *to, const uint64_t *jobs) {
        char label[64];

        metrics_head(to, "jobs_in_state", "gauge", "Jobs by their state.");
        for (size_t i = 0; i < METRICS_STATES; i++) {
                snprintf(label, sizeof(label), ",state=\"%s\"", metrics_states[i]);
                metrics_sample(to, "jobs_in_state", label, jobs[i]);
        }
}
