// SPDX-License-Identifier: Apache-2.0
/* Keys of a terminal: see keys.h. */
#include <errno.h>
#include <unistd.h>

#include "client/cli/view/keys.h"

#define ESCAPE '\033'

void keys_open(struct keys *keys) {
        struct termios now;

        if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp() ||
            tcgetattr(STDIN_FILENO, &now) < 0)
                return;
        if (!keys->on)
                keys->before = now;
        now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        now.c_cc[VMIN] = 0;
        now.c_cc[VTIME] = 0;
        keys->on = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

void keys_close(struct keys *keys) {
        if (keys->on)
                tcsetattr(STDIN_FILENO, TCSANOW, &keys->before);
        keys->on = false;
}

size_t keys_read(struct keys *keys, char out[KEYS_MOST]) {
        ssize_t n = read(STDIN_FILENO, out, KEYS_MOST);

        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
                keys->on = false;
        /* An arrow, or another key with a sequence of its own, comes whole. */
        return n <= 0 || out[0] == ESCAPE ? 0 : (size_t)n;
}
