/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress bars as they can stand in one row of a terminal, whatever the bytes are that a program has
 * written. Pure.
 */
#pragma once

#include <stddef.h>

/* Writes as much of the text as fits into that many columns, and into `size` bytes. Colours stay, and end
 * with the row; whatever else would move the cursor or change the terminal is left out. Returns the length;
 * 0 if there is nothing to be seen. */
size_t bars_row(const char *text, size_t length, unsigned columns, char *out, size_t size);
