/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of the calls on a job, and their waits for the daemon's decisions. */
#include "client/lib/job/job.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"

/* The failure names the lost member, if the job has not ended as a whole. */
static int job_fail_over(const struct gradsync_job *job, const char *call) {
        const struct loss *loss = &job->standing.loss;
        int code = loss->cause == WIRE__CAUSE__DEADLOCKED ? GRADSYNC_DEADLOCK : GRADSYNC_MEMBER_LOST;

        fail(code, "%s%s%s%s", call, call[0] != '\0' ? "() needs all ranks: " : "", loss->text,
             loss_verdict(loss));
        return loss->pid != 0 ? fail_about_member(code, loss->rank, loss->pid) : code;
}

static int job_check_in(const struct gradsync_job *job, const char *call) {
        if (standing_is_over(&job->standing))
                return job_fail_over(job, call);
        if (job->gs->link.failed != 0)
                return link_failure(&job->gs->link);
        return GRADSYNC_OK;
}

int job_check(const struct gradsync_job *job) {
        return job_check_in(job, "");
}

int job_check_together(const struct gradsync_job *job) {
        bool left = job->standing.loss.cause == WIRE__CAUSE__LEAVING && job->call != NULL;

        return job_check_in(job, left ? job->call : "");
}

bool job_waits_alone(const struct gradsync_job *job) {
        return !job->gs->link.nonblocking && callers_wait_alone(&job->callers, job->wish.sequential);
}

int job_enter_alone(struct gradsync_job *job, const char *call) {
        if (job == NULL)
                return fail(GRADSYNC_INVALID, "%s(): the job is NULL", call);
        int r = context_enter(job->gs);
        if (r != GRADSYNC_OK)
                return r;
        if (job->call != NULL)
                return context_leave(job->gs,
                                     fail(GRADSYNC_STATE,
                                          "%s(): another thread is in %s() on job '%s'; only one may be",
                                          call, job->call, job->name));
        job->call = call;
        return GRADSYNC_OK;
}

static int job_enter_checked(struct gradsync_job *job, const char *call,
                             int (*check)(const struct gradsync_job *job)) {
        int r = job_enter_alone(job, call);

        if (r != GRADSYNC_OK)
                return r;
        r = check(job);
        return r == GRADSYNC_OK ? r : job_leave(job, r);
}

int job_enter(struct gradsync_job *job, const char *call) {
        return job_enter_checked(job, call, job_check);
}

int job_enter_together(struct gradsync_job *job, const char *call) {
        return job_enter_checked(job, call, job_check_together);
}

int job_leave(struct gradsync_job *job, int r) {
        job->call = NULL;
        return context_leave(job->gs, r);
}

bool job_is_joined(const struct gradsync_job *job) {
        return job->handle != 0 || job->rejoin.phase != REJOIN_NONE;
}

struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle) {
        struct gradsync_job *job = handle != 0 ? gs->jobs : NULL;

        while (job != NULL && job->handle != handle)
                job = job->next;
        return job;
}

void job_interrupt(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text) {
        standing_set_state(&job->standing, STANDING_CHANGING, rank, pid, text);
}

int job_wait_generation(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        while (job->standing.state == STANDING_CHANGING && r == GRADSYNC_OK)
                r = context_wait(job->gs, NEVER);
        return r;
}

int job_wait_daemon(struct gradsync_job *job) {
        int r = job_check(job);

        while (r == GRADSYNC_OK && job->rejoin.phase != REJOIN_NONE) {
                r = context_wait(job->gs, NEVER);
                if (r == GRADSYNC_OK)
                        r = job_check(job);
        }
        return r;
}

int job_void_code(const struct gradsync_job *job) {
        return standing_is_behind(&job->standing) && !standing_is_over(&job->standing) ? GRADSYNC_VOID_BEHIND
                                                                                       : GRADSYNC_VOID_RETRY;
}

/* These run without the lock, which another thread may hold for long; another thread may enter the next
 * generation meanwhile. */
uint32_t gradsync_rank(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->standing.rank, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_local_rank(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->standing.local_rank, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_world_size(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->standing.world, __ATOMIC_RELAXED) : 0;
}

uint32_t gradsync_generation(const struct gradsync_job *job) {
        return job ? __atomic_load_n(&job->standing.generation, __ATOMIC_RELAXED) : 0;
}

uint64_t gradsync_member_id(const struct gradsync_job *job) {
        return job ? job->member : 0;
}

const char *gradsync_job_name(const struct gradsync_job *job) {
        return job ? job->name : "";
}
