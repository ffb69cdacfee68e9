/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that stand in line: users take turns, and a pass serves no more than its budget allows. */
#include "tests.h"

#include "base/clock.h"
#include "base/line.h"

#define USERS 3u
#define PLACES 4u

struct customer {
        struct line_place place;
        char name;
};

static struct world {
        struct loop *loop;
        struct line line;
        struct line_queue queue[USERS];
        enum line_class class[USERS];
        struct customer customer[USERS][PLACES];
        uint64_t cost;
        char served[64];
        uint64_t pass[64];
        unsigned n, wanted;
} world;

static void serve(struct line_place *place) {
        const struct customer *customer = (const struct customer *)place;
        size_t user = (size_t)(customer - world.customer[0]) / PLACES;

        world.pass[world.n] = loop_passes(world.loop);
        world.served[world.n++] = customer->name;
        line_charge(&world.line, &world.queue[user], world.cost);
        if (world.n == world.wanted)
                loop_exit(world.loop, 0);
}

static enum line_class class_of(const struct line_queue *queue) {
        return world.class[queue - world.queue];
}

static int set_up(void **state) {
        world = (struct world){ .cost = LINE_BUDGET, .class = { LINE_OTHERS, LINE_OTHERS, LINE_OTHERS } };
        if (loop_new(&world.loop) < 0)
                return -1;
        if (line_init(&world.line, world.loop, serve, class_of) < 0)
                return -1;
        for (unsigned u = 0; u < USERS; u++) {
                line_queue_init(&world.queue[u]);
                for (unsigned p = 0; p < PLACES; p++) {
                        line_place_init(&world.customer[u][p].place);
                        world.customer[u][p].name = (char)('a' + u * PLACES + p);
                }
        }
        return 0;
}

static int tear_down(void **state) {
        line_deinit(&world.line);
        loop_free(world.loop);
        return 0;
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)

static void add(unsigned user, unsigned place) {
        line_add(&world.line, &world.queue[user], &world.customer[user][place].place);
}

static void all_stand(void) {
        for (unsigned p = 0; p < PLACES; p++)
                for (unsigned u = 0; u < USERS; u++)
                        add(u, p);
}

static void run(unsigned wanted) {
        world.wanted = wanted;
        assert_int_equal(loop_run(world.loop), 0);
}

TEST(users_take_turns) {
        for (unsigned p = 0; p < PLACES; p++)
                add(0, p);
        add(1, 0);
        add(2, 0);
        add(2, 1);
        run(7);
        assert_memory_equal(world.served,
                            "aei"
                            "bj"
                            "c"
                            "d",
                            7);
}

TEST(some_users_come_first) {
        world.class[1] = world.class[2] = LINE_RUNNING;
        all_stand();
        run(12);
        assert_memory_equal(world.served,
                            "eif"
                            "a"
                            "jgk"
                            "b"
                            "hl"
                            "cd",
                            12);
}

/* Each class has its turns for each turn of the classes behind it. */
TEST(operators_come_before_all) {
        world.class[1] = LINE_RUNNING;
        world.class[2] = LINE_OPERATORS;
        all_stand();
        run(12);
        assert_memory_equal(world.served,
                            "ijk"
                            "e"
                            "l"
                            "fg"
                            "a"
                            "h"
                            "bcd",
                            12);
}

/* A class owes nothing for turns that it took while no class before it waited. A user's class can change. */
TEST(who_comes_first_may_change) {
        for (unsigned p = 0; p < PLACES; p++) {
                add(0, p);
                add(1, p);
        }
        world.wanted = 1;
        assert_int_equal(loop_run(world.loop), 0);
        world.class[1] = LINE_RUNNING;
        run(8);
        assert_memory_equal(world.served,
                            "ae"
                            "fgh"
                            "bcd",
                            8);
}

