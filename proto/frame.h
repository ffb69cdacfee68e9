/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed header in front of every message, and the limits of the protocol. Pure: bytes in, header out; no
 * fd, no allocation, no log. Used by the daemon, libgradsync and gradsyncctl. PROTOCOL.md draws the bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FRAME_MAGIC 0x5347u /* "GS" read as little-endian 16 bit */
#define FRAME_MAJOR 1u      /* another major version is refused */
#define FRAME_MINOR 0u      /* highest minor version this build speaks */
#define FRAME_HEADER 16u    /* bytes */
#define FRAME_MAX 65536u    /* header and payload */
#define FRAME_PAYLOAD_MAX (FRAME_MAX - FRAME_HEADER)
#define FRAME_FDS_MAX 2u /* fds in one message */

#define LIMIT_NAME 255u            /* bytes of a job or parameter name */
#define LIMIT_TOKEN 255u           /* bytes of a job's token */
#define LIMIT_TEXT 1024u           /* bytes of any other string */
#define LIMIT_SECRET 32u           /* bytes of a member's secret */
#define LIMIT_LOCAL 256u           /* members of one job on one daemon */
#define LIMIT_WORLD 256u           /* members of one job, wherever they are */
#define LIMIT_PARAMS 65536u        /* parameters of a plan */
#define LIMIT_BUCKETS 16384u       /* buckets of a plan */
#define LIMIT_PLANS 64u            /* live plans of a job */
#define LIMIT_DIMS 8u              /* dimensions of a shape */
#define LIMIT_CHUNK 256u           /* parameters or buckets in one chunk */
#define LIMIT_BUCKET_PARAMS 65536u /* parameters of one bucket: absent and unused maps have so many bits */
#define LIMIT_RESULTS 128u         /* buckets in one STEP or TRACE_STEP; fewer where the frame is full */
#define LIMIT_CLASSES 17u          /* of a histogram */
#define LIMIT_RECOVERY_CLASSES 15u /* of the histogram of recoveries */
#define LIMIT_CAUSES 16u           /* numbers of Cause, with room for more */
#define LIMIT_LINK_REASONS 16u     /* for which connections are turned away, with room for more */
#define LIMIT_TRACE_NODES 64u      /* of a job, in one TRACE_END */
#define LIMIT_PEERS 64u            /* nodes of a job, in one STATUS_JOB */
#define LIMIT_ARENA (UINT64_C(1) << 46) /* bytes of one arena; quotas are far below */
#define ARENA_PAGE 4096u                /* alignment of a bucket in its arena */
#define ARENA_ALIGN 64u                 /* alignment of a parameter in its bucket */

/* The minor version of a connection with an end that speaks `theirs` at most: the lower one. */
static inline uint32_t frame_minor_with(uint32_t theirs) {
        uint32_t ours = FRAME_MINOR;

        return theirs < ours ? theirs : ours;
}

static inline uint64_t frame_round_up(uint64_t bytes, uint64_t to) {
        return (bytes + to - 1) / to * to;
}

struct frame_header {
        uint8_t major;
        /* Wire__MessageType, not checked here: the receiver handles unknown ones */
        uint16_t type;
        uint16_t fds;     /* fds that travel with this packet */
        uint32_t length;  /* payload bytes */
        uint32_t request; /* chosen by the client, echoed in the reply; 0: answers nothing */
};

enum frame_verdict {
        FRAME_OK = 0,
        FRAME_SHORT, /* fewer bytes than a header */
        FRAME_BAD_MAGIC,
        FRAME_BAD_MAJOR,
        FRAME_BAD_FLAGS,  /* a flag bit that this version does not know */
        FRAME_TOO_LONG,   /* length above FRAME_PAYLOAD_MAX */
        FRAME_BAD_LENGTH, /* packet and header disagree: truncated, or bytes after the payload */
        FRAME_BAD_FDS,    /* more than FRAME_FDS_MAX announced */
};

/* Writes the 16 header bytes. */
void frame_encode(uint8_t out[FRAME_HEADER], const struct frame_header *header);

/* Checks one whole packet of `size` bytes. On FRAME_OK `*ret` is set and the payload is packet+FRAME_HEADER,
 * ret->length bytes; on FRAME_BAD_MAJOR ret->major is set, so that the refusal can name it; otherwise *ret
 * is untouched. */
enum frame_verdict frame_decode(const void *packet, size_t size, struct frame_header *ret);

/* Checks the header of a frame in a byte stream: FRAME_HEADER bytes, for a payload of at most `most` bytes,
 * which follows. */
enum frame_verdict frame_decode_header(const uint8_t header[FRAME_HEADER], uint32_t most,
                                       struct frame_header *ret);

/* One sentence for people. */
const char *frame_verdict_text(enum frame_verdict verdict);
