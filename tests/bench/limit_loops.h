/* SPDX-License-Identifier: Apache-2.0 */
/* One thread's part of the loops of limit_peer.c: `n` elements, a multiple of 16. */
#pragma once

#include <stddef.h>

void loop_reduce(float *const *buffer, unsigned members, size_t n, float scale);
void loop_scale(float *buffer, size_t n, float scale);
void loop_copy(float *restrict to, const float *restrict from, size_t n);
