/* SPDX-License-Identifier: Apache-2.0 */
/* struct step: the open step of a plan. Its number grows by one with each commit; a void step begins anew
 * with the same number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/standing.h"
#include "proto/codec.h"

struct gradsync_plan;

enum mark { MARK_NONE = 0, MARK_READY, MARK_ABSENT };

struct step {
        uint64_t number;
        /* Grows each time that a step begins, also if it begins again with the same number. */
        uint64_t attempt;
        /* A Wire__Outcome. */
        unsigned outcome;
        /* The generation in which the step was, if the outcome is COMMITTED. */
        uint32_t generation;
        /* The reason, if the outcome is VOID. */
        struct loss loss;
        /* Enum mark, per parameter. */
        uint8_t *mark;
        /* Per bucket: parameters that are neither ready nor absent. */
        uint32_t *missing;
        /* Per bucket: parameters that are absent. */
        uint32_t *absent;
        /* Per bucket: its result is here. */
        uint8_t *done;
        /* Some parameter was marked: the step is open. */
        bool touched;
        /* Parameters that are ready or absent. */
        uint32_t marked;
        /* 0: the world size. */
        uint32_t divisor;
        /* Time spent in finish and wait. */
        uint64_t blocked_ns;
};

int step_init(struct gradsync_plan *plan);
void step_deinit(struct gradsync_plan *plan);
void step_begin(struct gradsync_plan *plan, uint64_t number);
int step_message(struct gradsync_plan *plan, const Wire__Step *message);
void step_void(struct gradsync_plan *plan, uint32_t rank, int32_t pid, const char *text);
/* The job is in a new generation: a step of the old one is void, and the next finish() says so. */
void step_regenerate(struct gradsync_plan *plan);
/* The job goes on after a restart of the daemon: all READYs are sent again. */
void step_resume(struct gradsync_plan *plan);
/* After a restart of the daemon: the others have committed this step, and this member has not got its
 * results. */
void step_skip(struct gradsync_plan *plan, uint64_t number);
/* The step was committed, but the state that all members have now counts as one without it: the step is void
 * here. */
void step_forget(struct gradsync_plan *plan);
/* Number of the step that follows the open one. */
uint64_t step_next(const struct gradsync_plan *plan, bool committed);
