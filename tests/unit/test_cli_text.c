// SPDX-License-Identifier: Apache-2.0
/* Foreign text, numbers, and streams of output, as gradsyncctl shows them. */
#include "tests.h"

#include "client/cli/base/cli.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/run/lines.h"
#include "client/cli/view/text.h"
#include "client/cli/view/top.h"

static void assert_escaped(const char *text, const char *expected) {
        char *shown = escape_text(text);

        assert_string_equal(shown, expected);
        free(shown);
}

TEST_ALONE(plain_text_is_left_alone) {
        assert_escaped(NULL, "");
        assert_escaped("", "");
        assert_escaped("layer4.conv1.weight", "layer4.conv1.weight");
        assert_escaped("sp\xc3\xa4t \xe2\x82\xac \xf0\x9f\x90\xa7",
                       "sp\xc3\xa4t \xe2\x82\xac \xf0\x9f\x90\xa7");
}

TEST_ALONE(terminals_get_no_orders) {
        assert_escaped("a\033[31mb", "a\\x1b[31mb");
        assert_escaped("a\nb\r\t\x7f", "a\\x0ab\\x0d\\x09\\x7f");
        assert_escaped("\xc2\x9b", "\\xc2\\x9b");              /* CSI in one code point */
        assert_escaped("x\xe2\x80\xaey", "x\\xe2\\x80\\xaey"); /* right-to-left override */
        assert_escaped("x\xe2\x81\xa6y", "x\\xe2\\x81\\xa6y"); /* isolate */
}

TEST_ALONE(bytes_that_are_not_utf8_are_shown) {
        assert_escaped("\xff"
                       "a",
                       "\\xffa");
        assert_escaped("a\xc3", "a\\xc3");
        assert_escaped("\xe2\x82", "\\xe2\\x82");
        assert_escaped("\xc0\xaf", "\\xc0\\xaf");          /* overlong */
        assert_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* surrogate */
}

TEST_ALONE(sizes) {
        char out[FORMAT_SIZE];

        assert_string_equal(format_bytes(out, 0), "0 B");
        assert_string_equal(format_bytes(out, 1023), "1023 B");
        assert_string_equal(format_bytes(out, 1024), "1.0 KiB");
        assert_string_equal(format_bytes(out, 26214400), "25.0 MiB");
        assert_string_equal(format_bytes(out, 1048575), "1.0 MiB");
        assert_string_equal(format_bytes(out, 128ull << 20), "128 MiB");
        assert_string_equal(format_bytes(out, UINT64_MAX), "16.0 EiB");
}

TEST_ALONE(ages) {
        char out[FORMAT_SIZE];

        assert_string_equal(format_age(out, 0), "0.0 s");
        assert_string_equal(format_age(out, 3299), "3.2 s");
        assert_string_equal(format_age(out, 59999), "59.9 s");
        assert_string_equal(format_age(out, 250000), "4 min 10 s");
        assert_string_equal(format_age(out, 11520000), "3 h 12 min");
        assert_string_equal(format_age(out, 5 * 86400000ull + 7200000), "5 d 2 h");
}

TEST_ALONE(short_times) {
        char out[FORMAT_SIZE];

        assert_string_equal(format_short(out, 0), "0.00 ms");
        assert_string_equal(format_short(out, 9994), "9.99 ms");
        assert_string_equal(format_short(out, 9995), "10.0 ms");
        assert_string_equal(format_short(out, 99949), "99.9 ms");
        assert_string_equal(format_short(out, 99950), "0.10 s");
        assert_string_equal(format_short(out, 250000), "0.25 s");
        assert_string_equal(format_short(out, 995000), "0.9 s");
        assert_string_equal(format_short(out, 61000000), "1 min 1 s");
}

TEST_ALONE(rates_and_norms) {
        char out[FORMAT_SIZE];

        assert_string_equal(format_rate(out, 1234.4), "1234/s");
        assert_string_equal(format_rate(out, 18.23), "18.2/s");
        assert_string_equal(format_rate(out, 0.0312), "0.031/s");
        assert_string_equal(format_share(out, 0.0314), "3.1 %");
        assert_string_equal(format_norm(out, 0.48213), "0.4821");
}

