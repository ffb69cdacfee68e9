/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/check.h"
#include "core/roster.h"
#include "core/saver.h"
#include "gradsync.pb-c.h"
#include "link/link.h"
#include "proto/names.h"
#include "rendezvous/service/remote.h"
#include "rendezvous/service/stations.h"
#include "socket/listener.h"

_Static_assert(ROSTER_NODE == LINK_NODE && LINK_NODE == STATION_NODE && STATION_NODE == IDENTITY_NODE,
               "one id for all");
_Static_assert(POST_MAX <= LINK_PAYLOAD && POST_ARRIVAL >= LINK_FIRST_TYPE, "frames of one another");
_Static_assert(ROSTER_HOST == POST_HOST, "one length");

struct cluster {
        struct cluster_config config;
        char *directory, *name; /* of the files that outlive the daemon */
        struct keys keys;
        struct links *links; /* NULL: it neither listens nor connects */
        char host[ROSTER_HOST + 1], host_name[256];
        struct reports *reports; /* NULL: not yet */
        /* Used if another daemon coordinates: */
        struct remote *remote;
        struct peer *coordinator; /* NULL: there is no connection */
        uint64_t heard;           /* when the last message came from it */
        /* Used by a coordinator: */
        struct roster *roster;
        struct saver *saver; /* of the roster's text */
        struct coordinators_cluster where;
        struct coordinators *coordinators;
        struct stations *stations;
        struct loop_timer *tick, *station_tick;
        struct loop_deferred check;
};

/* ---- where the data goes ---- */

/* The others reach it where this end of the connection is, unless the configuration says otherwise. */
static void set_data_address(struct cluster *cluster, const char *address) {
        struct engine *engine = cluster->config.engine;

        if (engine != NULL && engine->ops->set_address != NULL &&
            cluster->config.config->data_address[0] == '\0')
                engine->ops->set_address(engine, address);
}

static int choose_data_address(struct cluster *cluster, char *error, size_t size) {
        const char *chosen = cluster->config.config->data_address;
        struct engine *engine = cluster->config.engine;
        char address[64];

        if (chosen[0] == '\0' || engine == NULL || engine->ops->set_address == NULL)
                return 0;
        if (address_of_host(chosen, address, sizeof(address)) < 0) {
                snprintf(error, size,
                         "data_address: '%s' is neither an address nor an interface of this host", chosen);
                return -EINVAL;
        }
        engine->ops->set_address(engine, address);
        return 0;
}

/* ---- frames ---- */

static void remote_send_frame(void *data, enum post_kind kind, uint32_t about, const void *bytes,
                              size_t length) {
        struct cluster *cluster = data;

        if (cluster->coordinator != NULL)
                peer_send(cluster->coordinator, kind, about, bytes, length);
}

static void remote_on_placed(void *data, const struct post_place *place) {
        struct cluster *cluster = data;
        int r = identity_set_place(cluster->config.identity, place->address, place->host);

        if (r < 0)
                log_warning(
                        "where this gradsyncd is in its cluster cannot be kept in %s: %s; jobs over several "
                        "hosts may not survive its restart",
                        cluster->directory, strerror(-r));
        log_info("the coordinator knows this gradsyncd as node %u", place->address);
}

static void stations_send_frame(void *data, void *peer, enum post_kind kind, uint32_t about,
                                const void *bytes, size_t length) {
        peer_send(peer, kind, about, bytes, length);
}

static void on_up(void *owner, struct peer *peer) {
        struct cluster *cluster = owner;

        char local[64];

        if (peer_was_dialled(peer)) {
                log_info("connected to %s", peer_name(peer));
                peer_local_address(peer, local, sizeof(local));
                set_data_address(cluster, local);
                cluster->coordinator = peer;
                cluster->heard = clock_now();
                remote_up(cluster->remote);
                return;
        }
        log_info("a gradsyncd has connected from %s", peer_name(peer));
        if (stations_up(cluster->stations, peer, peer_node(peer), peer_instance(peer)) < 0)
                log_warning("there is no memory for the gradsyncd at %s", peer_name(peer));
}

static const char *on_frame(void *owner, struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                            size_t length) {
        struct cluster *cluster = owner;

        if (peer_was_dialled(peer))
                cluster->heard = clock_now();
        if (peer_was_dialled(peer))
                return remote_receive(cluster->remote, (enum post_kind)type, about, bytes, length);
        return stations_receive(cluster->stations, peer, (enum post_kind)type, about, bytes, length);
}

