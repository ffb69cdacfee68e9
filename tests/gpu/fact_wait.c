/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream that waits for a word in memory which two processes share and have both registered, or for an
 * event of another process: is it released, and how soon. The time is taken by one process alone, from its
 * own store or call to the answer that it sees.
 *
 * Nothing else runs on the card meanwhile, so these are the best cases.
 *
 * The page: word 0 is what a stream waits for, word 8 what it writes back; a cache line each.
 */
#include "clock.h"
#include "facts.h"
#include "latency.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        PAGE = 4096,
        GO = 0,     /* index of the word that is waited for */
        REPLY = 8,  /* and of the one written back */
        BATCH = 32, /* waits that are enqueued before the first one is released */
        BATCHES = 64,
        ROUNDS = 300,                      /* of what takes a message each */
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

/* Until when it is watched that a wait is one, before it is released. */
static int64_t look_until(unsigned round) {
        return clock_ns() + (round == 0 ? FIRST_LOOK_NS : LOOK_NS);
}

/* A stream whose reply comes before it was released did not wait. */
static void expect_no_reply(struct actor *actor, const struct page *page, uint64_t replied, unsigned round) {
        for (int64_t until = look_until(round); clock_ns() < until;)
                if (page_load(page, REPLY) != replied) {
                        actor_note(actor, "the stream did not wait, round %u", round);
                        actor_answer(actor, "no");
                }
}

static void send_page(struct actor *actor, int channel, const struct page *page) {
        struct message message = { .word = "page", .number = { page->size } };

        channel_send(actor, channel, &message, page->fd);
}

static struct page receive_page(struct actor *actor) {
        int fd;
        struct message message = channel_receive(actor, "page", &fd);

        return page_open(actor, fd, message.number[0]);
}

