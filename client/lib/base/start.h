/* SPDX-License-Identifier: Apache-2.0 */
/* What the text of a failure advises where no daemon is reachable. */
#pragma once

#include <stddef.h>

/* "Start one (…, or …), or set GRADSYNC_SOCKET", for this user on this host. `place`: the one socket that
 * was named, or NULL; `device`: the caller's, or NULL. */
void start_advice(const char *device, const char *place, char *text, size_t size);
