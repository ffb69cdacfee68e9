/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a loss to its verdict: freeze, then either fill all lanes up to the cut, or, where that cannot be
 * reached, abort the engine. Each wait has a deadline, behind which comes the next harder means: drain, abort
 * and rebuild, expel a node.
 */
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/coordinator_private.h"

bool loss_found(const struct coordinator *c) {
        uint64_t links = 0;

        for (uint32_t node = 0; node < c->top; node++)
                if (coordinator_survivors(c) >> node & 1)
                        links |= c->node[node].links;
        return c->membership.state == MEMBERSHIP_REPLACING || c->membership.state == MEMBERSHIP_BROKEN ||
               c->lost != 0 || links != 0;
}

void loss_begin(struct coordinator *c, uint64_t now) {
        c->settled = c->recording = c->growing = false;
        if (c->loss.cause == 0)
                c->loss.cause = c->lost != 0 ? WIRE__CAUSE__EXITED : WIRE__CAUSE__RESTARTED;
        if (coordinator_survivors(c) == 0)
                form_begin(c, now);
        else
                coordinator_give(c, now, ORDER_FREEZE);
}

void loss_node(struct coordinator *c, uint64_t now, uint32_t node) {
        c->lost |= UINT64_C(1) << node;
        c->abort = true;
        member_forget(c, now, node);
        if (c->order != ORDER_END)
                loss_begin(c, now);
}

/* Fewer failed links first; of equals the one with the lower rank among the nodes stays. */
static uint32_t most_failed_links(const struct coordinator *c, uint64_t *ret_links) {
        uint64_t among = coordinator_survivors(c);
        uint32_t worst = LIMIT_NODES, most = 0;

        *ret_links = 0;
        for (uint32_t node = 0; node < c->top; node++) {
                uint64_t failed = c->node[node].links;

                if ((among >> node & 1) == 0)
                        continue;
                for (uint32_t other = 0; other < c->top; other++)
                        if ((among >> other & 1) && (c->node[other].links >> node & 1))
                                failed |= UINT64_C(1) << other;
                failed &= among;
                if (failed != 0)
                        *ret_links |= UINT64_C(1) << node;
                if (failed != 0 && (uint32_t)__builtin_popcountll(failed) >= most) {
                        most = (uint32_t)__builtin_popcountll(failed);
                        worst = node;
                }
        }
        return worst;
}

/* The last means. Without a failed link to blame, those who have not answered are taken for lost. */
void loss_expel(struct coordinator *c, uint64_t now, enum message_kind missing) {
        uint32_t worst = most_failed_links(c, &c->links);

        if (worst < LIMIT_NODES) {
                loss_node(c, now, worst);
                return;
        }
        for (uint32_t node = c->top; node-- > 0;)
                if ((coordinator_survivors(c) >> node & 1) &&
                    (c->node[node].round != c->round || c->node[node].answer != missing)) {
                        loss_node(c, now, node);
                        return;
                }
}

/* A node that lacks what another one has committed is no survivor: it takes the others' state. */
static bool drop_those_behind(struct coordinator *c, uint64_t now) {
        uint64_t committed[LIMIT_TRACKS] = { 0 };
        uint64_t behind = 0;

        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t track = 0; track < c->n_tracks && (coordinator_survivors(c) >> node & 1);
                     track++)
                        if (coordinator_track(c, node, track)->committed > committed[track])
                                committed[track] = coordinator_track(c, node, track)->committed;
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t track = 0; track < c->n_tracks && (coordinator_survivors(c) >> node & 1);
                     track++)
                        if (coordinator_track(c, node, track)->prepared < committed[track])
                                behind |= UINT64_C(1) << node;
        for (uint32_t node = 0; node < c->top; node++)
                if (behind >> node & 1)
                        loss_node(c, now, node);
        return behind != 0;
}

/* What all survivors are prepared for is committed. */
static void find_verdict(struct coordinator *c) {
        bool first = true;

        memset(c->cut, 0, sizeof(c->cut));
        for (uint32_t node = 0; node < c->top; node++) {
                const struct reporter *reporter = &c->node[node];

                if ((coordinator_survivors(c) >> node & 1) == 0)
                        continue;
                for (uint32_t track = 0; track < c->n_tracks; track++)
                        if (first || coordinator_track(c, node, track)->prepared < c->verdict[track])
                                c->verdict[track] = coordinator_track(c, node, track)->prepared;
                for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                        if (first || (planted(PLANTED_CUT_TOO_LOW) ? reporter->seq[lane] < c->cut[lane]
                                                                   : reporter->seq[lane] > c->cut[lane]))
                                c->cut[lane] = reporter->seq[lane];
                first = false;
        }
}

/* Whether all nodes still have one communicator, all of whose nodes live and reach each other. */
static bool can_drain(const struct coordinator *c) {
        if (c->abort || c->lost != 0 || c->comm.number == 0)
                return false;
        for (uint32_t node = 0; node < c->top; node++)
                if ((c->set >> node & 1) &&
                    (c->node[node].links != 0 || !generation_equal(c->node[node].comm, c->comm)))
                        return false;
        return true;
}

static void advance_freeze(struct coordinator *c, uint64_t now) {
        if (!coordinator_all(c, ANSWER_FROZEN)) {
                if (now > c->since + c->config.times.build)
                        loss_expel(c, now, ANSWER_FROZEN);
                return;
        }
        if (drop_those_behind(c, now))
                return;
        find_verdict(c);
        c->abort = !can_drain(c);
        coordinator_give(c, now, c->abort ? ORDER_ABORT : ORDER_CUT);
}

void loss_advance(struct coordinator *c, uint64_t now) {
        if (c->order == ORDER_FREEZE) {
                advance_freeze(c, now);
        } else if (c->order == ORDER_CUT) {
                if (coordinator_all(c, ANSWER_DRAINED)) {
                        coordinator_give(c, now, ORDER_VERDICT);
                } else if (now > c->since + c->config.times.drain || !can_drain(c)) {
                        c->abort = true;
                        coordinator_give(c, now, ORDER_ABORT);
                }
        } else if (c->order == ORDER_ABORT) {
                if (coordinator_all(c, ANSWER_ABORTED))
                        coordinator_give(c, now, ORDER_VERDICT);
                else if (now > c->since + c->config.times.build)
                        loss_expel(c, now, ANSWER_ABORTED);
        } else if (c->order == ORDER_VERDICT) {
                if (coordinator_all(c, ANSWER_SETTLED))
                        c->settled = true;
                else if (now > c->since + c->config.times.build)
                        loss_expel(c, now, ANSWER_SETTLED);
        }
}
