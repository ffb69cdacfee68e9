// SPDX-License-Identifier: Apache-2.0
/* The documents of `--json`: see json.h. Values that are absent or that JSON has no word for (nan, inf)
 * become null. */
#include <math.h>
#include <string.h>

#include "escape.h"
#include "json.h"
#include "proto/names.h"
#include "text.h"

static json_t *text(const char *value) {
        if (!value)
                return json_null();
        json_t *string = json_string(value);
        if (string)
                return string;
        _cleanup_(freep) char *shown = escape_text(value); /* not UTF-8 */
        return shown ? json_string(shown) : NULL;
}

/* "" says as little as nothing. */
static json_t *known_text(const char *value) {
        return text(value && *value ? value : NULL);
}

static json_t *whole(bool present, uint64_t value) {
        if (!present)
                return json_null();
        return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *real(bool present, double value) {
        return present && isfinite(value) ? json_real(value) : json_null();
}

#define TEXT(from, field) text((from)->field)
#define WHOLE(from, field) whole((from)->has_##field, (uint64_t)(from)->field)
#define REAL(from, field) real((from)->has_##field, (from)->field)
#define BOOLEAN(from, field) json_boolean((from)->has_##field && (from)->field)

/* Sets a field; takes the value. What could not be made spoils the whole object: it becomes NULL. */
static void put(json_t **object, const char *key, json_t *value) {
        if (!*object) {
                json_decref(value);
        } else if (json_object_set_new(*object, key, value) < 0) {
                json_decref(*object);
                *object = NULL;
        }
}

static void append(json_t **array, json_t *value) {
        if (!*array) {
                json_decref(value);
        } else if (json_array_append_new(*array, value) < 0) {
                json_decref(*array);
                *array = NULL;
        }
}

static json_t *daemon_object(const struct snapshot *snapshot) {
        const Wire__StatusDaemon *d = snapshot->daemon;
        json_t *object = json_object();

        put(&object, "device", TEXT(d, device));
        put(&object, "version", TEXT(d, version));
        put(&object, "pid", WHOLE(d, pid));
        put(&object, "uid", WHOLE(d, uid));
        put(&object, "uptime_ms", WHOLE(d, uptime_ms));
        put(&object, "socket", text(snapshot->path));
        put(&object, "clients", WHOLE(d, clients));
        put(&object, "jobs", WHOLE(d, jobs));
        put(&object, "workers", WHOLE(d, workers));
        put(&object, "simd", TEXT(d, simd));
        put(&object, "arenas", WHOLE(d, arenas));
        put(&object, "arena_bytes", WHOLE(d, arena_bytes));
        put(&object, "loop_cpu_us", WHOLE(d, loop_cpu_us));
        put(&object, "worker_cpu_us", WHOLE(d, worker_cpu_us));
        put(&object, "complete", BOOLEAN(d, complete));
        put(&object, "draining", BOOLEAN(d, draining));
        return object;
}

static json_t *client_object(const struct snapshot *snapshot, const Wire__StatusClient *c) {
        json_t *object = json_object();

        put(&object, "pid", WHOLE(c, pid));
        put(&object, "uid", WHOLE(c, uid));
        put(&object, "gid", WHOLE(c, gid));
        put(&object, "device", TEXT(snapshot->daemon, device));
        put(&object, "program", TEXT(c, program));
        put(&object, "library", TEXT(c, library));
        put(&object, "connected_ms", WHOLE(c, connected_ms));
        put(&object, "jobs", WHOLE(c, jobs));
        return object;
}

static json_t *member_object(const Wire__StatusMember *m) {
        bool ranked = m->has_rank && !m->unranked;
        json_t *object = json_object();

        put(&object, "rank", whole(ranked, m->rank));
        put(&object, "local_rank", whole(ranked && m->has_local_rank, m->local_rank));
        put(&object, "pid", WHOLE(m, pid));
        put(&object, "uid", WHOLE(m, uid));
        put(&object, "state", TEXT(m, state));
        put(&object, "step", whole(true, m->step));
        put(&object, "process_state", TEXT(m, process_state));
        put(&object, "program", TEXT(m, program));
        put(&object, "exposed", REAL(m, exposed));
        return object;
}

static json_t *plan_object(const Wire__StatusPlan *p) {
        json_t *object = json_object();

        put(&object, "plan", WHOLE(p, plan));
        put(&object, "step", whole(true, p->step));
        put(&object, "parameters", WHOLE(p, params));
        put(&object, "buckets", WHOLE(p, buckets));
        put(&object, "bytes", WHOLE(p, bytes));
        put(&object, "arena_bytes", WHOLE(p, arena_bytes));
        put(&object, "reduce", TEXT(p, reduce));
        put(&object, "open", BOOLEAN(p, open));
        return object;
}

static json_t *wait_object(const Wire__StatusWait *w) {
        bool step = text_wait_is_step(w), plan = step || strcmp(w->what, "plan") == 0;
        json_t *object = json_object();

        put(&object, "rank", WHOLE(w, rank));
        put(&object, "pid", whole(w->has_pid && w->pid > 0, (uint64_t)w->pid));
        put(&object, "process_state", TEXT(w, process_state));
        put(&object, "what", TEXT(w, what));
        put(&object, "plan", whole(plan && w->has_plan, w->plan));
        put(&object, "bucket", whole(step && w->has_bucket, w->bucket));
        put(&object, "parameter", known_text(w->parameter));
        put(&object, "step", whole(step && w->has_step, w->step));
        put(&object, "since_ms", WHOLE(w, since_ms));
        return object;
}

/* An array of what `make` says about each entry. */
#define ARRAY(list, n, make)                                                                                 \
        ({                                                                                                   \
                json_t *array_ = json_array();                                                               \
                for (size_t i_ = 0; i_ < (n); i_++)                                                          \
                        append(&array_, make((list)[i_]));                                                   \
                array_;                                                                                      \
        })

/* How the latest burst of values that are not finite began. */
static json_t *nonfinite_object(const Wire__StatusJob *j) {
        if (!j->has_nonfinite_step)
                return json_null();
        json_t *object = json_object();

        put(&object, "step", WHOLE(j, nonfinite_step));
        put(&object, "rank", WHOLE(j, nonfinite_rank));
        put(&object, "pid", WHOLE(j, nonfinite_pid));
        put(&object, "plan", WHOLE(j, nonfinite_plan));
        put(&object, "bucket", WHOLE(j, nonfinite_bucket));
        put(&object, "parameter", known_text(j->nonfinite_parameter));
        put(&object, "values", WHOLE(j, nonfinite_values));
        return object;
}

static json_t *milliseconds(bool present, uint64_t us) {
        return real(present, (double)us / 1e3);
}

/* The member that was lost last, and how the job went on. */
static json_t *loss_object(const Wire__StatusJob *j) {
        if (!j->has_lost_rank)
                return json_null();
        json_t *object = json_object();

        put(&object, "rank", WHOLE(j, lost_rank));
        put(&object, "pid", WHOLE(j, lost_pid));
        put(&object, "cause", text(cause_name(j->lost_cause)));
        put(&object, "step", WHOLE(j, lost_step));
        put(&object, "generation", WHOLE(j, lost_generation));
        put(&object, "noticed_us", WHOLE(j, lost_us));
        put(&object, "ago_ms", WHOLE(j, lost_ago_ms));
        put(&object, "void_steps", WHOLE(j, lost_void_steps));
        put(&object, "void_ms", milliseconds(j->has_lost_void_us, j->lost_void_us));
        put(&object, "new_generation_ms", milliseconds(j->has_lost_newgen_us, j->lost_newgen_us));
        put(&object, "committed_ms", milliseconds(j->has_lost_commit_us, j->lost_commit_us));
        put(&object, "successor_pid", WHOLE(j, lost_successor));
        return object;
}

static json_t *job_object(const struct snapshot *snapshot, const struct snapshot_job *from) {
        const Wire__StatusJob *j = from->job;
        json_t *object = json_object();

        put(&object, "name", TEXT(j, name));
        put(&object, "uid", WHOLE(j, uid));
        put(&object, "device", TEXT(snapshot->daemon, device));
        put(&object, "state", TEXT(j, state));
        put(&object, "text", known_text(j->text));
        put(&object, "generation", WHOLE(j, generation));
        put(&object, "incarnation", WHOLE(j, incarnation));
        put(&object, "world_size", WHOLE(j, world));
        put(&object, "step", whole(true, j->step));
        put(&object, "buckets", whole(true, j->buckets));
        put(&object, "bytes", whole(true, j->bytes));
        put(&object, "bytes_reduced", whole(true, j->bytes_reduced));
        put(&object, "step_rate", REAL(j, step_rate));
        put(&object, "exposed", REAL(j, exposed));
        put(&object, "norm", real(j->has_norm && j->step > 0, j->norm));
        put(&object, "nonfinite", whole(true, j->nonfinite));
        put(&object, "nonfinite_steps", WHOLE(j, nonfinite_steps));
        put(&object, "nonfinite_first", nonfinite_object(j));
        put(&object, "void_steps", whole(true, j->void_steps));
        put(&object, "recoveries", whole(j->has_recovery_us, text_recoveries(j)));
        put(&object, "last_loss", loss_object(j));
        put(&object, "operations", whole(true, j->operations));
        put(&object, "members", ARRAY(from->member, from->n_members, member_object));
        put(&object, "plans", ARRAY(from->plan, from->n_plans, plan_object));
        put(&object, "waiting_for", ARRAY(from->wait, from->n_waits, wait_object));
        return object;
}

static void add_jobs(json_t **array, const struct snapshot *from) {
        for (size_t i = 0; i < from->n_jobs; i++)
                append(array, job_object(from, &from->job[i]));
}

static void add_clients(json_t **array, const struct snapshot *from) {
        for (size_t i = 0; i < from->n_clients; i++)
                append(array, client_object(from, from->client[i]));
}

/* One list of what all of these daemons have. */
static json_t *gather(const struct snapshot *snapshot, size_t n,
                      void (*add)(json_t **, const struct snapshot *)) {
        json_t *array = json_array();

        for (size_t i = 0; i < n; i++)
                add(&array, &snapshot[i]);
        return array;
}

static json_t *snapshot_object(const struct snapshot *from) {
        json_t *object = json_object();

        put(&object, "daemon", daemon_object(from));
        put(&object, "jobs", gather(from, 1, add_jobs));
        put(&object, "clients", gather(from, 1, add_clients));
        return object;
}

static json_t *new_document(void) {
        json_t *document = json_object();

        put(&document, "schema_version", json_integer(JSON_SCHEMA_VERSION));
        return document;
}

json_t *json_status(const struct observation *observation) {
        json_t *document = new_document(), *daemons = json_array();

        for (size_t i = 0; i < observation->n; i++)
                append(&daemons, snapshot_object(&observation->snapshot[i]));
        put(&document, "daemon", daemon_object(&observation->snapshot[0]));
        put(&document, "jobs", gather(observation->snapshot, observation->n, add_jobs));
        put(&document, "clients", gather(observation->snapshot, observation->n, add_clients));
        put(&document, "daemons", daemons);
        return document;
}

json_t *json_jobs(const struct observation *observation) {
        json_t *document = new_document();

        put(&document, "jobs", gather(observation->snapshot, observation->n, add_jobs));
        return document;
}

json_t *json_clients(const struct observation *observation) {
        json_t *document = new_document();

        put(&document, "clients", gather(observation->snapshot, observation->n, add_clients));
        return document;
}

int json_print(json_t *document, bool one_line) {
        if (!document) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        int r = json_dumpf(document, stdout, one_line ? JSON_COMPACT : JSON_INDENT(2));
        json_decref(document);
        return r == 0 && putchar('\n') != EOF && fflush(stdout) == 0 ? CLI_OK : CLI_ERROR;
}
