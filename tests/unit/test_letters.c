/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's daemon: what its nodes say of their parts in a job, and its answers to those that ask. */
#include "tests.h"

#include <string.h>

#include "base/clock.h"
#include "jobs_fixture.h"
#include "report/private.h"

#define NODES 3u
#define HOSTS 12u /* without a node of the job */
#define LETTERS 8u

static const struct hub_job job = { .uid = 1000, .name = "j", .incarnation = 7 };

static struct reports *reports;
static struct views *views; /* to read what has been sent */
static struct hub_sight sight[NODES], host[HOSTS];
static unsigned n_hosts, n_letters, completed;
static struct {
        uint32_t to;
        size_t size;
        uint8_t bytes[4096];
} letters[LETTERS];

static void each_node(void *data, const struct hub_job *about, hub_node_fn *fn, void *to) {
        assert_string_equal(about->name, job.name);
        for (uint32_t i = 0; i < NODES; i++)
                fn(to, i, &sight[i]);
        for (unsigned i = 0; i < n_hosts; i++)
                fn(to, HUB_UNKNOWN, &host[i]);
}

static void on_post(void *data, const struct hub_job *about, const struct hub_letter *letter) {
        assert_in_range(n_letters, 0, LETTERS - 1);
        assert_in_range(letter->size, 1, sizeof(letters[0].bytes));
        letters[n_letters].to = letter->node;
        letters[n_letters].size = letter->size;
        memcpy(letters[n_letters++].bytes, letter->bytes, letter->size);
}

static void on_complete(void *data) {
        completed++;
}

static int setup_letters(void **state) {
        static const char *const names[] = { "a", "b", "c" };
        static const struct reports_cluster cluster = { .nodes = each_node, .post = on_post };
        struct reports_config config = { .device = "none", .socket = "s" };
        struct fixture *f;

        setup(state);
        f = *state;
        config.loop = f->loop;
        config.accounts = f->accounts;
        config.jobs = f->jobs;
        assert_int_equal(reports_new(&config, &reports), 0);
        reports_use_cluster(reports, &cluster);
        assert_int_equal(views_new(f->loop, f->accounts, &views), 0);
        views_on_complete(views, on_complete, NULL);
        for (uint32_t i = 0; i < NODES; i++)
                sight[i] = (struct hub_sight){ .name = names[i], .heard = clock_now() };
        for (unsigned i = 0; i < HOSTS; i++)
                host[i].name = "h";
        n_hosts = n_letters = completed = 0;
        return 0;
}

static int teardown_letters(void **state) {
        views_free(views);
        reports_free(reports);
        return teardown(state);
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_letters, teardown_letters)

static void post(uint32_t from, uint16_t type, uint32_t request, const ProtobufCMessage *message) {
        uint8_t frame[FRAME_MAX];
        ssize_t size = codec_pack(frame, type, request, 0, message);
        const struct hub_letter letter = { from, frame, (size_t)size };

        reports_posted(reports, &job, &letter);
}

/* The step tells one statement from another. */
static void state(uint32_t from, uint64_t step) {
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;

        row.name = (char *)"j";
        row.state = (char *)"running";
        SET(row, step, step);
        post(from, WIRE__MESSAGE_TYPE__STATUS_JOB, 0, &row.base);
}

static void ask(uint32_t from, uint32_t request) {
        Wire__Status status = WIRE__STATUS__INIT;

        post(from, WIRE__MESSAGE_TYPE__STATUS, request, &status.base);
}

/* The next row of that letter; NULL: there is none. */
static const ProtobufCMessage *row_of(unsigned letter, size_t *at, struct frame_header *header) {
        return views_decode(views, letters[letter].bytes, letters[letter].size, at, header);
}

static uint64_t step_of(unsigned letter) {
        struct frame_header header;
        size_t at = 0;
        const Wire__StatusJob *row = CAST(Wire__StatusJob, row_of(letter, &at, &header));

        assert_int_equal(header.type, WIRE__MESSAGE_TYPE__STATUS_JOB);
        return row->step;
}

/* Where the rows of the last letter begin that follow its end mark. */
static size_t assert_end(uint32_t request) {
        struct frame_header header;
        size_t at = 0;

        assert_in_range(n_letters, 1, LETTERS);
        assert_non_null(row_of(n_letters - 1, &at, &header));
        assert_int_equal(header.type, WIRE__MESSAGE_TYPE__STATUS_END);
        assert_int_equal(header.request, request);
        return at;
}

static void assert_silent(size_t *at, const char *name, const char *how) {
        struct frame_header header;
        const Wire__StatusWait *row = CAST(Wire__StatusWait, row_of(n_letters - 1, at, &header));

        assert_non_null(row);
        assert_int_equal(header.type, WIRE__MESSAGE_TYPE__STATUS_WAIT);
        assert_string_equal(row->what, "node");
        assert_string_equal(row->host, name);
        assert_non_null(strstr(row->text, how));
}

static void assert_no_more(size_t at) {
        struct frame_header header;

        assert_null(row_of(n_letters - 1, &at, &header));
}

