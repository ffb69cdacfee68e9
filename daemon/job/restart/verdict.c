/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of the former daemon becomes a report; see verdict.h. */
#include "job/restart/verdict.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"

#define MOST_NUMBERS (1u << 17) /* in the results that one member is sent at once: so many fit its queue */

/* Whether the member has heard of the latest generation. */
static bool is_current(const struct takeover *takeover, uint32_t local) {
        return takeover->part[local].generation == takeover->from->number.number;
}

static bool all_current(const struct job *job, uint32_t before) {
        for (uint32_t local = 0; local < before; local++)
                if (job->takeover->part[local].here && !is_current(job->takeover, local))
                        return false;
        return true;
}

/* Whether all of the `before` members that were here are back, and none can have heard, or is yet to hear, of
 * anything void. */
static bool all_whole(const struct job *job, uint32_t before) {
        const struct takeover *takeover = job->takeover;

        for (uint32_t local = 0; local < before; local++)
                if (!takeover_is_complete(job, local) ||
                    takeover->part[local].generation < takeover->from->since)
                        return false;
        return !takeover->from->ended;
}

static void tell_results(struct plan *plan, uint32_t local) {
        struct member *member = plan->job->local[local];
        struct backend_result result;
        const uint8_t *unused;

        for (uint32_t b = 0; b < plan->reference->n_buckets; b++) {
                const struct description_bucket *bucket = &plan->reference->bucket[b];

                journal_result(plan->kept, b, bucket->first, &result, &unused);
                member_tell(member,
                            (struct job_event){ .kind = JOB_EVENT_PAST_RESULT,
                                                .plan = plan,
                                                .result = { b, &result, unused, (bucket->n + 7) / 8 } });
        }
        member_tell(member, (struct job_event){ .kind = JOB_EVENT_PAST_COMMIT, .plan = plan });
}

/* The results of one step fit what a member is sent at once. */
static bool verdict_fits(const struct plan *plan) {
        return (uint64_t)plan->reference->n_buckets * (plan->job->n_local + 3) <= MOST_NUMBERS;
}

/* Whether the member can be given all that it has not heard of the steps up to plan->step. */
static bool verdict_can_tell(const struct plan *plan, uint32_t local, const struct trace *trace) {
        return plan->part[local].said_step + 1 == plan->step && trace_has_results(trace) &&
               verdict_fits(plan);
}

/* The member has not heard of the last commit; whether it has now. */
static bool verdict_catch_up(struct plan *plan, uint32_t local, const struct trace *trace) {
        struct job *job = plan->job;

        if (!takeover_is_complete(job, local))
                return false;
        if (verdict_can_tell(plan, local, trace)) {
                tell_results(plan, local);
                return true;
        }
        job->takeover->behind = true;
        member_tell(job->local[local], (struct job_event){ .kind = JOB_EVENT_PLAN_STEP, .plan = plan });
        return false;
}

/* Whether each member knows of the last commit by now. */
static bool tell_last_step(struct plan *plan, uint32_t before) {
        const struct trace trace = journal_trace(plan->kept);
        bool heard = true;

        for (uint32_t local = 0; local < before; local++)
                if (plan->part[local].state == PART_MAPPED && plan->part[local].said_step != plan->step)
                        heard = verdict_catch_up(plan, local, &trace) && heard;
        return heard;
}

static void verdict_use_track(struct report *report, uint32_t track) {
        while (report->n_tracks <= track) {
                report->mark[report->n_tracks] = report->committed[report->n_tracks] = 0;
                report->prepared[report->n_tracks++] = 0;
        }
}

