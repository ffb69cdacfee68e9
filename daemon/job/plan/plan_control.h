/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's diagnosis page (proto/diagnosis.h), which the member's library writes. It lies in a control
 * memory, which is always the host's. The daemon reads it only with pread(2). That neither faults nor
 * allocates a page where the member has made none or has given one back, so no page is charged to the
 * daemon. Therefore the memory is neither mapped nor watched, unlike an arena.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/diagnosis.h"

struct plan;
struct plan_part;

/* The charges are the part's. 0 or a negative errno. */
int plan_control_new(struct plan_part *part, uint64_t bytes);
/* One that the member has kept. Takes the fd if it returns 0; INVALID with *refusal; or a negative errno. */
int plan_control_adopt(struct plan_part *part, int *fd, uint64_t bytes, struct refusal *refusal);
void plan_control_release(struct plan_part *part);

/* Copies the first `size` bytes of the page, each read once. False if they cannot be understood. Nothing may
 * be decided by them: the member can write anything there at any moment. */
bool plan_control_read(const struct plan *plan, uint32_t local, struct diagnosis *ret, size_t size);
