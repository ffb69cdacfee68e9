/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a loss to its verdict: freeze, then either fill all lanes up to the cut, or, where that cannot be
 * reached, abort the engine. Each wait has a deadline, after which comes the next harder means: drain, abort
 * and rebuild, expel a node.
 */
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/coordinator_private.h"

bool loss_found(const struct coordinator *c) {
        return c->membership.state == MEMBERSHIP_REPLACING || c->membership.state == MEMBERSHIP_BROKEN ||
               c->tally.lost > 0 || c->tally.failing > 0;
}

void loss_begin(struct coordinator *c, uint64_t now) {
        c->growing = false;
        if (c->membership.loss.cause == 0) /* no member: a daemon or a link, or the coordinator before */
                c->membership.loss.cause =
                        c->tally.lost > 0 ? WIRE__CAUSE__UNREACHABLE : WIRE__CAUSE__RESTARTED;
        if (c->tally.survivors == 0)
                member_begin_anew(c, now);
        else
                coordinator_give(c, now, STAGE_FREEZING);
}

void loss_node(struct coordinator *c, uint64_t now, uint32_t node, uint32_t cause) {
        coordinator_lose_node(c, node);
        c->abort = true;
        member_forget(c, now, node, cause);
        if (c->stage != STAGE_ENDED)
                loss_begin(c, now);
}

/* Fewer failed links first; of equals the one with the lower rank among the nodes stays. */
static uint32_t find_worst(struct coordinator *c) {
        uint32_t worst = LIMIT_NODES, most = 1;

        for (uint32_t node = 0; node < c->top; node++) {
                uint32_t failed = 0;

                if (!coordinator_survives(c, node))
                        continue;
                for (uint32_t other = 0; other < c->top; other++)
                        failed += coordinator_survives(c, other) &&
                                  (nodeset_has(coordinator_links_of(c, node), other) ||
                                   nodeset_has(coordinator_links_of(c, other), node));
                if (failed >= most) {
                        most = failed;
                        worst = node;
                }
        }
        return worst;
}

/* The last means. Without a failed link to blame, those that have not answered are taken for lost. */
void loss_expel(struct coordinator *c, uint64_t now, enum report_kind missing) {
        uint32_t worst = find_worst(c);

        if (worst < LIMIT_NODES) {
                loss_node(c, now, worst, WIRE__CAUSE__UNREACHABLE);
                return;
        }
        for (uint32_t node = c->top; node-- > 0;)
                if (coordinator_survives(c, node) &&
                    (!coordinator_is_answered(c, node) || c->node[node].answer != missing)) {
                        loss_node(c, now, node, WIRE__CAUSE__UNREACHABLE);
                        return;
                }
}

/* A node that lacks what another one has committed is no survivor: it takes the others' state. */
static bool drop_those_behind(struct coordinator *c, uint64_t now) {
        uint64_t committed[LIMIT_TRACKS] = { 0 };
        struct nodeset behind = NODESET_SCRATCH;

        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t track = 0; track < c->n_tracks && coordinator_survives(c, node); track++)
                        if (coordinator_track(c, node, track)->committed > committed[track])
                                committed[track] = coordinator_track(c, node, track)->committed;
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t track = 0; track < c->n_tracks && coordinator_survives(c, node); track++)
                        if (coordinator_track(c, node, track)->prepared < committed[track])
                                nodeset_add(behind, node);
        for (uint32_t node = 0; node < c->top; node++)
                if (nodeset_has(behind, node))
                        loss_node(c, now, node, WIRE__CAUSE__RESTARTED);
        return !nodeset_empty(behind);
}

/* Finds the verdict: units for which all survivors are prepared are committed. Finds the cut as well. */
static void find_verdict(struct coordinator *c) {
        bool first = true;

        memset(c->cut, 0, sizeof(c->cut));
        for (uint32_t node = 0; node < c->top; node++) {
                const struct reporter *reporter = &c->node[node];

                if (!coordinator_survives(c, node))
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
        return !c->abort && c->tally.lost == 0 && c->comm.number > 0 && c->tally.failing == 0 &&
               c->tally.astray == 0;
}

static void advance_freeze(struct coordinator *c, uint64_t now) {
        if (!coordinator_all(c, ANSWER_FROZEN)) {
                if (now > c->since + c->config.times.build && !coordinator_any_away(c))
                        loss_expel(c, now, ANSWER_FROZEN);
                return;
        }
        if (drop_those_behind(c, now))
                return;
        find_verdict(c);
        c->abort = !can_drain(c);
        coordinator_give(c, now, c->abort ? STAGE_ABORTING : STAGE_CUTTING);
}

void loss_advance(struct coordinator *c, uint64_t now) {
        if (c->stage == STAGE_FREEZING) {
                advance_freeze(c, now);
        } else if (c->stage == STAGE_CUTTING) {
                if (coordinator_all(c, ANSWER_DRAINED)) {
                        coordinator_give(c, now, STAGE_DECIDED);
                } else if (now > c->since + c->config.times.drain || !can_drain(c)) {
                        c->abort = true;
                        coordinator_give(c, now, STAGE_ABORTING);
                }
        } else if (c->stage == STAGE_ABORTING) {
                if (coordinator_all(c, ANSWER_ABORTED))
                        coordinator_give(c, now, STAGE_DECIDED);
                else if (now > c->since + c->config.times.build)
                        loss_expel(c, now, ANSWER_ABORTED);
        } else if (c->stage == STAGE_DECIDED) {
                if (coordinator_all(c, ANSWER_SETTLED))
                        coordinator_set_stage(c, STAGE_SETTLED);
                else if (now > c->since + c->config.times.build)
                        loss_expel(c, now, ANSWER_SETTLED);
        }
}
