/* SPDX-License-Identifier: Apache-2.0 */
/* The engines that this daemon was built with. */
#pragma once

#include "engine/engine.h"

struct engines_config {
        const char *gloo_helper; /* path of the helper program; "": where it is installed */
        uint32_t silence;        /* ms without an acknowledgement, after which a node is out of reach */
};

/* The engine for memory of the host: 0 and *ret, which is NULL if there is none; or a negative errno. */
int engines_open(const struct engines_config *config, struct engine **ret);
/* All communicators are dropped or aborted. NULL is fine. */
void engines_close(struct engine *engine);
