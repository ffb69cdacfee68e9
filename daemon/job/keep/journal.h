/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that outlives the daemon, so that the next one knows how far open steps were. Each plan has a slot:
 * the step that was opened last, a mark for each bucket before the first and after the last write to it, and
 * the results. A crash between the end of a step and the news of it costs nothing. A job of the cluster has a
 * slot as well: its members cannot know where its part on this daemon is in the cluster.
 *
 * The file is mapped, so a store to it survives the process, but not the machine. The next daemon goes on
 * with the same file. It believes nothing in it that it has not checked. A plan that finds no room is left
 * out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "proto/frame.h"
#include "rendezvous/machine/message.h"
#include "rendezvous/machine/words.h"

struct journal;
struct journal_plan; /* the slot of a plan, and of a job */
struct journal_job;

struct journal_key {
        uid_t uid;
        const char *job;
        uint64_t incarnation;
        uint32_t plan;
        uint32_t params, buckets; /* that it has */
};

/* Opens the file, or makes it; as long as the journal is open no other process can have it. 0; 1 and a
 * sentence in `error` if the content is of no use and was dropped; or a negative errno and a sentence. */
int journal_open(const char *path, struct journal **ret, char *error, size_t size);
struct journal *journal_close(struct journal *journal);
/* Drops the plans and jobs of a former daemon that have not been added since. */
void journal_sweep(struct journal *journal);

/* Bytes that a plan takes. */
uint64_t journal_bytes(const struct journal_key *key, uint32_t most_local);
/* The slot that a former daemon has left of the plan, or a new one, which belongs to no generation yet. NULL
 * if there is no room, or no journal; then, as for all of these, nothing is kept of the plan. */
struct journal_plan *journal_add(struct journal *journal, const struct journal_key *key, uint32_t most_local);
void journal_drop(struct journal *journal, struct journal_plan *plan);
/* No step is open in it yet. */
void journal_generation(struct journal_plan *plan, uint32_t generation, uint32_t n_local);
void journal_step(struct journal_plan *plan, uint64_t step); /* 0: the one that was open is void */
void journal_begin(struct journal_plan *plan, uint32_t bucket);
/* `first`: parameters in the buckets before it. */
void journal_done(struct journal_plan *plan, uint32_t bucket, uint32_t first,
                  const struct backend_result *result, const uint8_t *unused, size_t unused_bytes);

/* The step that was opened last, if it was in that generation, with so many members here. */
struct trace journal_trace(const struct journal_plan *plan, uint32_t generation, uint32_t n_local);
/* A bucket of a step that is done. *ret and *ret_unused (NULL, or a map of the bucket's parameters) are valid
 * until the next step is opened. */
void journal_result(const struct journal_plan *plan, uint32_t bucket, uint32_t first,
                    struct backend_result *ret, const uint8_t **ret_unused);

#define JOURNAL_NO_PLAN UINT32_MAX

struct journal_track {
        uint32_t plan, track; /* JOURNAL_NO_PLAN: the plan of that track has been freed */
        uint64_t before;      /* units of the track that were committed before the plan's first step */
};

/* Where the job's part on this daemon is in the cluster, in one generation. */
struct journal_place {
        struct generation generation;
        uint32_t world; /* its members on all daemons */
        uint32_t n_ranks, n_tracks;
        uint32_t rank[LIMIT_LOCAL]; /* of all its members on this daemon, ascending */
        struct journal_track track[LIMIT_PLANS];
};

/* Operations of the job that have ended. */
struct journal_ended {
        uint32_t generation; /* of the job */
        uint64_t number;     /* that ended well, over all generations */
        uint64_t sequence;   /* in this generation */
        bool failed;         /* the last one of these failed */
};

uint64_t journal_job_bytes(void);
/* The job's slot, whichever daemon has written to it. NULL if there is none, or no journal. */
struct journal_job *journal_find_job(struct journal *journal, uid_t uid, const char *name,
                                     uint64_t incarnation);
/* That slot or a new one. NULL as for plans. */
struct journal_job *journal_add_job(struct journal *journal, uid_t uid, const char *name,
                                    uint64_t incarnation);
void journal_drop_job(struct journal *journal, struct journal_job *job);
void journal_place_job(struct journal_job *job, const struct journal_place *place);
/* The latest place in that generation; NULL: the last two that were written are of others. */
const struct journal_place *journal_place_of(const struct journal_job *job, uint32_t generation);
void journal_end_operation(struct journal_job *job, const struct journal_ended *ended);
/* The latest in that generation; all 0: the journal has none. */
struct journal_ended journal_ended_of(const struct journal_job *job, uint32_t generation);
