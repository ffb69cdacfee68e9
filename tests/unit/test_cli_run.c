/* SPDX-License-Identifier: Apache-2.0 */
/* Output of gradsyncctl run: progress bars in rows of a terminal, lists of ranks, the daemon's notices. */
#include "tests.h"

#include <locale.h>
#include <syslog.h>

#include "client/cli/run/bars.h"
#include "client/cli/run/notices.h"
#include "client/cli/run/pause.h"
#include "client/cli/run/ranks.h"
#include "proto/cleanup.h"

/* ---- bars ---- */

static void assert_row(const char *text, unsigned columns, const char *expected) {
        char out[256];
        /* Exactly as long as the text: a look beyond its end is seen by the sanitizer. */
        char *copy = malloc(strlen(text) + 1);
        size_t length = strlen(text);

        setlocale(LC_CTYPE, "C.UTF-8");
        memcpy(copy, text, length);
        copy = realloc(copy, length > 0 ? length : 1);
        size_t n = bars_row(copy, length, columns, out, sizeof out);
        assert_in_range(n, 0, sizeof out - 1);
        out[n] = '\0';
        assert_string_equal(out, expected);
        free(copy);
}

TEST_ALONE(rows_end_at_the_edge) {
        assert_row("epoch 1: 40 %", 80, "epoch 1: 40 %");
        assert_row("epoch 1: 40 %", 7, "epoch 1");
        assert_row("a\tb", 80, "a b");
        assert_row("█▏ 5%", 2, "█▏");
        assert_row("好好好", 5, "好好");
        assert_row("e\xcc\x81x", 1, "e\xcc\x81");
}

TEST_ALONE(rows_that_show_nothing) {
        assert_row("", 80, "");
        assert_row("      ", 80, "");
        assert_row("\033[2K\033[1A", 80, "");
        assert_row("\033[32m \033[0m", 80, "");
        assert_row("x", 0, "");
}

/* A bar stays in its row, whatever it says to a terminal. */
TEST_ALONE(nothing_moves_the_cursor) {
        assert_row("\033[A\033[2J40 %\033[K", 80, "40 %");
        assert_row("\033]0;title\a40 %", 80, "40 %");
        assert_row("\033]0;title\033\\40 %", 80, "40 %");
        assert_row("\033]8;;never ends", 80, "");
        assert_row("\033c40 %\0337", 80, "40 %");
        assert_row("40 %\033", 80, "40 %");
        assert_row("40 %\033[", 80, "40 %");
        assert_row("40 %\033[3", 80, "40 %");
        assert_row("a\b\b\vb\x7f", 80, "ab?");
        assert_row("a\xc2\x9b"
                   "2Jb",
                   80, "a?2Jb");
        assert_row("a\xff\xe2\x80", 80, "a???");
        assert_row("a\xe2\x80\xae"
                   "b",
                   80, "a?b");
}

TEST_ALONE(colours_end_with_the_row) {
        assert_row("\033[1;31m40 %", 80, "\033[1;31m40 %\033[0m");
        assert_row("\033[38:5:1m40 %\033[m!", 3, "\033[38:5:1m40 \033[0m");
        assert_row("\033[?1m40 %", 80, "40 %");
}

TEST_ALONE(rows_fit_into_their_memory) {
        char text[512], out[64];

        for (size_t i = 0; i < sizeof text; i += 4)
                memcpy(text + i, "\033[1m", 4);
        text[0] = 'x';
        text[1] = text[2] = text[3] = 'y';
        size_t n = bars_row(text, sizeof text, 80, out, sizeof out);
        assert_in_range(n, sizeof out / 2, sizeof out);
        assert_memory_equal(out + n - 4, "\033[0m", 4);
}

/* ---- ranks ---- */

static void assert_ranks(const char *of, const char *expected) {
        bool set[512] = { false };
        char out[RANKS_TEXT];

        for (size_t i = 0; of[i]; i++)
                set[i] = of[i] == 'x';
        assert_string_equal(ranks_text(set, (unsigned)strlen(of), out), expected);
}

