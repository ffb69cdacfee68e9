/* SPDX-License-Identifier: Apache-2.0 */
/* A table of coordinators on a loop, as the daemon's core keeps one. */
#pragma once

#include "unit.h"

#include "base/clock.h"
#include "base/loop.h"
#include "rendezvous/service/coordinators.h"

struct coordinating {
        struct coordinators *table;
        struct loop_timer *timer;
};

static inline void coordinating_tick(void *data) {
        struct coordinating *c = data;

        coordinators_tick(c->table);
}

static inline void coordinating_due(void *data, uint64_t when) {
        const struct coordinating *c = data;
        uint64_t now = clock_now();

        assert_int_equal(loop_timer_arm(c->timer, when > now ? when - now : 0), 0);
}

static inline uint64_t coordinating_term(void *data) {
        static uint64_t last;

        return ++last;
}

static inline struct hub *coordinating_begin(struct coordinating *c, struct loop *loop,
                                             struct users *accounts) {
        struct coordinators_config config = { .accounts = accounts,
                                              .clock = clock_now,
                                              .term = coordinating_term,
                                              .due = coordinating_due,
                                              .data = c };

        assert_int_equal(loop_timer_new(loop, coordinating_tick, c, &c->timer), 0);
        assert_int_equal(coordinators_new(&config, &c->table), 0);
        return coordinators_hub(c->table);
}

static inline void coordinating_end(struct coordinating *c) {
        coordinators_free(c->table);
        loop_timer_free(c->timer);
}
