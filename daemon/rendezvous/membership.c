/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The membership of one job. Ranks follow MEMBERSHIP's rule: an explicit request is granted or refused and
 * fixes the size; everybody else is numbered by local rank (slot), then by arrival. A job forms when
 * max_world members are there, or when min_world were there and the last call, which is never extended, has
 * passed.
 *
 * After a loss the place is kept for the grace, for whoever asks for its rank, or for none. When all places are taken
 * again, the next generation has the same ranks; when the grace is over, those who are left close ranks, if they are
 * enough and nobody has asked for a rank of his own. A member that leaves takes its place with it. At least one member
 * must have been in the generation before: fresh ones alone do not hold the job's state.
 *
 * A process that comes with the identity of a present member and a newer instance fences it: the older one is removed as
 * if lost, and its place is the newer one's.
 *
 * A job that formed with fewer than max_world members grows between steps: who comes later waits for that, or for a place
 * that becomes vacant.
 *
 * A spare waits for a vacant place also where the world cannot grow. While the job forms it is taken in when the last call has
 * passed: until then its place may still be asked for by one who waits for nothing else.
 */
#include "rendezvous/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"

void membership_init(struct membership *m, const char *name, uint64_t incarnation) {
        memset(m, 0, sizeof(*m));
        m->name = name;
        m->incarnation = incarnation;
        m->last_call = UINT64_MAX;
}

const struct membership_member *membership_find(const struct membership *m, uint64_t member) {
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++)
                if (m->member[i].request.member == member)
                        return &m->member[i];
        return NULL;
}

bool membership_waits(const struct membership *m, uint64_t member) {
        for (uint32_t i = m->n; i < m->n + m->n_waiting; i++)
                if (m->member[i].request.member == member)
                        return true;
        return false;
}

uint32_t membership_vacant(const struct membership *m) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < m->n; i++)
                n += m->member[i].lost;
        return n;
}

int membership_check(const char *name, const struct membership_request *request, struct refusal *refusal) {
        if (request->has_rank && request->rank >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': rank %u was asked for in a world of %u; ranks go from 0 to %u",
                              name, request->rank, request->max_world, request->max_world - 1);
        if (request->has_slot && request->slot >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': local rank %u was asked for in a world of %u", name,
                              request->slot, request->max_world);
        if (request->spare && (request->has_rank || request->has_slot))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': a spare takes the place that becomes vacant; leave its rank and local rank out", name);
        if (request->spare && !request->adapts)
                return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                              "job '%s': this client's library is too old for a spare; use the one of the daemon's release", name);
        return 0;
}

static int check_size(const struct membership *m, const struct membership_request *request,
                      struct refusal *refusal) {
        int r = membership_check(m->name, request, refusal);

        if (r != 0)
                return r;
        if (m->n + m->n_waiting > 0 && (request->min_world != m->min_world || request->max_world != m->max_world))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' is being formed for %u to %u members (pid %d came first), this "
                              "member asks for %u to %u: give all of them the same world size",
                              m->name, m->min_world, m->max_world, m->member[0].request.pid,
                              request->min_world, request->max_world);
        return 0;
}

static int check_place(const struct membership *m, const struct membership_request *request,
                       struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n; i++) {
                const struct membership_request *other = &m->member[i].request;

                if (request->has_rank && other->has_rank && request->rank == other->rank)
                        return refuse_for(
                                refusal, WIRE__CODE__RANK_TAKEN, other->rank, other->pid,
                                "job '%s': rank %u is held by pid %d; give each member its own rank", m->name,
                                other->rank, other->pid);
                if (request->has_slot && other->has_slot && request->slot == other->slot &&
                    request->host == other->host)
                        return refuse(refusal, WIRE__CODE__RANK_TAKEN,
                                      "job '%s': local rank %u is held by pid %d; give each member of this "
                                      "host its own local rank",
                                      m->name, other->slot, other->pid);
        }
        return 0;
}

/* A rank that was asked for in a job that has formed is taken, even if its holder did not ask for it. */
static int refuse_formed(const struct membership *m, const struct membership_request *request,
                         struct refusal *refusal) {
        if (request->has_rank && request->rank < m->n)
                return refuse_for(refusal, WIRE__CODE__RANK_TAKEN, request->rank,
                                  m->member[request->rank].request.pid,
                                  "job '%s' has formed with %u members and its rank %u is held by pid %d",
                                  m->name, m->n, request->rank, m->member[request->rank].request.pid);
        return refuse(refusal, WIRE__CODE__JOB_FULL,
                      "job '%s' has formed with %u members and takes no more; rank 0 is pid %d. Join as a spare to wait for a place",
                      m->name, m->n, m->member[0].request.pid);
}

