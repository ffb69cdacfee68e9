/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes with two engines: plans go through one of them, operations through the other. Both are fakes here. */
#include "nodes_fixture.h"

#include "job/watch/waits.h"

#define TEST(name) TEST_WITH(name, setup_formed, leave)

/* The second engine of a node, and the backend whose memory it exchanges. */
static struct second {
        struct backend *staging;
        struct loop_io *engine_io, *staging_io;
} second[MOST_NODES];
static struct fabric *fabric;

static struct fake_engine *first_on(uint32_t node) {
        return &cluster->fabric->node[node];
}

static struct fake_engine *second_on(uint32_t node) {
        return &fabric->node[node];
}

/* It delivers all that it has kept back. */
static void release(struct fake_engine *fake) {
        fake->held = false;
        fake_dispatch(&fake->engine);
}

static void on_engine(void *data, int fd, unsigned events) {
        fake_dispatch(data);
}

static void on_staging(void *data, int fd, unsigned events) {
        struct backend *staging = data;

        staging->ops->dispatch(staging);
}

static int setup(void **state) {
        static struct engine_ops ops;

        setup_kind(TWO_AVG);
        fabric = fabric_new();
        ops = fake_engine_ops;
        ops.lanes = 2;
        for (uint32_t n = 0; n < cluster->n; n++) {
                struct jobs *jobs = cluster->node[n].jobs;
                struct backend_config config = { .workers = 1, .done = jobs_done, .owner = jobs };

                assert_int_equal(backend_host.open(&config, &second[n].staging), 0);
                first_on(n)->engine.ops = &ops;
                jobs->config.staging = second[n].staging;
                jobs_use_engines(jobs, &first_on(n)->engine, &second_on(n)->engine);
                assert_int_equal(loop_io_new(cluster->loop, second_on(n)->fd, LOOP_READ, on_engine,
                                             second_on(n), &second[n].engine_io),
                                 0);
                assert_int_equal(loop_io_new(cluster->loop, second[n].staging->ops->fd(second[n].staging),
                                             LOOP_READ, on_staging, second[n].staging, &second[n].staging_io),
                                 0);
        }
        return 0;
}

static int setup_formed(void **state) {
        setup(state);
        form_four();
        return 0;
}

/* The jobs of a node that ends are gone before its second backend is. */
static int leave(void **state) {
        for (uint32_t n = 0; n < cluster->n; n++)
                release(second_on(n));
        for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++)
                if (cluster->trainer[rank].member != NULL)
                        lose(rank);
        for (uint32_t n = 0; n < cluster->n; n++)
                until(list_empty(&cluster->node[n].jobs->list));
        for (uint32_t n = 0; n < cluster->n; n++) {
                loop_io_free(second[n].engine_io);
                loop_io_free(second[n].staging_io);
                second[n].staging->ops->close(second[n].staging);
        }
        fabric_free(fabric);
        return teardown(state);
}

static unsigned operations(void) {
        return cluster->node[0].operations + cluster->node[1].operations;
}

/* The sum of all ranks, on average. */
static void operate(void) {
        unsigned before = operations();

        for (uint32_t rank = 0; rank < 4; rank++) {
                put(cluster->dtype, cluster->trainer[rank].staging, 0, 1 + 2 * rank);
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__ALLREDUCE, 64), 0);
        }
        until(operations() == before + 4);
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_true(get(cluster->dtype, cluster->trainer[rank].staging + STAGING / 2, 0) == 4);
}

TEST(plans_and_operations_go_through_an_engine_each) {
        stage_all(4);
        step_of(ALL, 1);
        assert_int_equal(first_on(0)->n_payloads, pieces_of(0, BUCKETS));
        assert_int_equal(second_on(0)->n_payloads, 0);
        operate();
        assert_int_equal(first_on(0)->n_payloads, pieces_of(0, BUCKETS));
        assert_int_equal(second_on(0)->n_payloads, 1);
        step_of(ALL, 2);
        operate();
        assert_int_equal(cluster->fabric->comm[0].n_lanes, 2);
        assert_int_equal(fabric->comm[0].n_lanes, 1);
}

static void join_four(void) {
        for (uint32_t rank = 0; rank < 4; rank++)
                join(rank / 2, rank, 4);
}

