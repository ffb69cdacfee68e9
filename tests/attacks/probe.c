/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One member of the job that attacks are measured beside: it takes steps as fast as they go, and checks each
 * sum. Written against the public header alone. Its job comes from the environment, like any trainer's.
 *
 *     attack_probe BYTES
 *
 * Says "began" after its first step, and for each line that it reads
 *
 *     period STEPS VOID WRONG P50_NS WORST_NS
 *
 * of the steps since the line before: how many were committed, void (and tried again), and wrong, and how
 * long they took from the first value of a gradient to the average, all attempts together. When a step cannot
 * be tried again it says "lost RESULT TEXT" and ends. It leaves the job when its input ends.
 */
#include <gradsync/gradsync.h>

#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS 2u
#define VALUES 1000u /* other ones in each of so many steps; their sums are exact */
#define FRACTION 6u  /* bits of a time that tell its class from the next one: within 2 % */
#define CLASSES ((65u - FRACTION) << FRACTION)

struct period {
        uint64_t committed, voided, wrong, worst; /* ns */
        uint64_t class[CLASSES];
};

struct probe {
        struct gradsync *gs;
        struct gradsync_job *job;
        struct gradsync_plan *plan;
        size_t elements;
        uint64_t step, begin; /* when it was tried first; 0: not yet */
        struct period period;
};

static uint64_t probe_now(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void probe_check(const char *what, int result) {
        if (result == GRADSYNC_OK)
                return;
        printf("lost %s in %s: %s\n", gradsync_result_name(result), what, gradsync_error());
        exit(1);
}

/* Short times have a class each; of a longer one its highest bits count. */
static size_t period_class(uint64_t ns) {
        unsigned top = 63u - (unsigned)__builtin_clzll(ns | 1u);
        unsigned shift = top > FRACTION ? top - FRACTION : 0;

        return ((size_t)shift << FRACTION) + (ns >> shift);
}

static uint64_t period_lowest(size_t class) {
        size_t shift = class >> FRACTION > 0 ? (class >> FRACTION) - 1 : 0;

        return (uint64_t)(class - (shift << FRACTION)) << shift;
}

static void period_add(struct period *period, uint64_t ns) {
        period->committed++;
        period->class[period_class(ns)]++;
        if (ns > period->worst)
                period->worst = ns;
}

static uint64_t period_median(const struct period *period) {
        uint64_t below = 0;
        size_t class = 0;

        while (class < CLASSES - 1 && (below += period->class[class]) * 2 < period->committed)
                class ++;
        return period_lowest(class);
}

static void probe_tell(struct probe *probe) {
        struct period *period = &probe->period;

        printf("period %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", period->committed,
               period->voided, period->wrong, period_median(period), period->worst);
        memset(period, 0, sizeof(*period));
}

/* A line is all that has come since the last look: who asks waits for the answer. False at the end. */
static bool probe_is_asked(void) {
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

        return poll(&input, 1, 0) > 0;
}

static bool probe_hear(struct probe *probe) {
        char line[64];

        if (!probe_is_asked())
                return true;
        if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
                return false;
        probe_tell(probe);
        return true;
}

static float probe_value(const struct probe *probe, unsigned rank) {
        return (float)(probe->step % VALUES * MEMBERS + rank);
}

static void probe_fill(struct probe *probe) {
        float *gradient = gradsync_gradient(probe->plan, 0);
        float value = probe_value(probe, gradsync_rank(probe->job));

        for (size_t i = 0; i < probe->elements; i++)
                gradient[i] = value;
}

static bool probe_is_right(const struct probe *probe) {
        const float *gradient = gradsync_gradient(probe->plan, 0);
        float value = (probe_value(probe, 0) + probe_value(probe, MEMBERS - 1)) / MEMBERS;
        size_t right = 0;

        for (size_t i = 0; i < probe->elements; i++)
                right += gradient[i] == value;
        return right == probe->elements;
}

/* The number of the step is all the state that there is. */
static void probe_sync(struct probe *probe) {
        uint64_t content = probe->step;
        const struct gradsync_state state = { &content, sizeof(content) };

        probe_check("sync_state", gradsync_sync_state(probe->job, &state, 1, &probe->step));
}

/* A void step is taken again, with the same values if no other member has another state. */
static void probe_step(struct probe *probe) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;

        if (probe->begin == 0)
                probe->begin = probe_now();
        probe_fill(probe);
        int result = gradsync_ready(probe->plan, 0);
        if (result == GRADSYNC_OK)
                result = gradsync_finish(probe->plan, &info);
        if (result == GRADSYNC_VOID_RETRY || result == GRADSYNC_VOID_BEHIND) {
                probe->period.voided++;
                if (result == GRADSYNC_VOID_BEHIND)
                        probe_sync(probe);
                return;
        }
        probe_check("a step", result);
        period_add(&probe->period, probe_now() - probe->begin);
        probe->begin = 0;
        probe->period.wrong += !probe_is_right(probe);
        probe->step++;
}

static void probe_join(struct probe *probe) {
        uint64_t shape[1] = { probe->elements };

        probe_check("open", gradsync_open(&probe->gs, NULL));
        probe_check("join", gradsync_join(probe->gs, NULL, &probe->job));
        probe_check("param", gradsync_param(probe->job, "weight", GRADSYNC_F32, 1, shape));
        probe_check("plan", gradsync_plan(probe->job, &probe->plan));
        probe_sync(probe);
}

int main(int argc, char **argv) {
        static struct probe probe;

        if (argc != 2) {
                fprintf(stderr, "usage: %s BYTES\n", argv[0]);
                return 2;
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        probe.elements = strtoull(argv[1], NULL, 10) / sizeof(float);
        probe_join(&probe);
        while (probe.step == 0)
                probe_step(&probe);
        memset(&probe.period, 0, sizeof(probe.period));
        puts("began");
        while (probe_hear(&probe))
                probe_step(&probe);
        gradsync_close(probe.gs);
        return 0;
}