static bool any_explicit(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        return true;
        return false;
}

static bool all_adapt(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (!m->member[i].lost && !m->member[i].request.adapts)
                        return false;
        return true;
}

/* The place that is kept for this one: its own, the rank or local rank it asks for, else the first. Where a restored place
 * was is not known: it may be anybody's. */
static struct membership_member *find_vacant(struct membership *m, const struct membership_request *request, uint64_t now) {
        for (uint32_t i = 0; i < m->n && request->identity != 0; i++)
                if (m->member[i].lost && m->member[i].request.identity == request->identity &&
                    (!request->has_rank || request->rank == i))
                        return &m->member[i];
        for (uint32_t i = 0; i < m->n; i++) {
                struct membership_member *place = &m->member[i];

                if (!place->lost || (request->has_rank && request->rank != place->rank))
                        continue;
                if (now < place->expected && !request->has_rank)
                        continue;
                if (request->has_rank || !request->has_slot || request->slot == place->slot || place->slot == UINT32_MAX)
                        return place;
        }
        return NULL;
}

uint32_t membership_fitting(const struct membership *m) {
        uint32_t room = m->n < m->max_world ? m->max_world - m->n : 0;

        if (any_explicit(m) || !all_adapt(m))
                return 0;
        return m->n_waiting < room ? m->n_waiting : room;
}

static bool can_grow(const struct membership *m, const struct membership_request *request) {
        return m->n + m->n_waiting < m->max_world && request->adapts && !request->has_rank && all_adapt(m) &&
               !any_explicit(m);
}

/* Behind the others, until the next generation. */
static int join_waiting(struct membership *m, const struct membership_request *request, uint64_t now,
                        struct refusal *refusal) {
        int r = check_size(m, request, refusal);

        if (r != 0)
                return r;
        if (m->n + m->n_waiting == LIMIT_WORLD)
                return refuse(refusal, WIRE__CODE__JOB_FULL,
                              "job '%s' has %u members, and %u processes wait for a place: no more can", m->name, m->n, m->n_waiting);
        m->member[m->n + m->n_waiting++] = (struct membership_member){
                .request = *request,
                .id = request->member,
                .deadline = request->timeout > 0 ? now + request->timeout : UINT64_MAX,
                .fresh = true,
        };
        return 0;
}

/* Where somebody cannot go on in another generation, no place ever becomes vacant. */
static int join_behind(struct membership *m, const struct membership_request *request, uint64_t now,
                       struct refusal *refusal) {
        if (can_grow(m, request) || (request->spare && all_adapt(m)))
                return join_waiting(m, request, now, refusal);
        return refuse_formed(m, request, refusal);
}

/* The lowest local rank of a host that none of the first n members has. */
static uint32_t free_slot(const struct membership *m, uint32_t n, uint32_t host) {
        bool taken[LIMIT_WORLD + 1] = { false };
        uint32_t slot = 0;

        for (uint32_t i = 0; i < n; i++)
                if (m->member[i].request.host == host && m->member[i].slot <= LIMIT_WORLD)
                        taken[m->member[i].slot] = true;
        while (taken[slot])
                slot++;
        return slot;
}

/* The rank goes to the newcomer; the local rank too, on the same host. */
static void take_place(struct membership *m, struct membership_member *place, const struct membership_request *request,
                       uint64_t deadline) {
        bool elsewhere = request->host != place->request.host;

        place->request = *request;
        place->deadline = deadline;
        place->lost = false;
        place->fresh = true;
        if (elsewhere) {
                place->slot = UINT32_MAX;
                place->slot = request->has_slot ? request->slot : free_slot(m, m->n, request->host);
        }
}

static int join_vacant(struct membership *m, const struct membership_request *request, uint64_t now,
                       struct refusal *refusal) {
        struct membership_member *place;
        int r = check_size(m, request, refusal);

        if (r != 0)
                return r;
        place = find_vacant(m, request, now);
        if (place == NULL)
                return join_behind(m, request, now, refusal);
        if (!request->adapts)
                return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                              "job '%s' replaces a lost member, which this client's library is too old for; use the one of "
                              "the daemon's release",
                              m->name);
        take_place(m, place, request, request->timeout > 0 ? now + request->timeout : UINT64_MAX);
        return 0;
}

