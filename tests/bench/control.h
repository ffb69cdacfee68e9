/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of all processes that the benchmark measures: the line by which the driver commands them,
 * the gate at which the members of one contender meet before a batch, and the clock.
 *
 * The line is a Unix stream socket on which the driver listens. A contender that is not being measured sleeps
 * in control_read(), so that it takes no processor from the one that is.
 *
 * A batch is a number of allreduces one after the other; the operation itself keeps the members together.
 * Each member reports the instant at which it began and those at which it had each result. An allreduce is
 * over when the last member has its result; its time counts from the end of the one before.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct control {
        int fd;
        size_t have;
        char buffer[4096];
};

struct gate {
        uint32_t arrived;
        uint32_t turn;
};

int64_t bench_now_ns(void);
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Connects to the driver and says which member of which contender this is. */
void control_open(struct control *c, const char *path, const char *contender, unsigned int member);
/* The next command without its newline; false when the driver has gone. */
bool control_read(struct control *c, char *line, size_t size);
void control_reply(struct control *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "stamps 123 456 …", nanoseconds of the system-wide monotonic clock. */
void control_reply_stamps(struct control *c, const int64_t *ns, unsigned int n);

/* A process of a contender, which the driver commands. It answers each command. */
struct bench_peer {
        void *data;               /* for the functions */
        struct gate *gate;        /* NULL: it is the only process */
        unsigned int members;     /* that meet there */
        void (*step)(void *data); /* one of the operations of "run N" */
        void (*release)(void *data);
        /* Any other command; false: unknown. */
        bool (*obey)(void *data, struct control *c, const char *line);
};

/* Obeys the driver until it says "quit", or has gone. */
void bench_serve(const struct bench_peer *peer, struct control *c);

struct gate *gate_open(const char *path);
/* Returns when all members have come. */
void gate_meet(struct gate *g, unsigned int members);

/* Page-aligned memory, in huge pages if asked for and possible, every page touched. */
float *bench_buffer(size_t bytes, float value, bool huge);
void bench_buffer_free(float *buffer, size_t bytes);
/* Whether the first, middle and last of `count` elements equal `expected`. */
bool bench_check(const float *buffer, size_t count, float expected);

#ifdef __cplusplus
}
#endif
