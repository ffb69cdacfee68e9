/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of itself, and its members. Every answer holds all of it, so the latest one is enough. */
#include <assert.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/node_private.h"

static void report_fill(struct node *node, uint64_t now, struct message *message) {
        message_clear(message);
        message->kind = node->answer;
        message->from = node->config.address;
        message->instance = node->config.instance;
        message->term = node->term;
        message->round = node->round;
        node->stamp = now > node->stamp ? now : node->stamp + 1;
        message->stamp = node->stamp;
        message->generation = node->generation;
        message->comm = node->comm;
        message->set = node->set;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                message->seq[lane] = node->lane[lane].launched;
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                message->committed[which] = node->track[which].committed;
                message->prepared[which] = node->track[which].prepared;
                message->mark[which] = unit_opened(node, which);
        }
        message->n_tracks = node->n_tracks;
        message->links = node->links;
        message->history = node->history;
        message->host = node->config.host;
        message->device = node->config.device;
        message->origin = node->origin;
        message->running = node->phase == NODE_RUNNING && !node->held && !node->suspended;
        /* Who leaves is not out before its members have heard how the open step ended: their tags are not
         * final. */
        message->world = node_is_in(node) || node->phase == NODE_LEAVING ? node->world : 0;
        message->end = node->phase == NODE_ENDED ? node->end : JOB_END_NONE;
        message->n_members = node->n;
        memcpy(message->member_of, node->member, node->n * sizeof(node->member[0]));
        for (uint32_t i = 0; i < node->n; i++)
                message->member_of[i].in &= message->world > 0;
        message->n_gone = node->n_gone;
        memcpy(message->gone, node->gone, node->n_gone * sizeof(node->gone[0]));
}

void report_send(struct node *node, uint64_t now) {
        bool lonely = now > node->contact + 3 * node->config.times.heartbeat || node->term == 0;
        struct message message;

        report_fill(node, now, &message);
        node->reported = now;
        for (uint32_t to = 0; to < node->config.candidates; to++) {
                if (!lonely && to != node->coordinator)
                        continue;
                message.to = to;
                effects_send(&node->out, &message);
        }
}

static struct message_member *report_find(struct node *node, uint64_t member) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i];
        return NULL;
}

/* Whoever was lost before the order came, and is named by it, is missing in the generation that begins. */
static void keep_gone(struct node *node, const struct message *order) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < node->n_gone; i++)
                for (uint32_t k = 0; k < order->n_members; k++)
                        if (order->member_of[k].request.member == node->gone[i].member)
                                node->gone[n++] = node->gone[i];
        node->n_gone = n;
}

void report_enter(struct node *node, const struct message *order) {
        keep_gone(node, order);
        node->missing = false;
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        for (uint32_t i = 0; i < order->n_members; i++) {
                struct message_member *member = report_find(node, order->member_of[i].request.member);

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

static void drop(struct node *node, struct message_member *member) {
        node->missing |= member->in;
        *member = node->member[--node->n];
}

/* Of more than there is room for the latest ones count: a coordinator has seen the others long ago, or nobody
 * has. */
static void note_gone(struct node *node, uint64_t member, uint32_t cause) {
        if (node->n_gone == node->config.room.members || node->n_gone == LIMIT_LOCAL)
                memmove(&node->gone[0], &node->gone[1], --node->n_gone * sizeof(node->gone[0]));
        node->gone[node->n_gone++] = (struct message_gone){ member, cause };
}

/* A coordinator that has forgotten why may have taken the member again meanwhile. */
static uint32_t report_cause_of(enum job_end end) {
        if (end == JOB_END_NONE)
                return WIRE__CAUSE__LEAVING;
        return end == JOB_END_FENCED ? WIRE__CAUSE__SUPERSEDED : WIRE__CAUSE__EVICTED;
}

void report_refuse(struct node *node, const struct message *order) {
        struct message_member *member = report_find(node, order->member);

        if (member == NULL)
                return;
        node_act(node, &(struct action){ .kind = ACTION_REFUSED,
                                         .member = order->member,
                                         .end = order->end,
                                         .refusal = &order->refusal });
        note_gone(node, order->member, report_cause_of(order->end));
        drop(node, member);
}

struct message_member *report_add(struct node *node, const struct membership_request *request,
                                  const struct tag *tag) {
        struct message_member *member;

        assert(node->n < node->config.room.members);
        member = &node->member[node->n++];
        *member = (struct message_member){ .request = *request, .tag = *tag };
        member->request.host = node->config.host;
        member->request.device = node->config.device;
        member->request.node = node->config.address;
        return member;
}

/* What is said to whom this node cannot even report. */
static void refuse_here(const struct node *node, const struct membership_request *request) {
        bool ended = node->phase == NODE_ENDED;
        struct refusal refusal = { 0 };

        if (ended)
                refuse(&refusal, WIRE__CODE__JOB_FULL,
                       "job '%s' has ended, pid %d cannot join it any more; begin anew once its last "
                       "member has left",
                       node->config.name, request->pid);
        else
                refuse(&refusal, WIRE__CODE__JOB_FULL, "job '%s' has %u members here, pid %d cannot join it",
                       node->config.name, node->n, request->pid);
        node_act(node, &(struct action){ .kind = ACTION_REFUSED,
                                         .member = request->member,
                                         .refusal = &refusal,
                                         .end = ended ? node->end : JOB_END_REFUSED });
}

/* Whether it is the newer process of a member that is here: there will be no more members for its sake. */
static bool follows(const struct node *node, const struct membership_request *request) {
        for (uint32_t i = 0; i < node->n && request->identity != 0; i++)
                if (node->member[i].request.identity == request->identity &&
                    node->member[i].request.instance < request->instance)
                        return true;
        return false;
}

void node_join(struct node *node, uint64_t now, const struct membership_request *request,
               const struct tag *tag) {
        node_wake(node, now);
        if (report_find(node, request->member) != NULL)
                return;
        if (node->phase == NODE_ENDED || node->n == node->config.room.members ||
            (node->n == LIMIT_LOCAL && !follows(node, request))) {
                refuse_here(node, request);
                return;
        }
        report_add(node, request, tag);
        report_send(node, now);
}

void node_lose(struct node *node, uint64_t now, uint64_t member, uint32_t cause) {
        struct message_member *lost = report_find(node, member);

        node_wake(node, now);
        if (lost == NULL)
                return;
        note_gone(node, member, lost->leaving ? WIRE__CAUSE__LEAVING : cause);
        drop(node, lost);
        report_send(node, now);
        node_advance(node, now);
}

void node_leave(struct node *node, uint64_t now, uint64_t member) {
        struct message_member *leaving = report_find(node, member);

        node_wake(node, now);
        if (leaving == NULL)
                return;
        leaving->leaving = true;
        report_send(node, now);
}

void node_sync(struct node *node, uint64_t member) {
        struct message_member *receiver = report_find(node, member);

        if (receiver != NULL && receiver->in && receiver->behind)
                receiver->tag = (struct tag){ 0 };
}

void node_synced(struct node *node, uint64_t member, const struct tag *tag) {
        struct message_member *receiver = report_find(node, member);

        if (receiver == NULL || !receiver->in || !receiver->behind)
                return;
        receiver->tag = *tag;
        receiver->behind = false;
}