/* Those who wait for nothing else come before the spares. */
static int join_first(struct membership *m, const struct membership_request *request, uint64_t now,
                      struct refusal *refusal) {
        struct membership_member *member = &m->member[m->n];
        int r = check_size(m, request, refusal);

        if (r == 0)
                r = check_place(m, request, refusal);
        if (r == 0 && m->n > 0 && m->n == m->max_world)
                r = refuse(refusal, WIRE__CODE__JOB_FULL,
                           "job '%s' has all of its %u members; the first is pid %d. Join as a spare to wait for a place", m->name,
                           m->n, m->member[0].request.pid);
        if (r == 0 && m->n + m->n_waiting == LIMIT_WORLD)
                r = refuse(refusal, WIRE__CODE__JOB_FULL, "job '%s' has %u members and %u spares: no more can come", m->name, m->n,
                           m->n_waiting);
        if (r != 0)
                return r;
        memmove(member + 1, member, m->n_waiting * sizeof(*member));
        m->n++;
        *member = (struct membership_member){
                .request = *request,
                .id = request->member,
                .deadline = request->timeout > 0 ? now + request->timeout : UINT64_MAX,
        };
        return 0;
}

/* The last call of who makes the world large enough; of a spare it may be longer: see gradsync_join(). */
static uint64_t longest_call(const struct membership *m, uint64_t longest) {
        for (uint32_t i = m->n; i < m->n + m->n_waiting; i++)
                if (m->member[i].request.last_call > longest)
                        longest = m->member[i].request.last_call;
        return longest;
}

static int join_forming(struct membership *m, const struct membership_request *request, uint64_t now,
                        struct refusal *refusal) {
        bool first = m->n + m->n_waiting == 0;
        int r = request->spare ? join_waiting(m, request, now, refusal) : join_first(m, request, now, refusal);

        if (r != 0)
                return r;
        if (first)
                m->grace = request->grace;
        m->min_world = request->min_world;
        m->max_world = request->max_world;
        if (m->n + m->n_waiting >= m->min_world && m->last_call == UINT64_MAX)
                m->last_call = now + longest_call(m, request->last_call);
        return 0;
}

/* A newer process of the same identity takes the place of the older one, which is removed; an older one is refused. */
static int fence(struct membership *m, const struct membership_request *request, uint64_t now, struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n + m->n_waiting && request->identity != 0; i++) {
                const struct membership_request *other = &m->member[i].request;

                if (m->member[i].lost || other->identity != request->identity)
                        continue;
                if (other->instance >= request->instance)
                        return refuse_for(refusal, WIRE__CODE__STALE, m->member[i].rank, other->pid,
                                          "job '%s': pid %d is the same or a newer process of this member; end this one", m->name,
                                          other->pid);
                m->fenced = other->member;
                membership_remove(m, other->member, WIRE__CAUSE__SUPERSEDED, now);
                return 0;
        }
        return 0;
}

int membership_join(struct membership *m, const struct membership_request *request, uint64_t now,
                    struct refusal *refusal) {
        int r;

        m->fenced = 0;
        if (request->incarnation < m->incarnation)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s' is in incarnation %llu, this process belongs to %llu: it was "
                              "restarted meanwhile",
                              m->name, (unsigned long long)m->incarnation,
                              (unsigned long long)request->incarnation);
        r = fence(m, request, now, refusal);
        if (r != 0)
                return r;
        if (m->state == MEMBERSHIP_REPLACING)
                return join_vacant(m, request, now, refusal);
        if (m->state == MEMBERSHIP_FORMED)
                return join_behind(m, request, now, refusal);
        if (m->state != MEMBERSHIP_FORMING)
                return refuse_formed(m, request, refusal);
        return join_forming(m, request, now, refusal);
}

/* Whether a's place is on an earlier device than b's: below 0; on the same one: 0. */
static int by_device(const struct membership_member *a, const struct membership_member *b) {
        if (a->request.host != b->request.host)
                return a->request.host < b->request.host ? -1 : 1;
        if (a->request.device != b->request.device)
                return a->request.device < b->request.device ? -1 : 1;
        return 0;
}

