/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon may be killed between any two stores to its journal. Here each store is let through alone, and
 * the next daemon reads it in between: never a commit that was none, never results
 * that are not there yet. Stepping takes an x86 processor, and no thread sanitizer; elsewhere only whole
 * calls are looked at.
 */
#include "journal_fixture.h"

#include <inttypes.h>
#include <signal.h>
#include <ucontext.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TRAP_FLAG 0x100
#endif

static const struct journal_key other = {
        .uid = 1000, .job = "other", .incarnation = 7, .plan = 1, .params = 30, .buckets = BUCKETS
};
static const uint8_t unused[3] = { 0xab, 0xcd, 0x0e };
static void *memory;
static size_t memory_bytes;

/* The step that is looked for, and what was seen of it. */
static struct {
        const struct journal_key *key;
        uint64_t step;
        unsigned looks, commits, wrong;
} seen;

static double value_of(uint64_t step, uint32_t b) {
        return 100.0 * (double)step + b;
}

static bool is_right(const struct journal_plan *plan) {
        bool right = true;

        for (uint32_t b = 0; b < BUCKETS; b++) {
                struct backend_result result;
                const uint8_t *map;

                journal_result(plan, b, bucket[b].first, &result, &map);
                right &= result.sum_squares == value_of(seen.step, b);
                right &= result.input_sum_squares[0] == value_of(seen.step, b) + 1;
                right &= result.input_sum_squares[1] == value_of(seen.step, b) + 2;
                right &= result.input_nonfinite[1] == seen.step;
                right &= map != NULL && memcmp(map, unused, (bucket[b].n + 7) / 8) == 0;
        }
        return right;
}

static void look(void) {
        seen.looks++;
        copy_file();
        struct journal *next = next_daemon();
        const struct journal_plan *found = journal_find(next, seen.key);
        const struct trace trace = journal_trace(found);

        if (trace.step == seen.step && trace.done) {
                seen.commits++;
                seen.wrong += !is_right(found);
        }
        journal_close(next);
}

static void (*on_look)(void) = look;

static void look_for(const struct journal_key *which, uint64_t step) {
        memset(&seen, 0, sizeof(seen));
        seen.key = which;
        seen.step = step;
}

/* The same, of a job. */
static struct { unsigned looks, wrong; } ended;

#ifdef TRAP_FLAG
static struct sigaction fault_before, step_before;

static void on_store(int number, siginfo_t *info, void *context) {
        const uint8_t *at = info->si_addr, *first = memory;

        if (at < first || at >= first + memory_bytes) {
                sigaction(SIGSEGV, &fault_before, NULL);
                return;
        }
        on_look();
        mprotect(memory, memory_bytes, PROT_READ | PROT_WRITE);
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_stored(int number, siginfo_t *info, void *context) {
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
        mprotect(memory, memory_bytes, PROT_READ);
        on_look();
}

static void begin_stepping(void) {
        struct sigaction store = { .sa_sigaction = on_store, .sa_flags = SA_SIGINFO };
        struct sigaction stored = { .sa_sigaction = on_stored, .sa_flags = SA_SIGINFO };

        sigaction(SIGSEGV, &store, &fault_before);
        sigaction(SIGTRAP, &stored, &step_before);
        mprotect(memory, memory_bytes, PROT_READ);
}

static void end_stepping(void) {
        mprotect(memory, memory_bytes, PROT_READ | PROT_WRITE);
        sigaction(SIGSEGV, &fault_before, NULL);
        sigaction(SIGTRAP, &step_before, NULL);
        assert_true(seen.looks + ended.looks > 2);
}
#else
static void begin_stepping(void) {
        on_look();
}

static void end_stepping(void) {
        on_look();
}
#endif

#define STEPPED(call) (begin_stepping(), (call), end_stepping())

/* Where the journal is mapped: the file is known by its inode. */
static void find_memory(void) {
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512];
        struct stat info;

        memory = NULL;
        assert_non_null(maps);
        assert_int_equal(stat(path, &info), 0);
        while (fgets(line, sizeof(line), maps) != NULL) {
                uintptr_t start;
                uint64_t inode;

                if (sscanf(line, "%" SCNxPTR "-%*x %*s %*x %*x:%*x %" SCNu64, &start, &inode) == 2 &&
                    inode == info.st_ino && strstr(line, path) != NULL)
                        memory = (void *)start;
        }
        fclose(maps);
        memory_bytes = (size_t)info.st_size;
        assert_non_null(memory);
}

static void done(struct journal_plan *plan, uint64_t step, uint32_t b) {
        keep(plan, b, value_of(step, b), step, unused);
}

static void commit(struct journal_plan *plan, uint64_t step) {
        for (uint32_t b = 0; b < BUCKETS; b++) {
                journal_begin(plan, step, WORLD, b);
                done(plan, step, b);
        }
        journal_commit(plan, step);
}

/* Planted: the number of the step is stored before the marks of the step before it are cleared. */
TEST(a_step_that_begins_is_no_commit) {
        struct journal_plan *plan = add(ours);

        commit(plan, 1);
        find_memory();
        look_for(&key, 2);
        for (uint32_t b = 0; b < BUCKETS; b++)
                STEPPED(journal_begin(plan, 2, WORLD, b));
        assert_int_equal(seen.commits, 0);
}

/* Planted: a bucket is marked as done before its results are stored. */
TEST(a_commit_has_its_results) {
        struct journal_plan *plan = add(ours);

        commit(plan, 1);
        find_memory();
        look_for(&key, 2);
        for (uint32_t b = 0; b < BUCKETS; b++) {
                assert_int_equal(seen.commits, 0);
                journal_begin(plan, 2, WORLD, b);
                STEPPED(done(plan, 2, b));
        }
        STEPPED(journal_commit(plan, 2));
        assert_true(seen.commits > 0);
        assert_int_equal(seen.wrong, 0);
}

TEST(a_commit_is_of_its_plan) {
        struct journal_plan *plan = add(ours);

        commit(plan, 1);
        journal_drop(ours, plan);
        find_memory();
        look_for(&other, 1);
        STEPPED(plan = journal_add(ours, &other, MOST));
        STEPPED(journal_begin(plan, 1, WORLD, 0));
        assert_int_equal(seen.commits, 0);
}

/* The generation and the operations are those before the call or those after it. */
static void look_at_job(void) {
        copy_file();
        struct journal *next = next_daemon();
        const struct journal_job *job = find_job(next);
        const struct journal_generation *generation = journal_latest(job);

        const struct journal_ended now = journal_ended_of(job);
        ended.looks++;
        ended.wrong += generation == NULL || generation->n_members != 1 ||
                       generation->member[0].rank != generation->number.number ||
                       generation->track[0].before != generation->number.number ||
                       (now.sequence != 0 ? now.sequence != 10 * now.number
                                          : now.number != 10 * generation->number.number);
        journal_close(next);
}

TEST(a_job_has_the_generation_before_or_the_next_one) {
        struct journal_job *job = add_job(ours, "job");

        put_generation(job, 1, 1);
        journal_end_operation(job, &(struct journal_ended){ 1, 10, 0 });
        find_memory();
        on_look = look_at_job;
        STEPPED(put_generation(job, 2, 2));
        STEPPED(journal_end_operation(job, &(struct journal_ended){ 2, 20, 0 }));
        STEPPED(put_generation(job, 3, 3));
        on_look = look;
        assert_true(ended.looks > 0);
        assert_int_equal(ended.wrong, 0);
}
