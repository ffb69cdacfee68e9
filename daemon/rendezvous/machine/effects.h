/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Effects of nodes and coordinators: messages to send and actions to carry out, in the order in which they
 * arose. A machine only appends. The driver of machines takes the effects out after each call and does them;
 * that may call the machines again, which append after the effects that are left.
 *
 * One queue can serve many machines: each effect names the owner of the machine that it comes from. There is
 * room from the beginning for the effects of one call, and more is allocated if a call appends more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/machine/message.h"

/* Enough for the effects of one call into a machine of a full world, several times over. Pages that are not
 * used cost nothing. */
#define EFFECTS_ROOM (size_t)(8u << 20)

struct chunk;

struct effects {                    /* zero-initialised: nothing is in it, and nothing can be appended */
        struct chunk *first, *last; /* records lie in these, in their order */
        struct chunk *spare;        /* NULL: there is none */
        size_t size;                /* bytes of a chunk */
        size_t begin, taken; /* of the first one: where the next record is, and bytes of the last taken */
        bool draining;
};

/* Where a machine's effects go, and the owner that they name. */
struct outlet {
        struct effects *effects;
        void *owner;
};

struct effect {
        void *owner;
        const struct order *order; /* one of these; the others are NULL */
        const struct report *report;
        const struct action *action;
};

/* 0 or -ENOMEM. */
int effects_init(struct effects *effects, size_t size);
void effects_deinit(struct effects *effects);

/* For machines: they copy what they are given. Nothing may be lost, so the process ends if there is no memory
 * beyond the room that is there from the beginning. */
void effects_order(const struct outlet *out, const struct order *order);
void effects_report(const struct outlet *out, const struct report *report);
void effects_act(const struct outlet *out, const struct action *action);

/* For drivers: whether there may be an effect; at little cost, since a driver asks after each call. */
bool effects_any(const struct effects *effects);
/* For drivers: takes the oldest effect. False if there is none. Its pointers are valid until the next
 * call. */
bool effects_next(struct effects *effects, struct effect *ret);
/* Drops the effects of an owner that is about to be freed. */
void effects_forget(struct effects *effects, const void *owner);

/* For drivers, after each call into a machine: does everything that is there, oldest first, and the effects
 * that follow. A call from inside `carry_out` returns at once; the outer call does the effects that were
 * appended meanwhile. Pointers of an effect are valid while it is carried out. */
void effects_drain(struct effects *effects, void (*carry_out)(const struct effect *effect));
