/* SPDX-License-Identifier: Apache-2.0 */
/* The journal that one daemon leaves to the next: marks, results, and that nothing damaged in it is believed.
 */
#include "journal_fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define HEADER 72u /* bytes before the first slot */

/* Writes that over a new copy of the file. */
static void poke(off_t at, const void *bytes, size_t n) {
        copy_file();
        int fd = open(copy, O_RDWR);

        assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
        close(fd);
}

static void done(struct journal_plan *plan, uint64_t step, uint32_t b, double value, const uint8_t *unused) {
        journal_begin(plan, step, WORLD, b);
        keep(plan, b, value, b, unused);
}

/* The step after the committed ones. HAS_RESULTS: it is untouched, and those of the last one are there. */
enum extent { UNTOUCHED, HAS_RESULTS, BEGUN, DONE };

static enum extent extent(uint64_t committed) {
        const struct trace trace = left(&key);

        assert_int_equal(trace.committed, committed);
        return trace_is_prepared(&trace)   ? DONE
               : trace_is_open(&trace)     ? BEGUN
               : trace_has_results(&trace) ? HAS_RESULTS
                                           : UNTOUCHED;
}

TEST(marks_tell_how_far_a_step_was) {
        struct journal_plan *plan = add(ours);

        assert_int_equal(extent(0), UNTOUCHED);
        journal_begin(plan, 1, WORLD, 0);
        assert_int_equal(extent(0), BEGUN);
        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, 1, b, b, NULL);
        assert_int_equal(extent(0), DONE);
        journal_commit(plan, 1);
        assert_int_equal(extent(1), HAS_RESULTS);
        journal_void(plan, 2); /* it was not begun */
        assert_int_equal(extent(1), HAS_RESULTS);
        done(plan, 2, 0, 1, NULL);
        assert_int_equal(extent(1), BEGUN);
        journal_void(plan, 2);
        assert_int_equal(extent(1), UNTOUCHED);
        add(ours); /* a new plan of that name */
        assert_int_equal(extent(0), UNTOUCHED);
}

/* With the marks of a committed step the next one would count as committed from its first moment on, and its
 * arenas as averages. The bug planted: journal_begin() does not clear the marks. */
TEST(a_step_has_no_marks_of_the_one_before) {
        struct journal_plan *plan = add(ours);

        for (uint64_t step = 1; step <= 3; step++) {
                for (uint32_t b = 0; b < BUCKETS; b++) {
                        assert_int_equal(extent(step - 1), b > 0       ? BEGUN
                                                           : step == 1 ? UNTOUCHED
                                                                       : HAS_RESULTS);
                        done(plan, step, b, b, NULL);
                }
                assert_int_equal(extent(step - 1), DONE);
                journal_commit(plan, step);
        }
        done(plan, 4, 0, 1, NULL);
        journal_void(plan, 4);
        journal_begin(plan, 4, WORLD, 1); /* tried again */
        assert_int_equal(extent(3), BEGUN);
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

        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, 1, b, 10.0 * b, b == 1 ? NULL : maps[b]);
        copy_file();
        struct journal *next = next_daemon();
        const struct journal_plan *found = find(next);
        for (uint32_t b = 0; b < BUCKETS; b++)
                assert_result(found, b, b == 1 ? NULL : maps[b]);
        journal_close(next);
}

TEST(only_the_same_plan_is_found) {
        struct journal_key other[] = { key, key, key, key, key, key };

        journal_commit(add(ours), 3);
        other[0].uid++;
        other[1].job = "jobs";
        other[2].incarnation++;
        other[3].plan++;
        other[4].params++;
        other[5].buckets++;
        assert_int_equal(left(&key).committed, 3);
        for (size_t i = 0; i < 4; i++)
                assert_int_equal(left(&other[i]).committed, 0);
        copy_file();
        struct journal *next = next_daemon();
        const struct journal_plan *plan = find(next);
        assert_int_equal(journal_trace(plan).committed, 3);
        assert_true(journal_fits(plan, &key, MOST));
        assert_false(journal_fits(plan, &other[4], MOST));
        assert_false(journal_fits(plan, &other[5], MOST));
        assert_false(journal_fits(plan, &key, MOST - 1));
        journal_close(next);
}

