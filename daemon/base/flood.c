/* SPDX-License-Identifier: Apache-2.0 */
/* The bursts that go on now, each kept in its user. If there are too many, a new burst displaces the one that
 * has been quiet for longest. */
#include "flood.h"

#include <inttypes.h>
#include <stdio.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"
#include "user.h"

#define BURSTS 64u
#define QUIET (10 * USEC_PER_SEC)    /* a burst has ended after such a time without another event */
#define LASTING (600 * USEC_PER_SEC) /* a burst that does not end is logged after each such time */
#define TOGETHER 100u                /* lines within QUIET about all users together */

static const struct {
        const char *words;
        unsigned lines; /* lines within QUIET; further events are only counted */
} flood_kinds[FLOOD_KINDS] = {
        [FLOOD_PROTOCOL] = { "broke the rules of the protocol", 1 },
        [FLOOD_TURNED_AWAY] = { "was turned away", 1 },
        [FLOOD_SILENT] = { "connected and sent no HELLO", 1 },
        [FLOOD_UNREAD] = { "did not read what was sent to it", 1 },
        [FLOOD_FAILED] = { "asked for what could not be done", 1 },
        [FLOOD_NO_FDS] = { "clients were turned away for want of file descriptors", 1 },
        [FLOOD_JOBS] = { "had a job form or end", 20 },
        [FLOOD_STALLS] = { "had a step or collective stall", 20 },
        [FLOOD_ORDERS] = { "gave an order", 20 },
        [FLOOD_STRANGERS] = { "connections from elsewhere were turned away", 20 },
};

static struct {
        struct users *users;
        struct list bursts; /* the one that has been quiet for longest comes first */
        unsigned n_bursts;
        uint64_t together_since, left_out;
        unsigned together;
} flood = { .bursts = LIST_INIT(flood.bursts) };

void flood_begin(struct users *users) {
        flood.users = users;
}

static void burst_log(struct flood_burst *burst, uint64_t now) {
        struct log_context context = LOG_CONTEXT_NONE;
        const char *words = flood_kinds[burst->kind].words;
        double seconds = (double)(now - burst->since) / 1e6;
        uid_t uid = burst->user->uid;

        if (burst->count == 0)
                return;
        if (uid == FLOOD_NO_UID) {
                log_warning("%s: %" PRIu64 " more times in %.0f s", words, burst->count, seconds);
        } else {
                context.uid = uid;
                log_write(LOG_WARNING, &context, "uid %u %s: %" PRIu64 " more times in %.0f s", (unsigned)uid,
                          words, burst->count, seconds);
        }
        burst->count = 0;
        burst->since = now;
}

static void burst_end(struct flood_burst *burst) {
        struct user *user = burst->user;

        list_remove(&burst->link);
        flood.n_bursts--;
        *burst = (struct flood_burst){ 0 };
        user_unref(user);
}

/* Ends the burst that has been quiet for longest. Its count goes into that of all users together: a crowd of
 * users must not be logged one by one. */
static void burst_displace(void) {
        struct flood_burst *burst = list_entry(flood.bursts.next, struct flood_burst, link);

        flood.left_out += burst->count;
        burst_end(burst);
}

/* Returns the burst of this kind and user, and begins it if none goes on. NULL: the user cannot be
 * remembered. */
static struct flood_burst *burst_of(enum flood_kind kind, uid_t uid, uint64_t now) {
        struct user *user = flood.users ? user_get(flood.users, uid) : NULL;

        if (user == NULL)
                return NULL;
        struct flood_burst *burst = &user->burst[kind];
        if (burst->user != NULL) {
                list_remove(&burst->link);
        } else {
                user_ref(user);
                if (flood.n_bursts == BURSTS)
                        burst_displace();
                flood.n_bursts++;
                *burst = (struct flood_burst){ .user = user, .kind = kind, .since = now };
        }
        list_append(&flood.bursts, &burst->link);
        burst->last = now;
        return burst;
}

static bool flood_admits_together(uint64_t now) {
        if (now - flood.together_since >= QUIET) {
                flood.together_since = now;
                flood.together = 0;
        }
        if (flood.together == TOGETHER)
                return false;
        flood.together++;
        return true;
}

bool flood_admits(enum flood_kind kind, uid_t uid, uint64_t now) {
        struct flood_burst *burst = burst_of(kind, uid, now);

        if (burst == NULL)
                return flood_admits_together(now);
        if (burst->count == 0 && now - burst->since >= QUIET) { /* the burst goes on, but slowly */
                burst->since = now;
                burst->lines = 0;
        }
        if (burst->lines < flood_kinds[kind].lines && flood_admits_together(now)) {
                burst->lines++;
                return true;
        }
        burst->count++;
        return false;
}

static void flood_log_left_out(void) {
        if (flood.left_out > 0)
                log_warning("%" PRIu64 " more events of too many users to name each were not logged",
                            flood.left_out);
        flood.left_out = 0;
}

void flood_settle(uint64_t now) {
        struct flood_burst *burst, *spare;

        list_for_each_safe(burst, spare, &flood.bursts, link) {
                bool quiet = now - burst->last >= QUIET;

                if (quiet || now - burst->since >= LASTING)
                        burst_log(burst, now);
                if (quiet)
                        burst_end(burst);
        }
        if (now - flood.together_since >= QUIET)
                flood_log_left_out();
}

void flood_end(void) {
        struct flood_burst *burst, *spare;

        list_for_each_safe(burst, spare, &flood.bursts, link) {
                burst_log(burst, burst->last);
                burst_end(burst);
        }
        flood_log_left_out();
        flood.together_since = flood.together = 0;
        flood.users = NULL;
}
