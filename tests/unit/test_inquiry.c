/* SPDX-License-Identifier: Apache-2.0 */
/* Questions between the nodes of a job: the nodes that are asked, their answers, and the nodes that do not
 * answer. */
#include <string.h>

#include "rendezvous/service/inquiry.h"
#include "tests.h"

#define NODES 3u

static struct inquiries inquiries;
static struct list nodes;
static int job, other_job; /* only their addresses mean something */
static struct hub_sight sight[NODES];

static struct fake {
        struct attachment attachment;
        unsigned n_asked, n_told;
        uint32_t id;
        size_t waits;
        struct hub_told told;
        bool answers; /* at once, inside the question */
} fake[NODES];

static uint64_t now;

static void on_asked(struct attachment *attachment, uint32_t id, const void *waits, size_t bytes) {
        struct fake *it = list_entry(attachment, struct fake, attachment);

        it->n_asked++;
        it->id = id;
        it->waits = bytes;
        if (it->answers)
                inquiry_answer(&inquiries, attachment, id, true, "r", 1, now);
}

static void on_told(struct attachment *attachment, const struct hub_told *told) {
        struct fake *it = list_entry(attachment, struct fake, attachment);

        it->n_told++;
        it->told = *told;
}

static int setup(void **state) {
        static const char *const names[NODES] = { "a", "b", "c" };

        inquiries_init(&inquiries);
        list_init(&nodes);
        now = 100 * INQUIRY_SILENT;
        for (uint32_t i = 0; i < NODES; i++) {
                sight[i] = (struct hub_sight){ .name = names[i], .heard = now };
                fake[i] = (struct fake){ .attachment = { .coordination = &job,
                                                         .address = 10 + i,
                                                         .sight = &sight[i],
                                                         .asked = on_asked,
                                                         .told = on_told } };
                list_append(&nodes, &fake[i].attachment.link);
        }
        return 0;
}

static int teardown(void **state) {
        inquiries_deinit(&inquiries);
        return 0;
}

static void ask(uint32_t id) {
        assert_true(inquiry_begin(&inquiries, &job, &nodes, &fake[0].attachment, id, "waits", 5, now));
}

static void answer(uint32_t node, bool last, size_t bytes) {
        static const uint8_t rows[8];

        inquiry_answer(&inquiries, &fake[node].attachment, fake[node].id, last, rows, bytes, now);
}

#define TEST(name) TEST_WITH(name, setup, teardown)

TEST(all_others_are_asked_and_the_last_ends_it) {
        ask(7);
        assert_int_equal(fake[0].n_asked, 0);
        assert_int_equal(fake[1].n_asked, 1);
        assert_int_equal(fake[2].waits, 5);
        answer(1, false, 3);
        assert_int_equal(fake[0].told.id, 7);
        assert_int_equal(fake[0].told.bytes, 3);
        assert_false(fake[0].told.last);
        answer(1, true, 0);
        assert_int_equal(fake[0].n_told, 1);
        answer(1, true, 4); /* it has ended its answer */
        assert_int_equal(fake[0].n_told, 1);
        answer(2, true, 4);
        assert_int_equal(fake[0].n_told, 3);
        assert_true(fake[0].told.last);
        assert_int_equal(fake[0].told.n_hosts, 0);
        assert_int_equal(inquiry_deadline(&inquiries), UINT64_MAX);
}

TEST(nodes_that_answer_at_once_end_it_when_all_were_asked) {
        fake[1].answers = fake[2].answers = true;
        ask(7);
        assert_int_equal(fake[2].n_asked, 1);
        assert_int_equal(fake[0].n_told, 3);
        assert_true(fake[0].told.last);
}

TEST(a_silent_node_is_named_after_a_while) {
        ask(7);
        answer(1, true, 1);
        sight[2].heard = now - INQUIRY_SILENT;
        inquiry_tick(&inquiries, now + INQUIRY_WAIT - 1);
        assert_int_equal(fake[0].n_told, 1);
        assert_int_equal(inquiry_deadline(&inquiries), now + INQUIRY_WAIT);
        inquiry_tick(&inquiries, now + INQUIRY_WAIT);
        assert_true(fake[0].told.last);
        assert_int_equal(fake[0].told.n_hosts, 1);
        assert_int_equal(fake[0].told.host[0].how, HUB_SILENT);
        assert_string_equal(fake[0].told.host[0].name, "c");
        assert_int_equal(fake[0].told.host[0].since, INQUIRY_SILENT + INQUIRY_WAIT);
}

TEST(one_that_was_heard_lately_is_only_busy) {
        ask(7);
        inquiry_tick(&inquiries, now + INQUIRY_WAIT);
        assert_true(fake[0].told.last);
        assert_int_equal(fake[0].told.n_hosts, 0);
}

TEST(one_that_is_away_is_named_and_not_asked) {
        sight[1].away = true;
        sight[1].heard = now - 5;
        ask(7);
        assert_int_equal(fake[1].n_asked, 0);
        answer(2, true, 0);
        assert_true(fake[0].told.last);
        assert_int_equal(fake[0].told.n_hosts, 1);
        assert_int_equal(fake[0].told.host[0].how, HUB_AWAY);
        assert_int_equal(fake[0].told.host[0].since, 5);
}

TEST(one_that_goes_is_not_waited_for) {
        ask(7);
        answer(1, true, 0);
        inquiry_forget(&inquiries, &fake[2].attachment, now);
        assert_true(fake[0].told.last);
        ask(8);
        inquiry_forget(&inquiries, &fake[0].attachment, now);
        answer(1, true, 1);
        assert_int_equal(fake[0].n_told, 1);
        assert_int_equal(inquiry_deadline(&inquiries), UINT64_MAX);
}

TEST(answers_to_questions_of_other_jobs_are_dropped) {
        ask(7);
        fake[1].attachment.coordination = &other_job;
        answer(1, true, 1);
        assert_int_equal(fake[0].n_told, 0);
}

TEST(what_is_too_much_is_dropped) {
        for (uint32_t i = 0; i < INQUIRIES; i++)
                ask(i);
        assert_false(inquiry_begin(&inquiries, &job, &nodes, &fake[0].attachment, 99, NULL, 0, now));
        answer(1, false, 1); /* the latest */
        for (unsigned i = 1; i < INQUIRY_PIECES + 4; i++)
                answer(1, false, 1);
        assert_int_equal(fake[0].n_told, INQUIRY_PIECES);
}
