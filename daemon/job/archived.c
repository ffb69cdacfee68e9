/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps when and why a job has ended, in one clause. While the job lives, events leave clues in it (struct
 * job_clues); they are read once, when the last member has gone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/private.h"
#include "proto/names.h"

#define TOLD 448u /* bytes of a clause about a member */

/* Quotes a refusal without the name of the job: "it did not form within 5.0 s: …". */
static void archived_quote(const struct job *job, const char *text, char *out, size_t size) {
        char start[LIMIT_NAME + 16];
        size_t length = (size_t)snprintf(start, sizeof(start), "job '%s'", job->name);
        const char *rest = strncmp(text, start, length) == 0 ? text + length : NULL;

        if (rest == NULL)
                snprintf(out, size, "%s", text);
        else if (strncmp(rest, ": ", 2) == 0)
                snprintf(out, size, "%s", rest + 2);
        else
                snprintf(out, size, "it%s", rest);
        utf8_cut(out);
}

static void archived_has_member(struct archived_job *ret, uint32_t rank, pid_t pid) {
        ret->has_member = true;
        ret->rank = rank;
        ret->pid = (int32_t)pid;
}

/* Says how the member was lost: "rank 1 (pid 4242) was evicted by uid 0". */
static void archived_tell_loss(const struct job *job, const struct membership_loss *loss, char text[TOLD]) {
        char why[LOSS_TEXT];
        bool evicted = member_loss_is_eviction(job, loss, why);

        snprintf(text, TOLD,
                 evicted ? "rank %" PRIu32 " (pid %d)%s %s" : "lost rank %" PRIu32 " (pid %d)%s: %s",
                 loss->rank, (int)loss->pid, loss->member == job->loss.member ? job->loss_place : "", why);
}

/* A loss ended the last generation of the job. */
static void archived_of_loss(const struct job *job, struct archived_job *ret) {
        const struct job_clues *clues = &job->clues;
        char lost[TOLD], after[64] = "";

        archived_tell_loss(job, &job->loss, lost);
        if (clues->grace > 0)
                snprintf(after, sizeof(after), "; nobody took its place within %.1f s",
                         (double)clues->grace / 1e6);
        else if (clues->few)
                snprintf(after, sizeof(after), "; too few members were left");
        else if (clues->kept || job->state != JOB_LOST)
                snprintf(after, sizeof(after), "; the others went before anybody took its place");
        snprintf(ret->text, sizeof(ret->text), "%s%s", lost, after);
        ret->reason = job->loss.cause == WIRE__CAUSE__EVICTED ? ARCHIVE_EVICTED : ARCHIVE_LOST;
        archived_has_member(ret, job->loss.rank, job->loss.pid);
}

/* The job ended as a whole, through no member's fault. */
static void archived_of_whole(const struct job *job, uint32_t cause, const char *why,
                              struct archived_job *ret) {
        bool given_up = cause == WIRE__CAUSE__EVICTED || cause == WIRE__CAUSE__DEADLOCKED;

        ret->reason = cause == WIRE__CAUSE__SUPERSEDED ? ARCHIVE_SUPERSEDED
                      : cause == WIRE__CAUSE__SHUTDOWN ? ARCHIVE_SHUTDOWN
                      : given_up                       ? ARCHIVE_GIVEN_UP
                                                       : ARCHIVE_LOST;
        if (ret->reason == ARCHIVE_GIVEN_UP)
                archived_quote(job, why, ret->text, sizeof(ret->text));
        else if (ret->reason != ARCHIVE_LOST)
                snprintf(ret->text, sizeof(ret->text), "%s", cause_text(cause));
        else if (job->clues.grace > 0)
                snprintf(ret->text, sizeof(ret->text),
                         "a node was lost, and nobody took its members' places within %.1f s",
                         (double)job->clues.grace / 1e6);
        else if (job->clues.few)
                snprintf(ret->text, sizeof(ret->text), "a node was lost; too few members were left");
        else
                snprintf(ret->text, sizeof(ret->text),
                         "a node was lost; the others went before anybody took its members' places");
}

static void archived_of_unformed(const struct job *job, struct archived_job *ret) {
        const struct job_clues *clues = &job->clues;

        ret->reason = ARCHIVE_UNFORMED;
        if (clues->refused[0] != '\0') {
                snprintf(ret->text, sizeof(ret->text), "%s", clues->refused);
                return;
        }
        snprintf(ret->text, sizeof(ret->text),
                 "it never had all of its %" PRIu32 " members; the last one that waited was pid %d: %s",
                 ret->world, (int)clues->last.pid,
                 clues->last.cause == WIRE__CAUSE__LEAVING ? "it left" : cause_text(clues->last.cause));
}

