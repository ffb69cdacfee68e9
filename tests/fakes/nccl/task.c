/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that take their time. See task.h. */
#include "task.h"

#include <stdlib.h>
#include <unistd.h>

#include "driver.h"

/* With `comm_lock` held. */
static void task_count(const struct task *task, unsigned more) {
        if (task->comm != NULL && !task->ends)
                task->comm->working += more;
        if (task->parent != NULL)
                task->parent->working += more;
}

/* One that was not made well is there, too: it is to be aborted. */
static void task_finish(const struct task *task, nccl_result result) {
        if (task->ends)
                return;
        if (task->comm != NULL) {
                task->comm->result = result;
                if (task->makes)
                        task->comm->state = result == NCCL_OK ? COMM_READY : COMM_FAILED;
        }
        if (task->ret != NULL)
                __atomic_store_n(task->ret, task->comm, __ATOMIC_RELEASE);
        if (task->ret != NULL && result != NCCL_OK)
                task->parent->result = result;
}

static nccl_result task_run(struct task *task) {
        nccl_result result = task->run(task);

        pthread_mutex_lock(&comm_lock);
        task_finish(task, result);
        task_count(task, -1U);
        pthread_mutex_unlock(&comm_lock);
        free(task);
        return result;
}

static void *task_thread(void *data) {
        struct task *task = data;

        usleep((useconds_t)machine_setting("FAKE_GPU_DELAY", 200));
        driver()->context_set(task->context);
        task_run(task);
        return NULL;
}

nccl_result task_submit(const struct task *task) {
        nccl_result result = task->silent ? NCCL_OK : NCCL_IN_PROGRESS;
        struct task *copy = malloc(sizeof(*copy));
        pthread_t thread;

        if (copy == NULL)
                abort();
        *copy = *task;
        driver()->context_get(&copy->context);
        pthread_mutex_lock(&comm_lock);
        task_count(copy, 1);
        pthread_mutex_unlock(&comm_lock);
        if (copy->ends)
                return task_run(copy);
        if (pthread_create(&thread, NULL, task_thread, copy) != 0)
                abort();
        pthread_detach(thread);
        return result;
}
