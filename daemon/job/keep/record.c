/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of steps, the totals, and the records of jobs that have ended. The hot path is a few writes. */
#include "job/keep/record.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

const uint32_t record_class_us[RECORD_CLASSES] = { 10,     25,     50,      100,     250,   500,
                                                   1000,   2500,   5000,    10000,   25000, 50000,
                                                   100000, 250000, 1000000, 10000000 };

/* Fresh pages come from the kernel as the ring fills: a job of few steps costs little. */
int record_new(struct users *accounts, uid_t uid, const char *name, struct record **ret,
               struct refusal *refusal) {
        struct record *record =
                mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (record == MAP_FAILED)
                return -ENOMEM;
        int r = charge_take(&record->charge, accounts, uid, ACCOUNT_OWN, sizeof(*record), refusal);
        if (r != 0) {
                munmap(record, sizeof(*record));
                return r;
        }
        list_init(&record->link);
        record->uid = uid;
        snprintf(record->name, sizeof(record->name), "%s", name);
        *ret = record;
        return 0;
}

struct record *record_free(struct record *record) {
        if (record == NULL)
                return NULL;
        list_remove(&record->link);
        charge_release(&record->charge);
        munmap(record, sizeof(*record));
        return NULL;
}

void records_init(struct records *records) {
        list_init(&records->list);
}

void records_deinit(struct records *records) {
        struct record *record, *spare;

        list_for_each_safe(record, spare, &records->list, link)
                record_free(record);
}

static unsigned held_by(const struct records *records, uid_t uid) {
        const struct record *record;
        unsigned n = 0;

        list_for_each(record, &records->list, link)
                n += record->uid == uid;
        return n;
}

/* The oldest record of the uid that has most: a uid with many short jobs pushes out its own. */
static struct record *to_push_out(const struct records *records) {
        struct record *record, *found = NULL;

        list_for_each(record, &records->list, link)
                if (found == NULL || held_by(records, record->uid) > held_by(records, found->uid))
                        found = record;
        return found;
}

void records_keep(struct records *records, struct record *record) {
        if (record == NULL)
                return;
        record->ended = true;
        charge_release(&record->charge);
        list_append(&records->list, &record->link);
        if (list_length(&records->list) > RECORD_ENDED)
                record_free(to_push_out(records));
}

static struct record_step *step_at(const struct record *record, uint32_t index) {
        return (struct record_step *)(void *)(record->ring +
                                              record->at[(record->first + index) % RECORD_STEPS]);
}

static void push_out_oldest(struct record *record) {
        struct record_step *oldest = step_at(record, 0);

        if (oldest->holder != NULL)
                *oldest->holder = NULL;
        record->first = (record->first + 1) % RECORD_STEPS;
        record->n--;
}

/* Room after the youngest step, or at the start of the ring if there is not enough. The oldest steps are
 * pushed out. */
static uint32_t make_room(struct record *record, uint32_t size) {
        uint32_t start = record->end;

        if (start + size > RECORD_BYTES) {
                while (record->n > 0 && record->at[record->first] >= start)
                        push_out_oldest(record);
                start = 0;
        }
        while (record->n > 0 && record->at[record->first] >= start &&
               record->at[record->first] < start + size)
                push_out_oldest(record);
        if (record->n == RECORD_STEPS)
                push_out_oldest(record);
        return start;
}

static uint32_t bucket_bytes(uint32_t n_local) {
        return (uint32_t)sizeof(struct record_bucket) + 2 * n_local * (uint32_t)sizeof(uint32_t);
}

/* The header, and the ranks of those that are not the whole world. */
static uint32_t head_bytes(const struct record_step *what) {
        uint32_t ranks = what->n_local < what->world ? what->n_local : 0;

        return (uint32_t)(sizeof(*what) + ranks * sizeof(uint32_t));
}

void record_open(struct record *record, struct record_step **holder, const struct record_step *what) {
        uint32_t fit = (RECORD_STEP_BYTES - head_bytes(what)) / bucket_bytes(what->n_local);
        uint32_t kept = what->buckets < fit ? what->buckets : fit;
        uint32_t size = (head_bytes(what) + kept * bucket_bytes(what->n_local) + 7) / 8 * 8;
        uint32_t at = make_room(record, size);
        struct record_step *step = (struct record_step *)(void *)(record->ring + at);

        memset(step, 0, size);
        *step = *what;
        step->holder = holder;
        step->sequence = ++record->sequence;
        step->size = size;
        step->kept = kept;
        record->at[(record->first + record->n++) % RECORD_STEPS] = at;
        record->end = at + size;
        *holder = step;
}

