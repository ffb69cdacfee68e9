/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's list of members, as the nodes report them: who is new asks for a place, who is no longer
 * there is lost. Places, ranks and grace are the membership's business.
 */
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/coordinator_private.h"

struct message_member *member_find(struct coordinator *c, uint64_t member) {
        for (uint32_t i = 0; i < c->n; i++)
                if (c->seat[i].request.member == member)
                        return &c->seat[i];
        return NULL;
}

static void keep_refusal(struct coordinator *c, uint64_t member, const struct refusal *refusal) {
        if (c->config.n_texts > 0)
                c->refused[c->n_refused++ % c->config.n_texts] =
                        (struct coordinator_refusal){ member, *refusal };
}

/* The text that was found when the member was turned away; of many the latest ones are kept. */
static struct refusal refusal_of(const struct coordinator *c, uint64_t member, enum job_end end) {
        struct refusal refusal = { 0 };

        for (uint32_t i = 0; i < c->config.n_texts; i++)
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
        struct message order;

        message_clear(&order);
        order.kind = ORDER_REFUSE;
        order.from = c->config.address;
        order.to = node;
        order.instance = c->node[node].instance;
        order.term = c->term;
        order.round = c->round;
        order.stamp = c->node[node].stamp;
        order.member = member;
        order.end = end;
        order.refusal = refusal != NULL ? *refusal : refusal_of(c, member, end);
        effects_send(&c->out, &order);
}

static void drop_seat(struct coordinator *c, struct message_member *seat) {
        *seat = c->seat[--c->n];
}

/* Said again with each report in which it still appears. */
static void turn_away(struct coordinator *c, struct message_member *seat, enum job_end end,
                      const struct refusal *refusal) {
        keep_refusal(c, seat->request.member, refusal);
        seat->refused = true;
        seat->in = false;
        seat->end = end;
        refuse_member(c, seat->request.node, seat->request.member, end, refusal);
}

static void turn_away_older(struct coordinator *c, struct message_member *older,
                            const struct membership_request *newer) {
        struct refusal refusal = { 0 };

        refuse_for(&refusal, WIRE__CODE__STALE, older->rank, newer->pid,
                   "job '%s': rank %u, pid %d, was replaced by pid %d, a newer process of the same member; "
                   "end this one",
                   c->config.name, older->rank, older->request.pid, newer->pid);
        turn_away(c, older, JOB_END_FENCED, &refusal);
}

void member_admit(struct coordinator *c, uint64_t now, struct message_member *seat) {
        const struct membership_member *place = membership_find(&c->membership, seat->request.member);
        struct message_member *older;
        struct refusal refusal;

        if (seat->refused || (place != NULL && !place->lost))
                return;
        refusal.has_culprit = false;
        if (membership_join(&c->membership, &seat->request, now, &refusal) != 0)
                turn_away(c, seat, JOB_END_REFUSED, &refusal);
        older = c->membership.fenced != 0 ? member_find(c, c->membership.fenced) : NULL;
        if (older != NULL)
                turn_away_older(c, older, &seat->request);
}

/* It says goodbye, and has no seat any more: nobody waits for it, and its node may forget it. */
static void let_go(struct coordinator *c, uint64_t now, const struct message_member *reported) {
        membership_remove(&c->membership, reported->request.member, WIRE__CAUSE__LEAVING, now);
        refuse_member(c, reported->request.node, reported->request.member, JOB_END_NONE, NULL);
}

/* Where the node is not one of those who go on, its members are not taken before it is out: what they belong
 * to is over. */
static bool admissible(const struct coordinator *c, const struct message *report) {
        return !c->collecting && (report->world == 0 || coordinator_survives(c, report->from));
}

static void note_member(struct coordinator *c, uint64_t now, const struct message *report, uint32_t index) {
        const struct message_member *reported = &report->member_of[index];
        struct message_member *seat = member_find(c, reported->request.member);

        if (seat == NULL) {
                if (c->n == c->config.room.members)
                        return;
                seat = &c->seat[c->n++];
                seat->refused = false;
        }
        if (seat->refused) {
                refuse_member(c, report->from, seat->request.member, seat->end, NULL);
                return;
        }
        *seat = *reported;
        seat->refused = false;
        seat->request.node = report->from;
        seat->request.host = report->host;
        seat->request.device = report->device;
        seat->in &= c->collecting || generation_equal(report->generation, c->current);
        if (admissible(c, report))
                member_admit(c, now, seat);
}

static uint32_t member_cause_of(const struct message *report, uint64_t member) {
        for (uint32_t i = 0; i < report->n_gone; i++)
                if (report->gone[i].member == member)
                        return report->gone[i].cause;
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].request.member ==
                    member) /* no place of its own any more, but it is there */
                        return WIRE__CAUSE__LEAVING;
        return WIRE__CAUSE__EXITED;
}

static bool reports(const struct message *report, uint64_t member) {
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].request.member == member && !report->member_of[i].leaving)
                        return true;
        return false;
}

void member_report(struct coordinator *c, uint64_t now, const struct message *report) {
        for (uint32_t i = c->n; i-- > 0;) {
                uint64_t member = c->seat[i].request.member;

                if (c->seat[i].request.node != report->from || reports(report, member))
                        continue;
                drop_seat(c, &c->seat[i]);
                membership_remove(&c->membership, member, member_cause_of(report, member), now);
        }
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].leaving)
                        let_go(c, now, &report->member_of[i]);
                else
                        note_member(c, now, report, i);
        for (uint32_t i = 0; i < report->n_members; i++)
                if (report->member_of[i].in && !report->member_of[i].behind &&
                    generation_equal(report->generation, c->current) &&
                    coordinator_survives(c, report->from) &&
                    tag_compare(&report->member_of[i].tag, &c->history) > 0)
                        c->history = report->member_of[i].tag;
}

void member_forget(struct coordinator *c, uint64_t now, uint32_t node) {
        for (uint32_t i = c->n; i-- > 0;) {
                uint64_t member = c->seat[i].request.member;

                if (c->seat[i].request.node != node)
                        continue;
                drop_seat(c, &c->seat[i]);
                membership_remove(&c->membership, member, WIRE__CAUSE__EXITED, now);
        }
}

enum membership_event member_tick(struct coordinator *c, uint64_t now) {
        struct refusal refusal = { 0 };
        uint64_t member;

        while (c->n_waits == 0) {
                enum membership_event event = membership_tick(&c->membership, now, &member, &refusal);
                struct message_member *seat;

                if (event != MEMBERSHIP_EXPIRED)
                        return event;
                seat = member_find(c, member);
                if (seat != NULL)
                        turn_away(c, seat, JOB_END_REFUSED, &refusal);
        }
        return MEMBERSHIP_NOTHING;
}
