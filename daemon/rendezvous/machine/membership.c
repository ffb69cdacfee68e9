/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The membership of one job. Ranks follow one rule: an explicit request is granted or refused and fixes the
 * size; everybody else is numbered by local rank (slot), then by arrival. A job forms when max_world members
 * are there, or when min_world were there and the last call, which is never extended, has passed.
 *
 * After a loss the place is kept for the grace, for a member that asks for its rank, or for none. When all
 * places are taken again, the next generation has the same ranks; when the grace is over, those that are left
 * close ranks, if they are enough and no member has asked for a rank. A member that leaves takes its place
 * with it. At least one member must have been in the generation before: fresh ones alone do not hold the
 * job's state.
 *
 * A process that comes with the identity of a present member and a newer instance fences it: the older one is
 * removed as if lost, and its place is the newer one's.
 *
 * A job that formed with fewer than max_world members grows between steps: a later member waits for that, or
 * for a place that becomes vacant.
 *
 * A spare waits for a vacant place also where the world cannot grow. While the job forms it is taken in when
 * the last call has passed: until then its place may still be asked for by one that waits for nothing else.
 */
#include "rendezvous/machine/membership_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"

void membership_init(struct membership *m, const char *name, uint64_t incarnation) {
        *m = (struct membership){ .name = name,
                                  .incarnation = incarnation,
                                  .last_call = UINT64_MAX,
                                  .seat = m->seat,
                                  .most = m->most };
}

void membership_disperse(struct membership *m) {
        uint32_t all = membership_all(m), n = 0;

        for (uint32_t i = 0; i < all; i++) {
                if (m->seat[i].state == SEAT_LOST || m->seat[i].state == SEAT_GONE)
                        continue;
                m->seat[n] = m->seat[i];
                if (m->seat[n].state != SEAT_REFUSED && m->seat[n].state != SEAT_FENCED)
                        seat_set_state(&m->seat[n], SEAT_ASKS);
                n++;
        }
        membership_init(m, m->name, m->incarnation);
        m->n_others = n;
}

void membership_note_loss(struct membership *m, struct membership_loss loss) {
        if (m->loss.member == 0)
                m->loss = loss;
}

void membership_set_state(struct membership *m, enum membership_state state) {
        assert(m->state != MEMBERSHIP_BROKEN && state != MEMBERSHIP_FORMING);
        m->state = state;
}

uint32_t membership_vacant(const struct membership *m) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < m->n; i++)
                n += m->seat[i].state == SEAT_LOST;
        return n;
}

/* Whether the job can form once the last call has passed. */
static bool is_enough(const struct membership *m) {
        uint32_t all = m->n + m->n_waiting;

        return all > 0 && all >= (places_any_explicit(m) ? m->max_world : m->min_world);
}

static void take_spares(struct membership *m) {
        for (; m->n < m->max_world && m->n_waiting > 0; m->n_waiting--)
                seat_set_state(&m->seat[m->n++], SEAT_HELD);
}

static bool form(struct membership *m, uint64_t now) {
        bool complete = m->n > 0 && m->n == m->max_world;

        if (m->state != MEMBERSHIP_FORMING || (!complete && (now < m->last_call || !is_enough(m))))
                return false;
        take_spares(m);
        places_assign(m);
        membership_set_state(m, MEMBERSHIP_FORMED);
        m->generation++;
        return true;
}

static void take_out(struct membership *m, uint32_t index) {
        seats_close(m, index);
        if (m->state == MEMBERSHIP_FORMING && m->n + m->n_waiting < m->min_world)
                m->last_call = UINT64_MAX;
}

/* Writes the ranks that no member has asked for, or how many members are missing if none was asked for. */
static void name_missing(const struct membership *m, char *text, size_t size) {
        struct nodeset taken = RANKS_SCRATCH;
        size_t used = 0;
        unsigned listed = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].request.has_rank)
                        nodeset_add(taken, m->seat[i].request.rank);
        if (!places_any_explicit(m)) {
                snprintf(text, size, "%u missing",
                         m->n + m->n_waiting < m->max_world ? m->max_world - m->n - m->n_waiting : 0);
                return;
        }
        used = (size_t)snprintf(text, size, "missing ranks");
        for (uint32_t rank = 0; rank < m->max_world && used + 16 < size && listed < 16; rank++)
                if (!nodeset_has(taken, rank)) {
                        used += (size_t)snprintf(text + used, size - used, "%s %u", listed > 0 ? "," : "",
                                                 rank);
                        listed++;
                }
        if (listed == 16)
                snprintf(text + used, size - used, ", …");
}

