/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake NCCL, libnccl.so.2: for several processes that each have a context of the fake GPU (gpu.h). The
 * ranks of a communicator meet in a file of the machine's folder (board.h), and the collectives are
 * operations of the contexts (tests/fakes/gpu/collective.c). Rules and where they are from; files are those
 * of NCCL 2.28.9, nccl.h is its manual, and comms.rst is in docs/userguide/source/api:
 *   - a call on a communicator that is in progress is an error, and so is one on a communicator that has
 *     failed, which can only be aborted (src/init.cc, ncclCommEnsureReady)
 *   - no call blocks: a communicator is asked with ncclCommGetAsyncError() how its call went, also where the
 *     call is a collective (src/group.cc, ncclGroupEndInternal)
 *   - two ranks of one host on one GPU are refused, and see it themselves alone; all see that a version is
 *     another (src/init.cc, initTransportsRank)
 *   - a kernel that waits for its peers spins until its rank aborts, which waits for the kernel and leaves
 *     garbage (src/device/primitives.h; src/init.cc, commDestroySync)
 *   - collectives of one communicator run one after the other; each needs room on its GPU while it runs
 *     (usage/communicators.rst, "Using multiple NCCL communicators concurrently")
 *   - collectives are the same on all ranks, in the same order: here they are compared
 *   - ncclCommDestroy() waits for the ranks of the same host (comms.rst), ncclCommFinalize() for all (nccl.h)
 *   - a window is registered by all ranks, in memory of cuMemCreate() (src/dev_runtime.cc); a collective in
 *     it is at the same place on all of them (src/scheduler/symmetric_sched.cc)
 *   - others: family.c, registration.c, reduce.h, debug.c
 * What the real library only forbids, or does not survive, is an error here, and a line in the machine's log.
 *
 * Environment, besides NCCL_HOSTID, NCCL_MAX_CTAS, NCCL_WIN_ENABLE, NCCL_DEBUG and NCCL_DEBUG_FILE:
 *   FAKE_NCCL_VERSION    what ncclGetVersion() says (22809)
 *   FAKE_NCCL_SLOW       milliseconds that making a communicator takes more
 *   FAKE_NCCL_STUCK      "init", "window", "revoke", "collective", "abort", or several: that call never ends;
 *                        the first four do when the communicator is aborted. There is a file `stuck` in the
 *                        machine's folder as soon as it has begun
 *   FAKE_NCCL_FAIL       "ncclAllReduce:3:2,…": that call of this process, counted from 1, has that result;
 *                        0: each of them has
 *   FAKE_NCCL_CTAS       that fit on a GPU (64); a collective takes the communicator's maximum (4)
 *   FAKE_NCCL_TRANSPORT  what NCCL_DEBUG=INFO says of peers (P2P/CUMEM)
 *   FAKE_NCCL_NVLS       set: … and that the GPUs of a host have a multicast
 * As long as there is a file `nccl-hold` in the machine's folder, collectives begin and do not end, unless
 * they are aborted; as long as there is `nccl-keep`, nothing of a communicator is freed. libnccl-old.so.2 is
 * a version that is too old, libnccl-plain.so.2 has nothing but what the oldest good one has, and
 * libnccl-lacking.so.2 lacks a function of that.
 */
#include <stdlib.h>
#include <unistd.h>

#include "call.h"
#include "driver.h"
#include "meet.h"
#include "reduce.h"
#include "registration.h"

#define EXPORTED(member, name, arguments) EXPORT nccl_result name arguments;
NCCL_CALLS(EXPORTED)
#undef EXPORTED
#define EXPORTED(member, name, since, arguments) EXPORT nccl_result name arguments;
NCCL_EXTRAS(EXPORTED)
EXPORT const char *ncclGetErrorString(nccl_result result);
EXPORT const char *ncclGetLastError(nccl_comm comm);

/* ---- what needs no communicator ---- */

nccl_result ncclGetVersion(int *version) {
        *version = comm_version();
        return NCCL_OK;
}

nccl_result ncclGetUniqueId(struct nccl_id *id) {
        CALL_BEGIN("ncclGetUniqueId");
        comm_id_new(id, false);
        return NCCL_OK;
}

