/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping has phases, looked at by one timer: draining (open steps may end, no new ones open), ending (the
 * deadline has come: what is still open becomes void), suspending (jobs are left to their members, if all of
 * them come back to another daemon, and end otherwise), leaving (clients get a last message and are hung up).
 * Then the loop ends.
 */
#include "core/server.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "backend/pair.h"
#include "backend/registry.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/user.h"
#include "core/ceiling.h"
#include "core/check.h"
#include "core/cluster.h"
#include "core/exporter.h"
#include "core/identity.h"
#include "core/notify.h"
#include "engine/engines.h"
#include "engine/nccl/environment.h"
#include "rendezvous/service/coordinators.h"
#include "socket/listener.h"

#define STOP_LOOK (5 * USEC_PER_MSEC)
#define CLUSTER_FDS 512u /* descriptors of a cluster's connections and helpers */
#define STATUS_INTERVAL (2 * USEC_PER_SEC)
#define LEFT_KEPT (3600 * USEC_PER_SEC) /* members wait no longer for a daemon that follows */

enum phase { RUNNING, DRAINING, ENDING, SUSPENDING, LEAVING };

struct server {
        struct config config;
        const struct config_source *source;
        enum phase phase;
        uint64_t drain_deadline;
        struct loop *loop;
        struct identity *identity; /* NULL: it has none, because: */
        struct reports_identity shown;
        char no_identity[512];
        char node[2 * IDENTITY_NODE + 1];
        uint64_t term; /* without an identity: the last one given */
        struct users *users;
        struct closer *closer;
        struct pair backends;
        struct loop_io *backend_io[2];
        struct reports *reports;
        struct sessions *sessions;
        struct coordinators *coordinators;
        struct loop_timer *coordinating;
        uint32_t nonce;          /* of this run's coordinators */
        struct cluster *cluster; /* NULL: it belongs to none */
        struct engines engines;
        struct loop_io *engine_io[2];
        struct jobs *jobs;
        struct conns conns;
        struct listener *listener;
        struct exporter *exporter[2]; /* of the metrics socket, and of metrics_listen; NULL: none */
        struct loop_signal *signal[3];
        struct loop_timer *stop, *watchdog, *status;
        uint64_t watchdog_interval;
        unsigned told_clients;
        uint64_t left_until; /* when no member of a former daemon comes back any more; 0: that was earlier */
        bool feeding;        /* the watchdog was fed the last time */
        bool ending;         /* server_free() is at it */
};

/* Every client costs two or three fds; the hard limit is what the administrator granted. */
static void server_raise_file_limit(void) {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                setrlimit(RLIMIT_NOFILE, &limit);
        }
}

static void server_on_backend(void *data, int fd, unsigned events) {
        struct backend *backend = data;

        backend->ops->dispatch(backend);
}

static int server_watch_backends(struct server *server) {
        struct backend *backend[] = { server->backends.device, server->backends.staging };
        int r = 0;

        for (size_t i = 0; i < array_size(backend) && r == 0; i++)
                if (backend[i] != NULL && (i == 0 || backend[i] != backend[0]))
                        r = loop_io_new(server->loop, backend[i]->ops->fd(backend[i]), LOOP_READ,
                                        server_on_backend, backend[i], &server->backend_io[i]);
        return r;
}

/* Without an identity this daemon coordinates nothing beyond its own host, where no node outlives it. */
static int server_open_identity(struct server *server, char *error, size_t size) {
        _cleanup_(freep) char *directory = NULL, *name = NULL;
        int r = identity_place(getenv("STATE_DIRECTORY"), server->config.socket, "identity", &directory,
                               &name);

        if (r < 0)
                return error_say(r, error, size, "cannot start");
        r = identity_open(directory, name, &server->identity, error, size);
        if (r > 0)
                snprintf(server->no_identity, sizeof(server->no_identity), "%s", error);
        if (r != 0)
                return r < 0 ? r : 0;
        for (size_t i = 0; i < IDENTITY_NODE; i++)
                sprintf(&server->node[2 * i], "%02x", identity_node(server->identity)[i]);
        server->shown.starts = server->jobs->config.instance = identity_instance(server->identity);
        return 0;
}

/* If the disk takes no more, the daemon goes on as without an identity, and for good: no term comes twice. */
static uint64_t server_take_term(void *data) {
        struct server *server = data;
        uint64_t term;

        if (server->identity == NULL || server->no_identity[0] != '\0')
                return ++server->term;
        int r = identity_take_term(server->identity, &term);
        if (r == 0)
                return server->term = term;
        snprintf(server->no_identity, sizeof(server->no_identity), "its identity cannot be written: %s",
                 strerror(-r));
        log_warning("%s: this gradsyncd coordinates nothing beyond its own host from now on",
                    server->no_identity);
        return ++server->term;
}

