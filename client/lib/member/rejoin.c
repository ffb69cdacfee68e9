/* SPDX-License-Identifier: Apache-2.0 */
/* See rejoin.h. */

#include "client/lib/member/rejoin.h"

#include <stdio.h>
#include <unistd.h>

#include "client/lib/member/generation.h"
#include "client/lib/member/member.h"
#include "client/lib/memory/registered.h"
#include "client/lib/plan/describe.h"

/* Members are waited for this many times as long as a daemon: they compute, or write a checkpoint, and only
 * then find that there is another daemon. */
#define PATIENCE 20

static const char broken[] = "the connection was lost before the daemon had answered";

uint64_t rejoin_wait_ms(const struct gradsync *gs) {
        return gs->reconnect_ms < UINT64_MAX / PATIENCE ? gs->reconnect_ms * PATIENCE : UINT64_MAX;
}

static void rejoin_break_requests(struct gradsync_job *job) {
        request_end(&job->request, REQUEST_BROKEN, broken);
        collective_lost(job->collective, broken);
        if (job->plans->making != NULL)
                request_end(&job->plans->making->request, REQUEST_BROKEN, broken);
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                request_end(&plan->request, REQUEST_BROKEN, broken);
        if (job->registering != NULL)
                request_end(&job->registering->request, REQUEST_BROKEN, broken);
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                request_end(&memory->request, REQUEST_BROKEN, broken);
}

void rejoin_lost(struct gradsync_job *job) {
        struct rejoin *rejoin = &job->rejoin;

        rejoin_break_requests(job);
        request_close(job->gs, &rejoin->request);
        if (!job_is_joined(job))
                return;
        job->handle = 0;
        if (standing_is_over(&job->standing)) {
                rejoin->phase = REJOIN_NONE;
                return;
        }
        rejoin->phase = REJOIN_ASK;
}

void rejoin_end(struct gradsync_job *job, uint64_t operations, bool failed) {
        /* A request for staging memory is still open at a daemon that has not gone. */
        bool settles = job->rejoin.phase != REJOIN_NONE || job->collective->phase == COLLECTIVE_CHUNKS;

        job->rejoin.phase = REJOIN_NONE;
        request_close(job->gs, &job->rejoin.request);
        if (settles)
                collective_settle(job->collective, operations, failed, broken);
        job->gs->link.pending = true;
        link_notify(&job->gs->link);
}

static int rejoin_take_rejoined(struct request *request, const ProtobufCMessage *message,
                                struct fdpass_packet *packet) {
        struct gradsync_job *job = OWNER(request, struct gradsync_job, rejoin.request);

        job->handle = ((const Wire__Rejoined *)message)->job;
        job->rejoin.phase = REJOIN_TELL;
        job->rejoin.plan = job->plans->list;
        job->rejoin.staging_told = false;
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next) {
                plan->at = 0;
                plan->begun = false;
        }
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                memory->told = false;
        job->gs->link.pending = true;
        return GRADSYNC_OK;
}

/* The member has no place any more: the caller leaves the job. The daemon gets LEAVE, if it had taken a part
 * of the job back. */
static void rejoin_end_refused(struct gradsync_job *job, const char *why) {
        char text[LIMIT_TEXT + 1];

        snprintf(text, sizeof(text), "gradsyncd was restarted, and does not take this member back: %.800s",
                 why ? why : "no reason given");
        generation_lose(job, job->standing.rank, (int32_t)getpid(), text);
        rejoin_end(job, 0, false);
        if (job->handle != 0)
                job->rejoin.phase = REJOIN_QUIT;
}

static void rejoin_take_refusal(struct request *request) {
        rejoin_end_refused(OWNER(request, struct gradsync_job, rejoin.request), request->text);
}

static void rejoin_memory_refused(struct request *request) {
        rejoin_end_refused(OWNER(request, struct gradsync_memory, again)->job, request->text);
}

static void rejoin_ask(struct gradsync_job *job) {
        Wire__Rejoin rejoin = WIRE__REJOIN__INIT;
        struct request *request = &job->rejoin.request;

        rejoin.job = job->name;
        rejoin.has_secret = job->secret_bytes > 0;
        rejoin.secret = (ProtobufCBinaryData){ .len = job->secret_bytes, .data = job->secret };
        SET(rejoin, generation, job->standing.generation);
        SET(rejoin, wait_ms, rejoin_wait_ms(job->gs));
        request_open(job->gs, request, WIRE__MESSAGE_TYPE__REJOINED, rejoin_take_rejoined);
        request->refused = rejoin_take_refusal;
        if (link_send(&job->gs->link, WIRE__MESSAGE_TYPE__REJOIN, request->id, &rejoin.base, -1) ==
            GRADSYNC_OK)
                job->rejoin.phase = REJOIN_ASKED;
        else
                request_close(job->gs, request);
}

