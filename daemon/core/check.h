/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gradsyncd --check`: looks whether these settings can work, and serves nobody. It compares the limit of
 * memory that it runs under with them. For a cluster it reads the keys, asks for the addresses, and connects
 * to the coordinator as a daemon that nobody knows and that has no jobs. What it finds goes out line by line,
 * with TABs between: ok, warn or fail; the check; what was found; and how to repair it ("" if nothing is to
 * be).
 */
#pragma once

#include <stdio.h>

#include "core/config.h"

/* The exit status: 0, or 1 if something fails. */
int check_settings(const struct config *config, FILE *to);
