// SPDX-License-Identifier: Apache-2.0
/* Repetition, and pages on a terminal: see watch.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/moment.h"
#include "client/cli/view/keys.h"
#include "client/cli/view/watch.h"

static volatile sig_atomic_t watch_ended, watch_disturbed;

static void watch_on_end(int number) {
        watch_ended = number;
}

/* The terminal has another size, or this process goes on after the shell has had the terminal. */
static void watch_on_disturbance(int number) {
        watch_disturbed = number;
}

/* Signals wait while a look is under way. `keys`: the terminal has to be put right before this process
 * ends. */
static void watch_catch_signals(bool keys, sigset_t *before) {
        static const struct {
                int number;
                bool always;
                void (*handler)(int number);
        } signals[] = {
                { SIGINT, true, watch_on_end },           { SIGTERM, true, watch_on_end },
                { SIGQUIT, false, watch_on_end },         { SIGHUP, false, watch_on_end },
                { SIGCONT, false, watch_on_disturbance }, { SIGWINCH, false, watch_on_disturbance },
        };
        sigset_t blocked;

        sigemptyset(&blocked);
        for (size_t i = 0; i < array_size(signals); i++)
                if (signals[i].always || keys)
                        sigaddset(&blocked, signals[i].number);
        sigprocmask(SIG_BLOCK, &blocked, before);
        for (size_t i = 0; i < array_size(signals); i++)
                if (signals[i].always || keys)
                        sigaction(signals[i].number, &(struct sigaction){ .sa_handler = signals[i].handler },
                                  NULL);
}

enum watch_event { WATCH_TIME, WATCH_KEYS, WATCH_SIGNAL, WATCH_FAILED };

static enum watch_event watch_wait(const struct keys *keys, int64_t until_us, const sigset_t *mask) {
        struct pollfd terminal = { .fd = STDIN_FILENO, .events = POLLIN };
        int64_t left = until_us - moment_us();
        struct timespec timeout = { .tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000 };

        if (left < 0)
                timeout = (struct timespec){ 0 };
        int n = ppoll(&terminal, keys->on, &timeout, mask);
        if (n < 0)
                return errno == EINTR ? WATCH_SIGNAL : WATCH_FAILED;
        return n > 0 ? WATCH_KEYS : WATCH_TIME;
}

/* Keys that came together are taken together. False if one of them ends the watch. */
static bool watch_take_keys(const struct watch *watch, struct keys *keys) {
        char key[KEYS_MOST];
        size_t n = keys_read(keys, key);

        for (size_t i = 0; i < n; i++)
                if (!watch->key(watch->data, key[i]))
                        return false;
        return true;
}

/* Waits until the next look is due, and returns false. Returns true if the watch ends, with *ret_code. */
static bool watch_pause(const struct watch *watch, struct keys *keys, const sigset_t *mask, int *ret_code) {
        int64_t until_us = moment_us() + (int64_t)watch->interval_ms * 1000;

        *ret_code = CLI_OK;
        for (;;) {
                enum watch_event event = watch_wait(keys, until_us, mask);
                if (event == WATCH_FAILED)
                        *ret_code = CLI_ERROR;
                if (event == WATCH_FAILED || watch_ended)
                        return true;
                if (event == WATCH_TIME)
                        return false;
                if (event == WATCH_KEYS && !watch_take_keys(watch, keys))
                        return true;
                if (event == WATCH_SIGNAL && !watch_disturbed)
                        continue;
                if (watch_disturbed && watch->key)
                        keys_open(keys);
                watch_disturbed = 0;
                if (watch->show && (*ret_code = watch->show(watch->data)) > CLI_OK)
                        return true;
        }
}

int watch_repeat(const struct watch *watch) {
        struct keys keys = { 0 };
        sigset_t before;
        int code;

        watch_catch_signals(watch->key != NULL, &before);
        if (watch->key)
                keys_open(&keys);
        for (unsigned long turn = 0;;) {
                code = watch->look(watch->data);
                if (code == CLI_OK)
                        turn++;
                if ((code && code != WATCH_NOTHING) || (turn == watch->count && turn > 0))
                        break;
                if (watch_pause(watch, &keys, &before, &code))
                        break;
        }
        keys_close(&keys);
        return code;
}

int watch_page_open(struct watch_page *page) {
        page->to = open_memstream(&page->text, &page->size);
        return page->to ? 0 : -ENOMEM;
}

/* Ends the page where the terminal does; its last line stays free for the cursor. */
static void watch_cut(char *page) {
        struct winsize window;

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) < 0 || window.ws_row < 2)
                return;
        for (unsigned lines = 0; (page = strchr(page, '\n')); page++)
                if (++lines == window.ws_row - 1u)
                        page[1] = '\0';
}

int watch_page_show(struct watch_page *page, bool redraw, bool cut) {
        bool whole = fclose(page->to) == 0;
        _cleanup_(freep) char *text = page->text;

        if (!whole)
                return cli_out_of_memory();
        /* Longer lines end at the margin: broken there, they would scroll the page away. */
        if (redraw && cut) {
                watch_cut(text);
                printf("\033[?7l\033[H\033[J%s\033[?7h", text);
        } else {
                printf("%s%s", redraw ? "\033[H\033[J" : "", text);
        }
        return fflush(stdout) == 0 ? CLI_OK : CLI_ERROR;
}

int watch_show_missing(const struct lookout *lookout, bool redraw) {
        struct watch_page page;

        if (redraw) {
                if (watch_page_open(&page) < 0)
                        return cli_out_of_memory();
                lookout_explain(lookout, page.to);
                int code = watch_page_show(&page, true, true);
                return code ? code : WATCH_NOTHING;
        }
        if (lookout->missed == 1) {
                fputs("gradsyncctl: ", stderr);
                lookout_explain(lookout, stderr);
        }
        return WATCH_NOTHING;
}
