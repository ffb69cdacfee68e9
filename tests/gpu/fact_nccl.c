/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL on one GPU: how long a communicator takes to make, use and abort. NCCL does not mean two ranks to
 * share a GPU. From 2.30.3 on a setting allows it; before, ranks that believe themselves to be on different
 * hosts get by, over sockets on loopback. That shows whether things work, and nothing about their speed on
 * real hosts, or beside other load.
 */
#include "clock.h"
#include "facts.h"
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        WORDS = 1 << 20,
        ROUNDS = 20,
        MULTI_RANK_VERSION = 23003, /* the first one with NCCL_MULTI_RANK_GPU_ENABLE */
        PENDING_MS = 200, /* for so long an allreduce waits for the other rank before it is aborted */
        MANY = 200,       /* allreduces of which the other rank is killed in the middle */
        NOTICE_MS = 3000, /* for so long an error is awaited after a rank was killed */
};

struct rank {
        struct nccl nccl;
        struct nccl_comm *comm;
        int rank;
        CUstream stream;
        CUdeviceptr words;
        double init_ms;
};

static double ms_since(int64_t begin) {
        return (double)(clock_ns() - begin) / 1e6;
}

/* Before the library reads them for the first time. */
static const char *rank_set_environment(const struct rank *rank) {
        char host[32];

        setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
        setenv("NCCL_NET", "Socket", 1);
        setenv("NCCL_NET_PLUGIN", "none", 1);
        setenv("NCCL_IB_DISABLE", "1", 1);
        setenv("NCCL_RAS_ENABLE", "0", 1);
        if (rank->nccl.version >= MULTI_RANK_VERSION) {
                setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
                setenv("NCCL_MAX_CTAS", "8", 1);
                return "NCCL_MULTI_RANK_GPU_ENABLE";
        }
        snprintf(host, sizeof host, "probe-%d", rank->rank);
        setenv("NCCL_HOSTID", host, 1);
        return "different NCCL_HOSTID, sockets on loopback";
}

static void rank_open_memory(struct actor *actor, struct rank *rank) {
        rank->stream = driver_stream(actor);
        CU(actor, cuMemAlloc, &rank->words, WORDS * sizeof(uint32_t));
}

static void rank_init(struct actor *actor, struct rank *rank, int ranks, const struct nccl_id *id) {
        int64_t begin = clock_ns();

        rank->comm = nccl_init(actor, &rank->nccl, ranks, rank->rank, id);
        rank->init_ms = ms_since(begin);
}

/* One allreduce and its end, in ns. Each rank brings its number plus 1. */
static int64_t rank_allreduce(struct actor *actor, struct rank *rank, uint32_t expected) {
        int64_t begin;
        uint32_t sum;

        driver_fill(actor, rank->stream, rank->words, WORDS * sizeof(uint32_t), (uint32_t)rank->rank + 1);
        begin = clock_ns();
        nccl_allreduce(actor, &rank->nccl, rank->comm, rank->words, WORDS, rank->stream);
        driver_sync(actor, rank->stream);
        begin = clock_ns() - begin;
        sum = driver_read32(actor, rank->stream, rank->words + (WORDS - 1) * sizeof sum);
        if (sum != expected)
                actor_fail(actor, "rank %d: an allreduce gives %u instead of %u", rank->rank, sum, expected);
        return begin;
}

/* The first allreduce and ROUNDS more, as both ranks do them. */
static void rank_allreduces(struct actor *actor, struct rank *rank, uint32_t expected) {
        int64_t samples[ROUNDS], first = rank_allreduce(actor, rank, expected);

        for (unsigned i = 0; i < ROUNDS; i++)
                samples[i] = rank_allreduce(actor, rank, expected);
        samples_sort(samples, ROUNDS);
        if (rank->rank == 0)
                actor_note(actor, "init %.0f ms; allreduce of 4 MiB: the first %.2f ms, p50 %.2f ms of %d",
                           rank->init_ms, (double)first / 1e6,
                           (double)samples_percentile(samples, ROUNDS, 50) / 1e6, ROUNDS);
}

/* The context is as good as before. */
static void rank_check(struct actor *actor, struct rank *rank, const char *what) {
        driver_sync(actor, rank->stream);
        driver_fill(actor, rank->stream, rank->words, WORDS * sizeof(uint32_t), 7);
        if (driver_read32(actor, rank->stream, rank->words) != 7)
                actor_fail(actor, "memory is not what was written to it after %s", what);
        actor_note(actor, "stream and context are good after it");
}

