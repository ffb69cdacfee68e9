/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of the probe's output: one line, a JSON object of fact, answer, detail and ms, flushed as soon as it
 * is known, so that what was found survives whatever comes next.
 */
#pragma once

#include <stdbool.h>

struct rows {
        int out;          /* file for a second copy, synced after each row; -1: none */
        bool user_kernel; /* a user-space kernel such as gVisor answers here */
};

/* Opens the file for the copy (NULL: none). Returns 0 or a negative errno. */
int rows_open(struct rows *rows, const char *path);
void rows_close(struct rows *rows);

/*
 * Prints one row. Under a user-space kernel a failure is not the driver's answer: no, error, hang and crash
 * become "undecided", and the detail says what it was. With `kernel` every answer does, as it would be the
 * host kernel's, except "skipped". Returns 0, or a negative errno if a row could not be written.
 */
int rows_print(struct rows *rows, const char *fact, const char *answer, const char *detail, double ms,
               bool kernel);
