/* SPDX-License-Identifier: Apache-2.0 */
/* Members' words, and the trace that the former daemon has left, become a report; see verdict.h. */
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

static bool is_back(const struct job *job, uint32_t local) {
        return takeover_is_back(job, local) && job->takeover->part[local].word.told;
}

/* Whether the member has heard of the latest generation. */
static bool is_current(const struct takeover *takeover, uint32_t local) {
        return takeover->part[local].word.generation == takeover->generation;
}

/* Of the first n members of the former generation here; what a member has said that is gone again does not
 * count. */
static void list_words(const struct job *job, uint32_t n, struct word *word) {
        for (uint32_t local = 0; local < n; local++) {
                word[local] = job->takeover->part[local].word;
                word[local].told = is_back(job, local);
                word[local].ended |= job->takeover->ended;
        }
}

static bool all_current(const struct job *job, uint32_t before) {
        for (uint32_t local = 0; local < before; local++)
                if (job->takeover->part[local].here && !is_current(job->takeover, local))
                        return false;
        return true;
}

/* How far the former daemon was with the plan, of which `before` members were here. */
static struct trace trace_of(const struct plan *plan, uint32_t before) {
        return journal_trace(plan->kept, plan->job->takeover->generation, before);
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

static struct word_step about_of(const struct plan *plan, uint32_t local) {
        const struct plan_part *part = &plan->part[local];

        return (struct word_step){ .known = part->state == PART_MAPPED,
                                   .step = part->said_step,
                                   .launched = part->said_launched };
}

/* Whether the member can be given the results of the plan's step `step`. */
static bool verdict_can_hear(const struct plan *plan, uint32_t local, const struct word *word, uint64_t step,
                             const struct trace *trace) {
        const struct word_step about = about_of(plan, local);
        uint64_t numbers = (uint64_t)plan->reference->n_buckets * (plan->job->n_local + 3);

        return numbers <= MOST_NUMBERS && words_can_hear(word, &about, plan->job->takeover->generation, trace,
                                                         step, plan->reference->n_buckets);
}

/* The member has not heard of the last commit; whether it has now. */
static bool verdict_catch_up(struct plan *plan, uint32_t local, const struct word *word,
                             const struct trace *trace) {
        struct job *job = plan->job;

        if (!is_back(job, local))
                return false;
        if (verdict_can_hear(plan, local, word, plan->step, trace)) {
                tell_results(plan, local);
                return true;
        }
        job->takeover->behind = true;
        member_tell(job->local[local], (struct job_event){ .kind = JOB_EVENT_PLAN_STEP, .plan = plan });
        return false;
}

/* Whether each member knows of the last commit by now. */
static bool tell_last_step(struct plan *plan, uint32_t before, const struct word *word) {
        const struct trace trace = trace_of(plan, before);
        bool heard = true;

        for (uint32_t local = 0; local < before; local++)
                if (plan->part[local].state == PART_MAPPED && plan->part[local].said_step != plan->step)
                        heard = verdict_catch_up(plan, local, &word[local], &trace) && heard;
        return heard;
}

static void verdict_use_track(struct report *report, uint32_t track) {
        while (report->n_tracks <= track) {
                report->mark[report->n_tracks] = report->committed[report->n_tracks] = 0;
                report->prepared[report->n_tracks++] = 0;
        }
}

/* The plan's track, as the former daemon would report it. */
static void report_plan(struct plan *plan, const struct word *word, struct report *report) {
        const struct trace trace = trace_of(plan, plan->job->n_local);
        const struct journal_track *track = place_find(&plan->job->takeover->place, plan->ordinal);
        uint64_t before = track != NULL ? track->before : 0;
        struct word_step about[LIMIT_LOCAL];

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (is_back(plan->job, local))
                        takeover_drop_part(plan, local);
        if (!plan->agreed)
                return;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                about[local] = about_of(plan, local);
        struct words_unit unit = words_unit(word, about, plan->job->n_local, &trace);
        plan->step = unit.committed;
        plan->job->takeover->began |= unit.began;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                plan->job->takeover->part[local].lacks |=
                        about[local].known &&
                        ((about[local].step < unit.committed &&
                          !verdict_can_hear(plan, local, &word[local], unit.committed, &trace)) ||
                         (unit.prepared &&
                          !verdict_can_hear(plan, local, &word[local], unit.committed + 1, &trace)));
        verdict_use_track(report, plan->track);
        report->plan[report->n_plans++] = (struct report_plan){ .digest = description_digest(plan->reference),
                                                                .ordinal = plan->ordinal,
                                                                .track = plan->track,
                                                                .before = before };
        report->committed[plan->track] = before + unit.committed;
        report->mark[plan->track] = before + unit.committed + unit.opened;
        report->prepared[plan->track] = before + unit.committed + unit.prepared;
}

/* Tracks of plans that have been freed. */
static void report_tracks(const struct job *job, struct report *report) {
        const struct journal_place *place = &job->takeover->place;

        for (uint32_t i = 0; i < place->n_tracks; i++) {
                uint32_t track = place->track[i].track;

                verdict_use_track(report, track);
                if (report->committed[track] == 0)
                        report->committed[track] = report->mark[track] = report->prepared[track] =
                                place->track[i].before;
        }
}

/* As the former daemon would have it, if the last step was in its last generation. */
static struct tag report_tag(const struct job *job, const struct report *report) {
        struct tag tag = takeover_tag(job, true);

