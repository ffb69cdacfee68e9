/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header, then slots of different sizes, one after the other. The file grows with them; the mapping has
 * its largest size from the start, so that slots stay where they are. A slot is used again by a plan that
 * fits; the last ones are given back.
 *
 * A daemon may be killed between any two stores. A slot has two copies of all that is more than one number,
 * so that one is written while the other one counts.
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
#include "base/proc.h"
#include "proto/frame.h"

#define MAGIC UINT64_C(0x6c616e72756f4a47) /* "GJournal" */
#define VERSION 1u
#define MOST (UINT64_C(64) << 20) /* bytes */
#define PAGE 4096u

enum mark { MARK_NONE, MARK_BEGUN, MARK_DONE };

struct header {
        uint64_t magic;
        uint32_t version, size; /* of a plan's slot without its marks, and of a job's */
        char boot[PROC_BOOT];   /* of the machine: its processes are gone after the next one */
        uint64_t run;           /* how many daemons have had the file */
        uint64_t end;           /* of the last slot */
};

enum kind { KIND_FREE, KIND_PLAN, KIND_JOB };

struct slot {
        uint64_t bytes;   /* of all of it */
        uint64_t run;     /* of the last daemon that had it */
        uint32_t kind;    /* enum kind */
        uint32_t current; /* the copy that counts */
        uint64_t incarnation;
        uint32_t uid, unused;
        char job[(LIMIT_NAME + 8) / 8 * 8];
};

/* A plan in one generation. */
struct turn {
        uint64_t step; /* the last one that was opened; 0: none, or it is void */
        uint32_t generation, n_local;
};

struct journal_plan { /* marks, numbers and maps follow */
        struct slot slot;
        struct turn turn[2];
        uint32_t plan, n_params, n_buckets, most_local;
};

struct journal_job {
        struct slot slot;
        struct journal_place place[2];
        struct journal_ended ended[2];
        uint32_t latest; /* the copy of `ended` that counts */
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

static struct header *header_of(const struct journal *journal) {
        return (struct header *)(void *)journal->map;
}

static struct slot *slot_of(const struct journal *journal, uint64_t at) {
        return (struct slot *)(void *)(journal->map + at);
}

/* Where the slot ends, and the next one begins. NULL: before the first one. */
static uint64_t slot_after(const struct journal *journal, const struct slot *slot) {
        return slot != NULL ? (uint64_t)((const uint8_t *)slot - journal->map) + slot->bytes
                            : sizeof(struct header);
}

/* The first slot for NULL; NULL after the last one, or without a journal. */
static struct slot *slot_next(const struct journal *journal, const struct slot *slot) {
        if (journal == NULL || slot_after(journal, slot) >= header_of(journal)->end)
                return NULL;
        return slot_of(journal, slot_after(journal, slot));
}

/* ---- the file ---- */

static int journal_fail(int r, const char *path, const char *what, char *error, size_t size) {
        snprintf(error, size, "%s cannot be %s: %s", path, what, strerror(-r));
        return r;
}

/* One that another user has made, or may write to, is not believed. */
static int journal_open_file(const char *path, int *ret, char *error, size_t size) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        _cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat info;

        if (fd < 0 || fstat(fd, &info) < 0)
                return journal_fail(-errno, path, "opened", error, size);
        if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
                snprintf(error, size,
                         "%s is not a file of this user's own that no other one can use: remove it", path);
                return -EPERM;
        }
        if (fcntl(fd, F_SETLK, &lock) < 0)
                return errno == EAGAIN || errno == EACCES
                               ? journal_fail(-EBUSY, path, "used: another gradsyncd has it", error, size)
                               : journal_fail(-errno, path, "locked", error, size);
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
               plan->turn[plan->slot.current].n_local <= plan->most_local &&
               size_of(plan->n_params, plan->n_buckets, plan->most_local) <= plan->slot.bytes;
}

static bool journal_place_is_whole(const struct journal_place *place) {
        if (place->n_ranks > LIMIT_LOCAL || place->n_tracks > LIMIT_PLANS || place->world > LIMIT_WORLD)
                return false;
        for (uint32_t i = 0; i < place->n_ranks; i++)
                if (place->rank[i] >= place->world || (i > 0 && place->rank[i] <= place->rank[i - 1]))
                        return false;
        for (uint32_t i = 0; i < place->n_tracks; i++)
                if (place->track[i].track != TRACK_STEP + i || place->track[i].before >= LIMIT_NUMBER)
                        return false;
        return true;
}

/* A place that is not whole is dropped: the daemon may have been killed while it wrote that one. */
static bool journal_check_job(struct journal_job *job) {
        if (job->slot.bytes < sizeof(*job) || job->latest >= 2)
                return false;
        for (unsigned i = 0; i < 2; i++)
                if (!journal_place_is_whole(&job->place[i]))
                        job->place[i] = (struct journal_place){ 0 };
        return true;
}

