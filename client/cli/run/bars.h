/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows a progress bar in one row of a terminal, whatever bytes a program has written. Pure.
 */
#pragma once

#include <stddef.h>

/* Writes as much of the text as fits into that many columns, and into `size` bytes. Colours stay, and end
 * with the row; other sequences that would move the cursor or change the terminal are left out. Returns the
 * length; 0 if nothing is visible. */
size_t bars_row(const char *text, size_t length, unsigned columns, char *out, size_t size);
