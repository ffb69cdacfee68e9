/* SPDX-License-Identifier: Apache-2.0 */
/* A node and its communicator, which may outlast a generation before it is built. */
#include "machine_fixture.h"

/* A member was lost while generation 2 built its communicator, which stays: NEWGEN of generation 3. */
static struct message lose_while_building(void) {
        struct message m = order(ORDER_NEWGEN, 6);

        reach(NODE_SETTLED);
        m.generation.number = m.comm.number = 2;
        m.n_members = 1;
        m.member_of[0] = (struct message_member){ .request = member(1, 1), .in = true, .rank = 1 };
        tell(m);
        for (enum message_kind kind = ORDER_FREEZE; kind <= ORDER_VERDICT; kind++)
                if (kind != ORDER_ABORT) {
                        struct message next = order(kind, ++m.round);

                        next.generation = next.comm = m.generation;
                        tell(next);
                }
        assert_int_equal(node.phase, NODE_SETTLED);
        m.round++;
        m.generation.number = 3;
        return m;
}

static void a_generation_waits_for_a_communicator_of_an_earlier_one(void **state) {
        for (unsigned built_before = 0; built_before < 2; built_before++) {
                struct message m = lose_while_building();

                if (built_before)
                        node_built(&node, NOW, m.comm, (struct nodeset){ 0 });
                assert_int_equal(node.phase, NODE_SETTLED);
                forget();
                tell(m);
                if (!built_before) {
                        assert_int_equal(node.phase, NODE_BUILDING);
                        assert_int_equal(n_acted(), 0); /* it is being built */
                        node_built(&node, NOW, m.comm, (struct nodeset){ 0 });
                }
                assert_int_equal(node.phase, NODE_RUNNING);
                assert_int_equal(node.generation.number, 3);
                assert_int_equal(node.comm.number, 2);
        }
}

/* What is found in no phase in which the node waits for it counts as well, also in the next generation. */
static void a_communicator_that_is_not_built_is_reported_in_each_phase(void **state) {
        uint64_t word = 1;

        for (unsigned when = 0; when < 2; when++) {
                struct message m = lose_while_building();

                if (when == 1)
                        tell(m);
                forget();
                node_built(&node, NOW, m.comm, (struct nodeset){ &word, 1 });
                assert_int_equal(n_sent(), 1);
                assert_int_equal(sent(0)->links[0], 1);
                if (when == 0)
                        tell(m);
                assert_int_equal(node.phase, NODE_BUILDING);
                node_tick(&node, NOW + times.heartbeat);
                assert_int_equal(sent(n_sent() - 1)->links[0], 1);
        }
}

/* A link that breaks after the verdict is broken in the generation that keeps the communicator. */
static void a_broken_link_is_one_of_the_communicator(void **state) {
        struct message m = lose_while_building();
        uint64_t word = 1;

        node_built(&node, NOW, m.comm, (struct nodeset){ 0 });
        node_unreachable(&node, NOW, m.comm, (struct nodeset){ &word, 1 });
        forget();
        tell(m);
        assert_int_equal(node.phase, NODE_RUNNING);
        assert_int_equal(sent(n_sent() - 1)->links[0], 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_generation_waits_for_a_communicator_of_an_earlier_one),
                cmocka_unit_test(a_communicator_that_is_not_built_is_reported_in_each_phase),
                cmocka_unit_test(a_broken_link_is_one_of_the_communicator),
        };

        return cmocka_run_group_tests(tests, make_room, give_room);
}
