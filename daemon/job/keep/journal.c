/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header, then slots of different sizes, one after the other. The file grows with them; the mapping has
 * its largest size from the start, so that slots stay where they are. A slot is used again by a plan that
 * fits; the last ones are given back.
 *
 * A daemon may be killed between any two stores. A job's slot has two copies of all that is more than one
 * number, so that one is written while the other one counts.
 */
#include "job/keep/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/proc.h"
#include "proto/frame.h"

#define MAGIC UINT64_C(0x6c616e72756f4a47) /* "GJournal" */
#define VERSION 2u
#define MOST (UINT64_C(64) << 20) /* bytes */
#define SHARE (MOST / 4)          /* of one uid */
#define PAGE 4096u
#define MOST_GENERATIONS (UINT32_C(1) << 31) /* so that those that follow can still be counted */

enum mark { MARK_NONE, MARK_BEGUN, MARK_DONE };

struct header {
        uint64_t magic;
        uint32_t version, size; /* of the structs: HEADS */
        char boot[PROC_BOOT];   /* of the machine: its processes are gone after the next one */
        uint64_t run;           /* how many daemons have had the file */
        uint64_t end;           /* of the last slot */
};

enum kind { KIND_FREE, KIND_PLAN, KIND_JOB };

struct journal_slot {
        uint64_t bytes; /* of all of it */
        uint64_t run;   /* of the last daemon that had it */
        uint32_t kind;  /* enum kind */
        uint32_t uid;
        uint64_t incarnation;
        struct sha256 token; /* jobs of one name may have different ones */
        char job[(LIMIT_NAME + 8) / 8 * 8];
};

struct journal_plan { /* marks, numbers and maps follow */
        struct journal_slot slot;
        uint64_t committed; /* steps */
        uint64_t step;      /* that marks, numbers and maps are about; 0: none */
        uint32_t n_local;   /* members here in that step */
        uint32_t plan, n_params, n_buckets, most_local, unused;
};

struct journal_job { /* two generations follow */
        struct journal_slot slot;
        uint32_t cluster;
        uint32_t most;    /* members that a generation has room for */
        uint32_t current; /* the generation, */
        uint32_t latest;  /* and the copy of `ended`, that count */
        struct {
                uint32_t generation;
                struct journal_ended operations;
        } ended[2];
};

struct journal {
        int fd;
        uint8_t *map;
};

static uint64_t round_up(uint64_t bytes) {
        return (bytes + 7) / 8 * 8;
}

/* Per bucket: the sum of squares of the result, those of the inputs, their counts, and whether it has a map.
 */
static uint64_t row_bytes(uint32_t most_local) {
        return sizeof(double) + most_local * (sizeof(double) + sizeof(uint64_t)) + sizeof(uint64_t);
}

/* A bucket's map begins at a byte of its own, so there is one more for each. */
static uint64_t size_of(uint32_t n_params, uint32_t n_buckets, uint32_t most_local) {
        return round_up(sizeof(struct journal_plan)) + round_up(n_buckets) +
               n_buckets * row_bytes(most_local) + round_up(n_params / 8 + 2 * (uint64_t)n_buckets);
}

static uint8_t *marks_of(const struct journal_plan *plan) {
        return (uint8_t *)(uintptr_t)plan + round_up(sizeof(*plan));
}

static uint8_t *row_of(const struct journal_plan *plan, uint32_t bucket) {
        return marks_of(plan) + round_up(plan->n_buckets) + bucket * row_bytes(plan->most_local);
}

static uint8_t *map_of(const struct journal_plan *plan, uint32_t bucket, uint32_t first) {
        return row_of(plan, plan->n_buckets) + first / 8 + bucket;
}

static uint64_t job_bytes(uint32_t most) {
        return round_up(sizeof(struct journal_job) + 2 * journal_generation_bytes(most));
}

static struct journal_generation *generation_of(const struct journal_job *job, uint32_t copy) {
        return (struct journal_generation *)((uintptr_t)(job + 1) +
                                             copy * journal_generation_bytes(job->most));
}

static struct header *header_of(const struct journal *journal) {
        return (struct header *)(void *)journal->map;
}

