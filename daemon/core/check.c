/* SPDX-License-Identifier: Apache-2.0 */
#include "core/check.h"

#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/loop.h"
#include "core/ceiling.h"
#include "core/exporter.h"
#include "link/link.h"
#include "link/tls.h"
#include "socket/listener.h"

#define CONNECT_WAIT (5 * USEC_PER_SEC)
#define CLOCK_LOOK (20 * USEC_PER_MSEC)
#define CLOCK_WAIT USEC_PER_SEC
#define CLOCK_APART USEC_PER_SEC /* of two hosts' times of day, beyond which their logs are hard to compare */
#define DAY ((time_t)86400)
#define SOON (14 * DAY) /* for a key to run out */

struct check {
        const struct config *config;
        enum config_action action;
        FILE *to;
        bool failed;
        struct keys keys;
        /* The coordinator: */
        struct loop *loop;
        struct links *links;
        struct loop_timer *timer;
        struct peer *peer; /* once it is up */
        uint64_t deadline;
};

static bool check_writes_table(const struct check *check) {
        return check->action == CONFIG_CHECK;
}

/* Whether the control group and the coordinator are asked. */
static bool check_looks_around(const struct check *check) {
        return check->action == CONFIG_CHECK;
}

static void check_say(struct check *check, const char *result, const char *name, const char *fix,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
static void check_say(struct check *check, const char *result, const char *name, const char *fix,
                      const char *format, ...) {
        bool table = check_writes_table(check);
        va_list arguments;

        check->failed |= strcmp(result, "fail") == 0;
        if (!table && strcmp(result, "ok") == 0)
                return;
        if (table)
                fprintf(check->to, "%s\t%s\t", result, name);
        else
                fprintf(check->to, "gradsyncd: ");
        va_start(arguments, format);
        vfprintf(check->to, format, arguments);
        va_end(arguments);
        fprintf(check->to, "%s%s\n", table ? "\t" : fix[0] != '\0' ? "; " : "", fix);
}

/* Sockets and credentials that a unit passes cannot be seen from outside of it. */
static bool check_has_manager(void) {
        return access("/run/systemd/system", F_OK) == 0;
}

/* ---- this host ---- */

int check_affinity(const struct config *config, cpu_set_t *ret, char *text, size_t size) {
        char loss[400];

        text[0] = '\0';
        *ret = config->affinity;
        if (!config->has_affinity || strcmp(config->device, "none") == 0 ||
            cpus_usable(&config->affinity, ret) < 0 || CPU_EQUAL(&config->affinity, ret))
                return 0;
        cpus_describe_loss(&config->affinity, ret, loss, sizeof(loss));
        if (CPU_COUNT(ret) == 0) {
                snprintf(text, size, "affinity: no CPU is left for the workers: %s", loss);
                return -EINVAL;
        }
        snprintf(text, size, "affinity: %s: the workers do without", loss);
        return 1;
}

static void check_cpus(struct check *check) {
        cpu_set_t usable;
        char text[512];
        int r = check_affinity(check->config, &usable, text, sizeof(text));

        if (r != 0)
                check_say(check, r < 0 ? "fail" : "warn", "affinity", "name CPUs that the daemon may use",
                          "%s", text);
}

static void check_ceiling(struct check *check) {
        char text[256];

        if (ceiling_is_low(check->config->limits[ACCOUNT_OWN], text, sizeof(text)))
                check_say(check, "warn", "memory limit", ceiling_remedy(), "%s", text);
}

/* A socket that the service manager has made has its group, too. */
static void check_group(struct check *check) {
        const char *group = check->config->socket_group;
        bool alone = check->config->metrics_socket[0] == '\0';

        if (group[0] == '\0' || (getenv("LISTEN_FDS") != NULL && alone) || getgrnam(group) != NULL)
                return;
        bool passed = alone && check_has_manager();
        check_say(check, passed ? "warn" : "fail", "socket group", LISTENER_GROUP_FIX, LISTENER_NO_GROUP "%s",
                  group,
                  passed ? ": only a gradsyncd whose socket the service manager makes starts without it"
                         : "");
}

/* ---- addresses of this host ---- */

struct check_use { /* of an address, by a setting */
        const char *name, *key, *what;
        bool waits; /* a start goes on without it, and tries again */
};

/* Writes the address without a port into `number`, if this host has it. */
static bool check_is_here(struct check *check, const struct check_use *use, const struct address *address,
                          char number[ADDRESS_TEXT]) {
        static const char fix[] = "choose one that `ip address` shows";
        struct sockaddr_storage at;
        socklen_t length;
        int r = address_resolve_here(address, true, &at, &length);

        if (r == 0)
                r = address_check_here(&at, length);
        if (r == 0)
                address_format_host(&at, number, ADDRESS_TEXT);
        else if (r == -ENOENT)
                check_say(check, "fail", use->name, fix,
                          "%s: '%s' is neither an address nor an interface of this host", use->key,
                          address->host);
        else
                check_say(check, use->waits && exporter_may_wait(r) ? "warn" : "fail", use->name, fix,
                          "%s %s: %s", use->what, address->text, strerror(-r));
        return r == 0;
}

static void check_metrics(struct check *check) {
        static const struct check_use use = { "metrics address", "metrics_listen",
                                              "metrics_listen: cannot listen on", true };
        char error[256], number[ADDRESS_TEXT];
        struct address address;

        if (check->config->metrics_listen[0] != '\0' &&
            address_parse(check->config->metrics_listen, &address, error, sizeof(error)) == 0)
                check_is_here(check, &use, &address, number);
}

/* The first address for TCP goes into `tcp`. */
static bool check_listen(struct check *check, char tcp[ADDRESS_TEXT]) {
        static const struct check_use use = { "cluster address", "listen", "cannot listen on", false };
        _cleanup_(freep) char *list = strdup(check->config->listen);
        char *rest = NULL, error[512], number[ADDRESS_TEXT];
        bool good = list != NULL;
        struct address address;

        if (!good)
                check_say(check, "fail", use.name, "", "listen: %s", strerror(ENOMEM));
        for (char *at = good ? strtok_r(list, ", ", &rest) : NULL; at != NULL;
             at = strtok_r(NULL, ", ", &rest)) {
                if (address_parse(at, &address, error, sizeof(error)) < 0)
                        continue; /* config_load() refuses it */
                good &= check_is_here(check, &use, &address, number);
                if (!address.local && tcp[0] == '\0')
                        snprintf(tcp, ADDRESS_TEXT, "%s", address.text);
        }
        return good;
}

static bool check_data_address(struct check *check, char number[ADDRESS_TEXT]) {
        static const struct check_use use = { "cluster address", "data_address", "cannot exchange data on",
                                              false };
        const struct config *config = check->config;
        struct address address = { .port = "1" };

        if (config->data_address[0] == '\0' || config->coordinator[0] == '\0' ||
            strcmp(config->device, "none") == 0)
                return true;
        snprintf(address.text, sizeof(address.text), "%s", config->data_address);
        snprintf(address.host, sizeof(address.host), "%s", config->data_address);
        return check_is_here(check, &use, &address, number);
}

static void check_addresses(struct check *check, char tcp[ADDRESS_TEXT]) {
        const char *listen = check->config->listen;
        char number[ADDRESS_TEXT] = "";
        bool good = check_listen(check, tcp);

        if (check_data_address(check, number) && good && (listen[0] != '\0' || number[0] != '\0'))
                check_say(check, "ok", "cluster address", "", "%s%s%s%s%s",
                          listen[0] != '\0' ? "listens on " : "", listen,
                          listen[0] != '\0' && number[0] != '\0' ? ", " : "",
                          number[0] != '\0' ? "exchanges data on " : "", number);
}

/* ---- keys ---- */

static const char *check_keys_source(const struct check *check) {
        const char *file = check->config->key_file;

        return file[0] != '\0' ? file : "the credential " KEY_CREDENTIAL;
}

static void check_expiry(struct check *check, const struct key *key, time_t now) {
        const char *source = check_keys_source(check);

        if (key_is_over(key, now))
                check_say(check, "warn", "cluster key", "remove its line, and reload the daemons (SIGHUP)",
                          "key '%s' of %s is over", key->name, source);
        else if (key->until != 0 && key->until - now < SOON)
                check_say(check, "warn", "cluster key",
                          "add a new key as a second line on all hosts, then make it the first one",
                          "key '%s' of %s runs out in %.1f days", key->name, source,
                          (double)(key->until - now) / (double)DAY);
}

/* `tcp` is an address that needs a key, or "". */
static void check_no_key(struct check *check, const char *tcp) {
        if (tcp[0] == '\0')
                return;
        if (check->config->insecure_no_auth)
                check_say(check, "warn", "cluster key", "set key_file, and remove insecure_no_auth",
                          "there is no key: whoever reaches the ports can read and spoil jobs");
        else if (check_has_manager() && getenv("CREDENTIALS_DIRECTORY") == NULL)
                check_say(
                        check, "warn", "cluster key", "set key_file, if it has none",
                        "key_file is not set: the credential " KEY_CREDENTIAL
                        " of the unit counts, if it has that; without a key there is no TCP between daemons");
        else
                check_say(check, "fail", "cluster key", LINKS_KEY_FIX, "%s: " LINKS_NO_KEY, tcp);
}

int check_load_keys(const struct config *config, struct keys *ret, char *error, size_t size) {
        int r = keys_load(config->key_file, getenv("CREDENTIALS_DIRECTORY"), ret, error, size);

        if (r < 0 || ret->n == 0 || tls_is_built())
                return r;
        keys_clear(ret);
        snprintf(error, size, "there is a key, but this gradsyncd was built without TLS (OpenSSL)");
        return -ENOTSUP;
}

static void check_keys(struct check *check, const char *tcp) {
        const char *file = check->config->key_file, *source = check_keys_source(check);
        char error[512];
        time_t now = time(NULL);
        unsigned good = 0;

        if (strncmp(file, "credential:", 11) == 0 && getenv("CREDENTIALS_DIRECTORY") == NULL) {
                check_say(check, "warn", "cluster key", "",
                          "key_file: %s is the service manager's: it cannot be read outside of the service",
                          file);
                return;
        }
        int r = check_load_keys(check->config, &check->keys, error, sizeof(error));
        if (r < 0) {
                check_say(check, "fail", "cluster key",
                          r == -ENOTSUP ? "use a gradsyncd that was built with OpenSSL, or remove the key"
                                        : "the file needs one line made by gradsyncctl key new, mode 0600, "
                                          "and the daemon's user as its owner",
                          "%s", error);
                return;
        }
        if (check->keys.n == 0) {
                check_no_key(check, tcp);
                return;
        }
        for (unsigned i = 0; i < check->keys.n; i++) {
                good += !key_is_over(&check->keys.key[i], now);
                check_expiry(check, &check->keys.key[i], now);
        }
        if (good == 0)
                check_say(check, tcp[0] != '\0' ? "fail" : "warn", "cluster key",
                          "put the other daemons' key into it", "%s has no key that is in force", source);
        else
                check_say(check, "ok", "cluster key", "", "%s: %u key%s, the first one is '%s'", source, good,
                          good == 1 ? "" : "s", check->keys.key[0].name);
}

/* ---- the coordinator ---- */

static void check_on_up(void *owner, struct peer *peer) {
        struct check *check = owner;

        check->peer = peer;
        check->deadline = clock_now() + CLOCK_WAIT;
}

static const char *check_on_frame(void *owner, struct peer *peer, unsigned type, uint32_t about,
                                  const void *bytes, size_t length) {
        return NULL;
}

static void check_on_down(void *owner, struct peer *peer, const char *why) {
        struct check *check = owner;

        check->peer = NULL;
        loop_exit(check->loop, 0);
}

static const struct links_events check_events = { .up = check_on_up,
                                                  .frame = check_on_frame,
                                                  .down = check_on_down };

/* Until the clocks are known, or it takes too long. The other end may refuse after this end has taken it for
 * a success, so the greeting alone is not the end. */
static void check_on_look(void *data) {
        struct check *check = data;
        const struct pulse_sample *pulse = check->peer != NULL ? peer_pulse(check->peer) : NULL;

        if (pulse != NULL || clock_now() >= check->deadline ||
            (check->peer == NULL && links_trouble(check->links) != NULL && links_has_failed(check->links)))
                loop_exit(check->loop, 0);
        else
                loop_timer_arm(check->timer, CLOCK_LOOK);
}

static void check_clock(struct check *check) {
        const struct pulse_sample *pulse = peer_pulse(check->peer);

        if (pulse == NULL)
                return; /* a release that does not answer such questions */
        uint64_t apart = (uint64_t)llabs(pulse->wall);
        bool far = apart > CLOCK_APART + pulse->round_trip;
        check_say(check, far ? "warn" : "ok", "cluster clock",
                  far ? "let both hosts take their time from NTP: their logs are hard to compare" : "",
                  "the coordinator's time of day is %.3f s %s (round trip %.2f ms)", (double)apart / 1e6,
                  pulse->wall >= 0 ? "ahead" : "behind", (double)pulse->round_trip / 1e3);
}

static void check_judge(struct check *check, const struct address *address) {
        const char *trouble = links_trouble(check->links);

        if (check->peer != NULL) {
                check_say(check, "ok", "coordinator", "", "%s is on host %s, gradsyncd %s", address->text,
                          peer_host(check->peer), peer_release(check->peer));
                check_clock(check);
        } else if (links_has_met(check->links)) {
                check_say(check, "fail", "coordinator",
                          "give both daemons the same key and neighbouring releases; the coordinator's log "
                          "says what it refuses",
                          "%s is reached, and does not let this daemon in: %s", address->text,
                          trouble != NULL ? trouble : "it says nothing");
        } else {
                check_say(check, "fail", "coordinator",
                          "start gradsyncd there with `listen`, and open that port in the firewall",
                          "%s cannot be reached: %s", address->text,
                          trouble != NULL && links_has_failed(check->links) ? trouble : "it does not answer");
        }
}

static int check_connect(struct check *check, const struct address *address, char *error, size_t size) {
        static uint8_t node[LINK_NODE];
        struct links_config config = {
                .node = node,
                .host = "gradsyncd --check",
                .instance = 1,
                .release = GRADSYNC_RELEASE,
                .keys = &check->keys,
                .insecure = check->config->insecure_no_auth,
                .limits = { .patience = CONNECT_WAIT, .per_address = 1, .together = 1 },
                .silence = CONNECT_WAIT,
                .events = &check_events,
                .owner = check
        };
        int r = getrandom(node, sizeof(node), 0) == sizeof(node) ? 0 : -errno;

        if (r == 0)
                r = loop_new(&check->loop);
        config.loop = check->loop;
        if (r == 0)
                r = links_new(&config, &check->links);
        if (r == 0)
                r = loop_timer_new(check->loop, check_on_look, check, &check->timer);
        if (r < 0) {
                snprintf(error, size, "%s", strerror(-r));
                return r;
        }
        check->deadline = clock_now() + CONNECT_WAIT;
        loop_timer_arm(check->timer, CLOCK_LOOK);
        return links_dial(check->links, address, error, size);
}

static void check_coordinator(struct check *check) {
        const char *at = check->config->coordinator;
        struct sockaddr_storage found;
        struct address address;
        char error[512] = "";
        socklen_t length;

        if (address_parse(at, &address, error, sizeof(error)) < 0)
                return; /* config_load() refuses it */
        if (!address.local && address_resolve_here(&address, false, &found, &length) == -ENOENT &&
            address_look_up(&address, &found, &length, error, sizeof(error)) < 0) {
                check_say(check, "fail", "coordinator",
                          "enter the name in DNS or /etc/hosts, or give the address",
                          "the name '%s' is not known here: %s", address.host, error);
                return;
        }
        if (check_connect(check, &address, error, sizeof(error)) < 0) {
                check_say(check, "fail", "coordinator", "see \"cluster key\"", "%s is not tried: %s", at,
                          error);
        } else {
                loop_run(check->loop);
                check_judge(check, &address);
        }
        links_free(check->links);
        loop_timer_free(check->timer);
        loop_free(check->loop);
}

/* ---- all of them ---- */

static void check_cluster(struct check *check) {
        const struct config *config = check->config;
        bool elsewhere = config->coordinator[0] != '\0' && strcmp(config->coordinator, "self") != 0;
        char tcp[ADDRESS_TEXT] = "", error[256];

        if (config_check_times(config, error, sizeof(error)) < 0)
                check_say(check, "fail", "cluster times", "compare them with what --help shows", "%s", error);
        check_addresses(check, tcp);
        if (elsewhere && tcp[0] == '\0' && strncmp(config->coordinator, "unix:", 5) != 0)
                snprintf(tcp, sizeof(tcp), "%s", config->coordinator);
        if (elsewhere || config->listen[0] != '\0')
                check_keys(check, tcp);
        if (elsewhere && check_looks_around(check))
                check_coordinator(check);
        keys_clear(&check->keys);
}

int check_settings(const struct config *config, enum config_action action, FILE *to) {
        struct check check = { .config = config, .action = action, .to = to };

        check_cpus(&check);
        check_group(&check);
        check_metrics(&check);
        if (check_looks_around(&check))
                check_ceiling(&check);
        if (config->coordinator[0] != '\0' || config->listen[0] != '\0')
                check_cluster(&check);
        return check.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
