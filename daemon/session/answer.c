/* SPDX-License-Identifier: Apache-2.0 */
/* Counts rows, bytes and time: see answer.h. */
#include "session/answer.h"

#include "base/clock.h"

void answer_begin(struct answer *answer, uint32_t from) {
        answer->from = from;
        answer->at = 0;
}

void answer_give(struct answer *answer, uint32_t about, uint16_t type, const ProtobufCMessage *row) {
        bool wanted = answer_wants(answer);

        if (answer->full)
                return;
        answer->at += about;
        if (!wanted)
                return;
        answer->row(answer->data, type, row);
        answer->bytes += FRAME_HEADER + protobuf_c_message_get_packed_size(row);
        answer->full = answer->bytes >= answer->most || clock_now() >= answer->end;
}

void answer_skip(struct answer *answer) {
        if (!answer->full)
                answer->at++;
}

void answer_row(void *data, uint16_t type, const ProtobufCMessage *row) {
        struct answer *answer = data;

        answer_give(answer, 1, type, row);
}
