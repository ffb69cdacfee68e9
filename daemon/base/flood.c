/* SPDX-License-Identifier: Apache-2.0 */
/* A small table of the bursts that go on now. Who finds it full takes the place of the one that has been
 * quiet for longest. */
#include "flood.h"

#include <inttypes.h>
#include <stdio.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"

#define PLACES 64u
#define QUIET (10 * USEC_PER_SEC)    /* without another event: the burst has ended */
#define LASTING (600 * USEC_PER_SEC) /* of one that does not end a count is told so often */
#define TOGETHER 100u                /* lines within QUIET, whoever they are about */

static const struct {
        const char *words;
        unsigned lines; /* within QUIET, before they are only counted */
} kinds[FLOOD_KINDS] = {
        [FLOOD_PROTOCOL] = { "broke the rules of the protocol", 1 },
        [FLOOD_TURNED_AWAY] = { "was turned away", 1 },
        [FLOOD_SILENT] = { "connected and sent no HELLO", 1 },
        [FLOOD_UNREAD] = { "did not read what was sent to it", 1 },
        [FLOOD_FAILED] = { "asked for what could not be done", 1 },
        [FLOOD_NO_FDS] = { "clients were turned away for want of file descriptors", 1 },
        [FLOOD_JOBS] = { "had a job form or end", 20 },
        [FLOOD_STALLS] = { "had a step or collective stall", 20 },
        [FLOOD_ORDERS] = { "gave an order", 20 },
};

struct burst {
        bool used;
        enum flood_kind kind;
        uid_t uid;
        unsigned lines; /* written */
        uint64_t count; /* not written */
        uint64_t since, last;
};

static struct burst bursts[PLACES];
static uint64_t together_since, left_out;
static unsigned together;

static void tell(struct burst *burst, uint64_t now) {
        struct log_context context = LOG_CONTEXT_NONE;
        double seconds = (double)(now - burst->since) / 1e6;

        if (burst->count == 0)
                return;
        if (burst->uid == FLOOD_NO_UID) {
                log_warning("%s: %" PRIu64 " more times in %.0f s", kinds[burst->kind].words, burst->count,
                            seconds);
        } else {
                context.uid = burst->uid;
                log_write(LOG_WARNING, &context, "uid %u %s: %" PRIu64 " more times in %.0f s",
                          (unsigned)burst->uid, kinds[burst->kind].words, burst->count, seconds);
        }
        burst->count = 0;
        burst->since = now;
}

static struct burst *find(enum flood_kind kind, uid_t uid) {
        for (unsigned i = 0; i < PLACES; i++)
                if (bursts[i].used && bursts[i].kind == kind && bursts[i].uid == uid)
                        return &bursts[i];
        return NULL;
}

/* The count of whoever is displaced goes into that of all together: a crowd of uids must not be told one
 * by one. */
static struct burst *open_place(enum flood_kind kind, uid_t uid, uint64_t now) {
        struct burst *place = &bursts[0];

        for (unsigned i = 0; i < PLACES && place->used; i++)
                if (!bursts[i].used || bursts[i].last < place->last)
                        place = &bursts[i];
        left_out += place->used ? place->count : 0;
        *place = (struct burst){ .used = true, .kind = kind, .uid = uid, .since = now };
        return place;
}

static bool admits_together(uint64_t now) {
        if (now - together_since >= QUIET) {
                together_since = now;
                together = 0;
        }
        if (together < TOGETHER) {
                together++;
                return true;
        }
        return false;
}

bool flood_admits(enum flood_kind kind, uid_t uid, uint64_t now) {
        struct burst *burst = find(kind, uid);

        if (burst == NULL)
                burst = open_place(kind, uid, now);
        burst->last = now;
        if (burst->count == 0 && now - burst->since >= QUIET) { /* it goes on, but slowly */
                burst->since = now;
                burst->lines = 0;
        }
        if (burst->lines < kinds[kind].lines && admits_together(now)) {
                burst->lines++;
                return true;
        }
        burst->count++;
        return false;
}

static void tell_left_out(void) {
        if (left_out > 0)
                log_warning("%" PRIu64 " more events of too many users to name each were not logged",
                            left_out);
        left_out = 0;
}

void flood_settle(uint64_t now) {
        for (unsigned i = 0; i < PLACES; i++) {
                struct burst *burst = &bursts[i];

                if (!burst->used || (now - burst->last < QUIET && now - burst->since < LASTING))
                        continue;
                tell(burst, now);
                burst->used = now - burst->last < QUIET;
        }
        if (now - together_since >= QUIET)
                tell_left_out();
}

void flood_end(void) {
        for (unsigned i = 0; i < PLACES; i++)
                if (bursts[i].used)
                        tell(&bursts[i], bursts[i].last);
        tell_left_out();
        for (unsigned i = 0; i < PLACES; i++)
                bursts[i] = (struct burst){ 0 };
        together_since = together = 0;
}