static const struct member *archived_find_lost(const struct job *job) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_LOST)
                        return member;
        return NULL;
}

/* No loss has ended the job: its members left; or the first one left, and others were lost afterwards. */
static void archived_of_leaving(const struct job *job, struct archived_job *ret) {
        const struct member *lost = archived_find_lost(job);
        struct membership_loss loss = { 0 };
        char text[TOLD];

        if (lost == NULL) {
                ret->reason = ARCHIVE_LEFT;
                if (job->world == 1)
                        snprintf(ret->text, sizeof(ret->text), "its last member left");
                else if (job->n_local < job->world)
                        snprintf(ret->text, sizeof(ret->text),
                                 "its members on this daemon left, %" PRIu32 " of %" PRIu32, job->n_local,
                                 job->world);
                else
                        snprintf(ret->text, sizeof(ret->text), "all %" PRIu32 " members left", job->world);
                return;
        }
        loss = (struct membership_loss){
                .member = lost->id, .rank = lost->rank, .pid = (int32_t)lost->pid, .cause = lost->cause
        };
        archived_tell_loss(job, &loss, text);
        if (job->loss.member != 0 && job->loss.cause == WIRE__CAUSE__LEAVING)
                snprintf(ret->text, sizeof(ret->text), "rank %" PRIu32 " (pid %d) left; then %s",
                         job->loss.rank, (int)job->loss.pid, text);
        else
                snprintf(ret->text, sizeof(ret->text), "%s", text);
        ret->reason = lost->evicted ? ARCHIVE_EVICTED : ARCHIVE_LOST;
        archived_has_member(ret, lost->rank, lost->pid);
}

static void archived_find_reason(const struct job *job, struct archived_job *ret) {
        const struct job_clues *clues = &job->clues;
        bool broken = job->state == JOB_LOST;

        if (job->state == JOB_FORMING && clues->broken != 0) {
                archived_of_whole(job, clues->last.cause, job->loss_text, ret);
        } else if (job->state == JOB_FORMING) {
                archived_of_unformed(job, ret);
        } else if (broken && clues->end == JOB_END_NO_STATE) {
                ret->reason = ARCHIVE_LOST;
                snprintf(ret->text, sizeof(ret->text),
                         "no up-to-date rank was left: restart from a checkpoint");
        } else if (broken && job->loss.member == 0 && job->loss.cause != WIRE__CAUSE__RESTARTED) {
                archived_of_whole(job, job->loss.cause, job->loss_text, ret);
        } else if (job->takeover != NULL) {
                ret->reason = ARCHIVE_LOST;
                snprintf(ret->text, sizeof(ret->text),
                         "gradsyncd was restarted, and not all members came back");
        } else if (broken && job->loss.member == 0) {
                archived_of_whole(job, job->loss.cause, job->loss_text, ret);
        } else if (job->loss.member != 0 && job->state != JOB_RUNNING &&
                   job->loss.cause != WIRE__CAUSE__LEAVING) {
                archived_of_loss(job, ret);
        } else {
                archived_of_leaving(job, ret);
        }
}

void job_note_refusal(struct job *job, const struct refusal *refusal) {
        archived_quote(job, refusal->text, job->clues.refused, sizeof(job->clues.refused));
}

void job_note_wait(struct job *job, bool over) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL && over)
                        job->clues.grace = machine_places(&job->machine)->grace;
                else if (member->owner != NULL)
                        job->clues.few = true;
        job->clues.kept = true;
}

void job_archive(struct job *job) {
        uint64_t now = clock_now();
        struct archived_job archived = { .job = job->id,
                                         .uid = job->uid,
                                         .incarnation = job->incarnation,
                                         .step = job->last_step,
                                         .generation = job->generation,
                                         .world = job->state == JOB_FORMING ? job->max_world : job->world,
                                         .at = job->clues.broken != 0 ? job->clues.broken : now };

        if (job->handover != HANDOVER_NONE)
                return;
        archived.wall = clock_wall() - (now - archived.at) / USEC_PER_SEC;
        snprintf(archived.name, sizeof(archived.name), "%s", job->name);
        archived_find_reason(job, &archived);
        archive_add(&job->table->archive, &archived);
}
