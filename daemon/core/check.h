/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All checks of settings that are well-formed by themselves: whether they go together, and suit this machine
 * and, for a cluster, the coordinator. Each check is one function of check.c, and says what it finds. Nothing
 * is made, and clients are not served.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/config.h"
#include "link/key.h"

/* CONFIG_CHECK connects to the coordinator, as an unknown daemon without jobs. It writes one line per
 * finding, with TABs between: ok, warn or fail; the check; the finding; and the way to repair it ("" if there
 * is nothing to repair). CONFIG_CHECK_FILES does not connect. It writes a sentence per finding that is not
 * ok: the one of a start, and the way to repair it. Returns the exit status: 1 if something fails. */
int check_settings(const struct config *config, enum config_action action, FILE *to);

/* The CPUs of `affinity` that the workers can have. 0: all of them, or there is no such setting; 1: some, and
 * a sentence in `text` names the others; -EINVAL: none, and a sentence. */
int check_affinity(const struct config *config, cpu_set_t *ret, char *text, size_t size);

/* Loads the keys of key_file, or of the unit's credential. 0; or a negative errno and a sentence in `error`:
 * -ENOTSUP if there are keys and this was built without TLS. */
int check_load_keys(const struct config *config, struct keys *ret, char *error, size_t size);
