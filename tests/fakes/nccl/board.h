/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the ranks of one communicator of the fake NCCL share: a file in the folder of the machine,
 * which the library (comm.c) maps in each rank's process, and the context process of each rank, which does
 * the work. The file goes when the last rank has left it; a rank whose process has died counts as gone.
 *
 * Each field of a rank has one writer: that rank.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BOARD_RANKS 16u
#define BOARD_ID 16u /* bytes */
#define BOARD_CHUNK (1u << 20)
#define BOARD_WORDS 4u

enum board_state { RANK_ABSENT, RANK_HERE, RANK_LEFT };

struct board_call { /* a collective, as one rank has it */
        uint64_t number, count, place;
        int32_t type, operation;
};

struct board_rank {
        _Atomic int state;
        int32_t pid;
        uint64_t start; /* of the process, in ticks since the machine's */
        uint64_t host;
        int32_t version, device;
        unsigned char uuid[16];
        _Atomic bool aborted;      /* kernels end early */
        _Atomic bool differs;      /* a collective was not the same on all ranks */
        _Atomic bool final;        /* its work is over */
        _Atomic uint64_t begun;    /* number of the last collective that a kernel began */
        _Atomic uint64_t ended;    /* how many are over */
        _Atomic uint64_t wrote;    /* chunks that are there for the others */
        _Atomic uint64_t read;     /* chunks of all ranks that were used */
        _Atomic uint64_t said;     /* rounds of words that all ranks exchange */
        _Atomic uint64_t heard;    /* those that were used, or given up */
        struct board_call call;    /* valid as of `begun` */
        int64_t word[BOARD_WORDS]; /* valid as of `said` */
        unsigned char chunk[BOARD_CHUNK];
};

struct board {
        _Atomic uint32_t ranks; /* 0: no rank has been here */
        _Atomic uint32_t here, ready;
        struct board_rank rank[BOARD_RANKS];
};

/* The file of a communicator, which is made if need be, with its lock held until board_unlock(). */
int board_open(const unsigned char id[BOARD_ID]);
void board_unlock(int fd);
/* NULL: no memory, or no board. */
struct board *board_map(int fd);
void board_unmap(struct board *board);
/* Notes the process. */
void board_enter(struct board *board, unsigned rank);
/* The rank has left; the last one deletes the file. */
void board_leave(const unsigned char id[BOARD_ID], int fd, struct board *board, unsigned rank);
/* It is there, and its process lives. */
bool board_is_here(const struct board_rank *rank);

/* The process `pid` was killed: deletes the files of communicators that it was the last of. */
void boards_sweep(pid_t pid);
/* Counts and prints the files that no rank is left to delete. */
unsigned boards_left_over(void);