/* A new plan has nothing of a former one of that name. */
TEST(a_new_plan_takes_the_place_of_the_old_one) {
        journal_commit(add(ours), 3);
        assert_int_equal(journal_trace(add(ours)).committed, 0);
        assert_int_equal(left(&key).committed, 0);
}

/* The rest is for others. */
TEST(a_uid_has_a_share) {
        struct journal_key other = key;
        unsigned n = 0;

        other.params = 65536;
        other.buckets = 1024;
        while (journal_add(ours, &other, 256) != NULL && n < 100) {
                other.plan++;
                n++;
        }
        assert_in_range(n, 2, 8);
        other.uid++;
        assert_non_null(journal_add(ours, &other, 256));
}

/* The members of a job may still be on their way back when the daemon is killed once more. */
TEST(it_outlives_several_daemons) {
        struct journal_key other = key;

        other.plan++;
        journal_commit(add(ours), 3);
        journal_commit(journal_add(ours, &other, MOST), 3);
        for (unsigned daemon = 0; daemon < 3; daemon++) {
                ours = journal_close(ours);
                assert_int_equal(journal_open(path, &ours, said, sizeof(said)), 0);
                assert_int_equal(journal_trace(find(ours)).committed, 3);
        }
        journal_take(ours, find(ours));
        journal_sweep(ours); /* no process has asked for the other plan */
        assert_int_equal(left(&key).committed, 3);
        assert_int_equal(left(&other).committed, 0);
        journal_sweep(NULL);
}

/* A bit of each byte turned over: nothing beyond the file is read, and no step is called done. */
TEST(damage_is_found_out) {
        uint64_t bytes = HEADER + journal_bytes(&key, MOST);
        unsigned unknown = 0;
        int fd = open(path, O_RDONLY);

        journal_commit(add(ours), 3);
        for (uint64_t at = 0; at < bytes; at++) {
                uint8_t is;

                assert_int_equal(pread(fd, &is, 1, (off_t)at), 1);
                is ^= 0x80;
                poke((off_t)at, &is, 1);
                struct journal *next = next_daemon();
                struct journal_plan *plan = find(next);
                if (plan == NULL)
                        plan = add(next);
                struct trace trace = journal_trace(plan);
                struct backend_result result;
                const uint8_t *unused;

                assert_non_null(plan);
                assert_false(trace.done);
                unknown += trace.committed == 0;
                for (uint32_t b = 0; b < BUCKETS; b++)
                        journal_result(plan, b, bucket[b].first, &result, &unused);
                journal_begin(plan, trace.committed + 1, WORLD, 0);
                trace = journal_trace(plan);
                assert_true(trace_is_open(&trace));
                journal_close(next);
        }
        close(fd);
        assert_true(unknown > 80); /* the head of the file and that of the slot are checked */
        assert_int_equal(extent(3), UNTOUCHED);
}

/* Checks that the content of the copy is dropped, and a sentence says so. */
static void assert_dropped(void) {
        struct journal *next;

        said[0] = '\0';
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), 1);
        assert_non_null(strstr(said, copy));
        assert_non_null(strstr(said, "is ignored"));
        assert_null(find(next));
        journal_close(next);
        assert_int_equal(journal_open(copy, &next, said, sizeof(said)), 0);
        journal_close(next);
}

TEST(another_kind_of_file_is_made_empty) {
        journal_commit(add(ours), 3);
        poke(0, "something", 8);
        assert_dropped();
        poke(8, "\xff", 1); /* the version */
        assert_dropped();
        poke(12, "\x01", 1); /* the size of a slot's head */
        assert_dropped();
        poke(16, "a boot before", 13);
        assert_dropped();
        copy_file();
        assert_int_equal(truncate(copy, 100), 0);
        assert_dropped();
}