TEST_ALONE(numbers_of_options) {
        unsigned long n = 7;

        assert_true(cli_parse_number("256", 1, 256, &n));
        assert_int_equal(n, 256);
        const char *const wrong[] = { "",   "0",  "257", "-1",  "+1",
                                      " 1", "1 ", "1x",  "0x1", "99999999999999999999" };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
                assert_false(cli_parse_number(wrong[i], 1, 256, &n));
        assert_true(cli_parse_seconds("1.5", &n));
        assert_int_equal(n, 1500);
        const char *const never[] = { "", "0", "-1", "nan", "inf", "1s", "1e9", "0.001" };
        for (size_t i = 0; i < sizeof never / sizeof *never; i++)
                assert_false(cli_parse_seconds(never[i], &n));
}

/* ---- lines ---- */

struct collected {
        char text[4096];
        size_t longest;
        unsigned n, pieces;
};

/* Each line is followed by a sign for how it ended. */
static void collect(void *data, const char *line, size_t length, enum lines_end end) {
        static const char signs[] = {
                [LINES_NEWLINE] = '|', [LINES_RETURN] = '<', [LINES_PIECE] = '+', [LINES_REST] = '.'
        };
        struct collected *collected = data;

        collected->n++;
        collected->pieces += end == LINES_PIECE;
        if (length > collected->longest)
                collected->longest = length;
        size_t used = strlen(collected->text);
        if (used + length + 2 < sizeof collected->text) {
                memcpy(collected->text + used, line, length);
                collected->text[used + length] = signs[end];
        }
}

/* Feeds the text in pieces of every size: the lines must not depend on how a pipe cut it. */
static void assert_lines(const char *text, const char *expected) {
        for (size_t piece = 1; piece <= strlen(text); piece++) {
                struct collected collected = { 0 };
                struct lines lines;
                assert_int_equal(lines_init(&lines), 0);
                for (size_t at = 0; at < strlen(text); at += piece) {
                        size_t left = strlen(text) - at;
                        lines_feed(&lines, text + at, left < piece ? left : piece, collect, &collected);
                }
                lines_flush(&lines, collect, &collected);
                lines_deinit(&lines);
                assert_string_equal(collected.text, expected);
        }
}

TEST_ALONE(lines_end_where_they_should) {
        assert_lines("one\ntwo\n", "one|two|");
        assert_lines("one\n\ntwo", "one||two.");
        assert_lines("\n", "|");
        assert_lines("one\r\ntwo\r\n", "one|two|");
        assert_lines("\r10 %\r20 %\rdone\n", "10 %<20 %<done|");
        assert_lines("10 %\r20 %\rdone\r\n", "10 %<20 %<done|");
        assert_lines("one\r\n\ntwo", "one||two.");
        assert_lines("one\r\r\ntwo\r", "one|two.");
        assert_lines("\r\r\rx", "x.");
        assert_lines("unfinished", "unfinished.");
}

/* Pending text is a bar if it stands before or after a carriage return. */
TEST_ALONE(bars_are_lines_that_are_rewritten) {
        static const struct {
                const char *text, *bar; /* NULL: it is none */
        } cases[] = {
                { "10 %\r", "10 %" },  { "\r10 %", "10 %" },     { "10 %\r20 %", "20 %" },
                { "10 %", NULL },      { "10 %\r20 %\n", NULL }, { "\r", NULL },
                { "10 %\r\n", NULL },  { "a\n\rb", "b" },        { "10 %\r20 %\nnew", NULL },
                { "10 %\r\nx", NULL },
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct collected collected = { 0 };
                struct lines lines;

                assert_int_equal(lines_init(&lines), 0);
                lines_feed(&lines, cases[i].text, strlen(cases[i].text), collect, &collected);
                assert_int_equal(lines_is_bar(&lines), cases[i].bar != NULL);
                if (cases[i].bar) {
                        assert_int_equal(lines.used, strlen(cases[i].bar));
                        assert_memory_equal(lines.pending, cases[i].bar, lines.used);
                }
                lines_flush(&lines, collect, &collected);
                assert_false(lines_is_bar(&lines));
                lines_deinit(&lines);
        }
}

TEST_ALONE(long_lines_come_in_pieces) {
        struct collected collected = { 0 };
        struct lines lines;
        size_t n = LINES_MAX * 2 + 10;
        char *bytes = malloc(n);

        memset(bytes, 'x', n);
        assert_int_equal(lines_init(&lines), 0);
        lines_feed(&lines, bytes, n, collect, &collected);
        lines_flush(&lines, collect, &collected);
        assert_int_equal(collected.n, 3);
        assert_int_equal(collected.longest, LINES_MAX);
        assert_int_equal(collected.pieces, 2);
        lines_deinit(&lines);
        free(bytes);
}

/* ---- waits ---- */