/* Whichever engine comes last. */
static void form_late(struct fake_engine *late) {
        late->held = true;
        join_four();
        settle();
        assert_null(cluster->trainer[0].member);
        release(late);
        until(cluster->trainer[0].member != NULL && cluster->trainer[3].member != NULL);
}

TEST_WITH(a_communicator_works_when_both_parts_do, setup, leave) {
        form_late(first_on(0));
}

TEST_WITH(the_second_part_may_be_the_last_to_work, setup, leave) {
        form_late(second_on(0));
}

/* In the next generation all goes on. */
static void go_on(uint32_t generation) {
        until(all_entered(generation));
        stage_all(4);
        step_of(ALL, 1);
        operate();
}

TEST(a_communicator_has_ended_when_both_parts_have) {
        second_on(0)->held = true;
        fake_accuse(first_on(0), 1);
        settle();
        assert_int_equal(job_on(0)->comm.state, COMM_ABORTING);
        assert_int_equal(job_on(0)->generation, 1);
        release(second_on(0));
        go_on(2);
}

TEST(a_loss_of_either_part_is_one_of_the_whole) {
        fake_accuse(second_on(1), 0);
        go_on(2);
}

/* All except the news that a second part works. */
static void pass_but_built(void) {
        pass();
        for (uint32_t n = 0; n < cluster->n; n++) {
                struct fake_engine *fake = second_on(n);

                fake->held = false;
                while (fake->n_events > 0 && fake->event[0].kind != FABRIC_BUILT)
                        fake_dispatch_one(fake);
                fake->held = true;
        }
}

/* The first part works, and loses a node, while the second is being built. */
TEST(a_loss_before_the_other_part_works_is_the_news_of_the_whole) {
        const struct fabric_comm *next = &cluster->fabric->comm[1];

        second_on(0)->held = second_on(1)->held = true;
        fake_accuse(first_on(0), 1);
        while (next->state[0] != FABRIC_WORKING || next->state[1] != FABRIC_WORKING)
                pass_but_built();
        assert_false(job_on(0)->comm.told);
        fake_accuse(first_on(0), 1);
        settle();
        assert_true(job_on(0)->comm.told);
        assert_int_equal(job_on(0)->generation, 1);
}

TEST(a_part_is_dropped_if_the_other_cannot_be_built) {
        fabric->n_comms = FABRIC_COMMS; /* it takes no more */
        fabric->forgiving = true;
        fake_accuse(first_on(0), 1);
        until(fabric->complaints > 0);
        assert_int_equal(cluster->fabric->comm[1].state[0], FABRIC_GONE);
        assert_int_equal(job_on(0)->comm.id, 0);
        fabric->n_comms = 1;
}

/* ---- processes of engines ---- */

static pid_t silent[2];
static struct engine *asked[2];

static pid_t on_silent(struct engine *engine, uint64_t comm, uint64_t *ret_since) {
        unsigned part = engine == asked[1];

        assert_int_equal(comm, job_on(0)->comm.id + part);
        *ret_since = 1000 + part;
        return silent[part];
}

TEST(a_silent_process_of_either_engine_is_named) {
        static struct engine_ops ops[2];
        struct job_wait wait;

        asked[0] = &first_on(0)->engine;
        asked[1] = &second_on(0)->engine;
        for (unsigned part = 0; part < 2; part++) {
                ops[part] = *asked[part]->ops;
                ops[part].silent = on_silent;
                asked[part]->ops = &ops[part];
        }
        assert_int_equal(helper_waits(job_on(0), &wait, 1), 0);
        silent[1] = 42;
        assert_int_equal(helper_waits(job_on(0), &wait, 1), 1);
        assert_int_equal(wait.pid, 42);
        assert_int_equal(wait.since, 1001);
        ops[0].silent = NULL; /* its communicators have no processes */
        assert_int_equal(helper_waits(job_on(0), &wait, 1), 1);
        assert_int_equal(wait.pid, 42);
        ops[0].silent = on_silent;
        silent[0] = 43;
        assert_int_equal(helper_waits(job_on(0), &wait, 1), 1);
        assert_int_equal(wait.pid, 43);
        silent[0] = silent[1] = 0;
        assert_int_equal(helper_waits(job_on(0), &wait, 1), 0);
}
