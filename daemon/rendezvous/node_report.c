/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of itself, and its members. Every answer holds all of it, so the latest one is enough. */
#include <string.h>

#include "rendezvous/node_private.h"

static void fill(struct node *node, uint64_t now, struct message *message) {
        memset(message, 0, offsetof(struct message, member_of));
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
        for (unsigned kind = 0; kind < N_TRACKS; kind++) {
                message->committed[kind] = node->track[kind].committed;
                message->prepared[kind] = node->track[kind].prepared;
                message->mark[kind] = unit_opened(node, kind);
        }
        message->links = node->links;
        message->history = node->history;
        message->host = node->config.host;
        message->device = node->config.device;
        message->running = node->phase == NODE_RUNNING && !node->held && !node->suspended;
        /* Who leaves is not out before its members have heard how the open step ended: their tags are not final. */
        message->world = node_is_in(node) || node->phase == NODE_LEAVING ? node->world : 0;
        message->end = node->phase == NODE_ENDED ? node->end : JOB_END_NONE;
        message->n_members = node->n;
        memcpy(message->member_of, node->member, node->n * sizeof(node->member[0]));
        for (uint32_t i = 0; i < node->n; i++)
                message->member_of[i].in &= message->world > 0;
}

void report_send(struct node *node, uint64_t now) {
        bool lonely = now > node->contact + 3 * node->config.times.heartbeat || node->term == 0;
        struct message message;

        fill(node, now, &message);
        node->reported = now;
        for (uint32_t to = 0; to < node->config.candidates; to++) {
                if (!lonely && to != node->coordinator)
                        continue;
                message.to = to;
                node->out.send(node->out.data, &message);
        }
}

static struct message_member *find(struct node *node, uint64_t member) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i];
        return NULL;
}

void report_enter(struct node *node, const struct message *order) {
        node->missing = false;
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        for (uint32_t i = 0; i < order->n_members; i++) {
                struct message_member *member = find(node, order->member_of[i].request.member);

                if (member == NULL) {
                        node->missing = true;   /* lost meanwhile; the report says so */
                        continue;
                }
                member->in = true;
                member->behind = order->member_of[i].behind;
                member->rank = order->member_of[i].rank;
                member->slot = order->member_of[i].slot;
        }
}

static void drop(struct node *node, struct message_member *member) {
        node->missing |= member->in;
        *member = node->member[--node->n];
}

void report_refuse(struct node *node, const struct message *order) {
        struct message_member *member = find(node, order->member);

        if (member == NULL)
                return;
        node_act(node, &(struct action){ .kind = ACTION_REFUSED, .member = order->member, .end = order->end });
        drop(node, member);
}

void node_join(struct node *node, uint64_t now, const struct membership_request *request, const struct tag *tag) {
        node_wake(node, now);
        if (find(node, request->member) != NULL)
                return;
        if (node->phase == NODE_ENDED || node->n == LIMIT_WORLD) {
                node_act(node, &(struct action){ .kind = ACTION_REFUSED, .member = request->member,
                                                 .end = node->phase == NODE_ENDED ? node->end : JOB_END_REFUSED });
                return;
        }
        node->member[node->n] = (struct message_member){ .request = *request, .tag = *tag };
        node->member[node->n].request.host = node->config.host;
        node->member[node->n].request.device = node->config.device;
        node->member[node->n++].request.node = node->config.address;
        report_send(node, now);
}

void node_lose(struct node *node, uint64_t now, uint64_t member) {
        struct message_member *lost = find(node, member);

        node_wake(node, now);
        if (lost == NULL)
                return;
        drop(node, lost);
        report_send(node, now);
        node_advance(node, now);
}

void node_leave(struct node *node, uint64_t now, uint64_t member) {
        struct message_member *leaving = find(node, member);

        node_wake(node, now);
        if (leaving == NULL)
                return;
        leaving->leaving = true;
        report_send(node, now);
}

void node_sync(struct node *node, uint64_t member) {
        struct message_member *receiver = find(node, member);

        if (receiver != NULL && receiver->in && receiver->behind)
                receiver->tag = (struct tag){ 0 };
}

void node_synced(struct node *node, uint64_t member, const struct tag *tag) {
        struct message_member *receiver = find(node, member);

        if (receiver == NULL || !receiver->in || !receiver->behind)
                return;
        receiver->tag = *tag;
        receiver->behind = false;
}
