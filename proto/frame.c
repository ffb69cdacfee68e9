/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the fixed header byte by byte, so that neither alignment nor byte order of the host
 * matters. */
#include "proto/frame.h"

enum {
        AT_MAGIC = 0,
        AT_MAJOR = 2,
        AT_FLAGS = 3,
        AT_TYPE = 4,
        AT_FDS = 6,
        AT_LENGTH = 8,
        AT_REQUEST = 12,
};

static void frame_put16(uint8_t *at, uint16_t value) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
}

static void frame_put32(uint8_t *at, uint32_t value) {
        frame_put16(at, (uint16_t)value);
        frame_put16(at + 2, (uint16_t)(value >> 16));
}

static uint16_t frame_get16(const uint8_t *at) {
        return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t frame_get32(const uint8_t *at) {
        return frame_get16(at) | (uint32_t)frame_get16(at + 2) << 16;
}

void frame_encode(uint8_t out[FRAME_HEADER], const struct frame_header *header) {
        frame_put16(out + AT_MAGIC, FRAME_MAGIC);
        out[AT_MAJOR] = header->major;
        out[AT_FLAGS] = 0;
        frame_put16(out + AT_TYPE, header->type);
        frame_put16(out + AT_FDS, header->fds);
        frame_put32(out + AT_LENGTH, header->length);
        frame_put32(out + AT_REQUEST, header->request);
}

enum frame_verdict frame_decode_header(const uint8_t in[FRAME_HEADER], uint32_t most,
                                       struct frame_header *ret) {
        if (frame_get16(in + AT_MAGIC) != FRAME_MAGIC)
                return FRAME_BAD_MAGIC;
        if (in[AT_MAJOR] != FRAME_MAJOR) {
                ret->major = in[AT_MAJOR];
                return FRAME_BAD_MAJOR;
        }
        if (in[AT_FLAGS] != 0)
                return FRAME_BAD_FLAGS;
        uint32_t length = frame_get32(in + AT_LENGTH);
        if (length > most)
                return FRAME_TOO_LONG;
        uint16_t fds = frame_get16(in + AT_FDS);
        if (fds > FRAME_FDS_MAX)
                return FRAME_BAD_FDS;
        *ret = (struct frame_header){
                .major = in[AT_MAJOR],
                .type = frame_get16(in + AT_TYPE),
                .fds = fds,
                .length = length,
                .request = frame_get32(in + AT_REQUEST),
        };
        return FRAME_OK;
}

enum frame_verdict frame_decode(const void *packet, size_t size, struct frame_header *ret) {
        struct frame_header header = { 0 };

        if (size < FRAME_HEADER)
                return FRAME_SHORT;
        enum frame_verdict verdict = frame_decode_header(packet, FRAME_PAYLOAD_MAX, &header);
        if (verdict == FRAME_BAD_MAJOR)
                ret->major = header.major;
        if (verdict != FRAME_OK)
                return verdict;
        if (header.length != size - FRAME_HEADER)
                return FRAME_BAD_LENGTH;
        *ret = header;
        return FRAME_OK;
}

const char *frame_verdict_text(enum frame_verdict verdict) {
        switch (verdict) {
        case FRAME_OK: return "the frame is well formed";
        case FRAME_SHORT: return "the packet is shorter than a frame header";
        case FRAME_BAD_MAGIC: return "the packet does not start like a gradsync frame";
        case FRAME_BAD_MAJOR: return "the frame has another major protocol version";
        case FRAME_BAD_FLAGS: return "the frame header has a flag that this version does not know";
        case FRAME_TOO_LONG: return "the frame announces more payload than a frame may have";
        case FRAME_BAD_LENGTH: return "the packet is longer or shorter than its header says";
        case FRAME_BAD_FDS: return "the frame announces more file descriptors than a frame may carry";
        }
        return "the frame is malformed";
}