/* Notes how long it took. */
static void rank_abort(struct actor *actor, struct rank *rank, const char *when) {
        int64_t begin = clock_ns();
        double ms;
        int result;

        actor_doing(actor, "ncclCommAbort");
        result = rank->nccl.CommAbort(rank->comm);
        actor_doing(actor, NULL);
        ms = ms_since(begin);
        actor_note(actor, "abort %s: %.1f ms (%s)", when, ms,
                   result == NCCL_SUCCESS ? "success" : nccl_why(&rank->nccl, NULL, result));
        rank_check(actor, rank, "an abort");
}

/* The only one of its communicator. */
static void rank_begin_alone(struct actor *actor, struct rank *rank) {
        struct nccl_id id;
        int result;

        nccl_open(actor, &rank->nccl);
        rank_set_environment(rank);
        driver_open(actor);
        rank_open_memory(actor, rank);
        actor_doing(actor, "ncclGetUniqueId");
        result = rank->nccl.GetUniqueId(&id);
        nccl_await(actor, &rank->nccl, NULL, "ncclGetUniqueId", result);
        rank_init(actor, rank, 1, &id);
}

/* Whether NCCL makes a window of memory that it has allocated, and sums are right in it. It says that it has
 * begun as if it had made one already. */
void fact_nccl_window(struct actor *actor) {
        static struct rank rank;
        void *memory = NULL, *window = NULL;
        int64_t begin;
        int result;

        rank_begin_alone(actor, &rank);
        if (rank.nccl.MemAlloc == NULL || rank.nccl.CommWindowRegister == NULL ||
            rank.nccl.CommWindowDeregister == NULL)
                actor_skip(actor, "this NCCL has no windows");
        actor_doing(actor, "ncclMemAlloc");
        result = rank.nccl.MemAlloc(&memory, WORDS * sizeof(uint32_t));
        nccl_await(actor, &rank.nccl, NULL, "ncclMemAlloc", result);
        rank.words = (CUdeviceptr)memory;
        begin = clock_ns();
        actor_doing(actor, "ncclCommWindowRegister");
        result = rank.nccl.CommWindowRegister(rank.comm, memory, WORDS * sizeof(uint32_t), &window,
                                              NCCL_WIN_COLL_SYMMETRIC);
        nccl_await(actor, &rank.nccl, rank.comm, "ncclCommWindowRegister",
                   result == NCCL_SUCCESS ? NCCL_IN_PROGRESS : result);
        actor_note(actor, "registering took %.1f ms", ms_since(begin));
        rank_allreduces(actor, &rank, 1);
        actor_doing(actor, "ncclCommWindowDeregister");
        result = rank.nccl.CommWindowDeregister(rank.comm, window);
        nccl_await(actor, &rank.nccl, rank.comm, "ncclCommWindowDeregister", result);
        rank_abort(actor, &rank, "when its window is gone");
        actor_answer(actor, window != NULL ? "yes" : "no");
}

/* Rank 1 of two. */
void role_nccl_rank(struct actor *actor) {
        static struct rank rank = { .rank = 1 };
        struct message message = channel_receive(actor, "id", NULL);
        struct nccl_id id;
        const char *problem;

        actor_doing(actor, "loading libnccl");
        problem = nccl_load(&rank.nccl, actor->options->nccl[0]);
        if (problem != NULL)
                actor_fail(actor, "rank 1: %s", problem);
        rank_set_environment(&rank);
        driver_open(actor);
        rank_open_memory(actor, &rank);
        memcpy(&id, message.bytes, sizeof id);
        rank_init(actor, &rank, 2, &id);
        rank_allreduces(actor, &rank, 3);
        channel_say(actor, actor->channel, "reduced");
        message = channel_receive(actor, "go on", NULL);
        for (uint64_t i = 0; i < message.number[0]; i++)
                nccl_allreduce(actor, &rank.nccl, rank.comm, rank.words, WORDS, rank.stream);
        channel_say(actor, actor->channel, "enqueued");
        channel_receive(actor, "abort", NULL);
        actor_doing(actor, "ncclCommAbort");
        rank.nccl.CommAbort(rank.comm);
        channel_say(actor, actor->channel, "aborted");
        actor_stay(actor);
}

/* Rank 0 of two, up to the point where both have reduced. The peer loads the same library. */
static struct peer rank_begin_two(struct actor *actor, struct rank *rank) {
        static struct options same;
        struct message message = { .word = "id" };
        struct nccl_id id;
        struct peer peer;
        int result;