static int by_slot(const void *left, const void *right) {
        const struct membership_member *a = left, *b = right;
        uint32_t slot_a = a->request.has_slot ? a->request.slot : UINT32_MAX;
        uint32_t slot_b = b->request.has_slot ? b->request.slot : UINT32_MAX;

        if (by_device(a, b) != 0)
                return by_device(a, b);
        if (slot_a != slot_b)
                return slot_a < slot_b ? -1 : 1;
        return a->request.member < b->request.member ? -1 : a->request.member > b->request.member;
}

static int by_rank(const void *left, const void *right) {
        const struct membership_member *a = left, *b = right;

        return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void assign_ranks(struct membership *m) {
        bool taken[LIMIT_WORLD] = { false };
        uint32_t next = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        taken[m->member[i].request.rank] = true;
        qsort(m->member, m->n, sizeof(m->member[0]), by_slot);
        for (uint32_t i = 0; i < m->n; i++) {
                struct membership_member *member = &m->member[i];

                if (member->request.has_rank) {
                        member->rank = member->request.rank;
                        continue;
                }
                while (taken[next])
                        next++;
                member->rank = next++;
        }
        qsort(m->member, m->n, sizeof(m->member[0]), by_rank);
}

/* The lowest local rank of this member's host that nobody has asked for and no earlier member has. */
static uint32_t assign_slot(const struct membership *m, uint32_t index) {
        bool taken[LIMIT_WORLD + 1] = { false };
        uint32_t slot = 0;

        for (uint32_t i = 0; i < m->n; i++) {
                if (m->member[i].request.host != m->member[index].request.host)
                        continue;
                if (m->member[i].request.has_slot)
                        taken[m->member[i].request.slot] = true;
                else if (i < index)
                        taken[m->member[i].slot] = true;
        }
        while (taken[slot])
                slot++;
        return slot;
}

static void assign_slots(struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++) {
                struct membership_member *member = &m->member[i];

                member->slot = member->request.has_slot ? member->request.slot : assign_slot(m, i);
        }
}

/* Whether the job can form once the last call has passed. */
static bool is_enough(const struct membership *m) {
        uint32_t all = m->n + m->n_waiting;

        return all > 0 && all >= (any_explicit(m) ? m->max_world : m->min_world);
}

static void take_spares(struct membership *m) {
        for (; m->n < m->max_world && m->n_waiting > 0; m->n_waiting--)
                m->member[m->n++].fresh = false;
}

static bool form(struct membership *m, uint64_t now) {
        bool complete = m->n > 0 && m->n == m->max_world;

        if (m->state != MEMBERSHIP_FORMING || (!complete && (now < m->last_call || !is_enough(m))))
                return false;
        take_spares(m);
        assign_ranks(m);
        assign_slots(m);
        m->state = MEMBERSHIP_FORMED;
        m->generation++;
        return true;
}

static void take_out(struct membership *m, uint32_t index) {
        uint32_t all = m->n + m->n_waiting;

        memmove(&m->member[index], &m->member[index + 1], (all - index - 1) * sizeof(m->member[0]));
        if (index < m->n)
                m->n--;
        else
                m->n_waiting--;
        if (m->state == MEMBERSHIP_FORMING && m->n + m->n_waiting < m->min_world)
                m->last_call = UINT64_MAX;
}

/* "1, 2 and 5": the ranks nobody asked for, where ranks were asked for; else how many are missing. */
static void name_missing(const struct membership *m, char *text, size_t size) {
        bool taken[LIMIT_WORLD] = { false };
        size_t used = 0;
        unsigned listed = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        taken[m->member[i].request.rank] = true;
        if (!any_explicit(m)) {
                snprintf(text, size, "%u missing", m->n + m->n_waiting < m->max_world ? m->max_world - m->n - m->n_waiting : 0);
                return;
        }
        used = (size_t)snprintf(text, size, "missing ranks");
        for (uint32_t rank = 0; rank < m->max_world && used + 16 < size && listed < 16; rank++)
                if (!taken[rank]) {
                        used += (size_t)snprintf(text + used, size - used, "%s %u", listed > 0 ? "," : "",
                                                 rank);
                        listed++;
                }
        if (listed == 16)
                snprintf(text + used, size - used, ", …");
}

/* Whether anybody is left who belonged to the generation that ended. */
static bool any_survivor(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (!m->member[i].lost && !m->member[i].fresh)
                        return true;
        return false;
}

