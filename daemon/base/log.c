/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured log lines. Texts may contain what clients sent, so control characters are escaped: one event
 * stays one line, and a terminal shows it as it is. Usable from any thread: a line is one write. If the
 * reader of stderr does not read, lines are lost and counted, but the event thread never waits.
 */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "proto/names.h"

#if HAVE_SYSTEMD
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>
#endif

#define TEXT_MAX 2048  /* bytes of a message; a longer one is cut */
#define FIELD_MAX 1100 /* bytes of one field of the context: a name of 255 bytes, each escaped */
#define FIELDS_MAX 13

/* Names of the levels, as in the key log_level. */
static const char *const levels[] = { "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug" };

static int max_priority = LOG_INFO;
static bool to_journal;
static bool with_prefix; /* lines begin with "<6>", which the journal reads from stderr */
static atomic_uint lost; /* lines that stderr did not take */

/* Whether stderr is the journal's socket. JOURNAL_STREAM has the device and inode of the socket that the
 * service manager connected. */
static bool log_stderr_is_journal(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;

        return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
               fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_open(int priority) {
        max_priority = priority;
        atomic_store(&lost, 0);
        with_prefix = log_stderr_is_journal();
        to_journal = HAVE_SYSTEMD && with_prefix;
        tzset(); /* localtime_r() does not have to do this */
}

void log_set_priority(int priority) {
        max_priority = priority;
}

const char *log_target(void) {
        return to_journal ? "journal" : "stderr";
}

/* Appends `text` at `used`, with \\xNN for the bytes of characters that could deceive a reader, and for bytes
 * that are no UTF-8. Cuts at the end of the buffer. Returns the bytes that are then used. */
static size_t log_append_escaped(char *buffer, size_t size, size_t used, const char *text) {
        size_t left = strlen(text);

        while (left > 0 && used + 17 < size) { /* room for four escapes and the end */
                uint32_t point;
                size_t length = utf8_decode(text, left, &point);
                bool shown = length > 0 && !text_is_deceptive(point);

                length = length > 0 ? length : 1;
                left -= length;
                for (; length > 0; length--, text++)
                        if (shown)
                                buffer[used++] = *text;
                        else
                                used += (size_t)snprintf(buffer + used, size - used, "\\x%02x",
                                                         (unsigned)(unsigned char)*text);
        }
        buffer[used] = '\0';
        return used;
}

/* Takes one part of a context: its name in the journal, its word on stderr (NULL: not shown there), its
 * text. */
typedef void (*log_part_fn)(void *data, const char *field, const char *word, const char *text);

static void log_each_part(const struct log_context *context, log_part_fn take, void *data) {
        const struct {
                const char *field, *word, *text;
                int64_t number;
        } parts[] = {
                { "GRADSYNC_JOB", "job", context->job, -1 },
                { "GRADSYNC_GENERATION", "generation", NULL, context->generation },
                { "GRADSYNC_RANK", "rank", NULL, context->rank },
                { "GRADSYNC_CLIENT_PID", "pid", NULL, context->pid },
                { "GRADSYNC_CLIENT_UID", "uid", NULL, context->uid },
                { "GRADSYNC_STEP", "step", NULL, context->step },
                { "GRADSYNC_BUCKET", "bucket", NULL, context->bucket },
                { "GRADSYNC_PARAMETER", "parameter", context->parameter, -1 },
                { "MESSAGE_ID", NULL, context->message_id, -1 },
        };

        for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                char number[32];
                snprintf(number, sizeof(number), "%" PRId64, parts[i].number);
                if (parts[i].text || parts[i].number >= 0)
                        take(data, parts[i].field, parts[i].word, parts[i].text ? parts[i].text : number);
        }
}

struct log_line {
        char text[PIPE_BUF];
        size_t used;
        bool in_context;
};

static void log_append(struct log_line *line, const char *text) {
        line->used = log_append_escaped(line->text, sizeof(line->text) - 1, line->used, text);
}

/* Appends one part to " [job=… rank=…]", and opens the bracket for the first one. */
static void log_append_part(void *data, const char *field, const char *word, const char *text) {
        struct log_line *line = data;

        if (!word)
                return;
        log_append(line, line->in_context ? " " : " [");
        log_append(line, word);
        log_append(line, "=");
        log_append(line, text);
        line->in_context = true;
}

