/* SPDX-License-Identifier: Apache-2.0 */
#include "core/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop.h"
#include "core/ceiling.h"
#include "link/link.h"

#define CONNECT_WAIT (5 * USEC_PER_SEC)
#define CLOCK_LOOK (20 * USEC_PER_MSEC)
#define CLOCK_WAIT USEC_PER_SEC
#define CLOCK_APART USEC_PER_SEC /* of two hosts' times of day, beyond which their logs are hard to compare */
#define DAY ((time_t)86400)
#define SOON (14 * DAY) /* for a key to run out */

struct check {
        const struct config *config;
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

static void check_say(struct check *check, const char *result, const char *name, const char *fix,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
static void check_say(struct check *check, const char *result, const char *name, const char *fix,
                      const char *format, ...) {
        va_list arguments;

        check->failed |= strcmp(result, "fail") == 0;
        fprintf(check->to, "%s\t%s\t", result, name);
        va_start(arguments, format);
        vfprintf(check->to, format, arguments);
        va_end(arguments);
        fprintf(check->to, "\t%s\n", fix);
}

/* ---- keys ---- */

static void check_expiry(struct check *check, const struct key *key, time_t now) {
        if (key_is_over(key, now))
                check_say(check, "warn", "cluster key", "remove its line, and reload the daemons (SIGHUP)",
                          "key '%s' of %s is over", key->name, check->config->key_file);
        else if (key->until != 0 && key->until - now < SOON)
                check_say(check, "warn", "cluster key",
                          "add a new key as a second line on all hosts, then make it the first one",
                          "key '%s' of %s runs out in %.1f days", key->name, check->config->key_file,
                          (double)(key->until - now) / (double)DAY);
}

static void check_keys(struct check *check, bool tcp) {
        const char *file = check->config->key_file, *credentials = getenv("CREDENTIALS_DIRECTORY");
        char error[512];
        time_t now = time(NULL);
        unsigned good = 0;

        if (strncmp(file, "credential:", 11) == 0 && credentials == NULL) {
                check_say(check, "warn", "cluster key", "",
                          "%s is the service manager's, and cannot be seen from outside of the service",
                          file);
                return;
        }
        if (file[0] == '\0' && credentials == NULL && tcp && check->config->insecure_no_auth)
                check_say(check, "warn", "cluster key", "set key_file, and remove insecure_no_auth",
                          "there is none: whoever reaches the ports can read and spoil jobs");
        else if (file[0] == '\0' && credentials == NULL && tcp)
                check_say(check, "fail", "cluster key",
                          "make one (gradsyncctl key new), copy it to all hosts, and set key_file",
                          "there is none, and no TCP between daemons without one");
        if (file[0] == '\0' && credentials == NULL)
                return;
        if (keys_load(file, credentials, &check->keys, error, sizeof(error)) < 0) {
                check_say(check, "fail", "cluster key",
                          "the file needs one line made by gradsyncctl key new, mode 0600, and the daemon's "
                          "user as its owner",
                          "%s", error);
                return;
        }
        for (unsigned i = 0; i < check->keys.n; i++) {
                good += !key_is_over(&check->keys.key[i], now);
                check_expiry(check, &check->keys.key[i], now);
        }
        if (good == 0)
                check_say(check, "fail", "cluster key", "put the other daemons' key into it",
                          "%s has no key that is in force", file);
        else
                check_say(check, "ok", "cluster key", "", "%s: %u key%s, the first one is '%s'", file, good,
                          good == 1 ? "" : "s", check->keys.key[0].name);
}

/* ---- addresses of this host ---- */

static bool check_listen_on(struct check *check, const char *text, bool *tcp) {
        struct sockaddr_storage at;
        struct address address;
        char error[512];
        socklen_t length;

        if (address_parse(text, &address, error, sizeof(error)) < 0) {
                check_say(check, "fail", "cluster address", "write HOST:PORT, INTERFACE:PORT or unix:PATH",
                          "listen: %s", error);
                return false;
        }
        *tcp |= !address.local;
        if (address_resolve_here(&address, true, &at, &length) == 0)
                return true;
        check_say(check, "fail", "cluster address", "choose one that `ip address` shows",
                  "listen: '%s' is neither an address nor an interface of this host", address.host);
        return false;
}

static void check_addresses(struct check *check, bool *tcp) {
        const struct config *config = check->config;
        _cleanup_(freep) char *list = strdup(config->listen);
        char *rest = NULL, number[64] = "";
        bool good = list != NULL;

        for (char *at = good ? strtok_r(list, ", ", &rest) : NULL; at != NULL;
             at = strtok_r(NULL, ", ", &rest))
                good &= check_listen_on(check, at, tcp);
        if (config->data_address[0] != '\0' &&
            address_of_host(config->data_address, number, sizeof(number)) < 0) {
                check_say(check, "fail", "cluster address", "choose one that `ip address` shows",
                          "data_address: '%s' is neither an address nor an interface of this host",
                          config->data_address);
                good = false;
        }
        if (good && (config->listen[0] != '\0' || number[0] != '\0'))
                check_say(check, "ok", "cluster address", "", "%s%s%s%s",
                          config->listen[0] != '\0' ? "listens on " : "", config->listen,
                          number[0] == '\0'           ? ""
                          : config->listen[0] != '\0' ? ", exchanges data on "
                                                      : "exchanges data on ",
                          number);
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

        if (address_parse(at, &address, error, sizeof(error)) < 0) {
                check_say(check, "fail", "coordinator", "write HOST:PORT or unix:PATH", "%s", error);
                return;
        }
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

static void check_ceiling(struct check *check) {
        char text[256];

        if (ceiling_is_low(check->config->limits[ACCOUNT_OWN], text, sizeof(text)))
                check_say(check, "warn", "memory limit", ceiling_remedy(), "%s", text);
}

int check_settings(const struct config *config, FILE *to) {
        struct check check = { .config = config, .to = to };
        bool elsewhere = config->coordinator[0] != '\0' && strcmp(config->coordinator, "self") != 0;
        bool tcp = elsewhere && strncmp(config->coordinator, "unix:", 5) != 0;

        check_ceiling(&check);
        if (config->coordinator[0] == '\0' && config->listen[0] == '\0')
                return EXIT_SUCCESS;
        check_addresses(&check, &tcp);
        check_keys(&check, tcp);
        if (elsewhere)
                check_coordinator(&check);
        keys_clear(&check.keys);
        return check.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