        nccl_open(actor, &rank->nccl);
        actor_note(actor, "%s", rank_set_environment(rank));
        same = *actor->options;
        same.nccl[0] = rank->nccl.path;
        same.n_nccl = 1;
        actor->options = &same;
        peer = peer_start(actor, "nccl.rank", false);
        driver_open(actor);
        rank_open_memory(actor, rank);
        actor_doing(actor, "ncclGetUniqueId");
        result = rank->nccl.GetUniqueId(&id);
        nccl_await(actor, &rank->nccl, NULL, "ncclGetUniqueId", result);
        memcpy(message.bytes, &id, sizeof id);
        channel_send(actor, peer.channel, &message, -1);
        rank_init(actor, rank, 2, &id);
        rank_allreduces(actor, rank, 3);
        peer_receive(actor, &peer, "reduced", NULL);
        return peer;
}

/* The other rank enqueues n allreduces, this one another one, which ends only if the other one joins. */
static void rank_enqueue(struct actor *actor, struct rank *rank, struct peer *peer, uint64_t n) {
        struct message message = { .word = "go on", .number = { n } };

        channel_send(actor, peer->channel, &message, -1);
        for (uint64_t i = 0; i < n + 1; i++)
                nccl_allreduce(actor, &rank->nccl, rank->comm, rank->words, WORDS, rank->stream);
        peer_receive(actor, peer, "enqueued", NULL);
}

/* Watches for a while that the last allreduce does not end. */
static void rank_leave_pending(struct actor *actor, struct rank *rank) {
        int64_t until = clock_ns() + PENDING_MS * (int64_t)1000000;

        while (clock_ns() < until)
                if (CU_TRY(actor, cuStreamQuery, rank->stream) != CUDA_ERROR_NOT_READY)
                        actor_fail(actor, "an allreduce ended although the other rank did not join it");
}

void fact_nccl_two_ranks(struct actor *actor) {
        static struct rank rank;
        struct peer peer = rank_begin_two(actor, &rank);

        rank_enqueue(actor, &rank, &peer, 0);
        rank_leave_pending(actor, &rank);
        rank_abort(actor, &rank, "of an allreduce that the other rank did not join");
        channel_say(actor, peer.channel, "abort");
        peer_receive(actor, &peer, "aborted", NULL);
        actor_answer(actor, "yes");
}

/* A revoked communicator touches no memory any more, and is freed later. */
void fact_nccl_revoked(struct actor *actor) {
        static struct rank rank;
        struct peer peer = rank_begin_two(actor, &rank);
        int64_t begin;
        int result;

        if (rank.nccl.CommRevoke == NULL)
                actor_skip(actor, "this NCCL has no ncclCommRevoke");
        rank_enqueue(actor, &rank, &peer, 0);
        rank_leave_pending(actor, &rank);
        begin = clock_ns();
        actor_doing(actor, "ncclCommRevoke");
        result = rank.nccl.CommRevoke(rank.comm, 0);
        nccl_await(actor, &rank.nccl, rank.comm, "ncclCommRevoke", result);
        driver_sync(actor, rank.stream);
        actor_note(actor, "revoke of an allreduce that the other rank did not join: %.1f ms",
                   ms_since(begin));
        rank_check(actor, &rank, "a revoke");
        rank_abort(actor, &rank, "after it");
        channel_say(actor, peer.channel, "abort");
        peer_receive(actor, &peer, "aborted", NULL);
        actor_answer(actor, "yes");
}

/* Asks the communicator until it has an error. */
static void rank_note_error(struct actor *actor, struct rank *rank, int64_t begin) {
        int state = NCCL_SUCCESS, result;

        actor_doing(actor, "ncclCommGetAsyncError");
        do
                result = rank->nccl.CommGetAsyncError(rank->comm, &state);
        while (result == NCCL_SUCCESS && (state == NCCL_SUCCESS || state == NCCL_IN_PROGRESS) &&
               ms_since(begin) < NOTICE_MS);
        actor_doing(actor, NULL);
        if (result != NCCL_SUCCESS)
                actor_note(actor, "ncclCommGetAsyncError failed %.1f ms after the other rank was killed: %s",
                           ms_since(begin), nccl_why(&rank->nccl, rank->comm, result));
        else if (state == NCCL_SUCCESS || state == NCCL_IN_PROGRESS)
                actor_note(actor, "no error within %d ms after the other rank was killed", NOTICE_MS);
        else
                actor_note(actor, "\"%s\" %.1f ms after the other rank was killed",
                           rank->nccl.GetErrorString(state), ms_since(begin));
}

/* The other rank is killed with allreduces under way: is it noticed, and can this rank abort? */
void fact_nccl_peer_killed(struct actor *actor) {
        static struct rank rank;
        struct peer peer = rank_begin_two(actor, &rank);
        int64_t begin;

        rank_enqueue(actor, &rank, &peer, MANY);
        begin = clock_ns();
        peer_kill(actor, &peer);
        rank_note_error(actor, &rank, begin);
        rank_abort(actor, &rank, "after it");
        actor_answer(actor, "yes");
}
