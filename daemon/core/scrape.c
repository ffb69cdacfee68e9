/* SPDX-License-Identifier: Apache-2.0 */
/* From family to family, and from job to job in each: see scrape.h. */
#include "core/scrape.h"

#include "base/clock.h"

#define PIECE_BYTES (32u << 10) /* of text; the piece ends with what goes beyond */
#define PIECE_TIME 250u         /* us; the same */

struct scrape_target {
        FILE *to;
        size_t family;
};

static void scrape_on_daemon(void *data, uint16_t type, const ProtobufCMessage *row) {
        metrics_write_daemon(data, (const Wire__StatusDaemon *)(const void *)row);
}

static void scrape_on_job(void *data, const struct metrics_job *job) {
        const struct scrape_target *target = data;

        metrics_write_job(target->to, target->family, job);
}

static void scrape_begin_family(struct scrape *scrape, FILE *to) {
        metrics_begin_family(to, scrape->family);
        scrape->at =
                (struct sessions_measure){ .what = metrics_needs(scrape->family), .until = scrape->until };
        scrape->stage = SCRAPE_JOBS;
}

/* The next job, or some of its ranks. */
static void scrape_write_job(struct scrape *scrape, FILE *to) {
        struct scrape_target target = { to, scrape->family };
        uint32_t job = sessions_measure(scrape->sessions, &scrape->at, scrape_on_job, &target);

        if (job == 0)
                scrape->stage = ++scrape->family < metrics_n_families ? SCRAPE_FAMILY : SCRAPE_END;
        else if (scrape->at.rank == 0)
                scrape->at.after = job;
}

static void scrape_step(struct scrape *scrape, FILE *to) {
        switch (scrape->stage) {
        case SCRAPE_DAEMON:
                sessions_describe(scrape->sessions, scrape_on_daemon, to);
                scrape->stage = SCRAPE_FAMILY;
                break;
        case SCRAPE_FAMILY: scrape_begin_family(scrape, to); break;
        case SCRAPE_JOBS: scrape_write_job(scrape, to); break;
        case SCRAPE_END:
                metrics_write_end(to);
                scrape->stage = SCRAPE_OVER;
                break;
        case SCRAPE_OVER: break;
        }
}

void scrape_begin(struct scrape *scrape, struct sessions *sessions) {
        *scrape = (struct scrape){ .sessions = sessions, .until = sessions_newest_job(sessions) };
}

bool scrape_is_over(const struct scrape *scrape) {
        return scrape->stage == SCRAPE_OVER;
}

void scrape_write(struct scrape *scrape, FILE *to) {
        uint64_t end = clock_now() + PIECE_TIME;
        long begin = ftell(to);

        do
                scrape_step(scrape, to);
        while (!scrape_is_over(scrape) && ftell(to) - begin < (long)PIECE_BYTES && clock_now() < end);
}
