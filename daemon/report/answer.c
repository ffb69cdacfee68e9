/* SPDX-License-Identifier: Apache-2.0 */
/* Counts rows, bytes and time: see answer.h. */
#include "report/answer.h"

#include "base/clock.h"

struct answer answer_to(const struct query *query) {
        return (struct answer){ .query = query,
                                .now = clock_now(),
                                .most = SIZE_MAX,
                                .end = UINT64_MAX,
                                .found.looks = ANSWER_LOOKS };
}

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
        answer->query->row(answer->query->data, type, row);
        answer->bytes += FRAME_HEADER + protobuf_c_message_get_packed_size(row);
        answer->full = answer->bytes >= answer->most || clock_now() >= answer->end;
}

bool answer_skips(struct answer *answer) {
        if (answer_wants(answer))
                return false;
        answer->at += !answer->full;
        return true;
}
