/* SPDX-License-Identifier: Apache-2.0 */
/* What the job layer does where the world is larger than the node. */
#include "elastic_fixture.h"
#include "tests.h"

#include "job/view.h"
#include "partly_fixture.h"

static struct job_join of_rank(struct fixture *f, uint32_t rank) {
        struct job_join join = elastic(f);

        join.membership.min_world = join.membership.max_world = WORLD;
        join.membership.has_rank = true;
        join.membership.rank = rank;
        return join;
}

static struct job *form_partly(struct fixture *f) {
        struct job *job;

        all_here();
        for (uint32_t rank = 1; rank < WORLD; rank += 2) {
                struct job_join join = of_rank(f, rank);

                assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        }
        job = newest(f)->job;
        join_all_elsewhere(job, GRACE);
        pass(f);
        assert_heard("joined 1;joined 3;");
        return job;
}

static struct plan *agree_partly(struct fixture *f) {
        bring(f, f->member[3], 0);
        assert_heard("");
        bring(f, f->member[1], 0);
        assert_heard("agreed 1;agreed 3;");
        return plan_find(f->member[1]->job, 0);
}

JOB_TEST(arrays_are_of_those_who_are_here) {
        const struct job *job = form_partly(f);

        assert_int_equal(job->world, WORLD);
        assert_int_equal(job->n_local, 2);
        assert_ptr_equal(job->local[0], f->member[1]);
        assert_ptr_equal(job->local[1], f->member[3]);
        assert_int_equal(f->member[3]->local, 1);
        assert_ptr_equal(member_of_rank(job, 3), f->member[3]);
        assert_null(member_of_rank(job, 4));
}

/* Without an engine there would be a sum of two members, for five. */
JOB_TEST(nothing_is_summed_without_the_other_nodes) {
        struct offer begin = { 0 };

        form_partly(f);
        begin.generation = 1;
        begin.params = begin.buckets = 1;
        assert_int_equal(plan_begin(f->member[1], &begin, &f->refusal), WIRE__CODE__UNSUPPORTED);
        assert_non_null(strstr(f->refusal.text, "only 2 of its 5 members are on this node"));
        carried = true;
        agree_partly(f);
        carried = false;
        assert_int_equal(ready(f, 1, 0, 1), WIRE__CODE__UNSUPPORTED);
        assert_int_equal(barrier(f, 3, 0), WIRE__CODE__UNSUPPORTED);
        for (unsigned kind = WIRE__OPERATION_KIND__BROADCAST; kind <= WIRE__OPERATION_KIND__ALLREDUCE; kind++)
                assert_int_equal(operation_call(f->member[1], 11,
                                                &(struct operation_request){
                                                        .kind = kind, .root = 0, .bytes = 64 },
                                                &f->refusal),
                                 WIRE__CODE__UNSUPPORTED);
        assert_int_equal(f->fake.submitted, 0);
        assert_heard("");
}

