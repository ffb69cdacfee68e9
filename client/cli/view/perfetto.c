// SPDX-License-Identifier: Apache-2.0
/* Flight records as trace events: see perfetto.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/format.h"
#include "client/cli/view/perfetto.h"
#include "client/cli/view/value.h"
#include "proto/cleanup.h"

enum perfetto_track_kind { TRACK_STEPS, TRACK_RANK, TRACK_BUCKET };

struct perfetto_track {
        enum perfetto_track_kind kind;
        uint32_t plan, index;
};

/* The step whose frames arrive now. Its slice is written after the last of them. */
struct open_step {
        bool any;
        Wire__TraceStep is; /* its first frame, without the lists */
        uint32_t seen;      /* buckets */
        double sum_squares;
        uint64_t nonfinite;
};

struct perfetto {
        FILE *to;
        char *place, *note;
        int64_t ahead;    /* to be added to times */
        bool failed;      /* memory was short */
        bool first;       /* no event has been written yet */
        unsigned process; /* of the current record */
        bool named;       /* there is a current record */
        uint32_t record;
        struct perfetto_track *track; /* of the current process; thread id is the index + 1 */
        size_t n_tracks;
        int32_t pid[256];
        size_t n_pids;
        uint64_t now;
        struct open_step open;
};

/* Writes one event and drops the reference; NULL stands for a lack of memory. */
static void perfetto_emit(struct perfetto *trace, json_t *event) {
        if (!event) {
                trace->failed = true;
                return;
        }
        fputs(trace->first ? "\n" : ",\n", trace->to);
        trace->first = false;
        json_dumpf(event, trace->to, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(event);
}

struct perfetto *perfetto_new(FILE *to) {
        struct perfetto *trace = calloc(1, sizeof *trace);

        if (!trace)
                return NULL;
        trace->to = to;
        trace->first = true;
        fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"gradsyncctl " GRADSYNC_RELEASE
              "\"},\"traceEvents\":[",
              to);
        return trace;
}

static void perfetto_name_it(struct perfetto *trace, const char *what, size_t thread, const char *key,
                             json_t *value) {
        perfetto_emit(trace, json_pack("{s:s,s:s,s:i,s:i,s:{s:o}}", "ph", "M", "name", what, "pid",
                                       (int)trace->process, "tid", (int)thread, "args", key, value));
}

/* The name has the first parameter of the bucket, if that is known. */
static char *perfetto_bucket_name(const struct perfetto_track *track, const Wire__TraceBucket *bucket) {
        _cleanup_(freep) char *more =
                bucket->parameters > 1 ? format_new(" and %u more", bucket->parameters - 1) : strdup("");

        if (!bucket->parameter || !*bucket->parameter || !more)
                return format_new("plan %u: bucket %u", track->plan, track->index);
        return format_new("plan %u: bucket %u, %s%s", track->plan, track->index, bucket->parameter, more);
}

static char *perfetto_track_name(const struct perfetto *trace, const struct perfetto_track *track,
                                 const Wire__TraceBucket *bucket) {
        switch (track->kind) {
        case TRACK_STEPS: return format_new("plan %u: steps", track->plan);
        case TRACK_BUCKET: return perfetto_bucket_name(track, bucket);
        default:
                if (track->index < trace->n_pids)
                        return format_new("rank %u (pid %d)", track->index, trace->pid[track->index]);
                return format_new("rank %u", track->index);
        }
}

/* The thread id of a track; it is named when it is first used. Steps come first, then ranks, then buckets.
 * `bucket` is that of a bucket's track. */
static size_t perfetto_thread_of(struct perfetto *trace, enum perfetto_track_kind kind, uint32_t plan,
                                 uint32_t index, const Wire__TraceBucket *bucket) {
        for (size_t i = 0; i < trace->n_tracks; i++)
                if (trace->track[i].kind == kind && trace->track[i].plan == plan &&
                    trace->track[i].index == index)
                        return i + 1;
        struct perfetto_track *grown = realloc(trace->track, (trace->n_tracks + 1) * sizeof *grown);
        if (!grown) {
                trace->failed = true;
                return 0;
        }
        trace->track = grown;
        grown[trace->n_tracks++] = (struct perfetto_track){ .kind = kind, .plan = plan, .index = index };
        size_t thread = trace->n_tracks;
        _cleanup_(freep) char *name = perfetto_track_name(trace, &grown[thread - 1], bucket);
        perfetto_name_it(trace, "thread_name", thread, "name", name ? json_string(name) : NULL);
        perfetto_name_it(trace, "thread_sort_index", thread, "sort_index",
                         json_integer((json_int_t)kind * (INT64_C(1) << 24) + (json_int_t)plan % 256 * 65536 +
                                      index % 65536));
        return thread;
}

