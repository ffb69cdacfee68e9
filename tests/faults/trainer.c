/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that checks what it is given: every rank's gradients are whole numbers that all members know, so each sum is
 * known beforehand, exactly, whoever dies meanwhile. Written against the public header alone.
 *
 *     trainer STEPS LOG
 *
 * It appends to LOG, a line each, with CLOCK_MONOTONIC nanoseconds: "begin PID", "open STEP" when the first gradient of a step
 * is marked, "commit STEP HASH", "void STEP", "state STEP HASH" when it was taken from others, "wrong STEP …", "end HASH". Its
 * state is a chain of hashes over the steps that it has applied, so that a step applied twice, or not at all, shows in the end.
 * On SIGUSR1 it leaves a child behind, which holds copies of all it has open, and dies. Without a daemon it ends with 3.
 */
#include <gradsync/gradsync.h>

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PARAMS 4u

static const uint64_t elements[PARAMS] = { 5000, 64, 70000, 3 };
static const char *const names[PARAMS] = { "embedding", "norm", "dense", "bias" };

struct trainer {
        struct gradsync *gs;
        struct gradsync_job *job;
        struct gradsync_plan *plan;
        FILE *log;
        uint64_t target, step;
        uint64_t chain; /* of what has been applied: the state */
        volatile uint64_t sink;
};

static volatile sig_atomic_t asked_to_die;

static void on_signal(int number) {
        asked_to_die = 1;
}

/* A call that a signal handler has interrupted goes on. */
#define UNINTERRUPTED(r, call)                                                                                         \
        do                                                                                                             \
                r = (call);                                                                                            \
        while (r == GRADSYNC_INTERRUPTED)

static int64_t now_ns(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void note(struct trainer *t, const char *format, ...) {
        va_list args;

        fprintf(t->log, "%" PRId64 " ", now_ns());
        va_start(args, format);
        vfprintf(t->log, format, args);
        va_end(args);
        fputc('\n', t->log);
        fflush(t->log);
}

static void check(struct trainer *t, const char *what, int r) {
        if (r == GRADSYNC_OK)
                return;
        note(t, "failed %s: %s: %s", what, gradsync_result_name(r), gradsync_error());
        exit(1);
}

/* A rank's gradient: small enough that sums of weights up to 4^7 are exact in f32. */
static float value(uint64_t step, unsigned param, uint64_t i, uint32_t rank) {
        return (float)((step * 7 + i * 3 + param) % 101) * (float)(UINT32_C(1) << 2 * rank);
}

static float sum(uint64_t step, unsigned param, uint64_t i, uint32_t world) {
        float all = 0;

        for (uint32_t rank = 0; rank < world; rank++)
                all += value(step, param, i, rank);
        return all;
}

static uint64_t chained(uint64_t chain, uint64_t step) {
        chain ^= step + UINT64_C(0x9e3779b97f4a7c15) + (chain << 6) + (chain >> 2);
        chain *= UINT64_C(0xbf58476d1ce4e5b9);
        return chain ^ chain >> 31;
}

static void compute(struct trainer *t, unsigned rounds) {
        for (unsigned i = 0; i < rounds; i++)
                t->sink = t->sink * UINT64_C(6364136223846793005) + i;
}

static void verify(struct trainer *t, uint64_t step) {
        uint32_t world = gradsync_world_size(t->job);

        for (unsigned p = 0; p < PARAMS; p++) {
                const float *gradient = gradsync_gradient(t->plan, p);

                for (uint64_t i = 0; i < elements[p]; i++) {
                        if (gradient[i] == sum(step, p, i, world))
                                continue;
                        note(t, "wrong %" PRIu64 " %s[%" PRIu64 "] is %g instead of %g", step, names[p], i, gradient[i],
                             sum(step, p, i, world));
                        return;
                }
        }
}

static void die_behind_a_child(void) {
        if (fork() == 0) {
                poll(NULL, 0, 300);
                _exit(0);
        }
        raise(SIGKILL);
}

static int train_step(struct trainer *t) {
        uint32_t rank = gradsync_rank(t->job);
        uint64_t step = t->step + 1;
        int r;

        for (unsigned p = PARAMS; p-- > 0;) {
                float *gradient = gradsync_gradient(t->plan, p);

                for (uint64_t i = 0; i < elements[p]; i++)
                        gradient[i] = value(step, p, i, rank);
                compute(t, 100000);
                check(t, "ready", gradsync_ready(t->plan, p));
                if (p == PARAMS - 1)
                        note(t, "open %" PRIu64, step);
                if (asked_to_die)
                        die_behind_a_child();
        }
        UNINTERRUPTED(r, gradsync_finish(t->plan, NULL));
        if (r != GRADSYNC_OK)
                return r;
        verify(t, step);
        t->chain = chained(t->chain, step);
        t->step = step;
        note(t, "commit %" PRIu64 " %016" PRIx64, step, t->chain);
        return r;
}

static void synchronise(struct trainer *t) {
        const struct gradsync_state state = { &t->chain, sizeof(t->chain) };
        int r;

        UNINTERRUPTED(r, gradsync_sync_state(t->job, &state, 1, &t->step));
        check(t, "sync_state", r);
        note(t, "state %" PRIu64 " %016" PRIx64, t->step, t->chain);
}

static void train(struct trainer *t) {
        bool done = false;

        synchronise(t);
        while (!done) {
                bool last = t->step == t->target;
                int r;

                UNINTERRUPTED(r, last ? gradsync_barrier(t->job) : train_step(t));
                if (r == GRADSYNC_VOID_BEHIND || r == GRADSYNC_VOID_RETRY)
                        note(t, "void %" PRIu64, t->step + 1);
                else
                        check(t, "finish", r);
                if (r == GRADSYNC_VOID_BEHIND)
                        synchronise(t);
                done = last && r == GRADSYNC_OK;
        }
}

static void set_up(struct trainer *t) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        int r = gradsync_open(&t->gs, NULL);

        if (r == GRADSYNC_NO_DAEMON)
                exit(3);
        check(t, "open", r);
        UNINTERRUPTED(r, gradsync_join(t->gs, NULL, &t->job));
        check(t, "join", r);
        for (unsigned p = 0; p < PARAMS; p++)
                check(t, names[p], gradsync_param(t->job, names[p], GRADSYNC_F32, 1, &elements[p]));
        options.reduce = GRADSYNC_SUM;
        options.first_bucket_bytes = 1;
        options.bucket_bytes = 1;
        UNINTERRUPTED(r, gradsync_plan_with(t->job, &options, &t->plan));
        check(t, "plan", r);
}

int main(int argc, char **argv) {
        struct trainer t = { 0 };

        if (argc != 3 || (t.log = fopen(argv[2], "ae")) == NULL) {
                fprintf(stderr, "usage: trainer STEPS LOG\n");
                return 2;
        }
        t.target = strtoull(argv[1], NULL, 10);
        signal(SIGUSR1, on_signal);
        fputc('\n', t.log); /* ends the line in the middle of which the one before was killed */
        note(&t, "begin %d", (int)getpid());
        set_up(&t);
        train(&t);
        note(&t, "end %016" PRIx64, t.chain);
        check(&t, "leave", gradsync_leave(t.job));
        gradsync_close(t.gs);
        fclose(t.log);
        return 0;
}
