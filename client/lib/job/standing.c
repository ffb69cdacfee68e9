/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a membership, and which of them may follow which. */
#include "client/lib/job/standing.h"

#include <stdio.h>

#define BIT(state) (1u << STANDING_##state)

static const unsigned standing_next[] = {
        [STANDING_OUTSIDE] = BIT(SETTLED),
        [STANDING_SETTLED] = BIT(SETTLED) | BIT(CHANGING) | BIT(OVER),
        [STANDING_CHANGING] = BIT(SETTLED) | BIT(CHANGING) | BIT(OVER),
        [STANDING_OVER] = 0,
};

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text) {
        loss->cause = 0;
        loss->rank = rank;
        loss->pid = pid;
        snprintf(loss->text, sizeof(loss->text), "%s", text ? text : "no reason given");
}

const char *loss_verdict(const struct loss *loss) {
        return loss->pid != 0 ? "; the job is over" : "";
}

bool standing_set_state(struct standing *standing, enum standing_state state, uint32_t rank, int32_t pid,
                        const char *text) {
        if ((standing_next[standing->state] >> state & 1) == 0)
                return false;
        loss_set(&standing->loss, rank, pid, text);
        standing->state = state;
        return true;
}

bool standing_is_over(const struct standing *standing) {
        return standing->state == STANDING_OVER;
}

void standing_enter(struct standing *standing, uint32_t generation, uint32_t rank, uint32_t local_rank,
                    uint32_t world) {
        __atomic_store_n(&standing->generation, generation, __ATOMIC_RELAXED);
        __atomic_store_n(&standing->rank, rank, __ATOMIC_RELAXED);
        __atomic_store_n(&standing->local_rank, local_rank, __ATOMIC_RELAXED);
        __atomic_store_n(&standing->world, world, __ATOMIC_RELAXED);
}

bool standing_is_behind(const struct standing *standing) {
        return standing->newcomer > standing->synchronised;
}
