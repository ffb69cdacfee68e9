/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight record of a job: the events of its last steps. It is always written, and read on request. A ring
 * of fixed size: at most RECORD_STEPS steps, fewer where they have many buckets or members. Writing allocates
 * nothing and reads no clock. Beside the ring stand totals since the job began. A record outlives its job:
 * see struct records.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "base/account.h"
#include "base/list.h"
#include "proto/frame.h"

#define RECORD_STEPS 256u
#define RECORD_BYTES (192u << 10)            /* of the ring: the rings of 64 jobs stay well below 20 MiB */
#define RECORD_STEP_BYTES (RECORD_BYTES / 4) /* of one step; buckets beyond are not recorded */
#define RECORD_ENDED 8u                      /* records of jobs that have ended */
#define RECORD_CLASSES (LIMIT_CLASSES - 1)   /* of the histogram; a last one holds longer ones */

/* Times are microseconds since the step was opened, plus 1; 0: has not happened. 71 minutes and more look
 * like 71 minutes. */
struct record_bucket {
        double sum_squares;  /* of the result */
        uint32_t start, end; /* of the reduction */
};

struct record_step {
        struct record_step **holder;    /* its writer's pointer to it; NULL once the step has ended */
        uint64_t sequence;              /* 1, 2, … in this record */
        uint64_t number, opened, ended; /* clock_now(); ended: 0 while it is open */
        uint32_t size;                  /* bytes in the ring */
        uint32_t plan, generation, world, n_local;
        uint32_t buckets, kept; /* of the plan; recorded ones */
        bool committed;
        /* `kept` struct record_bucket, then for each of them `n_local` times of READY, then as many
         * non-finite counts; then `n_local` ranks, unless these are all of the world */
};

struct record_totals {
        uint64_t committed, step_us; /* steps, and their durations from the first READY to the commit */
        uint64_t nonfinite_steps;    /* of these, with a value in some input that was not finite */
        uint64_t class[RECORD_CLASSES + 1]; /* reductions by duration, not cumulative */
        uint64_t reduce_us;                 /* all reductions */
        /* Sums over the recorded buckets: the members' time from READY to the start of the reduction; and, by
         * local index, the time from the first READY of a bucket to the member's own. */
        uint64_t wait_us, late_us[LIMIT_LOCAL];
};

struct record {
        struct list link;     /* in records, once the job has ended */
        struct charge charge; /* while the job lives */
        uint32_t job;
        uid_t uid;
        uint64_t incarnation;
        bool ended;
        char name[LIMIT_NAME + 1];
        uint32_t world;
        pid_t pid[LIMIT_LOCAL]; /* by rank, as of the last plan that was agreed; 0: on another node.
                                 Ranks from LIMIT_LOCAL on are not kept */
        struct record_totals totals;
        uint64_t sequence;         /* of the last step */
        uint32_t first, n;         /* steps in `at` */
        uint32_t end;              /* after the youngest step in `ring` */
        uint32_t at[RECORD_STEPS]; /* offsets of steps */
        _Alignas(8) uint8_t ring[RECORD_BYTES];
};

/* Records of ended jobs. A fixed number: a new one pushes out the oldest one of the uid that has most of
 * them. */
struct records {
        struct list list; /* oldest first */
};

/* Upper bounds in microseconds of the classes of reductions. */
extern const uint32_t record_class_us[RECORD_CLASSES];

/* Memory is charged to the uid. 0, QUOTA with *refusal, or -ENOMEM. */
int record_new(struct users *accounts, uid_t uid, const char *name, struct record **ret,
               struct refusal *refusal);
struct record *record_free(struct record *record);
void records_init(struct records *records);
void records_deinit(struct records *records);
/* The job has ended: its record (may be NULL) stays for a while, and no uid is charged for it any more. */
void records_keep(struct records *records, struct record *record);

/* Begins a step; *holder is set, and becomes NULL if newer steps push this one out before it ends.
 * record_name() says which rank each local member has. */
void record_open(struct record *record, struct record_step **holder, const struct record_step *what);
void record_name(struct record_step *step, uint32_t local, uint32_t rank);
/* The other functions accept `step` NULL. Then they keep only those totals for which no earlier event has to
 * be remembered. */
void record_ready(struct record_step *step, uint32_t bucket, uint32_t local, uint64_t now);
void record_start(struct record *record, struct record_step *step, uint32_t bucket, uint64_t now);
void record_end(struct record *record, struct record_step *step, uint32_t bucket, uint64_t now,
                uint64_t start, const struct backend_result *result);
void record_close(struct record *record, struct record_step *step, bool committed, uint64_t opened,
                  uint64_t now);

/* The oldest step with a sequence above `after`; NULL if there is none. */
const struct record_step *record_next(const struct record *record, uint64_t after);
const struct record_bucket *record_bucket(const struct record_step *step, uint32_t bucket);
const uint32_t *record_ready_times(const struct record_step *step, uint32_t bucket); /* by local index */
const uint32_t *record_nonfinite(const struct record_step *step, uint32_t bucket);   /* by local index */
uint32_t record_rank(const struct record_step *step, uint32_t local);
