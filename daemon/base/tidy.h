/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives memory that nobody uses back to the system, some time after clients have gone. The allocator does so
 * only with what lies at the end of its heap, and a few small blocks that outlive many clients prevent that.
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
/* Something was freed: looks whether it is worth it, after a while and once for many. */
void tidy_later(struct tidy *tidy);
