/* SPDX-License-Identifier: Apache-2.0 */
/* The order that all nodes are given, said again and again, and which of them have answered it. */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

#define AT(stage) (1u << (stage))
#define IN_GENERATION (AT(STAGE_SETTLED + 1) - AT(STAGE_ENTERING))

void coordinator_set_stage(struct coordinator *c, enum coordinator_stage stage) {
        static const unsigned before[N_STAGES] = {
                [STAGE_HEARING] = AT(N_STAGES) - 1,
                [STAGE_FORMING] = AT(STAGE_HEARING) | IN_GENERATION,
                [STAGE_ENTERING] = AT(STAGE_FORMING) | AT(STAGE_SETTLED),
                [STAGE_RUNNING] =
                        AT(STAGE_HEARING) | AT(STAGE_ENTERING) | AT(STAGE_HOLDING) | AT(STAGE_STOPPING),
                [STAGE_HOLDING] = AT(STAGE_RUNNING),
                [STAGE_STOPPING] = AT(STAGE_HOLDING) | AT(STAGE_STOPPING),
                [STAGE_FREEZING] = AT(STAGE_HEARING) | IN_GENERATION,
                [STAGE_CUTTING] = AT(STAGE_FREEZING),
                [STAGE_ABORTING] = AT(STAGE_FREEZING) | AT(STAGE_CUTTING),
                [STAGE_DECIDED] = AT(STAGE_CUTTING) | AT(STAGE_ABORTING),
                [STAGE_SETTLED] = AT(STAGE_DECIDED),
                [STAGE_ENDED] = AT(STAGE_HEARING) | AT(STAGE_FORMING) | AT(STAGE_SETTLED),
        };

        assert(before[stage] & AT(c->stage));
        c->stage = stage;
}

enum order_kind coordinator_order(const struct coordinator *c) {
        static const enum order_kind order[N_STAGES] = {
                [STAGE_HEARING] = ORDER_COLLECT, [STAGE_FORMING] = ORDER_COLLECT,
                [STAGE_ENTERING] = ORDER_NEWGEN, [STAGE_RUNNING] = ORDER_RUN,
                [STAGE_HOLDING] = ORDER_HOLD,    [STAGE_STOPPING] = ORDER_STOP,
                [STAGE_FREEZING] = ORDER_FREEZE, [STAGE_CUTTING] = ORDER_CUT,
                [STAGE_ABORTING] = ORDER_ABORT,  [STAGE_DECIDED] = ORDER_VERDICT,
                [STAGE_SETTLED] = ORDER_VERDICT, [STAGE_ENDED] = ORDER_END,
        };

        return order[c->stage];
}

/* The order for one node. A node outside is heard; one that wrongly takes itself for inside is fenced. */
static enum order_kind order_for(const struct coordinator *c, uint32_t node) {
        if (c->stage == STAGE_ENDED || coordinator_survives(c, node))
                return coordinator_order(c);
        return c->node[node].world > 0 && c->stage != STAGE_HEARING ? ORDER_FENCE : ORDER_COLLECT;
}

/* From the loss on, and no longer than until all have entered the next generation. */
static bool tells_loss(enum order_kind order) {
        return (order >= ORDER_FREEZE && order <= ORDER_NEWGEN) || order == ORDER_END;
}

static enum job_end end_of(const struct coordinator *c, enum order_kind order) {
        if (order == ORDER_END)
                return c->end;
        if (order == ORDER_FREEZE && c->membership.state == MEMBERSHIP_BROKEN)
                return c->ending != JOB_END_NONE ? c->ending : JOB_END_TOO_FEW;
        return JOB_END_NONE;
}

void coordinator_say_to(struct coordinator *c, uint32_t node) {
        struct order order;

        order_clear(&order);
        order.kind = order_for(c, node);
        order.to = node;
        order.instance = c->node[node].instance;
        order.term = c->term;
        order.round = c->round;
        order.stamp = c->node[node].stamp;
        order.generation = c->current;
        order.comm = c->comm;
        order.history = c->history;
        order.end = end_of(c, order.kind);
        if (tells_loss(order.kind))
                order.loss = order.kind == ORDER_NEWGEN ? c->before : c->membership.loss;
        if (planted(PLANTED_BLAMES_ANYBODY) && order.loss.member != 0)
                order.loss.member = c->membership.seat[c->membership.n - 1].request.member;
        order_name_nodes(&order, c->set);
        memcpy(order.seq, c->cut, sizeof(order.seq));
        memcpy(order.go, c->go, sizeof(order.go));
        order.n_tracks = c->n_tracks;
        memcpy(order.mark, order.kind == ORDER_STOP ? c->stop : c->verdict,
               c->n_tracks * sizeof(order.mark[0]));
        tracks_fill_order(c, &order);
        if (order.kind == ORDER_NEWGEN && !source_fill_order(c, &order))
                return; /* it is said again in the next heartbeat */
        effects_order(&c->out, &order);
}

void coordinator_say(struct coordinator *c, uint64_t now) {
        c->said = now;
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].known)
                        coordinator_say_to(c, node);
}

/* An ACK of another generation is none: it has entered what a former coordinator told it. */
bool coordinator_is_answered(const struct coordinator *c, uint32_t node) {
        const struct reporter *reporter = &c->node[node];

        return reporter->term == c->term && reporter->round == c->round &&
               reporter->answer >= ANSWER_REPORT &&
               (reporter->answer != ANSWER_ACK || generation_equal(reporter->generation, c->current));
}

void coordinator_count(struct coordinator *c, uint32_t node, uint32_t sign) {
        const struct reporter *reporter = &c->node[node];
        bool failing = !nodeset_empty(coordinator_links_of(c, node));

        c->tally.survivors += sign;
        c->tally.failing += failing * sign;
        c->tally.astray += !generation_equal(reporter->comm, c->comm) * sign;
        if (!coordinator_is_answered(c, node))
                return;
        c->tally.answered[reporter->answer - ANSWER_REPORT] += sign;
        c->tally.cut_off += failing * sign;
}

static void tally_anew(struct coordinator *c) {
        c->tally = (struct coordinator_tally){ .lost = c->tally.lost };
        for (uint32_t node = 0; node < c->config.room.nodes; node++)
                if (coordinator_survives(c, node))
                        coordinator_count(c, node, 1);
}

void coordinator_give(struct coordinator *c, uint64_t now, enum coordinator_stage stage) {
        coordinator_set_stage(c, stage);
        if (stage == STAGE_ENTERING || stage == STAGE_FORMING) {
                c->before = c->membership.loss;
                c->membership.loss = (struct membership_loss){ 0 };
        }
        c->since = now;
        c->round++;
        tally_anew(c);
        coordinator_say(c, now);
}

bool coordinator_any_away(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++)
                if (coordinator_survives(c, node) && c->node[node].away)
                        return true;
        return false;
}

bool coordinator_all(const struct coordinator *c, enum report_kind answer) {
        return c->tally.answered[answer - ANSWER_REPORT] == c->tally.survivors;
}

void coordinator_set_nodes(struct coordinator *c, struct nodeset nodes) {
        nodeset_copy(c->set, nodes);
        nodeset_clear(c->lost);
        c->tally.lost = 0;
        tally_anew(c);
}

void coordinator_lose_node(struct coordinator *c, uint32_t node) {
        if (!coordinator_survives(c, node))
                return;
        coordinator_count(c, node, -1u);
        nodeset_add(c->lost, node);
        c->tally.lost++;
}
