/* SPDX-License-Identifier: Apache-2.0 */
/* What member.c reads from its commands and writes into gradients: types and reductions by their names, and
 * elements. */
#pragma once

#include <stddef.h>
#include <stdint.h>

size_t dtype_bytes(unsigned dtype);
unsigned dtype_of(const char *name);
unsigned reduce_of(const char *name);
void store(void *at, unsigned dtype, uint64_t i, double value);
double load(const void *at, unsigned dtype, uint64_t i);
