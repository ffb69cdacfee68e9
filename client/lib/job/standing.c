/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a membership, and which of them may follow which. */
#include "client/lib/job/standing.h"

#include <stdio.h>

#define BIT(state) (1u << STANDING_##state)

static const unsigned standing_next[] = {
        [STANDING_OUTSIDE] = BIT(SETTLED),
        [STANDING_SETTLED] = BIT(SETTLED) | BIT(CHANGING) | BIT(LOSING) | BIT(OVER),
        [STANDING_CHANGING] = BIT(SETTLED) | BIT(CHANGING) | BIT(LOSING) | BIT(OVER),
        [STANDING_LOSING] = BIT(OVER),
        [STANDING_OVER] = 0,
};

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text) {
        loss->rank = rank;
        loss->pid = pid;
        snprintf(loss->text, sizeof(loss->text), "%s", text ? text : "no reason given");
}

bool standing_set_state(struct standing *standing, enum standing_state state, uint32_t rank, int32_t pid,
                        const char *text) {
        if ((standing_next[standing->state] >> state & 1) == 0)
                return false;
        if (standing->state != STANDING_LOSING)
                loss_set(&standing->loss, rank, pid, text);
        standing->state = state;
        return true;
}

bool standing_is_over(const struct standing *standing) {
        return standing->state >= STANDING_LOSING;
}

static void standing_store(uint32_t *field, uint32_t value) {
        __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

void standing_set_generation(struct standing *standing, uint32_t generation) {
        standing_store(&standing->generation, generation);
}

void standing_set_place(struct standing *standing, uint32_t rank, uint32_t local_rank, uint32_t world) {
        standing_store(&standing->rank, rank);
        standing_store(&standing->local_rank, local_rank);
        standing_store(&standing->world, world);
}

bool standing_is_behind(const struct standing *standing) {
        return standing->newcomer > standing->synchronised;
}
