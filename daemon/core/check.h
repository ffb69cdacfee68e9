/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gradsyncd --check`: looks whether these settings can work in a cluster, and serves nobody. It reads the
 * keys, asks for the addresses, and connects to the coordinator as a daemon that nobody knows and that has no
 * jobs. What it finds goes out line by line, with TABs between: ok, warn or fail; the check; what was found;
 * and how to repair it ("" if nothing is to be). Without a cluster there is nothing to say.
 */
#pragma once

#include <stdio.h>

#include "core/config.h"

/* The exit status: 0, or 1 if something fails. */
int check_cluster(const struct config *config, FILE *to);
