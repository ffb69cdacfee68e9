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
};

struct rank {
        struct nccl nccl;
        nccl_comm comm;
        int rank;
        cuda_stream stream;
        cuda_address words;
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
        CU(actor, allocate, &rank->words, WORDS * sizeof(uint32_t));
}

static void rank_init(struct actor *actor, struct rank *rank, int ranks, const struct nccl_id *id) {
        struct nccl_config config = NCCL_CONFIG;
        int64_t begin = clock_ns();

        config.blocking = 0;
        NCCL(actor, &rank->nccl, rank->comm, "ncclCommInitRankConfig",
             rank->nccl.init(&rank->comm, ranks, *id, rank->rank, &config));
        rank->init_ms = ms_since(begin);
}

/* One allreduce and its end, in ns. Each rank brings its number plus 1. */
static int64_t rank_allreduce(struct actor *actor, struct rank *rank, uint32_t expected) {
        int64_t begin;
        uint32_t sum;

        driver_fill(actor, rank->stream, rank->words, WORDS * sizeof(uint32_t), (uint32_t)rank->rank + 1);
        begin = clock_ns();
        call_allreduce(actor, &rank->nccl, rank->comm, rank->words, WORDS, rank->stream);
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

        NCCL(actor, &rank->nccl, NULL, "ncclCommAbort", rank->nccl.abort(rank->comm));
        actor_note(actor, "abort %s: %.1f ms", when, ms_since(begin));
        rank_check(actor, rank, "an abort");
}

/* Before it begins, the library is loaded, and has its environment. */
static void rank_open(struct actor *actor, struct rank *rank) {
        library_open(actor, &rank->nccl);
        actor_note(actor, "%s", rank_set_environment(rank));
        driver_open(actor);
        rank_open_memory(actor, rank);
}

static struct nccl_id rank_make_id(struct actor *actor, struct rank *rank) {
        struct nccl_id id;

        NCCL(actor, &rank->nccl, NULL, "ncclGetUniqueId", rank->nccl.unique_id(&id));
        return id;
}

/* Whether NCCL makes a window of memory that it has allocated, and sums are right in it. It says that it has
 * begun as if it had made one already. */
void fact_nccl_window(struct actor *actor) {
        static struct rank rank;
        void *memory = NULL, *window = NULL;

        rank_open(actor, &rank);
        struct nccl_id id = rank_make_id(actor, &rank);
        rank_init(actor, &rank, 1, &id);
        rank_allreduces(actor, &rank, 1);
        if (rank.nccl.mem_alloc == NULL || rank.nccl.register_window == NULL ||
            rank.nccl.deregister_window == NULL)
                actor_skip(actor, "this NCCL has no windows");
        NCCL(actor, &rank.nccl, NULL, "ncclMemAlloc", rank.nccl.mem_alloc(&memory, WORDS * sizeof(uint32_t)));
        rank.words = (uintptr_t)memory;
        int64_t begin = clock_ns();
        NCCL(actor, &rank.nccl, rank.comm, "ncclCommWindowRegister",
             rank.nccl.register_window(rank.comm, memory, WORDS * sizeof(uint32_t), &window,
                                       NCCL_WINDOW_SYMMETRIC));
        NCCL(actor, &rank.nccl, rank.comm, "the window", NCCL_IN_PROGRESS);
        actor_note(actor, "registering took %.1f ms", ms_since(begin));
        rank_allreduces(actor, &rank, 1);
        NCCL(actor, &rank.nccl, rank.comm, "ncclCommWindowDeregister",
             rank.nccl.deregister_window(rank.comm, window));
        rank_abort(actor, &rank, "when its window is gone");
        actor_answer(actor, window != NULL ? "yes" : "no");
}

/* Rank 1 of two. */
static void role_nccl_rank(struct actor *actor) {
        static struct rank rank = { .rank = 1 };
        struct message message = channel_receive(actor, "id", NULL);
        struct nccl_id id;

        rank_open(actor, &rank);
        memcpy(&id, message.bytes, sizeof id);
        rank_init(actor, &rank, 2, &id);
        rank_allreduces(actor, &rank, 3);
        channel_say(actor, actor->channel, "reduced");
        channel_receive(actor, "abort", NULL);
        NCCL(actor, &rank.nccl, NULL, "ncclCommAbort", rank.nccl.abort(rank.comm));
        channel_say(actor, actor->channel, "aborted");
        actor_stay(actor);
}

/* Rank 0 of two, which both have reduced, and have another allreduce under way, which the other rank does not
 * join. It is watched for a while that it does not end. */
static struct peer rank_begin_two(struct actor *actor, struct rank *rank) {
        struct peer peer = peer_start(actor, "nccl.rank", role_nccl_rank, false);
        struct message message = { .word = "id" };

        rank_open(actor, rank);
        struct nccl_id id = rank_make_id(actor, rank);
        memcpy(message.bytes, &id, sizeof id);
        channel_send(actor, peer.channel, &message, -1);
        rank_init(actor, rank, 2, &id);
        rank_allreduces(actor, rank, 3);
        peer_receive(actor, &peer, "reduced", NULL);
        call_allreduce(actor, &rank->nccl, rank->comm, rank->words, WORDS, rank->stream);
        for (int64_t begin = clock_ns(); ms_since(begin) < PENDING_MS;)
                if (CU_TRY(actor, stream_query, rank->stream) != CUDA_NOT_READY)
                        actor_fail(actor, "an allreduce ended although the other rank did not join it");
        return peer;
}

static _Noreturn void rank_end_two(struct actor *actor, struct peer *peer) {
        channel_say(actor, peer->channel, "abort");
        peer_receive(actor, peer, "aborted", NULL);
        actor_answer(actor, "yes");
}

void fact_nccl_two_ranks(struct actor *actor) {
        static struct rank rank;
        struct peer peer = rank_begin_two(actor, &rank);

        rank_abort(actor, &rank, "of an allreduce that the other rank did not join");
        rank_end_two(actor, &peer);
}

/* A revoked communicator touches no memory any more, and is freed later. */
void fact_nccl_revoked(struct actor *actor) {
        static struct rank rank;
        struct peer peer = rank_begin_two(actor, &rank);
        int64_t begin = clock_ns();

        if (rank.nccl.revoke == NULL)
                actor_skip(actor, "this NCCL has no ncclCommRevoke");
        NCCL(actor, &rank.nccl, rank.comm, "ncclCommRevoke", rank.nccl.revoke(rank.comm, 0));
        driver_sync(actor, rank.stream);
        actor_note(actor, "revoke of an allreduce that the other rank did not join: %.1f ms",
                   ms_since(begin));
        rank_check(actor, &rank, "a revoke");
        rank_abort(actor, &rank, "after it");
        rank_end_two(actor, &peer);
}
