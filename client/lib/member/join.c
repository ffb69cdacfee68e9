/* SPDX-License-Identifier: Apache-2.0 */
/* Joining: options and environment become one JOIN, and its answer a membership. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/base/start.h"
#include "client/lib/member/member.h"
#include "client/lib/member/rejoin.h"

#define OLDEST_OPTIONS (offsetof(struct gradsync_join_options, last_call_ms) + sizeof(int64_t))
/* How late the daemon may be with its own time-out. */
#define ANSWER_GRACE_MS 10000

/* The other members may have freed plans in between: this member's plans get the ordinals of the plans that
 * are left. */
static void join_take_plans(struct gradsync_job *job, const Wire__Joined *joined) {
        struct plans *plans = job->plans;

        plans->next = joined->first_plan;
        plans->n_later = plans->at_later = 0;
        if (joined->n_plan == 0)
                return;
        plans->next = joined->plan[0];
        for (size_t i = 1; i < joined->n_plan; i++)
                plans->later[plans->n_later++] = joined->plan[i];
        plans->later[plans->n_later++] = joined->next_plan;
}

static void join_begin(struct gradsync_job *job, uint32_t generation, uint32_t rank, uint32_t local_rank,
                       uint32_t world) {
        standing_set_state(&job->standing, STANDING_SETTLED, 0, 0, "");
        standing_enter(&job->standing, generation, rank, local_rank, world);
        job->standing.told = generation;
}

static int join_take_joined(struct request *request, const ProtobufCMessage *message,
                            struct fdpass_packet *packet) {
        struct gradsync_job *job = OWNER(request, struct gradsync_job, request);
        const Wire__Joined *joined = (const Wire__Joined *)message;

        if (joined->world < 1 || joined->world > LIMIT_WORLD || joined->rank >= joined->world)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd granted rank %u of %u", job->name,
                            joined->rank, joined->world);
        job->handle = joined->job;
        join_begin(job, joined->generation, joined->rank, joined->local_rank, joined->world);
        job->member = joined->member;
        job->secret_bytes = joined->has_secret && joined->secret.len == LIMIT_SECRET ? LIMIT_SECRET : 0;
        if (job->secret_bytes > 0)
                memcpy(job->secret, joined->secret.data, job->secret_bytes);
        join_take_plans(job, joined);
        job->standing.claims = joined->history ? STANDING_HISTORY : 0;
        return GRADSYNC_OK;
}

static int join_check_scope(const struct gradsync *gs, const struct wish *wish) {
        if (wish->scope == WIRE__SCOPE__SCOPE_CLUSTER && !gs->cluster)
                return fail(
                        GRADSYNC_UNSUPPORTED,
                        "job '%s' is to span several daemons (scope 'cluster'), but this gradsyncd has no "
                        "coordinator: set `coordinator` in its configuration",
                        wish->name);
        return GRADSYNC_OK;
}

static void join_set_deadline(struct gradsync_job *job) {
        uint64_t ms = job->wish.join_ms;

        job->deadline = ms == 0 ? NEVER : clock_after_ms(ms + ANSWER_GRACE_MS);
}

/* Waits for the daemon that follows a lost one, as long as that takes: the time of the join begins anew with
 * that daemon. */
static int join_wait_daemon(struct gradsync *gs, struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        if (job->request.id != 0)
                return r;
        while (r == GRADSYNC_OK && gs->link.failed == 0 && gs->link.state != LINK_UP)
                r = context_wait(gs, NEVER);
        join_set_deadline(job);
        return r == GRADSYNC_OK && gs->link.failed != 0 ? link_failure(&gs->link) : r;
}

