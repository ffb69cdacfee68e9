/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of records of different sizes, each in one piece. */
#include "rendezvous/effects.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum record_kind { RECORD_MESSAGE, RECORD_ACTION };

struct record {
        _Alignas(max_align_t) size_t bytes; /* with this header */
        void *owner;
        enum record_kind kind;
};

int effects_init(struct effects *effects, size_t size) {
        *effects = (struct effects){ .size = size, .wrap = SIZE_MAX, .room = malloc(size) };
        return effects->room != NULL ? 0 : -ENOMEM;
}

void effects_deinit(struct effects *effects) {
        free(effects->room);
        effects->room = NULL;
}

/* Where the next record of that size begins; SIZE_MAX: nowhere. `end` never meets `begin` from below: equal
 * means empty. */
static size_t effects_place(struct effects *effects, size_t bytes) {
        if (effects->wrap != SIZE_MAX)
                return effects->begin - effects->end > bytes ? effects->end : SIZE_MAX;
        if (effects->size - effects->end >= bytes)
                return effects->end;
        if (effects->begin <= bytes)
                return SIZE_MAX;
        effects->wrap = effects->end;
        return 0;
}

static void *effects_append(const struct outlet *out, enum record_kind kind, size_t payload) {
        const size_t align = _Alignof(struct record),
                     bytes = (sizeof(struct record) + payload + align - 1) / align * align;
        struct effects *effects = out->effects;
        size_t place = effects_place(effects, bytes);
        struct record *record;

        assert(place != SIZE_MAX); /* the driver does not take out what it causes, and nothing may get lost */
        record = (struct record *)(void *)(effects->room + place);
        *record = (struct record){ .bytes = bytes, .owner = out->owner, .kind = kind };
        effects->end = place + bytes;
        return record + 1;
}

void effects_send(const struct outlet *out, const struct message *message) {
        message_copy(effects_append(out, RECORD_MESSAGE, message_bytes(message)), message);
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

/* Gives back the room of the record that was taken last. */
static void effects_release(struct effects *effects) {
        effects->begin += effects->taken;
        effects->taken = 0;
        if (effects->begin == effects->wrap) {
                effects->begin = 0;
                effects->wrap = SIZE_MAX;
        }
        if (effects->begin == effects->end && effects->wrap == SIZE_MAX)
                effects->begin = effects->end = 0;
}

static bool effects_take(struct effects *effects, struct effect *ret) {
        const struct record *record;

        effects_release(effects);
        if (effects->begin == effects->end && effects->wrap == SIZE_MAX)
                return false;
        record = (const struct record *)(const void *)(effects->room + effects->begin);
        effects->taken = record->bytes;
        *ret = (struct effect){ .owner = record->owner };
        if (record->kind == RECORD_MESSAGE)
                ret->message = (const struct message *)(const void *)(record + 1);
        else
                ret->action = (const struct action *)(const void *)(record + 1);
        return true;
}

void effects_drain(struct effects *effects, void (*carry_out)(const struct effect *effect)) {
        struct effect effect;

        if (effects->draining)
                return;
        effects->draining = true;
        while (effects_take(effects, &effect))
                carry_out(&effect);
        effects->draining = false;
}
