/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots for results of the backend: the upper half of a task's id names one, so that a result never carries a
 * pointer.
 */
#pragma once

#include <stdint.h>

#include "backend/backend.h"

struct task_owner;
typedef void (*task_done_fn)(struct task_owner *owner, uint32_t index, const struct backend_result *result);

struct task_owner {
        task_done_fn done;
        uint64_t user, turn; /* of its tasks, see backend.h */
        uint32_t slot;       /* 0: none */
        uint32_t tasks;      /* unfinished ones */
};

struct tasks { /* embedded; all zero: no slots */
        struct task_owner **slot;
        uint32_t n;
};

void tasks_deinit(struct tasks *tasks);
/* A slot, if it has none yet. 0 or -ENOMEM. */
int tasks_take(struct tasks *tasks, struct task_owner *owner, uint64_t user, uint64_t turn,
               task_done_fn done);
void tasks_give(struct tasks *tasks, struct task_owner *owner);
/* Gives the backend a task as that number of its owner. As submit() of the backend. */
int tasks_submit(struct task_owner *owner, uint32_t index, struct backend *backend, struct backend_task *task,
                 struct backend_result *ret);
void tasks_cancel(const struct task_owner *owner, uint32_t index, struct backend *backend);
/* Hands a result to its owner, with the lower half of its id. */
void tasks_done(const struct tasks *tasks, const struct backend_result *result);
