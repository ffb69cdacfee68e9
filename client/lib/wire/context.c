/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of a handle, the gate that every call passes, and the telling of stalls. */
#include "client/lib/wire/context.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/wire/fork.h"
#include "client/lib/job/job.h"
#include "client/lib/base/options.h"
#include "client/lib/plan/plan.h"
#include "client/lib/member/rejoin.h"

#define DEFAULT_RECONNECT_MS 30000
#define OLDEST_OPTIONS (offsetof(struct gradsync_options, stall_data) + sizeof(void *))

int context_enter(struct gradsync *gs) {
        if (gs == NULL)
                return fail_constant(GRADSYNC_INVALID, "the handle is NULL");
        if (gs->epoch != fork_epoch())
                return fail_constant(
                        GRADSYNC_FORKED,
                        "the handle was opened by another process, before fork(); a child opens its own, or leaves "
                        "gradsync to its parent");
        pthread_mutex_lock(&gs->link.lock);
        return GRADSYNC_OK;
}

int context_leave(struct gradsync *gs, int r) {
        pthread_mutex_unlock(&gs->link.lock);
        return r;
}

/* The callback may call whatever does not free the job; the texts are copied, for they may change meanwhile. */
static void stall_tell_one(struct gradsync *gs, struct gradsync_job *job) {
        struct stall copy = job->stall;
        struct gradsync_stall stall = {
                .size = sizeof(stall),
                .step = copy.step,
                .rank = copy.rank,
                .pid = copy.pid,
                .process_state = copy.process_state,
                .bucket = copy.bucket,
                .parameter = copy.parameter,
                .since_ms = copy.since_ms,
                .text = copy.text,
        };

        job->stall.pending = false;
        job->telling = true;
        job->teller = pthread_self();
        pthread_mutex_unlock(&gs->link.lock);
        gs->stall(gs->stall_data, job, &stall);
        pthread_mutex_lock(&gs->link.lock);
        job->telling = false;
        link_notify(&gs->link);
}

static void stall_tell(struct gradsync *gs) {
        struct gradsync_job *job;

        while (gs->stalls_pending) {
                for (job = gs->jobs; job != NULL; job = job->next)
                        if (job->stall.pending && !job->telling)
                                break;
                if (job == NULL)
                        gs->stalls_pending = false;
                else
                        stall_tell_one(gs, job);
        }
}

int context_wait(struct gradsync *gs, uint64_t deadline) {
        int r = link_wait(&gs->link, deadline);

        if (gs->stalls_pending)
                stall_tell(gs);
        return r;
}

static void open_free(struct gradsync *gs) {
        while (gs->jobs != NULL)
                leave_free(gs->jobs);
        link_deinit(&gs->link);
        request_close(gs, &gs->hello);
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

/* All descriptors go while fork() still knows of the handle: a child that another thread forks later has none of them. */
static void open_hang_up(struct gradsync *gs) {
        pthread_mutex_lock(&gs->link.lock);
        link_abandon(&gs->link);
        for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next)
                leave_abandon(job);
        pthread_mutex_unlock(&gs->link.lock);
}

int gradsync_open(struct gradsync **ret, const struct gradsync_options *given) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        struct gradsync *gs;
        int r;

        if (ret == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_open(): no place for the handle");
        r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given, "struct gradsync_options");
        if (r == GRADSYNC_OK)
                r = open_take_reconnect(&options);
        if (r != GRADSYNC_OK)
                return r;
        gs = calloc(1, sizeof(*gs));
        if (gs == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for a handle");
        gs->stall = options.stall;
        gs->stall_data = options.stall_data;
        gs->reconnect_ms = (uint64_t)options.reconnect_timeout_ms;
        pthread_mutex_init(&gs->link.lock, NULL);
        gs->link.sock = gs->link.epoll = gs->link.wake = gs->link.timer = -1;
        if (fork_register(gs) != 0) {
                free(gs);
                return fail(GRADSYNC_NO_MEMORY, "no memory for the handlers of fork()");
        }
        r = connect_daemon(gs, &options);
        if (r != GRADSYNC_OK) {
                open_hang_up(gs);
                fork_unregister(gs);
                open_free(gs);
                return r;
        }
        gs->link.nonblocking = options.nonblocking;
        *ret = gs;
        return GRADSYNC_OK;
}

/* What a child inherited is its own copy of memory, and nothing else: the fds are closed, the arenas are not there. */
static void open_forget(struct gradsync *gs) {
        while (gs->jobs != NULL) {
                struct gradsync_job *job = gs->jobs;

                gs->jobs = job->next;
                leave_forget(job);
        }
        link_deinit(&gs->link);
        free(gs);
}

void gradsync_close(struct gradsync *gs) {
        if (gs == NULL)
                return;
        if (gs->epoch != fork_epoch()) {
                open_forget(gs);
                return;
        }
        open_hang_up(gs);
        fork_unregister(gs);
        open_free(gs);
}

void open_room(void *owner) {
        struct gradsync *gs = owner;

        for (struct gradsync_job *job = gs->jobs; job != NULL; job = job->next) {
                rejoin_advance(job);
                for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                        if (!job->lost.known)
                                ready_send(plan);
        }
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
