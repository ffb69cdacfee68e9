/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures that cross the library's boundary start with their own size, so that a program and a library of
 * different ages understand each other. A field that is added lies beyond the old structure's sizeof, not in
 * its padding. Pure.
 */
#pragma once

#include <stddef.h>

/* Copies the caller's structure over our defaults in `ours` (`size` bytes, at least `oldest` of which
 * every version had). NULL leaves the defaults. Fields that this library does not know must be zero:
 * UNSUPPORTED otherwise; INVALID if the size field was never set. `what` names the structure. */
int options_take(void *ours, size_t size, size_t oldest, const void *theirs, const char *what);

/* Checks the size field of a structure that the caller wants filled. OK, or INVALID with the text. */
int options_check(const void *theirs, size_t oldest, const char *what);
/* Copies `ours` into the caller's structure as far as that reaches, and clears the fields that this library
 * does not know; the size field stays. */
void options_give(void *theirs, const void *ours, size_t size);
