/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

#define NICE 10 /* of threads whose work can wait */

int thread_start(pthread_t *ret, const char *name, size_t stack, void *(*run)(void *data), void *data) {
        pthread_attr_t attributes;
        sigset_t all, before;
        int r = -pthread_attr_init(&attributes);

        if (r < 0)
                return r;
        if (stack > 0)
                r = -pthread_attr_setstacksize(&attributes, stack);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (r == 0)
                r = -pthread_create(ret, &attributes, run, data);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (r == 0)
                pthread_setname_np(*ret, name);
        return r;
}

void thread_stand_back(void) {
        struct sched_param parameter = { 0 };

        if (sched_getscheduler(0) != SCHED_OTHER)
                return; /* an administrator's choice */
        sched_setscheduler(0, SCHED_BATCH, &parameter);
        (void)!nice(NICE);
}

uint64_t thread_cpu_us(pthread_t thread) {
        clockid_t clock;

        return pthread_getcpuclockid(thread, &clock) == 0 ? clock_read(clock) : 0;
}