static struct journal_slot *slot_of(const struct journal *journal, uint64_t at) {
        return (struct journal_slot *)(void *)(journal->map + at);
}

/* Where the slot ends, and the next one begins. NULL: before the first one. */
static uint64_t slot_after(const struct journal *journal, const struct journal_slot *slot) {
        return slot != NULL ? (uint64_t)((const uint8_t *)slot - journal->map) + slot->bytes
                            : sizeof(struct header);
}

/* The first slot for NULL; NULL after the last one, or without a journal. */
static struct journal_slot *slot_next(const struct journal *journal, const struct journal_slot *slot) {
        if (journal == NULL || slot_after(journal, slot) >= header_of(journal)->end)
                return NULL;
        return slot_of(journal, slot_after(journal, slot));
}

/* ---- the file ---- */

/* One that another user has made, or may write to, is not believed. */
static int journal_open_file(const char *path, int *ret, char *error, size_t size) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        _cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat info;

        if (fd < 0 || fstat(fd, &info) < 0)
                return error_say(-errno, error, size, "%s cannot be opened", path);
        if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
                snprintf(error, size,
                         "%s is not a file of this user's own that no other one can use: remove it", path);
                return -EPERM;
        }
        if (fcntl(fd, F_SETLK, &lock) < 0)
                return errno == EAGAIN || errno == EACCES
                               ? error_say(-EBUSY, error, size, "%s cannot be used: another gradsyncd has it",
                                           path)
                               : error_say(-errno, error, size, "%s cannot be locked", path);
        *ret = fd;
        fd = -1;
        return 0;
}

/* Memory for all of it: a store must not find the disk full. */
static int journal_grow(struct journal *journal, uint64_t bytes) {
        struct stat info;

        if (fstat(journal->fd, &info) < 0)
                return -errno;
        bytes = (bytes + PAGE - 1) / PAGE * PAGE;
        if ((uint64_t)info.st_size >= bytes)
                return 0;
        return -posix_fallocate(journal->fd, info.st_size, (off_t)(bytes - (uint64_t)info.st_size));
}

static bool journal_plan_is_whole(const struct journal_plan *plan) {
        return plan->slot.bytes >= sizeof(*plan) && plan->n_buckets <= LIMIT_BUCKETS && plan->n_buckets > 0 &&
               plan->n_params <= LIMIT_PARAMS && plan->most_local <= LIMIT_LOCAL &&
               plan->n_local <= plan->most_local && plan->committed < LIMIT_NUMBER &&
               plan->step <= plan->committed + 1 &&
               size_of(plan->n_params, plan->n_buckets, plan->most_local) <= plan->slot.bytes;
}

static bool journal_member_is_whole(const struct journal_member *member, uint32_t world) {
        return member->rank < world && member->min_world >= 1 && member->min_world <= member->max_world &&
               member->max_world <= LIMIT_WORLD && member->slot < member->max_world && member->id != 0;
}

static bool journal_generation_is_whole(const struct journal_job *job, uint32_t copy) {
        const struct journal_generation *generation = generation_of(job, copy);

        if (generation->n_members > job->most || generation->n_tracks > LIMIT_PLANS ||
            generation->world > LIMIT_WORLD || generation->number.number > MOST_GENERATIONS ||
            (generation->n_members > 0 && generation->n_members > generation->member[0].max_world) ||
            generation->steps >= LIMIT_NUMBER || *(const uint8_t *)&generation->history.checkpoint > 1)
                return false;
        for (uint32_t i = 0; i < generation->n_members; i++)
                if (!journal_member_is_whole(&generation->member[i], generation->world) ||
                    generation->member[i].max_world != generation->member[0].max_world ||
                    (i > 0 && generation->member[i].rank <= generation->member[i - 1].rank))
                        return false;
        for (uint32_t i = 0; i < generation->n_tracks; i++)
                if (generation->track[i].track != TRACK_STEP + i ||
                    generation->track[i].before >= LIMIT_NUMBER)
                        return false;
        return true;
}

