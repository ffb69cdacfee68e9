/* SPDX-License-Identifier: Apache-2.0 */
/* A timer that looks at how much memory is free. To give back a MiB takes some tens of microseconds. */
#include "base/tidy.h"

#include <malloc.h>

#include "base/clock.h"

#define DELAY (100 * USEC_PER_MSEC)
#define WORTH_IT (1u << 20) /* bytes */

static void tidy_look(void *data) {
        struct tidy *tidy = data;

        tidy->armed = false;
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
        if (mallinfo2().fordblks > WORTH_IT)
                malloc_trim(0);
#endif
}

int tidy_init(struct tidy *tidy, struct loop *loop) {
        tidy->armed = false;
        return loop_timer_new(loop, tidy_look, tidy, &tidy->timer);
}

void tidy_deinit(struct tidy *tidy) {
        tidy->timer = loop_timer_free(tidy->timer);
}

void tidy_later(struct tidy *tidy) {
        if (!tidy->armed)
                tidy->armed = loop_timer_arm(tidy->timer, DELAY) == 0;
}
