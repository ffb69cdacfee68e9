/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header, then slots of different sizes, one after the other. The file grows with them; the mapping has
 * its largest size from the start, so that slots stay where they are. A slot is used again by a plan that
 * fits; the last ones are given back.
 */
#include "job/keep/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "proto/frame.h"

#define MAGIC UINT64_C(0x31657461745347) /* "GState1" */
#define VERSION 1u
#define MOST (UINT64_C(64) << 20) /* bytes */
#define PAGE 4096u

enum mark { MARK_NONE, MARK_BEGUN, MARK_DONE };

struct header {
        uint64_t magic;
        uint32_t version, size; /* of the header of a slot */
        uint64_t end;           /* of the last slot */
};

struct state_plan {     /* the header of a slot; marks, numbers and maps follow */
        uint64_t bytes; /* of the slot */
        uint64_t step;  /* the last one that was opened; 0: none, or it is void */
        uint64_t incarnation;
        uint32_t used, uid, plan;
        uint32_t n_params, n_buckets, most_local;
        uint32_t generation, n_local; /* members here; 0: in none yet */
        uint32_t check;               /* over what is between `used` and here, and the name */
        char job[LIMIT_NAME + 1];
};

struct state {
        int fd;
        uint8_t *map;
};

struct past {
        const uint8_t *map;
        uint64_t bytes, end;
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
        return round_up(sizeof(struct state_plan)) + round_up(n_buckets) + n_buckets * row_bytes(most_local) +
               round_up(n_params / 8 + 2 * (uint64_t)n_buckets);
}

static uint8_t *marks_of(const struct state_plan *plan) {
        return (uint8_t *)(uintptr_t)plan + round_up(sizeof(*plan));
}

static uint8_t *row_of(const struct state_plan *plan, uint32_t bucket) {
        return marks_of(plan) + round_up(plan->n_buckets) + bucket * row_bytes(plan->most_local);
}

static uint8_t *map_of(const struct state_plan *plan, uint32_t bucket, uint32_t first) {
        return row_of(plan, plan->n_buckets) + first / 8 + bucket;
}

/* FNV-1a. */
static uint32_t check_of(const struct state_plan *plan) {
        const uint32_t numbers[] = { plan->used,
                                     plan->uid,
                                     plan->plan,
                                     plan->n_params,
                                     plan->n_buckets,
                                     plan->most_local,
                                     plan->generation,
                                     plan->n_local,
                                     (uint32_t)plan->incarnation,
                                     (uint32_t)(plan->incarnation >> 32),
                                     (uint32_t)plan->bytes };
        const uint8_t *bytes = (const uint8_t *)numbers;
        uint32_t hash = 2166136261u;

        for (size_t i = 0; i < sizeof(numbers); i++)
                hash = (hash ^ bytes[i]) * 16777619u;
        for (size_t i = 0; i < sizeof(plan->job); i++)
                hash = (hash ^ (uint8_t)plan->job[i]) * 16777619u;
        return hash;
}

static struct header *header_of(const struct state *state) {
        return (struct header *)(void *)state->map;
}

int state_new(struct state **ret) {
        struct state *state = calloc(1, sizeof(*state));

        if (state == NULL)
                return -ENOMEM;
        state->fd = memfd_create("gradsync-state", MFD_CLOEXEC);
        if (state->fd < 0 || ftruncate(state->fd, PAGE) < 0) {
                int r = -errno;

                state_free(state);
                return r;
        }
        void *map = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, state->fd, 0);
        if (map == MAP_FAILED) {
                state_free(state);
                return -ENOMEM;
        }
        state->map = map;
        *header_of(state) = (struct header){ .magic = MAGIC,
                                             .version = VERSION,
                                             .size = sizeof(struct state_plan),
                                             .end = sizeof(struct header) };
        *ret = state;
        return 0;
}

struct state *state_free(struct state *state) {
        if (state == NULL)
                return NULL;
        if (state->map != NULL)
                munmap(state->map, MOST);
        fd_close(state->fd);
        free(state);
        return NULL;
}

int state_fd(const struct state *state) {
        return state->fd;
}

uint64_t state_bytes(const struct state_key *key, uint32_t most_local) {
        return size_of(key->params, key->buckets, most_local);
}

/* A slot that is free and large enough, but not much too large; else one at the end. */
static struct state_plan *find_slot(struct state *state, uint64_t bytes) {
        struct header *header = header_of(state);
        struct state_plan *slot;
        uint64_t at, file;

        for (at = sizeof(*header); at < header->end; at += slot->bytes) {
                slot = (struct state_plan *)(void *)(state->map + at);
                if (!slot->used && slot->bytes >= bytes && slot->bytes <= 2 * bytes)
                        return slot;
        }
        if (bytes > MOST || at > MOST - bytes)
                return NULL;
        file = (at + bytes + PAGE - 1) / PAGE * PAGE;
        if (ftruncate(state->fd, (off_t)file) < 0)
                return NULL;
        slot = (struct state_plan *)(void *)(state->map + at);
        memset(slot, 0, sizeof(*slot));
        slot->bytes = bytes;
        header->end = at + bytes;
        return slot;
}

struct state_plan *state_add(struct state *state, const struct state_key *key, uint32_t most_local) {
        uint64_t bytes = state_bytes(key, most_local);
        struct state_plan *plan = state != NULL ? find_slot(state, bytes) : NULL;

