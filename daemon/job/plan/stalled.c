/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/stalled.h"

#include "base/clock.h"
#include "base/log.h"
#include "job/data.h"

void stalled_end(struct stalled *stalled, const struct job *job, uint64_t number, const char *what) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (stalled->number == number && stalled->generation == job->generation)
                log_write(LOG_NOTICE, &context, "job '%s', %s: goes on after waiting %.1f s for %s",
                          job->name, what, (double)(clock_now() - stalled->since) / 1e6, stalled->whom);
        *stalled = (struct stalled){ 0 };
}
