/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsyncctl doctor, in parts: a checkup is what was found out about daemons before any check; each check
 * adds findings to the report, one line each, with the repair where one is needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "find.h"
#include "snapshot.h"

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct finding {
        const char *check; /* name of the check */
        enum verdict verdict;
        char *what;
        char *fix; /* NULL where nothing is to be done */
};

struct report {
        struct finding *finding;
        size_t n;
        bool incomplete; /* memory was short */
};

struct checkup {
        const struct cli *cli;
        struct places places;
        const char *path;        /* of `places`: the daemon that answered, else the likeliest place */
        enum link_result result; /* for `path` */
        char error[1280];
        char *version; /* of the daemon that answered */
        char *device;
        unsigned minor;
        struct snapshot snapshot; /* .daemon NULL if none answered */
};

/* Adds a finding; the strings are taken over. A NULL `what` is a lack of memory and makes the report
 * incomplete. */
void report_add(struct report *report, const char *check, enum verdict verdict, char *what, char *fix);
/* sprintf into new memory; NULL if there is none. */
char *say(const char *format, ...) __attribute__((format(printf, 1, 2)));

void check_socket(const struct checkup *checkup, struct report *report);
void check_permissions(const struct checkup *checkup, struct report *report);
void check_version(const struct checkup *checkup, struct report *report);
void check_library(const struct checkup *checkup, struct report *report);
void check_open_files(const struct checkup *checkup, struct report *report);
void check_locked_memory(const struct checkup *checkup, struct report *report);
void check_memory(const struct checkup *checkup, struct report *report);
void check_shared_memory(const struct checkup *checkup, struct report *report);
void check_environment(const struct checkup *checkup, struct report *report);
void check_leftovers(const struct checkup *checkup, struct report *report);
