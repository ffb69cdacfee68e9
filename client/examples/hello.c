/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest member: a job averages one parameter of four numbers, once. Start three of it with
 *
 *     gradsyncctl run -n 3 -- hello
 *
 * Rank r brings r+1 everywhere; the average of 1, 2 and 3 is what each of them gets back.
 */
#include <gradsync/gradsync.h>

#include <stdio.h>
#include <stdlib.h>

static void check(int result) {
        if (result == GRADSYNC_OK)
                return;
        fprintf(stderr, "hello: %s\n", gradsync_error()); /* says what happened, to whom, and what to do */
        exit(1);
}

int main(void) {
        struct gradsync *gs;        /* the connection to the daemon */
        struct gradsync_job *job;   /* our place among the members */
        struct gradsync_plan *plan; /* what is averaged, and the memory it lives in */
        const uint64_t shape[] = { 4 };

        check(gradsync_open(&gs, NULL));      /* NULL: the environment says where the daemon is */
        check(gradsync_join(gs, NULL, &job)); /* NULL: the environment names the job, its size, our rank */

        check(gradsync_param(job, "weight", GRADSYNC_F32, 1, shape)); /* a model has many of these */
        check(gradsync_plan(job, &plan)); /* all members named the same parameters: memory is shared */

        float *gradient = gradsync_gradient(plan, 0); /* the memory is ours to write until ready() */
        for (int i = 0; i < 4; i++)
                gradient[i] = (float)gradsync_rank(job) + 1.f;
        check(gradsync_ready(plan, 0));     /* now it is the daemon's, which averages */
        check(gradsync_finish(plan, NULL)); /* it is ours again: every member has the same average */

        unsigned rank = gradsync_rank(job), world = gradsync_world_size(job);
        printf("rank %u of %u: the average is %g\n", rank, world, gradient[0]);

        check(gradsync_leave(job)); /* frees the plan too: gradient is gone */
        gradsync_close(gs);
        return 0;
}
