/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's list of members, as the nodes report them: one that is new asks for a place, one that is
 * no longer there is lost. Places, ranks and grace are the membership's business.
 *
 * Then the way from a loss to its verdict: freeze, then either fill all lanes up to the cut, or, where that
 * cannot be reached, abort the engine. Each wait has a deadline, after which comes the next harder means:
 * drain, abort and rebuild, expel a node.
 */
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/coordinator_private.h"

static void keep_refusal(struct coordinator *c, uint64_t member, const struct refusal *refusal) {
        if (c->config.n_texts > 0)
                c->refused[c->n_refused++ % c->config.n_texts] =
                        (struct coordinator_refusal){ member, *refusal };
}

/* The text that was found when the member was turned away; of many the latest ones are kept. */
static struct refusal refusal_of(const struct coordinator *c, uint64_t member, enum job_end end) {
        struct refusal refusal = { 0 };

        for (uint32_t i = 0; i < c->config.n_texts && end != JOB_END_NONE; i++)
                if (c->refused[i].member == member)
                        return c->refused[i].refusal;
        if (end == JOB_END_NONE)
                refuse(&refusal, WIRE__CODE__OK, "job '%s': this member has said goodbye", c->config.name);
        else if (end == JOB_END_FENCED)
                refuse(&refusal, WIRE__CODE__STALE,
                       "job '%s': a newer process has this member's place; end this one", c->config.name);
        else
                refuse(&refusal, WIRE__CODE__INVALID,
                       "job '%s' has turned this member away; gradsyncctl status says who is in it",
                       c->config.name);
        return refusal;
}

/* refusal: NULL if it was said before, or there is none. */
static void refuse_member(struct coordinator *c, uint32_t node, uint64_t member, enum job_end end,
                          const struct refusal *refusal) {
        struct order order;

        coordinator_address(c, node, ORDER_REFUSE, &order);
        order.member = member;
        order.end = end;
        order.refusal = refusal != NULL ? *refusal : refusal_of(c, member, end);
        effects_order(&c->out, &order);
}

/* Said again with each report in which it still appears. */
static void turn_away(struct coordinator *c, const struct seat *seat, const struct refusal *refusal) {
        if (refusal != NULL)
                keep_refusal(c, seat->request.member, refusal);
        refuse_member(c, seat->request.node, seat->request.member,
                      seat->state == SEAT_FENCED ? JOB_END_FENCED : JOB_END_REFUSED, refusal);
}

static void turn_away_older(struct coordinator *c, const struct seat *older,
                            const struct membership_request *newer) {
        struct refusal refusal = { 0 };

        refuse_for(&refusal, WIRE__CODE__STALE, older->rank, newer->pid,
                   "job '%s': rank %u, pid %d, was replaced by pid %d, a newer process of the same member; "
                   "end this one",
                   c->config.name, older->rank, older->request.pid, newer->pid);
        turn_away(c, older, &refusal);
}

static bool has_place_or_waits(const struct seat *seat) {
        return seat->state == SEAT_WAITING || seat->state == SEAT_HELD || seat->state == SEAT_TAKEN;
}

/* The first member of a node, where the job is on as many as its engine connects. */
static int member_check_nodes(const struct coordinator *c, const struct seat *newcomer,
                              struct refusal *refusal) {
        const struct membership *m = &c->membership;
        struct nodeset nodes = NODESET_SCRATCH;

        if (c->config.most_nodes == 0)
                return 0;
        for (uint32_t i = 0; i < m->n + m->n_waiting; i++)
                if (has_place_or_waits(&m->seat[i]))
                        nodeset_add(nodes, m->seat[i].request.node);
        if (nodeset_has(nodes, newcomer->request.node) || nodeset_count(nodes) < c->config.most_nodes)
                return 0;
        return refuse(refusal, WIRE__CODE__JOB_FULL,
                      "job '%s' has members of %u daemons, and Gloo, which exchanges data between them, "
                      "connects no more (nodes_per_job in the coordinator's gradsyncd.conf): give it more "
                      "members of fewer daemons",
                      c->config.name, c->config.most_nodes);
}

