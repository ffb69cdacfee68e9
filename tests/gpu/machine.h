/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about the machine from files: kernel, driver, container runtime. All paths lie below `root`, which is
 * "" except in tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "Linux version 6.18.44 …", shortened to name and release. */
void machine_kernel(const char *root, char *text, size_t size);

/* "580.159.04, open kernel module", or "unknown". */
void machine_driver(const char *root, char *text, size_t size);

/* gVisor, a container runtime, a hypervisor: what is found, or "none found". */
void machine_runtime(const char *root, char *text, size_t size);

/* Whether a kernel in user space (gVisor) answers here. */
bool machine_user_kernel(const char *root);
