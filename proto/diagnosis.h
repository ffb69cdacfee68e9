/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The diagnosis pages of a member's plan. They are the contents of its control memory, a memfd that the
 * daemon makes and passes beside the arena. Only libgradsync writes them; the daemon reads them to say what a
 * member waits for or has not done yet, to report times, and to find members that wait for each other. They
 * decide nothing else: a member can write anything here at any moment, so the daemon reads each value once,
 * and trusts none. A lie about `blocked` ends the member's own job. Little-endian, as the hosts are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"

#define DIAGNOSIS_VERSION 1u /* of the layout */
#define DIAGNOSIS_BITMAP 64u /* offset of the bitmap */
/* Bytes in use in the longest pages. */
#define DIAGNOSIS_MOST (DIAGNOSIS_BITMAP + LIMIT_PARAMS / 8)

struct diagnosis {
        /* time that callers spent blocked in finish and wait, since the plan was agreed */
        uint64_t exposed_ns;
        uint64_t elapsed_ns;  /* time since the plan was agreed */
        uint64_t step;        /* the open step */
        uint64_t version;     /* DIAGNOSIS_VERSION; 0: nothing has been written yet */
        uint64_t blocked;     /* step whose end a call of the member waits for, which does nothing else; or
                             DIAGNOSIS_AGREEMENT; 0: none */
        uint64_t reserved[3]; /* 0 */
        /* bit i: parameter i (registration order) is ready or absent in the open step */
        uint8_t ready[];
};

/* In `blocked`: the member waits for all members to agree on the plan. */
#define DIAGNOSIS_AGREEMENT UINT64_MAX

_Static_assert(offsetof(struct diagnosis, ready) == DIAGNOSIS_BITMAP, "the layout is part of the protocol");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arenas hold little-endian numbers");

/* Bytes of the diagnosis pages for a plan of `params` parameters: PLAN_BEGIN.control_bytes must equal it. */
static inline uint64_t diagnosis_bytes(uint32_t params) {
        return frame_round_up(DIAGNOSIS_BITMAP + ((uint64_t)params + 7) / 8, ARENA_PAGE);
}

/* Any thread of the member may call it. */
static inline void diagnosis_mark(struct diagnosis *page, uint32_t param) {
        __atomic_fetch_or(&page->ready[param / 8], (uint8_t)(1u << param % 8), __ATOMIC_RELAXED);
}

static inline bool diagnosis_marked(const struct diagnosis *page, uint32_t param) {
        return __atomic_load_n(&page->ready[param / 8], __ATOMIC_RELAXED) >> param % 8 & 1;
}
