/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a GPU reduces in place, as it does for the members of one node, and how long a small launch takes.
 * Bytes that are read and bytes that are written are both counted. Each pass is on memory that the caches do
 * not hold: there is more than four times as much as the L2 has room for, used in turn.
 */
#include <string.h>

#include "clock.h"
#include "proto/gradsync.pb-c.h"
#include "proto/names.h"
#include "reductions.h"

enum {
        BATCHES = 5,
        ROUNDS = 500,         /* isolated launches */
        PIECES = 200,         /* in a row */
        PIECE = 64 << 10,     /* bytes */
        PATTERN = 1 << 20,    /* bytes, of random values */
        BATCH_NS = 20000000,  /* at least, of a batch */
        BATCH_MOST = 1 << 14, /* passes */
};

static struct launch launch;
static unsigned char pattern[PATTERN];

struct passes {
        struct device *device;
        const struct question *question;
        size_t set;    /* bytes that a pass reduces or copies */
        unsigned sets; /* of them that there are */
        unsigned next;
        bool copy;
        unsigned cap;
};

/* One part of k inputs, side by side from this offset on, reduced in place. */
static bool add_part(const struct device *device, unsigned dtype, unsigned k, size_t offset, size_t bytes,
                     bool first) {
        uint64_t address[GRID_GROUP];
        struct launch_part part = { .dtype = dtype,
                                    .reduce = WIRE__REDUCE__AVG,
                                    .divisor = k,
                                    .elements = bytes / dtype_size(dtype),
                                    .n_inputs = k,
                                    .n_outputs = k,
                                    .inputs = address,
                                    .outputs = address,
                                    .statistics = true };

        for (unsigned i = 0; i < k; i++)
                address[i] = device->memory + offset + i * bytes;
        if (first)
                launch_init(&launch, (unsigned)launch_kernel(&part));
        return launch_add(&launch, &part, GRID_SCRATCH_WORDS, DEVICE_RESULTS);
}

static bool passes_one(struct passes *passes) {
        const struct question *question = passes->question;
        unsigned at = passes->next, other = (passes->next + 1) % passes->sets;

        passes->next = other;
        if (passes->copy)
                return device_copy(passes->device, other * passes->set, at * passes->set, passes->set);
        return add_part(passes->device, question->dtype, question->k, at * passes->set, question->bytes,
                        true) &&
               device_launch(passes->device, &launch, passes->cap);
}

/* Nanoseconds of so many passes in a row, 0: the device failed. */
static int64_t passes_batch(struct passes *passes, unsigned n) {
        int64_t begin = clock_ns();

        for (unsigned i = 0; i < n; i++)
                if (!passes_one(passes))
                        return 0;
        return device_wait(passes->device) ? clock_ns() - begin : 0;
}

/* The median of some batches, in nanoseconds for a pass; 0: the device failed. The first batches show how
 * many passes a batch needs, and warm up. */
static double passes_measure(struct passes *passes) {
        int64_t samples[BATCHES];
        unsigned n = passes->sets, batches = passes->question->small ? 1 : BATCHES;
        int64_t taken = passes_batch(passes, n);

        while (!passes->question->small && taken > 0 && taken < BATCH_NS && n < BATCH_MOST) {
                n *= 2;
                taken = passes_batch(passes, n);
        }
        for (unsigned i = 0; i < batches; i++)
                if ((samples[i] = passes_batch(passes, n)) == 0)
                        return 0;
        samples_sort(samples, batches);
        return (double)samples_percentile(samples, batches, 50) / n;
}

static bool passes_init(struct passes *passes, struct device *device, const struct question *question,
                        struct finding *finding) {
        *passes = (struct passes){ .device = device,
                                   .question = question,
                                   .set = question->k * question->bytes };
        passes->sets = (unsigned)(4 * device->l2 / passes->set) + 2;
        if (!device_room(device, passes->sets * passes->set)) {
                find_note(finding, "no memory for %zu MiB", passes->sets * passes->set >> 20);
                find_answer(finding, "skipped");
                return false;
        }
        type_fill(question->dtype, true, pattern, sizeof pattern);
        size_t have = device->bytes < sizeof pattern ? device->bytes : sizeof pattern;
        return device_put(device, pattern, have) && device_repeat(device, have, passes->sets * passes->set);
}

