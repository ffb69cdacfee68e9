/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of an answer to STATUS about the daemon, its clients, and its links to other daemons. */
#include <unistd.h>

#include "base/account.h"
#include "base/clock.h"
#include "base/proc.h"
#include "report/private.h"

static void daemon_rows_count_coordinated(void *to, struct job *job, const struct hub_job *name) {
        unsigned *n = to;

        (*n)++;
}

/* With those that have their coordinator here, and no node. */
static unsigned daemon_rows_visible_jobs(const struct answer *answer) {
        struct query all = *answer->query;
        const struct job *job;
        unsigned n = 0;

        all.asked = NULL;
        list_for_each(job, &all.reports->config.jobs->list, link)
                n += query_sees(&all, job->uid);
        if (answer->whole)
                peers_each_coordinated(&all, daemon_rows_count_coordinated, &n);
        return n;
}

static unsigned daemon_rows_visible_clients(const struct answer *answer) {
        const struct client *client;
        unsigned n = 0;

        list_for_each(client, &answer->query->reports->clients, link)
                n += query_sees(answer->query, client->uid) && client->open && !client->admin;
        return n;
}

/* The amount that all uids hold, if the viewer may see that; else only that of the viewer's uid. */
static uint64_t daemon_rows_held(const struct answer *answer, enum account_slot slot) {
        const struct users *accounts = answer->query->reports->config.accounts;

        return answer->query->viewer.sees_all ? accounts_total(accounts, slot)
                                              : accounts_used(accounts, answer->query->viewer.uid, slot);
}

static uint64_t daemon_rows_pooled(const struct answer *answer, enum account_pool pool) {
        const struct users *accounts = answer->query->reports->config.accounts;

        return answer->query->viewer.sees_all ? accounts_pooled(accounts, pool)
                                              : accounts_pooled_by(accounts, answer->query->viewer.uid, pool);
}

/* Adds the refusals of all uids. */
static void daemon_rows_add_refusals(const struct users *accounts, Wire__StatusDaemon *row) {
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

static void daemon_rows_add_process(Wire__StatusDaemon *row) {
        struct proc_usage usage;

        proc_usage(&usage);
        SET(*row, process_cpu_us, clock_process_cpu());
        SET_IF(*row, process_resident_bytes, usage.size > 0, usage.resident);
        SET_IF(*row, process_virtual_bytes, usage.size > 0, usage.size);
        SET_IF(*row, process_open_fds, usage.open_fds > 0, usage.open_fds);
        SET(*row, process_max_fds, usage.max_fds);
}

/* Ids of daemons are for the operator: with a key for the same users one could pass for that daemon. */
static void daemon_rows_add_identity(const struct answer *answer, Wire__StatusDaemon *row) {
        const struct reports_identity *identity = answer->query->reports->config.identity;

        if (identity == NULL)
                return;
        SET_IF(*row, starts, identity->node[0] != '\0', identity->starts);
        if (row->has_starts && answer->query->viewer.sees_all)
                row->node = (char *)identity->node;
        if (identity->no_identity[0] != '\0')
                row->no_identity = (char *)identity->no_identity;
}

static void daemon_rows_add_gpu(const struct answer *answer, Wire__StatusDaemon *row, Wire__StatusGpu *gpu) {
        const struct reports_config *config = &answer->query->reports->config;
        struct backend_gpu seen;

        if (config->backend == NULL || !config->backend->ops->gpu(config->backend, &seen))
                return;
        gpu->uuid = (char *)seen.uuid;
        gpu->name = (char *)seen.name;
        gpu->mode = (char *)(seen.mps ? "mps" : "time slices");
        SET(*gpu, driver, (uint32_t)seen.driver);
        SET(*gpu, bytes, seen.bytes);
        SET(*gpu, free_bytes, seen.free);
        SET(*gpu, arena_bytes, daemon_rows_held(answer, ACCOUNT_DEVICE));
        row->gpu = gpu;
}

static void daemon_rows_add_links(const struct reports_cluster *cluster, Wire__StatusDaemon *row,
                                  Wire__StatusLinks *links) {
        struct reports_traffic traffic;

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

static void daemon_rows_add_engine(const struct jobs_config *config, Wire__StatusDaemon *row,
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

void daemon_rows_send(struct answer *answer) {
        const struct reports_config *config = &answer->query->reports->config;
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
        SET(row, uptime_ms, (answer->now - answer->query->reports->started) / USEC_PER_MSEC);
        SET(row, instance, config->instance);
        SET(row, clients, daemon_rows_visible_clients(answer));
        SET(row, jobs, daemon_rows_visible_jobs(answer));
        SET(row, workers, ops != NULL ? ops->workers(config->backend) : 0);
        SET(row, arenas, (uint32_t)daemon_rows_held(answer, ACCOUNT_ARENAS));
        SET(row, arena_bytes, daemon_rows_held(answer, ACCOUNT_BYTES));
        SET(row, own_bytes, daemon_rows_pooled(answer, POOL_OWN));
        SET(row, loop_cpu_us, clock_thread_cpu());
        SET(row, worker_cpu_us, ops != NULL ? ops->cpu_us(config->backend) : 0);
        SET(row, process_start_time, answer->query->reports->start_time);
        daemon_rows_add_gpu(answer, &row, &gpu);
        daemon_rows_add_engine(&config->jobs->config, &row, &engine);
        daemon_rows_add_identity(answer, &row);
        daemon_rows_add_process(&row);
        SET(row, complete, answer->query->viewer.sees_all);
        if (row.complete)
                daemon_rows_add_refusals(config->accounts, &row);
        if (row.complete)
                daemon_rows_add_links(&answer->query->reports->cluster, &row, &links);
        SET_IF(row, refused_device, row.complete && row.gpu != NULL,
               accounts_refused(config->accounts, ACCOUNT_DEVICE));
        SET(row, draining, config->jobs->gate != GATE_OPEN);
        SET_IF(row, open, answer->query->viewer.may_drain, jobs_open(config->jobs));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &row.base);
}

void daemon_rows_send_client(struct answer *answer, const struct client *client) {
        Wire__StatusClient row = WIRE__STATUS_CLIENT__INIT;

        SET(row, id, client->id);
        SET(row, pid, (int32_t)client->pid);
        SET(row, uid, client->uid);
        SET(row, gid, client->gid);
        row.program = (char *)client->program;
        row.library = (char *)client->library;
        SET(row, connected_ms, (answer->now - client->connected) / USEC_PER_MSEC);
        SET(row, admin, client->admin);
        SET(row, jobs, list_length(&client->members));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_CLIENT, &row.base);
}

void daemon_rows_send_link(void *to, const struct reports_link *link) {
        struct answer *answer = to;
        Wire__StatusLink row = WIRE__STATUS_LINK__INIT;

        row.role = (char *)link->role;
        row.state = (char *)link->state;
        row.node = link->node[0] != '\0' && answer->query->viewer.sees_all ? (char *)link->node : NULL;
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

void reports_describe(struct reports *reports, reports_row_fn *row, void *data) {
        const struct query query = { .reports = reports, .viewer.sees_all = true, .row = row, .data = data };
        struct answer answer = answer_to(&query);

        daemon_rows_send(&answer);
}