static void on_down(void *owner, struct peer *peer, const char *why) {
        struct cluster *cluster = owner;

        log_warning("the connection to %s has ended: %s", peer_name(peer), why);
        if (peer_was_dialled(peer)) {
                cluster->coordinator = NULL;
                remote_down(cluster->remote);
        } else {
                stations_down(cluster->stations, peer);
        }
}

/* Else messages of an earlier start would be taken for new ones, and two processes for one. */
static const char *judge_run(const struct cluster *cluster, const struct peer *peer, const uint8_t *node) {
        return roster_is_late(cluster->roster, node, peer_instance(peer), peer_run(peer))
                       ? "a later start of it was here: its state directory is an older copy, or that of "
                         "another daemon. Stop it, remove the identity file there, and start "
                         "it again: it is a new node then"
                       : NULL;
}

/* The id of a daemon is its key's, so that a key that speaks for some users cannot end the connection of a
 * daemon that speaks for others, or take its jobs over. Another key may have it that speaks for all of those
 * users: as one that takes the place of the former one. */
static const char *on_admit(void *owner, const struct peer *peer, const uint8_t *node) {
        const struct cluster *cluster = owner;
        struct roster_owner known;
        char uids[KEY_UIDS], present[KEY_UIDS];
        const char *key = peer_authority(peer, uids);

        if (uids[0] == '\0')
                return "its key is not in force any more";
        if (cluster->roster == NULL || !roster_find_owner(cluster->roster, node, &known))
                return NULL;
        if (strcmp(key, known.key) == 0)
                return judge_run(cluster, peer, node);
        /* A reload may have given the known key other uids since that daemon was here. */
        const struct key *now = keys_find(&cluster->keys, known.key, strlen(known.key), time(NULL));
        if (now != NULL)
                key_uids(now, present);
        if (key_uids_cover(uids, now != NULL ? present : known.uids))
                return judge_run(cluster, peer, node);
        return "it has the id of a daemon whose key speaks for users for whom this one's does not";
}

static const struct links_events link_events = {
        .up = on_up, .frame = on_frame, .down = on_down, .admit = on_admit
};

/* ---- coordinating ---- */

static int stations_on_place(void *data, void *peer, const uint8_t node[STATION_NODE],
                             const struct post_arrival *arrival, uint32_t *ret_address, uint32_t *ret_host,
                             struct refusal *refusal) {
        struct cluster *cluster = data;
        char uids[KEY_UIDS];
        const char *key = peer_authority(peer, uids);
        const struct roster_arrival said = { .node = node,
                                             .instance = peer_instance(peer),
                                             .run = peer_run(peer),
                                             .host = arrival->host,
                                             .owner = { .key = key, .uids = uids },
                                             .claimed = arrival->has_address ? arrival->address : HUB_UNKNOWN,
                                             .now = time(NULL) };

        if (uids[0] == '\0')
                return refuse(refusal, WIRE__CODE__DENIED, "its key is not in force any more");
        int r = roster_place(cluster->roster, &said, ret_address, ret_host);

        if (r == -ENOSPC)
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "its key '%s' has as many daemons here as it can (%u, or %u if it is limited "
                              "by uids=; such keys together %u)",
                              key, LIMIT_NODES, ROSTER_LIMITED, LIMIT_NODES / 2);
        return r;
}

static void stations_on_used(void *data, const uint8_t node[STATION_NODE]) {
        struct cluster *cluster = data;

        roster_use(cluster->roster, node, time(NULL));
}

static void stations_on_left(void *data, const uint8_t node[STATION_NODE]) {
        struct cluster *cluster = data;

        roster_leave(cluster->roster, node, time(NULL));
}

static bool stations_on_uid(void *data, void *peer, uid_t uid) {
        return peer_speaks_for(peer, uid);
}

static void coordinators_on_tick(void *data) {
        struct cluster *cluster = data;

        coordinators_tick(cluster->coordinators);
}

static void stations_on_tick(void *data) {
        struct cluster *cluster = data;

        stations_tick(cluster->stations);
}

static void stations_on_check(void *data) {
        struct cluster *cluster = data;

        stations_check(cluster->stations);
}

