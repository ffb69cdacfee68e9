/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of a handle, and how its connection is wired to its jobs. */
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/core/notices.h"
#include "client/lib/member/member.h"
#include "client/lib/member/rejoin.h"
#include "client/lib/wire/connect.h"
#include "client/lib/wire/fork.h"

#define DEFAULT_RECONNECT_MS 30000
/* A daemon that is stopped neither accepts nor answers. */
#define OPEN_TIMEOUT_MS 10000
#define OLDEST_OPTIONS (offsetof(struct gradsync_options, stall_data) + sizeof(void *))

static void open_room(void *owner) {
        struct gradsync *gs = owner;

        for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next) {
                rejoin_advance(job);
                for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                        if (!standing_is_over(&job->standing))
                                ready_send(plan);
        }
}

static void open_lost(struct gradsync *gs) {
        for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next)
                rejoin_lost(job);
}

static void open_abandon(struct gradsync *gs) {
        for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next)
                member_abandon(job);
}

static const struct handlers open_handlers = {
        .notice = notices_take,
        .room = open_room,
        .lost = open_lost,
        .waited = stall_tell,
        .abandon = open_abandon,
};

static void open_free(struct gradsync *gs) {
        while (gs->jobs != NULL)
                member_free(gs->jobs);
        link_deinit(&gs->link);
        request_close(gs, &gs->hello);
        device_free(gs->device);
        free(gs);
}

/* How long a daemon that is gone is waited for: the option, else the environment, else the default. */
static int open_take_reconnect(struct gradsync_options *options) {
        int64_t ms = DEFAULT_RECONNECT_MS;
        int r = GRADSYNC_OK;

        if (options->reconnect_timeout_ms == 0) {
                r = environ_reconnect(&ms);
                options->reconnect_timeout_ms = ms;
        }
        if (options->reconnect_timeout_ms < 0)
                options->reconnect_timeout_ms = 0;
        return r;
}

/* All descriptors are closed while the handlers of fork() still know the handle: so a child that another
 * thread forks later has none of them. */
static void open_hang_up(struct gradsync *gs) {
        pthread_mutex_lock(&gs->link.lock);
        link_abandon(&gs->link);
        open_abandon(gs);
        pthread_mutex_unlock(&gs->link.lock);
}

