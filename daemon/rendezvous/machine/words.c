/* SPDX-License-Identifier: Apache-2.0 */
/* From what members know to what their node reports. */
#include "rendezvous/machine/words.h"

#include "rendezvous/machine/planted.h"

uint32_t words_generation(const struct word *word, uint32_t n) {
        uint32_t latest = 0;

        for (uint32_t i = 0; i < n; i++)
                if (word[i].told && word[i].generation > latest)
                        latest = word[i].generation;
        return latest;
}

static bool word_is_current(const struct word *word, uint32_t generation) {
        return word->told && word->generation == generation;
}

static bool all_orderly(const struct word *word, uint32_t n, uint32_t generation) {
        for (uint32_t i = 0; i < n; i++)
                if (!word_is_current(&word[i], generation) || !word[i].orderly)
                        return false;
        return true;
}

static bool trace_is_done(const struct trace *trace, uint64_t step) {
        return trace->known && trace->step == step && trace->done;
}

/* Nothing of that step had come, or none of it was begun. */
static bool trace_is_untouched(const struct trace *trace, uint64_t step) {
        return trace->known && (trace->step < step || (trace->step == step && !trace->begun));
}

static uint64_t latest_commit(const struct word *word, const struct word_step *about, uint32_t n) {
        uint64_t committed = 0, least = UINT64_MAX;

        for (uint32_t i = 0; i < n; i++) {
                if (!word[i].told || !about[i].known)
                        continue;
                if (about[i].step > committed)
                        committed = about[i].step;
                if (about[i].step < least)
                        least = about[i].step;
        }
        return planted(PLANTED_FORGETS_COMMITS) && least < committed ? least : committed;
}

struct words_unit words_unit(const struct word *word, const struct word_step *about, uint32_t n,
                             const struct trace *trace) {
        struct words_unit unit = { .committed = latest_commit(word, about, n) };
        uint32_t generation = words_generation(word, n), launched = 0;

        for (uint32_t i = 0; i < n; i++)
                launched += word_is_current(&word[i], generation) && about[i].known &&
                            about[i].step == unit.committed && about[i].launched > 0;
        unit.began = launched > 0;
        unit.prepared = trace_is_done(trace, unit.committed + 1) ||
                        (planted(PLANTED_PREPARES_BY_READY) && launched == n && n > 0);
        unit.opened = unit.prepared || (launched == n && n > 0 && !all_orderly(word, n, generation) &&
                                        !trace_is_untouched(trace, unit.committed + 1));
        if (planted(PLANTED_ASSUMES_UNTOUCHED))
                unit.opened = unit.prepared;
        return unit;
}

bool words_can_hear(const struct word *word, const struct word_step *about, uint32_t generation,
                    const struct trace *trace, uint64_t step, uint32_t n_buckets) {
        return trace_is_done(trace, step) && word_is_current(word, generation) && about->known &&
               about->step + 1 == step && about->launched == n_buckets;
}

bool words_all_here(const struct word *word, uint32_t n) {
        uint32_t generation = words_generation(word, n);
        bool all_current = true, entered = true;

        for (uint32_t i = 0; i < n; i++) {
                if (!word[i].told || word[i].ended || word[i].generation + 1 < generation)
                        return false;
                all_current &= word_is_current(&word[i], generation);
                entered &= word[i].resumed || !word_is_current(&word[i], generation);
        }
        return all_current || entered;
}
