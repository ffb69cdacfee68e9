/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of each job and member for `top`: rates and shares of the time between two looks, and their
 * order. Pure except for memory.
 */
#pragma once

#include <stdbool.h>

#include "client/cli/ask/observe.h"

struct figures {
        double rate;    /* steps a second; below 0: not known */
        double exposed; /* shares of the time, 0 to 1; below 0: not known */
        double late;
        const Wire__StatusWait *wait; /* the wait for the member, or the oldest wait of the job; NULL: none */
};

struct figures_member {
        size_t place; /* in the daemon's answer */
        const Wire__StatusMember *member;
        struct figures is;
};

struct figures_job {
        size_t place;
        const struct snapshot *from;
        const struct snapshot_job *job;
        struct figures is;
        struct figures_member *member; /* job->n_members of them */
};

struct figures_list {
        struct figures_job *job;
        size_t n;
};

enum figures_order {
        FIGURES_BY_RANK, /* jobs as the daemons list them */
        FIGURES_BY_JOB,  /* jobs by name, members by rank */
        FIGURES_BY_EXPOSED,
        FIGURES_BY_LATE,
        FIGURES_BY_WAIT,
        FIGURES_BY_STEP,
};

/* Computes the figures from a comparison with `past`, seen `elapsed_ms` ago (NULL: there is none). 0 or
 * -ENOMEM. The list must not outlive the observation. */
int figures_collect(const struct observation *now, const struct observation *past, uint64_t elapsed_ms,
                    struct figures_list *ret);
/* Sorts the jobs, and the members of each job: the largest figure first (for steps: the smallest), or the
 * other way round if `reverse`. */
void figures_sort(struct figures_list *list, enum figures_order order, bool reverse);
void figures_deinit(struct figures_list *list);