/* A generation that is not whole is dropped: the daemon may have been killed while it wrote that one. */
static bool journal_check_job(struct journal_job *job) {
        if (job->slot.bytes < sizeof(*job) || job->current >= 2 || job->latest >= 2 || job->cluster > 1 ||
            job->most > LIMIT_LOCAL || job->slot.bytes < job_bytes(job->most))
                return false;
        for (uint32_t copy = 0; copy < 2; copy++)
                if (!journal_generation_is_whole(job, copy))
                        generation_of(job, copy)->number.number = 0;
        if (generation_of(job, job->current)->number.number == 0)
                job->current = 1 - job->current;
        return true;
}

static bool journal_check_slot(struct journal_slot *slot) {
        if (memchr(slot->job, '\0', sizeof(slot->job)) == NULL)
                return false;
        if (slot->kind == KIND_PLAN)
                return journal_plan_is_whole((struct journal_plan *)(void *)slot);
        return slot->kind == KIND_JOB && journal_check_job((struct journal_job *)(void *)slot);
}

/* Slots end where one does not lie within the file; a slot that is not whole is free. */
static void journal_check_slots(struct journal *journal, uint64_t bytes) {
        struct header *header = header_of(journal);
        struct journal_slot *slot;
        uint64_t at;

        for (at = sizeof(*header); at < header->end; at += slot->bytes) {
                slot = slot_of(journal, at);
                if (header->end > bytes || header->end - at < sizeof(*slot) || slot->bytes < sizeof(*slot) ||
                    slot->bytes % 8 != 0 || slot->bytes > header->end - at)
                        break;
                if (!journal_check_slot(slot))
                        slot->kind = KIND_FREE;
        }
        header->end = at;
}

#define HEADS                                                                                                \
        (sizeof(struct journal_plan) + sizeof(struct journal_job) + sizeof(struct journal_generation) +      \
         sizeof(struct journal_member))

/* Whether the file has the slots of a former daemon. If so, they are looked at. */
static bool journal_accept(struct journal *journal, uint64_t bytes, const char *boot) {
        struct header *header = header_of(journal);

        if (bytes < PAGE || bytes > MOST || header->magic != MAGIC || header->version != VERSION ||
            header->size != HEADS || memcmp(header->boot, boot, sizeof(header->boot)) != 0)
                return false;
        journal_check_slots(journal, bytes);
        return true;
}

/* Makes it empty. The magic number comes last: until then it counts as no journal. */
static int journal_clear(struct journal *journal, const char *boot) {
        struct header *header = header_of(journal);
        int r = ftruncate(journal->fd, 0) < 0 ? -errno : journal_grow(journal, PAGE);

        if (r < 0)
                return r;
        *header = (struct header){ .version = VERSION, .size = HEADS, .end = sizeof(struct header) };
        memcpy(header->boot, boot, sizeof(header->boot));
        __atomic_store_n(&header->magic, MAGIC, __ATOMIC_RELEASE);
        return 0;
}

static int journal_map(struct journal *journal) {
        void *map = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, journal->fd, 0);

        if (map == MAP_FAILED)
                return -errno;
        journal->map = map;
        return 0;
}

int journal_open(const char *path, struct journal **ret, char *error, size_t size) {
        struct journal *journal = calloc(1, sizeof(*journal));
        bool dropped = false;
        struct stat info;
        char boot[PROC_BOOT];

        if (journal == NULL)
                return error_say(-ENOMEM, error, size, "%s cannot be opened", path);
        journal->fd = -1;
        proc_boot(boot);
        int r = journal_open_file(path, &journal->fd, error, size);
        if (r < 0) {
                journal_close(journal);
                return r;
        }
        r = journal_map(journal);
        if (r == 0 && fstat(journal->fd, &info) < 0)
                r = -errno;
        if (r == 0 && !journal_accept(journal, (uint64_t)info.st_size, boot)) {
                dropped = info.st_size > 0;
                r = journal_clear(journal, boot);
        }
        if (r < 0) {
                journal_close(journal);
                return error_say(r, error, size, "%s cannot be used", path);
        }
        header_of(journal)->run++;
        *ret = journal;
        if (dropped)
                snprintf(error, size,
                         "the content of %s is of another version or of another start of the "
                         "machine, or damaged: it is ignored",
                         path);
        return dropped;
}

