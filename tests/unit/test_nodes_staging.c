/* SPDX-License-Identifier: Apache-2.0 */
/* A job over several nodes, one of whose backends takes its time to make what goes between them, as a GPU's
 * does. */
#include "nodes_fixture.h"

static struct memory_ops slow_ops;
static struct {
        struct memory_request request;
        struct memory_fill fills[MEMORY_FILLS];
        bool cancelled;
} slow[8];
static unsigned n_slow;
static bool is_slow;

static int slow_request(struct backend *backend, const struct memory_request *request,
                        struct memory_result *ret) {
        bool of_plan = request->kind == MEMORY_OWN && (request->companion > 0 || request->n_fills > 0);

        if (!is_slow || !of_plan)
                return backend_host.memory->request(backend, request, ret);
        assert_true(n_slow < 8);
        slow[n_slow].request = *request;
        slow[n_slow].cancelled = false;
        memcpy(slow[n_slow].fills, request->fills, request->n_fills * sizeof(slow[0].fills[0]));
        slow[n_slow].request.fills = slow[n_slow].fills;
        n_slow++;
        return 0;
}

static void slow_cancel(struct backend *backend, uint64_t id) {
        for (unsigned i = 0; i < n_slow; i++)
                slow[i].cancelled |= slow[i].request.id == id;
}

/* Makes memory of the second node come late. */
static void make_slow(void) {
        struct backend *backend = cluster->node[1].backend;

        slow_ops = *backend->memory;
        slow_ops.request = slow_request;
        slow_ops.cancel = slow_cancel;
        backend->memory = &slow_ops;
        is_slow = true;
        n_slow = 0;
}

static int setup_slow(void **state) {
        setup_nodes(state);
        make_slow();
        form_four();
        return 0;
}

#define TEST(name, ...) NODES_TEST_BETWEEN(setup_slow, teardown, name, __VA_ARGS__)

/* Answers the first of the late requests: the memory is there, or cannot be had. */
static void make(int error) {
        struct backend *backend = cluster->node[1].backend;
        struct memory_result result = { .id = slow[0].request.id,
                                        .error = slow[0].cancelled ? -ECANCELED : error };

        assert_true(n_slow > 0);
        if (result.error == 0)
                assert_int_equal(backend_host.memory->request(backend, &slow[0].request, &result), 1);
        memmove(slow, slow + 1, --n_slow * sizeof(slow[0]));
        for (unsigned i = 0; i < n_slow; i++)
                slow[i].request.fills = slow[i].fills;
        holdings_made(cluster->node[1].jobs, &result);
}

/* ---- it comes ---- */

TEST(steps_wait_for_it, THREE_AVG, THREE_MIN) {
        assert_int_equal(n_slow, 1);
        give_all(4);
        settle();
        for (uint32_t n = 0; n < 3; n++) {
                assert_int_equal(cluster->node[n].committed + cluster->node[n].voided, 0);
                assert_int_equal(cluster->fabric->node[n].n_payloads, 0);
        }
        make(0);
        until(all_committed(1));
        assert_sums(ALL, 1);
        give_all(4);
        until(cluster->node[1].committed == 2 && cluster->node[0].committed == 2);
        assert_int_equal(n_slow, 0);
}

TEST(it_comes_before_the_first_step, THREE_MIN) {
        make(0);
        give_all(4);
        until(all_committed(1));
        assert_sums(ALL, 1);
}

/* A loss meanwhile is no reason to ask again. */
TEST(a_member_is_lost_before_it_comes, THREE_AVG) {
        give_all(4);
        settle();
        lose(0);
        until(all_voided(1));
        join(0, 0, 4);
        until(cluster->trainer[0].member != NULL && job_on(1)->generation == 2);
        bring(0);
        settle();
        assert_int_equal(n_slow, 1);
        give_all(4);
        settle();
        assert_int_equal(cluster->node[1].committed, 0);
        make(0);
        until(cluster->node[0].committed == 1 && cluster->node[1].committed == 1);
        assert_sums(ALL, 1);
}