static bool journal_check_slot(struct slot *slot) {
        if (slot->current >= 2 || memchr(slot->job, '\0', sizeof(slot->job)) == NULL)
                return false;
        if (slot->kind == KIND_PLAN)
                return journal_plan_is_whole((struct journal_plan *)(void *)slot);
        return slot->kind == KIND_JOB && journal_check_job((struct journal_job *)(void *)slot);
}

/* Slots end where one does not lie within the file; a slot that is not whole is free. */
static void journal_check_slots(struct journal *journal, uint64_t bytes) {
        struct header *header = header_of(journal);
        struct slot *slot;
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

/* Whether the file has the slots of a former daemon. If so, they are looked at. */
static bool journal_take(struct journal *journal, uint64_t bytes, const char *boot) {
        struct header *header = header_of(journal);

        if (bytes < PAGE || bytes > MOST || header->magic != MAGIC || header->version != VERSION ||
            header->size != sizeof(struct journal_plan) + sizeof(struct journal_job) ||
            memcmp(header->boot, boot, sizeof(header->boot)) != 0)
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
        *header = (struct header){ .version = VERSION,
                                   .size = sizeof(struct journal_plan) + sizeof(struct journal_job),
                                   .end = sizeof(struct header) };
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
                return journal_fail(-ENOMEM, path, "opened", error, size);
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
        if (r == 0 && !journal_take(journal, (uint64_t)info.st_size, boot)) {
                dropped = info.st_size > 0;
                r = journal_clear(journal, boot);
        }
        if (r < 0) {
                journal_close(journal);
                return journal_fail(r, path, "used", error, size);
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

static bool slot_is_of(const struct slot *slot, enum kind kind, uid_t uid, const char *job,
                       uint64_t incarnation) {
        return slot->kind == kind && slot->uid == uid && slot->incarnation == incarnation &&
               strcmp(slot->job, job) == 0;
}

/* The slot that a former daemon has left of the plan; NULL: none of that size. */
static struct journal_plan *journal_find_left(struct journal *journal, const struct journal_key *key,
                                              uint32_t most_local) {
        for (struct slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;) {
                struct journal_plan *plan = (struct journal_plan *)(void *)slot;

                if (slot->run == header_of(journal)->run ||
                    !slot_is_of(slot, KIND_PLAN, key->uid, key->job, key->incarnation) ||
                    plan->plan != key->plan)
                        continue;
                if (plan->n_buckets == key->buckets && plan->n_params == key->params &&
                    plan->most_local == most_local)
                        return plan;
                slot->kind = KIND_FREE; /* the plan has another shape now */
        }
        return NULL;
}

/* A slot that is free and large enough, but not much too large; else one at the end. */
static struct slot *find_slot(struct journal *journal, uint64_t bytes) {
        uint64_t at = header_of(journal)->end;
        struct slot *slot = NULL;

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
static void *slot_take(struct journal *journal, uint64_t bytes, uid_t uid, const char *job,
                       uint64_t incarnation) {
        struct slot *slot = find_slot(journal, bytes);

        if (slot == NULL)
                return NULL;
        memset((uint8_t *)slot + sizeof(slot->bytes), 0, bytes - sizeof(slot->bytes));
        slot->run = header_of(journal)->run;
        slot->uid = uid;
        slot->incarnation = incarnation;
        memcpy(slot->job, job, strlen(job) + 1);
        return slot;
}

static void slot_set_kind(struct slot *slot, enum kind kind) {
        __atomic_store_n(&slot->kind, kind, __ATOMIC_RELEASE);
}

struct journal_plan *journal_add(struct journal *journal, const struct journal_key *key,
                                 uint32_t most_local) {
        uint64_t bytes = journal_bytes(key, most_local);
        struct journal_plan *plan = journal_find_left(journal, key, most_local);

        if (plan != NULL) {
                plan->slot.run = header_of(journal)->run;
                return plan;
        }
        plan = journal != NULL ? slot_take(journal, bytes, key->uid, key->job, key->incarnation) : NULL;
        if (plan == NULL)
                return NULL;
        plan->plan = key->plan;
        plan->n_params = key->params;
        plan->n_buckets = key->buckets;
        plan->most_local = most_local;
        slot_set_kind(&plan->slot, KIND_PLAN);
        return plan;
}

/* Free slots at the end are cut off; the file stays as large as it has been. */
static void cut(struct journal *journal) {
        const struct slot *last = NULL;

        for (const struct slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot->kind != KIND_FREE)
                        last = slot;
        header_of(journal)->end = slot_after(journal, last);
}

static void slot_drop(struct journal *journal, struct slot *slot) {
        slot_set_kind(slot, KIND_FREE);
        cut(journal);
}

void journal_drop(struct journal *journal, struct journal_plan *plan) {
        if (journal != NULL && plan != NULL)
                slot_drop(journal, &plan->slot);
}

void journal_sweep(struct journal *journal) {
        if (journal == NULL)
                return;
        for (struct slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot->run != header_of(journal)->run)
                        slot->kind = KIND_FREE;
        cut(journal);
}

/* ---- jobs ---- */

uint64_t journal_job_bytes(void) {
        return round_up(sizeof(struct journal_job));
}

struct journal_job *journal_find_job(struct journal *journal, uid_t uid, const char *name,
                                     uint64_t incarnation) {
        for (struct slot *slot = NULL; (slot = slot_next(journal, slot)) != NULL;)
                if (slot_is_of(slot, KIND_JOB, uid, name, incarnation))
                        return (struct journal_job *)(void *)slot;
        return NULL;
}

struct journal_job *journal_add_job(struct journal *journal, uid_t uid, const char *name,
                                    uint64_t incarnation) {
        struct journal_job *job = journal_find_job(journal, uid, name, incarnation);

        if (job != NULL) {
                job->slot.run = header_of(journal)->run;
                return job;
        }
        job = journal != NULL ? slot_take(journal, journal_job_bytes(), uid, name, incarnation) : NULL;
        if (job != NULL)
                slot_set_kind(&job->slot, KIND_JOB);
        return job;
}

void journal_drop_job(struct journal *journal, struct journal_job *job) {
        if (journal != NULL && job != NULL)
                slot_drop(journal, &job->slot);
}

void journal_place_job(struct journal_job *job, const struct journal_place *place) {
        if (job == NULL)
                return;
        uint32_t next = 1 - job->slot.current;
        struct journal_place *to = &job->place[next], copy = *place;

        copy.generation.number = 0; /* until all of it is there */
        __atomic_store_n(&to->generation.number, 0, __ATOMIC_RELEASE);
        *to = copy;
        __atomic_store_n(&to->generation.number, place->generation.number, __ATOMIC_RELEASE);
        __atomic_store_n(&job->slot.current, next, __ATOMIC_RELEASE);
}

const struct journal_place *journal_place_of(const struct journal_job *job, uint32_t generation) {
        for (unsigned i = 0; i < 2 && job != NULL; i++) {
                const struct journal_place *place =
                        &job->place[i == 0 ? job->slot.current : 1 - job->slot.current];

                if (generation > 0 && place->generation.number == generation)
                        return place;
        }
        return NULL;
}

void journal_end_operation(struct journal_job *job, const struct journal_ended *ended) {
        if (job == NULL)
                return;
        uint32_t next = 1 - job->latest;

        job->ended[next] = *ended;
        __atomic_store_n(&job->latest, next, __ATOMIC_RELEASE);
}

struct journal_ended journal_ended_of(const struct journal_job *job, uint32_t generation) {
        for (unsigned i = 0; i < 2 && job != NULL; i++) {
                const struct journal_ended *ended = &job->ended[i == 0 ? job->latest : 1 - job->latest];

                if (ended->generation == generation)
                        return *ended;
        }
        return (struct journal_ended){ 0 };
}

/* ---- plans ---- */

void journal_generation(struct journal_plan *plan, uint32_t generation, uint32_t n_local) {
        if (plan == NULL)
                return;
        uint32_t next = 1 - plan->slot.current;

        plan->turn[next] = (struct turn){ .generation = generation, .n_local = n_local };
        __atomic_store_n(&plan->slot.current, next, __ATOMIC_RELEASE);
}

void journal_step(struct journal_plan *plan, uint64_t step) {
        if (plan == NULL)
                return;
        struct turn *turn = &plan->turn[plan->slot.current];

        __atomic_store_n(&turn->step, 0, __ATOMIC_RELEASE);
        memset(marks_of(plan), MARK_NONE, plan->n_buckets);
        __atomic_store_n(&turn->step, step, __ATOMIC_RELEASE);
}

void journal_begin(struct journal_plan *plan, uint32_t bucket) {
        if (plan != NULL)
                __atomic_store_n(&marks_of(plan)[bucket], MARK_BEGUN, __ATOMIC_RELEASE);
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

struct trace journal_trace(const struct journal_plan *plan, uint32_t generation, uint32_t n_local) {
        const struct turn *turn = plan != NULL ? &plan->turn[plan->slot.current] : NULL;
        struct trace trace = { 0 };
        uint32_t done = 0;

        if (turn == NULL || turn->generation != generation || turn->n_local != n_local)
                return trace;
        trace.known = true;
        trace.step = turn->step;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                trace.begun |= marks_of(plan)[b] != MARK_NONE;
                done += marks_of(plan)[b] == MARK_DONE;
        }
        trace.done = done == plan->n_buckets;
        return trace;
}

void journal_result(const struct journal_plan *plan, uint32_t bucket, uint32_t first,
                    struct backend_result *ret, const uint8_t **ret_unused) {
        const uint8_t *row = row_of(plan, bucket);
        const uint8_t *counts = row + sizeof(double) + plan->most_local * sizeof(double);
        uint64_t has_map;

        *ret = (struct backend_result){
                .n_inputs = plan->turn[plan->slot.current].n_local,
                .input_sum_squares = (const double *)(const void *)(row + sizeof(double)),
                .input_nonfinite = (const uint64_t *)(const void *)counts,
        };
        memcpy(&ret->sum_squares, row, sizeof(double));
        memcpy(&has_map, counts + plan->most_local * sizeof(uint64_t), sizeof(has_map));
        *ret_unused = has_map ? map_of(plan, bucket, first) : NULL;
}
