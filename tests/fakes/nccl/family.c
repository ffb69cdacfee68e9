/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators out of others. Those of split and shrink are not known before they are done: until then the
 * old one is in progress, also where the call says that all is well (src/init.cc, ncclCommInitChildComm).
 */
#include <string.h>

#include "call.h"
#include "meet.h"

EXPORT nccl_result ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *part,
                                 struct nccl_config *config);
EXPORT nccl_result ncclCommShrink(nccl_comm comm, int *without, int n, nccl_comm *rest,
                                  struct nccl_config *config, int flags);
EXPORT nccl_result ncclCommGetUniqueId(nccl_comm comm, struct nccl_id *id);
EXPORT nccl_result ncclCommGrow(nccl_comm comm, int ranks, const struct nccl_id *id, int rank,
                                nccl_comm *grown, struct nccl_config *config);

static uint64_t round_of(const struct ncclComm *comm) {
        return comm->board->rank[comm->rank].said;
}

/* ---- split ---- */

/* All ranks, in the order of their keys, and then of their old ranks. */
static nccl_result run_split(struct task *task) {
        struct ncclComm *parent = task->parent, *comm = task->comm;
        int64_t all[BOARD_RANKS][BOARD_WORDS];
        const int64_t own[BOARD_WORDS] = { task->split.key };
        nccl_result result = meet_agree(task, parent, ~0U, own, all);

        if (result != NCCL_OK)
                return result;
        comm->ranks = parent->ranks;
        for (unsigned r = 0; r < parent->ranks; r++)
                comm->rank += all[r][0] < own[0] || (all[r][0] == own[0] && r < parent->rank);
        comm_id_derive(comm, parent, round_of(parent), -1);
        return meet(task);
}

nccl_result ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *part, struct nccl_config *config) {
        struct task task = { .run = run_split, .parent = comm, .silent = true, .split = { key } };

        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommSplit");
        if (part == NULL || color != 0)
                return trouble(NCCL_INVALID_ARGUMENT, "ncclCommSplit : color %d", color);
        nccl_result result = call_make(&task, config, part);
        return result == NCCL_OK ? task_submit(&task) : result;
}

/* ---- shrink ---- */

static nccl_result run_shrink(struct task *task) {
        struct ncclComm *parent = task->parent, *comm = task->comm;
        int64_t all[BOARD_RANKS][BOARD_WORDS];
        const int64_t own[BOARD_WORDS] = { task->shrink.mask };
        nccl_result result = meet_agree(task, parent, task->shrink.mask, own, all);

        for (unsigned r = 0; r < parent->ranks && result == NCCL_OK; r++) {
                if ((task->shrink.mask >> r & 1) == 0)
                        continue;
                if (all[r][0] != own[0])
                        result = trouble_rule(NCCL_INVALID_USAGE, "ranks shrink a communicator differently");
                comm->ranks++;
                comm->rank += r < parent->rank;
        }
        if (result != NCCL_OK)
                return result;
        comm_id_derive(comm, parent, round_of(parent), own[0]);
        return meet(task);
}

/* The ranks that remain; 0: the list is wrong. */
static unsigned mask_without(const struct ncclComm *comm, const int *without, int n) {
        unsigned mask = (1U << comm->ranks) - 1;

        for (int i = 0; i < n; i++) {
                if (without[i] < 0 || (mask >> without[i] & 1) == 0)
                        return 0;
                mask &= ~(1U << without[i]);
        }
        return n > 0 && (mask >> comm->rank & 1) != 0 ? mask : 0;
}

