/* SPDX-License-Identifier: Apache-2.0 */
/* The memory through which a member's operations outside steps go. It gets it on first use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "job/plan/holding.h"

struct member;

struct staging {               /* of a member; embedded */
        struct holding *arena; /* NULL until asked for */
        uint32_t request;      /* to be answered when the backend is done */
        bool returning;        /* from a former daemon: only a refusal is answered */
};

/* Both are answered through events, now or later. 0; a code with *refusal; or a negative errno. */
int staging_ask(struct member *member, uint32_t request, struct refusal *refusal);
int staging_attach(struct member *member, uint32_t request, struct refusal *refusal);
void staging_deinit(struct staging *staging);
/* The member has it from a former daemon. Fds that are taken over are -1. */
int staging_return(struct member *member, uint64_t bytes, uint32_t request, int *fds, unsigned n_fds,
                   struct refusal *refusal);
static inline bool staging_is_attached(const struct staging *staging) {
        return staging->arena != NULL && staging->arena->state == HOLDING_ATTACHED;
}
