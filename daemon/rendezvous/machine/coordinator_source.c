/* SPDX-License-Identifier: Apache-2.0 */
/* The source of the state in a generation, what members are told of it, and the secret of the nodes. */
#include <inttypes.h>
#include <stdio.h>

#include "proto/frame.h"
#include "rendezvous/machine/coordinator_private.h"

/* NULL: it is vacant. */
static const struct seat *seat_of(const struct coordinator *c, uint32_t rank) {
        const struct seat *seat = &c->membership.seat[rank];

        return seat->state != SEAT_LOST ? seat : NULL;
}

/* All members come from a file, but not from the same one. */
static bool files_differ(const struct coordinator *c) {
        const struct seat *first = seat_of(c, 0);
        bool differ = false;

        for (uint32_t rank = 0; rank < c->membership.n; rank++) {
                const struct seat *seat = seat_of(c, rank);

                if (first == NULL || seat == NULL || (seat->tag.step > 0 && !seat->tag.checkpoint))
                        return false;
                differ |= tag_compare(&seat->tag, &first->tag) != 0;
        }
        return differ;
}

/* Where files differ it is rank 0's that counts; a member that joins at that rank later does not change
 * it. */
static uint32_t find_chosen(const struct coordinator *c, struct tag *ret) {
        bool chosen = tag_compare(&c->history, &(struct tag){ 0 }) > 0 && !planted(PLANTED_STATE_OF_ANYBODY);

        for (uint32_t rank = 0; rank < c->membership.n && chosen; rank++) {
                const struct seat *seat = seat_of(c, rank);

                if (seat != NULL && tag_compare(&seat->tag, &c->history) == 0) {
                        *ret = seat->tag;
                        return rank;
                }
        }
        if (seat_of(c, 0) != NULL)
                *ret = seat_of(c, 0)->tag;
        return 0;
}

/* The rank whose state the others take, and its tag: the largest one, of equals the lowest rank. */
uint32_t source_find(const struct coordinator *c, struct tag *ret) {
        uint32_t source = 0;

        *ret = (struct tag){ 0 };
        if (files_differ(c) || planted(PLANTED_STATE_OF_ANYBODY))
                return find_chosen(c, ret);
        for (uint32_t rank = 0; rank < c->membership.n; rank++) {
                const struct seat *seat = seat_of(c, rank);

                if (seat != NULL && (rank == 0 || tag_compare(&seat->tag, ret) > 0)) {
                        *ret = seat->tag;
                        source = rank;
                }
        }
        return source;
}

/* The member comes from the generation before, not from an earlier one or from outside. */
static bool source_is_former(const struct coordinator *c, const struct seat *seat) {
        return seat->in && coordinator_survives(c, seat->request.node) &&
               generation_equal(c->node[seat->request.node].generation, c->current);
}

/* The member was in some generation: it has not read its state from a file. */
static bool source_has_lived(const struct seat *seat) {
        return seat->request.returns || (seat->tag.step > 0 && !seat->tag.checkpoint);
}

/* A node may not know of an operation that others have committed without it. Its members have the same state
 * then, but are in another place of their program: from the state all go on alike. So do those of a world
 * that begins anew, where no node has heard what the others have committed last. */
static bool source_may_differ(const struct coordinator *c, const struct seat *seat) {
        return !c->config.alone && !source_is_former(c, seat) &&
               (c->current.number > 0 || source_has_lived(seat));
}

bool source_is_lacked(const struct coordinator *c, const struct tag *source) {
        for (uint32_t rank = 0; rank < c->membership.n; rank++) {
                const struct seat *seat = seat_of(c, rank);

                if (seat == NULL)
                        continue;
                if ((!source_is_former(c, seat) || seat->behind) &&
                    (tag_compare(&seat->tag, source) != 0 || (source->step == 0 && !seat->request.returns)))
                        return true;
                if (source_may_differ(c, seat))
                        return true;
        }
        return false;
}

/* Members were told to synchronise, and perhaps not all of them have: others have not heard of it. */
bool source_is_due(const struct coordinator *c) {
        bool due = false;

        for (uint32_t rank = 0; rank < c->membership.n; rank++)
                due |= seat_of(c, rank) != NULL && c->node[seat_of(c, rank)->request.node].behind &&
                       !planted(PLANTED_FORGETS_TO_SYNC);
        return due && !c->config.alone;
}

/* Void for one member is void for all: trainers repeat the whole step then, and what they call in it. A
 * member that is new repeats nothing, so the others have to. */
bool source_is_torn(const struct coordinator *c) {
        bool torn = c->membership.loss.member != 0;

        for (uint32_t rank = 0; rank < c->membership.n; rank++)
                torn |= seat_of(c, rank) == NULL || !source_is_former(c, seat_of(c, rank));
        for (uint32_t node = 0; node < c->top; node++)
                torn |= coordinator_survives(c, node) && c->node[node].torn &&
                        !planted(PLANTED_VOID_FOR_SOME);
        return torn;
}

/* Data of the generation leaves a host. */
static bool spans_hosts(const struct coordinator *c) {
        uint32_t first = LIMIT_NODES;

        for (uint32_t node = 0; node < c->top; node++) {
                if (!nodeset_has(c->set, node))
                        continue;
                if (first == LIMIT_NODES)
                        first = node;
                else if (c->node[node].host != c->node[first].host)
                        return true;
        }
        return false;
}

/* Derived, so that it is the same each time the order is said. No other coordinator says this order. */
static bool fill_secret(const struct coordinator *c, struct order *order) {
        char about[LIMIT_NAME + 160];

        if (!spans_hosts(c))
                return true;
        int n = snprintf(about, sizeof(about),
                         "gradsync generation %" PRIu64 ".%" PRIu32 ".%" PRIu32 " of incarnation %" PRIu64
                         " of %u/%s",
                         c->current.term, c->current.number, c->current.nonce, c->config.incarnation,
                         (unsigned)c->config.uid, c->config.name);
        return sha256_hmac(&c->config.key, sizeof(c->config.key), about, (size_t)n, &order->secret) == 0;
}

/* The members of that node, with their ranks. */
bool source_fill_order(const struct coordinator *c, struct order *order) {
        struct tag tag;

        order->world = c->membership.n;
        order->source = source_find(c, &tag);
        order->history = c->history;
        order->next_plan = c->next_plan;
        order->behind = c->behind;
        order->torn = c->torn;
        for (uint32_t rank = 0; rank < c->membership.n; rank++) {
                const struct seat *seat = seat_of(c, rank);
                bool twice = planted(PLANTED_RANK_TWICE) && rank + 1 == c->membership.n && rank > 0;

                if (seat != NULL && seat->request.node == order->to)
                        order->member_of[order->n_members++] =
                                (struct order_member){ .member = seat->request.member,
                                                       .tag = seat->tag,
                                                       .rank = rank - twice,
                                                       .slot = seat->slot,
                                                       .id = seat->id,
                                                       .behind = tag_compare(&seat->tag, &tag) != 0 };
        }
        return fill_secret(c, order);
}