/* "Gloo", "NCCL 2.28.9" */
static void engine_name(uint32_t engine, char text[32]) {
        if (engine == 0)
                snprintf(text, 32, "Gloo");
        else
                snprintf(text, 32, "NCCL %u.%u.%u", engine / 10000, engine / 100 % 100, engine % 100);
}

/* Its node exchanges as those of the other members do. */
static int member_check_engine(const struct coordinator *c, const struct seat *newcomer,
                               struct refusal *refusal) {
        const struct membership *m = &c->membership;
        uint32_t own = c->node[newcomer->request.node].engine;
        char here[32], there[32];

        for (uint32_t i = 0; i < m->n + m->n_waiting; i++) {
                uint32_t other = c->node[m->seat[i].request.node].engine;

                if (!has_place_or_waits(&m->seat[i]) || &m->seat[i] == newcomer || other == own)
                        continue;
                engine_name(own, here);
                engine_name(other, there);
                return refuse(
                        refusal, WIRE__CODE__UNSUPPORTED,
                        "job '%s': this member's daemon exchanges data by %s, and another one's by %s: all "
                        "members must be on GPUs, or none, and all daemons must have the same NCCL",
                        c->config.name, here, there);
        }
        return 0;
}

static void member_admit(struct coordinator *c, uint64_t now, struct seat *seat) {
        const struct membership_request request = seat->request;
        struct refusal refusal;

        refusal.has_culprit = false;
        if (member_check_nodes(c, seat, &refusal) != 0 || member_check_engine(c, seat, &refusal) != 0) {
                membership_turn_away(&c->membership, request.member);
                turn_away(c, seat, &refusal);
                return;
        }
        if (membership_join(&c->membership, &request, now, &refusal) != 0)
                turn_away(c, membership_find(&c->membership, request.member), &refusal);
        const struct seat *older =
                c->membership.fenced != 0 ? membership_find(&c->membership, c->membership.fenced) : NULL;
        if (older != NULL)
                turn_away_older(c, older, &request);
}

/* Where the node is not one of those that go on, its members are not taken before it is out, for good: what
 * they belong to is over. */
static bool admissible(const struct coordinator *c, const struct seat *seat) {
        uint32_t node = seat->request.node;

        return seat->state == SEAT_ASKS && c->stage != STAGE_HEARING &&
               (coordinator_survives(c, node) || (c->node[node].world == 0 && !coordinator_awaits(c, node)));
}

/* Those that came first are the last of seat[], and none of them asks for a second time. */
void member_admit_all(struct coordinator *c, uint64_t now) {
        for (uint32_t i = membership_all(&c->membership); i-- > 0;)
                if (admissible(c, &c->membership.seat[i])) {
                        member_admit(c, now, &c->membership.seat[i]);
                        i = membership_all(&c->membership);
                }
}

bool member_is_any_on(const struct coordinator *c, uint32_t node) {
        for (uint32_t i = 0; i < c->membership.n; i++)
                if (c->membership.seat[i].state == SEAT_HELD && c->membership.seat[i].request.node == node)
                        return true;
        return false;
}

void member_add_nodes(const struct coordinator *c, struct nodeset nodes) {
        for (uint32_t i = 0; i < c->membership.n; i++)
                if (c->membership.seat[i].state == SEAT_HELD)
                        nodeset_add(nodes, c->membership.seat[i].request.node);
}

/* Notes the place that a member claims, for a coordinator that has just begun. */
static void note_claim(struct seat *seat, const struct report_member *reported) {
        seat->id = reported->id;
        seat->rank = reported->rank;
        seat->slot = reported->slot;
        seat_set_state(seat, reported->in ? SEAT_CLAIMS : SEAT_ASKS);
}

static void note_member(struct coordinator *c, uint64_t now, const struct report *report, uint32_t index) {
        const struct report_member *reported = &report->member_of[index];
        struct membership_request request = reported->request;

        request.node = report->from;
        request.host = report->host;
        request.device = report->device;
        struct seat *seat = membership_note(&c->membership, &request);
        if (seat == NULL)
                return;
        if (seat->state == SEAT_REFUSED || seat->state == SEAT_FENCED) {
                turn_away(c, seat, NULL);
                return;
        }
        seat->tag = reported->tag;
        seat->in = reported->in;
        seat->behind = reported->behind;
        if (c->stage == STAGE_HEARING)
                note_claim(seat, reported);
        if (admissible(c, seat))
                member_admit(c, now, seat);
}

