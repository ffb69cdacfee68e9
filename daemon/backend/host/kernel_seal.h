/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that make and check seals, and how their tasks are cut and what they cost. */
#pragma once

#include "backend/backend.h"
#include "kernel/kernel.h"

bool kernel_seal_is_valid(const struct backend_task *description);
/* Returns the number of pieces in a slice. */
size_t kernel_seal_slice(const struct backend_seal *seal);
/* Returns the bytes of a reduction that takes about as long. */
uint64_t kernel_seal_traffic(const struct backend_task *description);

void kernel_seal_make(const struct kernel_slice *slice);
void kernel_seal_check(const struct kernel_slice *slice);