TEST_ALONE(ranks_are_listed) {
        char many[257];

        assert_ranks("x", "rank 0");
        assert_ranks("--x-", "rank 2");
        assert_ranks("xx", "ranks 0, 1");
        assert_ranks("xxx", "ranks 0 to 2");
        assert_ranks("x-xxxx-xx", "ranks 0, 2 to 5, 7, 8");
        for (size_t i = 0; i < 256; i++)
                many[i] = i % 2 ? '-' : 'x';
        many[256] = '\0';
        bool set[256];
        char out[RANKS_TEXT];
        for (size_t i = 0; i < 256; i++)
                set[i] = many[i] == 'x';
        ranks_text(set, 256, out);
        assert_true(strncmp(out, "ranks 0, 2, 4, ", 15) == 0);
        assert_string_equal(out + strlen(out) - strlen(", …"), ", …");
}

/* ---- pauses ---- */

/* Each pause is twice the one before, up to the longest. After a process that lived for a minute
 * they begin anew. */
TEST_ALONE(pauses_between_starts) {
        static const struct {
                int64_t lived, pause;
        } ends[] = { { 10, 0 },    { 10, 500 }, { 59999, 1000 }, { 0, 2000 },    { 0, 3000 }, { 0, 3000 },
                     { 60000, 0 }, { 10, 500 }, { 10, 1000 },    { 3600000, 0 }, { 70000, 0 } };
        unsigned long quick = 0;

        for (size_t i = 0; i < array_size(ends); i++) {
                int64_t pause = pause_before_start(&quick, ends[i].lived, 3000);

                if (pause != ends[i].pause)
                        fail_msg("end %zu: %d ms instead of %d", i, (int)pause, (int)ends[i].pause);
        }
}

/* ---- notices ---- */

static void assert_notice(const char *line, int level, pid_t pid, const char *expected) {
        char copy[512];

        strcpy(copy, line);
        struct notice notice = notices_parse(copy);
        assert_int_equal(notice.level, level);
        assert_int_equal(notice.pid, pid);
        assert_string_equal(notice.text, expected);
}

TEST_ALONE(lines_of_the_log) {
        assert_notice("2026-11-28 03:12:33.123 gradsyncd warning: a stall", LOG_WARNING, 0, "a stall");
        assert_notice("2026-11-28 03:12:33.123 gradsyncd err: a fault: twice", LOG_ERR, 0, "a fault: twice");
        assert_notice("2026-11-28 03:12:33.123 gradsyncd info: up", LOG_INFO, 0, "up");
        assert_notice("<5>a notice", LOG_NOTICE, 0, "a notice");
        assert_notice("<4>lost rank 1 [job=a generation=1 rank=1]", LOG_WARNING, 0, "lost rank 1");
        assert_notice("<4>lost rank 1 [job=a rank=1 pid=4711 uid=0]", LOG_WARNING, 4711, "lost rank 1");
        assert_notice("<4>of pid=3 [job=a pid=x]", LOG_WARNING, 0, "of pid=3");
        assert_notice("<4>of [this] kind [uid=0]", LOG_WARNING, 0, "of [this] kind");
        assert_notice("<4>of [this]", LOG_WARNING, 0, "of [this]");
        assert_notice("<4>job 'a [job=b' is gone [job=a [job=b rank=1]", LOG_WARNING, 0,
                      "job 'a [job=b' is gone [job=a");
}

TEST_ALONE(other_lines) {
        static const char *const lines[] = {
                "",
                "something else",
                "<8>none",
                "<",
                "<5",
                "2026-11-28 03:12:33.123 gradsyncd",
                "2026-11-28 03:12:33.123 gradsyncd warning",
                "2026-11-28 03:12:33.123 gradsyncd loudly: x",
                "2026-11-28 03:12:33.123 othersyncd warning: x",
                "2026-11-28",
        };

        for (size_t i = 0; i < array_size(lines); i++)
                assert_notice(lines[i], -1, 0, lines[i]);
}
