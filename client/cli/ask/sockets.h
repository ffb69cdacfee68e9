/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places where daemons may listen. The first of these that is set decides: --socket, --device,
 * GRADSYNC_SOCKET, GRADSYNC_DEVICE. If none is set, the default place of every device and the private daemons
 * of the user are candidates.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/cli/ask/talk.h"
#include "client/cli/base/cli.h"

enum sockets_source {
        SOCKETS_FROM_OPTION,
        SOCKETS_FROM_DEVICE_OPTION,
        SOCKETS_FROM_VARIABLE,
        SOCKETS_FROM_DEVICE_VARIABLE,
        SOCKETS_FROM_ANYWHERE
};

struct sockets {
        struct attempt {
                char *path;
                /* The result of the request there, and the talk's error text if it failed. TALK_OK also
                 * before any request. */
                enum talk_result result;
                char error[1280];
        } * at;
        size_t n;
        enum sockets_source source;
        bool one; /* the paths are alternatives: the first that answers is meant */
};

/* For looking around (status, list, doctor). 0 or -ENOMEM. */
int sockets_find_all(const struct cli *cli, struct sockets *ret);
/* For joining: the sockets of one device only, no private daemons. 0 or -ENOMEM. */
int sockets_find_one(const struct cli *cli, struct sockets *ret);
void sockets_deinit(struct sockets *sockets);

/* --device, else GRADSYNC_DEVICE, else "cpu". */
const char *sockets_device(const struct cli *cli);
/* "--socket" and so on; "" for SOCKETS_FROM_ANYWHERE. */
const char *sockets_source_name(enum sockets_source source);
