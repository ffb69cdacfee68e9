/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Returns unused memory to the system some time after clients have gone. The allocator itself returns only
 * memory at the end of its heap, and a few small blocks that outlive many clients prevent that.
 */
#pragma once

#include <stdbool.h>

#include "base/loop.h"

struct tidy {
        struct loop_timer *timer;
        bool armed;
};

int tidy_init(struct tidy *tidy, struct loop *loop); /* 0 or a negative errno */
void tidy_deinit(struct tidy *tidy);
/* Notes that memory was freed. One look a while later, for many such calls, decides whether to return
 * memory. */
void tidy_later(struct tidy *tidy);