static void assert_wait(const Wire__StatusWait *wait, const char *expected) {
        char *text = text_wait(wait);

        assert_string_equal(text, expected);
        free(text);
}

TEST_ALONE(a_wait_names_whom_and_what_for) {
        Wire__StatusWait wait = WIRE__STATUS_WAIT__INIT;

        SET(wait, rank, 1);
        SET(wait, since_ms, 3210);
        wait.what = (char *)"join";
        assert_wait(&wait, "waiting 3.2 s for rank 1 to join");
        SET(wait, pid, 4242);
        wait.what = (char *)"plan";
        assert_wait(&wait, "waiting 3.2 s for rank 1 (pid 4242) to agree on a plan");
        wait.process_state = (char *)"stopped";
        wait.what = (char *)"step";
        SET(wait, bucket, 3);
        assert_wait(&wait, "waiting 3.2 s for rank 1 (pid 4242, stopped): bucket 3");
        wait.parameter = (char *)"layer4.\033conv1";
        assert_wait(
                &wait,
                "waiting 3.2 s for rank 1 (pid 4242, stopped): bucket 3, parameter \"layer4.\\x1bconv1\"");
        wait.what = (char *)"nodes";
        wait.text = (char *)"the vote of nodes 1, 2\n";
        assert_wait(&wait, "waiting 3.2 s for the vote of nodes 1, 2\\x0a");
}

/* ---- top ---- */

struct page {
        Wire__StatusDaemon daemon;
        Wire__StatusJob job;
        Wire__StatusMember member, *members[1];
        uint64_t reductions[2];
        struct snapshot_job snapshot_job;
        struct snapshot snapshot;
};

static struct observation page_of(struct page *page, uint64_t steps, uint64_t buckets, uint64_t late_us) {
        *page = (struct page){ .daemon = WIRE__STATUS_DAEMON__INIT,
                               .job = WIRE__STATUS_JOB__INIT,
                               .member = WIRE__STATUS_MEMBER__INIT,
                               .reductions = { buckets / 2, buckets - buckets / 2 } };
        page->job.name = (char *)"j";
        page->job.state = page->member.state = (char *)"running";
        page->job.committed = steps;
        page->job.reduce_class = page->reductions;
        page->job.n_reduce_class = 2;
        SET(page->member, late_us, late_us);
        page->members[0] = &page->member;
        page->snapshot_job =
                (struct snapshot_job){ .job = &page->job, .member = page->members, .n_members = 1 };
        page->snapshot =
                (struct snapshot){ .daemon = &page->daemon, .job = &page->snapshot_job, .n_jobs = 1 };
        return (struct observation){ .snapshot = &page->snapshot, .n = 1 };
}

/* 20 steps of 50 buckets in a second, to each of which the member comes 10 ms late. */
TEST_ALONE(who_is_late_in_each_bucket_is_so_once) {
        struct page page[2];
        struct observation before = page_of(&page[0], 100, 5000, 1000000),
                           now = page_of(&page[1], 120, 6000, 11000000);
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);
        struct figures_list list;

        assert_int_equal(figures_collect(&now, &before, 1000, &list), 0);
        top_page(&now, &list, "", false, to);
        fclose(to);
        figures_deinit(&list);
        assert_non_null(strstr(text, " 20.0 %"));
        assert_null(strstr(text, "100.0 %"));
        free(text);
}

/* 20 steps of 50 buckets, and half a microsecond in each of these: 10 µs of a second. */
TEST_ALONE(lateness_below_a_microsecond_counts) {
        struct page page[2];
        struct observation before = page_of(&page[0], 100, 5000, 0), now = page_of(&page[1], 120, 6000, 500);
        struct figures_list list;

        assert_int_equal(figures_collect(&now, &before, 1000, &list), 0);
        assert_true(list.job[0].member[0].is.late > 9e-6 && list.job[0].member[0].is.late < 11e-6);
        figures_deinit(&list);
}

/* Jobs of two daemons may have one number; a daemon is known by its instance, whatever its place is. */
TEST_ALONE(figures_are_of_the_same_daemon) {
        struct page page[4];
        struct observation first = page_of(&page[0], 100, 0, 0), second = page_of(&page[1], 7, 0, 0),
                           first_now = page_of(&page[2], 120, 0, 0), second_now = page_of(&page[3], 10, 0, 0);
        struct snapshot then[2], looks[2];
        struct observation before = { .snapshot = then, .n = 2 }, now = { .snapshot = looks, .n = 2 };
        struct figures_list list;

        page[0].daemon.instance = page[2].daemon.instance = 4;
        page[1].daemon.instance = page[3].daemon.instance = 5;
        then[0] = second.snapshot[0];
        then[1] = first.snapshot[0];
        looks[0] = first_now.snapshot[0];
        looks[1] = second_now.snapshot[0];
        assert_int_equal(figures_collect(&now, &before, 1000, &list), 0);
        assert_int_equal(list.n, 2);
        assert_true(list.job[0].is.rate == 20 && list.job[1].is.rate == 3);
        figures_deinit(&list);
}

