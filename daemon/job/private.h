/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for the files of the job layer. */
#pragma once

#include "gradsync.pb-c.h"
#include "job/job.h"
#include "job/plan/plan.h"

int job_new(struct jobs *jobs, const struct job_join *join, struct job **ret, struct refusal *refusal);
struct job *job_free(struct job *job);
int job_add(struct job *job, const struct job_join *join, struct refusal *refusal);
/* As machine_join(), with the answer of a coordinator that is in this process. */
int job_ask_place(struct job *job, const struct membership_request *request, const struct tag *tag,
                  struct refusal *refusal);
static inline void job_settle_later(struct job *job) {
        loop_defer(job->table->config.loop, &job->settle);
}
/* Ends it for all members (SUPERSEDED, SHUTDOWN): an open step is void unless it can be committed. */
void job_end(struct job *job, uint32_t cause);
/* Its members wait for each other, as the text says: it ends on all nodes. */
void job_end_deadlock(struct job *job, const char *text);
/* The coordinator does not have the job, or not with this node. Open steps and operations here are void once
 * the node has given up waiting for a coordinator. */
void job_renounce(struct job *job, const struct refusal *why);
/* The daemon ends, and its open steps cannot be awaited: void, in a job that goes on at another daemon. */
void job_interrupt(struct job *job);
/* The daemon ends, and does not know whether other nodes commit the job's open steps: the next daemon learns
 * that from the members. */
void job_leave_open(struct job *job);
/* The daemon ends, and its part in the job is done. */
void job_hand_over(struct job *job);

/* The only writers of these states. A user has a count of its jobs that run. */
void job_set_state(struct job *job, enum job_state state);
void job_forget_state(struct job *job); /* before its end: it counts no more */
/* The backend has let go of everything: of the first members of job->local[], those that are gone give their
 * memory back. */
void job_release_lost(struct job *job, uint32_t n_local);
/* All members that it had are gone. */
bool job_is_abandoned(const struct job *job);
void member_set_state(struct member *member, enum member_state state);

struct member *member_of_id(const struct job *job, uint64_t id);
/* One that no member of this job has, or has had as far as it is known. */
uint64_t job_next_id(struct job *job);
/* A member that is in no list yet. 0, QUOTA with *refusal, or -ENOMEM. */
int member_new(struct job *job, struct member **ret, struct refusal *refusal);
void member_free(struct member *member);
/* It is this process's from now on. */
void member_take(struct member *member, const struct job_join *join);
/* It has no place any more: it is no member from now on, and its session ends. */
void member_unseat(struct member *member, uint32_t cause, const struct refusal *refusal);
/* A join that came to nothing: the refusal is the end of the member. */
void member_answer_join(struct member *member, const struct refusal *refusal);

/* These carry out actions of the job's machine. */
void job_place(struct job *job, const struct action *action); /* a place in the generation that begins */
void member_refused(struct job *job, uint64_t member, enum job_end end, const struct refusal *refusal);
void job_interrupted(struct job *job, const struct membership_loss *loss, enum job_end end);
void job_ended(struct job *job, const struct membership_loss *loss, enum job_end end);
/* This node is not in the generation any more: others may have committed steps that its members lack. */
void job_fall_behind(struct job *job);
void job_entered(struct job *job, const struct action *action); /* the places are complete */
/* generation.c: there will be no other generation, because of job->loss. */
void job_break(struct job *job, enum job_end end);
void job_log_loss(struct job *job);
/* The text about a job that ends as a whole. */
void job_tell_ended(struct job *job, uint32_t cause);
/* The text about the member of job->loss, of this node or of another one. One that leaves is not lost. */
void job_tell_gone(struct job *job);
#define LOSS_TEXT 320
/* Why a member is lost, in words. True: they are about it, as "was evicted by uid 0"; else a clause of its
 * own, as "its process ended". */
bool member_loss_is_eviction(const struct job *job, const struct membership_loss *loss, char text[LOSS_TEXT]);

/* archived.c: the last member has gone. Keeps how the job has ended, unless it goes on at another daemon. */
void job_archive(struct job *job);
/* A process that came for the forming job is turned away. */
void job_note_refusal(struct job *job, const struct refusal *refusal);
/* Places of lost members were kept until now, when the job ends. */
void job_note_wait(struct job *job, bool over);

/* DENIED if it is not the job's token. */
int job_check_token(const struct job *job, const struct token *token, struct refusal *refusal);
struct job *jobs_find(const struct jobs *jobs, uid_t uid, const char *name);
/* Whether all of its members come back to the daemon that follows this one. */
bool job_returns(const struct job *job);
/* Keeps looking at deadlines and stalls while there is a job. */
void jobs_watch(struct jobs *jobs);
