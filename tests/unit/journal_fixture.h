/* SPDX-License-Identifier: Apache-2.0 */
/* A journal of one daemon, a plan of three buckets in it, and the next daemon, which reads a copy of it. */
#pragma once

#include "tests.h"
#include "tree_fixture.h"

#include "job/keep/journal.h"

#define BUCKETS 3u
#define WORLD 2u
#define MOST 4u /* members that there may be here */

static const struct {
        uint32_t first, n;
} bucket[BUCKETS] = { { .first = 0, .n = 9 }, { .first = 9, .n = 1 }, { .first = 10, .n = 20 } };
static const struct journal_key key = {
        .uid = 1000, .job = "job", .incarnation = 7, .plan = 1, .params = 30, .buckets = BUCKETS
};
static char path[96], copy[96], said[512];
static struct journal *ours;

static inline struct journal_plan *add(struct journal *journal) {
        return journal_add(journal, &key, MOST);
}

static inline struct journal_plan *find(struct journal *journal) {
        return journal_find(journal, &key);
}

/* The measured values of a bucket: `value`, and one and two more of the ranks. The second rank has `count`
 * values that are not finite. */
static inline void keep(struct journal_plan *plan, uint32_t b, double value, uint64_t count,
                        const uint8_t *unused) {
        double squares[WORLD] = { value + 1, value + 2 };
        uint64_t counts[WORLD] = { 0, count };
        struct backend_result result = { .n_inputs = WORLD,
                                         .sum_squares = value,
                                         .input_sum_squares = squares,
                                         .input_nonfinite = counts };

        journal_done(plan, b, bucket[b].first, &result, unused, (bucket[b].n + 7) / 8);
}

static inline void copy_file(void) {
        static char bytes[65536];
        int from = open(path, O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ssize_t n;

        while ((n = read(from, bytes, sizeof(bytes))) > 0)
                assert_int_equal(write(to, bytes, (size_t)n), n);
        close(from);
        close(to);
}

/* The journal as the next daemon opens it; NULL: it is of no use. */
static inline struct journal *next_daemon(void) {
        struct journal *next = NULL;

        journal_open(copy, &next, said, sizeof(said));
        return next;
}

/* The steps of this plan, as the next daemon would read them. */
static inline struct trace left(const struct journal_key *which) {
        copy_file();
        struct journal *next = next_daemon();
        struct trace trace = journal_trace(journal_find(next, which));

        journal_close(next);
        return trace;
}

/* A job with one member, and the rank of that one in the generation. */
static inline void put_generation(struct journal_job *job, uint32_t number, uint32_t rank) {
        struct journal_generation *made = journal_begin_generation(job);

        made->world = MOST;
        made->operations.number = 10 * number;
        made->n_members = made->n_tracks = 1;
        made->member[0] = (struct journal_member){
                .id = 9, .secret.byte = { 1, 2, 3 }, .rank = rank, .min_world = 1, .max_world = MOST
        };
        made->track[0] = (struct journal_track){ .plan = 5, .track = TRACK_STEP, .before = number };
        journal_enter(job, (struct generation){ .term = 5, .number = number, .nonce = 9 });
}

static const struct journal_about about = { .incarnation = 7, .token.byte = { 4 }, .cluster = true };
static const struct sha256 secret = { .byte = { 1, 2, 3 } };

static inline struct journal_job *add_job(struct journal *journal, const char *name) {
        return journal_add_job(journal, 1000, name, &about, MOST);
}

static inline struct journal_job *find_job(struct journal *journal) {
        uint32_t at;

        return journal_find_member(journal, 1000, "job", &secret, &at);
}

static int set_up(void **state) {
        assert_int_equal(tree_make(state), 0);
        strcpy(path, in_tree("journal"));
        strcpy(copy, in_tree("copy"));
        return journal_open(path, &ours, said, sizeof(said));
}

static int tear_down(void **state) {
        ours = journal_close(ours);
        return tree_remove(state);
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)
