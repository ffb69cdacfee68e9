/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with kernels at once. Each runs one thread that counts in memory of the host, and one of the
 * processes looks at both counts all the time: who counts runs. So it sees whether they run at the same time
 * or in turns, and how long a turn is.
 */
#include "clock.h"
#include "facts.h"
#include "watch.h"

enum {
        LOOK_NS = 20 * 1000, /* between two looks */
        RUN_NS = 500 * 1000 * 1000,
        BUSY_NS = 1500 * 1000 * 1000,
        LAUNCHES = 400,
};

static void role_other(struct actor *actor) {
        struct message message = { .word = "ready" };
        struct counter counter;
        cuda_stream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        counter = counter_new(actor, stream);
        driver_warm_up(actor, stream);
        message.number[0] = counter.page.size;
        channel_send(actor, actor->channel, &message, counter.page.fd);
        channel_receive(actor, "go", NULL);
        counter_launch(actor, stream, &counter, RUN_NS);
        driver_sync(actor, stream);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

static void look_until_over(struct watch *w, const struct page *const page[2]) {
        int64_t begin = clock_ns(), now = begin;
        uint64_t word[2] = { 0, 0 };
        bool moves[2];

        do {
                for (begin = now; now - begin < LOOK_NS;)
                        now = clock_ns();
                for (unsigned i = 0; i < 2; i++) {
                        moves[i] = page_word(page[i]) != word[i];
                        word[i] = page_word(page[i]);
                }
        } while (!watch_note(w, moves, begin, now));
}

static _Noreturn void answer_watch(struct actor *actor, struct watch *w) {
        const struct watch_totals *t = watch_end(w);

        if (t == NULL)
                actor_answer(actor, "one after the other");
        double all = (double)(t->both + t->alone[0] + t->alone[1] + t->neither);
        actor_note(actor,
                   "of %.1f ms in which both kernels were under way: both ran %.1f %%, only the one %.1f %%, "
                   "only the other %.1f %%, neither %.1f %%",
                   all / 1e6, 100 * (double)t->both / all, 100 * (double)t->alone[0] / all,
                   100 * (double)t->alone[1] / all, 100 * (double)t->neither / all);
        if ((double)t->neither > all / 2)
                actor_skip(actor, "they count too slowly to tell");
        if ((double)t->both > all / 2)
                actor_answer(actor, "at once");
        if (t->turns == 0)
                actor_answer(actor, "in turns");
        actor_answer(actor, "in turns of %.3f ms",
                     actor_note_latency(actor, "turns", w->turn, t->turns) / 1e3);
}

void fact_slices(struct actor *actor) {
        static struct watch watch;
        struct peer other = peer_start(actor, "slices.other", role_other, false);
        struct counter counter;
        struct message message;
        struct page page;
        cuda_stream stream;
        int fd;

        driver_open(actor);
        stream = driver_stream(actor);
        counter = counter_new(actor, stream);
        driver_warm_up(actor, stream);
        message = peer_receive(actor, &other, "ready", &fd);
        page = page_open(actor, fd, message.number[0]);
        channel_say(actor, other.channel, "go");
        counter_launch(actor, stream, &counter, RUN_NS);
        look_until_over(&watch, (const struct page *const[2]){ &counter.page, &page });
        driver_sync(actor, stream);
        peer_receive(actor, &other, "done", NULL);
        answer_watch(actor, &watch);
}

/* One long kernel; says so once it runs. */
static void role_slices_busy(struct actor *actor) {
        struct counter counter;
        cuda_stream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        counter = counter_new(actor, stream);
        channel_say(actor, actor->channel, "ready");
        channel_receive(actor, "go", NULL);
        counter_launch(actor, stream, &counter, BUSY_NS);
        for (unsigned turn = 0; page_word(&counter.page) == 0; turn++)
                actor_spin(actor, turn);
        channel_say(actor, actor->channel, "running");
        driver_sync(actor, stream);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

/* Launches of a kernel that does nothing, each waited for: LAUNCHES of them, or as many as fit into BUSY_NS /
 * 2. */
static size_t time_launches(struct actor *actor, cuda_stream stream, int64_t *samples) {
        int64_t until = clock_ns() + BUSY_NS / 2;
        size_t n = 0;

        do {
                int64_t begin = clock_ns();

                driver_launch(actor, stream, KERNEL_IDLE, NULL);
                driver_sync(actor, stream);
                samples[n++] = clock_ns() - begin;
        } while (n < LAUNCHES && clock_ns() < until);
        return n;
}

/* Measures by how much a long kernel of another process delays a short one. */
void fact_slices_launch(struct actor *actor) {
        static int64_t idle[LAUNCHES], busy[LAUNCHES];
        struct peer other = peer_start(actor, "slices.busy", role_slices_busy, false);
        size_t n_idle, n_busy;
        cuda_stream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        peer_receive(actor, &other, "ready", NULL);
        n_idle = time_launches(actor, stream, idle);
        channel_say(actor, other.channel, "go");
        peer_receive(actor, &other, "running", NULL);
        n_busy = time_launches(actor, stream, busy);
        peer_receive(actor, &other, "done", NULL);
        actor_note_latency(actor, "launch and wait beside an idle process", idle, n_idle);
        actor_answer(actor, "%.1f us",
                     actor_note_latency(actor, "beside another process' kernel", busy, n_busy));
}