static uint32_t since(const struct record_step *step, uint64_t now) {
        uint64_t us = now - step->opened;

        return us < UINT32_MAX - 1 ? (uint32_t)us + 1 : UINT32_MAX;
}

static struct record_bucket *buckets_of(const struct record_step *step) {
        return (struct record_bucket *)(void *)(uintptr_t)(step + 1);
}

static uint32_t *ready_of(const struct record_step *step, uint32_t bucket) {
        return (uint32_t *)(void *)(buckets_of(step) + step->kept) + (size_t)bucket * step->n_local;
}

static uint32_t *nonfinite_of(const struct record_step *step, uint32_t bucket) {
        return ready_of(step, step->kept) + (size_t)bucket * step->n_local;
}

static bool is_kept(const struct record_step *step, uint32_t bucket) {
        return step != NULL && bucket < step->kept;
}

/* After the counts of the last bucket. */
static uint32_t *ranks_of(const struct record_step *step) {
        return nonfinite_of(step, step->kept);
}

void record_name(struct record_step *step, uint32_t local, uint32_t rank) {
        if (step->n_local < step->world)
                ranks_of(step)[local] = rank;
}

uint32_t record_rank(const struct record_step *step, uint32_t local) {
        return step->n_local < step->world ? ranks_of(step)[local] : local;
}

void record_ready(struct record_step *step, uint32_t bucket, uint32_t local, uint64_t now) {
        if (is_kept(step, bucket))
                ready_of(step, bucket)[local] = since(step, now);
}

/* All members are ready: how long each has waited, and how late each came, is known now. */
void record_start(struct record *record, struct record_step *step, uint32_t bucket, uint64_t now) {
        uint32_t start, first;

        if (!is_kept(step, bucket))
                return;
        const uint32_t *ready = ready_of(step, bucket);
        first = start = buckets_of(step)[bucket].start = since(step, now);
        for (uint32_t local = 0; local < step->n_local; local++)
                first = ready[local] < first ? ready[local] : first;
        for (uint32_t local = 0; local < step->n_local; local++) {
                record->totals.late_us[local] += ready[local] - first;
                record->totals.wait_us += start - ready[local];
        }
}

void record_end(struct record *record, struct record_step *step, uint32_t bucket, uint64_t now,
                uint64_t start, const struct backend_result *result) {
        uint64_t us = now - start;
        unsigned class = 0;

        while (class < RECORD_CLASSES && us > record_class_us[class])
                class ++;
        record->totals.class[class]++;
        record->totals.reduce_us += us;
        if (!is_kept(step, bucket))
                return;
        buckets_of(step)[bucket].end = since(step, now);
        buckets_of(step)[bucket].sum_squares = result->sum_squares;
        uint32_t *counts = nonfinite_of(step, bucket);
        for (unsigned i = 0; i < result->n_inputs && i < step->n_local; i++)
                counts[i] = result->input_nonfinite[i] < UINT32_MAX ? (uint32_t)result->input_nonfinite[i]
                                                                    : UINT32_MAX;
}

void record_close(struct record *record, struct record_step *step, bool committed, uint64_t opened,
                  uint64_t now) {
        if (committed) {
                record->totals.committed++;
                record->totals.step_us += now - opened;
        }
        if (step == NULL)
                return;
        step->ended = now;
        step->committed = committed;
        *step->holder = NULL;
        step->holder = NULL;
}

const struct record_step *record_next(const struct record *record, uint64_t after) {
        uint64_t oldest = record->sequence - record->n + 1;
        uint64_t wanted = after + 1 > oldest ? after + 1 : oldest;

        return wanted <= record->sequence && after < record->sequence
                       ? step_at(record, (uint32_t)(wanted - oldest))
                       : NULL;
}

const struct record_bucket *record_bucket(const struct record_step *step, uint32_t bucket) {
        assert(bucket < step->kept);
        return &buckets_of(step)[bucket];
}

const uint32_t *record_ready_times(const struct record_step *step, uint32_t bucket) {
        assert(bucket < step->kept);
        return ready_of(step, bucket);
}

const uint32_t *record_nonfinite(const struct record_step *step, uint32_t bucket) {
        assert(bucket < step->kept);
        return nonfinite_of(step, bucket);
}
