/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of nodes of a job, by address. It is a view of words that lie elsewhere: in a machine's room, in a
 * message, or on the stack of a function. Sets of different length go together: a node for which a shorter
 * set has no word is not in it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LIMIT_NODES 4096u /* of a job: the protocol's bound, memory is taken for what is there */
#define NODESET_WORDS (LIMIT_NODES / 64)

struct nodeset {
        uint64_t *word;
        uint32_t words;
};

/* A set for the length of a function, empty. */
#define NODESET_SCRATCH                                                                                      \
        (struct nodeset) {                                                                                   \
                (uint64_t[NODESET_WORDS]){ 0 }, NODESET_WORDS                                                \
        }

/* For addresses below `nodes`. */
static inline uint32_t nodeset_words(uint32_t nodes) {
        return (nodes + 63) / 64;
}

static inline uint64_t nodeset_word(struct nodeset set, uint32_t i) {
        return i < set.words ? set.word[i] : 0;
}

static inline bool nodeset_has(struct nodeset set, uint32_t node) {
        return nodeset_word(set, node / 64) >> node % 64 & 1;
}

static inline void nodeset_add(struct nodeset set, uint32_t node) {
        set.word[node / 64] |= UINT64_C(1) << node % 64;
}

/* The caller has made sure that `from` has no node beyond the words of `to`. */
static inline void nodeset_copy(struct nodeset to, struct nodeset from) {
        for (uint32_t i = 0; i < to.words; i++)
                to.word[i] = nodeset_word(from, i);
}

static inline void nodeset_clear(struct nodeset set) {
        nodeset_copy(set, (struct nodeset){ 0 });
}

static inline void nodeset_unite(struct nodeset to, struct nodeset from) {
        for (uint32_t i = 0; i < to.words; i++)
                to.word[i] |= nodeset_word(from, i);
}

static inline void nodeset_intersect(struct nodeset to, struct nodeset from) {
        for (uint32_t i = 0; i < to.words; i++)
                to.word[i] &= nodeset_word(from, i);
}

static inline bool nodeset_within(struct nodeset set, struct nodeset other) {
        for (uint32_t i = 0; i < set.words; i++)
                if ((set.word[i] & ~nodeset_word(other, i)) != 0)
                        return false;
        return true;
}

static inline bool nodeset_meet(struct nodeset set, struct nodeset other) {
        for (uint32_t i = 0; i < set.words; i++)
                if ((set.word[i] & nodeset_word(other, i)) != 0)
                        return true;
        return false;
}

static inline uint32_t nodeset_count(struct nodeset set) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < set.words; i++)
                n += (uint32_t)__builtin_popcountll(set.word[i]);
        return n;
}

/* All addresses in it are below `nodes`. */
static inline bool nodeset_below(struct nodeset set, uint32_t nodes) {
        for (uint32_t i = nodes / 64; i < set.words; i++)
                if (set.word[i] >> (i == nodes / 64 ? nodes % 64 : 0) != 0)
                        return false;
        return true;
}

static inline bool nodeset_empty(struct nodeset set) {
        return nodeset_within(set, (struct nodeset){ 0 });
}

/* The number of words up to the last one that is not 0. */
static inline uint32_t nodeset_length(struct nodeset set) {
        while (set.words > 0 && set.word[set.words - 1] == 0)
                set.words--;
        return set.words;
}
