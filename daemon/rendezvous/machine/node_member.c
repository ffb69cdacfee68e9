/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a node: those that come, those that say goodbye, and those that are lost. */
#include "gradsync.pb-c.h"
#include "rendezvous/machine/node_private.h"

/* Refuses a member that this node cannot even report. */
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
        now = node_wake(node, now);
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
        struct report_member *lost = report_find(node, member);

        now = node_wake(node, now);
        if (lost == NULL)
                return;
        report_drop(node, lost, lost->leaving ? WIRE__CAUSE__LEAVING : cause);
        report_send(node, now);
        node_advance(node, now);
}

void node_leave(struct node *node, uint64_t now, uint64_t member) {
        struct report_member *leaving = report_find(node, member);

        now = node_wake(node, now);
        if (leaving == NULL)
                return;
        leaving->leaving = true;
        report_send(node, now);
}

void node_sync(struct node *node, uint64_t member) {
        struct report_member *receiver = report_find(node, member);

        if (receiver != NULL && receiver->in && receiver->behind)
                receiver->tag = (struct tag){ 0 };
}

void node_synced(struct node *node, uint64_t member, const struct tag *tag) {
        struct report_member *receiver = report_find(node, member);

        if (receiver == NULL || !receiver->in || !receiver->behind)
                return;
        receiver->tag = *tag;
        receiver->behind = false;
}

void node_wait(struct node *node, uint64_t now, bool wait) {
        node->wait = wait;
        now = node_wake(node, now);
        if (!wait && node->said_wait)
                report_send(node, now);
}

void node_end(struct node *node, uint64_t now, uint32_t cause) {
        now = node_wake(node, now);
        node->cause = cause;
        report_send(node, now);
}

bool node_waits(struct node *node, uint64_t member) {
        const struct report_member *found = report_find(node, member);

        return found != NULL && found->waits;
}