static bool any_kept(const struct membership *m, uint64_t now) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].lost && now < m->member[i].kept)
                        return true;
        return false;
}

static bool can_close_ranks(const struct membership *m) {
        return m->n - membership_vacant(m) >= m->min_world && !any_explicit(m);
}

/* Who comes later stands behind the others of its device. On one device nobody else's rank changes. */
static void order(struct membership *m) {
        for (uint32_t i = 1; i < m->n; i++) {
                struct membership_member moving = m->member[i];
                uint32_t at = i;

                if (by_device(&moving, &m->member[i - 1]) >= 0)
                        continue;
                for (; at > 0 && by_device(&moving, &m->member[at - 1]) < 0; at--)
                        m->member[at] = m->member[at - 1];
                m->member[at] = moving;
        }
        for (uint32_t i = 0; i < m->n; i++)
                m->member[i].rank = i;
}

/* Those who stay close ranks. What waits moves up behind them. */
static void close_ranks(struct membership *m) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < m->n; i++) {
                if (m->member[i].lost)
                        continue;
                m->member[n] = m->member[i];
                if (m->member[n].id == 0)       /* restored, and its holder was lost before it could tell */
                        m->member[n].id = m->member[n].request.member;
                m->member[n].rank = n;
                m->member[n++].fresh = false;
        }
        memmove(&m->member[n], &m->member[m->n], m->n_waiting * sizeof(m->member[0]));
        m->n = n;
}

/* As many as there is room for. */
static void take_waiting(struct membership *m) {
        uint32_t fitting = membership_fitting(m);

        for (uint32_t i = 0; i < fitting; i++) {
                struct membership_member *member = &m->member[m->n];

                member->slot = free_slot(m, m->n, member->request.host);
                member->rank = m->n++;
                member->fresh = false;
        }
        m->n_waiting -= fitting;
}

/* The next generation: without those who are lost, with those who wait. Where ranks were asked for, they stay. */
static void regenerate(struct membership *m) {
        uint32_t before = m->n;

        close_ranks(m);
        if (m->n < before || membership_fitting(m) > 0) {
                take_waiting(m);
                order(m);
        }
        m->state = MEMBERSHIP_FORMED;
        m->generation++;
}

/* The first who waits takes the place, if anybody does. */
static void fill(struct membership *m, struct membership_member *place) {
        const struct membership_member *waiting = &m->member[m->n];

        if (m->n_waiting == 0)
                return;
        take_place(m, place, &waiting->request, waiting->deadline);
        take_out(m, m->n);
}

/* Nobody is awaited any more for a place for which somebody was. */
static void fill_forgotten(struct membership *m, uint64_t now) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].lost && now >= m->member[i].expected)
                        fill(m, &m->member[i]);
}

/* The end of replacing: a new generation, or none ever. */
static enum membership_event replace(struct membership *m, uint64_t now) {
        fill_forgotten(m, now);
        if (m->busy)
                return MEMBERSHIP_NOTHING;
        if (any_survivor(m) && membership_vacant(m) > 0 && any_kept(m, now))
                return MEMBERSHIP_NOTHING;
        if (!any_survivor(m) || (membership_vacant(m) > 0 && !can_close_ranks(m))) {
                m->state = MEMBERSHIP_BROKEN;
                return MEMBERSHIP_HAS_BROKEN;
        }
        regenerate(m);
        return MEMBERSHIP_HAS_FORMED;
}

/* Between steps those who wait come in, if there is room. */
static enum membership_event grow(struct membership *m) {
        if (!m->boundary || membership_fitting(m) == 0)
                return MEMBERSHIP_NOTHING;
        m->loss = (struct membership_loss){ 0 };
        regenerate(m);
        return MEMBERSHIP_HAS_FORMED;
}

/* Who waits for a place that there will never be: the job has formed with somebody who cannot go on in another generation. */
static bool in_vain(const struct membership *m, uint32_t index) {
        return m->state == MEMBERSHIP_FORMED && index >= m->n && !all_adapt(m);
}

