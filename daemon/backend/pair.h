/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends of one daemon: that of its device, for plans, and `host`, for operations outside of steps,
 * whose payload lies where every CPU can read it. They are one backend if the device is the CPU. Both deliver
 * to one owner.
 */
#pragma once

#include "backend/backend.h"

struct pair {
        struct backend *device, *staging;
};

/* Opens both. `device` NULL: there is no backend, and the pair stays empty. 0, -ENOTSUP, or another error of
 * open(); *ret is empty after an error. */
int pair_open(const struct backend_ops *device, const struct backend_config *config, struct pair *ret);
/* All memories and tasks must be gone. */
void pair_close(struct pair *pair);
/* Return the sums over both backends, see backend.h. */
unsigned pair_ping(const struct pair *pair);
unsigned pair_workers(const struct pair *pair);
