/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands for base/loop.c and the kernel in targets that hear a socket, so that nothing takes time: one
 * connection, which is there as soon as the target connects, and whose other end is accepted, read and
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

/* A socket that listens, as far as its owner can see. */
int fuzz_listener(void);
/* Connects to it. What is sent back goes to `answer`. */
void fuzz_connect(int listener, struct fuzz_answer *answer);
void fuzz_send(const uint8_t *data, size_t size);
void fuzz_hang_up(void);
/* Whether the other end has not closed it. */
bool fuzz_is_open(void);
/* All timers that are armed have run out. */
void fuzz_time_out(void);
/* Sources of the loop, listeners too. */
unsigned fuzz_sources(void);