/* A pipe that is ready takes PIPE_BUF bytes at once, whole and without waiting; no line is longer. */
static bool log_put(const char *line, size_t length) {
        if (poll(&(struct pollfd){ .fd = STDERR_FILENO, .events = POLLOUT }, 1, 0) != 1)
                return false;
        return write(STDERR_FILENO, line, length) == (ssize_t)length;
}

/* Begins a line. The journal adds time and name itself. Elsewhere the line has them, in local time. */
static size_t log_start_line(char *line, size_t size, int priority) {
        struct timespec now;
        char time[sizeof("2026-11-28 03:12:33")] = "";
        struct tm parts;

        if (with_prefix)
                return (size_t)snprintf(line, size, "<%d>", priority);
        clock_gettime(CLOCK_REALTIME, &now);
        if (localtime_r(&now.tv_sec, &parts) != NULL)
                strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &parts);
        return (size_t)snprintf(line, size, "%s.%03u gradsyncd %s: ", time,
                                (unsigned)(now.tv_nsec / 1000000) % 1000, levels[priority & LOG_PRIMASK]);
}

static void log_confess_losses(void) {
        char line[128];
        unsigned count = atomic_exchange(&lost, 0);

        if (count == 0)
                return;
        size_t used = log_start_line(line, sizeof(line), LOG_WARNING);
        used += (size_t)snprintf(line + used, sizeof(line) - used,
                                 "%u lines before this one were lost: nobody read them\n", count);
        if (!log_put(line, used))
                atomic_fetch_add(&lost, count);
}

static void log_write_stderr(int priority, const struct log_context *context, const char *message) {
        struct log_line line = { .used = 0 };

        line.used = log_start_line(line.text, sizeof(line.text), priority);
        log_append(&line, message);
        if (context)
                log_each_part(context, log_append_part, &line);
        if (line.in_context)
                log_append(&line, "]");
        line.text[line.used++] = '\n';
        log_confess_losses();
        if (!log_put(line.text, line.used))
                atomic_fetch_add(&lost, 1);
}

#if HAVE_SYSTEMD
struct fields {
        char text[FIELDS_MAX][FIELD_MAX];
        struct iovec iov[FIELDS_MAX + 1];
        int count;
};

static void log_add_field(void *data, const char *name, const char *word, const char *value) {
        struct fields *fields = data;
        char *text = fields->text[fields->count];
        size_t used = log_append_escaped(text, FIELD_MAX, 0, name);

        used = log_append_escaped(text, FIELD_MAX, used, "=");
        used = log_append_escaped(text, FIELD_MAX, used, value);
        fields->iov[fields->count++] = (struct iovec){ text, used };
}

static bool log_write_journal(int priority, const struct log_context *context, const char *message) {
        struct fields fields = { .count = 0 };
        char text[TEXT_MAX + 16];
        size_t used = log_append_escaped(text, sizeof(text), 0, "MESSAGE=");

        used = log_append_escaped(text, sizeof(text), used, message);
        log_add_field(&fields, "SYSLOG_IDENTIFIER", NULL, "gradsyncd");
        log_add_field(&fields, "PRIORITY", NULL, (char[]){ (char)('0' + priority), '\0' });
        if (context)
                log_each_part(context, log_add_field, &fields);
        fields.iov[fields.count] = (struct iovec){ text, used };
        return sd_journal_sendv(fields.iov, fields.count + 1) == 0;
}
#else
static bool log_write_journal(int priority, const struct log_context *context, const char *message) {
        return false;
}
#endif

void log_write(int priority, const struct log_context *context, const char *format, ...) {
        char message[TEXT_MAX];
        va_list arguments;
        int saved = errno;

        if (priority > max_priority)
                return;
        va_start(arguments, format);
        int length = vsnprintf(message, sizeof(message), format, arguments);
        va_end(arguments);
        if (length >= 0 && (!to_journal || !log_write_journal(priority, context, message)))
                log_write_stderr(priority, context, message);
        errno = saved;
}
