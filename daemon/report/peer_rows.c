/* SPDX-License-Identifier: Apache-2.0 */
/* Shows people the rows of other nodes about their parts in a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "report/private.h"

static int peer_rows_compare(const void *a, const void *b) {
        const struct peer_rows_member *one = a, *other = b;

        if (one->unranked != other->unranked)
                return one->unranked ? 1 : -1;
        if (one->rank != other->rank && !one->unranked)
                return one->rank < other->rank ? -1 : 1;
        return one->at < other->at ? -1 : 1;
}

void peer_rows_find_members(struct view *view, struct peer_rows_members *ret) {
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0, before = 0;

        ret->n = 0;
        while ((row = view_next(view, &at, &type)) != NULL && ret->n < 2 * LIMIT_LOCAL) {
                if (type == WIRE__MESSAGE_TYPE__STATUS_MEMBER) {
                        const Wire__StatusMember *member = CAST(Wire__StatusMember, row);

                        ret->member[ret->n++] = (struct peer_rows_member){ .rank = member->rank,
                                                                           .unranked = member->unranked,
                                                                           .at = before };
                }
                before = at;
        }
        qsort(ret->member, ret->n, sizeof(ret->member[0]), peer_rows_compare);
}

/* The row is the view's own memory, and is sent before anything else is unpacked there. */
void peer_rows_send_member(struct answer *answer, struct view *view, const struct peer_rows_member *member,
                           uint32_t job) {
        size_t at = member->at;
        uint16_t type;
        Wire__StatusMember *message = (Wire__StatusMember *)(uintptr_t)view_next(view, &at, &type);

        if (message == NULL)
                return;
        SET(*message, job, job);
        message->has_client = false; /* another daemon's number */
        answer_give(answer, 1, type, &message->base);
}

/* Whether a wait of another node is shown. A wait for members of other nodes is not: their own node shows
 * it. */
static bool peer_rows_is_shown(const Wire__StatusWait *wait) {
        enum wait_kind kind;

        return wait->host != NULL && wait_row_kind(wait->what, &kind) && kind != WAIT_NODES &&
               kind != WAIT_JOIN;
}

static void peer_rows_send_trouble(struct answer *answer, const struct job_wait *wait, uint32_t job) {
        Wire__StatusWait message = WIRE__STATUS_WAIT__INIT;

        SET(message, job, job);
        message.what = (char *)"node";
        message.text = (char *)wait->text;
        SET(message, since_ms, (clock_now() - wait->since) / USEC_PER_MSEC);
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_WAIT, &message.base);
}

/* `waiting`: other nodes are waited for, so that a coordinator that does not answer is of interest, too. */
unsigned peer_rows_send_waits(struct answer *answer, struct view *view, uint32_t job, bool waiting) {
        const ProtobufCMessage *from;
        struct job_wait trouble;
        unsigned n = 0;
        uint16_t type;
        size_t at = 0;

        while ((from = view_next(view, &at, &type)) != NULL && n < LIMIT_LOCAL) {
                Wire__StatusWait *message = (Wire__StatusWait *)(uintptr_t)from;

                if (type != WIRE__MESSAGE_TYPE__STATUS_WAIT || !peer_rows_is_shown(message))
                        continue;
                SET(*message, job, job);
                answer_give(answer, 1, type, &message->base);
                n++;
        }
        if (n == 0 && waiting && view_trouble(view, &trouble)) {
                peer_rows_send_trouble(answer, &trouble, job);
                n++;
        }
        return n;
}

/* The node whose account of the job is passed on: one that waits, or else the first one. *ret_forming is the
 * size of a job that forms, else 0. */
static bool peer_rows_find_job(struct view *view, size_t *ret, uint32_t *ret_forming) {
        const ProtobufCMessage *row;
        size_t at = 0, before = 0;
        bool found = false;
        uint16_t type;

        while ((row = view_next(view, &at, &type)) != NULL) {
                const Wire__StatusJob *job = CAST(Wire__StatusJob, row);

                if (type == WIRE__MESSAGE_TYPE__STATUS_JOB && job->name != NULL && job->state != NULL &&
                    (!found || strcmp(job->state, "stalled") == 0)) {
                        *ret = before;
                        *ret_forming = strcmp(job->state, "forming") == 0 ? job->world : 0;
                        found = true;
                }
                before = at;
        }
        return found;
}

/* Rows of a kind that follow one node's account of the job. */
static unsigned peer_rows_send_own(struct answer *answer, struct view *view, size_t at, uint16_t wanted,
                                   const char *what, uint32_t job) {
        const ProtobufCMessage *from;
        unsigned n = 0;
        uint16_t type;

        view_next(view, &at, &type);
        while ((from = view_next(view, &at, &type)) != NULL && type != WIRE__MESSAGE_TYPE__STATUS_JOB) {
                if (type != wanted)
                        continue;
                if (type == WIRE__MESSAGE_TYPE__STATUS_PLAN) {
                        SET(*(Wire__StatusPlan *)(uintptr_t)from, job, job);
                } else {
                        Wire__StatusWait *wait = (Wire__StatusWait *)(uintptr_t)from;

                        if (wait->what == NULL || strcmp(wait->what, what) != 0)
                                continue;
                        SET(*wait, job, job);
                }
                answer_give(answer, 1, type, from);
                n++;
        }
        return n;
}

