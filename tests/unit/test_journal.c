/* SPDX-License-Identifier: Apache-2.0 */
/* The journal that one daemon leaves to the next: marks, results, and that nothing damaged in it is believed.
 */
#include "journal_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define HEADER 72u /* bytes before the first slot */

static void done(struct journal_plan *plan, uint32_t b, double value, const uint8_t *unused) {
        journal_begin(plan, b);
        keep(plan, b, value, b, unused);
}

/* A step is open that nothing was begun of, or some, or all. */
enum extent { UNKNOWN, OTHER, UNTOUCHED, BEGUN, DONE };

static enum extent extent(uint32_t generation, uint64_t step) {
        const struct trace trace = left(&key, generation);

        return !trace.known         ? UNKNOWN
               : trace.step != step ? OTHER
               : trace.done         ? DONE
               : trace.begun        ? BEGUN
                                    : UNTOUCHED;
}

TEST(marks_tell_how_far_a_step_was) {
        struct journal_plan *plan = add(ours);

        assert_int_equal(extent(1, 1), UNKNOWN); /* it is in no generation yet */
        journal_generation(plan, 3, WORLD);
        assert_int_equal(extent(3, 1), OTHER);
        assert_int_equal(extent(2, 1), UNKNOWN);
        journal_step(plan, 1);
        assert_int_equal(extent(3, 1), UNTOUCHED);
        journal_begin(plan, 0);
        assert_int_equal(extent(3, 1), BEGUN);
        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, b, b, NULL);
        assert_int_equal(extent(3, 1), DONE);
        assert_int_equal(extent(3, 2), OTHER);
        journal_step(plan, 2);
        assert_int_equal(extent(3, 1), OTHER);
        done(plan, 0, 1, NULL);
        journal_step(plan, 0); /* void */
        assert_int_equal(extent(3, 2), OTHER);
        journal_generation(plan, 4, WORLD);
        assert_int_equal(extent(3, 2), UNKNOWN);
        assert_int_equal(extent(4, 2), OTHER);
}

/* With the marks of a committed step the next one would count as committed from its first moment on, and its
 * arenas as averages. The bug planted: journal_step() does not clear the marks. */
TEST(a_step_has_no_marks_of_the_one_before) {
        struct journal_plan *plan = add(ours);

        journal_generation(plan, 1, WORLD);
        for (uint64_t step = 1; step <= 3; step++) {
                journal_step(plan, step);
                for (uint32_t b = 0; b < BUCKETS; b++) {
                        assert_int_equal(extent(1, step), b == 0 ? UNTOUCHED : BEGUN);
                        done(plan, b, b, NULL);
                }
                assert_int_equal(extent(1, step), DONE);
        }
        journal_step(plan, 4);
        done(plan, 0, 1, NULL);
        journal_step(plan, 4); /* void, and tried again */
        assert_int_equal(extent(1, 4), UNTOUCHED);
}

static void assert_result(const struct journal_plan *plan, uint32_t b, const uint8_t *map) {
        struct backend_result result;
        const uint8_t *unused;

        journal_result(plan, b, bucket[b].first, &result, &unused);
        assert_true(result.sum_squares == 10.0 * b);
        assert_int_equal(result.n_inputs, WORLD);
        assert_true(result.input_sum_squares[0] == 10.0 * b + 1);
        assert_true(result.input_sum_squares[1] == 10.0 * b + 2);
        assert_int_equal(result.input_nonfinite[1], b);
        if (map == NULL)
                assert_null(unused);
        else
                assert_memory_equal(unused, map, (bucket[b].n + 7) / 8);
}

TEST(results_come_back) {
        struct journal_plan *plan = add(ours);
        const uint8_t maps[BUCKETS][3] = { { 0xff, 0x01 }, { 0x01 }, { 0xab, 0xcd, 0x0e } };

        journal_generation(plan, 1, WORLD);
        journal_step(plan, 1);
        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, b, 10.0 * b, b == 1 ? NULL : maps[b]);
        copy_file();
        struct journal *next = next_daemon();
        const struct journal_plan *found = add(next);
        for (uint32_t b = 0; b < BUCKETS; b++)
                assert_result(found, b, b == 1 ? NULL : maps[b]);
        journal_close(next);
}

