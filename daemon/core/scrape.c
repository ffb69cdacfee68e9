/* SPDX-License-Identifier: Apache-2.0 */
/* From family to family, and from job to job in each: see scrape.h. */
#include "core/scrape.h"

#include "base/clock.h"

#define PIECE_BYTES (32u << 10) /* of text; the piece ends with what goes beyond */
#define PIECE_TIME 250u         /* us; the same */

struct scrape_target {
        const struct metrics_out *to;
        size_t family;
};

static void scrape_on_daemon(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct scrape_target *target = data;

        metrics_write_daemon(target->to, (const Wire__StatusDaemon *)(const void *)row);
}

static void scrape_on_job(void *data, const struct metrics_job *job) {
        const struct scrape_target *target = data;

        metrics_write_job(target->to, target->family, job);
}

static void scrape_add_to_sum(struct scrape *scrape, const struct metrics_out *to) {
        if (reports_sum_go_on(scrape->config->reports, &scrape->sum))
                return;
        metrics_write_states(to, scrape->sum.sum.jobs);
        scrape->stage = scrape->config->jobs ? SCRAPE_FAMILY : SCRAPE_TOTALS;
}

static void scrape_begin_family(struct scrape *scrape, const struct metrics_out *to) {
        metrics_begin_family(to, scrape->family);
        scrape->at =
                (struct reports_measure){ .what = metrics_needs(scrape->family), .until = scrape->until };
        scrape->stage = SCRAPE_JOBS;
}

/* The next job, or some of its ranks. */
static void scrape_write_job(struct scrape *scrape, const struct metrics_out *to) {
        struct scrape_target target = { to, scrape->family };
        uint32_t job = reports_measure(scrape->config->reports, &scrape->at, scrape_on_job, &target);

        if (job == 0)
                scrape->stage = ++scrape->family < metrics_n_families ? SCRAPE_FAMILY : SCRAPE_OVER;
        else if (scrape->at.rank == 0)
                scrape->at.after = job;
}

static void scrape_step(struct scrape *scrape, const struct metrics_out *to) {
        struct scrape_target target = { .to = to };

        switch (scrape->stage) {
        case SCRAPE_DAEMON:
                reports_describe(scrape->config->reports, scrape_on_daemon, &target);
                reports_sum_begin(scrape->config->reports, &scrape->sum);
                scrape->stage = SCRAPE_SUM;
                break;
        case SCRAPE_SUM: scrape_add_to_sum(scrape, to); break;
        case SCRAPE_TOTALS:
                metrics_sum_write(to, &scrape->sum.sum);
                scrape->stage = SCRAPE_OVER;
                break;
        case SCRAPE_FAMILY: scrape_begin_family(scrape, to); break;
        case SCRAPE_JOBS: scrape_write_job(scrape, to); break;
        case SCRAPE_OVER: break;
        }
}

void scrape_begin(struct scrape *scrape, const struct scrape_config *config) {
        *scrape = (struct scrape){ .config = config, .until = reports_newest_job(config->reports) };
}

void scrape_end(struct scrape *scrape) {
        reports_sum_end(&scrape->sum);
        scrape->stage = SCRAPE_OVER;
}

bool scrape_is_over(const struct scrape *scrape) {
        return scrape->stage == SCRAPE_OVER;
}

void scrape_write(struct scrape *scrape, FILE *to) {
        struct metrics_out out = { .file = to, .device = scrape->config->device };
        uint64_t end = clock_now() + PIECE_TIME;
        long begin = ftell(to);

        do
                scrape_step(scrape, &out);
        while (!scrape_is_over(scrape) && ftell(to) - begin < (long)PIECE_BYTES && clock_now() < end);
}
