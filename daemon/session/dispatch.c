/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leads a packet to its handler. One table says for each message that a client may send how many fds it
 * carries, and what it is about. A packet that breaks these rules ends the session; a request that a handler
 * refuses is answered. A handler finds its member in the request.
 */
#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "session/private.h"

enum scope {
        SCOPE_ANSWER,   /* an answer alone: not for a client whose process has ended */
        SCOPE_CLIENT,   /* the client itself */
        SCOPE_PLACE,    /* a place that it asks for; not answered if the next daemon will be asked */
        SCOPE_MEMBER,   /* a membership of it, in any state */
        SCOPE_RANKED,   /* a membership with a rank */
        SCOPE_PLANNING, /* a membership in a job that runs, or that replaces a lost member */
        SCOPE_RUNNING,  /* a membership in a job that runs */
};

/* A plan is one request in several frames. It is refused once, and the frames that still come are dropped. */
enum piece {
        PIECE_WHOLE,
        PIECE_FIRST,
        PIECE_FURTHER,
};

struct dispatch_row {
        uint16_t type;
        unsigned fds; /* it may carry */
        enum scope scope;
        enum piece piece;
        size_t job; /* offset of the membership's handle in the message */
        session_handler *handler;
};

#define CLIENT(TYPE, fds, scope, handler)                                                                    \
        { WIRE__MESSAGE_TYPE__##TYPE, fds, SCOPE_##scope, PIECE_WHOLE, 0, handler }
#define MEMBER(TYPE, Message, fds, scope, piece, handler)                                                    \
        {                                                                                                    \
                WIRE__MESSAGE_TYPE__##TYPE, fds, SCOPE_##scope, PIECE_##piece,                               \
                        offsetof(Wire__##Message, job), handler                                              \
        }

static const struct dispatch_row table[] = {
        MEMBER(READY, Ready, 0, RANKED, WHOLE, on_ready),
        CLIENT(HELLO, 1, CLIENT, on_hello),
        CLIENT(JOIN, 0, PLACE, on_join),
        MEMBER(LEAVE, Leave, 0, MEMBER, WHOLE, on_leave),
        MEMBER(PLAN_BEGIN, PlanBegin, 0, PLANNING, FIRST, on_plan_begin),
        MEMBER(PLAN_PARAMS, PlanParams, 0, PLANNING, FURTHER, on_plan_params),
        MEMBER(PLAN_BUCKETS, PlanBuckets, 0, PLANNING, FURTHER, on_plan_buckets),
        MEMBER(PLAN_COMMIT, PlanCommit, 0, PLANNING, FURTHER, on_plan_commit),
        MEMBER(PLAN_MAPPED, PlanMapped, 0, PLANNING, WHOLE, on_plan_mapped),
        MEMBER(PLAN_DROP, PlanDrop, 0, PLANNING, WHOLE, on_plan_drop),
        MEMBER(STAGING, Staging, 0, RUNNING, WHOLE, on_staging),
        MEMBER(STAGING_MAPPED, StagingMapped, 0, RUNNING, WHOLE, on_staging_mapped),
        MEMBER(OPERATION, Operation, 0, PLANNING, WHOLE, on_operation),
        CLIENT(STATUS, 0, ANSWER, on_status),
        CLIENT(TRACE, 0, ANSWER, on_trace),
        CLIENT(CONTROL, 0, CLIENT, on_control),
        CLIENT(REJOIN, 0, PLACE, on_rejoin),
        MEMBER(REJOIN_PLAN, RejoinPlan, 2, MEMBER, FURTHER, on_rejoin_plan),
        MEMBER(REJOIN_STAGING, RejoinStaging, 1, MEMBER, WHOLE, on_rejoin_staging),
        MEMBER(REJOIN_END, RejoinEnd, 0, MEMBER, WHOLE, on_rejoin_end),
        MEMBER(REGISTER, Register, 1, PLANNING, WHOLE, on_register),
        MEMBER(UNREGISTER, Unregister, 0, PLANNING, WHOLE, on_unregister),
};

static const struct dispatch_row *dispatch_find(uint16_t type) {
        for (size_t i = 0; i < array_size(table); i++)
                if (table[i].type == type)
                        return &table[i];
        return NULL;
}

static void dispatch_refuse_major(struct session *session, unsigned major) {
        struct refusal refusal;

        refuse(&refusal, WIRE__CODE__VERSION,
               "gradsyncd %s speaks protocol version %u, this client %u; use a client library of the "
               "daemon's release",
               GRADSYNC_RELEASE, FRAME_MAJOR, major);
        session_evict(session, &refusal);
}

/* Finds the table's row for the frame, if this client may send it now. NULL if the session had to end. */
static const struct dispatch_row *dispatch_admit(struct session *session, const struct frame_header *header,
                                                 unsigned n_fds) {
        const struct dispatch_row *row = dispatch_find(header->type);
        bool hello = header->type == WIRE__MESSAGE_TYPE__HELLO;

        if (row == NULL)
                session_protocol_error(session, codec_type_name(header->type), "a client does not send this");
        else if (hello != (session->state == SESSION_GREETING))
                session_protocol_error(session, codec_type_name(header->type),
                                       hello ? "said twice" : "came before HELLO");
        else if (n_fds != header->fds || n_fds > row->fds)
                session_protocol_error(session, codec_type_name(header->type),
                                       "it came with another number of fds than it may have");
        else
                return row;
        return NULL;
}

static bool dispatch_drops(const struct session *session, const struct dispatch_row *row, uint32_t request) {
        if (row->scope == SCOPE_ANSWER)
                return session->cause == WIRE__CAUSE__EXITED;
        if (row->scope == SCOPE_PLACE)
                return session->returns && session->sessions->config.jobs->gate == GATE_STOPPING;
        return row->piece == PIECE_FURTHER && request != 0 && request == session->refused_plan;
}

static struct member *dispatch_member(const struct session *session, uint32_t job, struct refusal *refusal) {
        struct member *member;

        list_for_each(member, &session->client.members, owner_link)
                if (member->job->id == job)
                        return member;
        refuse(refusal, WIRE__CODE__INVALID, "this connection is no member of a job with handle %u", job);
        return NULL;
}

/* Sets request->member if the message is about one. 0, or a code with request->refusal. */
static int dispatch_permit(struct session *session, const struct dispatch_row *row, struct request *request,
                           const ProtobufCMessage *message) {
        if (row->scope < SCOPE_MEMBER)
                return 0;
        struct member *member = dispatch_member(session, *CAST(uint32_t, (const char *)message + row->job),
                                                &request->refusal);
        if (member == NULL)
                return (int)request->refusal.code;
        request->member = member;
        if (row->scope == SCOPE_MEMBER || (row->scope == SCOPE_RANKED && member->state != MEMBER_JOINING) ||
            (row->scope == SCOPE_PLANNING && member->state == MEMBER_ACTIVE &&
             member->job->state == JOB_REPLACING))
                return 0;
        return member_check(member, &request->refusal);
}

/* READY is no request: a member that breaks its rules goes. */
static void dispatch_refuse(struct session *session, const struct dispatch_row *row,
                            const struct request *request) {
        if (row->piece != PIECE_WHOLE)
                session->refused_plan = request->id;
        if (row->type != WIRE__MESSAGE_TYPE__READY) {
                session_send_refused(session, request->id, &request->refusal);
                return;
        }
        if (flood_admits(FLOOD_PROTOCOL, session->client.uid, clock_now()))
                log_warning("client pid %d, uid %u is evicted: %s", (int)session->client.pid,
                            (unsigned)session->client.uid, request->refusal.text);
        session_evict(session, &request->refusal);
}

static void dispatch_fail(struct session *session, const struct dispatch_row *row, int error) {
        if (flood_admits(FLOOD_FAILED, session->client.uid, clock_now()))
                log_error("%s of pid %d, uid %u failed: %s", codec_type_name(row->type),
                          (int)session->client.pid, (unsigned)session->client.uid, strerror(-error));
        session_refuse(session, WIRE__CODE__SYSTEM, strerror(-error));
}

static void dispatch(struct session *session, const struct frame_header *header, const uint8_t *payload,
                     int *fds, unsigned n_fds) {
        const struct dispatch_row *row = dispatch_admit(session, header, n_fds);
        struct request request;
        const char *why = "";

        if (row == NULL)
                return;
        const ProtobufCMessage *message =
                codec_unpack(&session->sessions->codec, header->type, payload, header->length, &why);
        if (message == NULL) {
                session_protocol_error(session, codec_type_name(header->type), why);
                return;
        }
        if (dispatch_drops(session, row, header->request))
                return;
        if (row->piece == PIECE_FIRST)
                session->refused_plan = 0;
        request.id = header->request;
        request.fds = fds;
        request.n_fds = n_fds;
        request.member = NULL;
        if (row->type != WIRE__MESSAGE_TYPE__READY && row->type != WIRE__MESSAGE_TYPE__OPERATION)
                session->aside = clock_now();
        int r = dispatch_permit(session, row, &request, message);
        if (r == 0)
                r = row->handler(session, &request, message);
        jobs_advance(session->sessions->config.jobs);
        if (r > 0)
                dispatch_refuse(session, row, &request);
        else if (r < 0)
                dispatch_fail(session, row, r);
}

void session_packet(struct session *session, const void *packet, size_t size, int *fds, unsigned n_fds) {
        struct frame_header header;

        if (session->state == SESSION_ENDING)
                return;
        enum frame_verdict verdict = frame_decode(packet, size, &header);
        if (verdict == FRAME_OK)
                dispatch(session, &header, (const uint8_t *)packet + FRAME_HEADER, fds, n_fds);
        else if (verdict == FRAME_BAD_MAJOR)
                dispatch_refuse_major(session, header.major);
        else
                session_protocol_error(session, "bad frame", frame_verdict_text(verdict));
}
