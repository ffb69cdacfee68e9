/* SPDX-License-Identifier: Apache-2.0 */
#include "second.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct second {
        struct gradsync_job *job;
        struct gradsync_plan *plan;
        uint32_t param;
        int result, left;
        bool finished;
};

/* Whether the thread is in poll(), and not at a lock that a sanitizer takes on the way there. */
static bool polls(pid_t thread) {
        char path[64], text[128] = "";
        FILE *file;
        long number;

        snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
        file = fopen(path, "re");
        if (file == NULL)
                abort();
        number = fgets(text, sizeof(text), file) != NULL && isdigit((unsigned char)text[0]) ? atol(text) : -1;
        fclose(file);
#ifdef SYS_poll
        if (number == SYS_poll)
                return true;
#endif
        return number == SYS_ppoll;
}

/* The name is for the test, which looks whether this thread sleeps, too. */
static void *wait_second(void *data) {
        struct second *second = data;

        while (!polls(getpid()))
                sched_yield();
        second->left = gradsync_leave(second->job);
        pthread_setname_np(pthread_self(), "waiter");
        second->result = gradsync_wait(second->plan, second->param);
        while (!__atomic_load_n(&second->finished, __ATOMIC_RELAXED) &&
               gradsync_rank(second->job) + gradsync_local_rank(second->job) <
                       2 * gradsync_world_size(second->job) + gradsync_generation(second->job))
                sched_yield();
        return NULL;
}

int finish_waited(struct gradsync_job *job, struct gradsync_plan *plan, uint32_t param, int *ret_waited,
                  int *ret_left) {
        struct second second = { .job = job, .plan = plan, .param = param };
        pthread_t thread;
        int r;

        if (pthread_create(&thread, NULL, wait_second, &second) != 0)
                abort();
        r = gradsync_finish(plan, NULL);
        __atomic_store_n(&second.finished, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        *ret_waited = second.result;
        *ret_left = second.left;
        return r;
}