static void server_on_coordinating(void *data) {
        struct server *server = data;

        coordinators_tick(server->coordinators);
}

static void server_coordinate_at(void *data, uint64_t when) {
        struct server *server = data;

        loop_timer_arm_at(server->coordinating, when);
}

static int server_open_coordinators(struct server *server, char *error, size_t size) {
        struct coordinators_config config = { .accounts = server->users,
                                              .clock = clock_now,
                                              .term = server_take_term,
                                              .due = server_coordinate_at,
                                              .data = server };

        if (getrandom(&server->nonce, sizeof(server->nonce), 0) != sizeof(server->nonce))
                return error_say(-errno, error, size, "cannot draw a number");
        config.nonce = server->nonce;
        int r = loop_timer_new(server->loop, server_on_coordinating, server, &server->coordinating);

        if (r == 0)
                r = coordinators_new(&config, &server->coordinators);
        return r < 0 ? error_say(r, error, size, "cannot set up the table of coordinators") : 0;
}

static void server_on_engine(void *data, int fd, unsigned events) {
        struct engine *engine = data;

        engine->ops->dispatch(engine);
}

/* As server_on_failure(). Where the daemon ends already nothing is left to be told. */
static void server_on_engine_failure(void *owner, const char *why) {
        struct server *server = owner;

        log_error("%s; this gradsyncd ends with status %d, and the next one takes its jobs over", why,
                  SERVER_ENGINE_FAILED);
        if (server->ending)
                _exit(SERVER_ENGINE_FAILED);
        loop_exit(server->loop, SERVER_ENGINE_FAILED);
}

/* Only jobs of a cluster need one. */
static int server_open_engine(struct server *server, char *error, size_t size) {
        const struct backend *device = server->backends.device;
        uint64_t build = config_build(&server->config);
        struct backend_gpu gpu = { 0 };
        char host[CONFIG_HOST];
        struct engines_config config = { .host = host,
                                         .gloo_helper = server->config.gloo_helper,
                                         .silence = (uint32_t)(server->config.death / USEC_PER_MSEC),
                                         .cuda_driver = server->config.cuda_driver,
                                         .nccl_library = server->config.nccl_library,
                                         .nccl_build = (uint32_t)(build / USEC_PER_MSEC * 3 / 4),
                                         .nccl_timeout =
                                                 (uint32_t)(server->config.nccl_timeout / USEC_PER_MSEC),
                                         .nccl_ctas = (unsigned)server->config.nccl_ctas,
                                         .nccl_shares_gpu =
                                                 environment_shares_gpu(server->config.nccl_settings),
                                         .failed = server_on_engine_failure,
                                         .owner = server };

        if (server->config.coordinator[0] == '\0' || device == NULL)
                return 0;
        config_host(&server->config, host);
        if (device->ops->gpu(device, &gpu))
                config.gpu = gpu.uuid;
        int r = engines_open(&config, &server->engines);
        const struct engines *engines = &server->engines;
        struct engine *engine[] = { engines->device,
                                    engines->host != engines->device ? engines->host : NULL };
        for (size_t i = 0; r == 0 && i < array_size(engine) && engine[i] != NULL; i++)
                r = loop_io_new(server->loop, engine[i]->ops->fd(engine[i]), LOOP_READ, server_on_engine,
                                engine[i], &server->engine_io[i]);
        if (r < 0)
                return error_say(r, error, size, "cannot set up what exchanges data with other nodes");
        if (engine[0] != NULL)
                jobs_use_engines(server->jobs, engine[0], engine[1]);
        else
                log_warning("jobs stay on this node: %s", server->engines.missing);
        server->jobs->config.no_engine = server->engines.missing;
        return 0;
}

/* The files that it keeps lie beside the identity. */
static int server_open_cluster(struct server *server, char *error, size_t size) {
        struct cluster_config config = { .loop = server->loop,
                                         .accounts = server->users,
                                         .config = &server->config,
                                         .identity = server->identity,
                                         .no_identity = server->no_identity,
                                         .term = server_take_term,
                                         .nonce = server->nonce,
                                         .engine = server->engines.host,
                                         .data = server };
        int r = cluster_new(&config, &server->cluster, error, size);

        if (r == 0)
                server->jobs->config.cluster = cluster_hub(server->cluster);
        if (r == 0)
                cluster_introduce(server->cluster, server->reports);
        return r;
}

