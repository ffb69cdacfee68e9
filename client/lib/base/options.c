/* SPDX-License-Identifier: Apache-2.0 */
/* Copying of sized structures, both ways. */
#include "client/lib/base/options.h"

#include <string.h>

#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"

static int options_check_size(size_t theirs, size_t oldest, const char *what) {
        if (theirs < oldest || theirs > 65536)
                return fail(GRADSYNC_INVALID,
                            "%s: the size field is %zu; start from the structure's initialiser", what,
                            theirs);
        return GRADSYNC_OK;
}

int options_take(void *ours, size_t size, size_t oldest, const void *theirs, const char *what) {
        size_t given;

        if (theirs == NULL)
                return GRADSYNC_OK;
        memcpy(&given, theirs, sizeof(given));
        int r = options_check_size(given, oldest, what);
        if (r != GRADSYNC_OK)
                return r;
        for (size_t i = size; i < given; i++)
                if (((const unsigned char *)theirs)[i] != 0)
                        return fail(GRADSYNC_UNSUPPORTED,
                                    "%s: a field is set that libgradsync %s does not know; the program was "
                                    "built for a newer one",
                                    what, GRADSYNC_RELEASE);
        memcpy(ours, theirs, given < size ? given : size);
        return GRADSYNC_OK;
}

int options_check(const void *theirs, size_t oldest, const char *what) {
        size_t given;

        memcpy(&given, theirs, sizeof(given));
        return options_check_size(given, oldest, what);
}

void options_give(void *theirs, const void *ours, size_t size) {
        size_t given;

        memcpy(&given, theirs, sizeof(given));
        if (given > size)
                memset((unsigned char *)theirs + size, 0, given - size);
        memcpy((unsigned char *)theirs + sizeof(given), (const unsigned char *)ours + sizeof(given),
               (given < size ? given : size) - sizeof(given));
}
