/* SPDX-License-Identifier: Apache-2.0 */
/* The base of all fuzz targets. A target reads its input, checks the properties that must hold for any input,
 * and keeps nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Holds in every build, also those without assert(). */
#define must(condition)                                                                                      \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);       \
                        abort();                                                                             \
                }                                                                                            \
        } while (0)
