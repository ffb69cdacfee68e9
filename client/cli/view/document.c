// SPDX-License-Identifier: Apache-2.0
/* The documents of `--json`: see document.h. */
#include <string.h>

#include "client/cli/view/document.h"
#include "proto/names.h"

/* Fields that have the name of the message's field. */
#define TEXT(from, field) AS(#field, value_text((from)->field))
#define NUMBER(from, field) AS(#field, value_number((from)->field))
#define WHOLE(from, field) WHOLE_AS(#field, from, field)
#define REAL(from, field) AS(#field, value_real((from)->has_##field, (from)->field))
#define BOOLEAN(from, field) AS(#field, json_boolean((from)->has_##field && (from)->field))
/* Fields that have another name. */
#define WHOLE_AS(key, from, field) AS(key, value_whole((from)->has_##field, (uint64_t)(from)->field))
#define MS_AS(key, from, field) AS(key, value_ms((from)->has_##field, (from)->field))

static json_t *document_gpu(const Wire__StatusGpu *g) {
        if (!g)
                return json_null();
        return OBJECT(TEXT(g, uuid), TEXT(g, name), WHOLE(g, driver), WHOLE(g, bytes), WHOLE(g, free_bytes),
                      WHOLE(g, arena_bytes), TEXT(g, mode));
}

static json_t *document_engine(const Wire__StatusEngine *e) {
        if (!e)
                return json_null();
        return OBJECT(TEXT(e, name), TEXT(e, version), TEXT(e, library), TEXT(e, abilities),
                      TEXT(e, missing));
}

static json_t *document_peer(const Wire__StatusPeer *p) {
        return OBJECT(WHOLE(p, node), TEXT(p, transport), BOOLEAN(p, same_host));
}

static json_t *document_daemon(const struct snapshot *snapshot) {
        const Wire__StatusDaemon *d = snapshot->daemon;
        return OBJECT(TEXT(d, device), TEXT(d, version), WHOLE(d, pid), WHOLE(d, uid), WHOLE(d, uptime_ms),
                      AS("socket", value_text(snapshot->path)), WHOLE(d, clients), WHOLE(d, jobs),
                      WHOLE(d, workers), TEXT(d, simd), WHOLE(d, arenas), WHOLE(d, arena_bytes),
                      WHOLE(d, own_bytes), WHOLE(d, loop_cpu_us), WHOLE(d, worker_cpu_us),
                      BOOLEAN(d, complete), BOOLEAN(d, draining), TEXT(d, node), WHOLE(d, starts),
                      TEXT(d, no_identity), AS("gpu", document_gpu(d->gpu)),
                      AS("engine", document_engine(d->engine)));
}

static json_t *document_client(const struct snapshot *snapshot, const Wire__StatusClient *c) {
        return OBJECT(WHOLE(c, pid), WHOLE(c, uid), WHOLE(c, gid), TEXT(snapshot->daemon, device),
                      TEXT(c, program), TEXT(c, library), WHOLE(c, connected_ms), WHOLE(c, jobs));
}

static json_t *document_link(const struct snapshot *snapshot, const Wire__StatusLink *l) {
        return OBJECT(TEXT(snapshot->daemon, device), TEXT(l, role), TEXT(l, state), TEXT(l, text),
                      TEXT(l, node), TEXT(l, host), TEXT(l, address), TEXT(l, key), WHOLE(l, since_ms),
                      WHOLE(l, heard_ms), WHOLE(l, round_trip_us),
                      AS("clock_us", value_signed(l->has_clock_us, l->clock_us)),
                      AS("wall_us", value_signed(l->has_wall_us, l->wall_us)), WHOLE(l, sent),
                      WHOLE(l, received));
}

static json_t *document_member(const Wire__StatusMember *m) {
        bool ranked = m->has_rank && !m->unranked;
        return OBJECT(AS("rank", value_whole(ranked, m->rank)),
                      AS("local_rank", value_whole(ranked && m->has_local_rank, m->local_rank)),
                      TEXT(m, host), WHOLE(m, pid), WHOLE(m, uid), TEXT(m, state), NUMBER(m, step),
                      TEXT(m, process_state), TEXT(m, program), REAL(m, exposed));
}

