/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The membership of one job. Ranks follow MEMBERSHIP's rule: an explicit request is granted or refused and
 * fixes the size; everybody else is numbered by local rank (slot), then by arrival. A job forms when
 * max_world members are there, or when min_world were there and the last call, which is never extended, has
 * passed.
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
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.member == member)
                        return &m->member[i];
        return NULL;
}

static int check_size(const struct membership *m, const struct membership_request *request,
                      struct refusal *refusal) {
        if (request->has_rank && request->rank >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': rank %u was asked for in a world of %u; ranks go from 0 to %u",
                              m->name, request->rank, request->max_world, request->max_world - 1);
        if (request->has_slot && request->slot >= request->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': local rank %u was asked for in a world of %u", m->name,
                              request->slot, request->max_world);
        if (m->n > 0 && (request->min_world != m->min_world || request->max_world != m->max_world))
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
                if (request->has_slot && other->has_slot && request->slot == other->slot)
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
                      "job '%s' has formed with %u members and takes no more; rank 0 is pid %d", m->name,
                      m->n, m->member[0].request.pid);
}

int membership_join(struct membership *m, const struct membership_request *request, uint64_t now,
                    struct refusal *refusal) {
        struct membership_member *member;
        int r;

        if (request->incarnation < m->incarnation)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s' is in incarnation %llu, this process belongs to %llu: it was "
                              "restarted meanwhile",
                              m->name, (unsigned long long)m->incarnation,
                              (unsigned long long)request->incarnation);
        if (m->state != MEMBERSHIP_FORMING)
                return refuse_formed(m, request, refusal);
        r = check_size(m, request, refusal);
        if (r == 0)
                r = check_place(m, request, refusal);
        if (r == 0 && m->n > 0 && m->n == m->max_world)
                r = refuse(refusal, WIRE__CODE__JOB_FULL,
                           "job '%s' has all of its %u members; the first is pid %d", m->name, m->n,
                           m->member[0].request.pid);
        if (r != 0)
                return r;

        m->min_world = request->min_world;
        m->max_world = request->max_world;
        member = &m->member[m->n++];
        *member = (struct membership_member){
                .request = *request,
                .deadline = request->timeout > 0 ? now + request->timeout : UINT64_MAX,
        };
        if (m->n >= m->min_world && m->last_call == UINT64_MAX)
                m->last_call = now + request->last_call;
        return 0;
}

static bool any_explicit(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        return true;
        return false;
}

static int by_slot(const void *left, const void *right) {
        const struct membership_member *a = left, *b = right;
        uint32_t slot_a = a->request.has_slot ? a->request.slot : UINT32_MAX;
        uint32_t slot_b = b->request.has_slot ? b->request.slot : UINT32_MAX;

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

static void assign_slots(struct membership *m) {
        bool taken[LIMIT_WORLD] = { false };
        uint32_t next = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_slot)
                        taken[m->member[i].request.slot] = true;
        for (uint32_t i = 0; i < m->n; i++) {
                struct membership_member *member = &m->member[i];

                if (member->request.has_slot) {
                        member->slot = member->request.slot;
                        continue;
                }
                while (taken[next])
                        next++;
                member->slot = next++;
        }
}

static bool form(struct membership *m, uint64_t now) {
        bool complete = m->n > 0 && m->n == m->max_world;
        bool enough = m->n > 0 && m->n >= m->min_world && now >= m->last_call && !any_explicit(m);

        if (m->state != MEMBERSHIP_FORMING || (!complete && !enough))
                return false;
        assign_ranks(m);
        assign_slots(m);
        m->state = MEMBERSHIP_FORMED;
        m->generation++;
        return true;
}

static void take_out(struct membership *m, uint32_t index) {
        memmove(&m->member[index], &m->member[index + 1], (m->n - index - 1) * sizeof(m->member[0]));
        m->n--;
        if (m->n < m->min_world)
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
                snprintf(text, size, "%u missing", m->max_world - m->n);
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

enum membership_event membership_tick(struct membership *m, uint64_t now, uint64_t *ret_member,
                                      struct refusal *refusal) {
        if (form(m, now))
                return MEMBERSHIP_HAS_FORMED;
        if (m->state != MEMBERSHIP_FORMING)
                return MEMBERSHIP_NOTHING;
        for (uint32_t i = 0; i < m->n; i++) {
                struct membership_member gone = m->member[i];
                char missing[128];

                if (now < gone.deadline)
                        continue;
                name_missing(m, missing, sizeof(missing));
                refuse(refusal, WIRE__CODE__TIMEOUT,
                       "job '%s' did not form within %.1f s: %u of %u members are here (%s); start the "
                       "others, or raise the join time-out",
                       m->name, (double)gone.request.timeout / 1e6, m->n, m->max_world, missing);
                take_out(m, i);
                *ret_member = gone.request.member;
                return MEMBERSHIP_EXPIRED;
        }
        return MEMBERSHIP_NOTHING;
}

uint64_t membership_deadline(const struct membership *m) {
        uint64_t soonest = UINT64_MAX;

        if (m->state != MEMBERSHIP_FORMING)
                return UINT64_MAX;
        if (!any_explicit(m))
                soonest = m->last_call;
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].deadline < soonest)
                        soonest = m->member[i].deadline;
        return soonest;
}

bool membership_remove(struct membership *m, uint64_t member, uint32_t cause) {
        for (uint32_t i = 0; i < m->n; i++) {
                if (m->member[i].request.member != member)
                        continue;
                if (m->state == MEMBERSHIP_FORMING) {
                        take_out(m, i);
                        return false;
                }
                if (m->state == MEMBERSHIP_BROKEN)
                        return false;
                m->state = MEMBERSHIP_BROKEN;
                m->loss = (struct membership_loss){ .member = member, .rank = m->member[i].rank,
                                                    .pid = m->member[i].request.pid, .cause = cause };
                return true;
        }
        return false;
}

bool membership_end(struct membership *m, uint32_t cause) {
        if (m->state != MEMBERSHIP_FORMED)
                return false;
        m->state = MEMBERSHIP_BROKEN;
        m->loss = (struct membership_loss){ .cause = cause };
        return true;
}