/* REJOIN has been answered: the messages that follow are one request, which only a refusal answers. */
static void rejoin_open_telling(struct gradsync_job *job) {
        struct request *request = &job->rejoin.request;

        if (request->id != 0 && !request->answered)
                return;
        request_close(job->gs, request);
        request_open(job->gs, request, WIRE__MESSAGE_TYPE__MESSAGE_NONE, NULL);
        request->refused = rejoin_take_refusal;
}

/* Offers a plan, with the last step that this member knows to be committed. */
static int rejoin_offer(struct gradsync_plan *plan, uint32_t id) {
        Wire__RejoinPlan message = WIRE__REJOIN_PLAN__INIT;
        const struct step *step = &plan->step;
        bool committed = step->outcome == WIRE__OUTCOME__COMMITTED;
        int fds[FRAME_FDS_MAX];

        SET_PLAN(message, plan);
        SET(message, step, committed ? step->number : step_next(plan, false) - 1);
        return link_send_fds(&plan->job->gs->link, WIRE__MESSAGE_TYPE__REJOIN_PLAN, id, &message.base, fds,
                             plan_list_fds(plan, fds));
}

static int rejoin_tell_plan(struct gradsync_job *job, struct gradsync_plan *plan) {
        bool last = false;
        int r = GRADSYNC_OK;

        if (plan->drop)
                return GRADSYNC_OK;
        while (r == GRADSYNC_OK && !last)
                r = describe_next(plan, job->rejoin.request.id, &last);
        return r != GRADSYNC_OK ? r : rejoin_offer(plan, job->rejoin.request.id);
}

static int rejoin_tell_staging(struct gradsync_job *job) {
        Wire__RejoinStaging message = WIRE__REJOIN_STAGING__INIT;

        if (!job->collective->staging_agreed)
                return GRADSYNC_OK;
        SET(message, job, job->handle);
        SET(message, bytes, job->collective->staging.bytes);
        return link_send(&job->gs->link, WIRE__MESSAGE_TYPE__REJOIN_STAGING, job->rejoin.request.id,
                         &message.base, job->collective->staging_fd);
}

static int rejoin_tell_end(struct gradsync_job *job) {
        const struct plans *plans = job->plans;
        bool making = plans->making != NULL && plans->making->phase != PLAN_AGREED;
        Wire__RejoinEnd message = WIRE__REJOIN_END__INIT;

        SET(message, job, job->handle);
        SET(message, next_plan, making ? plans->making->ordinal : plans->next);
        return link_send(&job->gs->link, WIRE__MESSAGE_TYPE__REJOIN_END, job->rejoin.request.id,
                         &message.base, -1);
}

/* Plans name the memory of their parameters by number, so all memories need a number first. */
static int rejoin_tell_memories(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        for (struct gradsync_memory *memory = job->memories; memory != NULL && r == GRADSYNC_OK;
             memory = memory->next) {
                if (!memory->told)
                        r = registered_offer(memory, rejoin_memory_refused);
                if (r == GRADSYNC_OK && !memory->again.answered)
                        r = GRADSYNC_AGAIN;
        }
        return r;
}

static void rejoin_tell(struct gradsync_job *job) {
        struct rejoin *rejoin = &job->rejoin;
        int r = rejoin_tell_memories(job);

        if (r != GRADSYNC_OK)
                return;
        rejoin_open_telling(job);
        while (rejoin->plan != NULL && r == GRADSYNC_OK) {
                r = rejoin_tell_plan(job, rejoin->plan);
                if (r == GRADSYNC_OK)
                        rejoin->plan = rejoin->plan->next;
        }
        if (r == GRADSYNC_OK && !rejoin->staging_told) {
                r = rejoin_tell_staging(job);
                rejoin->staging_told = r == GRADSYNC_OK;
        }
        if (r == GRADSYNC_OK)
                r = rejoin_tell_end(job);
        if (r == GRADSYNC_OK)
                rejoin->phase = REJOIN_TOLD;
}

static void rejoin_quit(struct gradsync_job *job) {
        Wire__Leave leave = WIRE__LEAVE__INIT;
        struct request unheard = { 0 };

        SET(leave, job, job->handle);
        request_open(job->gs, &unheard, WIRE__MESSAGE_TYPE__LEFT, NULL);
        int r = link_send(&job->gs->link, WIRE__MESSAGE_TYPE__LEAVE, unheard.id, &leave.base, -1);
        request_close(job->gs, &unheard);
        if (r != GRADSYNC_OK)
                return;
        job->rejoin.phase = REJOIN_NONE;
        job->handle = 0;
}

void rejoin_advance(struct gradsync_job *job) {
        switch (job->rejoin.phase) {
        case REJOIN_ASK: rejoin_ask(job); break;
        case REJOIN_TELL: rejoin_tell(job); break;
        case REJOIN_QUIT: rejoin_quit(job); break;
        default: break;
        }
}
