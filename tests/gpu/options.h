/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe's command line. A person gives some of the options; by the others one process of the probe starts
 * the next.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum {
        OPTIONS_ONLY = 32, /* patterns of facts, at most */
        OPTIONS_NCCL = 8,  /* paths of libnccl, at most */
};

struct options {
        const char *libcuda;            /* path or soname of the driver library */
        const char *nccl[OPTIONS_NCCL]; /* libraries to look at before those that are found */
        unsigned n_nccl;
        const char *only[OPTIONS_ONLY]; /* shell patterns of facts; none: all */
        unsigned n_only;
        const char *out;  /* file that each row is appended to and synced; NULL: none */
        const char *root; /* folder that stands for / where files describe the machine */
        double seconds;   /* for everything */
        double deadline;  /* of each fact, in seconds; 0: its own */
        uid_t other_uid;  /* the other user */
        bool list;        /* print the names of the facts, run nothing */
        bool kernels;     /* print the PTX, run nothing */

        const char *role; /* set: this process plays a role of one fact */
        int board;        /* descriptor of the board, see board.h */
        int place;        /* its place there */
        int channel;      /* socket to the process that started it; -1: the probe itself did */
};

/* Reads the command line. Returns -1 if the program is to go on, else its exit status, after a message or the
 * help. */
int options_read(struct options *options, int argc, char **argv);
