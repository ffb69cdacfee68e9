/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/job/callers.h"

static bool callers_are_several(struct callers *callers) {
        bool news = !callers->several;

        callers->several = true;
        return news;
}

bool callers_note_home(struct callers *callers) {
        pthread_t self = pthread_self();

        if (!callers->has_home) {
                callers->has_home = true;
                callers->home = self;
        }
        return !pthread_equal(callers->home, self) && callers_are_several(callers);
}

bool callers_note_step(struct callers *callers) {
        pthread_t self = pthread_self();

        if (callers->has_home && pthread_equal(callers->home, self))
                return false;
        if (!callers->has_other) {
                callers->has_other = true;
                callers->other = self;
        }
        return !pthread_equal(callers->other, self) && callers_are_several(callers);
}

bool callers_wait_alone(const struct callers *callers, bool sequential) {
        return !callers->several && (sequential || !callers->has_other);
}
