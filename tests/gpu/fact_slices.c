/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with kernels at once. Each runs one thread that looks at the GPU's clock all the time and
 * notes each gap: then it did not run. From both records one sees whether they run at the same time or in
 * turns, and how long a turn is.
 */
#include "clock.h"
#include "facts.h"
#include "latency.h"
#include "runs.h"

enum {
        RECORD_BYTES = (RUNS_RECORD * 8 + 65535) / 65536 * 65536, /* whole pages, of any size in use */
        LEAST_GAP_NS = 20 * 1000,
        RUN_NS = 500 * 1000 * 1000,
        BUSY_NS = 1500 * 1000 * 1000,
        LAUNCHES = 400,
};

static void launch_gaps(struct actor *actor, CUstream stream, const struct page *page) {
        CUdeviceptr record = page->device;
        uint64_t max = RUNS_GAPS, ns = RUN_NS, least = LEAST_GAP_NS;
        void *arguments[] = { &record, &max, &ns, &least };

        driver_launch(actor, stream, KERNEL_GAPS, arguments);
}

void role_slices_other(struct actor *actor) {
        struct message message = { .word = "ready", .number = { RECORD_BYTES } };
        struct page page;
        CUstream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        page = page_new(actor, RECORD_BYTES);
        driver_warm_up(actor, stream);
        channel_send(actor, actor->channel, &message, page.fd);
        channel_receive(actor, "go", NULL);
        launch_gaps(actor, stream, &page);
        driver_sync(actor, stream);
        channel_say(actor, actor->channel, "done");
        actor_stay(actor);
}

static _Noreturn void answer_runs(struct actor *actor, const struct runs *mine, const struct runs *theirs) {
        static int64_t samples[RUNS_SAMPLES];
        uint64_t from = mine->begin > theirs->begin ? mine->begin : theirs->begin;
        uint64_t to = mine->end < theirs->end ? mine->end : theirs->end;
        uint64_t both, one, other;
        double window = (double)(to - from);
        size_t n = 0;

        if (to <= from) {
                actor_note(actor, "one kernel ended before the other began");
                actor_answer(actor, "one after the other");
        }
        both = runs_common(mine, theirs, from, to);
        one = runs_alone(mine, from, to, samples, &n);
        other = runs_alone(theirs, from, to, samples, &n);
        actor_note(actor,
                   "of %.1f ms in which both kernels were under way: both ran %.1f %%, the one %.1f %%, "
                   "the other %.1f %%, "
                   "neither %.1f %%",
                   window / 1e6, 100 * (double)both / window, 100 * (double)one / window,
                   100 * (double)other / window, 100 * (window - (double)(one + other - both)) / window);
        if (n > 0) {
                samples_sort(samples, n);
                actor_note(actor, "%zu turns: p50 %.3f ms, p99 %.3f ms, longest %.3f ms", n,
                           (double)samples_percentile(samples, n, 50) / 1e6,
                           (double)samples_percentile(samples, n, 99) / 1e6, (double)samples[n - 1] / 1e6);
        }
        if ((double)both > window / 2)
                actor_answer(actor, "at once");
        if (n == 0)
                actor_answer(actor, "in turns");
        actor_answer(actor, "in turns of %.3f ms", (double)samples_percentile(samples, n, 50) / 1e6);
}

void fact_slices(struct actor *actor) {
        static struct runs mine, theirs;
        struct peer other = peer_start(actor, "slices.other", false);
        struct page page, other_page;
        struct message message;
        CUstream stream;
        int fd;

        driver_open(actor);
        stream = driver_stream(actor);
        page = page_new(actor, RECORD_BYTES);
        driver_warm_up(actor, stream);
        message = peer_receive(actor, &other, "ready", &fd);
        other_page = page_open(actor, fd, message.number[0]);
        channel_say(actor, other.channel, "go");
        launch_gaps(actor, stream, &page);
        driver_sync(actor, stream);
        peer_receive(actor, &other, "done", NULL);
        if (!runs_read(&mine, page.host) || !runs_read(&theirs, other_page.host))
                actor_fail(actor, "the record of a kernel makes no sense");
        answer_runs(actor, &mine, &theirs);
}

/* One long kernel; says so once it runs. */
void role_slices_busy(struct actor *actor) {
        struct counter counter;
        CUstream stream;

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
static size_t time_launches(struct actor *actor, CUstream stream, int64_t *samples) {
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
        struct peer other = peer_start(actor, "slices.busy", false);
        size_t n_idle, n_busy;
        CUstream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        peer_receive(actor, &other, "ready", NULL);
        n_idle = time_launches(actor, stream, idle);
        channel_say(actor, other.channel, "go");
        peer_receive(actor, &other, "running", NULL);
        n_busy = time_launches(actor, stream, busy);
        peer_receive(actor, &other, "done", NULL);
        latency_note(actor, "launch and wait beside an idle process", idle, n_idle);
        actor_answer(actor, "%.1f us", latency_note(actor, "beside another process' kernel", busy, n_busy));
}
