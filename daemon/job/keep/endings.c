/* SPDX-License-Identifier: Apache-2.0 */
/* Places for the last jobs that have ended: see endings.h. */
#include "job/keep/endings.h"

#include <assert.h>

#include "base/cleanup.h"

const char *ending_reason_name(enum ending_reason reason) {
        static const char *const names[] = {
                [ENDING_LEFT] = "left",         [ENDING_LOST] = "lost",
                [ENDING_EVICTED] = "evicted",   [ENDING_SUPERSEDED] = "superseded",
                [ENDING_SHUTDOWN] = "shutdown", [ENDING_UNFORMED] = "unformed",
                [ENDING_GIVEN_UP] = "given up",
        };

        _Static_assert(array_size(names) == ENDING_REASONS, "each reason has a name");
        assert(reason < ENDING_REASONS);
        return names[reason];
}

static unsigned endings_of(const struct endings *endings, uid_t uid) {
        unsigned n = 0;

        for (unsigned i = 0; i < ENDINGS_MOST; i++)
                n += endings->ending[i].sequence != 0 && endings->ending[i].uid == uid;
        return n;
}

/* Finds the ending to forget when all places are taken: the oldest one of the user that has most of them. If
 * several users have as many, the oldest one of theirs. */
static struct job_ending *endings_find_victim(struct endings *endings) {
        struct job_ending *found = NULL;
        unsigned most = 0;

        for (unsigned i = 0; i < ENDINGS_MOST; i++) {
                struct job_ending *ending = &endings->ending[i];
                unsigned n = endings_of(endings, ending->uid);

                if (n < most || (n == most && found != NULL && ending->sequence > found->sequence))
                        continue;
                most = n;
                found = ending;
        }
        return found;
}

void endings_note(struct endings *endings, const struct job_ending *ending) {
        struct job_ending *place = NULL;

        for (unsigned i = 0; i < ENDINGS_MOST && place == NULL; i++)
                if (endings->ending[i].sequence == 0)
                        place = &endings->ending[i];
        if (place == NULL)
                place = endings_find_victim(endings);
        *place = *ending;
        place->sequence = ++endings->sequence;
}

const struct job_ending *endings_before(const struct endings *endings, uint64_t sequence) {
        const struct job_ending *found = NULL;

        for (unsigned i = 0; i < ENDINGS_MOST; i++) {
                const struct job_ending *ending = &endings->ending[i];

                if (ending->sequence != 0 && ending->sequence < sequence &&
                    (found == NULL || ending->sequence > found->sequence))
                        found = ending;
        }
        return found;
}
