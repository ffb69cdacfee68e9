/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the place of base/loop.c and of the kernel in targets that read a socket, so that nothing takes time.
 * There is one connection. It exists as soon as the target connects, and its other end is accepted, read and
 * written at once. Timers run out when the target says so. The log is not written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_answer {
        size_t n;
        char text[1u << 20]; /* with a 0 at its end */
};

/* A socket that listens, as its owner sees it. */
int fuzz_listener(void);
/* Connects to the listener. `answer` gets the bytes that are sent back. */
void fuzz_connect(int listener, struct fuzz_answer *answer);
void fuzz_send(const uint8_t *data, size_t size);
void fuzz_hang_up(void);
/* Whether the other end has not closed the connection. */
bool fuzz_is_open(void);
/* Lets all armed timers run out. */
void fuzz_time_out(void);
/* The number of sources of the loop, listeners included. */
unsigned fuzz_sources(void);