/* No call of the driver works any more, so what was begun can neither be ended nor be given up in order. The
 * next daemon learns from the members what held. */
static void server_on_failure(void *owner, const char *why) {
        const struct jobs *jobs = owner;

        log_error("%s; this gradsyncd ends with status %d, and the next one takes its jobs over", why,
                  SERVER_DEVICE_FAILED);
        loop_exit(jobs->config.loop, SERVER_DEVICE_FAILED);
}

/* The workers get those of the configured CPUs that exist. */
static int server_choose_cpus(const struct server *server, cpu_set_t *ret, char *error, size_t size) {
        char text[512];
        int r = check_affinity(&server->config, ret, text, sizeof(text));

        if (r < 0)
                snprintf(error, size, "%s", text);
        else if (r > 0)
                log_warning("%s", text);
        return r < 0 ? r : 0;
}

static int server_open_backend(struct server *server, char *error, size_t size) {
        char text[512] = "";
        struct backend_config config = {
                .workers = server->config.workers,
                .has_affinity = server->config.has_affinity,
                .device = server->config.device,
                .driver = server->config.cuda_driver[0] != '\0' ? server->config.cuda_driver : NULL,
                .done = jobs_done,
                .made = jobs_made,
                .failed = server_on_failure,
                .error = text,
                .error_size = sizeof(text),
        };
        struct jobs_config jobs = {
                .loop = server->loop,
                .hub = coordinators_hub(server->coordinators),
                .device = config_device_number(&server->config),
                .instance = 1,
                .accounts = server->users,
                .staging_bytes = server->config.staging_bytes,
        };
        const struct backend_ops *ops;
        int r = registry_find(server->config.device, &ops, error, size);

        if (r == 0)
                r = server_choose_cpus(server, &config.affinity, error, size);
        if (r < 0)
                return r;
        r = jobs_new(&jobs, &server->jobs);
        if (r < 0)
                return error_say(r, error, size, "cannot set up the table of jobs");
        config.owner = server->jobs;
        r = pair_open(ops, &config, &server->backends);
        if (r == -ENOTSUP && text[0] == '\0')
                return error_say(
                        r, error, size,
                        "GRADSYNC_SIMD names an instruction set that this CPU, or this build, does not have");
        if (r < 0 && text[0] != '\0') {
                snprintf(error, size, "%s", text);
                return r;
        }
        if (r < 0)
                return error_say(r, error, size, "cannot start the worker threads");
        server->jobs->config.backend = server->backends.device;
        server->jobs->config.staging = server->backends.staging;
        r = server_watch_backends(server);
        return r < 0 ? error_say(r, error, size, "cannot watch the worker threads") : 0;
}

/* Looked up once: a name service may take its time. A group that does not exist has no members. */
static void server_find_admin_group(struct server *server) {
        const char *name = server->config.admin_group;
        const struct group *group = name[0] != '\0' ? getgrnam(name) : NULL;

        server->conns.has_admin_group = group != NULL;
        if (group != NULL)
                server->conns.admin_group = group->gr_gid;
}

/* In the service manager's runtime directory, or else beside the socket. */
static int server_open_journal(struct server *server, char *error, size_t size) {
        _cleanup_(freep) char *directory = NULL, *name = NULL, *path = NULL;
        int r = identity_place(getenv("RUNTIME_DIRECTORY"), server->config.socket, "journal", &directory,
                               &name);

        if (r < 0 || asprintf(&path, "%s/%s", directory, name) < 0)
                return error_say(-ENOMEM, error, size, "cannot start");
        r = journal_open(path, &server->jobs->journal, error, size);
        if (r < 0)
                log_warning("there is no journal, so the jobs of this gradsyncd will end with it: %s", error);
        else if (r > 0)
                log_warning("%s", error);
        server->left_until = clock_now() + LEFT_KEPT;
        return 0;
}

static void server_apply_limits(struct server *server) {
        const struct backend *backend = server->backends.device;
        uint64_t limits[ACCOUNT_SLOTS];
        struct backend_gpu gpu;

        memcpy(limits, server->config.limits, sizeof(limits));
        if (limits[ACCOUNT_DEVICE] == 0 && backend != NULL && backend->ops->gpu(backend, &gpu))
                limits[ACCOUNT_DEVICE] = gpu.bytes / 2;
        accounts_set_limits(server->users, limits);
        accounts_set_most(server->users, server->config.uids);
        accounts_set_pool(server->users, POOL_OWN, limits[ACCOUNT_OWN], limits[ACCOUNT_OWN]);
}

