/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of gradsyncctl doctor. A checkup holds the facts about daemons that are found out before any
 * check; each group of checks adds its findings.
 */
#pragma once

#include "client/cli/ask/snapshot.h"
#include "client/cli/ask/sockets.h"
#include "client/cli/base/bundled.h"
#include "client/cli/doctor/findings.h"

struct checkup {
        const struct cli *cli;
        struct sockets sockets;
        const char *path;        /* of `sockets`: the daemon that answered, else the likeliest place */
        enum talk_result result; /* for `path` */
        struct talk talk;
        struct snapshot snapshot; /* .daemon NULL if none answered */
        struct advice advice;
};

/* Whether the daemon answers, whether this user may ask it, and whether the versions fit. */
void doctor_daemon(const struct checkup *checkup, struct findings *findings);
/* The remedy for a daemon that does not answer at the checkup's path. */
char *doctor_remedy(const struct checkup *checkup);
/* Whether the settings of the daemon suit this host, and its cluster. */
void doctor_cluster(const struct checkup *checkup, struct findings *findings);
/* The limits under which this user and the daemon run. */
void doctor_limits(const struct checkup *checkup, struct findings *findings);
/* Whether this host, the trainers and the daemon have all that a GPU needs. */
void doctor_gpu(const struct checkup *checkup, struct findings *findings);
/* Whether the daemon of a GPU has NCCL, and which one it could have. */
void doctor_nccl(const struct checkup *checkup, struct findings *findings);
/* Whether the variables that name jobs and sockets are sound. */
void doctor_environment(struct findings *findings);
/* Whether earlier runs left anything behind. */
void doctor_leftovers(struct findings *findings);
