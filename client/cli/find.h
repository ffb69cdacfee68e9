/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where daemons may be. The first of these that says something decides: --socket, --device, GRADSYNC_SOCKET,
 * GRADSYNC_DEVICE. If none does, every device's default place and the user's private daemons are candidates.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli.h"

enum find_source {
        FIND_SOCKET_OPTION,
        FIND_DEVICE_OPTION,
        FIND_SOCKET_VARIABLE,
        FIND_DEVICE_VARIABLE,
        FIND_ANY
};

struct places {
        char **path;
        size_t n;
        enum find_source source;
        bool one; /* the paths are alternatives: the first that answers is meant */
};

/* For looking around (status, list, doctor). 0 or -ENOMEM. */
int find_all(const struct cli *cli, struct places *ret);
/* For joining: the places of one device only, no private daemons. 0 or -ENOMEM. */
int find_one(const struct cli *cli, struct places *ret);
void places_deinit(struct places *places);

const char *find_device(const struct cli *cli);        /* --device, else GRADSYNC_DEVICE, else "cpu" */
const char *find_source_name(enum find_source source); /* "--socket", …; "" for FIND_ANY */
