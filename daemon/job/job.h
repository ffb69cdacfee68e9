/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs on this daemon: a named group of members of one uid that average gradients together. The session layer
 * calls the functions of this header; data.h has the structs. Everything happens on the loop thread. A
 * client's mistake is a positive code with a refusal, never an end of anything but that client.
 *
 * The folders: event/ reports to the layers above; machine/ has the job's node; keep/ keeps records of steps
 * and of ended jobs; plan/ and op/ carry out what members do together; restart/ brings jobs back from a
 * former daemon; watch/ finds the members that a job waits for. None of them calls the files beside this
 * header. A call may leave something for jobs_advance() to carry out.
 */
#pragma once

#include "job/data.h"
#include "job/event/event.h"

int jobs_new(const struct jobs_config *config, struct jobs **ret);
/* Once, before the first job. `staging`: for operations outside steps; NULL: `engine`. */
void jobs_use_engines(struct jobs *jobs, struct engine *engine, struct engine *staging);
/* Reaps what members have left: all of them must be gone. No backend answers any more. */
struct jobs *jobs_free(struct jobs *jobs);
/* Carries out the actions of the machines of all jobs. To be called after each call into this layer that is
 * about a member, before a call that is about another member. */
void jobs_advance(struct jobs *jobs);
/* These take the results of the backend. */
void jobs_done(void *jobs, const struct backend_result *result);
void jobs_made(void *jobs, const struct memory_result *result);
/* The daemon stops: whatever an operator holds back goes on, and no new step opens from now on; jobs_busy()
 * says whether one is still open. */
void jobs_drain(struct jobs *jobs);
bool jobs_busy(const struct jobs *jobs);
/* To be called when no step is open any more: tells the coordinators of jobs that go on with the next daemon
 * that this one goes. False: it may not go yet, since a coordinator may have named a generation before it
 * heard of that. To be called again. */
bool jobs_depart(struct jobs *jobs);
/* Steps that are still open become void. A job ends if one of its members does not come back to the next
 * daemon. */
void jobs_end(struct jobs *jobs);
/* Jobs whose members all come back to the next daemon are left to them: this daemon decides nothing any more
 * about them. Those of the cluster end with no other daemon. */
void jobs_suspend(struct jobs *jobs);

struct job_join {
        const char *name;
        bool cluster; /* members on other daemons belong to it */
        uid_t uid;
        pid_t pid;
        uint64_t client;
        const char *program;
        uint32_t request;
        const struct token *token;
        bool returns;
        struct membership_request membership;
        void *owner;
        struct list *owner_members; /* the member's owner_link is appended here */
};
/* The answer comes through events, at the end of the loop pass at the earliest. 0, a code with *refusal, or
 * -ENOMEM. */
int jobs_join(struct jobs *jobs, const struct job_join *join, struct refusal *refusal);

/* The member is gone for good (WIRE__CAUSE__…); the pointer must not be used afterwards. */
void member_gone(struct member *member, uint32_t cause);
/* One sentence about a loss, for people. */
const char *cause_text(uint32_t cause);
/* 0, or MEMBER_LOST with the loss in *refusal, if the job cannot go on; STATE while it forms, or the member
 * waits for a place in it: it has no rank then; VOID_RETRY while a lost member is replaced. */
int member_check(struct member *member, struct refusal *refusal);

/* The call of an operation comes while the generation is at its end, or crosses the news of the next one, and
 * members may go on as if nothing had happened: it is called again then, or else refused. False: it is to be
 * looked at now. */
bool member_defers(struct member *member, uint32_t request, uint32_t generation);
/* NULL if the member with this rank is not on this node. */
struct member *member_of_rank(const struct job *job, uint32_t rank);
/* The member has no place yet: it waits for the place of a lost one. */
bool member_waits(const struct member *member);

/*
 * Orders of operators (hold.c). A paused job launches nothing: READYs of its members are taken and counted,
 * and go to the backend when the job is resumed. While all jobs are held, steps and operations that had begun
 * go on to their end, and those that begin now wait in the same way. No member is blamed for such a wait.
 */
static inline bool job_is_paused(const struct job *job) {
        return job->paused_at != 0;
}
void job_pause(struct job *job);
void job_resume(struct job *job);
void jobs_hold(struct jobs *jobs, bool hold);
/* Steps and operations that still go on: 0 once a held or paused daemon is quiet. */
unsigned jobs_open(const struct jobs *jobs);
/* The member's session ends because of that fault: the others are told that it was evicted, and why. */
void member_note_fault(struct member *member, const char *fault);
/* Ends the member as if it were lost. Its session is told why, and ends. */
void member_evict(struct member *member, uid_t evictor);
/* Logs the eviction, unless the log has it already. */
void member_tell_evicted(struct member *member);
/* Whether `asked`, NAME or UID/NAME, means this job. */
bool job_is_named(const char *asked, uid_t uid, const char *name);
