/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gradsyncd --check`: checks whether these settings can work, and serves no clients. It compares them with
 * the limit of memory under which it runs. For a cluster it reads the keys, looks the addresses up, and
 * connects to the coordinator as an unknown daemon without jobs. It writes one line per finding, with TABs
 * between: ok, warn or fail; the check; the finding; and the way to repair it ("" if there is nothing to
 * repair).
 */
#pragma once

#include <stdio.h>

#include "core/config.h"

/* The exit status: 0, or 1 if something fails. */
int check_settings(const struct config *config, FILE *to);
