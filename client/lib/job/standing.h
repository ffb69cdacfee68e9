/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct standing: where a membership stands. It goes from generation to generation: a loss ends one, and
 * what follows is the next one or the end of the job. All else that depends on the generation is compared
 * with the numbers that are kept here, so nothing has to be reset when it changes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/frame.h"

enum standing_state {
        /* Not a member yet. */
        STANDING_OUTSIDE,
        /* A member of a generation that goes on. */
        STANDING_SETTLED,
        /* The generation is at its end: NEWGEN or LOST comes next. */
        STANDING_CHANGING,
        /* A step is void by a loss that ends the job. Outcomes of other steps may come, and then LOST. */
        STANDING_LOSING,
        /* LOST has come, or the daemon does not take this member back. No outcome comes any more. */
        STANDING_OVER,
};

/* Of a member: why a step is void, a generation at its end, or a job over. */
struct loss {
        /* enum Cause, where the job is over; else 0. */
        uint32_t cause;
        uint32_t rank;
        int32_t pid;
        char text[LIMIT_TEXT + 1];
};

/* Of a member's state: the generation in which it was made, and how many commits it has seen since.
 * Generation 0: there is none. */
struct tag {
        uint64_t generation, commits;
};

/* What a member says of its state beside the tag. */
/* Some member of the job has had a state. */
#define STANDING_HISTORY 1u
/* This one is in part another member's. */
#define STANDING_TORN 2u

struct standing {
        enum standing_state state;
        /* Why it is CHANGING, LOSING or OVER, or why this generation has followed another one. */
        struct loss loss;
        /* These four are read without the lock. */
        uint32_t generation, rank, local_rank, world;
        /* Numbers of generations: the newest one that the caller knows of; the newest one that was entered
         * without anything being void; the newest one in which a member without a state came; the one of
         * the last synchronisation. */
        uint32_t told, resumed, newcomer, synchronised;
        struct tag tag;
        /* STANDING_HISTORY and STANDING_TORN */
        unsigned claims;
};

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text);
/* What follows the text where the job is over: "", if the text is about the job as a whole. */
const char *loss_verdict(const struct loss *loss);

/* The only way into another state, with its reason. False if it cannot follow: nothing changes then. The
 * reason why a job is over is the first one. */
bool standing_set_state(struct standing *standing, enum standing_state state, uint32_t rank, int32_t pid,
                        const char *text);
/* The job is over, or will be. */
bool standing_is_over(const struct standing *standing);
/* A generation, and the place in it. */
void standing_enter(struct standing *standing, uint32_t generation, uint32_t rank, uint32_t local_rank,
                    uint32_t world);
/* Some member has no state, or an older one. */
bool standing_is_behind(const struct standing *standing);
