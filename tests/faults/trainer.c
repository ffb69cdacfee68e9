/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that checks its results: every rank's gradients are whole numbers that all members know, so each
 * sum is known beforehand, exactly, whichever member dies meanwhile. Uses the public header alone.
 *
 *     trainer STEPS LOG
 *
 * It trains two plans, whose steps are both part of each step of the training, in an order that changes from
 * step to step, with a collective in the middle of some: so either plan, or the collective, reports a loss,
 * while the other plan has marked nothing, some or all of its gradients, or is committed already.
 *
 * It appends to LOG, a line each, with CLOCK_MONOTONIC nanoseconds: "begin PID", "open STEP PLAN" when the
 * first gradient of a plan's step is marked, "commit STEP PLAN HASH", "void STEP REASON" when some of the
 * step was void, "state STEP PLAN HASH" for each plan when the state was synchronised, "wrong STEP …", "end
 * STEP". Its state is a chain of hashes for each plan, over the steps that it has applied, so that a step
 * applied twice, or not at all, shows in the end. On SIGUSR1 it leaves a child behind, which holds copies of
 * all its open files, and dies. Without a daemon it ends with 3.
 *
 * With TRAINER_REVERSED all gradients are marked and finished in the opposite order. With MEMBER_CUDA
 * gradients lie on a GPU (see tests/integration/gpu.h).
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

#include "tests/integration/gpu.h"

#define PLANS 2u
#define PARAMS 3u  /* at most, of a plan */
#define PIECE 100u /* elements of a collective */

static const struct model {
        unsigned n;
        uint64_t elements[PARAMS];
        const char *names[PARAMS];
} model[PLANS] = {
        { 2, { 5000, 300 }, { "embedding", "positions" } },
        { 3, { 64, 70000, 3 }, { "norm", "dense", "bias" } },
};

/* The parts of a step, by its number: "a" marks all gradients of the first plan, "A" finishes it, "b" and "B"
 * do the same for the second plan, "*" is a collective. */
static const char *const orders[] = { "abAB", "aA*bB", "a*bBA", "ba*AB", "bBaA", "b*aA*B", "ab*BA" };

enum { ALLREDUCE, BROADCAST, BARRIER, COLLECTIVES };

struct learner {
        struct gradsync_plan *plan;
        uint64_t marked; /* number of the step with a marked gradient; 0: none */
};

struct progress { /* of one plan: the state */
        uint64_t step;
        uint64_t chain; /* over the applied steps */
};

struct trainer {
        struct gradsync *gs;
        struct gradsync_job *job;
        struct learner learner[PLANS];
        struct progress progress[PLANS];
        FILE *log;
        uint64_t target;
        bool reversed;
        volatile uint64_t sink;
};

static volatile sig_atomic_t asked_to_die;

static void on_signal(int number) {
        asked_to_die = 1;
}

/* A call that a signal handler has interrupted goes on. */
#define UNINTERRUPTED(r, call)                                                                               \
        do                                                                                                   \
                r = (call);                                                                                  \
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

static unsigned kind_of(unsigned plan, unsigned param) {
        return plan * PARAMS + param;
}

static size_t bytes_of(unsigned plan, unsigned param) {
        return model[plan].elements[param] * sizeof(float);
}

