/* SPDX-License-Identifier: Apache-2.0 */
/* Members' words, and the trace that the former daemon has left, become a report; see verdict.h. */
#include "job/restart/verdict.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"

#define MOST_NUMBERS (1u << 17) /* in the results that one member is sent at once: so many fit its queue */

static bool is_back(const struct job *job, uint32_t rank) {
        return takeover_is_back(job, rank) && job->takeover->part[rank].word.told;
}

/* Whether the member has heard of the latest generation. */
static bool is_current(const struct takeover *takeover, uint32_t rank) {
        return takeover->part[rank].word.generation == takeover->generation;
}

/* Of the first n ranks of the former generation; what a member has said that is gone again does not count. */
static void list_words(const struct job *job, uint32_t n, struct word *word) {
        for (uint32_t rank = 0; rank < n; rank++) {
                word[rank] = job->takeover->part[rank].word;
                word[rank].told = is_back(job, rank);
                word[rank].ended |= job->takeover->ended;
        }
}

static bool all_current(const struct job *job, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (job->takeover->part[rank].here && !is_current(job->takeover, rank))
                        return false;
        return true;
}

static const struct state_plan *find_past(const struct plan *plan, uint32_t before) {
        if (plan->reference == NULL)
                return NULL;
        struct state_key key = plan_key(plan);
        return past_find(plan->job->table->past, &key, plan->job->takeover->generation, before);
}

static void tell_results(const struct plan *plan, uint32_t rank, const struct state_plan *past) {
        const struct jobs_events *events = plan->job->table->config.events;
        struct member *member = plan->job->local[rank];
        struct backend_result result;
        const uint8_t *unused;

        for (uint32_t b = 0; b < plan->reference->n_buckets; b++) {
                const struct description_bucket *bucket = &plan->reference->bucket[b];

                past_result(past, b, bucket->first, &result, &unused);
                events->past_result(member, plan, b, &result, unused, (bucket->n + 7) / 8);
        }
        events->past_commit(member, plan);
}

static struct word_step about_of(const struct plan *plan, uint32_t rank) {
        const struct plan_part *part = &plan->part[rank];

        return (struct word_step){ .known = part->state == PART_MAPPED,
                                   .step = part->said_step,
                                   .launched = part->said_launched };
}

/* The member has not heard of the last commit; whether it has now. */
static bool verdict_catch_up(struct plan *plan, uint32_t rank, const struct word *word,
                             const struct state_plan *past) {
        const struct word_step about = about_of(plan, rank);
        const struct trace trace = past_trace(past);
        struct job *job = plan->job;
        uint64_t numbers = (uint64_t)plan->reference->n_buckets * (job->world + 3);

        if (!is_back(job, rank))
                return false;
        if (numbers <= MOST_NUMBERS && words_can_hear(word, &about, job->takeover->generation, &trace,
                                                      plan->step, plan->reference->n_buckets)) {
                tell_results(plan, rank, past);
                return true;
        }
        job->takeover->behind = true;
        job->table->config.events->plan_step(job->local[rank], plan);
        return false;
}

/* Whether each member knows of the last commit by now. */
static bool tell_last_step(struct plan *plan, uint32_t before, const struct word *word) {
        const struct state_plan *past = find_past(plan, before);
        bool heard = true;

        for (uint32_t rank = 0; rank < before; rank++)
                if (plan->part[rank].state == PART_MAPPED && plan->part[rank].said_step != plan->step)
                        heard = verdict_catch_up(plan, rank, &word[rank], past) && heard;
        return heard;
}

/* The plan's track, as the former daemon would report it. */
static void report_plan(struct plan *plan, const struct word *word, struct message *report) {
        const struct trace trace = past_trace(find_past(plan, plan->job->world));
        struct word_step about[LIMIT_LOCAL];

        for (uint32_t rank = 0; rank < plan->job->world; rank++)
                if (is_back(plan->job, rank))
                        takeover_drop_part(plan, rank);
        if (!plan->agreed)
                return;
        for (uint32_t rank = 0; rank < plan->job->world; rank++)
                about[rank] = about_of(plan, rank);
        struct words_unit unit = words_unit(word, about, plan->job->world, &trace);
        plan->step = unit.committed;
        plan->job->takeover->began |= unit.began;
        while (report->n_tracks <= plan->track) {
                report->mark[report->n_tracks] = report->committed[report->n_tracks] = 0;
                report->prepared[report->n_tracks++] = 0;
        }
        report->plan[report->n_plans++] = (struct message_plan){
                .digest = description_digest(plan->reference), .ordinal = plan->ordinal, .track = plan->track
        };
        report->committed[plan->track] = unit.committed;
        report->mark[plan->track] = unit.committed + unit.opened;
        report->prepared[plan->track] = unit.committed + unit.prepared;
}

static void report_member(const struct job *job, uint32_t rank, struct message *report) {
        const struct returned *part = &job->takeover->part[rank];

        report->member_of[report->n_members++] =
                (struct message_member){ .request = part->request,
                                         .tag = takeover_tag(job, part->history),
                                         .rank = rank,
                                         .slot = job->local[rank]->local_rank,
                                         .id = job->local[rank]->stable,
                                         .in = true };
}

/* The member has come back and then left in good order: its place is not awaited. */
static bool verdict_has_left(const struct job *job, uint32_t rank) {
        return job->takeover->part[rank].here && job->local[rank]->state == MEMBER_LEFT;
}

/* All members have told what they know, or are not awaited any longer: the machine gets their report. */
static void verdict_restore(struct job *job) {
        struct word word[LIMIT_LOCAL];
        struct message report;
        struct plan *plan;

        message_clear(&report);
        list_words(job, job->world, word);
        report.generation.number = job->takeover->generation;
        report.world = job->world;
        report.n_tracks = 0;
        list_for_each(plan, &job->plans, link)
                report_plan(plan, word, &report);
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (word[rank].told || verdict_has_left(job, rank))
                        report_member(job, rank, &report);
        report.history = takeover_tag(job, job->history); /* also of members that are gone again */
        job->takeover->restored = true;
        machine_restore(job, &report);
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (verdict_has_left(job, rank))
                        machine_gone(job, job->local[rank]->id, WIRE__CAUSE__LEAVING);
}

void verdict_advance(struct job *job) {
        if (takeover_is_awaiting(job) && job->state != JOB_LOST && !takeover_any_telling(job) &&
            !takeover_any_expected(job))
                verdict_restore(job);
}

static void resolve_operations(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;

        for (uint32_t rank = 0; rank < before; rank++) {
                const struct returned *part = &takeover->part[rank];

                if (!part->here || !is_current(takeover, rank) || part->operations < takeover->operations)
                        continue;
                takeover->operation_failed =
                        part->operation_failed ||
                        (part->operations == takeover->operations && takeover->operation_failed);
                takeover->operations = part->operations;
        }
}

static void tell_verdict(const struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_INFO, &context,
                          "job has been taken back after a restart with %u members, after step %" PRIu64
                          ": %s",
                          job->world, job->last_step,
                          job->takeover->resumed ? "nothing is void" : "open steps are void");
}

void verdict_resolve(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;
        struct word word[LIMIT_LOCAL];
        struct plan *plan;

        list_words(job, before, word);
        bool resumed = job->world == before && words_all_here(word, before) && !takeover->voided;
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
                         job->last_step, job->world < before ? ", and not all members came back" : "");
        tell_verdict(job);
}
