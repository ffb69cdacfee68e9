/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsync's side of the benchmark: one member of a job, written against the public header alone. It gets its
 * job from the environment like any trainer. Commands:
 *
 *   prepare BYTES COUNT PARAMETERS FIRST BUCKET
 *                   COUNT plans of BYTES each, with the given bucket limits (0: default)
 *   run N           N steps, the plans taking turns, every parameter marked ready at once; stamps
 *   steps N UNITS SYNC
 *                   N steps with UNITS of computing before each gradient; without SYNC only computing
 *   lose K          opens a step by marking K parameters ready, then waits in finish() for its outcome
 *   open K          opens a step by marking K parameters ready, then waits to be killed
 *   go_on K         opens a step likewise, loses it with a member, takes the state, and does one more
 *   replace BYTES PARAMETERS
 *                   takes a lost member's place: one plan, the others' state, one step
 */
#include <gradsync/gradsync.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"
#include "control.h"

#define PLANS_OF_A_JOB 40 /* a job may have 64; more plans than that take more jobs */
#define JOBS_MOST 8

struct member {
        struct gradsync *gs;
        struct gradsync_job *job, *jobs[JOBS_MOST]; /* `job` is the first of them */
        struct gate *gate;
        struct compute compute;
        struct gradsync_plan **plans;
        unsigned int count, next, params;
        size_t elements;  /* of one parameter */
        int64_t attached; /* when the connection to the daemon stood */
        volatile float sink;
};

static void check(int result, const char *what) {
        if (result != GRADSYNC_OK)
                bench_die("%s: %s: %s", what, gradsync_result_name(result), gradsync_error());
}

static void release(void *data) {
        struct member *m = data;

        for (unsigned int i = 0; i < m->count; i++)
                check(gradsync_plan_free(m->plans[i]), "plan_free");
        free(m->plans);
        m->plans = NULL;
        m->count = m->next = 0;
}

/* The job of the plan with this index; joined like the first one, by the same members, when it is first
 * needed. */
static struct gradsync_job *job_of(struct member *m, unsigned int index) {
        struct gradsync_join_options options = GRADSYNC_JOIN_OPTIONS_INIT;
        unsigned int number = index / PLANS_OF_A_JOB;
        char name[128];

        if (number >= JOBS_MOST)
                bench_die("too many plans");
        if (m->jobs[number])
                return m->jobs[number];
        snprintf(name, sizeof(name), "%s.%u", gradsync_job_name(m->job), number);
        options.name = name;
        options.min_world = options.max_world = gradsync_world_size(m->job);
        options.rank = gradsync_rank(m->job);
        check(gradsync_join(m->gs, &options, &m->jobs[number]), "join");
        return m->jobs[number];
}

static struct gradsync_plan *make_plan(struct member *m, uint64_t first, uint64_t limit) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        struct gradsync_job *job = job_of(m, m->count);
        struct gradsync_plan *plan;
        uint64_t shape[1] = { m->elements };

        if (first)
                options.first_bucket_bytes = first;
        if (limit)
                options.bucket_bytes = limit;
        for (unsigned int i = 0; i < m->params; i++) {
                char name[32];

                snprintf(name, sizeof(name), "layer%u.weight", i);
                check(gradsync_param(job, name, GRADSYNC_F32, 1, shape), "param");
        }
        check(gradsync_plan_with(job, &options, &plan), "plan");
        return plan;
}

static void fill(struct member *m, struct gradsync_plan *plan, unsigned int param, float value) {
        float *gradient = gradsync_gradient(plan, param);

        for (size_t i = 0; i < m->elements; i++)
                gradient[i] = value;
}

static void step(struct member *m, struct gradsync_plan *plan) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;

        for (unsigned int i = m->params; i-- > 0;)
                check(gradsync_ready(plan, i), "ready");
        check(gradsync_finish(plan, &info), "finish");
}

static void next_step(void *data) {
        struct member *m = data;

        if (!m->count)
                bench_die("not prepared");
        step(m, m->plans[m->next]);
        m->next = (m->next + 1) % m->count;
}

/* Ranks hold 1, 2, 3 …: the average proves the operation, and stays what it is however often it is taken
 * again. */
static void prepare(struct member *m, const size_t *figure) {
        release(m);
        m->params = (unsigned int)figure[2];
        m->elements = figure[0] / sizeof(float) / m->params;
        m->plans = calloc(figure[1], sizeof(*m->plans));
        if (!m->plans)
                bench_die("out of memory");
        for (; m->count < figure[1]; m->count++) {
                struct gradsync_plan *plan = m->plans[m->count] = make_plan(m, figure[3], figure[4]);

                for (unsigned int i = 0; i < m->params; i++)
                        fill(m, plan, i, (float)(gradsync_rank(m->job) + 1));
                step(m, plan);
                for (unsigned int i = 0; i < m->params; i++)
                        if (!bench_check(gradsync_gradient(plan, i), m->elements,
                                         (float)(gradsync_world_size(m->job) + 1) / 2))
                                bench_die("a wrong average in parameter %u", i);
        }
}