static void coordinators_on_due(void *data, uint64_t when) {
        struct cluster *cluster = data;

        loop_timer_arm_at(cluster->tick, when);
}

static void stations_on_due(void *data, uint64_t when) {
        struct cluster *cluster = data;

        loop_timer_arm_at(cluster->station_tick, when);
}

static void coordinators_on_posted(void *data, const struct hub_job *job, const struct hub_letter *letter) {
        const struct cluster *cluster = data;

        if (cluster->reports != NULL)
                reports_posted(cluster->reports, job, letter);
}

static uint64_t coordinators_on_term(void *data) {
        struct cluster *cluster = data;

        return cluster->config.term(cluster->config.data);
}

/* The times of the machine, as this daemon is configured. A coordinator elsewhere sends its own. */
static struct machine_times cluster_times(const struct config *config) {
        return (struct machine_times){ .heartbeat = config->heartbeat,
                                       .patience = config->patience,
                                       .death = config->death,
                                       .abandon = config->abandon,
                                       .drain = config->death,
                                       .build = config_build(config) };
}

static void roster_on_change(void *data) {
        struct cluster *cluster = data;

        if (cluster->saver != NULL)
                saver_touch(cluster->saver);
}

static char *saver_on_text(void *data) {
        struct cluster *cluster = data;

        return roster_text(cluster->roster);
}

static int open_roster(struct cluster *cluster, char *error, size_t size) {
        _cleanup_(freep) char *path = NULL, *text = NULL;
        struct saver_config config = { .loop = cluster->config.loop, .text = saver_on_text, .data = cluster };
        int r = asprintf(&path, "%s/%s.nodes", cluster->directory, cluster->name) < 0 ? -ENOMEM : 0;

        if (r == 0)
                r = saver_read(path, &text);
        if (r == 0)
                r = roster_new(text, time(NULL), roster_on_change, cluster, &cluster->roster);
        if (r == -EBADMSG) {
                snprintf(error, size,
                         "%s is damaged, or of another version. It says which daemon has which address, and "
                         "jobs of other hosts rely on it: restore it, or stop all jobs over several hosts "
                         "and remove it",
                         path);
                return r;
        }
        config.path = path;
        if (r == 0)
                r = saver_new(&config, &cluster->saver);
        return r < 0 ? error_say(r, error, size, "%s", path != NULL ? path : "the list of nodes") : 0;
}

static int place_self(struct cluster *cluster) {
        const uint8_t *node = identity_node(cluster->config.identity);
        const struct roster_arrival self = { .node = node,
                                             .instance = identity_instance(cluster->config.identity),
                                             .host = cluster->host,
                                             .owner = { .key = KEY_NONE, .uids = "*" },
                                             .claimed = HUB_UNKNOWN,
                                             .now = time(NULL) };
        int r = roster_place(cluster->roster, &self, &cluster->where.self, &cluster->where.host);

        if (r == 0)
                roster_use(cluster->roster, node, time(NULL));
        return r;
}

static int open_coordinators(struct cluster *cluster, char *error, size_t size) {
        const struct config *config = cluster->config.config;
        struct coordinators_config coordinators = { .cluster = &cluster->where,
                                                    .accounts = cluster->config.accounts,
                                                    .clock = clock_now,
                                                    .term = coordinators_on_term,
                                                    .nonce = cluster->config.nonce,
                                                    .due = coordinators_on_due,
                                                    .posted = coordinators_on_posted,
                                                    .data = cluster };
        struct stations_config stations = { .cluster = &cluster->where,
                                            .clock = clock_now,
                                            .place = stations_on_place,
                                            .speaks_for = stations_on_uid,
                                            .used = stations_on_used,
                                            .left = stations_on_left,
                                            .send = stations_send_frame,
                                            .due = stations_on_due,
                                            .data = cluster };
        int r = open_roster(cluster, error, size);

        if (r < 0)
                return r;
        if (getrandom(&coordinators.key, sizeof(coordinators.key), 0) != sizeof(coordinators.key))
                return error_say(-errno, error, size, "cannot draw a key");
        cluster->where = (struct coordinators_cluster){
                .times = cluster_times(config),
                .most_nodes = config->nodes_per_job,
                .begun = identity_instance(cluster->config.identity) > 1 ? clock_now() : 0
        };
        r = place_self(cluster);
        if (r == 0)
                r = loop_timer_new(cluster->config.loop, coordinators_on_tick, cluster, &cluster->tick);
        if (r == 0)
                r = loop_timer_new(cluster->config.loop, stations_on_tick, cluster, &cluster->station_tick);
        if (r == 0)
                r = coordinators_new(&coordinators, &cluster->coordinators);
        stations.coordinators = cluster->coordinators;
        if (r == 0)
                r = stations_new(&stations, &cluster->stations);
        return r < 0 ? error_say(r, error, size, "cannot set up the coordinators of jobs over several hosts")
                     : 0;
}

