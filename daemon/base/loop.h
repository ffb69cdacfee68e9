/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: the only module that knows libevent. One thread runs it; nothing here may be called from
 * another one. Sources are level triggered. Objects are never freed inside their own callback: they are
 * parked with loop_defer() and reaped when the current pass over the ready sources has ended.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_io;
struct loop_timer;
struct loop_signal;

#define LOOP_READ 1u
#define LOOP_WRITE 2u

typedef void (*loop_io_fn)(void *data, int fd, unsigned events);
typedef void (*loop_timer_fn)(void *data);
typedef void (*loop_signal_fn)(void *data, int signal);

/* 0 or a negative errno. */
int loop_new(struct loop **ret);
/* Runs work that is still deferred. After that all sources must be gone (asserted). NULL is fine. */
struct loop *loop_free(struct loop *loop);

/* Runs until loop_exit(). Returns its code, or a negative errno: -EDEADLK if no source is left that could
 * ever wake it. */
int loop_run(struct loop *loop);
void loop_exit(struct loop *loop, int code);
/* Returns the number of passes over the ready sources since the start. */
uint64_t loop_passes(const struct loop *loop);

/* The fd stays the caller's and must outlive the source. */
int loop_io_new(struct loop *loop, int fd, unsigned events, loop_io_fn fn, void *data, struct loop_io **ret);
/* `events` 0 keeps the source and waits for nothing. No system call if nothing changes. */
int loop_io_set(struct loop_io *io, unsigned events);
struct loop_io *loop_io_free(struct loop_io *io); /* returns NULL; allowed inside a callback */

/* A timer fires once, never early. It is disarmed at first. */
int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret);
int loop_timer_arm(struct loop_timer *timer, uint64_t in_us); /* replaces an earlier time */
/* The same for a clock_now() at which it fires; UINT64_MAX: never. */
void loop_timer_arm_at(struct loop_timer *timer, uint64_t when);
void loop_timer_disarm(struct loop_timer *timer);
struct loop_timer *loop_timer_free(struct loop_timer *timer);

int loop_signal_new(struct loop *loop, int signal, loop_signal_fn fn, void *data, struct loop_signal **ret);
struct loop_signal *loop_signal_free(struct loop_signal *signal);

/* Work for the end of this pass, or of the next one if it is queued outside of a pass: to flush what was
 * gathered, to free what died. Embedded in its owner; zero-initialised except for fn and data. */
struct loop_deferred {
        void (*fn)(void *data);
        void *data;
        struct loop_deferred *next;
        bool queued;
};
/* Queues the work once, however often it is called. */
void loop_defer(struct loop *loop, struct loop_deferred *deferred);
void loop_defer_cancel(struct loop *loop, struct loop_deferred *deferred);
