/* SPDX-License-Identifier: Apache-2.0 */
/* Joining: options and environment become one JOIN, and its answer a membership. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/environ.h"
#include "client/lib/base/fail.h"
#include "client/lib/job/job.h"
#include "client/lib/base/options.h"
#include "client/lib/member/rejoin.h"
#include "proto/names.h"

#define OLDEST_OPTIONS (offsetof(struct gradsync_join_options, last_call_ms) + sizeof(int64_t))
#define DEFAULT_TIMEOUT_MS (5 * 60 * 1000)
#define DEFAULT_LAST_CALL_MS 2000
#define ANSWER_GRACE_MS 10000 /* what the daemon may be late with its own time-out */

/* Fields that the options leave open come from the launcher, if it is asked at all. */
static int wish_from_environment(struct wish *wish, const struct gradsync_join_options *options) {
        bool named = options->name != NULL;
        struct environ_job found;
        char missing[256];
        int r = environ_job(&found);

        if (r != GRADSYNC_OK)
                return r;
        if (found.launcher != NULL) {
                if (!named)
                        snprintf(wish->name, sizeof(wish->name), "%s", found.name);
                if (wish->min_world == 0)
                        wish->min_world = wish->max_world = found.world;
                if (wish->rank < 0 && !wish->spare) {
                        wish->rank = found.rank;
                        wish->instance = options->instance == 0 ? found.instance : wish->instance;
                }
                if (wish->local_rank < 0 && !wish->spare)
                        wish->local_rank = found.local_rank;
                wish->incarnation = wish->incarnation >= 0 ? wish->incarnation : found.incarnation;
                return GRADSYNC_OK;
        }
        if (environ_launcher_variable() == NULL && !named && wish->min_world <= 1 && !wish->spare) {
                snprintf(wish->name, sizeof(wish->name), "alone.%d", (int)getpid());
                wish->min_world = wish->max_world = 1;
                return GRADSYNC_OK;
        }
        environ_missing(missing, sizeof(missing));
        return fail(
                GRADSYNC_INVALID,
                "which job? Neither the join options nor the environment say its %s%s%s%s. Start the program with gradsyncctl "
                "run, torchrun or srun, or set name and min_world",
                named ? "world size" : "name", *missing ? " (" : "", missing, *missing ? ")" : "");
}

static int wish_check(const struct wish *wish) {
        if (wish->min_world > wish->max_world)
                return fail(GRADSYNC_INVALID, "job '%s': min_world %u is above max_world %u", wish->name,
                            wish->min_world, wish->max_world);
        if (wish->max_world > LIMIT_WORLD)
                return fail(GRADSYNC_INVALID,
                            "job '%s': %u members are too many, %u are possible on one daemon", wish->name,
                            wish->max_world, LIMIT_WORLD);
        if (wish->rank >= (int64_t)wish->max_world)
                return fail(GRADSYNC_INVALID, "job '%s': rank %" PRId64 " does not exist among %u members",
                            wish->name, wish->rank, wish->max_world);
        if (wish->local_rank > (int64_t)UINT32_MAX)
                return fail(GRADSYNC_INVALID, "job '%s': local rank %" PRId64 " does not exist", wish->name,
                            wish->local_rank);
        if (wish->spare && (wish->rank >= 0 || wish->local_rank >= 0))
                return fail(GRADSYNC_INVALID,
                            "job '%s': a spare takes the place that becomes vacant, so it asks for no rank and no local rank",
                            wish->name);
        if (wish->instance >= 0 && wish->rank < 0)
                return fail(GRADSYNC_INVALID,
                            "job '%s': instance %" PRId64 " was given without a rank; it counts the processes of one rank",
                            wish->name, wish->instance + 1);
        return GRADSYNC_OK;
}

static int wish_token(struct wish *wish, const char *token) {
        const char *source = token != NULL ? "the join options" : "GRADSYNC_JOB_TOKEN";
        size_t length;

        if (token == NULL)
                token = environ_job_token();
        if (token == NULL)
                return GRADSYNC_OK;
        length = strlen(token);
        if (length == 0 || length > LIMIT_TOKEN || !utf8_valid(token, length))
                return fail(GRADSYNC_INVALID, "job '%s': the token from %s is not 1 to %u bytes of UTF-8",
                            wish->name, source, LIMIT_TOKEN);
        memcpy(wish->token, token, length + 1);
        return GRADSYNC_OK;
}

/* Without a rank the environment may say that it is a spare, which waits for ever unless it says how long. */
static int wish_spare(struct wish *wish, const struct gradsync_join_options *options) {
        int r = GRADSYNC_OK;

        if (options->spare == 0 && wish->rank < 0)
                r = environ_spare(&wish->spare);
        wish->join_ms = wish->spare && options->timeout_ms == 0 ? 0 : wish->timeout_ms;
        return r;
}