JOB_TEST(an_average_divides_by_the_world) {
        struct job *job = form_partly(f);
        const struct record_step *step;
        const struct backend_task *task = &f->fake.task[0].task;
        struct plan *plan;

        carried = true;
        plan = agree_partly(f);
        assert_int_equal(ready(f, 3, 0, 1), 0);
        assert_int_equal(plan->part[0].n_ready, 0);
        assert_int_equal(plan->part[1].n_ready, 1);
        assert_int_equal(f->fake.n_tasks, 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        assert_int_equal(f->fake.n_tasks, 1);
        assert_int_equal(task->divisor, WORLD);
        assert_int_equal(task->n_inputs, 2);
        assert_int_equal(task->n_outputs, 2);
        assert_ptr_equal(f->fake.task[0].input[0].memory, plan->part[0].arena->memory);
        assert_ptr_equal(f->fake.task[0].input[1].memory, plan->part[1].arena->memory);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
        step = record_next(job->record, 0);
        assert_int_equal(step->world, WORLD);
        assert_int_equal(record_rank(step, 0), 1);
        assert_int_equal(record_rank(step, 1), 3);
        assert_true(record_ready_times(step, 0)[1] > 0);
        assert_int_equal(job->record->pid[0], 0);
        assert_int_equal(job->record->pid[3], getpid());
}

JOB_TEST(blame_names_the_rank) {
        struct job *job = form_partly(f);
        struct job_wait waits[WORLD];

        carried = true;
        agree_partly(f);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        assert_int_equal(job_waits(job, waits, WORLD), 1);
        assert_int_equal(waits[0].member->rank, 3);
        assert_int_equal(ready(f, 3, 0, 1), 0);
        f->fake.counts[1] = 2;
        f->fake.inline_results = true;
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
        assert_int_equal(job->blame.rank, 3);
        assert_int_equal(job->blame.count, 2);
        assert_int_equal(job->nonfinite, 2);
        assert_int_equal(record_nonfinite(record_next(job->record, 0), 0)[1], 2);
}

static void see_members(struct job *job, struct job_view *view) {
        view_job(job, clock_now(), view);
        for (uint32_t local = 0; local < job->n_local; local++)
                hear("rank %u %s;", job->local[local]->rank, view_member(job->local[local], view).state);
}

JOB_TEST(people_see_ranks) {
        struct job *job = form_partly(f);
        struct job_view view;

        carried = true;
        agree_partly(f);
        see_members(job, &view);
        assert_heard("rank 1 computing;rank 3 computing;");
        assert_int_equal(ready(f, 1, 0, 1), 0);
        see_members(job, &view);
        assert_int_equal(view.n_waits, 1);
        assert_int_equal(view.wait[0].rank, 3);
        assert_heard("rank 1 waiting;rank 3 late;");
}

/* Everybody's slots, of which the members of this node fill their own. */
JOB_TEST(a_gather_has_a_slot_for_each_rank) {
        form_partly(f);
        carried = true;
        for (uint32_t rank = 1; rank < WORLD; rank += 2) {
                assert_int_equal(staging_ask(f->member[rank], 11, &f->refusal), 0);
                assert_int_equal(staging_attach(f->member[rank], 12, &f->refusal), 0);
                assert_int_equal(operation_call(f->member[rank], 11,
                                                &(struct operation_request){
                                                        .kind = WIRE__OPERATION_KIND__ALLGATHER,
                                                        .bytes = 128,
                                                        .total = 128,
                                                        .output = 1024 },
                                                &f->refusal),
                                 0);
        }
        assert_int_equal(f->fake.n_tasks, 2);
        for (uint32_t part = 0; part < 2; part++) {
                const struct fake_task *task = &f->fake.task[part];

                assert_int_equal(task->task.n_inputs, 1);
                assert_ptr_equal(task->input[0].memory, f->member[1 + 2 * part]->staging.arena->memory);
                for (unsigned i = 0; i < 2; i++)
                        assert_int_equal(task->output[i].offset, 1024 + (1 + 2 * part) * 128);
        }
        end_tasks(f);
        assert_heard("operation 1 0;operation 3 0;");
}

JOB_TEST(a_loss_elsewhere_ends_the_generation) {
        struct job *job = form_partly(f);
        struct plan *plan;

        carried = true;
        plan = agree_partly(f);
        assert_int_equal(ready(f, 3, 0, 1), 0);
        machine_gone(job, elsewhere[4], WIRE__CAUSE__EXITED);
        assert_heard("void 1;");
        assert_int_equal(job->state, JOB_REPLACING);
        assert_non_null(strstr(job->loss_text, "lost rank 4 (pid 4004) after step 0: its process ended"));
        assert_int_equal(member_check(f->member[1], &f->refusal), WIRE__CODE__VOID_RETRY);
        assert_int_equal(f->refusal.rank, 4);
        assert_int_equal(ready(f, 1, 0, 1), 0); /* absorbed */
        join_elsewhere(job, 4, GRACE);
        pass(f);
        assert_heard("generation 2 1;generation 2 3;");
        assert_int_equal(ready(f, 1, 0, 1), 0);
        assert_int_equal(ready(f, 3, 0, 1), 0);
        assert_int_equal(f->fake.task[0].task.divisor, WORLD);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
        assert_int_equal(plan->step, 1);
        assert_int_equal(job->recovery.rank, 4);
        assert_int_equal(job->recovery.successor, 0); /* it is on another node */
}

/* … of which the successor has part 0 again. */
JOB_TEST(a_loss_here_names_its_rank) {
        struct job *job = form_partly(f);
        struct job_join join = of_rank(f, 1);
        struct plan *plan;

        carried = true;
        plan = agree_partly(f);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_non_null(strstr(job->loss_text, "lost rank 1 (pid "));
        assert_int_equal(job->loss.rank, 1);
        assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        pass(f);
        assert_heard("joined 1;generation 2 3;");
        assert_int_equal(job->n_local, 2);
        assert_int_equal(job->recovery.successor, getpid());
        assert_int_equal(plan->part[0].state, PART_NONE);
        assert_int_equal(plan->part[1].state, PART_MAPPED);
}