struct nodeset member_abandoned(struct coordinator *c) {
        return (struct nodeset){ c->abandoned, LIMIT_WORLD / 64 };
}

static void note_abandoned(struct coordinator *c, struct generation generation, uint32_t rank) {
        if (generation_compare(generation, c->abandoned_in) < 0)
                return;
        if (!generation_equal(generation, c->abandoned_in))
                nodeset_clear(member_abandoned(c));
        c->abandoned_in = generation;
        nodeset_add(member_abandoned(c), rank);
}

/* For a membership that is restored: it has no place of a member that is gone. */
static void note_leavers(struct coordinator *c, const struct report *report) {
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].in && report->member_of[i].leaving)
                        note_abandoned(c, report->generation, report->member_of[i].rank);
        for (uint32_t i = 0; i < report->n_gone; i++)
                if (report->gone[i].in && report->gone[i].cause == WIRE__CAUSE__LEAVING)
                        note_abandoned(c, report->generation, report->gone[i].rank);
}

static uint32_t member_cause_of(const struct report *report, uint64_t member) {
        for (uint32_t i = 0; i < report->n_gone; i++)
                if (report->gone[i].member == member)
                        return report->gone[i].cause;
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].request.member ==
                    member) /* no place of its own any more, but it is there */
                        return WIRE__CAUSE__LEAVING;
        return WIRE__CAUSE__RESTARTED; /* that daemon does not know it any more */
}

static bool reports(const struct report *report, uint64_t member) {
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].request.member == member && !report->member_of[i].leaving)
                        return true;
        return false;
}

/* A member of the node is not there any more: it is not in the report, or there will be none (NULL), for that
 * cause. The last of seat[] come first, so that none is overlooked. */
static void member_lose(struct coordinator *c, uint64_t now, uint32_t node, const struct report *report,
                        uint32_t cause) {
        for (uint32_t i = membership_all(&c->membership); i-- > 0;) {
                const struct seat *seat = &c->membership.seat[i];
                uint64_t member = seat->request.member;

                if (seat->state >= SEAT_LOST || seat->request.node != node ||
                    (report != NULL && reports(report, member)))
                        continue;
                membership_remove(&c->membership, member,
                                  report != NULL ? member_cause_of(report, member) : cause, now);
        }
}

void member_report(struct coordinator *c, uint64_t now, const struct report *report) {
        if (report->end == JOB_END_NONE) /* or else its members have been told, and are not lost */
                member_lose(c, now, report->from, report, 0);
        note_leavers(c, report);
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].leaving) /* no member waits for it, and its node may forget it */
                        refuse_member(c, report->from, report->member_of[i].request.member, JOB_END_NONE,
                                      NULL);
                else
                        note_member(c, now, report, i);
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].in && !report->member_of[i].behind &&
                    generation_equal(report->generation, c->current) &&
                    coordinator_survives(c, report->from) &&
                    tag_compare(&report->member_of[i].tag, &c->history) > 0)
                        c->history = report->member_of[i].tag;
}

void member_forget(struct coordinator *c, uint64_t now, uint32_t node, uint32_t cause) {
        member_lose(c, now, node, NULL, cause);
}

/* The world begins anew, with those that are here; their tags say what they hold. */
void member_begin_anew(struct coordinator *c, uint64_t now) {
        membership_disperse(&c->membership);
        coordinator_set_nodes(c, (struct nodeset){ 0 });
        c->comm = (struct generation){ 0 };
        coordinator_give(c, now, STAGE_FORMING);
        member_admit_all(c, now);
}

enum membership_event member_tick(struct coordinator *c, uint64_t now) {
        struct refusal refusal = { 0 };
        uint64_t member;

        while (c->n_waits == 0) {
                enum membership_event event = membership_tick(&c->membership, now, &member, &refusal);

                if (event != MEMBERSHIP_EXPIRED)
                        return event;
                turn_away(c, membership_find(&c->membership, member), &refusal);
        }
        return MEMBERSHIP_NOTHING;
}

/* ---- from a loss to its verdict ---- */

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