TEST(only_the_same_plan_is_found) {
        struct journal_key other[] = { key, key, key, key, key, key };

        journal_generation(add(ours), 1, WORLD);
        other[0].uid++;
        other[1].job = "jobs";
        other[2].incarnation++;
        other[3].plan++;
        other[4].params++;
        other[5].buckets++;
        assert_true(left(&key, 1).known);
        for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
                assert_false(left(&other[i], 1).known);
        copy_file();
        struct journal *next = next_daemon();
        struct journal_plan *plan = add(next);
        assert_true(journal_trace(plan, 1, WORLD).known);
        assert_false(journal_trace(plan, 1, WORLD + 1).known);
        assert_ptr_not_equal(add(next), plan); /* that one has been asked for */
        journal_close(next);
}

/* A plan that comes back in another shape has nothing to go on from, and the old slot is free. */
TEST(another_shape_takes_the_place_of_the_old_one) {
        struct journal_key other = key;

        journal_generation(add(ours), 1, WORLD);
        copy_file();
        struct journal *next = next_daemon();
        other.params--;
        assert_false(journal_trace(journal_add(next, &other, MOST), 1, WORLD).known);
        assert_false(journal_trace(add(next), 1, WORLD).known);
        journal_close(next);
}

/* The members of a job may still be on their way back when the daemon is killed once more. */
TEST(it_outlives_several_daemons) {
        struct journal_key other = key;

        other.plan++;
        journal_generation(add(ours), 1, WORLD);
        journal_generation(journal_add(ours, &other, MOST), 1, WORLD);
        for (unsigned daemon = 0; daemon < 3; daemon++) {
                ours = journal_close(ours);
                assert_int_equal(journal_open(path, &ours, said, sizeof(said)), 0);
                assert_true(journal_trace(add(ours), 1, WORLD).known);
        }
        journal_sweep(ours); /* no process has asked for the other plan */
        assert_true(left(&key, 1).known);
        assert_false(left(&other, 1).known);
        journal_sweep(NULL);
}

/* A bit of each byte turned over: never a commit, and nothing beyond the file is read. */
TEST(damage_is_found_out) {
        uint64_t bytes = HEADER + journal_bytes(&key, MOST);
        unsigned unknown = 0;

        journal_generation(add(ours), 1, WORLD);
        for (uint64_t at = 0; at < bytes; at++) {
                uint8_t is;

                copy_file();
                int fd = open(copy, O_RDWR);
                assert_int_equal(pread(fd, &is, 1, (off_t)at), 1);
                is ^= 0x80;
                assert_int_equal(pwrite(fd, &is, 1, (off_t)at), 1);
                close(fd);
                struct journal *next = next_daemon();
                struct journal_plan *plan = add(next);
                struct trace trace = journal_trace(plan, 1, WORLD);
                struct backend_result result;
                const uint8_t *unused;

                assert_non_null(plan);
                assert_false(trace.done);
                unknown += !trace.known;
                for (uint32_t b = 0; b < BUCKETS && trace.known; b++)
                        journal_result(plan, b, bucket[b].first, &result, &unused);
                journal_generation(plan, 2, WORLD);
                assert_true(journal_trace(plan, 2, WORLD).known);
                journal_close(next);
        }
        assert_true(unknown > 80); /* the head of the file and that of the slot are checked */
        assert_int_equal(extent(1, 0), UNTOUCHED);
}

/* Checks that the content is dropped, and a sentence says so, if these bytes of the file are others. */
static void assert_dropped(off_t at, const void *bytes, size_t n) {
        struct journal *next;

        copy_file();
        int fd = open(copy, O_RDWR);
        if (n > 0)
                assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
        else
                assert_int_equal(ftruncate(fd, at), 0);
        close(fd);
        said[0] = '\0';
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), 1);
        assert_non_null(strstr(said, copy));
        assert_non_null(strstr(said, "is ignored"));
        assert_false(journal_trace(add(next), 1, WORLD).known);
        journal_close(next);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), 0);
        journal_close(next);
}

TEST(another_kind_of_file_is_made_empty) {
        journal_generation(add(ours), 1, WORLD);
        assert_dropped(0, "something", 8);
        assert_dropped(8, "\xff", 1);  /* the version */
        assert_dropped(12, "\x01", 1); /* the size of a slot's head */
        assert_dropped(16, "a boot before", 13);
        assert_dropped(100, NULL, 0);
}

TEST(slots_beyond_the_end_of_the_file_are_dropped) {
        uint64_t end = UINT64_MAX / 2;

        journal_generation(add(ours), 1, WORLD);
        copy_file();
        int fd = open(copy, O_RDWR);
        assert_int_equal(pwrite(fd, &end, sizeof(end), HEADER - sizeof(end)), sizeof(end));
        close(fd);
        struct journal *next = next_daemon();
        assert_false(journal_trace(add(next), 1, WORLD).known);
        journal_close(next);
}

