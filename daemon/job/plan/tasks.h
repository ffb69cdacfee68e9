/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots for results of the backend: the upper half of a task's id names one, so that a result never carries a
 * pointer.
 */
#pragma once

#include <stdint.h>

#include "backend/backend.h"

struct task_owner {
        void (*done)(struct task_owner *owner, uint32_t index, const struct backend_result *result);
        uint32_t slot; /* 0: none */
};

struct tasks { /* embedded; all zero: no slots */
        struct task_owner **slot;
        uint32_t n;
};

void tasks_deinit(struct tasks *tasks);
int tasks_take(struct tasks *tasks, struct task_owner *owner); /* 0 or -ENOMEM */
void tasks_give(struct tasks *tasks, struct task_owner *owner);
/* Hands a result to its owner, with the lower half of its id. */
void tasks_done(const struct tasks *tasks, const struct backend_result *result);
