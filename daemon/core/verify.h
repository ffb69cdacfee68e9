/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether settings that are well-formed by themselves go together, and suit this machine: all that a
 * start finds out before it opens the device or a socket. Looks at files, groups, addresses and CPUs;
 * connects to nothing, makes nothing.
 */
#pragma once

#include <sched.h>
#include <stddef.h>
#include <stdio.h>

#include "core/config.h"

/* The CPUs of `affinity` that the workers can have. 0: all of them, or there is no such setting; 1: some, and
 * a sentence in `text` names the others; -EINVAL: none, and a sentence. */
int verify_affinity(const struct config *config, cpu_set_t *ret, char *text, size_t size);
/* 0, or -EINVAL and a sentence. */
int verify_times(const struct config *config, char *error, size_t size);
/* Checks all that can be checked. A setting that works, but not as it is written, or that cannot be checked
 * from here, gets a line in `notes`. 0, or a negative errno and a sentence in `error`, as a start says it. */
int verify_settings(const struct config *config, FILE *notes, char *error, size_t size);