static struct journal_place place_in(uint32_t generation, uint32_t n_ranks) {
        struct journal_place place = { .generation = { .term = 5, .number = generation, .nonce = 9 },
                                       .world = 2 * n_ranks,
                                       .n_ranks = n_ranks,
                                       .n_tracks = 2 };

        for (uint32_t i = 0; i < n_ranks; i++)
                place.rank[i] = 2 * i;
        for (uint32_t i = 0; i < 2; i++)
                place.track[i] =
                        (struct journal_track){ .plan = i, .track = TRACK_STEP + i, .before = 10 * i };
        return place;
}

/* The job, as the next daemon finds it; to be closed. */
static struct journal_job *job_left(struct journal **ret) {
        copy_file();
        *ret = next_daemon();
        return journal_find_job(*ret, 1000, "job", 7);
}

/* A member may know the generation before the latest. In one generation the latest place counts. */
TEST(a_job_has_its_last_two_places) {
        struct journal_job *job = journal_add_job(ours, 1000, "job", 7);
        struct journal_place place = place_in(3, 2), later = place_in(4, 3), latest = place_in(4, 1);
        struct journal *next;

        assert_null(journal_place_of(job, 0));
        journal_place_job(job, &place);
        journal_place_job(job, &later);
        const struct journal_job *found = job_left(&next);
        assert_memory_equal(journal_place_of(found, 3), &place, sizeof(place));
        assert_memory_equal(journal_place_of(found, 4), &later, sizeof(place));
        assert_null(journal_place_of(found, 5));
        journal_close(next);
        journal_place_job(job, &latest);
        found = job_left(&next);
        assert_memory_equal(journal_place_of(found, 4), &latest, sizeof(place));
        assert_null(journal_place_of(found, 3));
        journal_close(next);
}

TEST(a_job_is_found_by_all_of_its_names) {
        struct journal_job *job = journal_add_job(ours, 1000, "job", 7);

        assert_ptr_equal(journal_find_job(ours, 1000, "job", 7), job);
        assert_null(journal_find_job(ours, 1001, "job", 7));
        assert_null(journal_find_job(ours, 1000, "jobs", 7));
        assert_null(journal_find_job(ours, 1000, "job", 8));
        assert_null(journal_find_job(NULL, 1000, "job", 7));
        assert_ptr_equal(journal_add_job(ours, 1000, "job", 7), job);
        journal_drop_job(ours, job);
        assert_null(journal_find_job(ours, 1000, "job", 7));
}

/* One that no process has asked for is dropped; another one stays. */
TEST(jobs_are_swept) {
        struct journal *next;

        journal_add_job(ours, 1000, "job", 7);
        journal_add_job(ours, 1000, "other", 7);
        assert_non_null(job_left(&next));
        assert_non_null(journal_add_job(next, 1000, "job", 7));
        journal_sweep(next);
        assert_non_null(journal_find_job(next, 1000, "job", 7));
        assert_null(journal_find_job(next, 1000, "other", 7));
        journal_close(next);
}

/* A member may know the generation before the latest. */
TEST(operations_that_have_ended_are_counted) {
        struct journal_job *job = journal_add_job(ours, 1000, "job", 7);
        struct journal *next;

        for (uint64_t n = 1; n < 4; n++) {
                journal_end_operation(job, &(struct journal_ended){ 3, n, n - 1, n == 2 });
                const struct journal_ended ended = journal_ended_of(job_left(&next), 3);
                assert_int_equal(ended.number, n);
                assert_int_equal(ended.sequence, n - 1);
                assert_int_equal(ended.failed, n == 2);
                journal_close(next);
        }
        journal_end_operation(job, &(struct journal_ended){ 4, 5, 0, false });
        assert_int_equal(journal_ended_of(job, 4).number, 5);
        assert_int_equal(journal_ended_of(job, 3).number, 3);
        assert_int_equal(journal_ended_of(job, 2).number, 0);
        assert_int_equal(journal_ended_of(NULL, 3).number, 0);
}

/* The place before it stays. */
static void assert_place_dropped(struct journal_place bad) {
        struct journal_job *job = journal_add_job(ours, 1000, "job", 7);
        struct journal_place good = place_in(2, 2);
        struct journal *next;

        journal_place_job(job, &good);
        journal_place_job(job, &bad);
        const struct journal_job *found = job_left(&next);
        assert_null(journal_place_of(found, 3));
        assert_memory_equal(journal_place_of(found, 2), &good, sizeof(good));
        journal_close(next);
}