/* Descriptors for users: all but those that the daemon has by now for itself, and will need. No client is
 * here yet, and the lowest number that is free is how many it has. */
static void server_share_fds(struct server *server) {
        uint64_t most = server->conns.fds_room, own = server->cluster != NULL ? CLUSTER_FDS : CONN_OWN_FDS;
        int fd = eventfd(0, EFD_CLOEXEC);

        own += fd < 0 ? 0 : (unsigned)fd;
        fd_close(fd);
        own = own < most / 2 ? own : most / 2;
        accounts_set_pool(server->users, POOL_FDS, most - own, most);
}

/* Settings that may change at run time. */
static void server_apply(struct server *server) {
        log_set_priority(server->config.log_priority);
        server_apply_limits(server);
        server->jobs->config.step_deadline = server->config.step_deadline;
        server->jobs->config.deadlock_timeout = server->config.deadlock_timeout;
        server->jobs->config.stall_notice = server->config.stall_notice;
        server->jobs->config.rejoin_grace = server->config.rejoin_grace;
        sessions_set_handshake_timeout(server->sessions, server->config.handshake_timeout);
        server->conns.allow_nobody = server->config.allow_nobody;
        server->conns.connects_per_uid = server->config.connects_per_uid;
}

static int server_open_sessions(struct server *server, char *error, size_t size) {
        struct reports_config reports = {
                .loop = server->loop,
                .backend = server->backends.device,
                .accounts = server->users,
                .jobs = server->jobs,
                .device = server->config.device,
                .socket = server->config.socket,
                .identity = &server->shown,
        };
        struct sessions_config config = {
                .loop = server->loop,
                .backend = server->backends.device,
                .accounts = server->users,
                .jobs = server->jobs,
                .device = server->config.device,
                .staging_bytes = server->config.staging_bytes,
        };

        if (getrandom(&config.instance, sizeof(config.instance), 0) != sizeof(config.instance))
                return error_say(-errno, error, size, "cannot draw an instance id");
        reports.instance = config.instance;
        int r = reports_new(&reports, &server->reports);
        config.reports = server->reports;
        if (r == 0)
                r = sessions_new(&config, &server->sessions);
        if (r == 0)
                r = conns_init(&server->conns, server->loop, server->sessions, server->users, server->closer);
        server_find_admin_group(server);
        if (r == 0)
                server_apply(server);
        return r < 0 ? error_say(r, error, size, "cannot set up sessions") : 0;
}

static int server_open_listener(struct server *server, char *error, size_t size) {
        struct listener_config config = {
                .key = "--socket",
                .path = server->config.socket,
                .group = server->config.socket_group,
                .mode = server->config.socket_mode,
        };
        int fd = notify_listen_fd(error, (unsigned)size);

        if (fd < 0 && fd != -ENOENT)
                return fd;
        config.fd = fd < 0 ? -1 : fd;
        return listener_new(server->loop, &server->conns, &config, &server->listener, error, size);
}

static int server_open_exporters(struct server *server, char *error, size_t size) {
        const struct config *config = &server->config;
        struct exporter_config exporter = {
                .loop = server->loop,
                .closer = server->closer,
                .scrape = { .reports = server->reports, .device = config->device, .jobs = true },
                .socket = { .key = "metrics_socket",
                            .path = config->metrics_socket,
                            .group = config->socket_group,
                            .mode = config->metrics_mode },
        };
        int r = 0;

        if (config->metrics_socket[0] != '\0')
                r = exporter_new(&exporter, &server->exporter[0], error, size);
        exporter.address = config->metrics_listen;
        exporter.scrape.jobs = config->metrics_listen_jobs;
        if (r == 0 && config->metrics_listen[0] != '\0')
                r = exporter_new(&exporter, &server->exporter[1], error, size);
        return r;
}

static void server_show_status(struct server *server) {
        unsigned clients = sessions_count(server->sessions);

        if (clients == server->told_clients)
                return;
        server->told_clients = clients;
        notify_status("%s: %u clients, %llu jobs", server->config.device, clients,
                      (unsigned long long)accounts_total(server->users, ACCOUNT_JOBS));
}

