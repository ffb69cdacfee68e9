/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of member.c's plans: what they are filled with, and whether they are as they should be. They
 * may lie on a GPU, see gpu.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradsync/gradsync.h>

#define LAST 64.0 /* added to all averages of the last step */

struct planned {
        struct gradsync_plan *plan;
        uint32_t n; /* parameters */
        uint64_t *elements;
        unsigned *dtype;
};

/* A gradient where it can be read here, until the next call. */
void *gradients_view(const struct planned *p, uint32_t i);
/* Marks the parameter. If it is on a GPU, the mark comes after the work of the stream that has made it. */
int gradients_ready(struct gradsync_plan *plan, uint32_t param);
/* Marks it as absent, likewise. */
int gradients_absent(struct gradsync_plan *plan, uint32_t param);
/* Element j of parameters first to end - 1 becomes base + j % 4. */
void gradients_fill(const struct planned *p, double base, uint32_t first, uint32_t end);
/* Says "right" if they are that, else which is not. */
void gradients_check(const struct planned *p, double base, uint32_t first, uint32_t end, char *out,
                     size_t size);
/* How many are not; *ret_last: whether this is the last step. */
uint64_t gradients_wrong(const struct planned *p, double base, bool *ret_last);
/* An allreduce of what is known; adds to `wrong` if the result is. */
int gradients_count_ranks(struct gradsync_job *job, uint64_t *wrong);
/* Sums so many floats of this value on the GPU, in a thread that has no context; says the first and the
 * last. */
int gradients_allreduce(struct gradsync_job *job, uint32_t n, float value, char *out, size_t size);
/* collective KIND N IN OUT: broadcast, allreduce, allgather or reduce_scatter of N bytes of a member, in a
 * thread that has no context. IN and OUT: "host", or the number of a GPU; OUT "same": where IN is. Says
 * whether the output is right, or the error. */
int gradients_collective(struct gradsync_job *job, char **word, char *out, size_t size);
/* mark_on MARK GPU PARAMETER: marks it, "ready" or "absent", in the stream of that GPU. */
int gradients_mark_on(struct gradsync_plan *plan, const char *mark, unsigned gpu, uint32_t param);