static void verify(struct trainer *t, unsigned plan, uint64_t step) {
        uint32_t world = gradsync_world_size(t->job);

        for (unsigned p = 0; p < model[plan].n; p++) {
                const float *gradient =
                        gpu_get(gradsync_gradient(t->learner[plan].plan, p), bytes_of(plan, p));

                for (uint64_t i = 0; i < model[plan].elements[p]; i++) {
                        float right = sum(step, kind_of(plan, p), i, world);

                        if (gradient[i] == right)
                                continue;
                        note(t, "wrong %" PRIu64 " %s[%" PRIu64 "] is %g instead of %g", step,
                             model[plan].names[p], i, gradient[i], right);
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

/* Steps of the training that are in the state as a whole. */
static uint64_t done(const struct trainer *t) {
        return t->progress[0].step < t->progress[1].step ? t->progress[0].step : t->progress[1].step;
}

static void fill(const struct learner *learner, unsigned plan, unsigned param, uint64_t step, uint32_t rank) {
        void *address = gradsync_gradient(learner->plan, param);
        size_t bytes = bytes_of(plan, param);
        float *gradient = gpu_get(address, bytes);

        for (uint64_t i = 0; i < model[plan].elements[param]; i++)
                gradient[i] = value(step, kind_of(plan, param), i, rank);
        gpu_put(address, gradient, bytes);
}

static int ready(struct gradsync_plan *plan, unsigned param) {
        void *stream = gpu_stream();

        return stream != NULL ? gradsync_ready_on(plan, param, stream) : gradsync_ready(plan, param);
}

static void mark(struct trainer *t, unsigned plan, uint64_t step) {
        struct learner *learner = &t->learner[plan];
        uint32_t rank = gradsync_rank(t->job);

        for (unsigned i = 0; i < model[plan].n; i++) {
                unsigned p = t->reversed ? i : model[plan].n - 1 - i;

                fill(learner, plan, p, step, rank);
                compute(t, 80000);
                check(t, "ready", ready(learner->plan, p));
                if (learner->marked == 0)
                        note(t, "open %" PRIu64 " %u", step, plan);
                learner->marked = step;
                if (asked_to_die)
                        die_behind_a_child();
        }
}

/* Finishes the step of which gradients are marked. OK: it is in the state now. */
static int finish(struct trainer *t, unsigned plan) {
        struct progress *progress = &t->progress[plan];
        struct learner *learner = &t->learner[plan];
        uint64_t step = learner->marked;
        int r;

        UNINTERRUPTED(r, gradsync_finish(learner->plan, NULL));
        learner->marked = 0;
        if (r != GRADSYNC_OK)
                return r;
        verify(t, plan, step);
        progress->chain = chained(progress->chain, step);
        progress->step = step;
        note(t, "commit %" PRIu64 " %u %016" PRIx64, step, plan, progress->chain);
        return r;
}

/* Runs a collective with a result that all members know. */
static int talk(struct trainer *t, uint64_t step) {
        uint32_t rank = gradsync_rank(t->job), world = gradsync_world_size(t->job),
                 root = (uint32_t)(step % world);
        unsigned kind = step / 8 % COLLECTIVES;
        float piece[PIECE];
        int r;

        for (unsigned i = 0; i < PIECE; i++)
                piece[i] = value(step, kind, i, rank);
        if (kind == ALLREDUCE)
                UNINTERRUPTED(r, gradsync_allreduce(t->job, piece, PIECE, GRADSYNC_F32, GRADSYNC_SUM));
        else if (kind == BROADCAST)
                UNINTERRUPTED(r, gradsync_broadcast(t->job, piece, sizeof(piece), root));
        else
                UNINTERRUPTED(r, gradsync_barrier(t->job));
        for (unsigned i = 0; i < PIECE && r == GRADSYNC_OK; i++) {
                float right = kind == ALLREDUCE ? sum(step, kind, i, world)
                                                : value(step, kind, i, kind == BROADCAST ? root : rank);

                if (piece[i] == right)
                        continue;
                note(t, "wrong %" PRIu64 " collective %u: [%u] is %g instead of %g", step, kind, i, piece[i],
                     right);
                break;
        }
        return r;
}

/* Does the missing parts of a step: after a void one, a plan may have its part already. */
static int train_step(struct trainer *t, uint64_t step) {
        const char *order = orders[step % (sizeof(orders) / sizeof(*orders))];
        int r = GRADSYNC_OK;

        for (; *order != '\0' && r == GRADSYNC_OK; order++) {
                unsigned plan = (*order == 'b' || *order == 'B') != t->reversed;
                bool has_it = t->progress[plan].step == step;

                if (*order == '*')
                        r = talk(t, step);
                else if (!has_it && (*order == 'A' || *order == 'B'))
                        r = finish(t, plan);
                else if (!has_it)
                        mark(t, plan, step);
        }
        return r;
}

static void synchronise(struct trainer *t) {
        const struct gradsync_state state = { t->progress, sizeof(t->progress) };
        uint64_t step = done(t);
        int r;

        UNINTERRUPTED(r, gradsync_sync_state(t->job, &state, 1, &step));
        check(t, "sync_state", r);
        for (unsigned plan = 0; plan < PLANS; plan++)
                note(t, "state %" PRIu64 " %u %016" PRIx64, t->progress[plan].step, plan,
                     t->progress[plan].chain);
        if (step != done(t))
                note(t, "wrong %" PRIu64 " state of it is said to be of step %" PRIu64, done(t), step);
}

/* A call has reported a change of the members. Each plan with a marked gradient has an outcome of its own,
 * before the state is synchronised (a commit counts) or after that (it does not): both are right, if all
 * members do the same. */
static void settle(struct trainer *t, uint64_t step, int r) {
        bool behind = r == GRADSYNC_VOID_BEHIND;

        if (behind && step / 2 % 2 == 0) {
                synchronise(t);
                behind = false;
        }
        for (unsigned plan = 0; plan < PLANS; plan++) {
                if (t->learner[plan].marked == 0)
                        continue;
                r = finish(t, plan);
                behind |= r == GRADSYNC_VOID_BEHIND;
                if (r != GRADSYNC_OK && r != GRADSYNC_VOID_RETRY && r != GRADSYNC_VOID_BEHIND)
                        check(t, "finish", r);
        }
        if (behind)
                synchronise(t);
}

static void train(struct trainer *t) {
        bool finished = false;

        synchronise(t);
        while (!finished) {
                bool last = done(t) == t->target;
                uint64_t step = done(t) + 1;
                int r;

                UNINTERRUPTED(r, last ? gradsync_barrier(t->job) : train_step(t, step));
                if (r == GRADSYNC_VOID_BEHIND || r == GRADSYNC_VOID_RETRY) {
                        note(t, "void %" PRIu64 " %s", step, gradsync_error());
                        settle(t, step, r);
                } else {
                        check(t, "step", r);
                }
                finished = last && r == GRADSYNC_OK;
        }
}

static void set_up(struct trainer *t) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        int r = gradsync_open(&t->gs, NULL);

        if (r == GRADSYNC_NO_DAEMON || r == GRADSYNC_DAEMON_LOST) /* there is none, or it is about to end */
                exit(3);
        check(t, "open", r);
        UNINTERRUPTED(r, gradsync_join(t->gs, NULL, &t->job));
        check(t, "join", r);
        options.reduce = GRADSYNC_SUM;
        options.first_bucket_bytes = 1;
        options.bucket_bytes = 1;
        for (unsigned plan = 0; plan < PLANS; plan++) {
                for (unsigned p = 0; p < model[plan].n; p++)
                        check(t, model[plan].names[p],
                              gradsync_param(t->job, model[plan].names[p], GRADSYNC_F32, 1,
                                             &model[plan].elements[p]));
                UNINTERRUPTED(r, gradsync_plan_with(t->job, &options, &t->learner[plan].plan));
                check(t, "plan", r);
        }
}

int main(int argc, char **argv) {
        struct trainer t = { 0 };

        if (argc != 3 || (t.log = fopen(argv[2], "ae")) == NULL) {
                fprintf(stderr, "usage: trainer STEPS LOG\n");
                return 2;
        }
        t.target = strtoull(argv[1], NULL, 10);
        t.reversed = getenv("TRAINER_REVERSED") != NULL;
        signal(SIGUSR1, on_signal);
        fputc('\n', t.log); /* ends the line in the middle of which the one before was killed */
        note(&t, "begin %d", (int)getpid());
        set_up(&t);
        train(&t);
        note(&t, "end %" PRIu64, done(&t));
        check(&t, "leave", gradsync_leave(t.job));
        gradsync_close(t.gs);
        fclose(t.log);
        return 0;
}
