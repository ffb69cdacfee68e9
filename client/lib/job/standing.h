/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct standing: the state of a membership. It goes from generation to generation: a loss ends one, and the
 * next one or the end of the job follows. Everything else that depends on the generation is compared with the
 * numbers that are kept here, so nothing has to be reset when it changes.
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
        /* LOST has come, or the daemon does not take this member back. No outcome comes any more. */
        STANDING_OVER,
};

/* The reason why a step is void, a generation at its end, or a job over, and the member that was lost. */
struct loss {
        /* enum Cause, where the job is over; else 0. */
        uint32_t cause;
        uint32_t rank;
        int32_t pid;
        char text[LIMIT_TEXT + 1];
};

/* The age of a member's state: the generation in which it was made, and the number of commits that it has
 * seen since. Generation 0: the member has no state. */
struct tag {
        uint64_t generation, commits;
};

/* Claims that a member makes about its state, beside the tag. */
/* Some member of the job has had a state. */
#define STANDING_HISTORY 1u
/* This member's state is in part another member's. */
#define STANDING_TORN 2u

struct standing {
        enum standing_state state;
        /* Why it is CHANGING or OVER, or why this generation has followed another one. */
        struct loss loss;
        /* These four are read without the lock. */
        uint32_t generation, rank, local_rank, world;
        /* Numbers of generations: the newest one that the caller knows of; the newest one that was entered
         * without anything being void; the newest one in which a member without a state came; the one of
         * the last synchronisation. */
        uint32_t told, newcomer, synchronised;
        struct tag tag;
        /* STANDING_HISTORY and STANDING_TORN */
        unsigned claims;
};

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text);
/* Returns the words that follow the text if the job is over: "" if the text is about the job as a whole. */
const char *loss_verdict(const struct loss *loss);

/* Changes the state, with a reason; no other function does. False if the state cannot follow: nothing changes
 * then. A job that is over, or will be, keeps its first reason. */
bool standing_set_state(struct standing *standing, enum standing_state state, uint32_t rank, int32_t pid,
                        const char *text);
/* Whether the job is over. */
bool standing_is_over(const struct standing *standing);
/* Sets the generation, and the member's place in it. */
void standing_enter(struct standing *standing, uint32_t generation, uint32_t rank, uint32_t local_rank,
                    uint32_t world);
/* Whether some member has no state, or an older one. */
bool standing_is_behind(const struct standing *standing);
