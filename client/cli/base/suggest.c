// SPDX-License-Identifier: Apache-2.0
/* Which word was likely meant: see suggest.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/base/suggest.h"
#include "proto/spelling.h"

#define OPTION_MOST 64 /* bytes of an option's name that are looked at */

char *suggest_question(char out[SUGGEST_SIZE], const char *best) {
        out[0] = '\0';
        if (best)
                snprintf(out, SUGGEST_SIZE, "; did you mean %s?", best);
        return out;
}

char *suggest_word(char out[SUGGEST_SIZE], const char *written, const char *const *words) {
        struct spelling spelling = { .word = written };

        for (; *words; words++)
                spelling_try(&spelling, *words);
        return suggest_question(out, spelling.best);
}

/* Extracts the name. False if it is longer than any option. */
static bool suggest_name(char out[OPTION_MOST], const char *written) {
        written += strspn(written, "-");
        size_t length = strcspn(written, "=");

        if (length >= OPTION_MOST)
                return false;
        memcpy(out, written, length);
        out[length] = '\0';
        return true;
}

const char *suggest_option(const char *written, const struct option *longs) {
        char name[OPTION_MOST];
        struct spelling spelling = { .word = name };

        if (!suggest_name(name, written))
                return NULL;
        for (; longs->name; longs++)
                spelling_try(&spelling, longs->name);
        return spelling.best;
}

char *suggest_complaint(char out[SUGGEST_SIZE], const char *written, const struct option *longs) {
        const char *best = suggest_option(written, longs);
        char name[OPTION_MOST], several[SUGGEST_SIZE / 2] = "";
        size_t n = 0, used = 0;

        for (const struct option *each = longs; suggest_name(name, written) && each->name; each++)
                if (*name && strncmp(each->name, name, strlen(name)) == 0 && used < sizeof several) {
                        n++;
                        used += (size_t)snprintf(several + used, sizeof several - used, "%s--%s",
                                                 used ? ", " : "", each->name);
                }
        if (n > 1)
                snprintf(out, SUGGEST_SIZE, "option %.60s is the beginning of several: %s", written, several);
        else
                snprintf(out, SUGGEST_SIZE, "option %.60s is unknown%s%s%s", written,
                         best ? "; did you mean --" : "", best ? best : "", best ? "?" : "");
        return out;
}
