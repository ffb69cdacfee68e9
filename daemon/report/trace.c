/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to TRACE: a piece of the flight records of a job, live or ended. Nothing is remembered between
 * pieces, the client says where to go on; so a large record costs the loop one bounded answer at a time, and
 * waits in no queue. Another node gets one live record whole.
 */
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "report/private.h"

#define PIECE_BYTES (96u << 10) /* of the record; the piece ends after the step that goes beyond */
#define FRAME_NUMBERS 8192u     /* per-rank values in one frame: more might not fit */
#define FRAME_NAMES 64u         /* the same of buckets with names */
#define STEP_NAMES 256u         /* buckets with names in one step */

_Static_assert(FRAME_NUMBERS >= 2 * LIMIT_LOCAL, "a bucket fits a frame");

struct piece {
        const struct query *query;
        uint64_t now, until;
        bool found;                 /* the job asked for, or a record of it */
        const struct record *named; /* the record whose names have been sent */
        struct job *live;           /* the job of the record found last; NULL: that has ended */
        uint32_t plan[LIMIT_PLANS]; /* of it, whose parameters have been named */
        unsigned n_plans;
        uint32_t bytes;
};

/* One frame of a step, while it is filled. */
struct step_frame {
        Wire__TraceStep message;
        Wire__TraceBucket bucket[LIMIT_RESULTS], *buckets[LIMIT_RESULTS];
        int32_t pid[LIMIT_LOCAL];
        uint32_t numbers[FRAME_NUMBERS], used; /* by rank, of its buckets */
};

/* Finds the record with the lowest handle that is not below `from`, and its job. A job that has no plan yet
 * has no record, but it is there. */
static const struct record *trace_find_record(struct piece *piece, uint32_t from) {
        const struct jobs *jobs = piece->query->reports->config.jobs;
        const struct record *record, *found = NULL;
        struct job *job;

        piece->live = NULL;
        list_for_each(record, &jobs->ended.list, link)
                if (record->job >= from && (found == NULL || record->job < found->job) &&
                    query_covers(piece->query, record->uid, record->name))
                        found = record;
        list_for_each(job, &jobs->list, link) {
                if (!query_covers(piece->query, job->uid, job->name))
                        continue;
                piece->found = true;
                if (job->record == NULL || job->id < from || (found != NULL && job->id >= found->job))
                        continue;
                found = job->record;
                piece->live = job;
        }
        piece->found |= found != NULL;
        return found;
}

static void trace_name_record(struct piece *piece, const struct record *record, struct step_frame *frame) {
        Wire__TraceStep *message = &frame->message;

        if (piece->named == record)
                return;
        piece->named = record;
        piece->n_plans = 0;
        message->name = (char *)(uintptr_t)record->name;
        SET(*message, uid, record->uid);
        SET(*message, incarnation, record->incarnation);
        SET(*message, ended_job, record->ended);
        SET(*message, now_us, piece->now);
        message->n_pid = record->world;
        message->pid = frame->pid;
        for (uint32_t rank = 0; rank < record->world; rank++)
                frame->pid[rank] = (int32_t)record->pid[rank];
}

static void trace_begin_frame(struct piece *piece, const struct record *record,
                              const struct record_step *step, struct step_frame *frame) {
        Wire__TraceStep *message = &frame->message;

        wire__trace_step__init(message);
        frame->used = 0;
        trace_name_record(piece, record, frame);
        SET(*message, record, record->job);
        SET(*message, generation, step->generation);
        SET(*message, plan, step->plan);
        SET(*message, step, step->number);
        SET_IF(*message, outcome, step->ended != 0,
               step->committed ? WIRE__OUTCOME__COMMITTED : WIRE__OUTCOME__VOID);
        SET(*message, opened_us, step->opened);
        SET_IF(*message, ended_us, step->ended != 0, step->ended);
        SET(*message, buckets, step->buckets);
        message->bucket = frame->buckets;
}

static bool trace_any(const uint32_t *values, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                if (values[i] != 0)
                        return true;
        return false;
}

/* One number for each rank of the world; 0 for those on other nodes. */
static uint32_t *trace_by_rank(struct step_frame *frame, const struct record_step *step,
                               const uint32_t *values) {
        uint32_t *numbers = frame->numbers + frame->used;

        memset(numbers, 0, step->world * sizeof(*numbers));
        for (uint32_t local = 0; local < step->n_local; local++)
                numbers[record_rank(step, local)] = values[local];
        frame->used += step->world;
        return numbers;
}

