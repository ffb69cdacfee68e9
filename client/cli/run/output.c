// SPDX-License-Identifier: Apache-2.0
/* The members' output: see output.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>

#include "client/cli/base/escape.h"
#include "client/cli/run/bars.h"
#include "client/cli/run/output.h"
#include "client/cli/run/stop.h"
#include "proto/frame.h"

#define CHUNK 4096u /* a pipe that is writable takes so much without blocking */
#define ROW 4096u   /* bytes of a bar, with its colours */
#define USUAL_COLUMNS 80u
#define USUAL_ROWS 24u

/* ---- this program's streams ---- */

static int output_fd(int stream) {
        return stream == RUN_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
}

/* Waits until `fd` takes bytes, and serves signals and deadlines meanwhile; false if it is not worth waiting
 * any more. */
static bool output_wait(struct run *run, int fd) {
        for (;;) {
                struct pollfd fds[2] = { { .fd = fd, .events = POLLOUT },
                                         { .fd = run->signal_fd, .events = POLLIN } };
                int n = poll(fds, 2, run->killed ? 0 : stop_time_left(run));
                if (n < 0 && errno != EINTR)
                        return false;
                if (n > 0 && fds[0].revents)
                        return true;
                if (run->killed)
                        return false;
                if (n > 0 && fds[1].revents)
                        stop_take_signals(run);
                stop_check(run);
        }
}

static void output_write(struct run *run, int stream, const char *bytes, size_t n) {
        int fd = output_fd(stream);

        while (n > 0 && !run->gone[stream]) {
                if (!output_wait(run, fd))
                        return;
                ssize_t written = write(fd, bytes, n < CHUNK ? n : CHUNK);
                if (written >= 0) {
                        bytes += written;
                        n -= (size_t)written;
                } else if (errno == EPIPE || (errno != EAGAIN && errno != EINTR)) {
                        run->gone[stream] = true;
                        run->unheard |= errno == EPIPE;
                        if (errno != EPIPE)
                                cli_complain("cannot write the output: %s", strerror(errno));
                        stop_begin(run, SIGTERM, errno == EPIPE ? 128 + SIGPIPE : CLI_ERROR);
                }
        }
}

/* ---- the bars of a terminal ---- */

static struct winsize output_window(const struct run *run) {
        struct winsize window = { 0 };

        ioctl(output_fd(run->screen), TIOCGWINSZ, &window);
        if (window.ws_col == 0)
                window.ws_col = USUAL_COLUMNS;
        if (window.ws_row == 0)
                window.ws_row = USUAL_ROWS;
        return window;
}

/* The bar of the rank, or NULL. Most programs draw bars on standard error. */
static const struct lines *output_bar(const struct run *run, unsigned rank) {
        for (int k = RUN_STREAMS - 1; k >= 0; k--)
                if (run->terminal[k] && lines_is_bar(&run->member[rank].lines[k]))
                        return &run->member[rank].lines[k];
        return NULL;
}

static int output_head(const struct run *run, unsigned rank, bool colour, char head[32]) {
        static const char *const colours[] = { "\033[36m", "\033[35m", "\033[33m",
                                               "\033[32m", "\033[34m", "\033[31m" };

        return snprintf(head, 32, "%s[%u]%s ", colour ? colours[rank % array_size(colours)] : "", rank,
                        colour ? "\033[0m" : "");
}

/* One row; 0 if there is nothing to show. The last column stays free: a terminal would begin another row. */
static size_t output_row(const struct run *run, unsigned rank, unsigned columns, char out[ROW]) {
        const struct lines *bar = output_bar(run, rank);
        char head[32];
        int plain = output_head(run, rank, false, head);
        int n = output_head(run, rank, run->color[run->screen], out);
        static const char end[] = "\033[K\n";

        if (!bar || (unsigned)plain + 1 >= columns)
                return 0;
        size_t length = bars_row(bar->pending, bar->used, columns - (unsigned)plain - 1, out + n,
                                 ROW - (size_t)n - sizeof end);
        if (length == 0)
                return 0;
        memcpy(out + n + length, end, sizeof end - 1);
        return (size_t)n + length + sizeof end - 1;
}

void output_draw(struct run *run) {
        static char out[LIMIT_LOCAL * ROW / 4];
        unsigned rows = 0, before = run->drawn;
        struct winsize window;
        size_t used = 0;

        if (run->screen < 0 || !run->redraw || run->gone[run->screen])
                return;
        window = output_window(run);
        run->redraw = false;
        if (before > 0)
                used = (size_t)sprintf(out, "\r\033[%uA", before);
        for (unsigned i = 0; i < run->n_members && rows + 1 < window.ws_row && used + ROW + 8 < sizeof out;
             i++) {
                size_t n = output_row(run, i, window.ws_col, out + used);
                used += n;
                rows += n > 0;
        }
        if (rows < before)
                used += (size_t)sprintf(out + used, "\033[J");
        run->drawn = rows;
        if (rows > 0 || before > 0)
                output_write(run, run->screen, out, used);
}

void output_clear(void *data) {
        struct run *run = data;
        char out[32];
        unsigned drawn = run->drawn;

        if (drawn == 0)
                return;
        run->drawn = 0;
        run->redraw = true;
        output_write(run, run->screen, out, (size_t)snprintf(out, sizeof out, "\r\033[%uA\033[J", drawn));
}

