/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine made of two: pieces in memory of the host go through one of them, all other pieces through the
 * other. A communicator of it consists of one communicator of each, with the lanes that are for that engine,
 * and works when both do.
 */
#pragma once

#include "engine/engine.h"

/* Takes neither engine over: their opener closes them after this one. 0 and *ret, or -ENOMEM or another
 * negative errno. */
int both_open(struct engine *device, struct engine *host, struct engine **ret);
/* All communicators must be dropped or aborted. NULL is fine. */
void both_close(struct engine *engine);
