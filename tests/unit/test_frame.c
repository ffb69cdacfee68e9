/* SPDX-License-Identifier: Apache-2.0 */
/* The frame header: exact bytes, round trip, and one verdict for each way to be wrong. */
#include "tests.h"

#include "proto/diagnosis.h"
#include "proto/frame.h"

static const struct frame_header sample = {
        .major = FRAME_MAJOR,
        .type = 0x0102,
        .fds = 2,
        .length = 5,
        .request = 0x0a0b0c0d,
};

/* A valid packet with `length` payload bytes; returns its size. */
static size_t packet(uint8_t *out, uint32_t length) {
        struct frame_header header = sample;

        header.length = length;
        frame_encode(out, &header);
        memset(out + FRAME_HEADER, 0xee, length);
        return FRAME_HEADER + length;
}

TEST_ALONE(bytes_are_as_documented) {
        static const uint8_t expected[FRAME_HEADER] = {
                'G', 'S', 1, 0, 0x02, 0x01, 2, 0, 5, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a,
        };
        uint8_t out[FRAME_HEADER];

        frame_encode(out, &sample);
        assert_memory_equal(out, expected, sizeof(expected));
}

TEST_ALONE(what_was_encoded_is_decoded) {
        static uint8_t buffer[FRAME_MAX];
        static const uint32_t lengths[] = { 0, 1, 255, 256, 65535 - FRAME_HEADER, FRAME_PAYLOAD_MAX };
        struct frame_header header;

        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                assert_int_equal(frame_decode(buffer, packet(buffer, lengths[i]), &header), FRAME_OK);
                assert_int_equal(header.major, sample.major);
                assert_int_equal(header.type, sample.type);
                assert_int_equal(header.fds, sample.fds);
                assert_int_equal(header.length, lengths[i]);
                assert_int_equal(header.request, sample.request);
        }
}

TEST_ALONE(a_header_may_lie_at_any_address) {
        uint8_t buffer[64];
        struct frame_header header;

        for (size_t shift = 0; shift < 8; shift++) {
                size_t size = packet(buffer + shift, 5);
                assert_int_equal(frame_decode(buffer + shift, size, &header), FRAME_OK);
                assert_int_equal(header.request, sample.request);
        }
}

/* Decodes, and checks that a refused header leaves the result alone. */
static enum frame_verdict verdict(const uint8_t *bytes, size_t size) {
        struct frame_header header, before;
        enum frame_verdict result;

        memset(&header, 0x5a, sizeof(header));
        before = header;
        result = frame_decode(bytes, size, &header);
        if (result == FRAME_BAD_MAJOR)
                before.major = bytes[2];
        if (result != FRAME_OK)
                assert_memory_equal(&header, &before, sizeof(header));
        return result;
}

TEST_ALONE(each_mistake_has_its_verdict) {
        static uint8_t buffer[FRAME_MAX + 1];
        size_t size;

        for (size = 0; size < FRAME_HEADER; size++) {
                packet(buffer, 0);
                assert_int_equal(verdict(buffer, size), FRAME_SHORT);
        }
        size = packet(buffer, 5);
        assert_int_equal(verdict(buffer, size - 1), FRAME_BAD_LENGTH);
        assert_int_equal(verdict(buffer, size + 1), FRAME_BAD_LENGTH);
        for (unsigned bit = 0; bit < 16; bit++) {
                size = packet(buffer, 5);
                buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
                assert_int_equal(verdict(buffer, size), FRAME_BAD_MAGIC);
        }
        for (unsigned bit = 0; bit < 8; bit++) {
                size = packet(buffer, 5);
                buffer[2] ^= (uint8_t)(1u << bit);
                assert_int_equal(verdict(buffer, size), FRAME_BAD_MAJOR);
                size = packet(buffer, 5);
                buffer[3] = (uint8_t)(1u << bit);
                assert_int_equal(verdict(buffer, size), FRAME_BAD_FLAGS);
        }
        size = packet(buffer, 5);
        buffer[6] = FRAME_FDS_MAX + 1;
        assert_int_equal(verdict(buffer, size), FRAME_BAD_FDS);
        buffer[6] = 0;
        buffer[7] = 1;
        assert_int_equal(verdict(buffer, size), FRAME_BAD_FDS);
        for (uint32_t length = FRAME_PAYLOAD_MAX + 1; length != 0;
             length = length < UINT32_MAX / 2 ? length * 2 : 0) {
                size = packet(buffer, 5);
                for (unsigned i = 0; i < 4; i++)
                        buffer[8 + i] = (uint8_t)(length >> 8 * i);
                assert_int_equal(verdict(buffer, size), FRAME_TOO_LONG);
        }
}

TEST_ALONE(each_verdict_has_its_own_sentence) {
        for (int i = FRAME_OK; i <= FRAME_BAD_FDS; i++)
                for (int j = i; j <= FRAME_BAD_FDS + 1; j++)
                        assert_int_equal(i == j, !strcmp(frame_verdict_text((enum frame_verdict)i),
                                                         frame_verdict_text((enum frame_verdict)j)));
}

TEST_ALONE(diagnosis_pages_hold_every_bit) {
        static union {
                struct diagnosis page;
                uint8_t space[ARENA_PAGE * 3];
        } memory;

        assert_int_equal(diagnosis_bytes(0), ARENA_PAGE);
        assert_int_equal(diagnosis_bytes((ARENA_PAGE - DIAGNOSIS_BITMAP) * 8), ARENA_PAGE);
        assert_int_equal(diagnosis_bytes((ARENA_PAGE - DIAGNOSIS_BITMAP) * 8 + 1), 2 * ARENA_PAGE);
        assert_int_equal(diagnosis_bytes(LIMIT_PARAMS), 3 * ARENA_PAGE);
        for (uint32_t i = 0; i < LIMIT_PARAMS; i += 13) {
                assert_false(diagnosis_marked(&memory.page, i));
                diagnosis_mark(&memory.page, i);
                assert_true(diagnosis_marked(&memory.page, i));
                assert_false(diagnosis_marked(&memory.page, i + 1));
        }
        assert_int_equal(memory.space[DIAGNOSIS_BITMAP], 1);
        assert_int_equal(memory.space[DIAGNOSIS_BITMAP + 1], 1u << 5);
}
