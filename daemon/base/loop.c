/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop on libevent. Reading and writing are two libevent events, so that switching one of them
 * costs a single epoll_ctl. After every pass over the ready sources the deferred list is run; what is
 * deferred meanwhile belongs to the next pass, which then does not block.
 */
#include "loop.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

#include "clock.h"

#define TIMER_MAX (UINT64_C(10) * 365 * 24 * 3600 * USEC_PER_SEC)

struct loop {
        struct event_base *base;
        struct loop_deferred *first, **last; /* queued for the end of the pass */
        struct loop_deferred *running;       /* taken off the queue, not called yet */
        uint64_t passes;
        unsigned sources;
        bool exiting;
        int code;
};

struct loop_io {
        struct loop *loop;
        struct event read, write;
        unsigned events;
        loop_io_fn fn;
        void *data;
};

struct loop_timer {
        struct loop *loop;
        struct event event;
        uint64_t due;
        loop_timer_fn fn;
        void *data;
};

struct loop_signal {
        struct loop *loop;
        struct event event;
        loop_signal_fn fn;
        void *data;
};

static int loop_error(void) {
        return errno > 0 ? -errno : -EIO;
}

int loop_new(struct loop **ret) {
        struct loop *loop = calloc(1, sizeof(*loop));
        struct event_config *config = event_config_new();

        if (loop && config) {
                /* Timers count from the moment they are armed, not from the start of the pass. */
                event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_NO_CACHE_TIME);
                loop->base = event_base_new_with_config(config);
        }
        if (config)
                event_config_free(config);
        if (!loop || !loop->base) {
                free(loop);
                return -ENOMEM;
        }
        loop->last = &loop->first;
        *ret = loop;
        return 0;
}

/* Takes the queue as it is now and empties it. The functions may queue themselves or others again, or
 * cancel. */
static void loop_run_deferred(struct loop *loop) {
        loop->running = loop->first;
        loop->first = NULL;
        loop->last = &loop->first;

        while (loop->running) {
                struct loop_deferred *deferred = loop->running;
                loop->running = deferred->next;
                deferred->next = NULL;
                deferred->queued = false;
                deferred->fn(deferred->data);
        }
}

struct loop *loop_free(struct loop *loop) {
        if (!loop)
                return NULL;
        while (loop->first)
                loop_run_deferred(loop);
        assert(loop->sources == 0);
        event_base_free(loop->base);
        free(loop);
        return NULL;
}

int loop_run(struct loop *loop) {
        while (!loop->exiting) {
                bool pending = loop->first != NULL;

                errno = 0;
                int r = event_base_loop(loop->base, EVLOOP_ONCE | (pending ? EVLOOP_NONBLOCK : 0));
                if (r < 0)
                        return loop_error();
                if (r > 0 && !pending)
                        return -EDEADLK; /* no source is left that could ever wake the thread */
                loop->passes++;
                loop_run_deferred(loop);
        }
        loop->exiting = false;
        return loop->code;
}

void loop_exit(struct loop *loop, int code) {
        loop->exiting = true;
        loop->code = code;
}

uint64_t loop_passes(const struct loop *loop) {
        return loop->passes;
}

static void loop_on_read(evutil_socket_t fd, short what, void *data) {
        struct loop_io *io = data;
        io->fn(io->data, fd, LOOP_READ);
}

static void loop_on_write(evutil_socket_t fd, short what, void *data) {
        struct loop_io *io = data;
        io->fn(io->data, fd, LOOP_WRITE);
}

int loop_io_new(struct loop *loop, int fd, unsigned events, loop_io_fn fn, void *data, struct loop_io **ret) {
        struct loop_io *io = calloc(1, sizeof(*io));

        if (!io)
                return -ENOMEM;
        *io = (struct loop_io){ .loop = loop, .fn = fn, .data = data };
        event_assign(&io->read, loop->base, fd, EV_READ | EV_PERSIST, loop_on_read, io);
        event_assign(&io->write, loop->base, fd, EV_WRITE | EV_PERSIST, loop_on_write, io);
        loop->sources++;

        int r = loop_io_set(io, events);
        if (r < 0) {
                loop_io_free(io);
                return r;
        }
        *ret = io;
        return 0;
}

/* Switches one of the two events, if that changes anything. */
static int loop_io_switch(struct loop_io *io, struct event *event, unsigned which, unsigned events) {
        if (((io->events ^ events) & which) == 0)
                return 0;
        errno = 0;
        if ((events & which ? event_add(event, NULL) : event_del(event)) < 0)
                return loop_error();
        io->events ^= which;
        return 0;
}