static void refuse_fresh(const struct membership *m, uint32_t index, struct refusal *refusal) {
        const struct membership_member *member = &m->member[index];

        if (in_vain(m, index))
                refuse(refusal, WIRE__CODE__JOB_FULL,
                       "job '%s' has formed with %u members, and the library of one is too old for a spare to take any place: use "
                       "one release for all of them",
                       m->name, m->n);
        else if (member->request.spare && index >= m->n)
                refuse(refusal, WIRE__CODE__TIMEOUT,
                       "job '%s' has had no place for this spare within %.1f s: all of its %u members are there", m->name,
                       (double)member->request.timeout / 1e6, m->n);
        else
                refuse(refusal, WIRE__CODE__TIMEOUT, "job '%s' has not begun another generation within %.1f s: %s", m->name,
                       (double)member->request.timeout / 1e6,
                       membership_vacant(m) > 0 ? "some of its places are still vacant; start the others"
                                                : "a step has been open all the time; look at gradsyncctl status");
}

/* The wait of a fresh member has ended: its place is vacant again. */
static enum membership_event expire_fresh(struct membership *m, uint64_t now, uint64_t *ret_member,
                                          struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++) {
                struct membership_member *member = &m->member[i];

                if (!member->fresh || (now < member->deadline && !in_vain(m, i)))
                        continue;
                refuse_fresh(m, i, refusal);
                *ret_member = member->request.member;
                if (i >= m->n) {
                        take_out(m, i);
                } else {
                        member->fresh = false;
                        member->lost = true;
                        fill(m, member);
                }
                return MEMBERSHIP_EXPIRED;
        }
        return MEMBERSHIP_NOTHING;
}

/* The wait of one of those who come together has ended. */
static enum membership_event expire_forming(struct membership *m, uint64_t now, uint64_t *ret_member,
                                            struct refusal *refusal) {
        uint32_t all = m->n + m->n_waiting;

        for (uint32_t i = 0; i < all; i++) {
                struct membership_member gone = m->member[i];
                char missing[128];

                if (now < gone.deadline)
                        continue;
                name_missing(m, missing, sizeof(missing));
                refuse(refusal, WIRE__CODE__TIMEOUT,
                       "job '%s' did not form within %.1f s: %u of %u members are here (%s); start the "
                       "others, or raise the join time-out",
                       m->name, (double)gone.request.timeout / 1e6, all < m->max_world ? all : m->max_world, m->max_world, missing);
                take_out(m, i);
                *ret_member = gone.request.member;
                return MEMBERSHIP_EXPIRED;
        }
        return MEMBERSHIP_NOTHING;
}

enum membership_event membership_tick(struct membership *m, uint64_t now, uint64_t *ret_member,
                                      struct refusal *refusal) {
        if (form(m, now))
                return MEMBERSHIP_HAS_FORMED;
        if (m->state == MEMBERSHIP_REPLACING || m->state == MEMBERSHIP_FORMED) {
                enum membership_event event = m->state == MEMBERSHIP_FORMED ? grow(m) : replace(m, now);

                return event != MEMBERSHIP_NOTHING ? event : expire_fresh(m, now, ret_member, refusal);
        }
        return m->state == MEMBERSHIP_FORMING ? expire_forming(m, now, ret_member, refusal) : MEMBERSHIP_NOTHING;
}

uint64_t membership_deadline(const struct membership *m) {
        uint64_t soonest = UINT64_MAX;

        if (m->state == MEMBERSHIP_BROKEN)
                return UINT64_MAX;
        if (m->state == MEMBERSHIP_FORMING && is_enough(m))
                soonest = m->last_call;
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++) {
                const struct membership_member *member = &m->member[i];
                uint64_t due = UINT64_MAX;

                if (member->lost && m->n_waiting > 0)
                        due = member->expected;
                else if (member->lost)
                        due = m->busy ? UINT64_MAX : member->kept;
                else if (in_vain(m, i))
                        due = 0;
                else if (m->state == MEMBERSHIP_FORMING || member->fresh)
                        due = member->deadline;
                if (due < soonest)
                        soonest = due;
        }
        return soonest;
}

/* Somebody has come for each place, or may still come, or need not. */
static bool can_go_on(const struct membership *m, uint64_t now) {
        return membership_vacant(m) == 0 || any_kept(m, now) || can_close_ranks(m);
}

