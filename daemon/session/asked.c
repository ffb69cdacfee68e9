/* SPDX-License-Identifier: Apache-2.0 */
/* Answers another node about this node's part in a job, with rows of STATUS or of TRACE. */
#include <string.h>

#include "base/clock.h"
#include "session/private.h"

struct telling {
        struct sessions *sessions;
        struct job *job;
        uint32_t id;
        size_t used; /* of sessions->piece */
};

static void asked_add_row(void *data, uint16_t type, const ProtobufCMessage *row) {
        struct telling *telling = data;
        struct sessions *sessions = telling->sessions;
        ssize_t size = codec_pack(sessions->frame, type, 0, 0, row);

        if (size < 0 || (size_t)size > sizeof(sessions->piece))
                return;
        if (telling->used + (size_t)size > sizeof(sessions->piece)) {
                machine_tell(telling->job, telling->id, false, sessions->piece, telling->used);
                telling->used = 0;
        }
        memcpy(sessions->piece + telling->used, sessions->frame, (size_t)size);
        telling->used += (size_t)size;
}

static void asked_add_node(struct telling *telling) {
        const struct sessions_cluster *cluster = &telling->sessions->cluster;
        Wire__TraceNode node = WIRE__TRACE_NODE__INIT, *nodes[] = { &node };
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        uint64_t round_trip;
        int64_t ahead;

        SET(node, node, telling->job->machine.attachment.address);
        node.host = (char *)(uintptr_t)cluster->host;
        if (cluster->clock != NULL && cluster->clock(cluster->data, &ahead, &round_trip)) {
                SET(node, clock_us, ahead);
                SET(node, round_trip_us, round_trip);
        }
        end.node = nodes;
        end.n_node = 1;
        asked_add_row(telling, WIRE__MESSAGE_TYPE__TRACE_END, &end.base);
}

/* To the coordinator's clock, of the node itself; or its record, if it is meant. */
static void asked_trace(struct telling *telling, const Wire__Trace *trace) {
        if (trace->nodes)
                asked_add_node(telling);
        else if (trace->node == telling->job->machine.attachment.address)
                trace_describe_job(telling->job, asked_add_row, telling);
}

void asked_answer(struct job *job, uint32_t id, const void *waits, size_t bytes) {
        struct sessions *sessions = job_events_data(job);
        struct telling telling = { .sessions = sessions, .job = job, .id = id };
        const ProtobufCMessage *row;
        struct want want;
        uint16_t type;
        bool traced = false;
        size_t at = 0;

        while (!traced && (row = elsewhere_decode(sessions->elsewhere, waits, bytes, &at, &type)) != NULL) {
                traced = type == WIRE__MESSAGE_TYPE__TRACE;
                if (traced)
                        asked_trace(&telling, CAST(Wire__Trace, row));
                else if (type == WIRE__MESSAGE_TYPE__STATUS_WAIT &&
                         wait_row_want(CAST(Wire__StatusWait, row), &want))
                        job_want(job, &want);
        }
        if (!traced)
                status_describe_job(sessions, job, asked_add_row, &telling);
        machine_tell(job, id, true, sessions->piece, telling.used);
}