static void perfetto_slice(struct perfetto *trace, size_t thread, const char *name, uint64_t from,
                           uint64_t to, json_t *args) {
        perfetto_emit(trace, json_pack("{s:s,s:s,s:i,s:i,s:o,s:o,s:o}", "ph", "X", "name", name, "pid",
                                       (int)trace->process, "tid", (int)thread, "ts", value_number(from),
                                       "dur", value_number(to > from ? to - from : 0), "args", args));
}

static const char *perfetto_outcome_name(Wire__Outcome outcome) {
        return outcome == WIRE__OUTCOME__COMMITTED ? "committed"
               : outcome == WIRE__OUTCOME__VOID    ? "void"
                                                   : "open";
}

static void perfetto_end_step(struct perfetto *trace) {
        const struct open_step *open = &trace->open;
        const Wire__TraceStep *step = &open->is;
        double norm = sqrt(open->sum_squares);
        bool whole = step->outcome == WIRE__OUTCOME__COMMITTED && open->seen == step->buckets;

        if (!open->any)
                return;
        _cleanup_(freep) char *name =
                format_new("step %" PRIu64 "%s%s", step->step,
                           step->outcome == WIRE__OUTCOME__COMMITTED ? "" : ", ",
                           step->outcome == WIRE__OUTCOME__COMMITTED ? ""
                                                                     : perfetto_outcome_name(step->outcome));
        perfetto_slice(trace, perfetto_thread_of(trace, TRACK_STEPS, step->plan, 0, NULL),
                       name ? name : "step", step->opened_us, step->ended_us ? step->ended_us : trace->now,
                       json_pack("{s:o,s:s,s:o,s:o,s:o,s:o}", "step", value_number(step->step), "outcome",
                                 perfetto_outcome_name(step->outcome), "generation",
                                 value_number(step->generation), "buckets", value_number(step->buckets),
                                 "norm", value_real(whole, norm), "nonfinite",
                                 value_number(open->nonfinite)));
        if (whole && isfinite(norm)) {
                _cleanup_(freep) char *counter = format_new("gradient norm, plan %u", step->plan);
                perfetto_emit(trace,
                              json_pack("{s:s,s:s,s:i,s:o,s:{s:f}}", "ph", "C", "name",
                                        counter ? counter : "gradient norm", "pid", (int)trace->process, "ts",
                                        value_number(step->ended_us), "args", "norm", norm));
        }
        trace->open = (struct open_step){ 0 };
}

static uint64_t perfetto_time(const struct perfetto *trace, uint64_t time) {
        uint64_t back = 0 - (uint64_t)trace->ahead;

        return trace->ahead >= 0 ? time + (uint64_t)trace->ahead : time > back ? time - back : 0;
}

static int perfetto_begin_record(struct perfetto *trace, const Wire__TraceStep *step) {
        if (!step->name || step->n_pid > array_size(trace->pid))
                return -EPROTO;
        trace->named = true;
        trace->record = step->record;
        trace->process++;
        trace->now = perfetto_time(trace, step->now_us);
        trace->n_tracks = 0;
        trace->n_pids = step->n_pid;
        if (step->n_pid)
                memcpy(trace->pid, step->pid, step->n_pid * sizeof *step->pid);
        _cleanup_(freep) char *name =
                format_new("%s, uid %u%s%s%s", step->name, step->uid, step->ended_job ? ", ended" : "",
                           *trace->place ? ", " : "", trace->place);
        perfetto_name_it(trace, "process_name", 0, "name", name ? json_string(name) : NULL);
        perfetto_name_it(trace, "process_sort_index", 0, "sort_index", json_integer(trace->process));
        if (*trace->note)
                perfetto_name_it(trace, "process_labels", 0, "labels", json_string(trace->note));
        return 0;
}

static bool perfetto_same_step(const struct open_step *open, const Wire__TraceStep *step) {
        return open->any && open->is.plan == step->plan && open->is.step == step->step &&
               open->is.opened_us == step->opened_us;
}

