/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes of the kernel's, as hexadecimal digits. */
#pragma once

#include <stddef.h>

#define RANDOM_MOST 32u /* bytes */

/* Writes 2 x `bytes` digits and a NUL. 0, or -1 with errno, and what is wrong on stderr. */
int random_hex(char *text, size_t bytes);
