/* SPDX-License-Identifier: Apache-2.0 */
/* A membership from JOINED to LEFT: what it is, why it is over, and giving it back. join.c makes it. */
#include "client/lib/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/plan/plan.h"

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text) {
        loss->known = true;
        loss->rank = rank;
        loss->pid = pid;
        snprintf(loss->text, sizeof(loss->text), "%s", text ? text : "no reason given");
}

int job_check(const struct gradsync_job *job) {
        if (job->lost.known)
                return fail(
                        GRADSYNC_MEMBER_LOST,
                        "job '%s' has lost rank %u (pid %d): %s. Leave the job, and join again to go on with the others",
                        job->name, job->lost.rank, (int)job->lost.pid, job->lost.text);
        if (job->gs->link.failed != 0)
                return link_failure(&job->gs->link);
        return GRADSYNC_OK;
}

static int job_enter_alone(struct gradsync_job *job, const char *call) {
        int r;

        if (job == NULL)
                return fail(GRADSYNC_INVALID, "%s(): the job is NULL", call);
        r = context_enter(job->gs);
        if (r != GRADSYNC_OK)
                return r;
        if (job->busy)
                return context_leave(
                        job->gs, fail(GRADSYNC_STATE,
                                      "%s(): another thread is in a call on job '%s' that only one may be in",
                                      call, job->name));
        job->busy = true;
        return GRADSYNC_OK;
}

int job_enter(struct gradsync_job *job, const char *call) {
        int r = job_enter_alone(job, call);

        if (r != GRADSYNC_OK)
                return r;
        r = job_check(job);
        return r == GRADSYNC_OK ? r : job_leave(job, r);
}

int job_leave(struct gradsync_job *job, int r) {
        job->busy = false;
        return context_leave(job->gs, r);
}

struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle) {
        struct gradsync_job *job = gs->jobs;

        while (job != NULL && (!job->joined || job->handle != handle))
                job = job->next;
        return job;
}

void job_note_loss(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text) {
        if (!job->lost.known)
                loss_set(&job->lost, rank, pid, text);
}

/* gradsyncd says VOID for each step that it knows to be open before it says LOST. A step of which it has not seen a
 * READY yet is void all the same once this member has marked something in it. */
void generation_lose(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text) {
        job_note_loss(job, rank, pid, text);
        rejoin_end(job, 0, false);
        job->over = true;
        job->changing = false;
        for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                if (step_open(plan))
                        step_void(plan, rank, pid, text);
}

void leave_free(struct gradsync_job *job) {
        struct gradsync *gs = job->gs;

        for (struct gradsync_job **at = &gs->jobs; *at != NULL; at = &(*at)->next) {
                if (*at != job)
                        continue;
                *at = job->next;
                break;
        }
        request_close(gs, &job->request);
        request_close(gs, &job->collective.request);
        request_close(gs, &job->rejoin.request);
        if (job->planning != NULL && job->planning->phase != PLAN_AGREED) {
                request_close(gs, &job->planning->request);
                plan_free(job->planning);
        }
        while (job->plans != NULL) {
                struct gradsync_plan *plan = job->plans;

                job->plans = plan->next;
                request_close(gs, &plan->request);
                plan_free(plan);
        }
        if (job->registering != NULL) {
                request_close(gs, &job->registering->request);
                registered_free(job->registering);
        }
        while (job->memories != NULL) {
                struct gradsync_memory *memory = job->memories;

                job->memories = memory->next;
                request_close(gs, &memory->request);
                registered_free(memory);
        }
        shared_unmap(&job->staging);
        if (job->staging_fd >= 0)
                close(job->staging_fd);
        params_deinit(&job->params);
        sync_end(job);
        free(job);
}

static int leave_close_fd(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}

void leave_abandon(struct gradsync_job *job) {
        if (job->planning != NULL)
                job->planning->fd = leave_close_fd(job->planning->fd);
        for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                plan->fd = leave_close_fd(plan->fd);
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                memory->kept = leave_close_fd(memory->kept);
        if (job->registering != NULL)
                job->registering->kept = leave_close_fd(job->registering->kept);
        job->staging_fd = leave_close_fd(job->staging_fd);
}

