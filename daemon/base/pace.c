/* SPDX-License-Identifier: Apache-2.0 */
/* A token bucket that fills at the rate of the user. One second fills it, whatever the rate. */
#include "pace.h"

#include "clock.h"

bool pace_is_full(const struct pace *pace, uint64_t now) {
        return now - pace->last >= USEC_PER_SEC;
}

bool pace_admits(struct pace *pace, uint64_t rate, uint64_t now) {
        pace->left += (double)(now - pace->last) * (double)rate / USEC_PER_SEC;
        if (pace_is_full(pace, now) || pace->left > (double)rate)
                pace->left = (double)rate;
        pace->last = now;
        if (pace->left < 1)
                return false;
        pace->left -= 1;
        return true;
}