/* ---- the way there ---- */

static int open_remote(struct cluster *cluster, char *error, size_t size) {
        struct remote_config config = { .device = config_device_number(cluster->config.config),
                                        .host = cluster->host,
                                        .name = cluster->host_name,
                                        .place = { .address = identity_address(cluster->config.identity),
                                                   .host = identity_host(cluster->config.identity),
                                                   .times = cluster_times(cluster->config.config) },
                                        .send = remote_send_frame,
                                        .placed = remote_on_placed,
                                        .data = cluster };

        int r = remote_new(&config, &cluster->remote);
        return r < 0 ? error_say(r, error, size, "cannot set up the way to the coordinator") : 0;
}

static int listen_on(struct cluster *cluster, const struct address *address, char *error, size_t size) {
        struct listener_config config = { .key = "listen", .path = address->path, .mode = 0600, .fd = -1 };
        int fd, r;

        if (!address->local)
                return links_listen(cluster->links, address, error, size);
        r = listener_bind(&config, SOCK_STREAM, &fd, error, size);
        if (r < 0)
                return r;
        r = links_accept_on(cluster->links, fd);
        if (r < 0)
                close(fd);
        return r < 0 ? error_say(r, error, size, "%s", address->text) : 0;
}

/* Addresses between commas. */
static int listen_everywhere(struct cluster *cluster, char *error, size_t size) {
        _cleanup_(freep) char *list = strdup(cluster->config.config->listen);
        struct address address;
        char *rest = NULL, number[64];
        int r = list != NULL ? 0 : -ENOMEM;

        for (char *at = r == 0 ? strtok_r(list, ", ", &rest) : NULL; at != NULL && r == 0;
             at = strtok_r(NULL, ", ", &rest)) {
                r = address_parse(at, &address, error, size);
                if (r == 0)
                        r = listen_on(cluster, &address, error, size);
                if (r == 0 && !address.local && address_of_host(address.host, number, sizeof(number)) == 0)
                        set_data_address(cluster, number);
                if (r == 0)
                        log_info("coordinates daemons that connect to %s", at);
        }
        return r;
}

/* The limits for connections that have not proved their identity. */
static struct door_limits cluster_limits(const struct config *config) {
        return (struct door_limits){ .patience = config->handshake_timeout,
                                     .per_address = config->handshakes_per_address,
                                     .together = config->handshakes };
}

static int open_links(struct cluster *cluster, char *error, size_t size) {
        const struct config *config = cluster->config.config;
        struct links_config links = { .loop = cluster->config.loop,
                                      .node = identity_node(cluster->config.identity),
                                      .host = cluster->host_name,
                                      .instance = identity_instance(cluster->config.identity),
                                      .run = cluster->config.nonce,
                                      .release = GRADSYNC_RELEASE,
                                      .keys = &cluster->keys,
                                      .insecure = config->insecure_no_auth,
                                      .limits = cluster_limits(config),
                                      .silence = config->death,
                                      .events = &link_events,
                                      .owner = cluster };
        struct address address;
        int r = check_load_keys(config, &cluster->keys, error, size);

        if (r < 0)
                return r;
        if (config->key_file[0] == '\0' && cluster->keys.n > 0)
                log_info("key_file is not set: the key is the credential " KEY_CREDENTIAL);
        if (config->insecure_no_auth)
                log_warning(
                        "insecure_no_auth: whoever reaches this gradsyncd over TCP can read and spoil jobs "
                        "of several hosts");
        r = links_new(&links, &cluster->links);
        if (r < 0)
                return error_say(r, error, size, "cannot set up connections to other daemons");
        r = listen_everywhere(cluster, error, size);
        if (r < 0 || cluster->remote == NULL)
                return r;
        r = address_parse(config->coordinator, &address, error, size);
        return r == 0 ? links_dial(cluster->links, &address, error, size) : r;
}