/* Which rank was ready last, and how long after the first one. */
static json_t *perfetto_lateness(const Wire__TraceBucket *bucket) {
        uint32_t first = UINT32_MAX, last = 0;
        size_t who = 0;

        for (size_t rank = 0; rank < bucket->n_ready; rank++) {
                if (bucket->ready[rank] < first)
                        first = bucket->ready[rank];
                if (bucket->ready[rank] > last) {
                        last = bucket->ready[rank];
                        who = rank;
                }
        }
        return json_pack("{s:o,s:o}", "rank", value_number(who), "us",
                         value_number(last > first ? last - first : 0));
}

static json_t *perfetto_counts_of(const Wire__TraceBucket *bucket) {
        json_t *list = json_array();

        for (size_t rank = 0; rank < bucket->n_rank_nonfinite; rank++)
                json_array_append_new(list, value_number(bucket->rank_nonfinite[rank]));
        return list;
}

static void perfetto_reduction(struct perfetto *trace, const Wire__TraceStep *step,
                               const Wire__TraceBucket *bucket) {
        uint64_t end = bucket->end      ? step->opened_us + bucket->end - 1
                       : step->ended_us ? step->ended_us
                                        : trace->now;
        json_t *args = json_pack("{s:o,s:o,s:o}", "step", value_number(step->step), "last",
                                 perfetto_lateness(bucket), "nonfinite", perfetto_counts_of(bucket));

        if (args && bucket->has_sum_squares)
                json_object_set_new(args, "norm", value_real(true, sqrt(bucket->sum_squares)));
        perfetto_slice(trace, perfetto_thread_of(trace, TRACK_BUCKET, step->plan, bucket->bucket, bucket),
                       bucket->end ? "reduce" : "reduce, not ended", step->opened_us + bucket->start - 1, end,
                       args);
}

static void perfetto_add_bucket(struct perfetto *trace, const Wire__TraceStep *step,
                                const Wire__TraceBucket *bucket) {
        for (size_t rank = 0; rank < bucket->n_ready; rank++)
                if (bucket->ready[rank])
                        perfetto_emit(
                                trace,
                                json_pack("{s:s,s:s,s:s,s:i,s:i,s:o,s:{s:o,s:o,s:o}}", "ph", "i", "s", "t",
                                          "name", "ready", "pid", (int)trace->process, "tid",
                                          (int)perfetto_thread_of(trace, TRACK_RANK, 0, (uint32_t)rank, NULL),
                                          "ts", value_number(step->opened_us + bucket->ready[rank] - 1),
                                          "args", "step", value_number(step->step), "plan",
                                          value_number(step->plan), "bucket", value_number(bucket->bucket)));
        if (bucket->start)
                perfetto_reduction(trace, step, bucket);
        trace->open.seen++;
        trace->open.sum_squares += bucket->sum_squares;
        for (size_t rank = 0; rank < bucket->n_rank_nonfinite; rank++)
                trace->open.nonfinite += bucket->rank_nonfinite[rank];
}

int perfetto_step(struct perfetto *trace, const Wire__TraceStep *from) {
        Wire__TraceStep here = *from, *step = &here;

        if (trace->failed)
                return -ENOMEM;
        here.opened_us = perfetto_time(trace, from->opened_us);
        here.ended_us = from->ended_us ? perfetto_time(trace, from->ended_us) : 0;
        if (!trace->named || trace->record != step->record || !perfetto_same_step(&trace->open, step))
                perfetto_end_step(trace);
        if (!trace->named || trace->record != step->record) {
                int r = perfetto_begin_record(trace, step);
                if (r < 0)
                        return r;
        }
        if (!trace->open.any)
                trace->open = (struct open_step){ .any = true, .is = *step };
        for (size_t i = 0; i < step->n_bucket; i++)
                perfetto_add_bucket(trace, step, step->bucket[i]);
        return trace->failed ? -ENOMEM : 0;
}

void perfetto_node(struct perfetto *trace, const char *place, int64_t ahead, const char *note) {
        perfetto_end_step(trace);
        trace->named = false;
        trace->ahead = ahead;
        free(trace->place);
        free(trace->note);
        trace->place = strdup(place);
        trace->note = strdup(note);
        trace->failed = trace->failed || !trace->place || !trace->note;
}

void perfetto_daemon(struct perfetto *trace, const char *place) {
        perfetto_node(trace, place, 0, "");
}

int perfetto_close(struct perfetto *trace) {
        perfetto_end_step(trace);
        fputs("\n]}\n", trace->to);
        int r = trace->failed ? -ENOMEM : 0;
        free(trace->track);
        free(trace->place);
        free(trace->note);
        free(trace);
        return r;
}