/* The node's only member has gone meanwhile: it gives what changes nothing all the same. */
TEST(a_node_without_members_waits_for_it, THREE_FOR_TWO, THREE_MIN_FOR_TWO) {
        lose(2);
        until(all_entered(2));
        assert_int_equal(job_on(1)->n_local, 0);
        give_all(3);
        settle();
        assert_int_equal(cluster->node[0].committed, 0);
        make(0);
        until(cluster->node[0].committed == 1 && cluster->node[2].committed == 1);
        assert_sums(0x7, 1);
}

/* The backend has made it, and the engine has yet to get ready for it. */
NODES_TEST(steps_wait_for_the_engine, THREE_AVG) {
        struct fake_engine *fake = &cluster->fabric->node[1];

        fake->slow = true;
        form_four();
        assert_int_equal(fake->n_coming, 1);
        give_all(4);
        settle();
        assert_int_equal(cluster->fabric->node[0].n_payloads, 0);
        fake_take_shared(fake);
        until(cluster->node[0].committed == 1 && cluster->node[1].committed == 1);
        assert_sums(ALL, 1);
        fake->slow = false;
}

/* It is charged, and not given back, as long as the engine has it. */
FORMED_TEST(it_stays_until_the_engine_has_let_go_of_it, THREE_AVG) {
        struct fake_engine *fake = &cluster->fabric->node[1];
        struct users *accounts = cluster->node[1].accounts;

        give_all(4);
        until(cluster->node[1].committed == 1 && cluster->node[0].committed == 1);
        fake->slow = true;
        for (uint32_t rank = 0; rank < 4; rank++)
                lose(rank);
        until(job_on(1) == NULL);
        settle();
        assert_int_equal(fake->n_going, 1);
        assert_true(accounts_total(accounts, ACCOUNT_OWN) > 0);
        fake_let_go_of_shared(fake);
        assert_int_equal(accounts_total(accounts, ACCOUNT_OWN), 0);
        fake->slow = false;
}

/* ---- it does not ---- */

TEST(the_members_go_where_there_is_no_room, THREE_AVG) {
        give_all(4);
        settle();
        make(-ENOMEM);
        assert_true(cluster->trainer[2].evicted);
        assert_false(cluster->trainer[0].evicted || cluster->trainer[1].evicted ||
                     cluster->trainer[3].evicted);
        assert_true(has_said(1, "plan 0 of job 'j': what goes to other nodes"));
        assert_true(has_said(1, "has no room for"));
        lose(2);
        until(cluster->node[0].voided == 1 && cluster->node[2].voided == 1);
        is_slow = false; /* the next one finds room */
        join(1, 2, 4);
        until(cluster->trainer[2].member != NULL && job_on(1)->generation == 2);
        bring(2);
        settle();
        give_all(4);
        until(all_committed(1));
        assert_sums(ALL, 1);
}

TEST(the_engine_does_not_take_it, THREE_AVG) {
        struct fake_engine *fake = &cluster->fabric->node[1];

        for (unsigned i = 0; i < FABRIC_MEMORIES; i++) /* it has room for no more */
                if (fake->memory_id[i] == 0)
                        fake->memory_id[i] = UINT64_MAX - i;
        make(0);
        assert_true(cluster->trainer[2].evicted);
        assert_true(has_said(1, "the engine does not take the staging: No space left"));
        for (unsigned i = 0; i < FABRIC_MEMORIES; i++)
                if (fake->memory_id[i] == UINT64_MAX - i)
                        fake->memory_id[i] = 0;
}

/* The job ends before it comes: it is given back. */
TEST(nobody_wants_it_any_more, THREE_AVG) {
        for (uint32_t rank = 0; rank < 4; rank++)
                lose(rank);
        until(job_on(0) == NULL);
        settle();
        assert_int_equal(n_slow, 1);
        assert_true(slow[0].cancelled);
        slow[0].cancelled = false; /* it had been made by then */
        make(0);
}