static double passes_rate(const struct passes *passes, double ns) {
        return 2 * (double)passes->set / ns;
}

void ask_bandwidth(struct device *device, const struct question *question, struct finding *finding) {
        const unsigned caps[] = { 0, 2 * (unsigned)device->card.processors };
        struct passes passes;
        double best = 0, copied, ns;

        if (!passes_init(&passes, device, question, finding))
                return;
        passes.copy = true;
        copied = passes_measure(&passes);
        if (copied == 0)
                return;
        find_note(finding,
                  "%u inputs of %zu KiB in place, %u sets in turn; a copy of as much %.1f GB/s, %.1f us",
                  question->k, question->bytes >> 10, passes.sets, passes_rate(&passes, copied),
                  copied / 1e3);
        passes.copy = false;
        for (unsigned i = 0; i < 2; i++) {
                passes.cap = caps[i];
                ns = passes_measure(&passes);
                if (ns == 0)
                        return;
                find_note(finding,
                          "; %u blocks (at most %u, 0: any number) %.1f GB/s, %.1f us, %.2f of the copy",
                          launch_blocks(&launch, caps[i]), caps[i], passes_rate(&passes, ns), ns / 1e3,
                          copied / ns);
                best = i == 0 ? ns : best;
        }
        find_answer(finding, "%.1f GB/s, %.2f of a copy", passes_rate(&passes, best), copied / best);
}

/* ---- small launches: pieces of 2 inputs ---- */

static bool latency_room(struct device *device, const struct question *question, unsigned pieces) {
        type_fill(question->dtype, true, pattern, sizeof pattern);
        return device_room(device, (size_t)pieces * 2 * PIECE) &&
               device_put(device, pattern, sizeof pattern) &&
               device_repeat(device, sizeof pattern, (size_t)pieces * 2 * PIECE);
}

/* Launches as many pieces as the question says. Returns whether they were launched. */
static bool latency_launch(struct device *device, const struct question *question, unsigned from,
                           unsigned n) {
        for (unsigned i = 0; i < n; i++)
                if (!add_part(device, question->dtype, 2, (size_t)(from + i) * 2 * PIECE, PIECE, i == 0))
                        return false;
        return device_launch(device, &launch, 0);
}

void ask_latency(struct device *device, const struct question *question, struct finding *finding) {
        static int64_t samples[ROUNDS];
        unsigned rounds = question->small ? 20 : ROUNDS;

        if (!latency_room(device, question, PIECES))
                return;
        for (unsigned i = 0; i < rounds; i++) {
                int64_t begin = clock_ns();
                if (!latency_launch(device, question, 0, question->k) || !device_wait_event(device))
                        return;
                samples[i] = clock_ns() - begin;
        }
        samples_sort(samples, rounds);
        find_note(finding,
                  "%u parts of 2 inputs of 64 KiB in a launch, from before it is planned until its event is "
                  "seen: p50 %.1f us, p99 %.1f us, worst %.1f us of %u",
                  question->k, (double)samples_percentile(samples, rounds, 50) / 1e3,
                  (double)samples_percentile(samples, rounds, 99) / 1e3, (double)samples[rounds - 1] / 1e3,
                  rounds);
        find_answer(finding, "%.1f us", (double)samples_percentile(samples, rounds, 50) / 1e3);
}

void ask_amortised(struct device *device, const struct question *question, struct finding *finding) {
        int64_t samples[BATCHES + 1];

        if (!latency_room(device, question, PIECES))
                return;
        for (unsigned b = 0; b <= BATCHES; b++) { /* the first one warms up */
                int64_t begin = clock_ns();
                for (unsigned i = 0; i < PIECES; i += question->k) {
                        unsigned n = PIECES - i < question->k ? PIECES - i : question->k;
                        if (!latency_launch(device, question, i, n))
                                return;
                }
                if (!device_wait_event(device))
                        return;
                samples[b] = clock_ns() - begin;
        }
        samples_sort(samples + 1, BATCHES);
        double each = (double)samples_percentile(samples + 1, BATCHES, 50) / PIECES;
        find_note(finding,
                  "%d parts of 2 inputs of 64 KiB, %u in a launch, launched in a row; caches may hold them",
                  PIECES, question->k);
        find_answer(finding, "%.2f us for each part", each / 1e3);
}
