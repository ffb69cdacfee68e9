/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What node and coordinator want done: messages to send and actions to carry out, in the order in which they
 * arose. A machine only appends. The driver of machines takes the effects out after each call and does them;
 * what that leads to may call the machines again, which append after what is left.
 *
 * One queue can serve many machines: each effect names the owner of the machine that it comes from. The room
 * is allocated once; a queue that is emptied after each call never needs more than what one call appends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/message.h"

/* Enough for what one call into a machine of a full world appends, several times over. Pages that are not
 * used cost nothing. */
#define EFFECTS_ROOM (size_t)(8u << 20)

struct effects {
        unsigned char *room;
        size_t size, begin,
                end;  /* bytes; the records lie from `begin` on, and in `room` again after `wrap` */
        size_t wrap;  /* where the upper part ends; SIZE_MAX: there is one part */
        size_t taken; /* bytes of the record that was taken last */
        bool draining;
};

/* Where a machine's effects go, and the owner that they name. */
struct outlet {
        struct effects *effects;
        void *owner;
};

struct effect {
        void *owner;
        const struct message *message; /* one of both; the other one is NULL */
        const struct action *action;
};

/* 0 or -ENOMEM. */
int effects_init(struct effects *effects, size_t size);
void effects_deinit(struct effects *effects);

/* For machines: both copy what they are given. */
void effects_send(const struct outlet *out, const struct message *message);
void effects_act(const struct outlet *out, const struct action *action);

/* For drivers, after each call into a machine: does everything that is there, oldest first, and what comes of
 * it. A call from inside `carry_out` returns at once; what the machine has appended meanwhile is done by the
 * outer call. What an effect points to is valid as long as it is carried out. */
void effects_drain(struct effects *effects, void (*carry_out)(const struct effect *effect));
