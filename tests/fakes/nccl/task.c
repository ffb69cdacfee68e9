/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that take their time. See task.h. */
#include "task.h"

#include <stdlib.h>
#include <unistd.h>

#include "driver.h"
#include "trouble.h"

static GPU_THREADS_OWN struct {
        unsigned depth;
        struct task *first, **last;
        nccl_result result;
} group;

/* The communicator that is asked for something, which the new one is not. */
static const struct ncclComm *task_owner(const struct task *task) {
        return task->parent != NULL ? task->parent : task->comm;
}

static bool task_blocks(const struct task *task) {
        return task->ends || task_owner(task)->config.blocking;
}

/* ---- running them ---- */

/* With `comm_lock` held. */
static void task_count(const struct task *task, unsigned more) {
        if (task->comm != NULL && !task->ends)
                task->comm->working += more;
        if (task->parent != NULL)
                task->parent->working += more;
}

static void task_begin(const struct task *list) {
        pthread_mutex_lock(&comm_lock);
        for (const struct task *task = list; task != NULL; task = task->next)
                task_count(task, 1);
        pthread_mutex_unlock(&comm_lock);
}

static void *task_run(void *data) {
        struct task *task = data;

        driver()->context_set(task->context);
        task->result = task->run(task);
        return NULL;
}

/* A task that makes or ends a communicator has a thread: it may wait for a later task of the list. */
static void task_run_all(struct task *list) {
        pthread_t thread[BOARD_RANKS * 4];
        unsigned n = 0;

        for (struct task *task = list; task != NULL; task = task->next)
                if ((task->makes || task->ends) && list->next != NULL) {
                        if (n == sizeof(thread) / sizeof(thread[0]) ||
                            pthread_create(&thread[n++], NULL, task_run, task) != 0)
                                abort();
                } else {
                        task_run(task);
                }
        while (n > 0)
                pthread_join(thread[--n], NULL);
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

/* One error is that of all. */
static nccl_result task_end(struct task *list) {
        nccl_result result = NCCL_OK;

        for (const struct task *task = list; task != NULL; task = task->next)
                if (result == NCCL_OK)
                        result = task->result;
        pthread_mutex_lock(&comm_lock);
        for (const struct task *task = list; task != NULL; task = task->next)
                task_finish(task, result);
        for (const struct task *task = list; task != NULL; task = task->next)
                task_count(task, -1U);
        pthread_mutex_unlock(&comm_lock);
        while (list != NULL) {
                struct task *next = list->next;
                free(list);
                list = next;
        }
        return result;
}

static void *task_thread(void *data) {
        usleep((useconds_t)machine_setting("FAKE_GPU_DELAY", 200));
        task_run_all(data);
        task_end(data);
        return NULL;
}

static nccl_result task_launch(struct task *list, bool blocking) {
        pthread_attr_t attributes;
        pthread_t thread;

        task_begin(list);
        if (blocking) {
                task_run_all(list);
                return task_end(list);
        }
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attributes, task_thread, list) != 0)
                abort();
        pthread_attr_destroy(&attributes);
        return NCCL_IN_PROGRESS;
}

/* ---- groups ---- */

void task_group_start(void) {
        if (group.depth++ == 0) {
                group.first = NULL;
                group.last = &group.first;
                group.result = NCCL_OK;
        }
}

nccl_result task_note(nccl_result result) {
        if (group.depth > 0 && group.result == NCCL_OK)
                group.result = result;
        return result;
}

nccl_result task_submit(const struct task *task) {
        struct task *copy = malloc(sizeof(*copy));

        if (copy == NULL)
                abort();
        *copy = *task;
        copy->next = NULL;
        driver()->context_get(&copy->context);
        if (group.depth == 0) {
                nccl_result result = task_launch(copy, task_blocks(copy));
                return result == NCCL_IN_PROGRESS && task->silent ? NCCL_OK : result;
        }
        *group.last = copy;
        group.last = &copy->next;
        return NCCL_OK;
}

/* After an error nothing of the group is done. */
static nccl_result task_group_fail(nccl_result result) {
        task_begin(group.first);
        if (group.first != NULL)
                group.first->result = result;
        return task_end(group.first);
}

nccl_result task_group_end(void) {
        unsigned kinds = 0;

        if (group.depth == 0)
                return trouble_rule(NCCL_INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
        if (--group.depth > 0)
                return NCCL_OK;
        for (const struct task *task = group.first; task != NULL; task = task->next)
                kinds |= task_blocks(task) ? 1 : 2;
        if (group.result == NCCL_OK && kinds == 3)
                group.result = trouble_rule(
                        NCCL_INVALID_ARGUMENT,
                        "Blocking and nonblocking communicators are not allowed in the same group.");
        if (group.first == NULL)
                return group.result;
        return group.result == NCCL_OK ? task_launch(group.first, kinds == 1) : task_group_fail(group.result);
}
