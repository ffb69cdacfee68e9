/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What launchers say in environment variables: the job that this process belongs to, its number of members,
 * and this process's rank. There is one row for each launcher; the first row whose variables are all set
 * counts.
 */
#pragma once

#include <glob.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct environ_job {
        /* "gradsyncctl run", "torchrun", …; NULL: no row is complete. */
        const char *launcher;
        char name[LIMIT_NAME + 1];
        uint32_t world;
        /* -1: none. */
        int64_t rank;
        /* -1: none. */
        int64_t local_rank;
        int64_t incarnation;
        /* Of the rank; -1: none. */
        int64_t instance;
};

/* A variable that is set and not empty, else NULL. */
const char *environ_get(const char *name);

/* GRADSYNC_OK (also if there is no launcher), or INVALID naming the variable. */
int environ_job(struct environ_job *ret);

/* GRADSYNC_REJOIN_GRACE in milliseconds; *ret is untouched if it is not set. INVALID if it is no number of
 * seconds. */
int environ_grace(int64_t *ret);
/* GRADSYNC_SPARE: whether a process without a rank is a spare. INVALID if it is neither 0 nor 1. */
int environ_spare(bool *ret);
/* What was given, or else GRADSYNC_SCOPE: WIRE__SCOPE__…, NONE if that is not set either. INVALID if it is
 * neither "host" nor "cluster". */
int environ_scope(const char *given, unsigned *ret);
/* GRADSYNC_RECONNECT_TIMEOUT, likewise. */
int environ_reconnect(int64_t *ret);

/* The token for whatever job is joined; NULL: none. */
const char *environ_job_token(void);
/* A variable by which a launcher says that there are other processes; NULL if none is set. */
const char *environ_launcher_variable(void);
/* What is missing in the row that comes nearest, first of all the other half of a size or a rank:
 * "GRADSYNC_JOB is set but GRADSYNC_RANK is not", or "". */
void environ_missing(char *text, size_t size);

#define ENVIRON_SOCKETS 2u
struct environ_sockets {
        unsigned n;
        char path[ENVIRON_SOCKETS][108];
        /* The caller or GRADSYNC_SOCKET named it: no other place will do. */
        bool named;
};

/* Where to look for the daemon, in this order. NULL: not given by the caller. INVALID if a path cannot be
 * a socket. */
int environ_sockets(struct environ_sockets *ret, const char *socket, const char *device);

/* Whether the environment says which daemon it is to be. */
bool environ_has_choice(void);
/* Sockets at which daemons of GPUs may be, the user's own first. For globfree(), whatever it holds. */
void environ_gpu_sockets(glob_t *ret);