static void find_host(struct cluster *cluster) {
        const char *chosen = cluster->config.config->host_id;

        if (gethostname(cluster->host_name, sizeof(cluster->host_name) - 1) < 0 ||
            !name_valid(cluster->host_name))
                strcpy(cluster->host_name, "host");
        if (chosen[0] != '\0')
                snprintf(cluster->host_name, sizeof(cluster->host_name), "%s", chosen);
        config_host(cluster->config.config, cluster->host);
}

static int cluster_check(const struct cluster_config *config, char *error, size_t size) {
        if (config->identity != NULL)
                return config_check_times(config->config, error, size);
        snprintf(error, size, "a gradsyncd of a cluster needs a place for its identity: %s",
                 config->no_identity);
        return -ENOENT;
}

int cluster_new(const struct cluster_config *config, struct cluster **ret, char *error, size_t size) {
        const struct config *settings = config->config;
        bool coordinated = settings->coordinator[0] != '\0',
             self = strcmp(settings->coordinator, "self") == 0;
        struct cluster *cluster;
        int r;

        *ret = NULL;
        if (!coordinated && settings->listen[0] == '\0')
                return 0;
        r = cluster_check(config, error, size);
        if (r < 0)
                return r;
        cluster = calloc(1, sizeof(*cluster));
        if (cluster == NULL)
                return error_say(-ENOMEM, error, size, "cannot set up a cluster");
        cluster->config = *config;
        cluster->check = (struct loop_deferred){ .fn = stations_on_check, .data = cluster };
        find_host(cluster);
        r = identity_place(getenv("STATE_DIRECTORY"), settings->socket, "identity", &cluster->directory,
                           &cluster->name);
        if (r < 0)
                error_say(r, error, size, "cannot set up a cluster");
        if (r == 0)
                r = choose_data_address(cluster, error, size);
        if (r == 0 && (self || settings->listen[0] != '\0'))
                r = open_coordinators(cluster, error, size);
        if (r == 0 && coordinated && !self)
                r = open_remote(cluster, error, size);
        if (r == 0 && (cluster->remote != NULL || settings->listen[0] != '\0'))
                r = open_links(cluster, error, size);
        if (r < 0) {
                cluster_free(cluster);
                return r;
        }
        *ret = cluster;
        return 0;
}

struct cluster *cluster_free(struct cluster *cluster) {
        if (cluster == NULL)
                return NULL;
        loop_defer_cancel(cluster->config.loop, &cluster->check);
        links_free(cluster->links);
        stations_free(cluster->stations);
        remote_free(cluster->remote);
        coordinators_free(cluster->coordinators);
        loop_timer_free(cluster->tick);
        loop_timer_free(cluster->station_tick);
        saver_free(cluster->saver);
        roster_free(cluster->roster);
        keys_clear(&cluster->keys);
        free(cluster->directory);
        free(cluster->name);
        free(cluster);
        return NULL;
}

struct hub *cluster_hub(struct cluster *cluster) {
        if (cluster == NULL)
                return NULL;
        if (cluster->remote != NULL)
                return remote_hub(cluster->remote);
        return strcmp(cluster->config.config->coordinator, "self") == 0
                       ? coordinators_hub(cluster->coordinators)
                       : NULL;
}

/* ---- facts for people ---- */

static void cluster_each_job(void *data, void (*fn)(void *to, const struct hub_job *job), void *to) {
        const struct cluster *cluster = data;

        if (cluster->coordinators != NULL)
                coordinators_each(cluster->coordinators, fn, to);
}

static void cluster_each_node(void *data, const struct hub_job *job, hub_node_fn *fn, void *to) {
        const struct cluster *cluster = data;

        coordinators_each_node(cluster->coordinators, job, fn, to);
        stations_each_empty(cluster->stations, job, fn, to);
}

static void cluster_post(void *data, const struct hub_job *job, const struct hub_letter *letter) {
        const struct cluster *cluster = data;

        coordinators_post(cluster->coordinators, job, letter);
}