/* Has registered the page, too, and releases the other process' waits by stores of its CPU. */
void role_wait_releaser(struct actor *actor) {
        static int64_t samples[BATCH * BATCHES];
        struct page page;
        uint64_t n = 0;

        driver_open(actor);
        page = receive_page(actor);
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
        latency_note(actor, "from the store to the stream's reply seen by the same CPU", samples, n);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

void fact_wait_cpu_store(struct actor *actor) {
        struct peer releaser = peer_start(actor, "wait.releaser", false);
        struct page page;
        CUstream stream;
        uint64_t n = 0;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        page = page_new(actor, PAGE);
        send_page(actor, releaser.channel, &page);
        peer_receive(actor, &releaser, "registered", NULL);
        for (unsigned batch = 0; batch < BATCHES; batch++) {
                for (unsigned i = 0; i < BATCH; i++) {
                        n++;
                        CU(actor, cuStreamWaitValue64, stream, page.device + GO * 8, n,
                           CU_STREAM_WAIT_VALUE_GEQ);
                        CU(actor, cuStreamWriteValue64, stream, page.device + REPLY * 8, n,
                           CU_STREAM_WRITE_VALUE_DEFAULT);
                }
                expect_no_reply(actor, &page, n - BATCH, batch);
                channel_say(actor, releaser.channel, "enqueued");
                peer_receive(actor, &releaser, "released", NULL);
        }
        peer_receive(actor, &releaser, "done", NULL);
        actor_answer(actor, "yes");
}

static void send_event(struct actor *actor, int channel, CUevent event) {
        struct message message = { .word = "event" };
        CUipcEventHandle handle;

        CU(actor, cuIpcGetEventHandle, &handle, event);
        memcpy(message.bytes, &handle, sizeof handle);
        channel_send(actor, channel, &message, -1);
}

static CUevent receive_event(struct actor *actor, const struct message *message) {
        CUipcEventHandle handle;
        CUevent event;

        memcpy(&handle, message->bytes, sizeof handle);
        CU(actor, cuIpcOpenEventHandle, &event, handle);
        return event;
}

static CUevent shared_event(struct actor *actor) {
        CUevent event;

        CU(actor, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
        return event;
}

/* If an event after a wait is there before the release, the stream has not waited. */
static void expect_pending(struct actor *actor, CUevent event, unsigned round) {
        for (int64_t until = look_until(round); clock_ns() < until;)
                if (CU_TRY(actor, cuEventQuery, event) != CUDA_ERROR_NOT_READY) {
                        actor_note(actor, "the event was there before its stream was released, round %u",
                                   round);
                        actor_answer(actor, "no");
                }
}

/* Releases the other process by a store, and asks for the event that it has recorded after its wait. */
void role_wait_observer(struct actor *actor) {
        static int64_t samples[ROUNDS];
        struct message message;
        struct page page;
        CUevent event;

        driver_open(actor);
        page = receive_page(actor);
        message = channel_receive(actor, "event", NULL);
        event = receive_event(actor, &message);
        channel_say(actor, actor->channel, "registered");
        for (unsigned i = 0; i < ROUNDS; i++) {
                CUresult result;
                int64_t begin;

                channel_receive(actor, "enqueued", NULL);
                expect_pending(actor, event, i);
                begin = clock_ns();
                page_store(&page, GO, i + 1);
                while ((result = CU_TRY(actor, cuEventQuery, event)) == CUDA_ERROR_NOT_READY)
                        ;
                driver_check(actor, "cuEventQuery", result);
                samples[i] = clock_ns() - begin;
                channel_say(actor, actor->channel, "released");
        }
        latency_note(actor, "from the store to the other process' event seen by cuEventQuery", samples,
                     ROUNDS);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

void fact_wait_event_seen(struct actor *actor) {
        struct peer observer = peer_start(actor, "wait.observer", false);
        struct page page;
        CUstream stream;
        CUevent event;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        page = page_new(actor, PAGE);
        event = shared_event(actor);
        send_page(actor, observer.channel, &page);
        send_event(actor, observer.channel, event);
        peer_receive(actor, &observer, "registered", NULL);
        for (unsigned i = 0; i < ROUNDS; i++) {
                CU(actor, cuStreamWaitValue64, stream, page.device + GO * 8, i + 1, CU_STREAM_WAIT_VALUE_GEQ);
                CU(actor, cuEventRecord, event, stream);
                channel_say(actor, observer.channel, "enqueued");
                peer_receive(actor, &observer, "released", NULL);
                driver_sync(actor, stream);
        }
        peer_receive(actor, &observer, "done", NULL);
        actor_answer(actor, "yes");
}

/* Records its event after a wait for the word, so that a store fires it. */
void role_wait_recorder(struct actor *actor) {
        struct page page;
        CUstream stream;
        CUevent event;

        driver_open(actor);
        stream = driver_stream(actor);
        page = receive_page(actor);
        event = shared_event(actor);
        send_event(actor, actor->channel, event);
        for (unsigned i = 0; i < ROUNDS; i++) {
                channel_receive(actor, "record", NULL);
                CU(actor, cuStreamWaitValue64, stream, page.device + GO * 8, i + 1, CU_STREAM_WAIT_VALUE_GEQ);
                CU(actor, cuEventRecord, event, stream);
                channel_say(actor, actor->channel, "recorded");
        }
        actor_stay(actor);
}

/* The wait is for another process' event; a store fires that event, and this stream's reply is awaited. */
void fact_wait_event_releases(struct actor *actor) {
        static int64_t samples[ROUNDS];
        struct peer recorder = peer_start(actor, "wait.recorder", false);
        struct message message;
        struct page page;
        CUstream stream;
        CUevent event;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        page = page_new(actor, PAGE);
        send_page(actor, recorder.channel, &page);
        message = peer_receive(actor, &recorder, "event", NULL);
        event = receive_event(actor, &message);
        for (unsigned i = 0; i < ROUNDS; i++) {
                int64_t begin;

                channel_say(actor, recorder.channel, "record");
                peer_receive(actor, &recorder, "recorded", NULL);
                CU(actor, cuStreamWaitEvent, stream, event, 0);
                CU(actor, cuStreamWriteValue64, stream, page.device + REPLY * 8, i + 1,
                   CU_STREAM_WRITE_VALUE_DEFAULT);
                expect_no_reply(actor, &page, i, i);
                begin = clock_ns();
                page_store(&page, GO, i + 1);
                await_reply(actor, &page, i + 1);
                samples[i] = clock_ns() - begin;
                driver_sync(actor, stream);
        }
        latency_note(actor,
                     "from the store, over the event of the other process' stream, to this stream's reply",
                     samples, ROUNDS);
        actor_answer(actor, "yes");
}