        if (plan == NULL)
                return NULL;
        *plan = (struct state_plan){
                .bytes = plan->bytes,
                .incarnation = key->incarnation,
                .used = 1,
                .uid = key->uid,
                .plan = key->plan,
                .n_params = key->params,
                .n_buckets = key->buckets,
                .most_local = most_local,
        };
        memcpy(plan->job, key->job, strlen(key->job) + 1);
        plan->check = check_of(plan);
        return plan;
}

/* Slots at the end that nobody uses are cut off; the file stays as large as it has been. */
static void cut(struct state *state) {
        struct header *header = header_of(state);
        const struct state_plan *slot;
        uint64_t used = sizeof(*header);

        for (uint64_t at = sizeof(*header); at < header->end; at += slot->bytes) {
                slot = (const struct state_plan *)(const void *)(state->map + at);
                if (slot->used)
                        used = at + slot->bytes;
        }
        header->end = used;
}

void state_drop(struct state *state, struct state_plan *plan) {
        if (plan == NULL)
                return;
        plan->used = 0;
        cut(state);
}

void state_generation(struct state_plan *plan, uint32_t generation, uint32_t n_local) {
        if (plan == NULL)
                return;
        plan->check = 0; /* not to be believed meanwhile */
        plan->step = 0;
        plan->generation = generation;
        plan->n_local = n_local;
        __atomic_store_n(&plan->check, check_of(plan), __ATOMIC_RELEASE);
}

void state_open(struct state_plan *plan, uint64_t step) {
        if (plan == NULL)
                return;
        __atomic_store_n(&plan->step, 0, __ATOMIC_RELEASE);
        memset(marks_of(plan), MARK_NONE, plan->n_buckets);
        __atomic_store_n(&plan->step, step, __ATOMIC_RELEASE);
}

void state_begin(struct state_plan *plan, uint32_t bucket) {
        if (plan != NULL)
                __atomic_store_n(&marks_of(plan)[bucket], MARK_BEGUN, __ATOMIC_RELEASE);
}

void state_done(struct state_plan *plan, uint32_t bucket, uint32_t first, const struct backend_result *result,
                const uint8_t *unused, size_t unused_bytes) {
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

int past_new(int fd, struct past **ret) {
        struct header header;
        struct stat info;

        if (fstat(fd, &info) < 0 || pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
                return -EPROTO;
        if (header.magic != MAGIC || header.version != VERSION || header.size != sizeof(struct state_plan) ||
            header.end > (uint64_t)info.st_size || (uint64_t)info.st_size > MOST)
                return -EPROTO;
        struct past *past = calloc(1, sizeof(*past));
        if (past == NULL)
                return -ENOMEM;
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
                free(past);
                return -ENOMEM;
        }
        *past = (struct past){ .map = map, .bytes = (uint64_t)info.st_size, .end = header.end };
        *ret = past;
        return 0;
}

struct past *past_free(struct past *past) {
        if (past == NULL)
                return NULL;
        munmap((void *)(uintptr_t)past->map, past->bytes);
        free(past);
        return NULL;
}

/* The slot at this place, if all of it lies in the file and its head is whole. */
static const struct state_plan *slot_at(const struct past *past, uint64_t at) {
        const struct state_plan *slot = (const struct state_plan *)(const void *)(past->map + at);

        if (at % 8 != 0 || past->end - at < sizeof(*slot) || slot->bytes < sizeof(*slot) ||
            slot->bytes > past->end - at)
                return NULL;
        return slot;
}

static bool is_whole(const struct state_plan *slot) {
        return slot->used == 1 && slot->check == check_of(slot) && slot->n_buckets <= LIMIT_BUCKETS &&
               slot->n_params <= LIMIT_PARAMS && slot->most_local <= LIMIT_LOCAL &&
               slot->n_local <= slot->most_local &&
               size_of(slot->n_params, slot->n_buckets, slot->most_local) <= slot->bytes;
}

static bool is_about(const struct state_plan *slot, const struct state_key *key) {
        return slot->uid == key->uid && slot->incarnation == key->incarnation && slot->plan == key->plan &&
               slot->n_buckets == key->buckets && slot->n_params == key->params &&
               strncmp(slot->job, key->job, sizeof(slot->job)) == 0;
}

const struct state_plan *past_find(const struct past *past, const struct state_key *key, uint32_t generation,
                                   uint32_t n_local) {
        const struct state_plan *slot;

        if (past == NULL)
                return NULL;
        for (uint64_t at = sizeof(struct header); at < past->end; at += slot->bytes) {
                slot = slot_at(past, at);
                if (slot == NULL)
                        return NULL;
                if (is_whole(slot) && is_about(slot, key) && slot->generation == generation &&
                    slot->n_local == n_local)
                        return slot;
        }
        return NULL;
}

struct trace past_trace(const struct state_plan *plan) {
        struct trace trace = { 0 };
        uint32_t done = 0;

        if (plan == NULL)
                return trace;
        trace.known = true;
        trace.step = plan->step;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                trace.begun |= marks_of(plan)[b] != MARK_NONE;
                done += marks_of(plan)[b] == MARK_DONE;
        }
        trace.done = done == plan->n_buckets;
        return trace;
}

void past_result(const struct state_plan *plan, uint32_t bucket, uint32_t first, struct backend_result *ret,
                 const uint8_t **ret_unused) {
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