static int wish_make(struct wish *wish, const struct gradsync_join_options *options) {
        bool named = options->name != NULL;
        int r = GRADSYNC_OK;

        *wish = (struct wish){
                .min_world = options->min_world,
                .max_world = options->max_world,
                .rank = options->rank,
                .local_rank = options->local_rank,
                .incarnation = options->incarnation,
                .instance = options->instance > 0 ? options->instance - 1 : -1,
                .spare = options->spare > 0,
                .timeout_ms = options->timeout_ms == 0  ? DEFAULT_TIMEOUT_MS
                              : options->timeout_ms < 0 ? 0
                                                        : (uint64_t)options->timeout_ms,
                .last_call_ms =
                        options->last_call_ms <= 0 ? DEFAULT_LAST_CALL_MS : (uint64_t)options->last_call_ms,
                .rejoin_grace_ms = options->rejoin_grace_ms == 0  ? -1
                                   : options->rejoin_grace_ms < 0 ? 0
                                                                  : options->rejoin_grace_ms,
        };
        if (named && !name_valid_job(options->name))
                return fail(GRADSYNC_INVALID,
                            "the name of a job is 1 to %u bytes of UTF-8 without '/' and control characters",
                            LIMIT_NAME);
        if (named)
                snprintf(wish->name, sizeof(wish->name), "%.*s", (int)LIMIT_NAME, options->name);
        if (wish->max_world == 0)
                wish->max_world = wish->min_world;
        if (wish->min_world == 0)
                wish->min_world = wish->max_world;
        if (!named || wish->min_world == 0)
                r = wish_from_environment(wish, options);
        if (wish->incarnation < 0)
                wish->incarnation = 0;
        if (r == GRADSYNC_OK)
                r = wish_spare(wish, options);
        if (r == GRADSYNC_OK && options->rejoin_grace_ms == 0)
                r = environ_grace(&wish->rejoin_grace_ms);
        if (r == GRADSYNC_OK)
                r = wish_token(wish, options->token);
        return r != GRADSYNC_OK ? r : wish_check(wish);
}

/* Others may have freed some in between: the ordinals of this member's plans are those of the plans that are left. */
static void join_take_plans(struct gradsync_job *job, const Wire__Joined *joined) {
        job->next_plan = joined->first_plan;
        job->n_later = job->later = 0;
        if (joined->n_plan == 0)
                return;
        job->next_plan = joined->plan[0];
        for (size_t i = 1; i < joined->n_plan; i++)
                job->later_plan[job->n_later++] = joined->plan[i];
        job->later_plan[job->n_later++] = joined->next_plan;
}

static int join_take_joined(struct request *request, const ProtobufCMessage *message,
                       struct fdpass_packet *packet) {
        struct gradsync_job *job =
                (struct gradsync_job *)((char *)request - offsetof(struct gradsync_job, request));
        const Wire__Joined *joined = (const Wire__Joined *)message;

        if (joined->world < 1 || joined->world > LIMIT_WORLD || joined->rank >= joined->world)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd granted rank %u of %u", job->name,
                            joined->rank, joined->world);
        job->handle = joined->job;
        job->generation = job->told = joined->generation;
        job->rank = joined->rank;
        job->local_rank = joined->local_rank;
        job->world = joined->world;
        job->member = joined->member;
        join_take_plans(job, joined);
        job->history = joined->history;
        job->joined = true;
        return GRADSYNC_OK;
}

static int join_check_minor(const struct gradsync *gs, const struct wish *wish) {
        if (wish->spare && gs->minor < FRAME_MINOR_1)
                return fail(GRADSYNC_UNSUPPORTED, "job '%s' is to have a spare, but this gradsyncd is too old to know spares: upgrade it",
                            wish->name);
        if (wish->token[0] != '\0' && gs->minor < FRAME_MINOR_1)
                return fail(GRADSYNC_UNSUPPORTED,
                            "job '%s' is to have a token, but this gradsyncd is too old to know tokens, and would let every process "
                            "of this user in: upgrade it, or join without a token", wish->name);
        return GRADSYNC_OK;
}

static void join_set_deadline(struct gradsync_job *job) {
        uint64_t ms = job->wish.join_ms;

        job->deadline = ms == 0 ? NEVER : clock_after_ms(ms + ANSWER_GRACE_MS);
}

/* One that has gone is waited for as long as that takes: the time of the join begins anew with the daemon that follows. */
static int join_wait_daemon(struct gradsync *gs, struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        if (job->request.id != 0)
                return r;
        while (r == GRADSYNC_OK && gs->link.failed == 0 && gs->link.state != LINK_UP)
                r = context_wait(gs, NEVER);
        join_set_deadline(job);
        return r == GRADSYNC_OK && gs->link.failed != 0 ? link_failure(&gs->link) : r;
}

