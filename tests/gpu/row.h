/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of a program's output: one line, a JSON object of fact, answer, detail and ms, written as soon as it
 * is known, so that what was found survives whatever comes next.
 */
#pragma once

/* Returns 0, or a negative errno. */
int row_print(const char *fact, const char *answer, const char *detail, double ms);