struct journal *journal_close(struct journal *journal) {
        if (journal == NULL)
                return NULL;
        if (journal->map != NULL)
                munmap(journal->map, MOST);
        fd_close(journal->fd);
        free(journal);
        return NULL;
}

/* ---- slots ---- */

uint64_t journal_bytes(const struct journal_key *key, uint32_t most_local) {
        return size_of(key->params, key->buckets, most_local);
}

static bool slot_is_of(const struct journal_slot *slot, enum kind kind, const struct journal_key *key) {
        return slot->kind == kind && slot->uid == key->uid && slot->incarnation == key->incarnation &&
               sha256_equal(&slot->token, &key->token) && strcmp(slot->job, key->job) == 0;
}

struct journal_plan *journal_find(struct journal *journal, const struct journal_key *key) {
        for (struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;) {
                struct journal_plan *plan = (struct journal_plan *)(void *)slot;

                if (slot_is_of(slot, KIND_PLAN, key) && plan->plan == key->plan)
                        return plan;
        }
        return NULL;
}

bool journal_fits(const struct journal_plan *plan, const struct journal_key *key, uint32_t most_local) {
        return plan->n_buckets == key->buckets && plan->n_params == key->params &&
               plan->most_local == most_local;
}

/* One uid has at most a share of the journal. */
static bool slot_is_granted(const struct journal *journal, uint64_t bytes, uid_t uid) {
        uint64_t used = 0;

        for (const struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                used += slot->kind != KIND_FREE && slot->uid == uid ? slot->bytes : 0;
        return bytes <= SHARE && used <= SHARE - bytes;
}

/* A slot that is free and large enough, but not much too large; else one at the end. */
static struct journal_slot *find_slot(struct journal *journal, uint64_t bytes) {
        uint64_t at = header_of(journal)->end;
        struct journal_slot *slot = NULL;

        while ((slot = slot_next(journal, slot)) != NULL)
                if (slot->kind == KIND_FREE && slot->bytes >= bytes && slot->bytes <= 2 * bytes)
                        return slot;
        if (bytes > MOST || at > MOST - bytes || journal_grow(journal, at + bytes) < 0)
                return NULL;
        slot = slot_of(journal, at);
        memset(slot, 0, sizeof(*slot));
        slot->bytes = bytes;
        __atomic_store_n(&header_of(journal)->end, at + bytes, __ATOMIC_RELEASE);
        return slot;
}

/* Gives a free slot to the job. Its kind, which makes it count, is still to be set. */
static void *slot_take(struct journal *journal, uint64_t bytes, const struct journal_key *key) {
        struct journal_slot *slot =
                slot_is_granted(journal, bytes, key->uid) ? find_slot(journal, bytes) : NULL;

        if (slot == NULL)
                return NULL;
        memset((uint8_t *)slot + sizeof(slot->bytes), 0, bytes - sizeof(slot->bytes));
        slot->run = header_of(journal)->run;
        slot->uid = key->uid;
        slot->incarnation = key->incarnation;
        slot->token = key->token;
        memcpy(slot->job, key->job, strlen(key->job) + 1);
        return slot;
}

static void slot_set_kind(struct journal_slot *slot, enum kind kind) {
        __atomic_store_n(&slot->kind, kind, __ATOMIC_RELEASE);
}

/* Free slots at the end are cut off; the file stays as large as it has been. */
static void cut(struct journal *journal) {
        const struct journal_slot *last = NULL;

        for (const struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot->kind != KIND_FREE)
                        last = slot;
        header_of(journal)->end = slot_after(journal, last);
}

static void slot_drop(struct journal *journal, struct journal_slot *slot) {
        slot_set_kind(slot, KIND_FREE);
        cut(journal);
}

struct journal_plan *journal_add(struct journal *journal, const struct journal_key *key,
                                 uint32_t most_local) {
        journal_drop(journal, journal_find(journal, key));
        struct journal_plan *plan =
                journal != NULL ? slot_take(journal, journal_bytes(key, most_local), key) : NULL;
        if (plan == NULL)
                return NULL;
        plan->plan = key->plan;
        plan->n_params = key->params;
        plan->n_buckets = key->buckets;
        plan->most_local = most_local;
        slot_set_kind(&plan->slot, KIND_PLAN);
        return plan;
}

void journal_take(struct journal *journal, struct journal_plan *plan) {
        plan->slot.run = header_of(journal)->run;
}

void journal_drop(struct journal *journal, struct journal_plan *plan) {
        if (journal != NULL && plan != NULL)
                slot_drop(journal, &plan->slot);
}

void journal_sweep(struct journal *journal) {
        if (journal == NULL)
                return;
        for (struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot->run != header_of(journal)->run)
                        slot->kind = KIND_FREE;
        cut(journal);
}

/* ---- jobs ---- */

uint64_t journal_job_bytes(uint32_t most) {
        return job_bytes(most < LIMIT_LOCAL ? most : LIMIT_LOCAL);
}

/* The slot that the job has, or has left. */
static struct journal_job *journal_find_job(struct journal *journal, const struct journal_key *key) {
        for (struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot_is_of(slot, KIND_JOB, key))
                        return (struct journal_job *)(void *)slot;
        return NULL;
}

struct journal_job *journal_add_job(struct journal *journal, uid_t uid, const char *name,
                                    const struct journal_about *about, uint32_t most) {
        const struct journal_key key = {
                .uid = uid, .job = name, .incarnation = about->incarnation, .token = about->token
        };

        most = most < LIMIT_LOCAL ? most : LIMIT_LOCAL;
        journal_drop_job(journal, journal_find_job(journal, &key));
        struct journal_job *job = journal != NULL ? slot_take(journal, job_bytes(most), &key) : NULL;
        if (job == NULL)
                return NULL;
        job->cluster = about->cluster;
        job->most = most;
        slot_set_kind(&job->slot, KIND_JOB);
        return job;
}

void journal_take_job(struct journal *journal, struct journal_job *job) {
        job->slot.run = header_of(journal)->run;
}

void journal_drop_job(struct journal *journal, struct journal_job *job) {
        if (journal != NULL && job != NULL)
                slot_drop(journal, &job->slot);
}

struct journal_about journal_about(const struct journal_job *job) {
        return (struct journal_about){ .incarnation = job->slot.incarnation,
                                       .token = job->slot.token,
                                       .cluster = job->cluster != 0 };
}

struct journal_generation *journal_begin_generation(struct journal_job *job) {
        struct journal_generation *next = generation_of(job, 1 - job->current);

        __atomic_store_n(&next->number.number, 0, __ATOMIC_RELEASE); /* until all of it is there */
        memset(next, 0, journal_generation_bytes(job->most));
        return next;
}

void journal_enter(struct journal_job *job, struct generation number) {
        struct journal_generation *next = generation_of(job, 1 - job->current);

        next->number.term = number.term;
        next->number.nonce = number.nonce;
        __atomic_store_n(&next->number.number, number.number, __ATOMIC_RELEASE);
        __atomic_store_n(&job->current, 1 - job->current, __ATOMIC_RELEASE);
}

const struct journal_generation *journal_latest(const struct journal_job *job) {
        const struct journal_generation *generation = job != NULL ? generation_of(job, job->current) : NULL;

        return generation != NULL && generation->number.number > 0 ? generation : NULL;
}

struct journal_job *journal_find_member(struct journal *journal, uid_t uid, const char *name,
                                        const struct sha256 *secret, uint32_t *ret) {
        if (sha256_is_none(secret))
                return NULL;
        for (struct journal_slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;) {
                struct journal_job *job = (struct journal_job *)(void *)slot;

                if (slot->kind != KIND_JOB || slot->uid != uid || strcmp(slot->job, name) != 0)
                        continue;
                const struct journal_generation *generation = journal_latest(job);
                for (*ret = 0; generation != NULL && *ret < generation->n_members; ++*ret)
                        if (sha256_equal(&generation->member[*ret].secret, secret))
                                return job;
        }
        return NULL;
}

const struct journal_track *journal_track_of(const struct journal_generation *generation, uint32_t plan) {
        for (uint32_t i = 0; i < generation->n_tracks; i++)
                if (generation->track[i].plan == plan)
                        return &generation->track[i];
        return NULL;
}

void journal_end_operation(struct journal_job *job, const struct journal_ended *ended) {
        const struct journal_generation *now = journal_latest(job);

        if (now == NULL)
                return;
        uint32_t next = 1 - job->latest;
        job->ended[next].generation = now->number.number;
        job->ended[next].operations = *ended;
        __atomic_store_n(&job->latest, next, __ATOMIC_RELEASE);
}

struct journal_ended journal_ended_of(const struct journal_job *job) {
        const struct journal_generation *now = journal_latest(job);

        if (now == NULL)
                return (struct journal_ended){ 0 };
        return job->ended[job->latest].generation == now->number.number ? job->ended[job->latest].operations
                                                                        : now->operations;
}

/* ---- plans ---- */

void journal_begin(struct journal_plan *plan, uint64_t step, uint32_t n_local, uint32_t bucket) {
        if (plan == NULL)
                return;
        if (plan->step != step) {
                __atomic_store_n(&plan->step, 0, __ATOMIC_RELEASE);
                memset(marks_of(plan), MARK_NONE, plan->n_buckets);
                plan->n_local = n_local;
                __atomic_store_n(&plan->step, step, __ATOMIC_RELEASE);
        }
        __atomic_store_n(&marks_of(plan)[bucket], MARK_BEGUN, __ATOMIC_RELEASE);
}

void journal_void(struct journal_plan *plan, uint64_t step) {
        if (plan != NULL && plan->step == step)
                __atomic_store_n(&plan->step, 0, __ATOMIC_RELEASE);
}

void journal_commit(struct journal_plan *plan, uint64_t committed) {
        if (plan != NULL)
                __atomic_store_n(&plan->committed, committed, __ATOMIC_RELEASE);
}

void journal_done(struct journal_plan *plan, uint32_t bucket, uint32_t first,
                  const struct backend_result *result, const uint8_t *unused, size_t unused_bytes) {
        uint64_t has_map = unused != NULL;

        if (plan == NULL)
                return;
        uint8_t *row = row_of(plan, bucket);
        memcpy(row, &result->sum_squares, sizeof(double));
        row += sizeof(double);
        memcpy(row, result->input_sum_squares, result->n_inputs * sizeof(double));
        row += plan->most_local * sizeof(double);
        memcpy(row, result->input_nonfinite, result->n_inputs * sizeof(uint64_t));
        row += plan->most_local * sizeof(uint64_t);
        memcpy(row, &has_map, sizeof(has_map));
        if (unused != NULL)
                memcpy(map_of(plan, bucket, first), unused, unused_bytes);
        __atomic_store_n(&marks_of(plan)[bucket], MARK_DONE, __ATOMIC_RELEASE);
}

struct trace journal_trace(const struct journal_plan *plan) {
        struct trace trace = { 0 };
        uint32_t done = 0;

        if (plan == NULL)
                return trace;
        trace.committed = plan->committed;
        trace.step = plan->step;
        for (uint32_t b = 0; b < plan->n_buckets; b++)
                done += marks_of(plan)[b] == MARK_DONE;
        trace.done = trace.step > 0 && done == plan->n_buckets;
        return trace;
}

void journal_result(const struct journal_plan *plan, uint32_t bucket, uint32_t first,
                    struct backend_result *ret, const uint8_t **ret_unused) {
        const uint8_t *row = row_of(plan, bucket);
        const uint8_t *counts = row + sizeof(double) + plan->most_local * sizeof(double);
        uint64_t has_map;

        *ret = (struct backend_result){
                .n_inputs = plan->n_local,
                .input_sum_squares = (const double *)(const void *)(row + sizeof(double)),
                .input_nonfinite = (const uint64_t *)(const void *)counts,
        };
        memcpy(&ret->sum_squares, row, sizeof(double));
        memcpy(&has_map, counts + plan->most_local * sizeof(uint64_t), sizeof(has_map));
        *ret_unused = has_map ? map_of(plan, bucket, first) : NULL;
}
