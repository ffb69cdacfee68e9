/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from /proc/cpuinfo whether the processor has certain instructions, so that a test is skipped if it
 * lacks them, and for no other reason. */
#pragma once

#include "unit.h"

static inline bool cpu_has(const char *flag) {
        FILE *file = fopen("/proc/cpuinfo", "re");
        char line[8192];
        bool has = false;

        assert_non_null(file);
        while (!has && fgets(line, sizeof(line), file) != NULL)
                for (char *rest = line, *word; (word = strtok_r(rest, " \t\n", &rest)) != NULL;)
                        has |= strcmp(word, flag) == 0;
        fclose(file);
        return has;
}

/* All of these, with blanks between them. */
static inline bool cpu_has_all(const char *flags) {
        char words[64];
        bool has = true;

        snprintf(words, sizeof(words), "%s", flags);
        for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
                has = has && cpu_has(word);
        return has;
}