static bool cluster_clock(void *data, int64_t *ret_ahead, uint64_t *ret_round_trip) {
        const struct cluster *cluster = data;
        const struct pulse_sample here = { 0 };
        const struct pulse_sample *pulse = cluster->coordinators != NULL  ? &here
                                           : cluster->coordinator != NULL ? peer_pulse(cluster->coordinator)
                                                                          : NULL;

        if (pulse == NULL)
                return false;
        *ret_ahead = pulse->clock;
        *ret_round_trip = pulse->round_trip;
        return true;
}

struct links_to {
        void (*fn)(void *to, const struct reports_link *link);
        void *to;
};

static void shown_link(void *to, const struct link_view *view) {
        const struct links_to *shown = to;
        const struct pulse_sample *pulse = pulse_best(&view->pulse);
        char node[2 * LINK_NODE + 1] = "";
        struct reports_link link = { .role = view->dialled ? "coordinator" : "node",
                                     .state = view->up ? "connected" : "connecting",
                                     .node = node,
                                     .host = view->host,
                                     .address = view->address,
                                     .key = view->key,
                                     .text = view->trouble,
                                     .since = view->since,
                                     .heard = view->heard,
                                     .has_pulse = pulse != NULL,
                                     .sent = view->sent,
                                     .received = view->received };

        for (size_t i = 0; view->node != NULL && i < LINK_NODE; i++)
                sprintf(&node[2 * i], "%02x", view->node[i]);
        if (pulse != NULL) {
                link.round_trip = pulse->round_trip;
                link.clock = pulse->clock;
                link.wall = pulse->wall;
        }
        shown->fn(shown->to, &link);
}

static void cluster_each_link(void *data, void (*fn)(void *to, const struct reports_link *link), void *to) {
        const struct cluster *cluster = data;

        if (cluster->links != NULL)
                links_each(cluster->links, shown_link, &(struct links_to){ fn, to });
}

_Static_assert(LINK_REFUSED_KEY == 1 && LINK_REFUSED_MANY == 7 && LINK_REFUSALS <= LIMIT_LINK_REASONS,
               "reasons are those of StatusLinks");

static bool cluster_traffic(void *data, struct reports_traffic *ret) {
        const struct cluster *cluster = data;

        if (cluster->links == NULL)
                return false;
        const struct links_stats *stats = links_stats(cluster->links);
        *ret = (struct reports_traffic){ .connects = stats->connects,
                                         .ends = stats->ends,
                                         .sent = stats->sent,
                                         .received = stats->received,
                                         .refused = stats->refused,
                                         .n_refused = LINK_REFUSALS };
        return true;
}

static void cluster_tell_trouble(void *data, char *text, size_t size) {
        const struct cluster *cluster = data;
        const char *trouble = cluster->links != NULL ? links_trouble(cluster->links) : NULL;
        const char *at = cluster->config.config->coordinator;

        if (cluster->coordinator == NULL)
                snprintf(text, size, "the coordinator at %s: no connection: %s", at,
                         trouble != NULL ? trouble : "it has ended");
        else
                snprintf(text, size, "the coordinator at %s: no report for %.1f s", at,
                         (double)(clock_now() - cluster->heard) / 1e6);
}

void cluster_introduce(struct cluster *cluster, struct reports *reports) {
        const struct reports_cluster shown = { .host = cluster != NULL ? cluster->host_name : NULL,
                                               .each = cluster_each_job,
                                               .nodes = cluster_each_node,
                                               .post = cluster_post,
                                               .clock = cluster_clock,
                                               .links = cluster_each_link,
                                               .traffic = cluster_traffic,
                                               .trouble = cluster_tell_trouble,
                                               .data = cluster };

        if (cluster == NULL)
                return;
        cluster->reports = reports;
        reports_use_cluster(reports, &shown);
}

void cluster_reload(struct cluster *cluster) {
        struct door_limits limits;
        char error[512];
        struct keys keys;

        if (cluster == NULL || cluster->links == NULL)
                return;
        if (check_load_keys(cluster->config.config, &keys, error, sizeof(error)) < 0)
                log_error("the keys stay as they were: %s", error);
        else
                cluster->keys = keys;
        keys_clear(&keys);
        limits = cluster_limits(cluster->config.config);
        links_change(cluster->links, &limits);
        /* Once connections have ended whose key is gone: they keep their jobs. */
        if (cluster->stations != NULL)
                loop_defer(cluster->config.loop, &cluster->check);
}