/* Where the names of the step's parameters are. NULL: they have been sent, or the plan is gone. */
static const struct description *trace_names(struct piece *piece, const struct record_step *step) {
        const struct plan *plan = piece->live != NULL ? plan_find(piece->live, step->plan) : NULL;

        for (unsigned i = 0; i < piece->n_plans; i++)
                if (piece->plan[i] == step->plan)
                        return NULL;
        if (plan == NULL || !plan->agreed || piece->n_plans == LIMIT_PLANS)
                return NULL;
        piece->plan[piece->n_plans++] = step->plan;
        return plan->reference;
}

static void trace_name_bucket(struct piece *piece, const struct description *names, uint32_t index,
                              Wire__TraceBucket *message) {
        const struct description_bucket *bucket = &names->bucket[index];

        message->parameter = (char *)(uintptr_t)description_param(names, names->order[bucket->first])->name;
        SET(*message, parameters, bucket->n);
        piece->bytes += (uint32_t)strlen(message->parameter);
}

static void trace_add_bucket(struct step_frame *frame, const struct record_step *step, uint32_t index) {
        const struct record_bucket *from = record_bucket(step, index);
        const uint32_t *counts = record_nonfinite(step, index);
        Wire__TraceBucket *bucket = &frame->bucket[frame->message.n_bucket];

        frame->buckets[frame->message.n_bucket++] = bucket;
        wire__trace_bucket__init(bucket);
        SET(*bucket, bucket, index);
        SET(*bucket, start, from->start);
        SET(*bucket, end, from->end);
        SET_IF(*bucket, sum_squares, from->end != 0, from->sum_squares);
        bucket->n_ready = step->world;
        bucket->ready = trace_by_rank(frame, step, record_ready_times(step, index));
        if (trace_any(counts, step->n_local)) {
                bucket->n_rank_nonfinite = step->world;
                bucket->rank_nonfinite = trace_by_rank(frame, step, counts);
        }
}

static void trace_send_frame(const struct piece *piece, const struct step_frame *frame) {
        piece->query->row(piece->query->data, WIRE__MESSAGE_TYPE__TRACE_STEP, &frame->message.base);
}

static void trace_send_step(struct piece *piece, const struct record *record,
                            const struct record_step *step) {
        uint32_t most = FRAME_NUMBERS / 2 / step->world;
        struct step_frame frame;

        trace_begin_frame(piece, record, step, &frame);
        const struct description *names = trace_names(piece, step);
        uint32_t limit = names != NULL ? FRAME_NAMES : LIMIT_RESULTS;
        if (most > limit)
                most = limit;
        for (uint32_t b = 0; b < step->kept; b++) {
                if (frame.message.n_bucket == most) {
                        trace_send_frame(piece, &frame);
                        trace_begin_frame(piece, record, step, &frame);
                }
                trace_add_bucket(&frame, step, b);
                if (names != NULL && b < STEP_NAMES)
                        trace_name_bucket(piece, names, b, &frame.bucket[frame.message.n_bucket - 1]);
        }
        trace_send_frame(piece, &frame);
        piece->bytes += step->size;
}

/* Steps of one record; true when it is over, else *after is where the next piece begins. */
static bool trace_send_record(struct piece *piece, const struct record *record, uint64_t *after) {
        const struct record_step *step;

        while ((step = record_next(record, *after)) != NULL && step->opened <= piece->until) {
                if (piece->bytes >= PIECE_BYTES)
                        return false;
                trace_send_step(piece, record, step);
                *after = step->sequence;
        }
        return true;
}

void trace_describe_job(const struct query *query, struct job *job) {
        const uint64_t now = clock_now();
        struct piece piece = { .query = query, .now = now, .until = now, .live = job };
        uint64_t after = 0;

        while (job->record != NULL && !trace_send_record(&piece, job->record, &after))
                piece.bytes = 0;
}

void reports_trace(const struct query *query, const Wire__Trace *trace) {
        struct piece piece = { .query = query, .now = clock_now() };
        Wire__TraceEnd end = WIRE__TRACE_END__INIT;
        uint32_t from = trace->has_record ? trace->record : 0;
        uint64_t after = trace->has_after ? trace->after : 0;
        const struct record *record;

        piece.until = trace->has_until_us ? trace->until_us : piece.now;
        while ((record = trace_find_record(&piece, from)) != NULL) {
                if (record->job != from)
                        after = 0;
                if (!trace_send_record(&piece, record, &after)) {
                        SET(end, record, record->job);
                        SET(end, after, after);
                        break;
                }
                if (record->job == UINT32_MAX)
                        break;
                from = record->job + 1;
                after = 0;
        }
        SET(end, found, piece.found);
        SET(end, now_us, piece.now);
        query->row(query->data, WIRE__MESSAGE_TYPE__TRACE_END, &end.base);
}
