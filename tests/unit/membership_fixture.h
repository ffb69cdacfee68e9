/* SPDX-License-Identifier: Apache-2.0 */
/* One membership, and who asks for a place in it. The test says before how long the last call takes (CALL).
 */
#pragma once

#include "unit.h"

#include "gradsync.pb-c.h"
#include "rendezvous/membership.h"

#define GRACE 1000

static struct seat room[LIMIT_LOCAL + 1];
static struct membership m = { .seat = room, .most = LIMIT_LOCAL };
static struct refusal refusal;
static uint64_t gone;

static inline struct membership_request request(uint64_t member, uint32_t min, uint32_t max) {
        return (struct membership_request){ .member = member,
                                            .pid = (int32_t)member + 100,
                                            .min_world = min,
                                            .max_world = max,
                                            .grace = GRACE,
                                            .last_call = CALL,
                                            .adapts = true };
}

static inline struct membership_request ranked(uint64_t member, uint32_t world, uint32_t rank) {
        struct membership_request r = request(member, world, world);

        r.has_rank = true;
        r.rank = rank;
        return r;
}

/* It waits for a place, after the others. */
static inline bool membership_waits(const struct membership *in, uint64_t member) {
        const struct seat *seat = membership_find(in, member);

        return seat != NULL && seat->state == SEAT_WAITING;
}

static inline int join(struct membership_request r, uint64_t now) {
        return membership_join(&m, &r, now, &refusal);
}

static inline enum membership_event tick(uint64_t now) {
        return membership_tick(&m, now, &gone, &refusal);
}

/* Members 1 … world, with the ranks 0 … world-1; asked for or not. */
static inline void form(uint32_t min, uint32_t world, bool ranks) {
        membership_init(&m, "j", 0);
        for (uint32_t i = 0; i < world; i++)
                assert_int_equal(join(ranks ? ranked(i + 1, world, i) : request(i + 1, min, world), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
}