TEST(slots_beyond_the_end_of_the_file_are_dropped) {
        uint64_t end = UINT64_MAX / 2;

        journal_commit(add(ours), 3);
        poke(HEADER - sizeof(end), &end, sizeof(end));
        struct journal *next = next_daemon();
        assert_null(find(next));
        journal_close(next);
}

/* The job, as the next daemon finds it; to be closed. */
static struct journal_job *job_left(struct journal **ret) {
        copy_file();
        *ret = next_daemon();
        return find_job(*ret);
}

TEST(a_job_has_its_latest_generation) {
        struct journal_job *job = add_job(ours, "job");
        struct journal *next;

        assert_null(journal_latest(job));
        assert_null(journal_latest(NULL));
        for (uint32_t n = 1; n < 4; n++) {
                put_generation(job, n, 4 - n);
                const struct journal_generation *now = journal_latest(job_left(&next));
                assert_int_equal(now->number.number, n);
                assert_int_equal(now->number.term, 5);
                assert_int_equal(now->number.nonce, 9);
                assert_int_equal(now->member[0].rank, 4 - n);
                assert_int_equal(journal_track_of(now, 5)->before, n);
                assert_null(journal_track_of(now, 6));
                journal_close(next);
                assert_int_equal(journal_begin_generation(job)->number.number, 0); /* it does not count yet */
                assert_int_equal(journal_latest(job)->number.number, n);
        }
}

TEST(a_member_is_known_by_its_secret) {
        const struct sha256 wrong = { .byte = { 1, 2, 4 } }, none = { 0 };
        struct journal_job *job = add_job(ours, "job");
        uint32_t at;

        put_generation(job, 1, 0);
        assert_ptr_equal(journal_find_member(ours, 1000, "job", &secret, &at), job);
        assert_int_equal(at, 0);
        assert_null(journal_find_member(ours, 1001, "job", &secret, &at));
        assert_null(journal_find_member(ours, 1000, "jobs", &secret, &at));
        assert_null(journal_find_member(ours, 1000, "job", &wrong, &at));
        assert_null(journal_find_member(NULL, 1000, "job", &secret, &at));
        const struct journal_about is = journal_about(job);
        assert_true(is.incarnation == 7 && is.cluster && sha256_equal(&is.token, &about.token));
        journal_begin_generation(job)->n_members = 1; /* without a secret */
        journal_enter(job, (struct generation){ .number = 2 });
        assert_null(journal_find_member(ours, 1000, "job", &none, &at));
        journal_drop_job(ours, job);
        assert_null(find_job(ours));
}

/* The former one of that name has nothing to do with it. */
TEST(a_new_job_begins_anew) {
        put_generation(add_job(ours, "job"), 1, 0);
        assert_null(journal_latest(add_job(ours, "job")));
}

/* One that no process has asked for is dropped; another one stays. */
TEST(jobs_are_swept) {
        struct journal *next;
        uint32_t at;

        put_generation(add_job(ours, "job"), 1, 0);
        put_generation(add_job(ours, "other"), 1, 0);
        struct journal_job *job = job_left(&next);
        journal_take_job(next, job);
        journal_sweep(next);
        assert_ptr_equal(find_job(next), job);
        assert_null(journal_find_member(next, 1000, "other", &secret, &at));
        journal_close(next);
}

TEST(operations_that_have_ended_are_counted) {
        struct journal_job *job = add_job(ours, "job");
        struct journal *next;

        journal_end_operation(job, &(struct journal_ended){ 7, 7, 0 }); /* it is in no generation yet */
        put_generation(job, 3, 0);
        assert_int_equal(journal_ended_of(job).number, 30);
        for (uint64_t n = 31; n < 34; n++) {
                journal_end_operation(job, &(struct journal_ended){ n, n - 30, n == 32 });
                const struct journal_ended ended = journal_ended_of(job_left(&next));
                assert_int_equal(ended.number, n);
                assert_int_equal(ended.sequence, n - 30);
                assert_int_equal(ended.failed, n == 32);
                journal_close(next);
        }
        put_generation(job, 4, 0);
        assert_int_equal(journal_ended_of(job).number, 40);
        assert_int_equal(journal_ended_of(job).sequence, 0);
        assert_int_equal(journal_ended_of(NULL).number, 0);
}

