/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a generation: who belongs to it, on which nodes, whose state counts. It is in force when all its
 * nodes have entered it.
 */
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

void form_end(struct coordinator *c, uint64_t now, enum job_end end) {
        c->end = end;
        coordinator_give(c, now, STAGE_ENDED);
}

/* An open unit gets its verdict first. */
void form_break(struct coordinator *c, uint64_t now) {
        if (membership_end(&c->membership, c->cause))
                return;
        if (c->membership.state == MEMBERSHIP_FORMING) {
                c->membership.loss = (struct membership_loss){ .cause = c->cause };
                form_end(c, now, c->ending);
        }
}

/* The communicator stays where it has all that it takes. A node without members stays in it, until it is made
 * anew. */
static bool comm_stays(struct coordinator *c, uint64_t now, struct nodeset wanted) {
        if (c->comm.number == 0 || c->abort || c->tally.lost > 0 || !nodeset_within(wanted, c->set))
                return false;
        return c->empty_since == 0 || now < c->empty_since + c->membership.grace;
}

/* Finds the units that all nodes have committed by now. They are less than the verdict, if a unit that was to
 * be committed was spoilt. */
static void find_marks(struct coordinator *c) {
        bool first = true;

        for (uint32_t node = 0; node < c->top; node++) {
                if (!coordinator_survives(c, node))
                        continue;
                for (uint32_t track = 0; track < c->n_tracks; track++)
                        if (first || coordinator_track(c, node, track)->committed < c->verdict[track])
                                c->verdict[track] = coordinator_track(c, node, track)->committed;
                first = false;
        }
}

/* Finds how far any node has come, in a world that begins anew. */
static void find_marks_anew(struct coordinator *c) {
        memset(c->verdict, 0, c->n_tracks * sizeof(*c->verdict));
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t track = TRACK_STEP; track < c->n_tracks && c->node[node].known; track++)
                        if (coordinator_track(c, node, track)->committed > c->verdict[track])
                                c->verdict[track] = coordinator_track(c, node, track)->committed;
}

/* The numbers of steps go on at the state. It may have more steps than these nodes know, as one that was read
 * from a file has. Those are no steps of the nodes' plans. */
static void add_unknown_steps(struct coordinator *c, const struct tag *tag) {
        struct track_owner *first = &c->owner[TRACK_STEP];
        uint64_t steps = 0;

        for (uint32_t track = TRACK_STEP; track < c->n_tracks; track++)
                steps += c->verdict[track];
        if (tag->step <= steps)
                return;
        c->verdict[TRACK_STEP] += tag->step - steps;
        if (first->held)
                first->before += tag->step - steps;
}

/* Some node reports a number so near to the end of numbers that no later one could be said. */
static bool counted_out(const struct coordinator *c, const struct tag *tag) {
        return c->number >= LIMIT_GENERATION || tag->step > LIMIT_NUMBER / 2;
}

static void make(struct coordinator *c, uint64_t now) {
        struct nodeset wanted = NODESET_SCRATCH;
        struct tag tag;

        source_find(c, &tag);
        if ((tag_compare(&tag, &c->history) < 0 && !planted(PLANTED_STATE_OF_ANYBODY)) ||
            counted_out(c, &tag)) {
                form_end(c, now, JOB_END_NO_STATE);
                return;
        }
        if (tag_compare(&tag, &c->history) > 0)
                c->history = tag; /* what the generation begins with; its nodes remember it for the next
                                     coordinator */
        bool anew = nodeset_empty(c->set);
        if (anew) {
                find_marks_anew(c);
        } else {
                find_marks(c);
                tracks_keep(c, false);
        }
        c->torn = source_is_torn(c);
        c->behind = source_is_lacked(c, &tag) || (c->torn && source_is_due(c));
        if (!planted(PLANTED_GENERATION_TWICE) || c->number == 0)
                c->number++;
        c->current = (struct generation){ c->term, c->number, c->config.nonce };
        c->membership.generation = c->current.number;
        member_add_nodes(c, wanted);
        if (comm_stays(c, now, wanted))
                nodeset_copy(wanted, c->set);
        else
                c->comm = c->current;
        coordinator_set_nodes(c, wanted);
        c->abort = c->growing = false;
        c->empty_since = 0;
        agree_begin(c);
        tracks_begin(c);
        if (anew) {
                tracks_keep(c, true);
                add_unknown_steps(c, &tag);
        }
        launches_begin(c);
        c->made = c->current;
        nodeset_copy(c->made_set, c->set);
        coordinator_give(c, now, STAGE_ENTERING);
        c->entering = c->round;
}

/* All nodes have let go of the generation before. The membership decides what follows, and when. A node that
 * is about to be followed by another run of its daemon would not enter the next generation: that run comes
 * from the generation before, as all other nodes must then. */
static void advance_settled(struct coordinator *c, uint64_t now) {
        if (c->growing && c->membership.state != MEMBERSHIP_FORMED) {
                loss_begin(c, now); /* a member was lost meanwhile, and no node knows */
                return;
        }
        if (c->n_waits > 0 && c->membership.state != MEMBERSHIP_BROKEN)
                return;
        c->membership.busy = false;
        c->membership.boundary = true;
        enum membership_event event = member_tick(c, now);
        c->membership.boundary = false;
        if (event == MEMBERSHIP_HAS_BROKEN || c->membership.state == MEMBERSHIP_BROKEN)
                form_end(c, now, c->ending != JOB_END_NONE ? c->ending : JOB_END_TOO_FEW);
        else if ((event == MEMBERSHIP_HAS_FORMED || c->membership.state == MEMBERSHIP_FORMED) &&
                 !coordinator_any_away(c))
                make(c, now);
}

/* A communicator with a broken link is of no use: the node at the other end may wait for it for as long as
 * its engine does. The next one may have better luck. No node is taken for lost before nodes have had as long
 * as they may take to build one; then the others have said which of their links are broken as well. */
static void entering_fails(struct coordinator *c, uint64_t now) {
        if (c->unbuilt == 0)
                c->unbuilt = c->since;
        if (now > c->unbuilt + c->config.times.build) {
                c->unbuilt = 0;
                loss_expel(c, now, ANSWER_ACK);
        } else {
                c->abort = true;
                loss_begin(c, now);
        }
}

static void advance_entering(struct coordinator *c, uint64_t now) {
        const struct machine_times *times = &c->config.times;

        if (coordinator_all(c, ANSWER_ACK)) {
                c->unbuilt = 0;
                coordinator_give(c, now, STAGE_RUNNING);
        } else if (c->membership.state != MEMBERSHIP_FORMED || c->tally.lost > 0) {
                loss_begin(c, now);
        } else if (now > c->since + (c->tally.cut_off > 0 ? times->patience : times->build)) {
                entering_fails(c, now);
        }
}

void form_advance(struct coordinator *c, uint64_t now) {
        if (c->stage == STAGE_ENTERING) {
                advance_entering(c, now);
        } else if (c->stage == STAGE_SETTLED) {
                advance_settled(c, now);
        } else if (member_tick(c, now) == MEMBERSHIP_HAS_FORMED) {
                make(c, now);
        }
}
