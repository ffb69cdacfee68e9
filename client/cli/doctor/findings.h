/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of the doctor: one line each, with the repair where one is needed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct finding {
        char *check; /* its name */
        enum verdict verdict;
        char *what;
        char *fix; /* NULL where nothing is to be done */
};

struct findings {
        struct finding *finding;
        size_t n;
        bool incomplete; /* memory was short */
};

extern const char *const verdict_names[VERDICT_FAIL + 1];

/* Adds a finding and takes over `what` and `fix`. A NULL `what` is a lack of memory and makes the findings
 * incomplete. */
void findings_add(struct findings *findings, const char *check, enum verdict verdict, char *what, char *fix);
void findings_deinit(struct findings *findings);
