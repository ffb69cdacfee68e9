/* SPDX-License-Identifier: Apache-2.0 */
/* The members that are known, in one array: places, those that wait, those without a place. */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/membership_private.h"

#define AFTER(state) (1u << (state))

void seat_set_state(struct seat *seat, enum seat_state state) {
        static const unsigned before[N_SEAT_STATES] = {
                [SEAT_ASKS] = AFTER(SEAT_ASKS) | AFTER(SEAT_CLAIMS) | AFTER(SEAT_WAITING) | AFTER(SEAT_HELD) |
                              AFTER(SEAT_TAKEN),
                [SEAT_CLAIMS] = AFTER(SEAT_ASKS) | AFTER(SEAT_CLAIMS),
                [SEAT_REFUSED] =
                        AFTER(SEAT_ASKS) | AFTER(SEAT_WAITING) | AFTER(SEAT_HELD) | AFTER(SEAT_TAKEN),
                [SEAT_FENCED] = AFTER(SEAT_WAITING) | AFTER(SEAT_HELD) | AFTER(SEAT_TAKEN),
                [SEAT_WAITING] = AFTER(SEAT_ASKS),
                [SEAT_HELD] = AFTER(SEAT_ASKS) | AFTER(SEAT_CLAIMS) | AFTER(SEAT_WAITING) | AFTER(SEAT_HELD) |
                              AFTER(SEAT_TAKEN),
                [SEAT_TAKEN] = AFTER(SEAT_LOST),
                [SEAT_LOST] = AFTER(SEAT_HELD) | AFTER(SEAT_TAKEN),
                [SEAT_GONE] = AFTER(SEAT_HELD) | AFTER(SEAT_TAKEN),
        };

        assert(before[state] & AFTER(seat->state));
        seat->state = state;
}

uint32_t membership_all(const struct membership *m) {
        return m->n + m->n_waiting + m->n_others;
}

void membership_move(struct membership *m, struct seat *seat, uint32_t most) {
        uint32_t all = membership_all(m);

        assert(m->n + m->n_waiting <= most && all <= most + 1 && most <= LIMIT_WORLD);
        if (all > 0)
                memcpy(seat, m->seat, all * sizeof(*seat));
        m->seat = seat;
        m->most = most;
}

/* From that seat on, then the ones before it. */
static struct seat *find_from(const struct membership *m, uint64_t member, uint32_t first) {
        uint32_t all = membership_all(m);

        for (uint32_t i = 0; i < all; i++) {
                struct seat *seat = &m->seat[first + i < all ? first + i : first + i - all];

                if (seat->request.member == member && seat->state != SEAT_LOST)
                        return seat;
        }
        return NULL;
}

struct seat *membership_find(const struct membership *m, uint64_t member) {
        return find_from(m, member, 0);
}

struct seat *seats_open(struct membership *m, uint32_t at) {
        if (membership_all(m) == m->most + 1) {
                assert(m->n_others > 0);
                m->n_others--;
        }
        memmove(&m->seat[at + 1], &m->seat[at], (membership_all(m) - at) * sizeof(m->seat[0]));
        return &m->seat[at];
}

void seats_close(struct membership *m, uint32_t at) {
        memmove(&m->seat[at], &m->seat[at + 1], (membership_all(m) - at - 1) * sizeof(m->seat[0]));
        if (at < m->n)
                m->n--;
        else if (at < m->n + m->n_waiting)
                m->n_waiting--;
        else
                m->n_others--;
}

struct seat *membership_note(struct membership *m, const struct membership_request *request) {
        uint32_t first = m->noted < membership_all(m) ? m->noted : 0;
        struct seat *seat = find_from(m, request->member, first);

        if (seat != NULL)
                m->noted = (uint32_t)(seat - m->seat) + 1;
        if (seat != NULL && (seat->state == SEAT_ASKS || seat->state == SEAT_CLAIMS))
                seat->request = *request;
        if (seat != NULL || membership_all(m) == m->most + 1)
                return seat;
        seat = seats_open(m, m->n + m->n_waiting);
        *seat = (struct seat){ .request = *request, .state = SEAT_ASKS };
        m->n_others++;
        return seat;
}

void seats_turn_away(struct membership *m, struct seat gone, enum seat_state why) {
        seat_set_state(&gone, why);
        *seats_open(m, m->n + m->n_waiting) = gone;
        m->n_others++;
}

void membership_turn_away(struct membership *m, uint64_t member) {
        seat_set_state(membership_find(m, member), SEAT_REFUSED);
}
