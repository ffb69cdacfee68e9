/* SPDX-License-Identifier: Apache-2.0 */
/* Places for the last jobs that have ended: see archive.h. */
#include "job/keep/archive.h"

#include <assert.h>

#include "base/cleanup.h"

const char *archive_reason_name(enum archive_reason reason) {
        static const char *const names[] = {
                [ARCHIVE_LEFT] = "left",         [ARCHIVE_LOST] = "lost",
                [ARCHIVE_EVICTED] = "evicted",   [ARCHIVE_SUPERSEDED] = "superseded",
                [ARCHIVE_SHUTDOWN] = "shutdown", [ARCHIVE_UNFORMED] = "unformed",
                [ARCHIVE_GIVEN_UP] = "given up",
        };

        _Static_assert(array_size(names) == ARCHIVE_REASONS, "each reason has a name");
        assert(reason < ARCHIVE_REASONS);
        return names[reason];
}

static unsigned archive_of(const struct archive *archive, uid_t uid) {
        unsigned n = 0;

        for (unsigned i = 0; i < ARCHIVE_MOST; i++)
                n += archive->job[i].sequence != 0 && archive->job[i].uid == uid;
        return n;
}

/* Finds the job to forget when all places are taken: the oldest one of the user that has most of them. If
 * several users have as many, the oldest one of theirs. */
static struct archived_job *archive_find_victim(struct archive *archive) {
        struct archived_job *found = NULL;
        unsigned most = 0;

        for (unsigned i = 0; i < ARCHIVE_MOST; i++) {
                struct archived_job *job = &archive->job[i];
                unsigned n = archive_of(archive, job->uid);

                if (n < most || (n == most && found != NULL && job->sequence > found->sequence))
                        continue;
                most = n;
                found = job;
        }
        return found;
}

void archive_add(struct archive *archive, const struct archived_job *job) {
        struct archived_job *place = NULL;

        for (unsigned i = 0; i < ARCHIVE_MOST && place == NULL; i++)
                if (archive->job[i].sequence == 0)
                        place = &archive->job[i];
        if (place == NULL)
                place = archive_find_victim(archive);
        *place = *job;
        place->sequence = ++archive->sequence;
}

const struct archived_job *archive_before(const struct archive *archive, uint64_t sequence) {
        const struct archived_job *found = NULL;

        for (unsigned i = 0; i < ARCHIVE_MOST; i++) {
                const struct archived_job *job = &archive->job[i];

                if (job->sequence != 0 && job->sequence < sequence &&
                    (found == NULL || job->sequence > found->sequence))
                        found = job;
        }
        return found;
}
