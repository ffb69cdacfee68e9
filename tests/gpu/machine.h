/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about the machine from files: who answers as its kernel, and under which hypervisor. All paths lie
 * below `root`, which is "" except in tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* gVisor, a hypervisor, the vendor: what is found, or "none found". */
void machine_runtime(const char *root, char *text, size_t size);

/* Whether a kernel in user space (gVisor) answers here. */
bool machine_user_kernel(const char *root);