/* A member of the running generation is gone. */
static void lose(struct membership *m, struct membership_member *member, uint32_t cause, uint64_t now) {
        m->loss = (struct membership_loss){ .member = member->request.member, .rank = member->rank,
                                            .pid = member->request.pid, .cause = cause };
        member->lost = true;
        member->kept = cause == WIRE__CAUSE__LEAVING ? now : now + m->grace;
        if (cause != WIRE__CAUSE__SUPERSEDED)
                fill(m, member);
        m->busy = true;
        m->state = all_adapt(m) && any_survivor(m) && can_go_on(m, now) ? MEMBERSHIP_REPLACING : MEMBERSHIP_BROKEN;
}

static void lose_further(struct membership *m, struct membership_member *member, uint32_t cause, uint64_t now) {
        member->lost = true;
        if (!member->fresh)
                member->kept = cause == WIRE__CAUSE__LEAVING ? now : now + m->grace;
        member->fresh = false;
        if (cause != WIRE__CAUSE__SUPERSEDED)
                fill(m, member);
}

bool membership_remove(struct membership *m, uint64_t member, uint32_t cause, uint64_t now) {
        for (uint32_t i = m->n; i < m->n + m->n_waiting; i++)
                if (m->member[i].request.member == member) {
                        take_out(m, i);
                        return false;
                }
        for (uint32_t i = 0; i < m->n; i++) {
                if (m->member[i].request.member != member || m->member[i].lost)
                        continue;
                if (m->state == MEMBERSHIP_FORMING)
                        take_out(m, i);
                else if (m->state == MEMBERSHIP_REPLACING)
                        lose_further(m, &m->member[i], cause, now);
                else if (m->state == MEMBERSHIP_FORMED) {
                        lose(m, &m->member[i], cause, now);
                        return true;
                }
                return false;
        }
        return false;
}

bool membership_end(struct membership *m, uint32_t cause) {
        if (m->state != MEMBERSHIP_FORMED && m->state != MEMBERSHIP_REPLACING)
                return false;
        m->state = MEMBERSHIP_BROKEN;
        m->loss = (struct membership_loss){ .cause = cause };
        return true;
}

void membership_recover(struct membership *m, const struct membership_request *request, uint32_t generation, uint32_t n,
                        uint64_t first, uint64_t expected) {
        membership_init(m, m->name, request->incarnation);
        m->state = MEMBERSHIP_REPLACING;
        m->generation = generation;
        m->min_world = request->min_world;
        m->max_world = request->max_world;
        m->grace = request->grace;
        m->n = n;
        m->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        for (uint32_t rank = 0; rank < n; rank++)
                m->member[rank] = (struct membership_member){
                        .request = { .member = first + rank, .min_world = request->min_world,
                                     .max_world = request->max_world, .adapts = true },
                        .rank = rank,
                        .slot = rank,
                        .lost = true,
                        .expected = expected,
                        .kept = expected + request->grace,
                };
}

void membership_return(struct membership *m, uint32_t rank, uint32_t slot, uint64_t id, const struct membership_request *request) {
        struct membership_member *place = &m->member[rank];

        place->request = *request;
        place->slot = slot;
        place->id = id;
        place->deadline = UINT64_MAX;
        place->lost = place->fresh = false;
        place->expected = 0;
}

void membership_forget(struct membership *m, uint32_t rank, uint64_t now) {
        struct membership_member *place = &m->member[rank];

        if (!place->lost || place->expected == 0)
                return;
        place->expected = 0;
        place->kept = now + m->grace;
        fill(m, place);
}

void membership_restore(struct membership *m, uint32_t generation, uint32_t world, const struct membership_member *member,
                        uint32_t n, uint64_t now) {
        m->generation = generation;
        m->n = world;
        m->n_waiting = 0;
        m->state = MEMBERSHIP_FORMED;
        for (uint32_t rank = 0; rank < world; rank++)
                m->member[rank] = (struct membership_member){ .rank = rank, .lost = true, .slot = UINT32_MAX,
                                                              .request.host = UINT32_MAX };
        for (uint32_t i = 0; i < n; i++) {
                m->min_world = member[i].request.min_world;
                m->max_world = member[i].request.max_world;
                m->grace = member[i].request.grace;
                m->member[member[i].rank] = member[i];
        }
        for (uint32_t rank = 0; rank < world; rank++)
                if (m->member[rank].lost) {
                        m->member[rank].kept = now + m->grace;
                        m->loss = (struct membership_loss){ .rank = rank, .cause = WIRE__CAUSE__EXITED };
                        m->state = MEMBERSHIP_REPLACING;
                        m->busy = true;
                }
}