const char *ncclGetErrorString(nccl_result result) {
        static const char *const text[] = {
                "no error",
                "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                "internal error - please report this issue to the NCCL developers",
                "invalid argument (run with NCCL_DEBUG=WARN for details)",
                "invalid usage (run with NCCL_DEBUG=WARN for details)",
                "remote process exited or there was a network error",
                "NCCL operation in progress",
        };

        return result >= 0 && (size_t)result < sizeof(text) / sizeof(text[0]) ? text[result]
                                                                              : "unknown result code";
}

const char *ncclGetLastError(nccl_comm comm) {
        return trouble_last();
}

/* The product makes no groups of calls. */
nccl_result ncclGroupStart(void) {
        return trouble_rule(NCCL_INVALID_USAGE, "a group is begun");
}

nccl_result ncclGroupEnd(void) {
        return trouble_rule(NCCL_INVALID_USAGE, "a group is ended");
}

/* ---- the beginning ---- */

nccl_result ncclCommInitRankConfig(nccl_comm *comm, int ranks, struct nccl_id id, int rank,
                                   struct nccl_config *config) {
        struct task task = { .run = meet };

        CALL_BEGIN("ncclCommInitRankConfig");
        if (comm == NULL || ranks < 1 || ranks > (int)BOARD_RANKS || rank < 0 || rank >= ranks)
                return trouble(NCCL_INVALID_ARGUMENT, "Invalid rank requested : %d/%d", rank, ranks);
        if (!comm_id_is(&id, false))
                return trouble(NCCL_INVALID_ARGUMENT, "the unique id is none of ncclGetUniqueId");
        nccl_result result = call_make(&task, config, comm);
        if (result != NCCL_OK)
                return result;
        comm_id_take(task.comm, &id);
        task.comm->rank = (unsigned)rank;
        task.comm->ranks = (unsigned)ranks;
        return task_submit(&task);
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *error) {
        CALL_BEGIN_ON(comm, call_check_known, "ncclCommGetAsyncError");
        if (error == NULL)
                return trouble(NCCL_INVALID_ARGUMENT, "ncclGetAsyncError : asyncError argument is NULL");
        *error = comm_result(comm);
        return NCCL_OK;
}

/* ---- the end ---- */

nccl_result ncclCommFinalize(nccl_comm comm) {
        struct task task = { .run = meet_finally, .comm = comm };

        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommFinalize");
        if (comm->state == COMM_REVOKED)
                return call_spoil(comm, trouble_rule(NCCL_INVALID_ARGUMENT,
                                                     "ncclCommFinalize of a communicator that was revoked"));
        return task_submit(&task);
}

static nccl_result run_destroy(struct task *task) {
        struct ncclComm *comm = task->comm;

        if (comm->state == COMM_READY)
                meet_neighbours(task);
        comm_drain(comm);
        comm_leave(comm);
        return NCCL_OK;
}

nccl_result ncclCommDestroy(nccl_comm comm) {
        struct task task = { .run = run_destroy, .comm = comm, .ends = true };

        CALL_BEGIN("ncclCommDestroy");
        if (comm == NULL)
                return NCCL_OK;
        nccl_result result = call_check_idle(comm, "ncclCommDestroy");
        if (result != NCCL_OK)
                return result;
        if (comm_is_at_work(comm))
                trouble_rule(NCCL_OK, "a communicator is destroyed while its collectives are under way");
        return task_submit(&task);
}

static nccl_result run_abort(struct task *task) {
        comm_settle(task->comm);
        comm_drain(task->comm);
        comm_leave(task->comm);
        return NCCL_OK;
}

nccl_result ncclCommAbort(nccl_comm comm) {
        struct task task = { .run = run_abort, .comm = comm, .ends = true };

        CALL_BEGIN("ncclCommAbort");
        if (comm == NULL)
                return NCCL_OK;
        nccl_result result = call_check_known(comm, "ncclCommAbort");
        if (result != NCCL_OK)
                return result;
        while (trouble_sticks("abort"))
                pause();
        comm->aborted = true;
        comm_interrupt(comm);
        return task_submit(&task);
}