/* The first call sends JOIN; a call that goes on after an interruption only waits. */
static int join_ask(struct gradsync *gs, struct gradsync_job *job, const struct wish *wish) {
        Wire__Join join = WIRE__JOIN__INIT;
        int r = join_wait_daemon(gs, job);

        if (r == GRADSYNC_OK)
                r = join_check_scope(gs, wish);
        if (r != GRADSYNC_OK)
                return r;
        join.job = job->name;
        SET(join, min_world, wish->min_world);
        SET(join, max_world, wish->max_world);
        SET_IF(join, rank, wish->rank >= 0, (uint32_t)wish->rank);
        SET_IF(join, slot, wish->local_rank >= 0, (uint32_t)wish->local_rank);
        SET(join, incarnation, (uint64_t)wish->incarnation);
        SET(join, timeout_ms, wish->join_ms);
        SET(join, last_call_ms, wish->last_call_ms);
        SET_IF(join, spare, wish->spare, true);
        SET_IF(join, scope, wish->scope != WIRE__SCOPE__SCOPE_NONE, wish->scope);
        /* Members come back to a new daemon only after they have computed: a spare gives them that time. */
        if (wish->spare && job->asked)
                join.last_call_ms = rejoin_wait_ms(gs);
        SET_IF(join, rejoin_grace_ms, wish->rejoin_grace_ms >= 0, (uint64_t)wish->rejoin_grace_ms);
        SET_IF(join, instance, wish->instance >= 0, (uint64_t)wish->instance);
        if (wish->token[0] != '\0')
                join.token = (char *)wish->token;
        return request_call(gs, &job->request, WIRE__MESSAGE_TYPE__JOIN, &join.base, -1,
                            WIRE__MESSAGE_TYPE__JOINED, join_take_joined, job->deadline);
}

static int join_alone(struct gradsync *gs, struct gradsync_job *job, const struct wish *wish) {
        char advice[FAIL_TEXT];

        if (wish->min_world > 1 || wish->rank > 0) {
                start_advice(NULL, NULL, advice, sizeof(advice));
                return fail(GRADSYNC_NO_DAEMON,
                            "job '%s' wants %u members, but no gradsyncd is reachable; tried %s. %s",
                            wish->name, wish->min_world, gs->tried, advice);
        }
        join_begin(job, 1, 0, 0, 1);
        job->member = 1;
        return GRADSYNC_OK;
}

static struct gradsync_job *join_find_job(struct gradsync *gs, const char *name) {
        struct gradsync_job *job = gs->jobs;

        while (job != NULL && strcmp(job->name, name) != 0)
                job = job->next;
        return job;
}

static int join_perform(struct gradsync *gs, const struct wish *wish, struct gradsync_job **ret) {
        struct gradsync_job *job = join_find_job(gs, wish->name);
        int r;

        if (gs->link.failed != 0)
                return link_failure(&gs->link);
        if (job != NULL && (job->taken || job->call != NULL))
                return fail(GRADSYNC_STATE,
                            "job '%s' has been joined over this handle already, or is being; a second "
                            "member opens a handle of its own",
                            wish->name);
        if (job == NULL)
                job = member_new(gs, wish);
        if (job == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for job '%s'", wish->name);
        job->call = "gradsync_join";
        while ((r = gs->standalone ? join_alone(gs, job, wish) : join_ask(gs, job, wish)) == REQUEST_BROKEN)
                job->asked = true;
        job->call = NULL;
        job->taken = r == GRADSYNC_OK;
        if (r == GRADSYNC_OK)
                *ret = job;
        else if (r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED)
                member_free(job);
        return r;
}

int gradsync_join(struct gradsync *gs, const struct gradsync_join_options *given, struct gradsync_job **job) {
        struct gradsync_join_options options = GRADSYNC_JOIN_OPTIONS_INIT;
        struct wish wish;

        if (job == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_join(): no place for the job");
        int r = options_take(&options, sizeof(options), OLDEST_OPTIONS, given,
                             "struct gradsync_join_options");
        if (r == GRADSYNC_OK)
                r = context_enter(gs);
        if (r != GRADSYNC_OK)
                return r;
        r = wish_make(&wish, &options, gs->standalone);
        return context_leave(gs, r != GRADSYNC_OK ? r : join_perform(gs, &wish, job));
}
