/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS and TRACE. A client gets a piece of bounded size, and asks for the next one; the daemon remembers
 * nothing between pieces. If the answer has rows of other nodes, the coordinator's daemon or that node is
 * asked first, and the answer waits for that. views.h bounds that wait.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "session/private.h"

#define PARKED 8u /* of one client; a further STATUS is answered at once, with what is known */

struct reply {
        struct session *to;
        uint32_t request;
};

static void reply_row(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct reply *reply = data;

        session_send(reply->to, type, reply->request, row);
}

static struct query reply_query(struct reply *reply, const char *asked) {
        struct session *session = reply->to;

        return (struct query){ .reports = session->sessions->config.reports,
                               .viewer = { .uid = session->client.uid,
                                           .sees_all = session_is_operator(session),
                                           .may_drain = session_may_drain(session) },
                               .asked = asked,
                               .row = reply_row,
                               .data = reply };
}

/* An answer has come: replies to each request that waits for no further one. A request that came while the
 * question was open has waited for the same answer. */
void on_status_told(void *data) {
        struct sessions *sessions = data;
        struct parked *parked, *spare;

        list_for_each_safe(parked, spare, &sessions->parked, link) {
                struct reply reply = { parked->session, parked->request };
                struct query query = reply_query(&reply, parked->job);

                if (reports_await(&query, &parked->wanted, false) > 0)
                        continue;
                list_remove(&parked->link);
                parked->session->n_parked--;
                parked->answer(&query, parked->wanted.node);
                free(parked);
        }
}

/* Answers a request for what other nodes say, at once or when that is known. */
static int on_status_wait(struct session *session, const struct query *query, struct request *request,
                          void (*answer)(const struct query *query, uint32_t node),
                          const struct wanted_view *wanted) {
        struct parked *parked;

        if (session->n_parked == PARKED) /* no question more, which would cost memory and messages */
                return refuse(&request->refusal, WIRE__CODE__QUOTA,
                              "%u requests of this client wait for other nodes; wait for an answer", PARKED);
        if (reports_await(query, wanted, true) == 0) {
                answer(query, wanted->node);
                return 0;
        }
        parked = calloc(1, sizeof(*parked));
        if (parked == NULL)
                return -ENOMEM;
        parked->session = session;
        parked->request = request->id;
        parked->answer = answer;
        parked->wanted = *wanted;
        snprintf(parked->job, sizeof(parked->job), "%s", query->asked != NULL ? query->asked : "");
        session->n_parked++;
        list_append(&session->sessions->parked, &parked->link);
        return 0;
}

static void on_status_first(const struct query *query, uint32_t node) {
        reports_status(query, NULL);
}

int on_status(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Status *status = CAST(Wire__Status, message);
        const struct wanted_view wanted = { .what = VIEW_OTHERS, .after = clock_now() - VIEWS_FRESH };
        struct reply reply = { session, request->id };
        struct query query = reply_query(&reply, status->job);
        bool goes_on = status->from != NULL && (status->from->has_part || status->from->has_thing);

        if (status->ended)
                reports_archive(&query);
        else if (goes_on || session->n_parked == PARKED)
                reports_status(&query, goes_on ? status->from : NULL);
        else
                return on_status_wait(session, &query, request, on_status_first, &wanted);
        return 0;
}

static void on_trace_nodes(const struct query *query, uint32_t node) {
        reports_trace_nodes(query);
}

int on_trace(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Trace *trace = CAST(Wire__Trace, message);
        const uint64_t kept = trace->nodes ? VIEWS_FRESH : VIEWS_RECORD;
        const struct wanted_view wanted = { .what = trace->nodes ? VIEW_OTHERS : VIEW_RECORD,
                                            .node = trace->node,
                                            .after = clock_now() - kept };
        struct reply reply = { session, request->id };
        struct query query = reply_query(&reply, trace->job);

        if (trace->job == NULL || trace->job[0] == '\0')
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "TRACE names no job; say which one: NAME or UID/NAME");
        if (trace->has_node && trace->node >= LIMIT_NODES)
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "TRACE names node %u; nodes have numbers below %u", trace->node, LIMIT_NODES);
        if (trace->nodes || trace->has_node)
                return on_status_wait(session, &query, request,
                                      trace->nodes ? on_trace_nodes : reports_trace_node, &wanted);
        reports_trace(&query, trace);
        return 0;
}