/* The plan's track, as the former daemon would report it. */
static void report_plan(struct plan *plan, struct report *report) {
        const struct journal_track *track = journal_track_of(plan->job->takeover->from, plan->ordinal);
        const struct trace trace = journal_trace(plan->kept);
        bool open = trace_is_open(&trace), prepared = trace_is_prepared(&trace);

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (takeover_is_complete(plan->job, local))
                        takeover_drop_part(plan, local);
        if (!plan->agreed)
                return;
        plan->step = trace.committed;
        plan->job->takeover->began |= open;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state == PART_MAPPED)
                        plan->job->takeover->part[local].lacks |= (plan->part[local].said_step < plan->step &&
                                                                   !verdict_can_tell(plan, local, &trace)) ||
                                                                  (prepared && !verdict_fits(plan));
        verdict_use_track(report, plan->track);
        report->plan[report->n_plans++] = (struct report_plan){ .digest = description_digest(plan->reference),
                                                                .ordinal = plan->ordinal,
                                                                .track = plan->track,
                                                                .before = track->before };
        report->committed[plan->track] = track->before + trace.committed;
        report->mark[plan->track] = report->committed[plan->track] + open;
        report->prepared[plan->track] = report->committed[plan->track] + prepared;
}

/* The journal may still have a plan that all members have dropped. */
static uint64_t steps_left(const struct job *job, uint32_t plan) {
        const struct journal_key key = { .uid = job->uid,
                                         .job = job->name,
                                         .incarnation = job->incarnation,
                                         .token = job->token.digest,
                                         .plan = plan };

        return journal_trace(journal_find(job->table->journal, &key)).committed;
}

/* Tracks of plans that have been freed, or that no member brings back. */
static void report_tracks(const struct job *job, struct report *report) {
        const struct journal_generation *from = job->takeover->from;

        for (uint32_t i = 0; i < from->n_tracks; i++) {
                uint32_t track = from->track[i].track;

                verdict_use_track(report, track);
                if (report->mark[track] == 0)
                        report->committed[track] = report->mark[track] = report->prepared[track] =
                                from->track[i].before + steps_left(job, from->track[i].plan);
        }
}

/* The tag of a state with all steps, as the former daemon had it. */
static struct tag report_tag(const struct job *job, const struct report *report) {
        const struct journal_generation *from = job->takeover->from;
        struct tag tag = { .incarnation = job->incarnation,
                           .term = from->number.term,
                           .generation = from->number.number };

        for (uint32_t track = TRACK_STEP; track < report->n_tracks; track++) {
                tag.step += report->committed[track];
                if (nodeset_count(report_set(report)) > 1)
                        tag.plans += tag_plans(report->committed[track], track);
        }
        return tag.step > from->steps ? tag : from->history;
}

/* The coordinator has to know who lacks something of the state before it makes the next generation: then all
 * members synchronise. */
static void report_member(const struct job *job, uint32_t local, struct report *report) {
        const struct returned *part = &job->takeover->part[local];

        report->member_of[report->n_members++] =
                (struct report_member){ .request = part->request,
                                        .tag = part->lacks ? (struct tag){ 0 } : job->takeover->tag,
                                        .rank = job->local[local]->rank,
                                        .slot = job->local[local]->local_rank,
                                        .id = job->local[local]->stable,
                                        .behind = part->lacks,
                                        .in = true };
}

/* The member has left, before the restart or since it came back: its place is not kept. */
static bool verdict_has_left(const struct job *job, uint32_t local) {
        return job->takeover->part[local].here && job->local[local]->state == MEMBER_LEFT;
}

/* Operations have numbers that all nodes of the job know. */
static void report_operations(const struct job *job, struct report *report) {
        uint64_t ended = journal_ended_of(job->kept).number;

        verdict_use_track(report, TRACK_OPERATION);
        report->committed[TRACK_OPERATION] = report->mark[TRACK_OPERATION] =
                report->prepared[TRACK_OPERATION] = ended;
}

/* The ordinal of the members' next plan, once those are gone that end with a loss. */
static uint32_t report_next_plan(const struct job *job) {
        const struct plan *plan;
        uint32_t next = 0;

        for (uint32_t local = 0; local < job->n_local; local++)
                if (takeover_is_complete(job, local) && job->takeover->part[local].next_plan > next)
                        next = job->takeover->part[local].next_plan;
        list_for_each(plan, &job->plans, link)
                if (plan->void_on_loss && !plan->agreed && plan->ordinal < next)
                        next = plan->ordinal;
        return next;
}

