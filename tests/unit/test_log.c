/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on a stderr that the test reads: prefix, context, escapes, priorities. */
#include "captured_stderr.h"
#include "tests.h"

#include <time.h>

#include "base/log.h"

#define TEST(name) TEST_WITH(name, capture, release)

TEST(lines_are_plain_by_default) {
        log_open(LOG_INFO);
        assert_string_equal(log_target(), "stderr");
        log_info("serves %s", "cpu");
        assert_string_equal(written_timeless(), "gradsyncd info: serves cpu\n");
}

/* That of the host, now. */
TEST(a_line_says_when) {
        struct timespec now = { 0 };
        struct tm tm = { .tm_isdst = -1 };
        time_t before = time(NULL);

        setenv("TZ", "ABC-05:30", 1);
        log_open(LOG_INFO);
        log_info("now");
        const char *rest = strptime(written(), "%Y-%m-%d %H:%M:%S", &tm);
        clock_gettime(CLOCK_REALTIME, &now);
        assert_non_null(rest);
        assert_int_equal(*rest, '.');
        assert_in_range(timegm(&tm) - 19800, before, now.tv_sec);
        unsetenv("TZ");
        tzset();
}

TEST(each_level_has_its_word) {
        static const char *const words[] = { "emerg",   "alert",  "crit", "err",
                                             "warning", "notice", "info", "debug" };

        log_open(LOG_DEBUG);
        for (int level = LOG_EMERG; level <= LOG_DEBUG; level++) {
                char expected[64];
                snprintf(expected, sizeof(expected), "gradsyncd %s: said\n", words[level]);
                log_write(level, NULL, "said");
                assert_string_equal(written_timeless(), expected);
        }
}

/* The journal takes the level from the prefix, and has the time itself. A service whose stderr is a file or a
 * terminal has no journal to add them. */
TEST(only_the_journal_gets_prefixes) {
        struct stat st;
        char stream[64];

        setenv("INVOCATION_ID", "0123", 1);
        log_open(LOG_INFO);
        log_error("bad");
        assert_string_equal(written_timeless(), "gradsyncd err: bad\n");
        unsetenv("INVOCATION_ID");
        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
        log_open(LOG_INFO);
        log_error("bad");
        assert_string_equal(written(), HAVE_SYSTEMD ? "" : "<3>bad\n"); /* else it goes there directly */
        unsetenv("JOURNAL_STREAM");
}

TEST(priorities_filter) {
        log_open(LOG_WARNING);
        log_info("not this");
        log_warning("this");
        assert_string_equal(written_timeless(), "gradsyncd warning: this\n");
        log_set_priority(LOG_DEBUG);
        log_debug("and this");
        assert_string_equal(written_timeless(), "gradsyncd debug: and this\n");
}

TEST(context_stands_behind) {
        struct log_context context = LOG_CONTEXT_NONE;

        log_open(LOG_INFO);
        log_write(LOG_INFO, &context, "nothing");
        assert_string_equal(written_timeless(), "gradsyncd info: nothing\n");
        context.rank = 0;
        context.pid = 4711;
        log_write(LOG_INFO, &context, "lost");
        assert_string_equal(written_timeless(), "gradsyncd info: lost [rank=0 pid=4711]\n");
        context.job = "mnist";
        context.step = 12;
        context.bucket = 3;
        context.generation = 2;
        context.uid = 1000;
        context.parameter = "fc1.weight";
        log_write(LOG_INFO, &context, "lost");
        assert_string_equal(
                written_timeless(),
                "gradsyncd info: lost [job=mnist generation=2 rank=0 pid=4711 uid=1000 step=12 bucket=3 "
                "parameter=fc1.weight]\n");
        context = (struct log_context)LOG_CONTEXT_NONE;
        context.parameter = "w";
        log_write(LOG_INFO, &context, "odd");
        assert_string_equal(written_timeless(), "gradsyncd info: odd [parameter=w]\n");
}

/* Text from a client neither starts a line of its own nor controls the terminal. */
TEST(control_characters_never_get_through) {
        struct log_context context = LOG_CONTEXT_NONE;

        log_open(LOG_INFO);
        context.job = "a\nb";
        log_write(LOG_INFO, &context, "says %s",
                  "x\n<0>fake\r\x1b[2J\x7f\xc2\x9bz \xc3\xa9"
                  "\xe2\x80\xae\xe2\x80\xa8\xff");
        assert_string_equal(written_timeless(),
                            "gradsyncd info: says x\\x0a<0>fake\\x0d\\x1b[2J\\x7f\\xc2\\x9bz \xc3\xa9"
                            "\\xe2\\x80\\xae\\xe2\\x80\\xa8\\xff [job=a\\x0ab]\n");
}

TEST(long_messages_are_one_line) {
        char message[8192];

        memset(message, '\n', sizeof(message) - 1);
        message[sizeof(message) - 1] = '\0';
        log_open(LOG_INFO);
        log_info("%s", message);
        const char *line = written();
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        assert_true(strlen(line) > 1000);
}

/* The pipe blocks, and no process reads it: each call returns, and the first line that fits again says how
 * many are missing. */
TEST(a_reader_that_does_not_read_stops_nobody) {
        unsigned lines = 0, lost = 0;

        fcntl(STDERR_FILENO, F_SETFL, 0);
        log_open(LOG_INFO);
        for (unsigned i = 0; i < 5000; i++)
                log_info("line %u of many, long enough to fill a pipe some time", i);
        for (const char *text = written(); *text; text = written())
                for (; (text = strchr(text, '\n')); text++)
                        lines++;
        assert_in_range(lines, 1, 4999);
        log_info("again");
        const char *last = written_timeless();
        assert_int_equal(sscanf(last, "gradsyncd warning: %u lines before this one were lost", &lost), 1);
        assert_int_equal(lines + lost, 5000);
        assert_non_null(strstr(last, "\ngradsyncd info: again\n"));
}

TEST(errno_is_kept) {
        int unwritable = open("/dev/null", O_RDONLY | O_CLOEXEC);

        log_open(LOG_INFO);
        errno = ENOENT;
        log_info("failed: %m");
        assert_string_equal(written_timeless(), "gradsyncd info: failed: No such file or directory\n");
        dup2(unwritable, STDERR_FILENO);
        errno = ENOENT;
        log_info("the line is lost, but its caller does not notice");
        assert_int_equal(errno, ENOENT);
        close(unwritable);
}

/* The variable is inherited by processes whose stderr is something else. */
TEST(a_foreign_journal_stream_is_ignored) {
        struct stat st;
        char stream[64];

        setenv("JOURNAL_STREAM", "1:2", 1);
        log_open(LOG_INFO);
        assert_string_equal(log_target(), "stderr");
        setenv("JOURNAL_STREAM", "nonsense", 1);
        log_open(LOG_INFO);
        assert_string_equal(log_target(), "stderr");

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
        log_open(LOG_INFO);
        assert_string_equal(log_target(), HAVE_SYSTEMD ? "journal" : "stderr");
        unsetenv("JOURNAL_STREAM");
}