/* ---- files ---- */

static int output_open_file(const struct run *run, unsigned rank) {
        char path[PATH_MAX];

        snprintf(path, sizeof path, "%s/rank-%u.log", run->options->log_dir, rank);
        run->member[rank].log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (run->member[rank].log >= 0)
                return CLI_OK;
        cli_complain("cannot write %s: %s", path, strerror(errno));
        return CLI_ERROR;
}

/* The file gets only the last state of a progress bar. */
static void output_log(struct run *run, unsigned rank, const char *line, size_t length, enum lines_end end) {
        int *fd = &run->member[rank].log;
        struct iovec parts[] = { { (void *)(uintptr_t)line, length },
                                 { (void *)(uintptr_t) "\n", end != LINES_PIECE } };

        if (*fd < 0 || end == LINES_RETURN)
                return;
        if (writev(*fd, parts, 2) == (ssize_t)(parts[0].iov_len + parts[1].iov_len))
                return;
        cli_complain("cannot write to rank-%u.log in %s any more: %s", rank, run->options->log_dir,
                     strerror(errno));
        *fd = fd_close(*fd);
}

int output_open(struct run *run) {
        const struct run_options *options = run->options;
        const char *term = environ_get("TERM");
        int code = CLI_OK;

        run->screen = -1;
        for (int k = 0; k < RUN_STREAMS && !options->bare && term && strcmp(term, "dumb") != 0; k++)
                if (isatty(output_fd(k))) {
                        run->terminal[k] = true;
                        run->screen = k;
                }
        for (unsigned i = 0; i < options->members; i++)
                run->member[i].log = -1;
        if (options->log_dir && mkdir(options->log_dir, 0777) < 0 && errno != EEXIST) {
                cli_complain("cannot make %s: %s", options->log_dir, strerror(errno));
                return CLI_ERROR;
        }
        for (unsigned i = 0; options->log_dir && i < options->members && !code; i++)
                code = output_open_file(run, i);
        return code;
}

void output_close(struct run *run) {
        for (unsigned i = 0; i < run->options->members; i++)
                run->member[i].log = fd_close(run->member[i].log);
}

/* ---- lines ---- */

struct giving {
        struct run *run;
        unsigned rank;
        int stream;
};

static void output_line(void *data, const char *line, size_t length, enum lines_end end) {
        static char out[LINES_MAX + 64];
        const struct giving *giving = data;
        struct run *run = giving->run;
        int head = output_head(run, giving->rank, run->color[giving->stream], out);

        output_log(run, giving->rank, line, length, end);
        if (run->terminal[giving->stream]) {
                run->redraw = true;
                if (end == LINES_RETURN)
                        return;
                output_clear(run);
        }
        memcpy(out + head, line, length);
        out[(size_t)head + length] = '\n';
        output_write(run, giving->stream, out, (size_t)head + length + 1);
}

void output_notice(struct run *run, const char *text) {
        _cleanup_(freep) char *shown = escape_text(text);
        char out[CHUNK];

        if (!shown)
                return;
        if (run->terminal[RUN_STDERR])
                output_clear(run);
        int n = snprintf(out, sizeof out - 1, "[gradsyncd] %s", shown);
        size_t length = (size_t)n < sizeof out - 1 ? (size_t)n : sizeof out - 2;
        out[length] = '\n';
        output_write(run, RUN_STDERR, out, length + 1);
}

/* Relays the bytes that can be read. Returns their number; 0: there are none, or the stream has ended. */
static size_t output_take(struct run *run, unsigned rank, int stream) {
        struct run_member *member = &run->member[rank];
        struct giving giving = { run, rank, stream };
        char bytes[16384];
        ssize_t n = read(member->pipe[stream], bytes, sizeof bytes);

        if (n > 0) {
                lines_feed(&member->lines[stream], bytes, (size_t)n, output_line, &giving);
                run->redraw |= run->terminal[stream] && lines_is_bar(&member->lines[stream]);
        }
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return n > 0 ? (size_t)n : 0;
        lines_flush(&member->lines[stream], output_line, &giving);
        /* A process that was forked and has not executed a program yet may have the pipe open, too. */
        epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, member->pipe[stream], NULL);
        member->pipe[stream] = fd_close(member->pipe[stream]);
        return 0;
}

void output_chunk(struct run *run, unsigned rank, int stream) {
        output_take(run, rank, stream);
}

void output_flush(struct run *run, unsigned rank) {
        for (int k = 0; k < RUN_STREAMS; k++) {
                struct giving giving = { run, rank, k };
                lines_flush(&run->member[rank].lines[k], output_line, &giving);
        }
}

/* Relays the bytes that the pipe holds now. A process that cannot be killed may hold the pipe open and write
 * for ever: later bytes are not the member's. Signals are handled meanwhile. */
static void output_rest_of(struct run *run, unsigned rank, int stream) {
        int fd = run->member[rank].pipe[stream], held;

        if (fd < 0 || ioctl(fd, FIONREAD, &held) < 0)
                return;
        for (size_t n = 1, done = 0; n > 0 && done < (size_t)held; done += n) {
                n = output_take(run, rank, stream);
                stop_take_signals(run);
        }
}

void output_rest(struct run *run, unsigned rank) {
        for (int k = 0; k < RUN_STREAMS; k++)
                output_rest_of(run, rank, k);
        output_flush(run, rank);
}
