/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that use NCCL from several processes: one for each rank, on top of peer.h. Each is on a host
 * of its own as NCCL sees it, since they share a GPU. No call of NCCL blocks.
 */
#pragma once

#include <stdbool.h>

#include "proto/nccl.h"
#include "tests/fakes/gpu/peer.h"

#define RANKS 4u
#define IDS 2u
#define PLACES 2u
#define SMALL 1000u /* floats, or bytes, where it does not matter how many */

struct rank { /* as its process has it */
        unsigned number, ranks;
        struct gpu gpu;
        struct nccl nccl;
        struct nccl_id id[IDS]; /* known to all */
        struct nccl_config config;
        nccl_comm comm;   /* of rank_join() */
        struct area area; /* a granule */
};

/* As NCCL takes it. */
static inline void *pointer(cuda_address address) {
        return (void *)(uintptr_t)address;
}

/* How a case begins: with nothing; or with `area` and `comm`. */
enum ranks_begin { APART, JOINED };
/* The end of `comm`: it is destroyed in good order, or aborted, or gone already. */
enum ranks_end { LEFT, ABORTED, GONE };

/* `role` runs in a process for each rank. It has ended well when all that were not killed have. */
struct ranks_case {
        const char *name;
        unsigned ranks;
        void (*role)(struct rank *rank);
        enum ranks_begin begin;
        enum ranks_end end;
        const char *variable; /* "NAME=value", in the environment; or NULL */
};

/* A program that is a list of them: see cases_main(). */
int ranks_main(char **argv, const struct ranks_case *cases, size_t n);
/* Kills the process of another rank; it is gone when this returns. */
void ranks_kill(unsigned number);
/* Waits until all ranks are here. */
void ranks_meet(void);
/* Collectives begin and do not end; on one rank at most. */
void ranks_hold(bool on);
/* Numbers that ranks leave for each other; 0 at first. */
void ranks_set(unsigned place, unsigned value);
bool ranks_is(unsigned place, unsigned value);
void ranks_await(unsigned place, unsigned value);

/* Polls until the communicator is no longer in progress. `result` is that of the call on it, which may say
 * that all is well before. */
nccl_result rank_settle(const struct rank *rank, nccl_comm comm, nccl_result result);
/* Makes a communicator of all ranks. */
nccl_comm rank_join(struct rank *rank, unsigned id);
/* Ends it in good order. */
void rank_end(const struct rank *rank, nccl_comm comm);

/* Device memory: as many floats, all of one value; waited for on stream 0. */
void rank_fill(const struct rank *rank, cuda_address at, size_t n, float value);
void rank_expect(const struct rank *rank, cuda_address at, size_t n, float value);
/* An allreduce of `comm` in place, on stream 0; then, a sum of floats. Both wait until it was launched. */
nccl_result rank_reduce(const struct rank *rank, cuda_address at, size_t n, int type, int operation);
nccl_result rank_sum(const struct rank *rank, nccl_comm comm, cuda_address at, size_t n, cuda_stream stream);
/* All ranks of the communicator give a number of ones, and get as many times their number. */
void rank_check(const struct rank *rank, nccl_comm comm);
/* Does many sums of another communicator, on a stream of their own: work that could end meanwhile has
 * ended. */
void rank_pass_time(const struct rank *rank, nccl_comm comm);
/* Expects the bytes of an output whose collective was aborted. */
void rank_expect_garbage(const struct rank *rank, cuda_address at, size_t bytes);
