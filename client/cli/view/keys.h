/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single keys from the terminal at stdin, while a command shows pages there. Only the process group in the
 * foreground reads keys, and the terminal is as it was when the command ends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct keys {
        bool on; /* keys can come at stdin */
        struct termios before;
};

#define KEYS_MOST 16u

/* Does nothing where stdin or stdout is no terminal, or the process is in the background; may be tried again.
 */
void keys_open(struct keys *keys);
void keys_close(struct keys *keys);
/* Reads the keys that have come, without arrows and other keys that send sequences. Returns their number; 0
 * too if the terminal is gone, which turns keys off. */
size_t keys_read(struct keys *keys, char out[KEYS_MOST]);
