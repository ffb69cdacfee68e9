// SPDX-License-Identifier: Apache-2.0
/* Pauses between the starts of a member: see pause.h. */
#include "client/cli/run/pause.h"

#define PAUSE_MS 500    /* before the second start in a row; doubles from there */
#define STEADY_MS 60000 /* a process that lives longer has not failed at its start */

int64_t pause_before_start(unsigned long *quick, int64_t lived, int64_t most) {
        int64_t pause = PAUSE_MS;

        if (lived >= STEADY_MS)
                *quick = 0;
        if ((*quick)++ == 0)
                return 0;
        for (unsigned long i = 2; i < *quick && pause < most; i++)
                pause *= 2;
        return pause < most ? pause : most;
}
