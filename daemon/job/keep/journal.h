/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that outlives the daemon, so that the next one goes on where this one was. A job has a slot: its
 * members here with their secrets, the generation, and the tracks of its plans. Each plan has a slot: the
 * steps that were committed, a mark for each bucket of the latest step before the first and after the last
 * write to it, and the results.
 *
 * Everything is written before members hear of it. The file is mapped, so a store to it survives the process,
 * but not the machine. The next daemon goes on with the same file. It believes nothing in it that it has not
 * checked. A job that finds no room ends with its daemon.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "proto/frame.h"
#include "rendezvous/machine/message.h"
#include "rendezvous/machine/trace.h"

struct journal;
struct journal_plan; /* the slot of a plan, and of a job */
struct journal_job;

struct journal_key {
        uid_t uid;
        const char *job;
        uint64_t incarnation;
        struct sha256 token; /* digest, see token.h */
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
/* The slot that the plan has, or that a former daemon has left of it. NULL: there is none. */
struct journal_plan *journal_find(struct journal *journal, const struct journal_key *key);
/* Whether the slot is one of a plan of that shape. */
bool journal_fits(const struct journal_plan *plan, const struct journal_key *key, uint32_t most_local);
/* The slot of a new plan, in place of that of a former one. NULL if there is no room, or no journal; then, as
 * for all of these, nothing is kept of the plan. */
struct journal_plan *journal_add(struct journal *journal, const struct journal_key *key, uint32_t most_local);
/* It belongs to this daemon now. */
void journal_take(struct journal *journal, struct journal_plan *plan);
void journal_drop(struct journal *journal, struct journal_plan *plan);
/* The bucket of the step is about to be written to. The first one drops what the journal has of the step
 * before. */
void journal_begin(struct journal_plan *plan, uint64_t step, uint32_t n_local, uint32_t bucket);
/* `first`: parameters in the buckets before it. */
void journal_done(struct journal_plan *plan, uint32_t bucket, uint32_t first,
                  const struct backend_result *result, const uint8_t *unused, size_t unused_bytes);
/* The step is void, if any bucket of it was begun. */
void journal_void(struct journal_plan *plan, uint64_t step);
/* So many steps are committed. */
void journal_commit(struct journal_plan *plan, uint64_t committed);

struct trace journal_trace(const struct journal_plan *plan);
/* A bucket of a step that is done. *ret and *ret_unused (NULL, or a map of the bucket's parameters) are valid
 * until the next step is begun. */
void journal_result(const struct journal_plan *plan, uint32_t bucket, uint32_t first,
                    struct backend_result *ret, const uint8_t **ret_unused);

#define JOURNAL_NO_PLAN UINT32_MAX

struct journal_track {
        uint32_t plan, track; /* JOURNAL_NO_PLAN: the plan of that track has been freed */
        uint64_t before;      /* units of the track that were committed before the plan's first step */
};

enum journal_flags {
        JOURNAL_HAS_RANK = 1, /* of a member: it had asked for its rank, */
        JOURNAL_HAS_SLOT = 2, /* or for its slot; */
        JOURNAL_LACKS = 4,    /* it has yet to take the source's state */
        JOURNAL_LEFT = 8,     /* it has left, */
        JOURNAL_LOST = 16,    /* or is lost; its process cannot come back */
};

struct journal_member {
        uint64_t id;          /* of its place */
        struct sha256 secret; /* only the member itself knows it; all 0 once the member is gone */
        uint32_t rank, slot, flags;
        uint32_t min_world, max_world;
        int32_t pid;
        uint64_t grace, identity, instance; /* see struct membership_request */
};

static inline bool journal_member_is_gone(const struct journal_member *member) {
        return (member->flags & (JOURNAL_LEFT | JOURNAL_LOST)) != 0;
}

/* Operations of the job that have ended. */
struct journal_ended {
        uint64_t number;   /* that ended well, over all generations */
        uint64_t sequence; /* in this generation */
        uint32_t failed;   /* the last one of these failed */
};

/* The job's part on this daemon in one generation. */
struct journal_generation {
        struct generation number;
        uint32_t world;     /* its members on all daemons */
        uint32_t ended;     /* its members may know of a loss, or that something is void */
        uint32_t since;     /* the generation after which nothing was void */
        uint32_t unsynced;  /* its members were to take the source's state, and nothing was committed since */
        uint64_t steps;     /* of all tracks, that were committed when this was written */
        struct tag history; /* the largest one then */
        uint64_t set[NODESET_WORDS];     /* its nodes */
        struct journal_ended operations; /* when it began */
        uint32_t n_members, n_tracks;
        struct journal_track track[LIMIT_PLANS];
        struct journal_member member[]; /* on this daemon, by rank */
};

/* With so many members. */
static inline size_t journal_generation_bytes(uint32_t members) {
        return sizeof(struct journal_generation) + members * sizeof(struct journal_member);
}

struct journal_about {
        uint64_t incarnation;
        struct sha256 token; /* digest, see token.h */
        bool cluster;
};

/* Bytes that a job takes whose world has at most so many members. */
uint64_t journal_job_bytes(uint32_t most);
/* A slot for a new job, in place of that of a former job of that name, incarnation and token. NULL as for
 * plans. */
struct journal_job *journal_add_job(struct journal *journal, uid_t uid, const char *name,
                                    const struct journal_about *about, uint32_t most);
/* It belongs to this daemon now. */
void journal_take_job(struct journal *journal, struct journal_job *job);
void journal_drop_job(struct journal *journal, struct journal_job *job);
/* The job whose latest generation has the member with that secret, whichever daemon has written it, and the
 * member's index there. NULL: there is none. */
struct journal_job *journal_find_member(struct journal *journal, uid_t uid, const char *name,
                                        const struct sha256 *secret, uint32_t *ret);
struct journal_about journal_about(const struct journal_job *job);
/* The memory for the next generation, all 0, which counts from journal_enter() on. The one that counts until
 * then stays as it is, also after that. */
struct journal_generation *journal_begin_generation(struct journal_job *job);
void journal_enter(struct journal_job *job, struct generation number);
/* NULL: there is none, or no job. */
const struct journal_generation *journal_latest(const struct journal_job *job);
/* NULL: the plan has no track. */
const struct journal_track *journal_track_of(const struct journal_generation *generation, uint32_t plan);
/* In the latest generation. */
void journal_end_operation(struct journal_job *job, const struct journal_ended *ended);
struct journal_ended journal_ended_of(const struct journal_job *job);
