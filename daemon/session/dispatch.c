/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a packet to its handler: one table says which message a client may send, with how many fds; what
 * breaks the rules ends the session, what the handler refuses is answered.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "session/private.h"

struct entry {
        uint16_t type;
        unsigned fds;                   /* it may carry */
        session_handler handler;
};

static const struct entry table[] = {
        { WIRE__MESSAGE_TYPE__READY, 0, on_ready },
        { WIRE__MESSAGE_TYPE__HELLO, 1, on_hello },
        { WIRE__MESSAGE_TYPE__JOIN, 0, on_join },
        { WIRE__MESSAGE_TYPE__LEAVE, 0, on_leave },
        { WIRE__MESSAGE_TYPE__PLAN_BEGIN, 0, on_plan_begin },
        { WIRE__MESSAGE_TYPE__PLAN_PARAMS, 0, on_plan_params },
        { WIRE__MESSAGE_TYPE__PLAN_BUCKETS, 0, on_plan_buckets },
        { WIRE__MESSAGE_TYPE__PLAN_COMMIT, 0, on_plan_commit },
        { WIRE__MESSAGE_TYPE__PLAN_MAPPED, 0, on_plan_mapped },
        { WIRE__MESSAGE_TYPE__PLAN_DROP, 0, on_plan_drop },
        { WIRE__MESSAGE_TYPE__STAGING, 0, on_staging },
        { WIRE__MESSAGE_TYPE__STAGING_MAPPED, 0, on_staging_mapped },
        { WIRE__MESSAGE_TYPE__OPERATION, 0, on_operation },
        { WIRE__MESSAGE_TYPE__STATUS, 0, on_status },
        { WIRE__MESSAGE_TYPE__TRACE, 0, on_trace },
        { WIRE__MESSAGE_TYPE__CONTROL, 0, on_control },
        { WIRE__MESSAGE_TYPE__REJOIN, 0, on_rejoin },
        { WIRE__MESSAGE_TYPE__REJOIN_PLAN, 1, on_rejoin_plan },
        { WIRE__MESSAGE_TYPE__REJOIN_STAGING, 1, on_rejoin_staging },
        { WIRE__MESSAGE_TYPE__REJOIN_END, 0, on_rejoin_end },
        { WIRE__MESSAGE_TYPE__REGISTER, 1, on_register },
        { WIRE__MESSAGE_TYPE__UNREGISTER, 0, on_unregister },
};

static const struct entry *find_entry(uint16_t type) {
        for (size_t i = 0; i < array_size(table); i++)
                if (table[i].type == type)
                        return &table[i];
        return NULL;
}

static void wrong_version(struct session *session, unsigned major) {
        struct refusal refusal;

        refuse(&refusal, WIRE__CODE__VERSION,
               "gradsyncd %s speaks protocol version %u, this client %u; use a client library of the "
               "daemon's release",
               GRADSYNC_RELEASE, FRAME_MAJOR, major);
        session_evict(session, &refusal);
}

/* What the frame asks for, if this client may ask it now; NULL if the session had to end. */
static const struct entry *admit(struct session *session, const struct frame_header *header, unsigned n_fds) {
        const struct entry *entry = find_entry(header->type);
        bool hello = header->type == WIRE__MESSAGE_TYPE__HELLO;

        if (entry == NULL)
                session_protocol_error(session, codec_type_name(header->type), "a client does not send this");
        else if (hello != (session->state == SESSION_GREETING))
                session_protocol_error(session, codec_type_name(header->type),
                                       hello ? "said twice" : "came before HELLO");
        else if (n_fds != header->fds || n_fds > entry->fds)
                session_protocol_error(session, codec_type_name(header->type),
                                       "it came with another number of fds than it may have");
        else
                return entry;
        return NULL;
}

static void dispatch(struct session *session, const struct frame_header *header, const uint8_t *payload,
                     int *fds, unsigned n_fds) {
        const struct entry *entry = admit(session, header, n_fds);
        struct request request;
        const ProtobufCMessage *message;
        const char *why = "";
        int r;

        if (entry == NULL)
                return;
        message = codec_unpack(&session->sessions->codec, header->type, payload, header->length, &why);
        if (message == NULL) {
                session_protocol_error(session, codec_type_name(header->type), why);
                return;
        }
        request.id = header->request;
        request.fds = fds;
        request.n_fds = n_fds;
        r = entry->handler(session, &request, message);
        if (r > 0 && header->type != WIRE__MESSAGE_TYPE__READY) {
                session_send_refused(session, header->request, &request.refusal);
        } else if (r > 0) {
                if (flood_admits(FLOOD_PROTOCOL, session->peer.uid, clock_now()))
                        log_warning("client pid %d, uid %u is evicted: %s", (int)session->peer.pid,
                                    (unsigned)session->peer.uid, request.refusal.text);
                session_evict(session, &request.refusal);
        } else if (r < 0) {
                if (flood_admits(FLOOD_FAILED, session->peer.uid, clock_now()))
                        log_error("%s of pid %d, uid %u failed: %s", codec_type_name(header->type),
                                  (int)session->peer.pid, (unsigned)session->peer.uid, strerror(-r));
                session_refuse(session, WIRE__CODE__SYSTEM, strerror(-r));
        }
}

void session_packet(struct session *session, const void *packet, size_t size, int *fds, unsigned n_fds) {
        struct frame_header header;
        enum frame_verdict verdict;

        if (session->state == SESSION_ENDING)
                return;
        verdict = frame_decode(packet, size, &header);
        if (verdict == FRAME_OK)
                dispatch(session, &header, (const uint8_t *)packet + FRAME_HEADER, fds, n_fds);
        else if (verdict == FRAME_BAD_MAJOR)
                wrong_version(session, header.major);
        else
                session_protocol_error(session, "bad frame", frame_verdict_text(verdict));
}
