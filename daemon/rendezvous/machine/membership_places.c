/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks and local ranks of members: when the job forms, when a member takes a place over, and in the next
 * generation.
 */
#include "rendezvous/machine/membership_private.h"

#include <stdlib.h>
#include <string.h>

bool places_any_explicit(const struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].request.has_rank)
                        return true;
        return false;
}

uint32_t membership_fitting(const struct membership *m) {
        uint32_t room = m->n < m->max_world ? m->max_world - m->n : 0;

        if (places_any_explicit(m))
                return 0;
        return m->n_waiting < room ? m->n_waiting : room;
}

static uint32_t lowest_free(struct nodeset taken) {
        uint32_t number = 0;

        while (nodeset_has(taken, number))
                number++;
        return number;
}

/* The lowest local rank of a host that none of the first n members has. */
static uint32_t free_slot(const struct membership *m, uint32_t n, uint32_t host) {
        struct nodeset taken = RANKS_SCRATCH;

        for (uint32_t i = 0; i < n; i++)
                if (m->seat[i].request.host == host && m->seat[i].slot <= LIMIT_WORLD)
                        nodeset_add(taken, m->seat[i].slot);
        return lowest_free(taken);
}

/* The rank goes to the newcomer; the local rank too, on the same host. */
void places_take(struct membership *m, struct seat *place, const struct seat *newcomer, uint64_t deadline) {
        const struct membership_request *request = &newcomer->request;
        bool elsewhere = request->host != place->request.host;

        place->request = *request;
        place->tag = newcomer->tag;
        place->in = newcomer->in;
        place->behind = newcomer->behind;
        place->deadline = deadline;
        seat_set_state(place, SEAT_TAKEN);
        if (elsewhere) {
                place->slot = UINT32_MAX;
                place->slot = request->has_slot ? request->slot : free_slot(m, m->n, request->host);
        }
}

/* Whether a's place is on an earlier device than b's: below 0; on the same one: 0. */
static int by_device(const struct seat *a, const struct seat *b) {
        if (a->request.host != b->request.host)
                return a->request.host < b->request.host ? -1 : 1;
        if (a->request.device != b->request.device)
                return a->request.device < b->request.device ? -1 : 1;
        return 0;
}

static int by_slot(const void *left, const void *right) {
        const struct seat *a = left, *b = right;
        uint32_t slot_a = a->request.has_slot ? a->request.slot : UINT32_MAX;
        uint32_t slot_b = b->request.has_slot ? b->request.slot : UINT32_MAX;

        if (by_device(a, b) != 0)
                return by_device(a, b);
        if (slot_a != slot_b)
                return slot_a < slot_b ? -1 : 1;
        return a->request.member < b->request.member ? -1 : a->request.member > b->request.member;
}

static int by_rank(const void *left, const void *right) {
        const struct seat *a = left, *b = right;

        return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void assign_ranks(struct membership *m) {
        struct nodeset taken = RANKS_SCRATCH;
        uint32_t next = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].request.has_rank)
                        nodeset_add(taken, m->seat[i].request.rank);
        qsort(m->seat, m->n, sizeof(m->seat[0]), by_slot);
        for (uint32_t i = 0; i < m->n; i++) {
                struct seat *member = &m->seat[i];

                if (member->request.has_rank) {
                        member->rank = member->request.rank;
                        continue;
                }
                while (nodeset_has(taken, next))
                        next++;
                member->rank = next++;
        }
        qsort(m->seat, m->n, sizeof(m->seat[0]), by_rank);
}

#define NO_SLOT UINT32_MAX /* yet */

/* Members of this host that have asked for no local rank get the lowest free ones, in their order. */
static void assign_host(struct membership *m, uint32_t first) {
        struct nodeset taken = RANKS_SCRATCH;
        uint32_t host = m->seat[first].request.host, next = 0;

        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].request.host == host && m->seat[i].slot != NO_SLOT)
                        nodeset_add(taken, m->seat[i].slot);
        for (uint32_t i = first; i < m->n; i++) {
                if (m->seat[i].request.host != host || m->seat[i].slot != NO_SLOT)
                        continue;
                while (nodeset_has(taken, next))
                        next++;
                m->seat[i].slot = next++;
        }
}

static void assign_slots(struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                m->seat[i].slot = m->seat[i].request.has_slot ? m->seat[i].request.slot : NO_SLOT;
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].slot == NO_SLOT)
                        assign_host(m, i);
}

/* A later member stands after the others of its device. On one device no other rank changes. */
static void order(struct membership *m) {
        for (uint32_t i = 1; i < m->n; i++) {
                struct seat moving = m->seat[i];
                uint32_t at = i;

                if (by_device(&moving, &m->seat[i - 1]) >= 0)
                        continue;
                for (; at > 0 && by_device(&moving, &m->seat[at - 1]) < 0; at--)
                        m->seat[at] = m->seat[at - 1];
                m->seat[at] = moving;
        }
        for (uint32_t i = 0; i < m->n; i++)
                m->seat[i].rank = i;
}

/* The members that stay close ranks. The waiting ones move up after them. */
static void close_ranks(struct membership *m) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < m->n; i++) {
                if (m->seat[i].state == SEAT_LOST)
                        continue;
                m->seat[n] = m->seat[i];
                m->seat[n].rank = n;
                seat_set_state(&m->seat[n++], SEAT_HELD);
        }
        memmove(&m->seat[n], &m->seat[m->n], (m->n_waiting + m->n_others) * sizeof(m->seat[0]));
        m->n = n;
}

/* Takes in as many waiting members as there is room for. */
static void take_waiting(struct membership *m) {
        uint32_t fitting = membership_fitting(m);

        for (uint32_t i = 0; i < fitting; i++) {
                struct seat *member = &m->seat[m->n];

                member->slot = free_slot(m, m->n, member->request.host);
                member->rank = m->n++;
                seat_set_state(member, SEAT_HELD);
        }
        m->n_waiting -= fitting;
}

/* Small numbers, for people and for files: a place keeps the one that it has got. */
static void give_ids(struct membership *m) {
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].id > m->last_id)
                        m->last_id = m->seat[i].id;
        for (uint32_t i = 0; i < m->n; i++)
                if (m->seat[i].id == 0)
                        m->seat[i].id = ++m->last_id;
}

/* The next generation: without those that are lost, with those that wait. Where ranks were asked for, they
 * stay. */
void places_regenerate(struct membership *m) {
        uint32_t before = m->n;

        close_ranks(m);
        if (m->n < before || membership_fitting(m) > 0) {
                take_waiting(m);
                order(m);
        }
        give_ids(m);
}

/* Ranks and local ranks of a job that forms. */
void places_assign(struct membership *m) {
        assign_ranks(m);
        assign_slots(m);
        give_ids(m);
}