void leave_forget(struct gradsync_job *job) {
        if (job->planning != NULL && job->planning->phase != PLAN_AGREED)
                plan_forget(job->planning);
        while (job->plans != NULL) {
                struct gradsync_plan *plan = job->plans;

                job->plans = plan->next;
                plan_forget(plan);
        }
        if (job->registering != NULL)
                registered_forget(job->registering);
        while (job->memories != NULL) {
                struct gradsync_memory *memory = job->memories;

                job->memories = memory->next;
                registered_forget(memory);
        }
        params_deinit(&job->params);
        sync_end(job);
        free(job->request.text);
        free(job->collective.request.text);
        free(job->rejoin.request.text);
        free(job);
}

/* Here and not in the caller's thread, which may come when the daemon has gone: whoever has left does not come back. */
static int leave_take_left(struct request *request, const ProtobufCMessage *message, struct fdpass_packet *packet) {
        ((struct gradsync_job *)((char *)request - offsetof(struct gradsync_job, request)))->joined = false;
        return GRADSYNC_OK;
}

/* The daemon may be gone already: the job is over then, and the caller hears of it. */
static int leave_ask(struct gradsync_job *job) {
        Wire__Leave leave = WIRE__LEAVE__INIT;

        leave.has_job = true;
        leave.job = job->handle;
        return request_call(job->gs, &job->request, WIRE__MESSAGE_TYPE__LEAVE, &leave.base,
                            WIRE__MESSAGE_TYPE__LEFT, leave_take_left, NEVER);
}

/* After a restart of the daemon it is enough that it knows this member again. */
static int leave_until_known(struct gradsync_job *job) {
        int r = REQUEST_BROKEN;

        if (job->gs->standalone)
                return GRADSYNC_OK;
        while (r == REQUEST_BROKEN && job->joined) {
                if (job->handle != 0) {
                        r = leave_ask(job);
                        continue;
                }
                r = job->gs->link.failed != 0 ? link_failure(&job->gs->link) : context_wait(job->gs, NEVER);
                if (r == GRADSYNC_OK)
                        r = REQUEST_BROKEN;
        }
        return r == REQUEST_BROKEN ? GRADSYNC_OK : r;
}

/* The callback of a stall may be running in another thread, with this job as its argument. */
static int leave_wait_stall(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        while (job->telling && r == GRADSYNC_OK) {
                if (pthread_equal(job->teller, pthread_self()))
                        return fail(GRADSYNC_STATE,
                                    "gradsync_leave() cannot be called by the stall callback of that job");
                r = link_sleep(&job->gs->link);
        }
        return r;
}

/* A thread that waits for a step, which may be the caller itself in a stall callback, would find its plan freed. */
static int leave_check_waiters(const struct gradsync_job *job) {
        for (const struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                if (plan->waiters > 0)
                        return fail(GRADSYNC_STATE, "gradsync_leave(): step %llu of a plan of job '%s' is being waited for, by "
                                    "gradsync_finish() or gradsync_wait(); it has to return first",
                                    (unsigned long long)plan->step.number, job->name);
        return GRADSYNC_OK;
}

/* The job is gone, whatever was said: not a result by which it would still be there. */
static int leave_result(int r) {
        return r == GRADSYNC_STATE || r == GRADSYNC_INVALID ? fail(GRADSYNC_DAEMON_LOST, "%s", fail_text()) : r;
}

int gradsync_leave(struct gradsync_job *job) {
        struct gradsync *gs;
        int r = job_enter_alone(job, "gradsync_leave");

        if (r != GRADSYNC_OK)
                return r;
        gs = job->gs;
        r = leave_wait_stall(job);
        if (r == GRADSYNC_OK)
                r = leave_check_waiters(job);
        if (r != GRADSYNC_OK)
                return job_leave(job, r);
        r = leave_until_known(job);
        if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                return job_leave(job, r);
        r = leave_result(r);
        leave_free(job);
        return context_leave(gs, r);
}

/* Without the lock: another thread may hold it for long, and may take the next generation meanwhile. */
uint32_t gradsync_rank(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->rank, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_local_rank(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->local_rank, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_world_size(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->world, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_generation(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->generation, __ATOMIC_RELAXED) : 0;
}

uint64_t gradsync_member_id(const struct gradsync_job *job) {
        return job ? job->member : 0;
}

const char *gradsync_job_name(const struct gradsync_job *job) {
        return job ? job->name : "";
}
