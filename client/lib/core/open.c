/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of a handle, and how its connection is wired to its jobs. */
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/core/notices.h"
#include "client/lib/member/member.h"
#include "client/lib/member/rejoin.h"
#include "client/lib/wire/connect.h"
#include "client/lib/wire/fork.h"

#define DEFAULT_RECONNECT_MS 30000
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

static int open_one(struct gradsync **ret, const struct gradsync_options *options) {
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
        int r = connect_daemon(gs, options);
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

/* OK: the daemon that serves the GPU. NO_DAEMON: there is none. Else why one that may be it cannot be asked:
 * another device would be a surprise then. */
static int open_gpu(struct gradsync **ret, const struct gradsync_options *options, const char *uuid) {
        struct gradsync_options one = *options;
        int found = GRADSYNC_NO_DAEMON;
        char why[512] = "";
        glob_t sockets;

        environ_gpu_sockets(&sockets);
        for (size_t i = 0; i < sockets.gl_pathc && found != GRADSYNC_OK; i++) {
                struct gradsync *gs = NULL;

                one.socket = sockets.gl_pathv[i];
                int r = open_one(&gs, &one);
                if (r == GRADSYNC_OK && strcmp(gs->device_uuid, uuid) == 0) {
                        *ret = gs;
                        found = GRADSYNC_OK;
                        continue;
                }
                if (r != GRADSYNC_OK && r != GRADSYNC_NO_DAEMON) {
                        snprintf(why, sizeof(why), "%s", fail_text());
                        found = r;
                }
                gradsync_close(gs);
        }
        globfree(&sockets);
        return why[0] != '\0' && found != GRADSYNC_OK
                       ? fail(found, "%s: this daemon may be that of the GPU %s, whose context is current",
                              why, uuid)
                       : found;
}

int gradsync_open(struct gradsync **ret, const struct gradsync_options *given) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        char uuid[CUDA_UUID_TEXT];

        if (ret == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_open(): no place for the handle");
        int r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given, "struct gradsync_options");
        if (r == GRADSYNC_OK)
                r = open_take_reconnect(&options);
        if (r != GRADSYNC_OK)
                return r;
        if (options.socket == NULL && options.device == NULL && !environ_has_choice() && fork_epoch() == 0 &&
            device_current(uuid)) {
                r = open_gpu(ret, &options, uuid);
                if (r != GRADSYNC_NO_DAEMON)
                        return r;
        }
        return open_one(ret, &options);
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