static json_t *document_plan(const Wire__StatusPlan *p) {
        return OBJECT(WHOLE(p, plan), NUMBER(p, step), WHOLE_AS("parameters", p, params), WHOLE(p, buckets),
                      WHOLE(p, bytes), WHOLE(p, arena_bytes), TEXT(p, reduce), BOOLEAN(p, open),
                      WHOLE_AS("placed_members", p, placed));
}

static json_t *document_wait(const Wire__StatusWait *w) {
        bool step = snapshot_wait_is_step(w), plan = step || strcmp(w->what, "plan") == 0;
        return OBJECT(WHOLE(w, rank), TEXT(w, host),
                      AS("pid", value_whole(w->has_pid && w->pid > 0, (uint64_t)w->pid)),
                      TEXT(w, process_state), TEXT(w, what),
                      AS("plan", value_whole(plan && w->has_plan, w->plan)),
                      AS("bucket", value_whole(step && w->has_bucket, w->bucket)),
                      AS("parameter", value_known_text(w->parameter)),
                      AS("step", value_whole(step && w->has_step, w->step)), WHOLE(w, since_ms),
                      AS("text", value_known_text(w->text)));
}

/* An array of the objects that `make` makes of the entries. */
#define ARRAY(list, n, make)                                                                                 \
        ({                                                                                                   \
                json_t *array_ = json_array();                                                               \
                for (size_t i_ = 0; i_ < (n); i_++)                                                          \
                        value_append(&array_, make((list)[i_]));                                             \
                array_;                                                                                      \
        })

/* How the latest burst of values that are not finite began. */
static json_t *document_nonfinite(const Wire__StatusJob *j) {
        if (!j->has_nonfinite_step)
                return json_null();
        return OBJECT(WHOLE_AS("step", j, nonfinite_step), WHOLE_AS("rank", j, nonfinite_rank),
                      WHOLE_AS("pid", j, nonfinite_pid), WHOLE_AS("plan", j, nonfinite_plan),
                      WHOLE_AS("bucket", j, nonfinite_bucket),
                      AS("parameter", value_known_text(j->nonfinite_parameter)),
                      WHOLE_AS("values", j, nonfinite_values));
}

/* The member that was lost last, and how the job went on. */
static json_t *document_loss(const Wire__StatusJob *j) {
        if (!j->has_lost_rank)
                return json_null();
        return OBJECT(WHOLE_AS("rank", j, lost_rank), WHOLE_AS("pid", j, lost_pid),
                      AS("cause", value_text(cause_name(j->lost_cause))), WHOLE_AS("step", j, lost_step),
                      WHOLE_AS("generation", j, lost_generation), WHOLE_AS("noticed_us", j, lost_us),
                      WHOLE_AS("ago_ms", j, lost_ago_ms), WHOLE_AS("void_steps", j, lost_void_steps),
                      MS_AS("void_ms", j, lost_void_us), MS_AS("filling_ms", j, lost_filling_us),
                      MS_AS("new_generation_ms", j, lost_newgen_us), MS_AS("committed_ms", j, lost_commit_us),
                      WHOLE_AS("successor_pid", j, lost_successor));
}

static json_t *document_job(const struct snapshot *snapshot, const struct snapshot_job *from) {
        const Wire__StatusJob *j = from->job;
        return OBJECT(TEXT(j, name), WHOLE(j, uid), TEXT(snapshot->daemon, device), TEXT(j, state),
                      AS("text", value_known_text(j->text)), WHOLE(j, generation), WHOLE(j, incarnation),
                      WHOLE_AS("world_size", j, world), NUMBER(j, step), NUMBER(j, buckets), NUMBER(j, bytes),
                      NUMBER(j, bytes_reduced), REAL(j, step_rate), REAL(j, exposed),
                      AS("norm", value_real(j->has_norm && j->step > 0, j->norm)), NUMBER(j, nonfinite),
                      WHOLE(j, nonfinite_steps), AS("nonfinite_first", document_nonfinite(j)),
                      NUMBER(j, void_steps),
                      AS("recoveries", value_whole(j->has_recovery_us, snapshot_recoveries(j))),
                      AS("last_loss", document_loss(j)), NUMBER(j, operations), WHOLE(j, communicators),
                      WHOLE(j, communicator_us), AS("peers", ARRAY(j->peers, j->n_peers, document_peer)),
                      AS("members", ARRAY(from->member, from->n_members, document_member)),
                      AS("plans", ARRAY(from->plan, from->n_plans, document_plan)),
                      AS("waiting_for", ARRAY(from->wait, from->n_waits, document_wait)));
}

