/* SPDX-License-Identifier: Apache-2.0 */
/* See keeper.h. */
#include "backend/cuda/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread.h"

struct wish {
        struct list link; /* in keeper->waiting or keeper->done */
        struct memory_request request;
        struct cuda_ipc ipc;
        struct memory_fill fills[MEMORY_FILLS];
        int fd;
        bool cancelled;
        struct vmm *vmm; /* the memory that was made, or is to be freed */
        struct memory_result result;
        cuda_result sticky; /* error after which the GPU is of no use any more, or CUDA_OK */
};

struct keeper {
        const struct card *card;
        int wake;
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t work;
        struct list waiting, done;
        bool stop;
        uint64_t asked, answered; /* numbers of pings */
        cuda_result sticky;
        const char *failing; /* what was being done when `sticky` was met */
        cuda_stream stream;
        struct pinned pinned; /* for the thread alone, while it runs */
        _Atomic uint64_t free;
};

/*
 * A daemon that was killed may have left a kernel that still writes, for as long as the driver takes to
 * notice the end of its process. Nothing shows when that is over. So memory of a former daemon is left alone
 * until this daemon, which started after that end, has run for a while.
 */
#define QUARANTINE (500 * USEC_PER_MSEC)

static void keeper_wait_for_quiet(const struct keeper *keeper) {
        uint64_t age = clock_now() - keeper->card->opened;

        if (age < QUARANTINE)
                usleep((useconds_t)(QUARANTINE - age));
}

static void keeper_do(struct keeper *keeper, struct wish *wish) {
        struct memory_result *result = &wish->result;

        if (wish->request.kind == MEMORY_FREE) {
                vmm_free(keeper->card, &keeper->pinned, wish->vmm);
                wish->vmm = NULL;
                return;
        }
        if (wish->request.kind == MEMORY_RETURNED)
                keeper_wait_for_quiet(keeper);
        result->error = vmm_new(keeper->card, &keeper->pinned, keeper->stream, &wish->request, wish->fd,
                                &wish->vmm, &result->refusal, &wish->sticky);
        wish->fd = -1;
}

static const char keeper_looking[] = "its free memory was asked for";

static const char *keeper_doing(enum memory_kind kind) {
        switch (kind) {
        case MEMORY_OFFERED: return "memory of a trainer was opened";
        case MEMORY_RETURNED: return "memory of the daemon before was taken over";
        default: return "memory was made";
        }
}

/* `lock` is held. The first error counts: later calls only repeat it. */
static void keeper_note(struct keeper *keeper, cuda_result sticky, const char *failing) {
        if (sticky == CUDA_OK || keeper->sticky != CUDA_OK)
                return;
        keeper->sticky = sticky;
        keeper->failing = failing;
}

/* Notes how much memory is free, because other processes take some, too. Returns an error after which the GPU
 * is of no use, else CUDA_OK. */
static cuda_result keeper_look(struct keeper *keeper) {
        size_t free, total;
        cuda_result r = keeper->card->cuda.memory_info(&free, &total);

        if (r == CUDA_OK)
                keeper->free = free;
        return cuda_is_sticky(r) ? r : CUDA_OK;
}

static void keeper_answer_ping(struct keeper *keeper) {
        pthread_mutex_unlock(&keeper->lock);
        cuda_result sticky = keeper_look(keeper);
        pthread_mutex_lock(&keeper->lock);
        if (sticky == CUDA_OK)
                return;
        keeper_note(keeper, sticky, keeper_looking);
        eventfd_write(keeper->wake, 1);
}

static void *keeper_main(void *data) {
        struct keeper *keeper = data;

        card_enter(keeper->card);
        pthread_mutex_lock(&keeper->lock);
        while (!keeper->stop) {
                keeper->answered = keeper->asked;
                if (list_empty(&keeper->waiting)) {
                        pthread_cond_wait(&keeper->work, &keeper->lock);
                        if (list_empty(&keeper->waiting) && !keeper->stop)
                                keeper_answer_ping(keeper);
                        continue;
                }
                struct wish *wish = list_entry(keeper->waiting.next, struct wish, link);
                list_remove(&wish->link);
                if (wish->cancelled) {
                        wish->result.error = -ECANCELED;
                } else {
                        pthread_mutex_unlock(&keeper->lock);
                        keeper_do(keeper, wish);
                        cuda_result sticky = keeper_look(keeper);
                        pthread_mutex_lock(&keeper->lock);
                        keeper_note(keeper, wish->sticky, keeper_doing(wish->request.kind));
                        keeper_note(keeper, sticky, keeper_looking);
                }
                list_append(&keeper->done, &wish->link);
                eventfd_write(keeper->wake, 1);
        }
        pthread_mutex_unlock(&keeper->lock);
        return NULL;
}

