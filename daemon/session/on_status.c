/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS. A client gets a piece of bounded size and time, and asks for the next one; the daemon remembers
 * nothing between pieces. For jobs that span daemons the coordinator's daemon is asked first, and the first
 * piece waits for its answer. views.h bounds that wait.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "session/status.h"
#include "session/walk.h"

#define PARKED 8u               /* of one client; a further STATUS is answered at once, with what is known */
#define PIECE_BYTES (96u << 10) /* of frames; the piece ends with the one that goes beyond */
#define PIECE_TIME 500u         /* us; the same */

struct reply {
        struct session *to;
        uint32_t request;
};

static void on_status_row(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct reply *reply = data;

        session_send(reply->to, type, reply->request, row);
}

static struct answer on_status_begin(struct reply *reply, const char *asked) {
        struct session *session = reply->to;

        return (struct answer){ .sessions = session->sessions,
                                .viewer = session,
                                .asked = asked,
                                .now = clock_now(),
                                .row = on_status_row,
                                .data = reply,
                                .whole = true,
                                .found.looks = ANSWER_LOOKS };
}

static void on_status_send_piece(struct session *session, uint32_t request, const char *asked,
                                 struct place place) {
        struct reply reply = { .to = session, .request = request };
        struct answer answer = on_status_begin(&reply, asked);
        Wire__StatusPlace next = WIRE__STATUS_PLACE__INIT;
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;
        bool found;

        answer.most = PIECE_BYTES;
        answer.end = answer.now + PIECE_TIME;
        if (!walk(&answer, &place, &found)) {
                SET(next, part, place.part);
                SET(next, thing, place.thing);
                SET(next, row, place.row);
                SET(next, until, place.until);
                end.next = &next;
        }
        SET(end, found, found);
        on_status_row(&reply, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
}

/* It has a bounded number of rows, and comes in one piece. */
static void on_status_send_ended(struct session *session, uint32_t request, const char *asked) {
        struct reply reply = { .to = session, .request = request };
        struct answer answer = on_status_begin(&reply, asked);
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        answer.most = SIZE_MAX;
        answer.end = UINT64_MAX;
        status_send_daemon(&answer);
        SET(end, found, ended_send_jobs(&answer) > 0 || status_asks_for_all(asked));
        on_status_row(&reply, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
}

static void on_status_send_first(struct session *session, uint32_t request, const char *asked,
                                 uint32_t node) {
        on_status_send_piece(session, request, asked, (struct place){ 0 });
}

/* An answer has come: replies to each request that waits for no further one. A request that came while the
 * question was open has waited for the same answer. */
static void on_status_told(void *data) {
        struct sessions *sessions = data;
        struct parked *parked, *spare;

        list_for_each_safe(parked, spare, &sessions->parked, link) {
                if (peers_refresh(parked->session, parked->job, &parked->wanted, false) > 0)
                        continue;
                list_remove(&parked->link);
                parked->session->n_parked--;
                parked->answer(parked->session, parked->request, parked->job, parked->wanted.node);
                free(parked);
        }
}

int status_wait(struct session *session, struct request *request, const char *job, parked_fn *answer,
                const struct wanted_view *wanted) {
        struct sessions *sessions = session->sessions;
        struct parked *parked;

        if (peers_refresh(session, job, wanted, true) == 0) {
                answer(session, request->id, job, wanted->node);
                return 0;
        }
        if (session->n_parked == PARKED)
                return refuse(&request->refusal, WIRE__CODE__QUOTA,
                              "%u requests of this client wait for other nodes; wait for an answer", PARKED);
        parked = calloc(1, sizeof(*parked));
        if (parked == NULL)
                return -ENOMEM;
        parked->session = session;
        parked->request = request->id;
        parked->answer = answer;
        parked->wanted = *wanted;
        snprintf(parked->job, sizeof(parked->job), "%s", job != NULL ? job : "");
        session->n_parked++;
        list_append(&sessions->parked, &parked->link);
        views_on_complete(sessions->views, on_status_told, sessions);
        return 0;
}

static bool on_status_goes_on(const Wire__Status *status) {
        return status->from != NULL && (status->from->has_part || status->from->has_thing);
}

static struct place on_status_place(const Wire__StatusPlace *from) {
        return (struct place){
                .part = from->part, .row = from->row, .thing = from->thing, .until = from->until
        };
}

int on_status(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Status *status = CAST(Wire__Status, message);
        const struct wanted_view wanted = { .what = VIEW_OTHERS, .after = clock_now() - VIEWS_FRESH };

        if (status->ended) {
                on_status_send_ended(session, request->id, status->job);
                return 0;
        }
        if (on_status_goes_on(status)) {
                on_status_send_piece(session, request->id, status->job, on_status_place(status->from));
                return 0;
        }
        if (session->n_parked == PARKED) {
                on_status_send_first(session, request->id, status->job, 0);
                return 0;
        }
        return status_wait(session, request, status->job, on_status_send_first, &wanted);
}
