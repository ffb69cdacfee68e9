/* SPDX-License-Identifier: Apache-2.0 */
/* Types and reductions by the names that commands of member.c use, and elements of gradients. */
#pragma once

#include <stddef.h>
#include <stdint.h>

size_t dtype_bytes(unsigned dtype);
unsigned dtype_of(const char *name);
unsigned reduce_of(const char *name);
void store(void *at, unsigned dtype, uint64_t i, double value);
double load(const void *at, unsigned dtype, uint64_t i);