int keeper_new(const struct card *card, int wake, struct keeper **ret) {
        struct keeper *keeper = calloc(1, sizeof(*keeper));

        if (keeper == NULL)
                return -ENOMEM;
        keeper->card = card;
        keeper->wake = wake;
        list_init(&keeper->waiting);
        list_init(&keeper->done);
        pinned_init(&keeper->pinned);
        pthread_mutex_init(&keeper->lock, NULL);
        pthread_cond_init(&keeper->work, NULL);
        keeper_look(keeper);
        int r = card->cuda.stream_new(&keeper->stream, CUDA_STREAM_NON_BLOCKING, 0) == CUDA_OK ? 0 : -EIO;
        if (r == 0)
                r = thread_start(&keeper->thread, "gs-keeper", 0, keeper_main, keeper);
        if (r < 0) {
                free(keeper);
                return r;
        }
        *ret = keeper;
        return 0;
}

static void wish_free(struct keeper *keeper, struct wish *wish) {
        list_remove(&wish->link);
        vmm_free(keeper->card, &keeper->pinned, wish->vmm);
        fd_close(wish->fd);
        free(wish);
}

struct keeper *keeper_free(struct keeper *keeper) {
        if (keeper == NULL)
                return NULL;
        pthread_mutex_lock(&keeper->lock);
        keeper->stop = true;
        pthread_cond_signal(&keeper->work);
        pthread_mutex_unlock(&keeper->lock);
        pthread_join(keeper->thread, NULL);
        while (!list_empty(&keeper->waiting))
                wish_free(keeper, list_entry(keeper->waiting.next, struct wish, link));
        while (!list_empty(&keeper->done))
                wish_free(keeper, list_entry(keeper->done.next, struct wish, link));
        pinned_deinit(&keeper->pinned, &keeper->card->cuda);
        keeper->card->cuda.stream_free(keeper->stream);
        pthread_cond_destroy(&keeper->work);
        pthread_mutex_destroy(&keeper->lock);
        free(keeper);
        return NULL;
}

int keeper_ask(struct keeper *keeper, const struct memory_request *request) {
        struct wish *wish = calloc(1, sizeof(*wish));

        if (wish == NULL)
                return -ENOMEM;
        wish->request = *request;
        wish->result.id = request->id;
        wish->fd = -1;
        if (request->kind == MEMORY_FREE)
                wish->vmm = vmm_of(request->memory);
        if (request->ipc != NULL) {
                wish->ipc = *request->ipc;
                wish->request.ipc = &wish->ipc;
        }
        if (request->n_fills > 0) {
                memcpy(wish->fills, request->fills, request->n_fills * sizeof(wish->fills[0]));
                wish->request.fills = wish->fills;
        }
        if (request->n_fds > 0) {
                wish->fd = request->fds[0];
                request->fds[0] = -1;
        }
        pthread_mutex_lock(&keeper->lock);
        list_append(&keeper->waiting, &wish->link);
        pthread_cond_signal(&keeper->work);
        pthread_mutex_unlock(&keeper->lock);
        return 0;
}

void keeper_cancel(struct keeper *keeper, uint64_t id) {
        struct wish *wish;

        pthread_mutex_lock(&keeper->lock);
        list_for_each(wish, &keeper->waiting, link)
                if (wish->request.id == id)
                        wish->cancelled = true;
        pthread_mutex_unlock(&keeper->lock);
}

cuda_result keeper_deliver(struct keeper *keeper, struct backend *backend, backend_made_fn made, void *owner,
                           const char **ret_failing) {
        for (;;) {
                pthread_mutex_lock(&keeper->lock);
                cuda_result sticky =
                        keeper->sticky; /* then no result is delivered: the next daemon starts again */
                struct wish *wish = list_empty(&keeper->done) || sticky != CUDA_OK
                                            ? NULL
                                            : list_entry(keeper->done.next, struct wish, link);
                *ret_failing = keeper->failing;
                if (wish != NULL)
                        list_remove(&wish->link);
                pthread_mutex_unlock(&keeper->lock);
                if (wish == NULL)
                        return sticky;
                if (wish->vmm != NULL) {
                        wish->vmm->memory.backend = backend;
                        wish->result.memory = &wish->vmm->memory;
                }
                fd_close(wish->fd); /* of a request that was cancelled */
                made(owner, &wish->result);
                free(wish);
        }
}

bool keeper_ping(struct keeper *keeper) {
        pthread_mutex_lock(&keeper->lock);
        bool silent = keeper->answered != keeper->asked++;
        pthread_cond_signal(&keeper->work);
        pthread_mutex_unlock(&keeper->lock);
        return silent;
}

uint64_t keeper_cpu_us(const struct keeper *keeper) {
        return thread_cpu_us(keeper->thread);
}

uint64_t keeper_free_bytes(const struct keeper *keeper) {
        return keeper->free;
}
