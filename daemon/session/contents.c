/* SPDX-License-Identifier: Apache-2.0 */
/* See contents.h. */
#include "session/contents.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "gradsync.pb-c.h"
#include "proto/codec.h"

#define CONTENTS_SCRATCH 65536u /* for the decoder: far more than a ticket with all that it may have */

size_t contents_pack(const struct ticket *ticket, uint8_t out[LIMIT_TICKET]) {
        Wire__TicketContents contents = WIRE__TICKET_CONTENTS__INIT;
        Wire__TicketPlan plan[LIMIT_PLANS], *list[LIMIT_PLANS];

        SET(contents, generation, ticket->generation.number);
        SET(contents, term, ticket->generation.term);
        SET(contents, nonce, ticket->generation.nonce);
        SET(contents, edition, ticket->edition);
        SET(contents, operations, ticket->operations);
        contents.n_rank = ticket->n_ranks;
        contents.rank = (uint32_t *)(uintptr_t)ticket->rank;
        contents.n_plan = ticket->n_tracks;
        contents.plan = list;
        for (uint32_t i = 0; i < ticket->n_tracks; i++) {
                wire__ticket_plan__init(&plan[i]);
                SET_IF(plan[i], plan, ticket->track[i].plan != TICKET_NO_PLAN, ticket->track[i].plan);
                SET(plan[i], track, ticket->track[i].track);
                SET(plan[i], before, ticket->track[i].before);
                list[i] = &plan[i];
        }
        assert(wire__ticket_contents__get_packed_size(&contents) <= LIMIT_TICKET);
        return wire__ticket_contents__pack(&contents, out);
}

static bool contents_take(const Wire__TicketContents *contents, struct ticket *ret) {
        if (contents->n_rank > LIMIT_LOCAL || contents->n_plan > LIMIT_PLANS)
                return false;
        *ret = (struct ticket){ .generation = { contents->term, contents->generation, contents->nonce },
                                .edition = contents->edition,
                                .n_ranks = (uint32_t)contents->n_rank,
                                .n_tracks = (uint32_t)contents->n_plan,
                                .operations = contents->operations };
        for (size_t i = 0; i < contents->n_rank; i++)
                ret->rank[i] = contents->rank[i];
        for (size_t i = 0; i < contents->n_plan; i++)
                ret->track[i] =
                        (struct ticket_plan){ .plan = contents->plan[i]->has_plan ? contents->plan[i]->plan
                                                                                  : TICKET_NO_PLAN,
                                              .track = contents->plan[i]->track,
                                              .before = contents->plan[i]->before };
        return true;
}

int contents_read(const uint8_t *bytes, size_t length, struct ticket *ret, struct refusal *refusal) {
        struct scratch scratch = { .buffer = aligned_alloc(SCRATCH_ALIGN, CONTENTS_SCRATCH),
                                   .size = CONTENTS_SCRATCH };
        const Wire__TicketContents *contents = NULL;

        if (scratch.buffer == NULL)
                return -ENOMEM;
        if (length <= LIMIT_TICKET)
                contents = wire__ticket_contents__unpack(scratch_begin(&scratch), length, bytes);
        bool good = contents != NULL && contents_take(contents, ret);
        free(scratch.buffer);
        return good ? 0
                    : refuse(refusal, WIRE__CODE__INVALID,
                             "no gradsyncd has given the ticket that this member brings back");
}
