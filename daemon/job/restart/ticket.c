/* SPDX-License-Identifier: Apache-2.0 */
/* See ticket.h. */
#include "job/restart/ticket.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan.h"

static struct ticket_plan ticket_track(const struct job *job, uint32_t track) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed && plan->track == track)
                        return (struct ticket_plan){ plan->ordinal, track,
                                                     machine_before(job, plan->ordinal) };
        return (struct ticket_plan){ TICKET_NO_PLAN, track, machine_committed(job, track) };
}

void ticket_of(const struct job *job, struct ticket *ret) {
        const struct node *node = &job->machine.node;

        ret->generation = node->generation;
        ret->edition = job->ticket;
        ret->n_ranks = ret->n_tracks = 0;
        ret->operations = machine_committed(job, TRACK_OPERATION);
        for (uint32_t local = 0; local < job->n_local; local++)
                ret->rank[ret->n_ranks++] = job->local[local]->rank;
        for (uint32_t track = TRACK_STEP; track < node->n_tracks; track++)
                ret->track[ret->n_tracks++] = ticket_track(job, track);
}

void ticket_alone(struct ticket *ticket, uint32_t generation, uint32_t world) {
        ticket->generation = (struct generation){ .number = generation };
        ticket->edition = 0;
        ticket->n_tracks = 0;
        ticket->operations = 0;
        ticket->n_ranks = world < LIMIT_LOCAL ? world : LIMIT_LOCAL;
        for (uint32_t rank = 0; rank < ticket->n_ranks; rank++)
                ticket->rank[rank] = rank;
}

const struct ticket_plan *ticket_find(const struct ticket *ticket, uint32_t plan) {
        for (uint32_t i = 0; i < ticket->n_tracks; i++)
                if (ticket->track[i].plan == plan)
                        return &ticket->track[i];
        return NULL;
}

/* Each of them is there once, and there is one for each plan. */
static bool ticket_tracks_are_valid(const struct ticket *ticket) {
        bool taken[LIMIT_TRACKS] = { false };

        for (uint32_t i = 0; i < ticket->n_tracks; i++) {
                const struct ticket_plan *plan = &ticket->track[i];

                if (!track_is_step(plan->track) || plan->track >= LIMIT_TRACKS || taken[plan->track] ||
                    plan->before >= LIMIT_NUMBER ||
                    (plan->plan != TICKET_NO_PLAN && ticket_find(ticket, plan->plan) != plan))
                        return false;
                taken[plan->track] = true;
        }
        return true;
}

int ticket_check(const struct ticket *ticket, const char *job, uint32_t rank, uint32_t world,
                 struct refusal *refusal) {
        bool valid = ticket_tracks_are_valid(ticket) && ticket->generation.term < LIMIT_NUMBER &&
                     ticket->operations < LIMIT_NUMBER;
        bool own = false;

        for (uint32_t i = 0; i < ticket->n_ranks; i++) {
                valid &= ticket->rank[i] < world && (i == 0 || ticket->rank[i] > ticket->rank[i - 1]);
                own |= ticket->rank[i] == rank;
        }
        if (valid && own)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "job '%s', rank %u of %u: no gradsyncd has given the ticket that it brings back", job,
                      rank, world);
}

uint32_t ticket_tracks(const struct ticket *ticket) {
        uint32_t n = TRACK_STEP + 1;

        for (uint32_t i = 0; i < ticket->n_tracks; i++)
                if (ticket->track[i].track >= n)
                        n = ticket->track[i].track + 1;
        return n;
}

bool ticket_is_newer(const struct ticket *ticket, const struct ticket *other) {
        int later = generation_compare(ticket->generation, other->generation);

        return later > 0 || (later == 0 && ticket->edition > other->edition);
}

bool ticket_agrees(const struct ticket *a, const struct ticket *b) {
        return a->n_ranks == b->n_ranks && memcmp(a->rank, b->rank, a->n_ranks * sizeof(a->rank[0])) == 0;
}
