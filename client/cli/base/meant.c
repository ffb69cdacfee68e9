// SPDX-License-Identifier: Apache-2.0
/* Which word was likely meant: see meant.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/base/meant.h"
#include "proto/near.h"

#define OPTION_MOST 64 /* bytes of an option's name that are looked at */

char *meant_question(char out[MEANT_SIZE], const char *best) {
        out[0] = '\0';
        if (best)
                snprintf(out, MEANT_SIZE, "; did you mean %s?", best);
        return out;
}

char *meant_word(char out[MEANT_SIZE], const char *written, const char *const *words) {
        struct near near = { .word = written };

        for (; *words; words++)
                near_try(&near, *words);
        return meant_question(out, near.best);
}

/* Extracts the name. False if it is longer than any option. */
static bool meant_name(char out[OPTION_MOST], const char *written) {
        written += strspn(written, "-");
        size_t length = strcspn(written, "=");

        if (length >= OPTION_MOST)
                return false;
        memcpy(out, written, length);
        out[length] = '\0';
        return true;
}

const char *meant_option(const char *written, const struct option *longs) {
        char name[OPTION_MOST];
        struct near near = { .word = name };

        if (!meant_name(name, written))
                return NULL;
        for (; longs->name; longs++)
                near_try(&near, longs->name);
        return near.best;
}

char *meant_complaint(char out[MEANT_SIZE], const char *written, const struct option *longs) {
        const char *best = meant_option(written, longs);
        char name[OPTION_MOST], several[MEANT_SIZE / 2] = "";
        size_t n = 0, used = 0;

        for (const struct option *each = longs; meant_name(name, written) && each->name; each++)
                if (*name && strncmp(each->name, name, strlen(name)) == 0 && used < sizeof several) {
                        n++;
                        used += (size_t)snprintf(several + used, sizeof several - used, "%s--%s",
                                                 used ? ", " : "", each->name);
                }
        if (n > 1)
                snprintf(out, MEANT_SIZE, "option %.60s is the beginning of several: %s", written, several);
        else
                snprintf(out, MEANT_SIZE, "option %.60s is unknown%s%s%s", written,
                         best ? "; did you mean --" : "", best ? best : "", best ? "?" : "");
        return out;
}