TEST(an_answer_has_the_latest_of_each_other_node) {
        for (uint32_t i = 0; i < NODES; i++)
                state(i, i);
        state(1, 11);
        assert_int_equal(n_letters, 0);
        ask(2, 9);
        assert_int_equal(n_letters, 3);
        for (unsigned i = 0; i < n_letters; i++)
                assert_int_equal(letters[i].to, 2);
        assert_int_equal(step_of(0), 0);
        assert_int_equal(step_of(1), 11);
        assert_no_more(assert_end(9));
}

TEST(a_node_that_has_said_nothing_yet_is_left_out) {
        state(1, 1);
        ask(2, 9);
        assert_int_equal(n_letters, 2);
        assert_int_equal(step_of(0), 1);
        assert_no_more(assert_end(9));
}

TEST(silent_nodes_are_named_and_what_they_have_said_is_not_shown) {
        for (uint32_t i = 0; i < NODES; i++)
                state(i, i);
        sight[0].heard -= 2 * USEC_PER_SEC;
        sight[1].away = true;
        ask(2, 9);
        assert_int_equal(n_letters, 1);
        size_t at = assert_end(9);
        assert_silent(&at, "a", "the node on host a: no report for 2.");
        assert_silent(&at, "b", "the node on host b: not connected for ");
        assert_no_more(at);
}

TEST(hosts_without_a_node_are_named_and_counted) {
        static const struct {
                unsigned n;
                const char *text;
        } rows[] = {
                { 1, "host h has none" },
                { 2, "host h and host h have none" },
                { 3, "host h, host h and host h have none" },
                { 10, "host h, host h, host h, host h, host h, host h, host h, host h and 2 more have none" }
        };

        for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct frame_header header;

                n_hosts = rows[i].n;
                n_letters = 0;
                ask(2, 9);
                size_t at = assert_end(9);
                const Wire__StatusJob *row = CAST(Wire__StatusJob, row_of(n_letters - 1, &at, &header));
                assert_int_equal(header.type, WIRE__MESSAGE_TYPE__STATUS_JOB);
                assert_null(row->name);
                assert_string_equal(row->text, rows[i].text);
        }
}

TEST(what_is_no_frame_is_dropped) {
        const struct hub_letter letter = { 1, "some text that is no frame", 26 };

        reports_posted(reports, &job, &letter);
        ask(2, 9);
        assert_int_equal(n_letters, 1);
        assert_no_more(assert_end(9));
}

/* ---- the side that asks */

static struct view *view_of_others(void) {
        return views_get(views, &job, VIEW_OTHERS, 0);
}

static void take_all(struct view *view) {
        for (unsigned i = 0; i < n_letters; i++)
                view_take(view, letters[i].bytes, letters[i].size);
}

static unsigned rows_of(struct view *view) {
        unsigned n = 0;
        uint16_t type;
        size_t at = 0;

        while (view_next(view, &at, &type) != NULL)
                n++;
        return n;
}

TEST(an_answer_is_taken_under_its_number) {
        struct view *view = view_of_others();
        uint32_t first = view_begin(view);

        state(0, 1);
        ask(2, first);
        view_asked(view, first, true);
        take_all(view);
        assert_int_equal(completed, 1);
        assert_true(view_is_of(view, 1));
        assert_int_equal(rows_of(view), 2);
        take_all(view); /* nothing was asked */
        assert_int_equal(completed, 1);
        uint32_t second = view_begin(view);
        take_all(view); /* to the first question */
        assert_true(view_is_coming(view));
        n_letters = 0;
        ask(2, second);
        take_all(view);
        assert_int_equal(completed, 2);
        assert_int_equal(rows_of(view), 2);
}

TEST(a_question_that_cannot_be_sent_is_answered_at_once) {
        struct view *view = view_of_others();

        view_asked(view, view_begin(view), false);
        assert_int_equal(completed, 1);
        assert_int_equal(rows_of(view), 0);
}

TEST(silent_nodes_are_to_blame_for_a_wait) {
        const struct job_wait wait = { .kind = WAIT_NODES, .purpose = WAIT_STEP, .step = 3, .since = 5 };
        struct view *view = view_of_others();
        struct job_wait waits[NODES];
        uint32_t id = view_begin(view);

        sight[0].away = true;
        ask(2, id);
        take_all(view);
        assert_int_equal(view_blame(view, &wait, waits, NODES), 1);
        assert_int_equal(waits[0].kind, WAIT_SILENT);
        assert_string_equal(waits[0].host, "a");
        assert_int_equal(waits[0].step, 3);
        assert_int_equal(waits[0].since, 5);
}

TEST(words_of_others_are_charged_to_the_job_s_user) {
        uint64_t before = accounts_used(f->accounts, job.uid, ACCOUNT_OWN);
        struct view *view = views_get(views, &job, VIEW_STATEMENT, 1);
        uint64_t empty = accounts_used(f->accounts, job.uid, ACCOUNT_OWN);

        assert_true(empty > before); /* the view itself */
        view_keep(view, letters[0].bytes, 1000);
        assert_int_equal(accounts_used(f->accounts, job.uid, ACCOUNT_OWN), empty + 1000);
        view_keep(view, letters[0].bytes, 10);
        assert_int_equal(accounts_used(f->accounts, job.uid, ACCOUNT_OWN), empty + 10);
        views_free(views);
        assert_int_equal(accounts_used(f->accounts, job.uid, ACCOUNT_OWN), before);
        assert_int_equal(views_new(f->loop, f->accounts, &views), 0);
}