/* Members and waits are found by their numbers, wherever in an answer they are. */
TEST_ALONE(figures_are_of_the_same_member) {
        struct page page[2];
        struct observation before = page_of(&page[0], 1, 2, 0), now = page_of(&page[1], 2, 4, 0);
        Wire__StatusMember then[3], later[4], *thens[3], *laters[4];
        Wire__StatusWait wait[4], *waits[4];
        static const uint32_t ranks[4] = { 2, 0, 2, 1 };
        static const double rates[4] = { 2, 4, 1, -1 };
        struct figures_list list;

        for (uint32_t i = 0; i < 4; i++) {
                wire__status_member__init(laters[i] = &later[i]);
                wire__status_wait__init(waits[i] = &wait[i]);
                later[i].rank = i;
                later[i].member = 12 - i; /* 12, 11, 10; 9 is new */
                later[i].step = 5;
                wait[i].rank = ranks[i];
                wait[i].has_pid = i != 3; /* for a member, which the last one is not */
        }
        later[1].unranked = true;
        for (uint32_t i = 0; i < 3; i++) {
                wire__status_member__init(thens[i] = &then[i]);
                then[i].member = 10 + i; /* 10, 11, 12 */
        }
        then[0].step = 4;
        then[1].step = 1;
        then[2].step = 3;
        page[0].snapshot_job.member = thens;
        page[0].snapshot_job.n_members = 3;
        page[1].snapshot_job.member = laters;
        page[1].snapshot_job.n_members = page[1].snapshot_job.n_waits = 4;
        page[1].snapshot_job.wait = waits;
        assert_int_equal(figures_collect(&now, &before, 1000, &list), 0);
        for (size_t i = 0; i < 4; i++)
                assert_true(list.job[0].member[i].is.rate == rates[i]);
        assert_ptr_equal(list.job[0].member[0].is.wait, &wait[1]);
        assert_null(list.job[0].member[1].is.wait);
        assert_ptr_equal(list.job[0].member[2].is.wait, &wait[0]);
        assert_null(list.job[0].member[3].is.wait);
        figures_deinit(&list);
}

static void assert_order(struct figures_list *list, enum figures_order order, bool reverse,
                         const size_t expected[3]) {
        figures_sort(list, order, reverse);
        for (size_t i = 0; i < 3; i++)
                assert_int_equal(list->job[0].member[i].place, expected[i]);
}

/* Members keep the order of their ranks if their values are equal or not known. */
TEST_ALONE(members_are_sorted) {
        Wire__StatusJob job = WIRE__STATUS_JOB__INIT;
        Wire__StatusMember member[3] = { WIRE__STATUS_MEMBER__INIT, WIRE__STATUS_MEMBER__INIT,
                                         WIRE__STATUS_MEMBER__INIT };
        struct figures_member row[3] = { { .place = 0, .member = &member[0], .is = { .late = -1 } },
                                         { .place = 1, .member = &member[1], .is = { .late = 0.25 } },
                                         { .place = 2, .member = &member[2], .is = { .late = 0.5 } } };
        struct snapshot_job from = { .job = &job, .n_members = 3 };
        struct figures_job first = { .job = &from, .member = row };
        struct figures_list list = { .job = &first, .n = 1 };

        assert_order(&list, FIGURES_BY_LATE, false, (const size_t[]){ 2, 1, 0 });
        assert_order(&list, FIGURES_BY_LATE, true, (const size_t[]){ 0, 1, 2 });
        assert_order(&list, FIGURES_BY_EXPOSED, false, (const size_t[]){ 0, 1, 2 });
        member[1].step = 1;
        assert_order(&list, FIGURES_BY_STEP, false, (const size_t[]){ 0, 2, 1 });
        assert_order(&list, FIGURES_BY_WAIT, false, (const size_t[]){ 0, 1, 2 });
        assert_order(&list, FIGURES_BY_RANK, true, (const size_t[]){ 2, 1, 0 });
}