        tag.step = 0;
        for (uint32_t track = TRACK_STEP; track < report->n_tracks; track++) {
                tag.step += report->committed[track];
                tag.plans += tag_plans(report->committed[track], track);
        }
        return tag.step > 0 ? tag : (struct tag){ 0 };
}

/* On several nodes the coordinator has to know who lacks something of the state before it makes the next
 * generation: then all members synchronise. */
static void report_member(const struct job *job, uint32_t local, struct report *report) {
        const struct returned *part = &job->takeover->part[local];
        bool behind = job->cluster && part->lacks;
        struct tag tag = job->cluster ? report_tag(job, report) : takeover_tag(job, true);

        if (!part->history || behind)
                tag = (struct tag){ 0 };

        report->member_of[report->n_members++] =
                (struct report_member){ .request = part->request,
                                        .tag = tag,
                                        .rank = job->local[local]->rank,
                                        .slot = job->local[local]->local_rank,
                                        .id = job->local[local]->stable,
                                        .behind = behind,
                                        .in = true };
}

/* The member has come back and then left in good order: its place is not awaited. */
static bool verdict_has_left(const struct job *job, uint32_t local) {
        return job->takeover->part[local].here && job->local[local]->state == MEMBER_LEFT;
}

/* Operations of a job of the cluster have numbers that all nodes know. */
static void report_operations(const struct job *job, struct report *report) {
        uint64_t ended = journal_ended_of(job->kept, job->takeover->generation).number;

        verdict_use_track(report, TRACK_OPERATION);
        report->committed[TRACK_OPERATION] = report->mark[TRACK_OPERATION] =
                report->prepared[TRACK_OPERATION] = ended;
}

/* The ordinal of the members' next plan, once those are gone that end with a loss. */
static uint32_t report_next_plan(const struct job *job, const struct word *word) {
        const struct plan *plan;
        uint32_t next = 0;

        for (uint32_t local = 0; local < job->n_local; local++)
                if (word[local].told && job->takeover->part[local].next_plan > next)
                        next = job->takeover->part[local].next_plan;
        list_for_each(plan, &job->plans, link)
                if (plan->void_on_loss && !plan->agreed && plan->ordinal < next)
                        next = plan->ordinal;
        return next;
}

/* All members have told what they know, or are not awaited any longer: the machine gets their report. */
static void verdict_restore(struct job *job) {
        struct word word[LIMIT_LOCAL];
        struct report report;
        struct plan *plan;
        bool history = false;

        report_clear(&report);
        list_words(job, job->n_local, word);
        report.generation = job->takeover->place.generation;
        report.world = job->world;
        report.n_tracks = 0;
        report_operations(job, &report);
        list_for_each(plan, &job->plans, link)
                report_plan(plan, word, &report);
        report_tracks(job, &report);
        report.next_plan = report_next_plan(job, word);
        for (uint32_t local = 0; local < job->n_local; local++) {
                if (word[local].told || verdict_has_left(job, local))
                        report_member(job, local, &report);
                history |= word[local].told && !job->takeover->part[local].lacks;
                report.behind |= word[local].told && job->takeover->part[local].unsynced;
        }
        if (report.n_members == 0 && job->cluster)
                report.world = 0; /* nobody speaks for the node */
        /* Also of members that are gone again. */
        if (job->history && !job->cluster)
                report.history = takeover_tag(job, true);
        else if (job->history && history)
                report.history = report_tag(job, &report);
        report.torn = job->cluster && !words_all_here(word, job->n_local);
        job->takeover->restored = true;
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

/* The former daemon may have been killed before any member had heard of the last operation's end. */
static void verdict_use_ended(struct job *job) {
        struct takeover *takeover = job->takeover;

        const struct journal_ended ended = journal_ended_of(job->kept, takeover->generation);
        if (ended.sequence <= takeover->operations)
                return;
        takeover->operations = ended.sequence;
        takeover->operation_failed = ended.failed;
}

static void resolve_operations(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;

        for (uint32_t local = 0; local < before; local++) {
                const struct returned *part = &takeover->part[local];

                if (!part->here || !is_current(takeover, local) || part->operations < takeover->operations)
                        continue;
                takeover->operation_failed =
                        part->operation_failed ||
                        (part->operations == takeover->operations && takeover->operation_failed);
                takeover->operations = part->operations;
        }
        verdict_use_ended(job);
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
static bool verdict_is_whole(const struct job *job, uint32_t world, uint32_t before,
                             const struct word *word) {
        return job->world == world && job->n_local == before && words_all_here(word, before) &&
               !job->takeover->voided && !(job->cluster && (job->behind || job->torn));
}

void verdict_resolve(struct job *job, uint32_t world, uint32_t before) {
        struct takeover *takeover = job->takeover;
        struct word word[LIMIT_LOCAL];
        struct plan *plan;

        list_words(job, before, word);
        bool resumed = verdict_is_whole(job, world, before, word);
        list_for_each(plan, &job->plans, link) {
                resumed = tell_last_step(plan, before, word) && resumed;
                if (plan->step > job->last_step)
                        job->last_step = plan->step;
        }
        resolve_operations(job, before);
        if (!resumed && !all_current(job, before))
                takeover->operations = 0; /* the counts are of different generations */
        takeover->resumed = resumed;
        job->void_steps += !resumed && takeover->began;
        if (job->loss.cause == WIRE__CAUSE__RESTARTED)
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s': gradsyncd was restarted after step %" PRIu64 "%s", job->name,
                         job->last_step, job->world < world ? ", and not all members came back" : "");
        tell_verdict(job);
}
