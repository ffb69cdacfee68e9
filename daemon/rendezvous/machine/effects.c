/* SPDX-License-Identifier: Apache-2.0 */
/* Records of different sizes, one after the other in chunks, each in one piece. */
#include "rendezvous/machine/effects.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum record_kind { RECORD_ORDER, RECORD_REPORT, RECORD_ACTION, RECORD_DROPPED };

struct effect_record {
        _Alignas(max_align_t) size_t bytes; /* with this header */
        void *owner;
        enum record_kind kind;
};

struct chunk {
        struct chunk *next;
        size_t size, used; /* bytes */
        _Alignas(max_align_t) unsigned char room[];
};

static struct chunk *chunk_new(size_t size) {
        struct chunk *chunk = malloc(sizeof(*chunk) + size);

        if (chunk != NULL)
                *chunk = (struct chunk){ .size = size };
        return chunk;
}

int effects_init(struct effects *effects, size_t size) {
        struct chunk *chunk = chunk_new(size);

        *effects = (struct effects){ .size = size, .first = chunk, .last = chunk };
        return chunk != NULL ? 0 : -ENOMEM;
}

void effects_deinit(struct effects *effects) {
        struct chunk *chunk;

        while ((chunk = effects->first) != NULL) {
                effects->first = chunk->next;
                free(chunk);
        }
        free(effects->spare);
        *effects = (struct effects){ 0 };
}

/* A chunk with room for so many bytes is the last one then. Records stay where they are: one of them may be
 * being carried out. */
static bool effects_grow(struct effects *effects, size_t bytes) {
        struct chunk *chunk = effects->spare;

        if (chunk != NULL && chunk->size >= bytes) {
                effects->spare = NULL;
                chunk->used = 0;
                chunk->next = NULL;
        } else {
                chunk = chunk_new(bytes > effects->size ? bytes : effects->size);
        }
        if (chunk == NULL)
                return false;
        effects->last = effects->last->next = chunk;
        return true;
}

/* Room for what follows the header. */
static void *effects_append(const struct outlet *out, enum record_kind kind, size_t payload) {
        const size_t align = _Alignof(struct effect_record),
                     bytes = (sizeof(struct effect_record) + payload + align - 1) / align * align;
        struct effects *effects = out->effects;
        struct effect_record *record;

        if (effects->last->size - effects->last->used < bytes && !effects_grow(effects, bytes)) {
                log_error("there is no memory for what a job has to do next: this gradsyncd ends");
                abort();
        }
        record = (struct effect_record *)(void *)(effects->last->room + effects->last->used);
        *record = (struct effect_record){ .bytes = bytes, .owner = out->owner, .kind = kind };
        effects->last->used += bytes;
        return record + 1;
}

void effects_order(const struct outlet *out, const struct order *order) {
        order_copy(effects_append(out, RECORD_ORDER, order_bytes(order)), order);
}

void effects_report(const struct outlet *out, const struct report *report) {
        report_copy(effects_append(out, RECORD_REPORT, report_bytes(report)), report);
}

void effects_act(const struct outlet *out, const struct action *action) {
        size_t set = action->set.words * sizeof(*action->set.word),
               refusal = action->refusal != NULL ? sizeof(*action->refusal) : 0;
        struct action *told = effects_append(out, RECORD_ACTION, sizeof(*action) + set + refusal);

        *told = *action;
        if (set > 0)
                told->set.word = memcpy(told + 1, action->set.word, set);
        if (refusal > 0)
                told->refusal = memcpy((unsigned char *)(told + 1) + set, action->refusal, refusal);
}

static void effects_give_back(struct effects *effects, struct chunk *chunk) {
        if (effects->spare == NULL && chunk->size == effects->size)
                effects->spare = chunk;
        else
                free(chunk);
}

/* Gives back the room of the record that was taken last. */
static void effects_release(struct effects *effects) {
        struct chunk *first = effects->first;

        effects->begin += effects->taken;
        effects->taken = 0;
        if (effects->begin < first->used)
                return;
        effects->begin = 0;
        if (first == effects->last) {
                first->used = 0;
                return;
        }
        effects->first = first->next;
        effects_give_back(effects, first);
}

static struct effect_record *record_at(struct chunk *chunk, size_t at) {
        return (struct effect_record *)(void *)(chunk->room + at);
}

bool effects_any(const struct effects *effects) {
        return effects->first->used > 0 || effects->first != effects->last;
}

bool effects_next(struct effects *effects, struct effect *ret) {
        const struct effect_record *record;

        do {
                effects_release(effects);
                if (effects->begin == effects->first->used)
                        return false;
                record = record_at(effects->first, effects->begin);
                effects->taken = record->bytes;
        } while (record->kind == RECORD_DROPPED);
        *ret = (struct effect){ .owner = record->owner };
        if (record->kind == RECORD_ORDER)
                ret->order = (const struct order *)(const void *)(record + 1);
        else if (record->kind == RECORD_REPORT)
                ret->report = (const struct report *)(const void *)(record + 1);
        else
                ret->action = (const struct action *)(const void *)(record + 1);
        return true;
}

void effects_forget(struct effects *effects, const void *owner) {
        size_t at = effects->begin + effects->taken;

        for (struct chunk *chunk = effects->first; chunk != NULL; chunk = chunk->next, at = 0)
                for (; at < chunk->used; at += record_at(chunk, at)->bytes)
                        if (record_at(chunk, at)->owner == owner)
                                record_at(chunk, at)->kind = RECORD_DROPPED;
}

void effects_drain(struct effects *effects, void (*carry_out)(const struct effect *effect)) {
        struct effect effect;

        if (effects->draining || effects->first == NULL)
                return;
        effects->draining = true;
        while (effects_next(effects, &effect))
                carry_out(&effect);
        effects->draining = false;
}
