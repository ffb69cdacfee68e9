// SPDX-License-Identifier: Apache-2.0
/* Jobs that have ended, as daemons remember them: see ended.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/ask/ended.h"
#include "client/cli/base/cli.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"

/* Takes the row and puts it in front of the first one that ended earlier. 0, or -1 if memory is short. */
static int ended_insert(struct ended_jobs *jobs, Wire__StatusEnded *row, const char *device) {
        struct ended_job *grown = realloc(jobs->job, (jobs->n + 1) * sizeof *grown);
        char *where = strdup(device ? device : "");
        size_t at = 0;

        if (grown)
                jobs->job = grown;
        if (!grown || !where) {
                free(where);
                protobuf_c_message_free_unpacked(&row->base, NULL);
                return -1;
        }
        while (at < jobs->n && grown[at].row->ago_ms <= row->ago_ms)
                at++;
        memmove(&grown[at + 1], &grown[at], (jobs->n - at) * sizeof *grown);
        grown[at] = (struct ended_job){ .row = row, .device = where };
        jobs->n++;
        return 0;
}

/* The row lives only until the next one is received, so a copy of it is unpacked. */
static enum talk_result ended_take(struct talk *talk, const struct talk_reply *reply,
                                   struct ended_jobs *jobs) {
        ProtobufCMessage *row = protobuf_c_message_unpack(&wire__status_ended__descriptor, NULL,
                                                          reply->length, reply->payload);

        if (!row || ended_insert(jobs, (Wire__StatusEnded *)row, talk->device) < 0)
                return talk_fail(talk, TALK_FAILED, "out of memory");
        return TALK_OK;
}

enum talk_result ended_fetch(struct talk *talk, const char *job, struct ended_jobs *jobs) {
        Wire__Status request = WIRE__STATUS__INIT;
        struct talk_reply reply = { 0 };

        request.job = (char *)job;
        SET(request, ended, true);
        enum talk_result r = talk_send(talk, WIRE__MESSAGE_TYPE__STATUS, &request.base);
        while (!r && reply.type != WIRE__MESSAGE_TYPE__STATUS_END) {
                r = talk_receive(talk, &reply);
                if (!r && reply.type == WIRE__MESSAGE_TYPE__STATUS_ENDED)
                        r = ended_take(talk, &reply, jobs);
        }
        return r;
}

void ended_deinit(struct ended_jobs *jobs) {
        for (size_t i = 0; i < jobs->n; i++) {
                protobuf_c_message_free_unpacked(&jobs->job[i].row->base, NULL);
                free(jobs->job[i].device);
        }
        free(jobs->job);
        *jobs = (struct ended_jobs){ 0 };
}

void ended_tell(const struct ended_jobs *jobs, const char *asked) {
        const Wire__StatusEnded *row = jobs->job[0].row;
        _cleanup_(freep) char *name = escape_text(asked), *text = escape_text(row->text);
        char age[FORMAT_SIZE], step[FORMAT_SIZE + 16] = "";

        if (!name || !text) {
                cli_out_of_memory();
                return;
        }
        if (row->step > 0)
                snprintf(step, sizeof step, ", after step %" PRIu64, row->step);
        cli_complain("job \"%s\" ended %s ago%s: %s", name, format_age(age, row->ago_ms), step, text);
        if (row->traced)
                fprintf(stderr, "Its last steps:  gradsyncctl trace \"%s\" -o FILE\n", name);
        if (jobs->n > 1)
                fprintf(stderr, "Earlier ones of that name:  gradsyncctl list jobs --ended\n");
}
