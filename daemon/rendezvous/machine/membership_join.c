/* SPDX-License-Identifier: Apache-2.0 */
/* Members that ask for a place: a newcomer, the successor of a lost one, a newer process, a spare. */
#include "rendezvous/machine/membership_private.h"

#include <string.h>

#include "gradsync.pb-c.h"

int membership_check(const char *name, const struct membership_request *request, struct refusal *refusal) {
        if (request->has_rank && request->rank >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': rank %u was asked for in a world of %u; ranks go from 0 to %u", name,
                              request->rank, request->max_world, request->max_world - 1);
        if (request->has_slot && request->slot >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': local rank %u was asked for in a world of %u", name, request->slot,
                              request->max_world);
        if (request->spare && (request->has_rank || request->has_slot))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': a spare takes the place that becomes vacant; leave its rank and "
                              "local rank out",
                              name);
        return 0;
}

static int check_size(const struct membership *m, const struct membership_request *request,
                      struct refusal *refusal) {
        int r = membership_check(m->name, request, refusal);

        if (r != 0)
                return r;
        if (m->n + m->n_waiting > 0 && m->max_world > 0 && /* else restored, and no member has said it */
            (request->min_world != m->min_world || request->max_world != m->max_world))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' is being formed for %u to %u members (pid %d came first), this "
                              "member asks for %u to %u: give all of them the same world size",
                              m->name, m->min_world, m->max_world, m->seat[0].request.pid, request->min_world,
                              request->max_world);
        return 0;
}

static int join_check_place(const struct membership *m, const struct membership_request *request,
                            struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n; i++) {
                const struct membership_request *other = &m->seat[i].request;

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
                                  m->seat[request->rank].request.pid,
                                  "job '%s' has formed with %u members and its rank %u is held by pid %d",
                                  m->name, m->n, request->rank, m->seat[request->rank].request.pid);
        return refuse(refusal, WIRE__CODE__JOB_FULL,
                      "job '%s' has formed with %u members and takes no more; rank 0 is pid %d. Join as a "
                      "spare to wait for a place",
                      m->name, m->n, m->seat[0].request.pid);
}

/* The place that is kept for this one: its own, the rank or local rank it asks for, else the first. Where a
 * restored place was is not known: it may be anybody's. */
static struct seat *find_vacant(struct membership *m, const struct membership_request *request) {
        if (request->returns && request->rank < m->n && m->seat[request->rank].state == SEAT_LOST)
                return &m->seat[request->rank];
        for (uint32_t i = 0; i < m->n && request->identity != 0; i++)
                if (m->seat[i].state == SEAT_LOST && m->seat[i].request.identity == request->identity &&
                    (!request->has_rank || request->rank == i))
                        return &m->seat[i];
        for (uint32_t i = 0; i < m->n; i++) {
                struct seat *place = &m->seat[i];

                if (place->state != SEAT_LOST || (request->has_rank && request->rank != place->rank))
                        continue;
                if (request->has_rank || !request->has_slot || request->slot == place->slot ||
                    place->slot == UINT32_MAX)
                        return place;
        }
        return NULL;
}

static bool can_grow(const struct membership *m, const struct membership_request *request) {
        return m->n + m->n_waiting < m->max_world && !request->has_rank && !places_any_explicit(m);
}

/* Gives the seat to the newcomer, in that state. */
static void join_seat(struct seat *seat, const struct seat *newcomer, uint64_t now, enum seat_state state) {
        const struct membership_request *request = &newcomer->request;

        *seat = *newcomer;
        seat->id = 0; /* until it belongs to a generation */
        seat->deadline = request->timeout > 0 ? now + request->timeout : UINT64_MAX;
        seat_set_state(seat, state);
}

/* The newcomer waits after the others, until the next generation. */
static int join_waiting(struct membership *m, const struct seat *newcomer, uint64_t now,
                        struct refusal *refusal) {
        int r = check_size(m, &newcomer->request, refusal);

        if (r != 0)
                return r;
        if (m->n + m->n_waiting == m->most)
                return refuse(refusal, WIRE__CODE__JOB_FULL,
                              "job '%s' has %u members, and %u processes wait for a place: no more can",
                              m->name, m->n, m->n_waiting);
        join_seat(seats_open(m, m->n + m->n_waiting), newcomer, now, SEAT_WAITING);
        m->n_waiting++;
        return 0;
}

static int join_behind(struct membership *m, const struct seat *newcomer, uint64_t now,
                       struct refusal *refusal) {
        if (can_grow(m, &newcomer->request) || newcomer->request.spare)
                return join_waiting(m, newcomer, now, refusal);
        return refuse_formed(m, &newcomer->request, refusal);
}

