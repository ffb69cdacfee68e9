/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine made of two: what lies in memory of the host goes through one of them, all else through the
 * other. A communicator of it is one of each, with those lanes that are theirs, and works when both do.
 */
#pragma once

#include "engine/engine.h"

/* Takes neither of them over: they are closed after it, by whoever has opened them. 0 and *ret, or -ENOMEM or
 * another negative errno. */
int both_open(struct engine *device, struct engine *host, struct engine **ret);
/* All communicators are dropped or aborted. NULL is fine. */
void both_close(struct engine *engine);
