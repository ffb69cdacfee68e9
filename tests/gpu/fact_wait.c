/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream that waits for a word in memory which two processes share and have both registered: is it
 * released, and how soon. The time is taken by one process alone, from its own store to the answer that it
 * sees.
 *
 * Nothing else runs on the card meanwhile, so this is the best case.
 *
 * The page: word 0 is what a stream waits for, word 8 what it writes back; a cache line each.
 */
#include "clock.h"
#include "facts.h"

enum {
        PAGE = 4096,
        GO = 0,     /* index of the word that is waited for */
        REPLY = 8,  /* and of the one written back */
        BATCH = 32, /* waits that are enqueued before the first one is released */
        BATCHES = 64,
        FIRST_LOOK_NS = 100 * 1000 * 1000, /* for so long nothing must happen before the first release, */
        LOOK_NS = 200 * 1000,              /* and for so long before each later one */
};

static void page_store(struct page *page, unsigned word, uint64_t value) {
        __atomic_store_n(&page->host[word], value, __ATOMIC_SEQ_CST);
}

static uint64_t page_load(const struct page *page, unsigned word) {
        return __atomic_load_n(&page->host[word], __ATOMIC_ACQUIRE);
}

/* Spins until the reply is there: with a CPU for itself it sees it at once, and without it lets others run.
 * */
static void await_reply(struct actor *actor, const struct page *page, uint64_t value) {
        actor_doing(actor, "spinning for the stream's reply");
        for (unsigned turn = 0; page_load(page, REPLY) < value; turn++)
                actor_spin(actor, turn);
        actor_doing(actor, NULL);
}

/* A stream whose reply comes before it was released did not wait. It is watched for longer at first. */
static void expect_no_reply(struct actor *actor, const struct page *page, uint64_t replied, unsigned batch) {
        for (int64_t until = clock_ns() + (batch == 0 ? FIRST_LOOK_NS : LOOK_NS); clock_ns() < until;)
                if (page_load(page, REPLY) != replied) {
                        actor_note(actor, "the stream did not wait, batch %u", batch);
                        actor_answer(actor, "no");
                }
}

/* Has registered the page, too, and releases the other process' waits by stores of its CPU. */
static void role_wait_releaser(struct actor *actor) {
        static int64_t samples[BATCH * BATCHES];
        struct message message;
        struct page page;
        int fd;
        uint64_t n = 0;

        driver_open(actor);
        message = channel_receive(actor, "page", &fd);
        page = page_open(actor, fd, message.number[0]);
        channel_say(actor, actor->channel, "registered");
        for (unsigned batch = 0; batch < BATCHES; batch++) {
                channel_receive(actor, "enqueued", NULL);
                for (unsigned i = 0; i < BATCH; i++) {
                        int64_t begin = clock_ns();

                        page_store(&page, GO, n + 1);
                        await_reply(actor, &page, n + 1);
                        samples[n++] = clock_ns() - begin;
                }
                channel_say(actor, actor->channel, "released");
        }
        actor_note_latency(actor, "from the store to the stream's reply seen by the same CPU", samples, n);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

void fact_wait_cpu_store(struct actor *actor) {
        struct peer releaser = peer_start(actor, "wait.releaser", role_wait_releaser, false);
        struct message message = { .word = "page", .number = { PAGE } };
        struct page page;
        cuda_stream stream;
        uint64_t n = 0;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        page = page_new(actor, PAGE);
        channel_send(actor, releaser.channel, &message, page.fd);
        peer_receive(actor, &releaser, "registered", NULL);
        for (unsigned batch = 0; batch < BATCHES; batch++) {
                for (unsigned i = 0; i < BATCH; i++) {
                        n++;
                        CU(actor, wait_value, stream, page.device + GO * 8, n, DRIVER_WAIT_VALUE_GEQ);
                        CU(actor, write_value, stream, page.device + REPLY * 8, n, 0);
                }
                expect_no_reply(actor, &page, n - BATCH, batch);
                channel_say(actor, releaser.channel, "enqueued");
                peer_receive(actor, &releaser, "released", NULL);
        }
        peer_receive(actor, &releaser, "done", NULL);
        actor_answer(actor, "yes");
}
