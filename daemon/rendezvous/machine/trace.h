/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one plan, as the journal of a former run of the daemon has them. The daemon writes a commit
 * before any member hears of it, and the first mark before anything is written to a member's memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/machine/planted.h"

struct trace {
        uint64_t committed; /* steps */
        uint64_t step;      /* of which a bucket was begun last, and that is not void; 0: none */
        bool done;          /* all of its buckets are, and the node was prepared */
};

/* The next step was begun: some member's memory may have been written to. */
static inline bool trace_is_open(const struct trace *trace) {
        return !planted(PLANTED_ASSUMES_UNTOUCHED) && trace->step > trace->committed;
}

/* All results of the next step are in the members' memory. */
static inline bool trace_is_prepared(const struct trace *trace) {
        return trace->step > trace->committed && (trace->done || planted(PLANTED_PREPARES_BY_MARK));
}

/* The results of the last committed step are still in the journal: a member that has not heard of them gets
 * them. If they are not, a later step was begun, for which all members had to hear of them. */
static inline bool trace_has_results(const struct trace *trace) {
        return trace->step == trace->committed && trace->done;
}