nccl_result ncclCommShrink(nccl_comm comm, int *without, int n, nccl_comm *rest, struct nccl_config *config,
                           int flags) {
        struct task task = { .run = run_shrink, .parent = comm, .silent = true };

        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommShrink");
        if (comm_is_at_work(comm))
                trouble_rule(NCCL_OK, "a communicator is shrunk while its collectives are under way");
        task.shrink.mask = mask_without(comm, without, n);
        if (rest == NULL || task.shrink.mask == 0 || flags != NCCL_SHRINK_IDLE)
                return trouble(NCCL_INVALID_ARGUMENT, "ncclCommShrink : list of %d ranks", n);
        nccl_result result = call_make(&task, config, rest);
        return result == NCCL_OK ? task_submit(&task) : result;
}

/* ---- grow ---- */

/* Old ranks learn the id from the one of them that has it. */
static nccl_result learn_id(struct task *task, struct nccl_id *id) {
        int64_t own[BOARD_WORDS] = { 0 }, all[BOARD_RANKS][BOARD_WORDS];
        unsigned n = 0;

        own[0] = comm_id_is(id, true);
        if (own[0] != 0)
                memcpy(own + 1, task->comm->id, sizeof(task->comm->id));
        nccl_result result = meet_agree(task, task->parent, ~0U, own, all);
        for (unsigned r = 0; r < task->parent->ranks && result == NCCL_OK; r++)
                if (all[r][0] != 0) {
                        memcpy(task->comm->id, all[r] + 1, sizeof(task->comm->id));
                        n++;
                }
        if (result == NCCL_OK && n != 1)
                result = trouble_rule(NCCL_INVALID_ARGUMENT, "%u of the old ranks have the id to grow with",
                                      n);
        task->parent->has_grows = false;
        return result;
}

static nccl_result run_grow(struct task *task) {
        nccl_result result = task->parent != NULL ? learn_id(task, &task->grow.id) : NCCL_OK;

        return result == NCCL_OK ? meet(task) : result;
}

nccl_result ncclCommGetUniqueId(nccl_comm comm, struct nccl_id *id) {
        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommGetUniqueId");
        if (comm->has_grows)
                return trouble_rule(NCCL_INVALID_USAGE, "an id to grow with was not used yet");
        comm_id_new(&comm->grows, true);
        comm->has_grows = true;
        *id = comm->grows;
        return NCCL_OK;
}

static nccl_result check_grow(const struct ncclComm *comm, int ranks, const struct nccl_id *id, int rank) {
        if (ranks > (int)BOARD_RANKS || (comm != NULL && (ranks <= (int)comm->ranks || rank != -1)) ||
            (comm == NULL && (rank < 0 || rank >= ranks)))
                return trouble(NCCL_INVALID_ARGUMENT, "ncclCommGrow : rank %d of %d", rank, ranks);
        if (comm == NULL ? id == NULL || !comm_id_is(id, true)
                         : id != NULL && (!comm->has_grows || memcmp(id, &comm->grows, sizeof(*id)) != 0))
                return trouble(NCCL_INVALID_ARGUMENT, "ncclCommGrow : the id is none of ncclCommGetUniqueId");
        return NCCL_OK;
}

/* The new communicator is there at once, and is what tells of the progress. */
nccl_result ncclCommGrow(nccl_comm comm, int ranks, const struct nccl_id *id, int rank, nccl_comm *grown,
                         struct nccl_config *config) {
        struct task task = { .run = run_grow };

        CALL_BEGIN("ncclCommGrow");
        nccl_result result = comm != NULL ? call_check_alive(comm, "ncclCommGrow") : NCCL_OK;
        if (result == NCCL_OK)
                result = grown == NULL ? NCCL_INVALID_ARGUMENT : check_grow(comm, ranks, id, rank);
        if (result != NCCL_OK)
                return result;
        result = call_make(&task, config, grown);
        if (result != NCCL_OK)
                return result;
        if (id != NULL) {
                task.grow.id = *id;
                comm_id_take(task.comm, id);
        }
        task.parent = comm;
        task.comm->rank = comm != NULL ? comm->rank : (unsigned)rank;
        task.comm->ranks = (unsigned)ranks;
        return task_submit(&task);
}
