/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks wait for each other. See meet.h. */
#include "meet.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "debug.h"
#include "trouble.h"

#define POLL 200 /* microseconds */

static bool meet_stops(const struct task *task) {
        return (task->comm != NULL && task->comm->stops) || (task->parent != NULL && task->parent->stops);
}

static nccl_result meet_wait_until(struct task *task, const struct ncclComm *comm, unsigned mask,
                                   bool (*condition)(const struct ncclComm *comm, unsigned mask)) {
        while (!condition(comm, mask)) {
                if (meet_stops(task))
                        return trouble(NCCL_INTERNAL_ERROR, "the call was aborted");
                usleep(POLL);
        }
        return NCCL_OK;
}

/* ---- the beginning ---- */

static bool meet_all_are_here(const struct ncclComm *comm, unsigned mask) {
        return comm->board->here == comm->ranks;
}

static bool meet_all_are_ready(const struct ncclComm *comm, unsigned mask) {
        return comm->board->ready == comm->ranks;
}

/* Ranks of one host have the same. */
static uint64_t meet_host(void) {
        const char *name = getenv("NCCL_HOSTID");
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        char boot[64] = "";

        if (name == NULL) {
                int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
                if (fd < 0 || read(fd, boot, sizeof(boot) - 1) < 0)
                        abort();
                close(fd);
                name = boot;
        }
        for (; *name != '\0'; name++)
                hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
        return hash;
}

/* The caller holds the lock of the file. */
static nccl_result meet_enter_locked(struct ncclComm *comm, struct board *board) {
        struct board_rank *own = &board->rank[comm->rank];

        if (board->ranks != 0 && board->ranks != comm->ranks)
                return trouble_rule(NCCL_INVALID_USAGE, "rank %u says that there are %u ranks, others %u",
                                    comm->rank, comm->ranks, board->ranks);
        if (own->state != RANK_ABSENT)
                return trouble_rule(NCCL_INVALID_USAGE, "rank %u of %u ranks has already checked in",
                                    comm->rank, comm->ranks);
        board->ranks = comm->ranks;
        own->host = meet_host();
        own->version = comm_version();
        own->device = comm->device;
        memcpy(own->uuid, comm->uuid, sizeof(own->uuid));
        board_enter(board, comm->rank);
        return NCCL_OK;
}

static nccl_result meet_enter(struct ncclComm *comm) {
        int fd = board_open(comm->id);
        struct board *board = fd >= 0 ? board_map(fd) : NULL;

        if (board == NULL) {
                close(fd);
                return trouble(NCCL_SYSTEM_ERROR, "there is no folder for the communicator's file");
        }
        nccl_result result = meet_enter_locked(comm, board);
        board_unlock(fd);
        if (result == NCCL_OK) {
                comm->fd = fd;
                comm->board = board;
                return NCCL_OK;
        }
        board_unmap(board);
        close(fd);
        return result;
}

/* A rank compares the others with itself alone, so some may fail here, and the others wait for them. */
static nccl_result meet_check(const struct ncclComm *comm) {
        const struct board_rank *rank = comm->board->rank, *own = &rank[comm->rank];

        for (unsigned r = 0; r < comm->ranks; r++) {
                if (rank[r].version != own->version)
                        return trouble(
                                NCCL_INVALID_USAGE,
                                "Mismatched NCCL version detected : rank %u version %d rank %u version %d", r,
                                rank[r].version, comm->rank, own->version);
                if (r != comm->rank && rank[r].host == own->host &&
                    memcmp(rank[r].uuid, own->uuid, sizeof(own->uuid)) == 0)
                        return trouble(NCCL_INVALID_USAGE,
                                       "Duplicate GPU detected : rank %u and rank %u both on CUDA device %d",
                                       comm->rank, r, own->device);
        }
        return NCCL_OK;
}

static void meet_slowly(const struct task *task) {
        for (uint64_t ms = machine_setting("FAKE_NCCL_SLOW", 0); ms > 0 && !meet_stops(task); ms--)
                usleep(1000);
}

nccl_result meet(struct task *task) {
        struct ncclComm *comm = task->comm;

        while (trouble_sticks("init") && !meet_stops(task))
                usleep(POLL);
        if (meet_stops(task)) /* the caller does not wait for the result any more */
                return trouble(NCCL_INTERNAL_ERROR, "the call was aborted");
        nccl_result result = meet_enter(comm);
        if (result == NCCL_OK)
                result = meet_wait_until(task, comm, 0, meet_all_are_here);
        if (result == NCCL_OK)
                result = meet_check(comm);
        if (result != NCCL_OK)
                return result;
        meet_slowly(task);
        comm->board->ready++;
        result = meet_wait_until(task, comm, 0, meet_all_are_ready);
        if (result == NCCL_OK)
                debug_print_channels(comm);
        return result;
}

/* ---- words ---- */

static bool meet_all_have_said(const struct ncclComm *comm, unsigned mask) {
        const struct board *board = comm->board;

        for (unsigned r = 0; r < comm->ranks; r++)
                if ((mask >> r & 1) != 0 && board->rank[r].said < board->rank[comm->rank].said)
                        return false;
        return true;
}

static bool meet_all_have_heard(const struct ncclComm *comm, unsigned mask) {
        const struct board *board = comm->board;

        for (unsigned r = 0; r < comm->ranks; r++)
                if ((mask >> r & 1) != 0 && board->rank[r].heard < board->rank[comm->rank].said)
                        return false;
        return true;
}

/* A word stays until all ranks have read it. A round that is given up counts as read. */
nccl_result meet_agree(struct task *task, struct ncclComm *comm, unsigned mask,
                       const int64_t word[BOARD_WORDS], int64_t ret[BOARD_RANKS][BOARD_WORDS]) {
        struct board_rank *own = &comm->board->rank[comm->rank];
        nccl_result result = meet_wait_until(task, comm, mask, meet_all_have_heard);

        if (result != NCCL_OK)
                return result;
        memcpy(own->word, word, sizeof(own->word));
        own->said++;
        result = meet_wait_until(task, comm, mask, meet_all_have_said);
        for (unsigned r = 0; r < comm->ranks; r++)
                memcpy(ret[r], comm->board->rank[r].word, sizeof(ret[r]));
        own->heard = own->said;
        return result;
}

/* ---- the end ---- */

static bool meet_all_are_final(const struct ncclComm *comm, unsigned mask) {
        for (unsigned r = 0; r < comm->ranks; r++)
                if (!comm->board->rank[r].final && board_is_here(&comm->board->rank[r]))
                        return false;
        return true;
}

static bool meet_neighbours_are_final(const struct ncclComm *comm, unsigned mask) {
        const struct board_rank *rank = comm->board->rank;

        for (unsigned r = 0; r < comm->ranks; r++)
                if (rank[r].host == rank[comm->rank].host && !rank[r].final && board_is_here(&rank[r]))
                        return false;
        return true;
}

nccl_result meet_finally(struct task *task) {
        struct ncclComm *comm = task->comm;

        comm_drain(comm);
        comm->board->rank[comm->rank].final = true;
        nccl_result result = meet_wait_until(task, comm, 0, meet_all_are_final);
        if (result == NCCL_OK)
                comm->state = COMM_FINALIZED;
        return result;
}

void meet_neighbours(struct task *task) {
        struct ncclComm *comm = task->comm;

        comm->board->rank[comm->rank].final = true;
        meet_wait_until(task, comm, 0, meet_neighbours_are_final);
}
