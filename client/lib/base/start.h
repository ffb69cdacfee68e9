/* SPDX-License-Identifier: Apache-2.0 */
/* The advice in the text of a failure where no daemon is reachable. */
#pragma once

#include <stddef.h>

/* Writes "Start one (…, or …), or set GRADSYNC_SOCKET", for this user on this host. `place` is the one
 * socket that was named, `device` the caller's device; both may be NULL. */
void start_advice(const char *device, const char *place, char *text, size_t size);
