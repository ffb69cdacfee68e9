/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a node about itself and its members. Each answer holds all of it: the latest one is enough. */
#include <assert.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/node_private.h"

static uint32_t next_plan(const struct node *node) {
        uint32_t next = node->next_plan;

        for (uint32_t i = 0; i < node->n_plans; i++)
                if (plan_is_begun_anew(&node->plan[i]) && node->plan[i].ordinal < next)
                        next = node->plan[i].ordinal;
        return next;
}

static void report_fill(struct node *node, uint64_t now, struct report *report) {
        report_clear(report);
        report->kind = node->answer;
        report->from = node->config.address;
        report->instance = node->config.instance;
        report->term = node->term;
        report->round = node->round;
        node->stamp = now > node->stamp ? now : node->stamp + 1;
        report->stamp = node->stamp;
        report->generation = node->generation;
        report->comm = node->comm;
        report_name_nodes(report, node->set, node->links);
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++) {
                report->seq[lane] = node->lane[lane].launched;
                report->ready[lane] = lane_is_agreed(node, lane) ? node->lane[lane].ready : 0;
                report->go[lane] = lane_is_agreed(node, lane) ? node->lane[lane].go : 0;
        }
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                report->committed[which] = node->track[which].committed;
                report->prepared[which] = node->track[which].prepared;
                report->mark[which] = unit_opened(node, which);
        }
        report->n_tracks = node->n_tracks;
        report->next_plan = next_plan(node);
        report->n_plans = node->n_plans;
        for (uint32_t i = 0; i < node->n_plans; i++) {
                const struct node_plan *plan = &node->plan[i];
                uint64_t unit = unit_in_turn(node, plan->track);

                report->plan[i] = (struct report_plan){ .digest = plan->digest,
                                                        .unit = unit,
                                                        .turn = unit > 0 ? node->track[plan->track].turn : 0,
                                                        .ordinal = plan->ordinal,
                                                        .track = plan->track,
                                                        .open = plan->open,
                                                        .before = plan->before,
                                                        .voids = plan->voids };
        }
        report->note = node->note;
        report->ordinal = node->noted;
        if (node->note != NOTE_NONE)
                report->about = *node->about;
        report->history = node->history;
        report->host = node->config.host;
        report->device = node->config.device;
        report->engine = node->config.engine;
        report->awaits = node->awaits;
        report->running = node->phase == NODE_RUNNING && !node->held && !node->suspended;
        report->wait = node->said_wait = node->wait;
        report->away = node->away;
        report->torn = node->torn;
        report->behind = node->unsynced;
        report->cause = node->cause;
        /* A node that leaves is not out before its members have heard how the open step ended: their tags
         * are not final. */
        report->world = node_is_in(node) || node->phase == NODE_LEAVING ? node->world : 0;
        report->end = node->phase == NODE_ENDED ? node->end : JOB_END_NONE;
        report->n_members = node->n;
        memcpy(report->member_of, node->member, node->n * sizeof(node->member[0]));
        for (uint32_t i = 0; i < node->n; i++)
                report->member_of[i].in &= report->world > 0;
        report->n_gone = node->n_gone;
        memcpy(report->gone, node->gone, node->n_gone * sizeof(node->gone[0]));
        for (uint32_t i = 0; i < node->n_gone; i++)
                report->gone[i].in &= report->world > 0;
}

void report_send(struct node *node, uint64_t now) {
        struct report report;

        report_fill(node, now, &report);
        node->reported = now;
        effects_report(&node->out, &report);
}

struct report_member *report_find(struct node *node, uint64_t member) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i];
        return NULL;
}

/* A member that was lost before the order came, and is named by it, is missing in the new generation. */
static void keep_gone(struct node *node, const struct order *order) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < node->n_gone; i++)
                for (uint32_t k = 0; k < order->n_members; k++)
                        if (order->member_of[k].member == node->gone[i].member) {
                                node->gone[n] = node->gone[i];
                                node->gone[n].rank = order->member_of[k].rank;
                                node->gone[n++].in = true;
                                break;
                        }
        node->n_gone = n;
}

void report_enter(struct node *node, const struct order *order) {
        keep_gone(node, order);
        node->missing = false;
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        for (uint32_t i = 0; i < order->n_members; i++) {
                struct report_member *member = report_find(node, order->member_of[i].member);

                if (member == NULL) {
                        node->missing = true; /* lost meanwhile; the report says so */
                        continue;
                }
                member->in = true;
                member->behind = order->member_of[i].behind;
                member->rank = order->member_of[i].rank;
                member->slot = order->member_of[i].slot;
                member->id = order->member_of[i].id;
        }
}

/* The member is gone. If there are more than there is room for, the latest ones count: a coordinator has seen
 * the others long ago, or none has. */
void report_drop(struct node *node, struct report_member *member, uint32_t cause) {
        if (node->n_gone == node->config.room.members || node->n_gone == LIMIT_LOCAL)
                memmove(&node->gone[0], &node->gone[1], --node->n_gone * sizeof(node->gone[0]));
        node->gone[node->n_gone++] =
                (struct report_gone){ member->request.member, cause, member->rank, member->in };
        node->missing |= member->in;
        *member = node->member[--node->n];
}

/* A coordinator that has forgotten why may have taken the member again meanwhile. */
static uint32_t report_cause_of(enum job_end end) {
        if (end == JOB_END_NONE)
                return WIRE__CAUSE__LEAVING;
        return end == JOB_END_FENCED ? WIRE__CAUSE__SUPERSEDED : WIRE__CAUSE__EVICTED;
}

void report_refuse(struct node *node, const struct order *order) {
        struct report_member *member = report_find(node, order->member);

        if (member == NULL || (order->end == JOB_END_NONE && !member->leaving))
                return;
        node_act(node, &(struct action){ .kind = ACTION_REFUSED,
                                         .member = order->member,
                                         .end = order->end,
                                         .refusal = &order->refusal });
        report_drop(node, member, report_cause_of(order->end));
}

void report_note_places(struct node *node, const struct order *order) {
        const struct order_places *said = &order->places;

        node->places = said->places;
        for (uint32_t i = 0; i < node->n; i++) {
                struct report_member *member = &node->member[i];

                member->waits = false;
                for (uint32_t k = 0; k < said->n_waiting; k++)
                        member->waits |= said->waiting[k] == member->request.member;
        }
}

struct report_member *report_add(struct node *node, const struct membership_request *request,
                                 const struct tag *tag) {
        assert(node->n < node->config.room.members);
        struct report_member *member = &node->member[node->n++];
        *member = (struct report_member){ .request = *request, .tag = *tag };
        member->request.host = node->config.host;
        member->request.device = node->config.device;
        member->request.node = node->config.address;
        return member;
}