static void server_on_status(void *data) {
        struct server *server = data;

        server_show_status(server);
        flood_settle(clock_now());
        users_sweep(server->users, clock_now());
        if (server->left_until != 0 && clock_now() >= server->left_until) {
                server->left_until = 0;
                journal_sweep(server->jobs->journal);
        }
        loop_timer_arm(server->status, STATUS_INTERVAL);
}

/* The loop is alive, or this would not run; the workers are if each has answered the last ping. */
static void server_on_watchdog(void *data) {
        struct server *server = data;
        unsigned silent = pair_ping(&server->backends);

        if (silent == 0)
                notify_watchdog();
        else if (server->feeding)
                log_error("%u of %u worker threads do not answer; the watchdog is not fed any more", silent,
                          pair_workers(&server->backends));
        server->feeding = silent == 0;
        loop_timer_arm(server->watchdog, server->watchdog_interval);
}

static int server_start_timers(struct server *server) {
        int r = loop_timer_new(server->loop, server_on_status, server, &server->status);

        if (r == 0)
                r = loop_timer_arm(server->status, STATUS_INTERVAL);
        server->watchdog_interval = notify_watchdog_interval() / 4;
        if (r < 0 || server->watchdog_interval == 0)
                return r;
        server->feeding = true;
        r = loop_timer_new(server->loop, server_on_watchdog, server, &server->watchdog);
        return r < 0 ? r : loop_timer_arm(server->watchdog, server->watchdog_interval);
}

/* A daemon that stops never goes back. */
static void server_set_phase(struct server *server, enum phase phase) {
        assert(phase > server->phase);
        server->phase = phase;
}

static void server_look_at_stop(void *data) {
        struct server *server = data;
        bool busy = jobs_busy(server->jobs) || (server->phase == DRAINING && !jobs_depart(server->jobs));

        if (server->phase == DRAINING && busy && clock_now() >= server->drain_deadline) {
                log_warning("steps are still open after the drain timeout of %.1f s: they become void",
                            (double)server->config.drain_timeout / 1e6);
                server_set_phase(server, ENDING);
                jobs_end(server->jobs);
        } else if (server->phase < SUSPENDING && !busy) {
                server_set_phase(server, SUSPENDING);
                jobs_suspend(server->jobs);
        } else if (server->phase == SUSPENDING) {
                server_set_phase(server, LEAVING);
                sessions_shutdown(server->sessions, "gradsyncd is ending; once it runs again, join anew");
        } else if (server->phase == LEAVING && sessions_count(server->sessions) == 0) {
                loop_exit(server->loop, 0);
                return;
        }
        loop_timer_arm(server->stop, STOP_LOOK);
}

/* The first signal drains; a second one makes what is open void at once. */
static void server_stop(struct server *server, int signal) {
        server->drain_deadline = server->phase == RUNNING ? clock_now() + server->config.drain_timeout : 0;
        if (server->phase != RUNNING)
                return;
        server_set_phase(server, DRAINING);
        log_info("gradsyncd ends on %s: open steps have %.1f s to end",
                 signal == SIGINT ? "SIGINT" : "SIGTERM", (double)server->config.drain_timeout / 1e6);
        notify_stopping();
        notify_extend(server->config.drain_timeout + 5 * USEC_PER_SEC);
        server->listener = listener_free(server->listener);
        jobs_drain(server->jobs);
        loop_timer_arm(server->stop, 1);
}

static void server_reload(struct server *server) {
        enum config_action action;
        struct config fresh;
        char text[512] = "out of memory";

        notify_reloading();
        if (config_init(&fresh) < 0 || config_load(&fresh, server->source, &action, text, sizeof(text)) < 0) {
                log_error("configuration not reloaded, the old one stays: %s", text);
        } else {
                config_reload(&server->config, &fresh, text, sizeof(text));
                server_apply(server);
                cluster_reload(server->cluster);
                log_info("configuration reloaded%s%s", text[0] != '\0' ? "; these need a restart: " : "",
                         text);
        }
        config_deinit(&fresh);
        notify_ready(NULL);
}

static void server_on_signal(void *data, int signal) {
        if (signal == SIGHUP)
                server_reload(data);
        else
                server_stop(data, signal);
}

static int server_watch_signals(struct server *server) {
        static const int signals[] = { SIGTERM, SIGINT, SIGHUP };

        for (size_t i = 0; i < array_size(signals); i++) {
                int r = loop_signal_new(server->loop, signals[i], server_on_signal, server,
                                        &server->signal[i]);

                if (r < 0)
                        return r;
        }
        return loop_timer_new(server->loop, server_look_at_stop, server, &server->stop);
}