static int open_one(struct gradsync **ret, const struct gradsync_options *options,
                    struct connect_attempt *attempt) {
        struct gradsync *gs = calloc(1, sizeof(*gs));

        if (gs == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for a handle");
        gs->handlers = &open_handlers;
        gs->stall = options->stall;
        gs->stall_data = options->stall_data;
        gs->reconnect_ms = (uint64_t)options->reconnect_timeout_ms;
        pthread_mutex_init(&gs->link.lock, NULL);
        gs->link.sock = gs->link.epoll = gs->link.wake = gs->link.timer = -1;
        if (fork_register(gs) != 0) {
                free(gs);
                return fail(GRADSYNC_NO_MEMORY, "no memory for the handlers of fork()");
        }
        int r = connect_daemon(gs, options, attempt);
        if (r != GRADSYNC_OK) {
                open_hang_up(gs);
                fork_unregister(gs);
                open_free(gs);
                return r;
        }
        gs->link.nonblocking = options->nonblocking;
        *ret = gs;
        return GRADSYNC_OK;
}

/* How likely a daemon serves the GPU, by the name of its socket. Daemons are asked in this order. */
enum likelihood { LIKELY_BY_UUID, LIKELY_BY_ORDINAL, LIKELY_NOT, LIKELIHOODS, IMPOSSIBLE = LIKELIHOODS };

/* A socket is named as its daemon's device. A UUID is that of this GPU or of another one. A number is the
 * daemon's number for its GPU, which may have another number in this process. */
static enum likelihood open_likelihood(const char *path, const struct device_id *gpu) {
        const char *end = strrchr(path, '/'), *name = memrchr(path, '/', (size_t)(end - path));
        char device[CUDA_UUID_TEXT], ordinal[24];

        name += strlen("/cuda:");
        snprintf(device, sizeof(device), "%.*s", (int)(end - name), name);
        snprintf(ordinal, sizeof(ordinal), "%d", gpu->ordinal);
        if (strcmp(device, gpu->uuid) == 0)
                return LIKELY_BY_UUID;
        if (strncmp(device, "GPU-", 4) == 0)
                return IMPOSSIBLE;
        return strcmp(device, ordinal) == 0 ? LIKELY_BY_ORDINAL : LIKELY_NOT;
}

/* Returns the deadline of the next daemon. A daemon that does not answer uses only its share of the time, so
 * that those after it can still be asked. */
static uint64_t open_share(uint64_t deadline, size_t left) {
        uint64_t now = clock_ns();

        return deadline > now ? now + (deadline - now) / left : deadline;
}

/* Asks the daemon at `path`. OK: *ret is a handle if that daemon serves the GPU, or NULL if it serves another
 * GPU or no daemon listens. Else the reason why a daemon that may serve the GPU cannot be asked: another
 * device would be a surprise then. */
static int open_candidate(struct gradsync **ret, const struct gradsync_options *options, const char *path,
                          const struct device_id *gpu, struct connect_attempt *attempt) {
        struct gradsync_options one = *options;
        struct gradsync *gs = NULL;
        char why[128];

        one.socket = path;
        attempt->silent = false;
        int r = open_one(&gs, &one, attempt);
        if (r == GRADSYNC_NO_DAEMON && !attempt->silent)
                return GRADSYNC_OK;
        if (r != GRADSYNC_OK)
                return fail(r, "%s: this daemon may be that of the GPU %s, whose context is current",
                            fail_text(), gpu->uuid);
        if (strcmp(gs->device_uuid, gpu->uuid) == 0) {
                *ret = gs;
                return GRADSYNC_OK;
        }
        snprintf(why, sizeof(why), "serves %s", gs->device_uuid[0] != '\0' ? gs->device_uuid : "no GPU");
        connect_note_tried(attempt, path, why);
        gradsync_close(gs);
        return GRADSYNC_OK;
}

/* OK: *ret is a handle to the daemon of the GPU, or NULL if the GPU has none. */
static int open_gpu(struct gradsync **ret, const struct gradsync_options *options,
                    const struct device_id *gpu, struct connect_attempt *attempt) {
        uint64_t deadline = attempt->deadline;
        struct failure refusal;
        glob_t sockets;
        int refused = GRADSYNC_OK;

        environ_gpu_sockets(&sockets);
        size_t left = sockets.gl_pathc;
        for (unsigned likelihood = 0; likelihood < LIKELIHOODS; likelihood++)
                for (size_t i = 0; i < sockets.gl_pathc && *ret == NULL; i++) {
                        if (open_likelihood(sockets.gl_pathv[i], gpu) != likelihood)
                                continue;
                        attempt->deadline = open_share(deadline, left--);
                        int r = open_candidate(ret, options, sockets.gl_pathv[i], gpu, attempt);
                        if (r != GRADSYNC_OK && refused == GRADSYNC_OK) {
                                refused = r;
                                fail_keep(&refusal);
                        }
                }
        globfree(&sockets);
        attempt->deadline = deadline;
        if (*ret != NULL || refused == GRADSYNC_OK)
                return GRADSYNC_OK;
        fail_restore(&refusal);
        return refused;
}

static int open_any(struct gradsync **ret, struct gradsync_options *options) {
        struct connect_attempt attempt = { .deadline = clock_after_ms(OPEN_TIMEOUT_MS) };
        struct gradsync *gs = NULL;
        struct device_id gpu;
        int r = open_take_reconnect(options);

        if (r == GRADSYNC_OK && options->socket == NULL && options->device == NULL && !environ_has_choice() &&
            fork_epoch() == 0 && device_current(&gpu))
                r = open_gpu(&gs, options, &gpu, &attempt);
        if (r == GRADSYNC_OK && gs == NULL)
                r = open_one(&gs, options, &attempt);
        if (r == GRADSYNC_OK)
                *ret = gs;
        return r;
}

int gradsync_open(struct gradsync **ret, const struct gradsync_options *given) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        struct failure before;

        if (ret == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_open(): no place for the handle");
        fail_keep(&before);
        int r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given, "struct gradsync_options");
        if (r == GRADSYNC_OK)
                r = open_any(ret, &options);
        /* Sockets that were tried before the right one are no failure of this call. */
        if (r == GRADSYNC_OK)
                fail_restore(&before);
        return r;
}

/* A child has inherited a copy of memory, and nothing else: its descriptors are closed, and the arenas are
 * not mapped. */
void gradsync_close(struct gradsync *gs) {
        if (gs == NULL)
                return;
        if (gs->epoch != fork_epoch()) {
                for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next)
                        member_forget(job);
                gs->signals = NULL; /* threads and contexts are the parent's */
                gs->device = NULL;
        } else {
                open_hang_up(gs);
                signal_end(gs);
                fork_unregister(gs);
        }
        open_free(gs);
}

int gradsync_device(struct gradsync *gs, struct gradsync_device *ret) {
        int r = context_enter(gs);

        if (r != GRADSYNC_OK)
                return r;
        r = ret == NULL ? fail(GRADSYNC_INVALID, "gradsync_device(): nowhere to put it")
                        : options_check(ret, sizeof(*ret), "struct gradsync_device");
        if (r == GRADSYNC_OK && device_is_cuda(gs->device_name))
                r = context_open_device(gs);
        if (r == GRADSYNC_OK) {
                const struct gradsync_device ours = { sizeof(ours), gs->device_name, gs->device_uuid,
                                                      gs->device != NULL ? device_ordinal(gs->device) : -1 };
                options_give(ret, &ours, sizeof(ours));
        }
        return context_leave(gs, r);
}

int gradsync_fd(const struct gradsync *gs) {
        return gs == NULL || gs->epoch != fork_epoch() ? -1 : gs->link.epoll;
}

int gradsync_dispatch(struct gradsync *gs) {
        int r = context_enter(gs);

        if (r != GRADSYNC_OK)
                return r;
        link_dispatch(&gs->link);
        stall_tell(gs);
        return context_leave(gs, gs->link.failed != 0 ? link_failure(&gs->link) : GRADSYNC_OK);
}
