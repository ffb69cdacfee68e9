/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fact in processes of its own, for a limited time. There is always an answer, and no process stays.
 */
#pragma once

#include "actor.h"

enum { STEP_DETAIL = BOARD_DETAIL + 1024 };

struct step_result {
        char answer[BOARD_ANSWER]; /* what the fact answered, or error, hang or crash */
        char detail[STEP_DETAIL];
        double ms;
};

/* Prepares the calling process for steps: orphans of a fact become its children. Call once. */
void step_init(void);

/* Runs a fact for at most `seconds`. `flags` are those of actor_start(). */
void step_run(struct actor *actor, actor_run *run, unsigned flags, double seconds,
              struct step_result *result);