TEST(a_pass_has_a_budget) {
        world.cost = LINE_BUDGET / 2;
        for (unsigned p = 0; p < PLACES; p++)
                add(0, p);
        run(4);
        assert_int_equal(world.pass[0], world.pass[1]);
        assert_int_equal(world.pass[2], world.pass[0] + 1);
        assert_int_equal(world.pass[3], world.pass[2]);
}

TEST(who_comes_first_need_not_stand) {
        assert_int_equal(line_left(&world.line, &world.queue[0]), LINE_BUDGET);
        line_charge(&world.line, &world.queue[0], LINE_BUDGET - 1);
        assert_int_equal(line_left(&world.line, &world.queue[0]), 1);
        line_charge(&world.line, &world.queue[0], 50);
        assert_int_equal(line_left(&world.line, &world.queue[0]), 0);
        add(0, 0);
        run(1);
        assert_int_equal(world.pass[0], 1); /* there was nothing left before */
}

TEST(nobody_passes_those_who_stand) {
        add(0, 0);
        assert_int_equal(line_left(&world.line, &world.queue[0]), 0);
        line_leave(&world.queue[0], &world.customer[0][0].place);
        assert_int_equal(line_left(&world.line, &world.queue[0]), LINE_BUDGET);
}

TEST(one_can_leave) {
        add(0, 0);
        add(0, 1);
        add(0, 1); /* it stands there already */
        add(1, 0);
        line_leave(&world.queue[0], &world.customer[0][0].place);
        line_leave(&world.queue[0], &world.customer[0][0].place);
        line_leave(&world.queue[1], &world.customer[1][0].place);
        run(1);
        assert_int_equal(world.served[0], 'b');
}

static void leave_loop(void *data) {
        loop_exit(data, 0);
}

static void pass(void) {
        struct loop_deferred exit = { .fn = leave_loop, .data = world.loop };

        loop_defer(world.loop, &exit);
        assert_int_equal(loop_run(world.loop), 0);
}

/* While steps go on, requests get only a part of the time. */
TEST(steps_leave_a_part_of_the_time) {
        line_charge(&world.line, &world.queue[0], LINE_BUDGET);
        assert_int_equal(line_left(&world.line, &world.queue[0]), 0);
        pass();
        assert_int_equal(line_left(&world.line, &world.queue[0]), LINE_BUDGET); /* no steps go on */
        line_stepped(&world.line);
        line_charge(&world.line, &world.queue[0], 1000000); /* the debt has a limit, which is one budget */
        assert_true(world.line.part.left == -(double)LINE_BUDGET);
        pass();
        uint64_t left;
        do { /* again, if this process was kept waiting for so long that no steps go on */
                world.line.part.last = world.line.stepped = clock_now();
                world.line.part.left = -1000000;
                left = line_left(&world.line, &world.queue[0]);
        } while (clock_now() - world.line.stepped > LINE_CALM);
        assert_int_equal(left, 0);
        world.line.part.left = -100;
        add(0, 0);
        run(1);
        assert_int_equal(world.n, 1);
}

/* Requests of operators cost no part of the time, and pass those that have to wait. */
TEST(operators_need_no_part_of_the_time) {
        world.class[1] = LINE_OPERATORS;
        line_stepped(&world.line);
        line_charge(&world.line, &world.queue[0], LINE_BUDGET);
        assert_int_equal(line_left(&world.line, &world.queue[1]), 0);
        pass();
        world.line.part.last = world.line.stepped = clock_now();
        world.line.part.left = -(double)LINE_BUDGET;
        add(0, 0);
        assert_int_equal(line_left(&world.line, &world.queue[1]), LINE_BUDGET);
        line_charge(&world.line, &world.queue[1], LINE_BUDGET - 1);
        assert_int_equal(line_left(&world.line, &world.queue[1]), 1);
        add(1, 0);
        assert_int_equal(line_left(&world.line, &world.queue[1]), 0);
        run(1);
        assert_int_equal(world.served[0], 'e');
        run(2);
        assert_int_equal(world.served[1], 'a');
}
