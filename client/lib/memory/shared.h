/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory shared with the daemon (an arena, a staging memory): mapped from its memfd, never inherited by
 * children, and touched page by page here before the daemon may, so that the trainer's memory cgroup pays for
 * it.
 */
#pragma once

#include <stdint.h>

struct shared {
        /* NULL: not mapped. */
        uint8_t *base;
        uint64_t bytes;
};

/* Maps `bytes` bytes of the memfd, or private zeroed memory if `fd` is -1. `what` and `name` appear in
 * errors. The fd stays the caller's. NO_MEMORY or SYSTEM with the text. */
int shared_map(struct shared *memory, int fd, uint64_t bytes, const char *what, const char *name);
void shared_unmap(struct shared *memory);

/* Makes every page present and writable. GRADSYNC_OK or NO_MEMORY with the text. */
int shared_populate(const struct shared *memory, const char *what, const char *name);
