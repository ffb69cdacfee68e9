/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fact in processes of its own, for a limited time. There is always an answer, and no process stays.
 */
#pragma once

#include "board.h"
#include "options.h"

enum { STEP_DETAIL = BOARD_DETAIL + 1024 };

struct step_result {
        char answer[BOARD_ANSWER]; /* what the fact answered, or error, hang or crash */
        char detail[STEP_DETAIL];
        double ms;
};

/* Prepares the calling process for steps: orphans of a fact become its children. Call once. */
void step_init(void);

/* Runs the role `name` for at most `seconds`. */
void step_run(const struct options *options, const char *name, bool hardened, double seconds,
              struct step_result *result);

/* Starts a role that stays until the end of the probe. Returns its pid or a negative errno. */
pid_t step_start(const struct options *options, const char *name);
