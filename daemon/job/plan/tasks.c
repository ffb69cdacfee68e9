/* SPDX-License-Identifier: Apache-2.0 */
/* A table of slots that doubles. See tasks.h. */
#include "job/plan/tasks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tasks_deinit(struct tasks *tasks) {
        free(tasks->slot);
}

int tasks_take(struct tasks *tasks, struct task_owner *owner) {
        struct task_owner **grown;
        uint32_t slot = 1;

        while (slot < tasks->n && tasks->slot[slot] != NULL)
                slot++;
        if (slot >= tasks->n) {
                uint32_t n = tasks->n > 0 ? tasks->n * 2 : 16;

                grown = realloc(tasks->slot, n * sizeof(struct task_owner *));
                if (grown == NULL)
                        return -ENOMEM;
                memset(grown + tasks->n, 0, (n - tasks->n) * sizeof(struct task_owner *));
                tasks->slot = grown;
                tasks->n = n;
        }
        tasks->slot[slot] = owner;
        owner->slot = slot;
        return 0;
}

void tasks_give(struct tasks *tasks, struct task_owner *owner) {
        if (owner->slot == 0)
                return;
        tasks->slot[owner->slot] = NULL;
        owner->slot = 0;
}

void tasks_done(const struct tasks *tasks, const struct backend_result *result) {
        uint32_t slot = (uint32_t)(result->id >> 32);

        assert(slot < tasks->n && tasks->slot[slot] != NULL);
        tasks->slot[slot]->done(tasks->slot[slot], (uint32_t)result->id, result);
}
