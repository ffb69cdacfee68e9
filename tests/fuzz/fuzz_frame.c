/* SPDX-License-Identifier: Apache-2.0 */
/* The frame header: an accepted packet is exactly what its header says, and encoding the header gives the
 * same bytes again. */
#include "fuzz.h"

#include <string.h>

#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct frame_header header = {
                .major = 0xee, .type = 0xeeee, .fds = 0xeeee, .length = 0xeeeeeeee, .request = 0xeeeeeeee
        };
        struct frame_header before = header;
        enum frame_verdict verdict = frame_decode(data, size, &header);
        uint8_t again[FRAME_HEADER];

        must(*frame_verdict_text(verdict));
        if (verdict != FRAME_OK) {
                must(verdict != FRAME_BAD_MAJOR || header.major != FRAME_MAJOR);
                must(header.type == before.type && header.fds == before.fds &&
                     header.length == before.length && header.request == before.request);
                return 0;
        }
        must(header.length == size - FRAME_HEADER && size <= FRAME_MAX && header.fds <= FRAME_FDS_MAX);
        frame_encode(again, &header);
        must(!memcmp(again, data, FRAME_HEADER));
        return 0;
}
