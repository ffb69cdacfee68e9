/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naming the member that brought a value that is not finite, and the parameter. The counts of a reduction
 * give the rank; the inputs are gone by then, but a NaN or an infinity shows in the result, so the bucket's
 * parameters are looked through, by the backend, before the members get them back. That is done, and logged,
 * once per burst: it begins with such a step and ends after NONFINITE_QUIET committed steps in a row without
 * one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "proto/frame.h"

#define NONFINITE_QUIET 100u

struct plan;

struct nonfinite { /* embedded in a job */
        bool burst;
        uint32_t quiet; /* committed steps since the last one of the burst */
        /* How the latest burst began. */
        uint64_t step; /* 0: there has been none */
        uint32_t plan, bucket, rank;
        uint32_t ranks;                 /* that brought some into this bucket; `rank` is the lowest */
        pid_t pid;                      /* 0: it is on another node */
        uint64_t count;                 /* values of that rank in the bucket */
        char parameter[LIMIT_NAME + 1]; /* "": not found, as with a maximum of -inf */
        /* The search. */
        const struct plan *searched;  /* NULL: none goes on */
        uint32_t param;               /* of the bucket; those before it do not come into question */
        uint64_t end;                 /* of the one before it: bytes from the start of the bucket */
        struct backend_result result; /* of the reduction, for when the search has ended */
        double sums[LIMIT_LOCAL];     /* by local index */
        uint64_t counts[LIMIT_LOCAL];
};

/* Values of a bucket's inputs that are not finite, on all nodes as far as that is known. */
struct nonfinite_count {
        uint64_t values, first; /* `first` of them are of `rank`, */
        uint32_t rank;          /* the lowest one that brought some */
        uint32_t ranks;         /* that brought some */
};
struct nonfinite_count nonfinite_count(const struct plan *plan, uint32_t bucket,
                                       const struct backend_result *result);

/*
 * A result of the backend for a bucket: of its reduction, or of a part of the search. NULL: a search goes on,
 * of which more results will come. Else the result of the reduction, which the members may hear now.
 */
const struct backend_result *nonfinite_look(struct plan *plan, uint32_t bucket,
                                            const struct backend_result *result);
/* Whether the next result for the bucket is one of the search. */
bool nonfinite_searches(const struct plan *plan, uint32_t bucket);
/* The open step has been committed, or is void. */
void nonfinite_committed(struct plan *plan);
void nonfinite_void(struct plan *plan);
