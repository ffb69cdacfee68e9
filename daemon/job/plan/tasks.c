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

int tasks_take(struct tasks *tasks, struct task_owner *owner, uint64_t user, uint64_t turn,
               task_done_fn done) {
        struct task_owner **grown;
        uint32_t slot = 1;

        if (owner->slot > 0)
                return 0;
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
        *owner = (struct task_owner){ .done = done, .user = user, .turn = turn, .slot = slot };
        return 0;
}

void tasks_give(struct tasks *tasks, struct task_owner *owner) {
        if (owner->slot == 0)
                return;
        tasks->slot[owner->slot] = NULL;
        owner->slot = 0;
}

static uint64_t task_id(const struct task_owner *owner, uint32_t index) {
        return (uint64_t)owner->slot << 32 | index;
}

int tasks_submit(struct task_owner *owner, uint32_t index, struct backend *backend, struct backend_task *task,
                 struct backend_result *ret) {
        task->id = task_id(owner, index);
        task->user = owner->user;
        task->turn = owner->turn;
        int r = backend->compute->submit(backend, task, ret);
        owner->tasks += r == 0;
        return r;
}

void tasks_cancel(const struct task_owner *owner, uint32_t index, struct backend *backend) {
        backend->compute->cancel(backend, task_id(owner, index));
}

void tasks_done(const struct tasks *tasks, const struct backend_result *result) {
        uint32_t slot = (uint32_t)(result->id >> 32);

        assert(slot < tasks->n && tasks->slot[slot] != NULL);
        tasks->slot[slot]->tasks--;
        tasks->slot[slot]->done(tasks->slot[slot], (uint32_t)result->id, result);
}
