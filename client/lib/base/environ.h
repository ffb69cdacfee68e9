/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment variables of launchers: they name the job that this process belongs to, its number of
 * members, and this process's rank. There is one row of variables for each launcher; the first row whose
 * variables are all set counts.
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
        /* Number of processes that this rank has had before; -1: not given. */
        int64_t instance;
};

/* Returns the value of a variable; NULL if it is not set or empty. */
const char *environ_get(const char *name);

/* Reads the first complete row. GRADSYNC_OK (also if there is none), or INVALID naming the variable. */
int environ_job(struct environ_job *ret);
/* Likewise the first complete one of the rows from *at on; *at becomes the row after it. */
int environ_next_job(size_t *at, struct environ_job *ret);
/* Whether variables of gradsync's own row do not count because one is missing, and the row before `at` counts
 * instead: *ret_set is set, *ret_missing is not. Variables that both rows have are not meant. */
bool environ_passes_over(size_t at, const char **ret_set, const char **ret_missing);

/* GRADSYNC_REJOIN_GRACE in milliseconds; *ret is untouched if it is not set. INVALID if it is no number of
 * seconds. */
int environ_grace(int64_t *ret);
/* GRADSYNC_SPARE: whether a process without a rank is a spare. INVALID if it is neither 0 nor 1. */
int environ_spare(bool *ret);
/* The scope that the caller gave, or else GRADSYNC_SCOPE, as a Wire__Scope; NONE if that is not set either.
 * INVALID if it is neither "host" nor "cluster". */
int environ_scope(const char *given, unsigned *ret);
/* GRADSYNC_RECONNECT_TIMEOUT in milliseconds, as environ_grace(). */
int environ_reconnect(int64_t *ret);

/* The token for any job that is joined; NULL if none. */
const char *environ_job_token(void);
/* A variable by which a launcher says that there are other processes; NULL if none is set. */
const char *environ_launcher_variable(void);
/* Says which variable is missing: "GRADSYNC_JOB is set but GRADSYNC_RANK is not", or "". A size without a
 * rank, or a rank without a size, comes first, then the row of which most variables are set. */
void environ_missing(char *text, size_t size);

#define ENVIRON_SOCKETS 2u
struct environ_sockets {
        unsigned n;
        char path[ENVIRON_SOCKETS][108];
        /* The caller or GRADSYNC_SOCKET named it: no other place will do. */
        bool named;
};

/* Lists the sockets at which to look for the daemon, in this order. `socket` and `device` are NULL if the
 * caller gave none. INVALID if a path cannot be that of a socket, or the device has no valid name. */
int environ_sockets(struct environ_sockets *ret, const char *socket, const char *device);

/* Whether the environment names a socket or a device. */
bool environ_has_choice(void);
/* Lists the sockets at which daemons of GPUs may listen, the user's own first. The caller frees *ret with
 * globfree(), also if it is empty. */
void environ_gpu_sockets(glob_t *ret);