int loop_io_set(struct loop_io *io, unsigned events) {
        int r = loop_io_switch(io, &io->read, LOOP_READ, events);

        return r < 0 ? r : loop_io_switch(io, &io->write, LOOP_WRITE, events);
}

struct loop_io *loop_io_free(struct loop_io *io) {
        if (!io)
                return NULL;
        event_del(&io->read);
        event_del(&io->write);
        io->loop->sources--;
        free(io);
        return NULL;
}

static int loop_arm(struct loop_timer *timer, uint64_t in_us) {
        struct timeval in = { .tv_sec = (time_t)(in_us / USEC_PER_SEC),
                              .tv_usec = (suseconds_t)(in_us % USEC_PER_SEC) };

        errno = 0;
        return event_add(&timer->event, &in) < 0 ? loop_error() : 0;
}

/* Fires a timer. libevent counts with a coarse clock and may be some milliseconds early; then the timer is
 * armed again, because a loop timer is never early. */
static void loop_on_timer(evutil_socket_t fd, short what, void *data) {
        struct loop_timer *timer = data;
        uint64_t now = clock_now();

        if (now < timer->due) {
                uint64_t rest = timer->due - now;
                if (loop_arm(timer, rest > USEC_PER_MSEC ? rest : USEC_PER_MSEC) == 0)
                        return;
        }
        timer->fn(timer->data);
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *data, struct loop_timer **ret) {
        struct loop_timer *timer = calloc(1, sizeof(*timer));

        if (!timer)
                return -ENOMEM;
        *timer = (struct loop_timer){ .loop = loop, .fn = fn, .data = data };
        event_assign(&timer->event, loop->base, -1, 0, loop_on_timer, timer);
        loop->sources++;
        *ret = timer;
        return 0;
}

int loop_timer_arm(struct loop_timer *timer, uint64_t in_us) {
        if (in_us > TIMER_MAX)
                in_us = TIMER_MAX;
        timer->due = clock_now() + in_us;
        return loop_arm(timer, in_us);
}

void loop_timer_arm_at(struct loop_timer *timer, uint64_t when) {
        uint64_t now = clock_now();

        if (when == UINT64_MAX)
                loop_timer_disarm(timer);
        else
                loop_timer_arm(timer, when > now ? when - now : 0);
}

void loop_timer_disarm(struct loop_timer *timer) {
        event_del(&timer->event);
}

struct loop_timer *loop_timer_free(struct loop_timer *timer) {
        if (!timer)
                return NULL;
        event_del(&timer->event);
        timer->loop->sources--;
        free(timer);
        return NULL;
}

static void loop_on_signal(evutil_socket_t number, short what, void *data) {
        struct loop_signal *source = data;
        source->fn(source->data, (int)number);
}

int loop_signal_new(struct loop *loop, int signal, loop_signal_fn fn, void *data, struct loop_signal **ret) {
        struct loop_signal *source = calloc(1, sizeof(*source));

        if (!source)
                return -ENOMEM;
        *source = (struct loop_signal){ .loop = loop, .fn = fn, .data = data };
        event_assign(&source->event, loop->base, signal, EV_SIGNAL | EV_PERSIST, loop_on_signal, source);
        errno = 0;
        if (event_add(&source->event, NULL) < 0) {
                int r = loop_error();
                free(source);
                return r;
        }
        loop->sources++;
        *ret = source;
        return 0;
}

struct loop_signal *loop_signal_free(struct loop_signal *signal) {
        if (!signal)
                return NULL;
        event_del(&signal->event);
        signal->loop->sources--;
        free(signal);
        return NULL;
}

void loop_defer(struct loop *loop, struct loop_deferred *deferred) {
        if (deferred->queued)
                return;
        deferred->queued = true;
        deferred->next = NULL;
        *loop->last = deferred;
        loop->last = &deferred->next;
}

static bool loop_unlink(struct loop_deferred **head, struct loop_deferred *deferred) {
        for (struct loop_deferred **at = head; *at; at = &(*at)->next)
                if (*at == deferred) {
                        *at = deferred->next;
                        return true;
                }
        return false;
}

void loop_defer_cancel(struct loop *loop, struct loop_deferred *deferred) {
        if (!deferred->queued)
                return;
        if (!loop_unlink(&loop->running, deferred) && loop_unlink(&loop->first, deferred)) {
                loop->last = &loop->first;
                while (*loop->last)
                        loop->last = &(*loop->last)->next;
        }
        deferred->next = NULL;
        deferred->queued = false;
}