/* A trainer's backward pass: work, then a gradient, from the last parameter to the first. */
static void steps(struct member *m, struct control *c, unsigned int n, unsigned int units, bool sync) {
        int64_t compute = 0, exposed = 0, began, mark;

        gate_meet(m->gate, gradsync_world_size(m->job));
        began = bench_now_ns();
        for (unsigned int s = 0; s < n; s++) {
                struct gradsync_info info = GRADSYNC_INFO_INIT;
                struct gradsync_plan *plan = m->plans[m->next];

                mark = bench_now_ns();
                for (unsigned int i = m->params; i-- > 0;) {
                        m->sink = compute_run(&m->compute, units);
                        fill(m, plan, i, 1);
                        if (sync)
                                check(gradsync_ready(plan, i), "ready");
                }
                compute += bench_now_ns() - mark;
                mark = bench_now_ns();
                if (sync)
                        check(gradsync_finish(plan, &info), "finish");
                exposed += bench_now_ns() - mark;
                m->next = (m->next + 1) % m->count;
        }
        control_reply(c, "steps %lld %lld %lld", (long long)compute, (long long)exposed,
                      (long long)(bench_now_ns() - began));
}

static void open_step(struct member *m, unsigned int k) {
        for (unsigned int i = m->params; i-- > 0 && k > 0; k--)
                check(gradsync_ready(m->plans[0], i), "ready");
}

static void lose(struct member *m, struct control *c, unsigned int k) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        int result;

        open_step(m, k);
        control_reply(c, "waiting");
        result = gradsync_finish(m->plans[0], &info);
        control_reply(c, "outcome %s %lld %u %d %s", gradsync_result_name(result), (long long)bench_now_ns(),
                      info.lost_rank, info.lost_pid, info.cause);
}

/* As much state as there are gradients: what rank 0 of the survivors sends to everybody. */
static void take_state(struct member *m, uint64_t *step_number) {
        size_t bytes = m->elements * m->params * sizeof(float);
        float *memory = bench_buffer(bytes, 1, false);
        const struct gradsync_state state = { memory, bytes };

        check(gradsync_sync_state(m->job, &state, 1, step_number), "sync_state");
        bench_buffer_free(memory, bytes);
}

static void go_on(struct member *m, struct control *c, unsigned int k) {
        uint64_t committed = 1;
        int result;

        open_step(m, k);
        control_reply(c, "waiting");
        result = gradsync_finish(m->plans[0], NULL);
        if (result != GRADSYNC_VOID_BEHIND)
                bench_die("finish returned %s where a member was replaced", gradsync_result_name(result));
        take_state(m, &committed);
        step(m, m->plans[0]);
        control_reply(c, "committed %lld", (long long)bench_now_ns());
}

static void replace(struct member *m, struct control *c, const size_t *figure) {
        uint64_t committed = 0;

        m->params = (unsigned int)figure[1];
        m->elements = figure[0] / sizeof(float) / m->params;
        m->plans = calloc(1, sizeof(*m->plans));
        if (!m->plans)
                bench_die("out of memory");
        m->plans[m->count++] = make_plan(m, 0, 0);
        take_state(m, &committed);
        step(m, m->plans[0]);
        control_reply(c, "committed %lld %lld %llu", (long long)bench_now_ns(), (long long)m->attached,
                      (unsigned long long)committed);
}

static bool obey(void *data, struct control *c, const char *line) {
        struct member *m = data;
        size_t figure[5];
        unsigned int n, units, sync;

        if (sscanf(line, "prepare %zu %zu %zu %zu %zu", figure, figure + 1, figure + 2, figure + 3,
                   figure + 4) == 5) {
                prepare(m, figure);
                control_reply(c, "ready %u", gradsync_plan_buckets(m->plans[0]));
        } else if (sscanf(line, "steps %u %u %u", &n, &units, &sync) == 3) {
                steps(m, c, n, units, sync);
        } else if (sscanf(line, "lose %u", &n) == 1) {
                lose(m, c, n);
        } else if (sscanf(line, "open %u", &n) == 1) {
                open_step(m, n);
                control_reply(c, "opened");
        } else if (sscanf(line, "go_on %u", &n) == 1) {
                go_on(m, c, n);
        } else if (sscanf(line, "replace %zu %zu", figure, figure + 1) == 2) {
                replace(m, c, figure);
        } else {
                return false;
        }
        return true;
}

int main(int argc, char **argv) {
        static struct member m;
        struct control c;

        if (argc != 4)
                bench_die("usage: %s SOCKET GATE CONTENDER", argv[0]);
        compute_init(&m.compute);
        m.gate = gate_open(argv[2]);
        check(gradsync_open(&m.gs, NULL), "open");
        m.attached = bench_now_ns();
        check(gradsync_join(m.gs, NULL, &m.job), "join");
        m.jobs[0] = m.job;
        control_open(&c, argv[1], argv[3], gradsync_rank(m.job));
        bench_serve(&(struct bench_peer){ .data = &m,
                                          .gate = m.gate,
                                          .members = gradsync_world_size(m.job),
                                          .step = next_step,
                                          .release = release,
                                          .obey = obey },
                    &c);
        for (unsigned int i = 0; i < JOBS_MOST; i++)
                if (m.jobs[i])
                        check(gradsync_leave(m.jobs[i]), "leave");
        gradsync_close(m.gs);
        return 0;
}