static int server_start(struct server *server, char *error, size_t size) {
        int r = loop_new(&server->loop);

        if (r == 0)
                r = users_new(server->config.limits, &server->users);
        if (r == 0) {
                flood_begin(server->users);
                r = closer_new(server->loop, server->users, (unsigned)server->config.uids, close,
                               &server->closer);
        }
        if (r == 0)
                r = server_watch_signals(server);
        if (r < 0)
                return error_say(r, error, size, "cannot start");
        r = server_open_coordinators(server, error, size);
        if (r == 0)
                r = server_open_backend(server, error, size);
        if (r == 0)
                r = server_open_sessions(server, error, size);
        if (r == 0)
                r = server_open_listener(server, error, size);
        if (r == 0) /* which has made the socket's directory */
                r = server_open_identity(server, error, size);
        if (r == 0 && server->backends.device != NULL)
                r = server_open_journal(server, error, size);
        if (r == 0)
                r = server_open_engine(server, error, size);
        if (r == 0)
                r = server_open_cluster(server, error, size);
        if (r == 0)
                r = server_open_exporters(server, error, size);
        if (r < 0)
                return r;
        server_share_fds(server);
        r = server_start_timers(server);
        return r < 0 ? error_say(r, error, size, "cannot start") : 0;
}

int server_new(struct config *config, const struct config_source *source, struct server **ret, char *error,
               size_t size) {
        struct server *server = calloc(1, sizeof(*server));

        if (server == NULL)
                return error_say(-ENOMEM, error, size, "cannot start");
        server->config = *config;
        *config = (struct config){ 0 };
        server->source = source;
        server->shown = (struct reports_identity){ .node = server->node, .no_identity = server->no_identity };
        server_raise_file_limit();
        int r = server_start(server, error, size);
        if (r < 0) {
                server_free(server);
                return r;
        }
        *ret = server;
        return 0;
}

int server_run(struct server *server) {
        struct backend *device = server->backends.device;
        struct backend_gpu gpu;
        char text[256];

        if (device != NULL && device->ops->gpu(device, &gpu) && gpu.mps)
                log_info("the GPU is used through an MPS server: a GPU fault of one of its clients ends the "
                         "work of all, and this gradsyncd with status %d",
                         SERVER_DEVICE_FAILED);
        if (device != NULL)
                log_info("gradsyncd %s serves device %s on %s: %u worker threads, %s", GRADSYNC_RELEASE,
                         server->config.device, server->config.socket, device->ops->workers(device),
                         device->ops->simd(device));
        else
                log_info("gradsyncd %s coordinates only, on %s: it has no device", GRADSYNC_RELEASE,
                         server->config.socket);
        if (server->no_identity[0] != '\0')
                log_warning("%s: this gradsyncd coordinates nothing beyond its own host",
                            server->no_identity);
        if (ceiling_is_low(server->config.limits[ACCOUNT_OWN], text, sizeof(text)))
                log_warning("%s; %s", text, ceiling_remedy());
        notify_ready("no clients");
        int r = loop_run(server->loop);
        if (r < 0)
                log_error("the event loop failed: %s", strerror(-r));
        return r == 0 || r == SERVER_DEVICE_FAILED || r == SERVER_ENGINE_FAILED ? r : EXIT_FAILURE;
}

struct server *server_free(struct server *server) {
        if (server == NULL)
                return NULL;
        server->ending = true;
        for (size_t i = 0; i < array_size(server->exporter); i++)
                exporter_free(server->exporter[i]);
        listener_free(server->listener);
        conns_deinit(&server->conns);
        for (size_t i = 0; i < array_size(server->backend_io); i++)
                loop_io_free(server->backend_io[i]);
        jobs_free(server->jobs);
        for (size_t i = 0; i < array_size(server->engine_io); i++)
                loop_io_free(server->engine_io[i]);
        engines_close(&server->engines);
        cluster_free(server->cluster);
        coordinators_free(server->coordinators);
        loop_timer_free(server->coordinating);
        pair_close(&server->backends);
        sessions_free(server->sessions);
        reports_free(server->reports);
        for (size_t i = 0; i < array_size(server->signal); i++)
                loop_signal_free(server->signal[i]);
        loop_timer_free(server->stop);
        loop_timer_free(server->watchdog);
        loop_timer_free(server->status);
        closer_free(server->closer);
        identity_close(server->identity);
        flood_end();
        users_free(server->users);
        loop_free(server->loop);
        config_deinit(&server->config);
        free(server);
        return NULL;
}