/* Whether a member is left that belonged to the generation that ended. */
static bool any_survivor(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].state == SEAT_HELD)
                        return true;
        return false;
}

static bool any_kept(const struct membership *m, uint64_t now) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].state == SEAT_LOST && now < m->seat[i].kept)
                        return true;
        return false;
}

static bool can_close_ranks(const struct membership *m) {
        return m->n - membership_vacant(m) >= m->min_world && !places_any_explicit(m);
}

/* The first that waits takes the place, if there is one. */
static void membership_fill(struct membership *m, struct seat *place) {
        if (m->n_waiting == 0)
                return;
        places_take(m, place, &m->seat[m->n], m->seat[m->n].deadline);
        take_out(m, m->n);
}

/* A place of which the newer process did not come is anybody's. */
static void fill_vacant(struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].state == SEAT_LOST)
                        membership_fill(m, &m->seat[i]);
}

/* The next generation, in which everybody has a place. */
static enum membership_event regenerate(struct membership *m) {
        places_regenerate(m);
        membership_set_state(m, MEMBERSHIP_FORMED);
        m->generation++;
        return MEMBERSHIP_HAS_FORMED;
}

/* The end of replacing: a new generation, or none ever. */
static enum membership_event replace(struct membership *m, uint64_t now) {
        fill_vacant(m);
        if (m->busy)
                return MEMBERSHIP_NOTHING;
        if (any_survivor(m) && membership_vacant(m) > 0 && any_kept(m, now))
                return MEMBERSHIP_NOTHING;
        if (!any_survivor(m) || (membership_vacant(m) > 0 && !can_close_ranks(m))) {
                membership_set_state(m, MEMBERSHIP_BROKEN);
                return MEMBERSHIP_HAS_BROKEN;
        }
        return regenerate(m);
}

/* Between steps those that wait come in, if there is room. */
static enum membership_event grow(struct membership *m) {
        if (!m->boundary || membership_fitting(m) == 0)
                return MEMBERSHIP_NOTHING;
        return regenerate(m);
}

static void membership_refuse_forming(const struct membership *m, const struct seat *seat,
                                      struct refusal *refusal) {
        uint32_t all = m->n + m->n_waiting;
        char missing[128];

        name_missing(m, missing, sizeof(missing));
        refuse(refusal, WIRE__CODE__TIMEOUT,
               "job '%s' did not form within %.1f s: %u of %u members are here (%s); start the "
               "others, or raise the join time-out",
               m->name, (double)seat->request.timeout / 1e6, all < m->max_world ? all : m->max_world,
               m->max_world, missing);
}

static void membership_refuse_late(const struct membership *m, const struct seat *seat,
                                   struct refusal *refusal) {
        if (m->state == MEMBERSHIP_FORMING)
                membership_refuse_forming(m, seat, refusal);
        else if (seat->request.spare && seat->state == SEAT_WAITING)
                refuse(refusal, WIRE__CODE__TIMEOUT,
                       "job '%s' has had no place for this spare within %.1f s: all of its %u members "
                       "are there",
                       m->name, (double)seat->request.timeout / 1e6, m->n);
        else
                refuse(refusal, WIRE__CODE__TIMEOUT,
                       "job '%s' has not begun another generation within %.1f s: %s", m->name,
                       (double)seat->request.timeout / 1e6,
                       membership_vacant(m) > 0
                               ? "some of its places are still vacant; start the others"
                               : "a step has been open all the time; look at gradsyncctl status");
}

/* The wait of one of those that come together has ended, or that of a fresh member, whose place is vacant
 * again. */
