/* SPDX-License-Identifier: Apache-2.0 */
/* A list under a lock, and a thread that empties it. */
#include "reaper.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "arena.h"
#include "base/thread.h"

#define REAPER_STACK (256u << 10) /* some architectures allow no less than 128 KiB */

struct reaper {
        pthread_mutex_t lock;
        pthread_cond_t work;
        pthread_t thread;
        struct arena *first;
        bool stop;
};

static void *reaper_main(void *data) {
        struct reaper *reaper = data;
        pthread_mutex_lock(&reaper->lock);
        while (reaper->first || !reaper->stop) {
                struct arena *arena = reaper->first;
                if (!arena) {
                        pthread_cond_wait(&reaper->work, &reaper->lock);
                        continue;
                }
                reaper->first = arena->next;
                pthread_mutex_unlock(&reaper->lock);
                arena_release(arena);
                pthread_mutex_lock(&reaper->lock);
        }
        pthread_mutex_unlock(&reaper->lock);
        return NULL;
}

int reaper_new(struct reaper **ret) {
        struct reaper *reaper = calloc(1, sizeof *reaper);
        if (!reaper)
                return -ENOMEM;
        pthread_mutex_init(&reaper->lock, NULL);
        pthread_cond_init(&reaper->work, NULL);
        int r = thread_start(&reaper->thread, "gs-reaper", REAPER_STACK, reaper_main, reaper);
        if (r < 0) {
                pthread_cond_destroy(&reaper->work);
                pthread_mutex_destroy(&reaper->lock);
                free(reaper);
                return r;
        }
        *ret = reaper;
        return 0;
}

struct reaper *reaper_free(struct reaper *reaper) {
        if (!reaper)
                return NULL;
        pthread_mutex_lock(&reaper->lock);
        reaper->stop = true;
        pthread_cond_signal(&reaper->work);
        pthread_mutex_unlock(&reaper->lock);
        pthread_join(reaper->thread, NULL);
        pthread_cond_destroy(&reaper->work);
        pthread_mutex_destroy(&reaper->lock);
        free(reaper);
        return NULL;
}

void reaper_take(struct reaper *reaper, struct arena *arena) {
        pthread_mutex_lock(&reaper->lock);
        arena->next = reaper->first;
        reaper->first = arena;
        pthread_cond_signal(&reaper->work);
        pthread_mutex_unlock(&reaper->lock);
}
