/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of the fake NCCL. See trouble.h. */
#include "trouble.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/gpu/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[1024];

nccl_result trouble_begin(const char *call) {
        nccl_result result = machine_failure("FAKE_NCCL_FAIL", call);

        return result == NCCL_OK ? result : trouble(result, "%s fails, as FAKE_NCCL_FAIL asks for", call);
}

bool trouble_sticks(const char *what) {
        const char *stuck = getenv("FAKE_NCCL_STUCK");
        bool sticks = stuck != NULL && strstr(stuck, what) != NULL;

        if (sticks)
                machine_hold("stuck", true);
        return sticks;
}

static void trouble_note(const char *format, va_list arguments) {
        pthread_mutex_lock(&lock);
        vsnprintf(last, sizeof(last), format, arguments);
        pthread_mutex_unlock(&lock);
}

nccl_result trouble(nccl_result result, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        trouble_note(format, arguments);
        va_end(arguments);
        return result;
}

nccl_result trouble_rule(nccl_result result, const char *format, ...) {
        char text[400];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        machine_log("%s", text);
        return trouble(result, "%s", text);
}

/* A copy, of each thread's own. */
const char *trouble_last(void) {
        static GPU_THREADS_OWN char copy[sizeof(last)];

        pthread_mutex_lock(&lock);
        memcpy(copy, last, sizeof(last));
        pthread_mutex_unlock(&lock);
        return copy;
}