/* Sent once, by the first call; a call that goes on after an interruption only waits. */
static int join_ask(struct gradsync *gs, struct gradsync_job *job, const struct wish *wish) {
        Wire__Join join_perform = WIRE__JOIN__INIT;
        int r = join_wait_daemon(gs, job);

        if (r == GRADSYNC_OK)
                r = join_check_minor(gs, wish);
        if (r != GRADSYNC_OK)
                return r;
        join_perform.job = job->name;
        join_perform.has_min_world = join_perform.has_max_world = join_perform.has_incarnation = join_perform.has_timeout_ms =
                join_perform.has_last_call_ms = true;
        join_perform.min_world = wish->min_world;
        join_perform.max_world = wish->max_world;
        join_perform.has_rank = wish->rank >= 0;
        join_perform.rank = (uint32_t)(wish->rank >= 0 ? wish->rank : 0);
        join_perform.has_slot = wish->local_rank >= 0;
        join_perform.slot = (uint32_t)(wish->local_rank >= 0 ? wish->local_rank : 0);
        join_perform.incarnation = (uint64_t)wish->incarnation;
        join_perform.timeout_ms = wish->join_ms;
        join_perform.last_call_ms = wish->last_call_ms;
        join_perform.has_spare = join_perform.spare = wish->spare;
        if (wish->spare && job->asked)
                join_perform.last_call_ms = rejoin_wait_ms(gs); /* the members come back when they have computed */
        join_perform.has_rejoin_grace_ms = wish->rejoin_grace_ms >= 0 && gs->minor >= FRAME_MINOR_1;
        join_perform.rejoin_grace_ms = (uint64_t)(wish->rejoin_grace_ms >= 0 ? wish->rejoin_grace_ms : 0);
        join_perform.has_instance = wish->instance >= 0 && gs->minor >= FRAME_MINOR_1;
        join_perform.instance = (uint64_t)(wish->instance >= 0 ? wish->instance : 0);
        if (wish->token[0] != '\0')
                join_perform.token = (char *)wish->token;
        return request_call(gs, &job->request, WIRE__MESSAGE_TYPE__JOIN, &join_perform.base,
                            WIRE__MESSAGE_TYPE__JOINED, join_take_joined, job->deadline);
}

static int join_alone(struct gradsync *gs, struct gradsync_job *job, const struct wish *wish) {
        if (wish->min_world > 1 || wish->rank > 0)
                return fail(
                        GRADSYNC_NO_DAEMON,
                        "job '%s' wants %u members, but no gradsyncd is reachable; tried %s. Start one (systemctl start "
                        "gradsyncd@cpu, or gradsyncctl run), or set GRADSYNC_SOCKET",
                        wish->name, wish->min_world, gs->tried);
        job->world = 1;
        job->generation = job->told = 1;
        job->member = 1;
        job->joined = true;
        return GRADSYNC_OK;
}

static struct gradsync_job *join_find_job(struct gradsync *gs, const char *name) {
        struct gradsync_job *job = gs->jobs;

        while (job != NULL && strcmp(job->name, name) != 0)
                job = job->next;
        return job;
}

static int join_new_job(struct gradsync *gs, const struct wish *wish, struct gradsync_job **ret) {
        struct gradsync_job *job = calloc(1, sizeof(*job));

        if (job == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for job '%s'", wish->name);
        job->gs = gs;
        memcpy(job->name, wish->name, sizeof(job->name));
        job->wish = *wish;
        job->staging_fd = -1;
        job->most = wish->max_world;
        job->timeout_ms = wish->timeout_ms;
        job->next = gs->jobs;
        gs->jobs = job;
        *ret = job;
        return GRADSYNC_OK;
}

static int join_perform(struct gradsync *gs, const struct wish *wish, struct gradsync_job **ret) {
        struct gradsync_job *job = join_find_job(gs, wish->name);
        int r = GRADSYNC_OK;

        if (gs->link.failed != 0)
                return link_failure(&gs->link);
        if (job != NULL && (job->taken || job->busy))
                return fail(
                        GRADSYNC_STATE,
                        "job '%s' has been joined over this handle already, or is being; a second member opens a handle of its own",
                        wish->name);
        if (job == NULL)
                r = join_new_job(gs, wish, &job);
        if (r != GRADSYNC_OK)
                return r;
        job->busy = true;
        while ((r = gs->standalone ? join_alone(gs, job, wish) : join_ask(gs, job, wish)) == REQUEST_BROKEN)
                job->asked = true;
        job->busy = false;
        job->taken = r == GRADSYNC_OK;
        if (r == GRADSYNC_OK)
                *ret = job;
        else if (r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED)
                leave_free(job);
        return r;
}

int gradsync_join(struct gradsync *gs, const struct gradsync_join_options *given, struct gradsync_job **job) {
        struct gradsync_join_options options = GRADSYNC_JOIN_OPTIONS_INIT;
        struct wish wish;
        int r;

        if (job == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_join(): no place for the job");
        r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given, "struct gradsync_join_options");
        if (r == GRADSYNC_OK)
                r = wish_make(&wish, &options);
        if (r == GRADSYNC_OK)
                r = context_enter(gs);
        return r != GRADSYNC_OK ? r : context_leave(gs, join_perform(gs, &wish, job));
}