/* A job with generations 3 and 2, and one after them that is not entered yet. */
static struct journal_generation *spoil(struct journal_job **ret) {
        struct journal_job *job = *ret = add_job(ours, "job");

        put_generation(job, 3, 0);
        put_generation(job, 2, 0);
        struct journal_generation *made = journal_begin_generation(job);
        memcpy(made, journal_latest(job), sizeof(*made) + sizeof(made->member[0]));
        return made;
}

static void assert_dropped_after(struct journal_job *job) {
        struct journal *next;

        journal_enter(job, (struct generation){ .number = 3 });
        assert_int_equal(journal_latest(job_left(&next))->number.number, 2);
        journal_close(next);
}

/* A generation that has been changed so cannot be: it is not believed, and the one before it stays. */
#define NOT_BELIEVED(name, ...)                                                                              \
        TEST(name) {                                                                                         \
                struct journal_job *job;                                                                     \
                struct journal_generation *made = spoil(&job);                                               \
                                                                                                             \
                __VA_ARGS__;                                                                                 \
                assert_dropped_after(job);                                                                   \
        }

NOT_BELIEVED(too_many_members, made->n_members = MOST + 1)
NOT_BELIEVED(too_many_tracks, made->n_tracks = LIMIT_PLANS + 1)
NOT_BELIEVED(a_rank_twice, made->member[made->n_members++] = made->member[0])
NOT_BELIEVED(a_rank_too_high, made->member[0].rank = made->world)
NOT_BELIEVED(a_slot_too_high, made->member[0].slot = MOST)
NOT_BELIEVED(no_member_id, made->member[0].id = 0)
NOT_BELIEVED(no_world, made->member[0].min_world = 0)
NOT_BELIEVED(too_large_a_world, made->world = LIMIT_WORLD + 1)
NOT_BELIEVED(no_such_track, made->track[0].track = LIMIT_TRACKS)
NOT_BELIEVED(no_flag, memset(&made->history.checkpoint, 2, 1))
NOT_BELIEVED(too_many_units, made->track[0].before = LIMIT_NUMBER)
NOT_BELIEVED(different_worlds, {
        made->member[1] = made->member[0];
        made->member[1].rank = 1;
        made->member[1].max_world--;
        made->n_members = 2;
})

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

static struct journal_plan *add_nth(uint32_t n) {
        struct journal_key other = key;

        other.plan = n;
        return journal_add(ours, &other, MOST);
}

TEST(room_is_used_again) {
        struct journal_plan *plan[40];

        for (unsigned i = 0; i < 40; i++)
                plan[i] = add_nth(i);
        off_t before = size_of_file().st_size;
        for (unsigned round = 0; round < 100; round++) {
                unsigned i = (round * 7) % 40;

                journal_drop(ours, plan[i]);
                plan[i] = add_nth(i);
                assert_non_null(plan[i]);
        }
        for (unsigned i = 0; i < 40; i++)
                journal_drop(ours, plan[i]);
        assert_int_equal(extent(0), UNTOUCHED);
        for (unsigned i = 0; i < 40; i++)
                assert_non_null(add_nth(i));
        assert_int_equal(size_of_file().st_size, before);
}

/* In place of many small plans there is room for a large one. */
TEST(room_at_the_end_is_given_back) {
        struct journal_key large = key;
        struct journal_plan *plan[40];

        large.params = 65536;
        for (unsigned i = 0; i < 40; i++)
                plan[i] = add_nth(i);
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
        journal_begin(NULL, 1, WORLD, 0);
        journal_done(NULL, 0, 0, NULL, NULL, 0);
        journal_void(NULL, 1);
        journal_commit(NULL, 1);
        assert_int_equal(journal_trace(NULL).committed, 0);
        assert_null(add_job(NULL, "job"));
        journal_end_operation(NULL, NULL);
        journal_drop_job(ours, NULL);
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
