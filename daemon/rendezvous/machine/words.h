/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the members of a node know after its daemon has started anew, and what follows from it: the report
 * that the former daemon would have given. Pure; the coordinator that takes over judges by that report like
 * by any other one.
 *
 * A member's word is about the generation that it knew last and, for each plan, about the last step of which
 * it has heard that it is committed and the READYs that it has sent for the next one. Beside the words stands
 * the trace, if the former daemon has left one: the step that it had opened last, and whether any bucket of
 * it was begun, or all were done.
 *
 * A step of whose commit one member has heard is committed. One whose buckets were all done is prepared. One
 * of which no bucket can have been begun is not open: some member had sent no READY, or every member heard
 * the daemon say that it ends, before which whatever is begun is brought to its end, or the trace says so.
 * Any other step was open, and nobody has it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct word {      /* of one place of the generation before */
        bool told; /* its member has come back and has said everything; else nothing of this counts */
        uint32_t generation; /* the latest one that it knows */
        bool orderly;        /* it has heard the daemon say that it ends */
        bool resumed;        /* nothing was void when it entered that generation */
        bool ended;          /* it knows that this generation was at its end */
};

struct word_step {         /* about one plan, of the same place */
        bool known;        /* the member has the plan */
        uint64_t step;     /* the last one that it knows to be committed */
        uint32_t launched; /* buckets of the next one whose READY it has sent */
};

struct trace {            /* of one plan, left by the former daemon in the latest generation */
        bool known;       /* else nothing of this counts */
        uint64_t step;    /* opened last; 0: none, or it was void */
        bool begun, done; /* some bucket of that step; all, and the node was prepared */
};

/* What is reported of a plan's track. */
struct words_unit {
        uint64_t committed;
        bool opened, prepared; /* the step after that one */
        bool began;            /* some member had sent a READY of it */
};

/* The latest generation that any member knows. */
uint32_t words_generation(const struct word *word, uint32_t n);
struct words_unit words_unit(const struct word *word, const struct word_step *about, uint32_t n,
                             const struct trace *trace);
/* Whether the member can be given the results of that step, of which it has not heard: it had sent all of it,
 * and the trace has them. */
bool words_can_hear(const struct word *word, const struct word_step *about, uint32_t generation,
                    const struct trace *trace, uint64_t step, uint32_t n_buckets);
/* Whether all members are back, and have entered one generation without anything void between. */
bool words_all_here(const struct word *word, uint32_t n);