bool peer_rows_send_job(struct answer *answer, struct view *view, uint32_t job) {
        struct peer_rows_members members;
        uint32_t forming;
        char text[600];
        uint16_t type;
        size_t at, first;

        if (!peer_rows_find_job(view, &first, &forming))
                return false;
        peer_rows_find_members(view, &members);
        if (forming > 0)
                view_missing(view, 0, forming, text, sizeof(text));
        at = first;
        Wire__StatusJob *message = (Wire__StatusJob *)(uintptr_t)view_next(view, &at, &type);
        SET(*message, job, job);
        if (forming > 0)
                message->text = text;
        answer_give(answer, 1, type, &message->base);
        for (unsigned i = 0; i < members.n; i++)
                peer_rows_send_member(answer, view, &members.member[i], job);
        peer_rows_send_own(answer, view, first, WIRE__MESSAGE_TYPE__STATUS_PLAN, NULL, job);
        if (peer_rows_send_waits(answer, view, job, false) == 0)
                peer_rows_send_own(answer, view, first, WIRE__MESSAGE_TYPE__STATUS_WAIT, "nodes", job);
        peer_rows_send_own(answer, view, first, WIRE__MESSAGE_TYPE__STATUS_WAIT, "join", job);
        return true;
}

/* ---- TRACE */

struct peer_rows_nodes {
        const struct query *query;
        uint32_t node;
        bool found;
        uint32_t n;
        struct peer_rows_node {
                Wire__TraceNode row;
                char host[LIMIT_NAME + 1];
        } at[HUB_NODES];
};

static void peer_rows_end_trace(const struct peer_rows_nodes *nodes, Wire__TraceEnd *end) {
        SET(*end, found, nodes->found);
        SET(*end, now_us, clock_now());
        nodes->query->row(nodes->query->data, WIRE__MESSAGE_TYPE__TRACE_END, &end->base);
}

/* From the coordinator's clock to the one of this daemon, if both are known. */
static void peer_rows_set_clock(const struct reports_cluster *cluster, Wire__TraceNode *row) {
        uint64_t round_trip;
        int64_t ahead;

        if (row->self) {
                SET(*row, clock_us, 0);
                SET(*row, round_trip_us, 0);
        } else if (row->has_clock_us && cluster->clock(cluster->data, &ahead, &round_trip)) {
                SET(*row, clock_us, (int64_t)((uint64_t)row->clock_us - (uint64_t)ahead));
                SET(*row, round_trip_us, row->round_trip_us + round_trip);
        } else {
                row->has_clock_us = row->has_round_trip_us = false;
        }
}

static void peer_rows_add_node(struct peer_rows_nodes *nodes, const Wire__TraceNode *from) {
        struct peer_rows_node *node = &nodes->at[nodes->n];

        if (nodes->n == HUB_NODES)
                return;
        nodes->n++;
        node->row = *from;
        snprintf(node->host, sizeof(node->host), "%s", from->host != NULL ? from->host : "");
        node->row.host = node->host;
        peer_rows_set_clock(&nodes->query->reports->cluster, &node->row);
}

/* Each node says in its statement which one it is. */
static void peer_rows_add_nodes(void *to, struct job *job, const struct hub_job *name) {
        struct peer_rows_nodes *nodes = to;
        const struct reports *reports = nodes->query->reports;
        struct view *view = views_find(reports->views, name, VIEW_OTHERS, 0);
        Wire__TraceNode self = WIRE__TRACE_NODE__INIT;
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        nodes->found = true;
        if (job != NULL) {
                SET(self, node, job->machine.attachment.address);
                SET(self, self, true);
                self.host = (char *)(uintptr_t)reports->cluster.host;
                peer_rows_add_node(nodes, &self);
        }
        while (view != NULL && (row = view_next(view, &at, &type)) != NULL) {
                const Wire__TraceEnd *said = CAST(Wire__TraceEnd, row);

                for (size_t i = 0; type == WIRE__MESSAGE_TYPE__TRACE_END && i < said->n_node; i++)
                        peer_rows_add_node(nodes, said->node[i]);
        }
}

void reports_trace_nodes(const struct query *query) {
        struct peer_rows_nodes nodes = { .query = query };
        Wire__TraceNode *rows[HUB_NODES];
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;

        peers_each(query, peer_rows_add_nodes, &nodes);
        end.node = rows;
        end.n_node = nodes.n;
        for (uint32_t i = 0; i < nodes.n; i++)
                rows[i] = &nodes.at[i].row;
        peer_rows_end_trace(&nodes, &end);
}

static void peer_rows_send_steps(void *to, struct job *job, const struct hub_job *name) {
        struct peer_rows_nodes *nodes = to;
        struct view *view = views_find(nodes->query->reports->views, name, VIEW_RECORD, nodes->node);
        const ProtobufCMessage *row;
        uint16_t type;
        size_t at = 0;

        while (view != NULL && (row = view_next(view, &at, &type)) != NULL)
                if (type == WIRE__MESSAGE_TYPE__TRACE_STEP) {
                        nodes->query->row(nodes->query->data, type, row);
                        nodes->found = true;
                }
}

void reports_trace_node(const struct query *query, uint32_t node) {
        struct peer_rows_nodes nodes = { .query = query, .node = node };
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;

        peers_each(query, peer_rows_send_steps, &nodes);
        peer_rows_end_trace(&nodes, &end);
}