/* The communicator stays, for its ranks to make others of it. */
static nccl_result run_revoke(struct task *task) {
        if (trouble_sticks("revoke"))
                comm_await_abort(task->comm);
        comm_drain(task->comm);
        comm_resume(task->comm);
        return NCCL_OK;
}

nccl_result ncclCommRevoke(nccl_comm comm, int flags) {
        struct task task = { .run = run_revoke, .comm = comm };

        CALL_BEGIN_ON(comm, call_check_known, "ncclCommRevoke");
        if (flags != 0 || comm->state == COMM_REVOKED || comm->state == COMM_FINALIZED)
                return trouble(NCCL_INVALID_ARGUMENT, "ncclCommRevoke : flags %d", flags);
        comm_interrupt(comm);
        comm_settle(comm);
        comm->state = COMM_REVOKED;
        return task_submit(&task);
}

/* ---- collectives ---- */

static nccl_result run_allreduce(struct task *task) {
        struct ncclComm *comm = task->comm;
        struct gpu_collective *what = &task->collective.what;
        cuda_result failed = CUDA_OK;

        if (trouble_sticks("collective"))
                comm_await_interrupt(comm);
        if (comm->stops)
                return trouble(NCCL_INTERNAL_ERROR, "the call was aborted");
        if (comm->ranks > 1) {
                what->number = comm->launched + 1;
                failed = fake_gpu_collective(task->collective.stream, what, comm->fd);
                comm->launched += failed == CUDA_OK;
        } else if (what->from != what->to) { /* src/device/onerank.cu */
                failed = driver()->copy(what->to, what->from, what->bytes, task->collective.stream);
        }
        return failed == CUDA_OK ? NCCL_OK : trouble(NCCL_CUDA_ERROR, "Cuda failure %d", failed);
}

/* Kernels for windows are there for sums of floats, but of the largest (src/sym_kernels.cc). Each rank looks
 * whether its own ranges are in windows, and reads from the others at the same places. */
static bool has_kernel_for_windows(const struct gpu_collective *what) {
        return what->operation == NCCL_SUM &&
               (what->type == NCCL_FLOAT16 || what->type == NCCL_BFLOAT16 || what->type == NCCL_FLOAT32);
}

static nccl_result check_allreduce(const struct ncclComm *comm, const struct gpu_collective *what) {
        cuda_device device = -1;

        if (reduce_size(what->type) == 0)
                return trouble(NCCL_INVALID_ARGUMENT, "AllReduce : invalid type %d", what->type);
        if (what->operation < NCCL_SUM || what->operation > NCCL_MIN)
                return trouble(NCCL_INVALID_ARGUMENT, "AllReduce : invalid reduction operation %d",
                               what->operation);
        if (driver()->context_device(&device) != CUDA_OK || device != comm->device)
                return trouble_rule(NCCL_CUDA_ERROR,
                                    "a collective in a thread without the communicator's GPU");
        if (what->from != what->to && what->from < what->to + what->bytes &&
            what->to < what->from + what->bytes)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "a collective on ranges that overlap in part");
        return NCCL_OK;
}

nccl_result ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, nccl_comm comm,
                          cuda_stream stream) {
        struct task task = { .run = run_allreduce, .comm = comm };

        CALL_BEGIN_ON(comm, call_check_alive, "ncclAllReduce");
        if (comm->state == COMM_REVOKED)
                return trouble(NCCL_INVALID_USAGE, "AllReduce: communicator was revoked");
        task.collective.what = (struct gpu_collective){ .from = (uintptr_t)from,
                                                        .to = (uintptr_t)to,
                                                        .count = count,
                                                        .bytes = count * reduce_size(type),
                                                        .type = type,
                                                        .operation = operation,
                                                        .rank = comm->rank,
                                                        .ranks = comm->ranks,
                                                        .ctas = (uint32_t)comm->ctas };
        task.collective.stream = stream;
        if (has_kernel_for_windows(&task.collective.what))
                task.collective.what.place =
                        registrations_place(comm, (uintptr_t)from, (uintptr_t)to, task.collective.what.bytes);
        nccl_result result = check_allreduce(comm, &task.collective.what);
        if (result != NCCL_OK)
                return call_spoil(comm, result);
        return task_submit(&task);
}