/* The members that are not awaited any longer, by the lowest rank of them. */
static void tell_missing(const struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);
        uint32_t first = 0, missing = 0, awaited = 0;

        for (uint32_t local = job->n_local; local-- > 0;) {
                awaited += !journal_member_is_gone(&job->takeover->from->member[local]);
                if (!job->takeover->part[local].here) {
                        first = job->local[local]->rank;
                        missing++;
                }
        }
        context.rank = first;
        if (missing > 0 && flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(
                        LOG_WARNING, &context,
                        "job '%s': %u of %u members here have not come back after the restart; the first one "
                        "is rank %u",
                        job->name, missing, awaited, first);
}

/* All members have come back, or are not awaited any longer: the machine gets their node's report. */
static void verdict_restore(struct job *job) {
        const struct journal_generation *from = job->takeover->from;
        struct report report;
        struct plan *plan;

        report_clear(&report);
        report.generation = from->number;
        report.world = job->world;
        report.n_tracks = 0;
        if (job->cluster)
                report_name_nodes(&report,
                                  (struct nodeset){ (uint64_t *)(uintptr_t)from->set, NODESET_WORDS },
                                  (struct nodeset){ 0 });
        report_operations(job, &report);
        list_for_each(plan, &job->plans, link)
                report_plan(plan, &report);
        report_tracks(job, &report);
        for (uint32_t track = TRACK_STEP; track < report.n_tracks; track++)
                job->history |= report.committed[track] > 0;
        report.next_plan = report_next_plan(job);
        report.history = job->takeover->tag = report_tag(job, &report);
        for (uint32_t local = 0; local < job->n_local; local++)
                if (takeover_is_complete(job, local) || verdict_has_left(job, local))
                        report_member(job, local, &report);
        if (report.n_members == 0 && job->cluster)
                report.world = 0; /* the node is in no generation without them */
        report.behind = from->unsynced;
        report.torn = job->cluster && !all_whole(job, job->n_local);
        job->takeover->restored = true;
        tell_missing(job);
        machine_restore(job, &report);
        for (uint32_t local = 0; local < job->n_local; local++)
                if (verdict_has_left(job, local))
                        machine_gone(job, job->local[local]->id, WIRE__CAUSE__LEAVING);
}

void verdict_advance(struct job *job) {
        if (takeover_is_awaiting(job) && job->state != JOB_LOST && !takeover_any_telling(job) &&
            !takeover_any_expected(job))
                verdict_restore(job);
}

static void tell_verdict(const struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_INFO, &context,
                          "job '%s' has been taken back after a restart with %u members, after step %" PRIu64
                          ": %s",
                          job->name, job->world, job->last_step,
                          job->takeover->resumed ? "nothing is void" : "open steps are void");
}

/* All members that were here are, and hear of nothing void. */
static bool verdict_is_whole(const struct job *job, uint32_t world, uint32_t before) {
        return job->world == world && job->n_local == before && all_whole(job, before) &&
               !job->takeover->voided && !(job->cluster && (job->behind || job->torn));
}

void verdict_resolve(struct job *job, uint32_t world, uint32_t before) {
        struct takeover *takeover = job->takeover;
        const struct journal_ended ended = journal_ended_of(job->kept);
        struct plan *plan;

        bool resumed = verdict_is_whole(job, world, before);
        list_for_each(plan, &job->plans, link) {
                resumed = tell_last_step(plan, before) && resumed;
                if (plan->step > job->last_step)
                        job->last_step = plan->step;
        }
        if (resumed || all_current(job, before)) { /* else members count in different generations */
                takeover->operations = ended.sequence;
                takeover->operation_failed = ended.failed;
        }
        takeover->resumed = resumed;
        job->void_steps += !resumed && takeover->began;
        if (job->loss.cause == WIRE__CAUSE__RESTARTED)
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s': gradsyncd was restarted after step %" PRIu64 "%s", job->name,
                         job->last_step, job->world < world ? ", and not all members came back" : "");
        tell_verdict(job);
}