static void document_add_jobs(json_t **array, const struct snapshot *from) {
        for (size_t i = 0; i < from->n_jobs; i++)
                value_append(array, document_job(from, &from->job[i]));
}

static void document_add_clients(json_t **array, const struct snapshot *from) {
        for (size_t i = 0; i < from->n_clients; i++)
                value_append(array, document_client(from, from->client[i]));
}

static void document_add_links(json_t **array, const struct snapshot *from) {
        for (size_t i = 0; i < from->n_links; i++)
                value_append(array, document_link(from, from->link[i]));
}

/* Puts the entries of all these daemons into one array. */
static json_t *document_gather(const struct snapshot *snapshot, size_t n,
                               void (*add)(json_t **, const struct snapshot *)) {
        json_t *array = json_array();

        for (size_t i = 0; i < n; i++)
                add(&array, &snapshot[i]);
        return array;
}

static json_t *document_snapshot(const struct snapshot *from) {
        return OBJECT(AS("daemon", document_daemon(from)),
                      AS("jobs", document_gather(from, 1, document_add_jobs)),
                      AS("clients", document_gather(from, 1, document_add_clients)),
                      AS("links", document_gather(from, 1, document_add_links)));
}

json_t *document_status(const struct observation *observation) {
        json_t *daemons = json_array();

        for (size_t i = 0; i < observation->n; i++)
                value_append(&daemons, document_snapshot(&observation->snapshot[i]));
        return OBJECT(DOCUMENT_VERSION, AS("daemon", document_daemon(&observation->snapshot[0])),
                      AS("jobs", document_gather(observation->snapshot, observation->n, document_add_jobs)),
                      AS("clients",
                         document_gather(observation->snapshot, observation->n, document_add_clients)),
                      AS("links", document_gather(observation->snapshot, observation->n, document_add_links)),
                      AS("daemons", daemons));
}

json_t *document_jobs(const struct observation *observation) {
        return OBJECT(DOCUMENT_VERSION,
                      AS("jobs", document_gather(observation->snapshot, observation->n, document_add_jobs)));
}

json_t *document_clients(const struct observation *observation) {
        return OBJECT(DOCUMENT_VERSION, AS("clients", document_gather(observation->snapshot, observation->n,
                                                                      document_add_clients)));
}

json_t *document_links(const struct observation *observation) {
        return OBJECT(DOCUMENT_VERSION, AS("links", document_gather(observation->snapshot, observation->n,
                                                                    document_add_links)));
}

static json_t *document_ended_job(struct ended_job job) {
        const Wire__StatusEnded *e = job.row;
        return OBJECT(TEXT(e, name), WHOLE(e, uid), AS("device", value_text(job.device)), WHOLE(e, ended_at),
                      WHOLE(e, ago_ms), TEXT(e, reason), TEXT(e, text), WHOLE(e, rank), WHOLE(e, pid),
                      NUMBER(e, step), WHOLE_AS("world_size", e, world), WHOLE(e, generation),
                      WHOLE(e, incarnation), BOOLEAN(e, traced));
}

json_t *document_ended(const struct ended_jobs *jobs) {
        return OBJECT(DOCUMENT_VERSION, AS("ended_jobs", ARRAY(jobs->job, jobs->n, document_ended_job)));
}

int document_print(json_t *document, bool one_line) {
        if (!document)
                return cli_out_of_memory();
        int r = json_dumpf(document, stdout, JSON_ENSURE_ASCII | (one_line ? JSON_COMPACT : JSON_INDENT(2)));
        json_decref(document);
        return r == 0 && putchar('\n') != EOF && fflush(stdout) == 0 ? CLI_OK : CLI_ERROR;
}