static int join_vacant(struct membership *m, const struct seat *newcomer, uint64_t now,
                       struct refusal *refusal) {
        const struct membership_request *request = &newcomer->request;
        int r = check_size(m, request, refusal);

        if (r != 0)
                return r;
        struct seat *place = find_vacant(m, request);
        if (place == NULL)
                return join_behind(m, newcomer, now, refusal);
        places_take(m, place, newcomer, request->timeout > 0 ? now + request->timeout : UINT64_MAX);
        return 0;
}

/* Those that wait for nothing else come before the spares. */
static int join_first(struct membership *m, const struct seat *newcomer, uint64_t now,
                      struct refusal *refusal) {
        int r = check_size(m, &newcomer->request, refusal);

        if (r == 0)
                r = join_check_place(m, &newcomer->request, refusal);
        if (r == 0 && m->n > 0 && m->n == m->max_world)
                r = refuse(refusal, WIRE__CODE__JOB_FULL,
                           "job '%s' has all of its %u members; the first is pid %d. Join as a spare to "
                           "wait for a place",
                           m->name, m->n, m->seat[0].request.pid);
        if (r == 0 && m->n + m->n_waiting == m->most)
                r = refuse(refusal, WIRE__CODE__JOB_FULL,
                           "job '%s' has %u members and %u spares: no more can come", m->name, m->n,
                           m->n_waiting);
        if (r != 0)
                return r;
        join_seat(seats_open(m, m->n), newcomer, now, SEAT_HELD);
        m->n++;
        return 0;
}

/* The last call of the member that makes the world large enough; of a spare it may be longer: see
 * gradsync_join(). */
static uint64_t longest_call(const struct membership *m, uint64_t longest) {
        for (uint32_t i = m->n; i < m->n + m->n_waiting; i++)
                if (m->seat[i].request.last_call > longest)
                        longest = m->seat[i].request.last_call;
        return longest;
}

static int join_forming(struct membership *m, const struct seat *newcomer, uint64_t now,
                        struct refusal *refusal) {
        const struct membership_request *request = &newcomer->request;
        bool first = m->n + m->n_waiting == 0;
        int r = request->spare ? join_waiting(m, newcomer, now, refusal)
                               : join_first(m, newcomer, now, refusal);

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

/* A newer process of the same identity takes the place of the older one, which is removed; an older one is
 * refused. */
static int join_fence(struct membership *m, const struct membership_request *request, uint64_t now,
                      struct refusal *refusal) {
        for (uint32_t i = 0; i < m->n + m->n_waiting && request->identity != 0; i++) {
                struct seat other = m->seat[i];

                if (other.state >= SEAT_LOST || other.request.identity != request->identity)
                        continue;
                if (other.request.instance >= request->instance)
                        return refuse_for(
                                refusal, WIRE__CODE__STALE, other.rank, other.request.pid,
                                "job '%s': pid %d is the same or a newer process of this member; end "
                                "this one",
                                m->name, other.request.pid);
                m->fenced = other.request.member;
                membership_remove(m, m->fenced, WIRE__CAUSE__SUPERSEDED, now);
                seats_turn_away(m, other, SEAT_FENCED);
                return 0;
        }
        return 0;
}

static int join_any(struct membership *m, const struct seat *newcomer, uint64_t now,
                    struct refusal *refusal) {
        const struct membership_request *request = &newcomer->request;

        if (request->incarnation < m->incarnation)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s' is in incarnation %llu, this process belongs to %llu: it was "
                              "restarted meanwhile",
                              m->name, (unsigned long long)m->incarnation,
                              (unsigned long long)request->incarnation);
        int r = join_fence(m, request, now, refusal);
        if (r != 0)
                return r;
        if (m->state == MEMBERSHIP_REPLACING)
                return join_vacant(m, newcomer, now, refusal);
        if (m->state == MEMBERSHIP_FORMED)
                return join_behind(m, newcomer, now, refusal);
        if (m->state != MEMBERSHIP_FORMING)
                return refuse_formed(m, request, refusal);
        return join_forming(m, newcomer, now, refusal);
}

int membership_join(struct membership *m, const struct membership_request *request, uint64_t now,
                    struct refusal *refusal) {
        struct seat newcomer = { .request = *request, .state = SEAT_ASKS };
        struct seat *noted = membership_find(m, request->member);

        m->fenced = 0;
        if (noted != NULL) {
                newcomer.tag = noted->tag;
                seats_close(m, (uint32_t)(noted - m->seat));
        }
        int r = join_any(m, &newcomer, now, refusal);
        if (r != 0 && noted != NULL)
                seats_turn_away(m, newcomer, SEAT_REFUSED);
        return r;
}