TEST(a_place_that_cannot_be_is_not_believed) {
        struct journal_place bad[7];

        for (unsigned i = 0; i < 7; i++)
                bad[i] = place_in(3, 2);
        bad[0].n_ranks = LIMIT_LOCAL + 1;
        bad[1].n_tracks = LIMIT_PLANS + 1;
        bad[2].rank[1] = bad[2].rank[0];
        bad[3].rank[1] = bad[3].world;
        bad[4].track[1].track = LIMIT_TRACKS;
        bad[5].track[1].before = LIMIT_NUMBER;
        bad[6].world = LIMIT_WORLD + 1;
        for (unsigned i = 0; i < 7; i++)
                assert_place_dropped(bad[i]);
}

TEST(only_one_daemon_has_it) {
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                struct journal *other;
                int r = journal_open(path, &other, said, sizeof(said));

                _exit(r == -EBUSY && strstr(said, "another gradsyncd") != NULL ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

TEST(a_file_that_others_can_use_is_not_believed) {
        struct journal *next;

        copy_file();
        chmod(copy, 0640);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), -EPERM);
        assert_non_null(strstr(said, "remove it"));
        unlink(copy);
        assert_int_equal(symlink(path, copy), 0);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), -ELOOP);
        unlink(copy);
        assert_int_equal(mkdir(copy, 0700), 0);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), -EISDIR);
        rmdir(copy);
}

static struct stat size_of_file(void) {
        struct stat info;

        assert_int_equal(stat(path, &info), 0);
        return info;
}

TEST(room_is_used_again) {
        struct journal_plan *plan[40];

        for (unsigned i = 0; i < 40; i++)
                plan[i] = add(ours);
        off_t before = size_of_file().st_size;
        for (unsigned round = 0; round < 100; round++) {
                unsigned i = (round * 7) % 40;

                journal_drop(ours, plan[i]);
                plan[i] = add(ours);
                assert_non_null(plan[i]);
        }
        for (unsigned i = 0; i < 40; i++)
                journal_drop(ours, plan[i]);
        assert_int_equal(extent(0, 0), UNKNOWN);
        for (unsigned i = 0; i < 40; i++)
                assert_non_null(add(ours));
        assert_int_equal(size_of_file().st_size, before);
}

/* In place of many small plans there is room for a large one. */
TEST(room_at_the_end_is_given_back) {
        struct journal_key large = key;
        struct journal_plan *plan[40];

        large.params = 65536;
        for (unsigned i = 0; i < 40; i++)
                plan[i] = add(ours);
        off_t before = size_of_file().st_size;
        for (unsigned i = 0; i < 40; i++)
                journal_drop(ours, plan[i]);
        assert_non_null(journal_add(ours, &large, MOST));
        assert_true(size_of_file().st_size <= before);
}

TEST(a_plan_that_does_not_fit_is_left_out) {
        struct journal_key large = key;

        large.params = 65536;
        large.buckets = 16384;
        assert_null(journal_add(ours, &large, 256));
        assert_null(add(NULL));
        journal_generation(NULL, 1, 1);
        journal_step(NULL, 1);
        journal_begin(NULL, 0);
        journal_done(NULL, 0, 0, NULL, NULL, 0);
        assert_false(journal_trace(NULL, 1, WORLD).known);
        assert_null(journal_add_job(NULL, 1000, "job", 7));
        journal_place_job(NULL, NULL);
        journal_end_operation(NULL, NULL);
        journal_drop_job(ours, NULL);
        assert_null(journal_place_of(NULL, 1));
}

/* A store to a page that the file system has no room for would kill the daemon. */
TEST(a_full_disk_is_no_more_than_no_room) {
        struct rlimit before, limit;
        struct journal *next;
        struct journal_key large = key;

        large.params = 65536;
        getrlimit(RLIMIT_FSIZE, &before);
        limit = before;
        signal(SIGXFSZ, SIG_IGN);
        limit.rlim_cur = 4096;
        setrlimit(RLIMIT_FSIZE, &limit);
        assert_null(journal_add(ours, &large, MOST));
        assert_non_null(add(ours));
        limit.rlim_cur = 0;
        setrlimit(RLIMIT_FSIZE, &limit);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), -EFBIG);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_non_null(strstr(said, copy));
}
