// SPDX-License-Identifier: Apache-2.0
/* Repetition, and pages on a terminal: see watch.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/cli/base/cli.h"
#include "client/cli/view/watch.h"

static volatile sig_atomic_t interrupted;

static void watch_on_signal(int number) {
        interrupted = number;
}

int watch_repeat(unsigned long interval_ms, unsigned long count, int (*look)(void *data), void *data) {
        struct timespec interval = { .tv_sec = (time_t)(interval_ms / 1000),
                                     .tv_nsec = (long)(interval_ms % 1000) * 1000000 };
        struct sigaction action = { .sa_handler = watch_on_signal };
        sigset_t blocked, before;
        int code;

        sigemptyset(&blocked);
        sigaddset(&blocked, SIGINT);
        sigaddset(&blocked, SIGTERM);
        sigprocmask(SIG_BLOCK, &blocked, &before);
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        for (unsigned long turn = 1;; turn++) {
                code = look(data);
                if (code || turn == count)
                        return code;
                if (ppoll(NULL, 0, &interval, &before) < 0 && errno != EINTR)
                        return CLI_ERROR;
                if (interrupted)
                        return CLI_OK;
        }
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
