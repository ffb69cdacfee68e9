// SPDX-License-Identifier: Apache-2.0
/* Repetition, and pages on a terminal: see watch.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cli.h"
#include "watch.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
        interrupted = number;
}

int watch(unsigned long interval_ms, unsigned long count, int (*look)(void *data), void *data) {
        struct timespec interval = { .tv_sec = (time_t)(interval_ms / 1000),
                                     .tv_nsec = (long)(interval_ms % 1000) * 1000000 };
        struct sigaction action = { .sa_handler = on_signal };
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

/* Ends the page where the terminal does; its last line stays free for the cursor. */
static void cut_page(char *page) {
        struct winsize window;

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) < 0 || window.ws_row < 2)
                return;
        for (unsigned lines = 0; (page = strchr(page, '\n')); page++)
                if (++lines == window.ws_row - 1u)
                        page[1] = '\0';
}

int watch_page(char *page, bool redraw, bool cut) {
        if (redraw && cut)
                cut_page(page);
        if (redraw && cut) /* longer lines end at the margin: broken there, they would scroll the page away */
                printf("\033[?7l\033[H\033[J%s\033[?7h", page);
        else
                printf("%s%s", redraw ? "\033[H\033[J" : "", page);
        return fflush(stdout) == 0 ? CLI_OK : CLI_ERROR;
}
