/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of a plan, as far as one of its entries: enough to say how two plans differ, wherever they are.
 * Entries are the parameters in the order of registration, and after them the buckets in the order of launch.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct plan_facts {
        uint64_t prefix; /* digest of the entries before `index` */
        uint32_t index;
        uint32_t n_params, n_buckets;
        uint32_t reduce;
        bool voids;  /* a loss ends it */
        bool placed; /* some bucket lies in registered memory */
        /* The entry: */
        char name[LIMIT_NAME + 1]; /* parameter; "": it is a bucket, or there is no such entry */
        uint32_t dtype, dims, bucket;
        uint64_t shape[LIMIT_DIMS];
        uint64_t bytes; /* of a bucket */
        /* The member that has brought the plan: */
        uint32_t rank;
        int32_t pid;
};

static inline uint32_t facts_entries(const struct plan_facts *facts) {
        return facts->n_params + facts->n_buckets;
}
/* All entries before `index` are the same, and the plans are not: how b differs from a, in `text`; the names
 * ("rank 0 (pid 7)") are those of the members that have brought them. Returns the name of the parameter that
 * differs, or NULL: that of one of the two. */
const char *facts_differ(const struct plan_facts *a, const char *name_a, const struct plan_facts *b,
                         const char *name_b, char *text, size_t size);
/* False if a name, a number of dimensions or a type is one that no plan has. */
bool facts_valid(const struct plan_facts *facts);