static enum membership_event expire(struct membership *m, uint64_t now, uint64_t *ret_member,
                                    struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++) {
                struct seat *seat = &m->seat[i], gone = *seat;

                if ((m->state != MEMBERSHIP_FORMING && gone.state != SEAT_TAKEN &&
                     gone.state != SEAT_WAITING) ||
                    now < gone.deadline)
                        continue;
                membership_refuse_late(m, seat, refusal);
                *ret_member = gone.request.member;
                if (gone.state == SEAT_TAKEN) {
                        seat_set_state(seat, SEAT_LOST);
                        membership_fill(m, seat);
                } else {
                        take_out(m, i);
                }
                seats_turn_away(m, gone, SEAT_REFUSED);
                return MEMBERSHIP_EXPIRED;
        }
        return MEMBERSHIP_NOTHING;
}

enum membership_event membership_tick(struct membership *m, uint64_t now, uint64_t *ret_member,
                                      struct refusal *refusal) {
        enum membership_event event = form(m, now)                       ? MEMBERSHIP_HAS_FORMED
                                      : m->state == MEMBERSHIP_FORMED    ? grow(m)
                                      : m->state == MEMBERSHIP_REPLACING ? replace(m, now)
                                                                         : MEMBERSHIP_NOTHING;

        if (event != MEMBERSHIP_NOTHING || m->state == MEMBERSHIP_BROKEN)
                return event;
        return expire(m, now, ret_member, refusal);
}

uint64_t membership_deadline(const struct membership *m) {
        uint64_t soonest = UINT64_MAX;

        if (m->state == MEMBERSHIP_BROKEN)
                return UINT64_MAX;
        if (m->state == MEMBERSHIP_FORMING && is_enough(m))
                soonest = m->last_call;
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++) {
                const struct seat *seat = &m->seat[i];
                uint64_t due = UINT64_MAX;

                if (seat->state == SEAT_LOST && m->n_waiting > 0)
                        due = 0;
                else if (seat->state == SEAT_LOST)
                        due = m->busy ? UINT64_MAX : seat->kept;
                else if (m->state == MEMBERSHIP_FORMING || seat->state != SEAT_HELD)
                        due = seat->deadline;
                if (due < soonest)
                        soonest = due;
        }
        return soonest;
}

/* Returns whether each place has a member, or may still get one, or is not needed. */
static bool can_go_on(const struct membership *m, uint64_t now) {
        return membership_vacant(m) == 0 || any_kept(m, now) || can_close_ranks(m);
}

static void keep_place(struct membership *m, struct seat *seat, uint32_t cause, uint64_t now) {
        if (seat->state == SEAT_HELD)
                seat->kept = cause == WIRE__CAUSE__LEAVING ? now : now + m->grace;
        seat_set_state(seat, SEAT_LOST);
        if (cause != WIRE__CAUSE__SUPERSEDED)
                membership_fill(m, seat);
}

/* A member of the running generation is gone. */
static void lose(struct membership *m, struct seat *seat, uint32_t cause, uint64_t now) {
        membership_note_loss(m, (struct membership_loss){ .member = seat->request.member,
                                                          .rank = seat->rank,
                                                          .pid = seat->request.pid,
                                                          .cause = cause });
        keep_place(m, seat, cause, now);
        m->busy = true;
        membership_set_state(m,
                             any_survivor(m) && can_go_on(m, now) ? MEMBERSHIP_REPLACING : MEMBERSHIP_BROKEN);
}

bool membership_remove(struct membership *m, uint64_t member, uint32_t cause, uint64_t now) {
        struct seat *seat = membership_find(m, member);

        if (seat == NULL)
                return false;
        if (seat->state < SEAT_HELD || m->state == MEMBERSHIP_FORMING) {
                take_out(m, (uint32_t)(seat - m->seat));
        } else if (m->state == MEMBERSHIP_FORMED) {
                lose(m, seat, cause, now);
                return true;
        } else if (m->state == MEMBERSHIP_REPLACING) {
                keep_place(m, seat, cause, now);
        } else if (seat->state != SEAT_GONE) {
                seat_set_state(seat, SEAT_GONE);
        }
        return false;
}

bool membership_end(struct membership *m, uint32_t cause) {
        if (m->state != MEMBERSHIP_FORMED && m->state != MEMBERSHIP_REPLACING)
                return false;
        membership_set_state(m, MEMBERSHIP_BROKEN);
        membership_note_loss(m, (struct membership_loss){ .cause = cause });
        return true;
}
