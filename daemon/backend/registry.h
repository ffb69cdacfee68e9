/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the backend that serves a device, by the device's name. Opens none. */
#pragma once

#include <stddef.h>

#include "backend/backend.h"

/* Finds the backend of `device`. 0 and *ret, which is NULL for a device that has none; or -EINVAL with a
 * sentence for people in `error` that lists the devices that are known. */
int registry_find(const char *device, const struct backend_ops **ret, char *error, size_t size);
