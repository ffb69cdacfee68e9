/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their answers, found by id in a short list. */
#include "client/lib/wire/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/wire/context.h"
#include "gradsync/gradsync.h"

void request_open(struct gradsync *gs, struct request *request, uint16_t expects, request_answer_fn answer) {
        if (++gs->last_request == 0)
                gs->last_request = 1;
        request->id = gs->last_request;
        request->answered = false;
        request->expects = expects;
        request->answer = answer;
        request->refused = NULL;
        request->result = GRADSYNC_OK;
        request->next = gs->requests;
        gs->requests = request;
}

void request_close(struct gradsync *gs, struct request *request) {
        struct request **at = &gs->requests;

        while (*at != NULL && *at != request)
                at = &(*at)->next;
        if (*at != NULL)
                *at = request->next;
        request->id = 0;
        free(request->text);
        request->text = NULL;
}

void request_end(struct request *request, int result, const char *text) {
        if (request->id == 0 || request->answered)
                return;
        request->answered = true;
        request->result = result;
        request->text = strdup(text);
        request->culprit = (struct culprit)CULPRIT_NONE;
}

int request_take(struct gradsync *gs, struct request *request) {
        int r = request->result;

        if (r != GRADSYNC_OK)
                fail_about(fail(r, "%s", request->text ? request->text : "(no memory for the text)"),
                           &request->culprit);
        request_close(gs, request);
        return r;
}

int request_give_up(struct gradsync *gs) {
        char peer[192];

        fail(GRADSYNC_DAEMON_LOST,
             "%s does not answer; it is stopped or overloaded. The connection was given up: look at the "
             "daemon, then open, join and plan anew",
             link_peer(&gs->link, peer, sizeof(peer)));
        link_fail(&gs->link, GRADSYNC_DAEMON_LOST);
        return GRADSYNC_DAEMON_LOST;
}

int request_wait(struct gradsync *gs, struct request *request, uint64_t deadline) {
        while (!request->answered) {
                int r = context_wait(gs, deadline);

                /* Another thread may have taken the answer, or it came in the very moment of a signal. */
                if (request->answered)
                        break;
                if (r == GRADSYNC_TIMEOUT)
                        return request_give_up(gs);
                if (r != GRADSYNC_OK)
                        return r;
        }
        return request_take(gs, request);
}

int request_call(struct gradsync *gs, struct request *request, uint16_t type, const ProtobufCMessage *message,
                 int fd, uint16_t expects, request_answer_fn answer, uint64_t deadline) {
        uint32_t connection = gs->link.connection;

        while (request->id == 0) {
                int r;

                if (gs->link.connection != connection)
                        return REQUEST_BROKEN;
                request_open(gs, request, expects, answer);
                r = link_send(&gs->link, type, request->id, message, fd);
                if (r == GRADSYNC_OK)
                        break;
                request_close(gs, request);
                if (r != GRADSYNC_AGAIN)
                        return r;
                r = context_wait(gs, deadline);
                if (r == GRADSYNC_TIMEOUT)
                        return request_give_up(gs);
                if (r != GRADSYNC_OK)
                        return r;
        }
        return request_wait(gs, request, deadline);
}

static void request_take_culprit(struct culprit *culprit, const Wire__Refused *refused) {
        *culprit = (struct culprit)CULPRIT_NONE;
        if (refused->has_rank)
                culprit->rank = refused->rank;
        if (refused->has_pid)
                culprit->pid = refused->pid;
        if (refused->parameter != NULL)
                snprintf(culprit->parameter, sizeof(culprit->parameter), "%s", refused->parameter);
}

static int request_take_refusal(struct request *request, const Wire__Refused *refused) {
        request->result = refused->code > 0 ? (int)refused->code : GRADSYNC_PROTOCOL;
        request->text = strdup(refused->text ? refused->text : "no reason given");
        request_take_culprit(&request->culprit, refused);
        if (request->refused != NULL)
                request->refused(request);
        return GRADSYNC_OK;
}

int request_message(void *owner, const struct frame_header *header, const ProtobufCMessage *message,
                    struct fdpass_packet *packet) {
        struct gradsync *gs = owner;
        struct request *request = gs->requests;

        if (header->request == 0)
                return gs->handlers->notice(gs, header->type, message);

        while (request != NULL && request->id != header->request)
                request = request->next;
        /* The call that asked was given up. */
        if (request == NULL || request->answered)
                return GRADSYNC_OK;
        request->answered = true;
        if (header->type == WIRE__MESSAGE_TYPE__REFUSED)
                return request_take_refusal(request, (const Wire__Refused *)message);
        if (header->type != request->expects)
                return fail(GRADSYNC_PROTOCOL, "gradsyncd answered %s where %s was due",
                            codec_type_name(header->type), codec_type_name(request->expects));
        if (request->answer == NULL)
                return GRADSYNC_OK;
        request->result = request->answer(request, message, packet);
        if (request->result != GRADSYNC_OK)
                request->text = strdup(fail_text());
        return request->result == GRADSYNC_PROTOCOL ? request->result : GRADSYNC_OK;
}
