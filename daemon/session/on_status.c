/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS. Of jobs that span daemons the other nodes are asked first, and the answer waits for theirs: in
 * elsewhere.h it has an end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "session/private.h"

#define PARKED 8u /* of one client; what it asks for beyond is answered with what is known */

struct reply {
        struct session *to;
        uint32_t request;
};

static void on_status_row(void *data, uint16_t type, const ProtobufCMessage *row) {
        const struct reply *reply = data;

        if (type == WIRE__MESSAGE_TYPE__STATUS_LINK && reply->to->minor < FRAME_MINOR_3)
                return;
        session_send(reply->to, type, reply->request, row);
}

static void on_status_reply(struct session *session, uint32_t request, const char *asked) {
        struct reply reply = { .to = session, .request = request };
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        SET(end, found, status_describe(session->sessions, session, asked, on_status_row, &reply));
        on_status_row(&reply, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
}

/* An answer of other nodes is complete. What a client asks after another STATUS waits for that one. */
static void on_status_told(void *data) {
        struct sessions *sessions = data;
        struct parked *parked, *spare;

        list_for_each_safe(parked, spare, &sessions->parked, link) {
                if (others_refresh(sessions, parked->session, parked->job, parked->after, false) > 0)
                        continue;
                list_remove(&parked->link);
                parked->session->n_parked--;
                on_status_reply(parked->session, parked->request, parked->job);
                free(parked);
        }
}

int on_status(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const char *asked = (CAST(Wire__Status, message))->job;
        struct sessions *sessions = session->sessions;
        uint64_t after = clock_now() - ELSEWHERE_FRESH;
        struct parked *parked;

        if (session->n_parked == PARKED || others_refresh(sessions, session, asked, after, true) == 0) {
                on_status_reply(session, request->id, asked);
                return 0;
        }
        parked = calloc(1, sizeof(*parked));
        if (parked == NULL)
                return -ENOMEM;
        parked->session = session;
        parked->request = request->id;
        parked->after = after;
        snprintf(parked->job, sizeof(parked->job), "%s", asked != NULL ? asked : "");
        session->n_parked++;
        list_append(&sessions->parked, &parked->link);
        elsewhere_on_complete(sessions->elsewhere, on_status_told, sessions);
        return 0;
}
