/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is killed while its kernel writes, to memory that it shares with a survivor. Do writes go on
 * after the survivor has read the end of file on its socket, after its pidfd says that it is gone, and for
 * how long? Descriptors are closed one after the other, so there are two sockets: one that the writer has had
 * from its begin, and one that it made after it had opened the driver. The kernel counts in two places: a
 * word of host memory, which the survivor watches with its CPU, and a word of device memory, of which it
 * takes copies all the time. The kernel ends by itself after a while, should nothing else end it.
 */
#include "clock.h"
#include "facts.h"
#include "vmm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        KILLS = 3,
        PAGE = 65536,
        QUEUED = 100,
};

static const uint64_t long_ns = 4000000000; /* of one kernel */
static const uint64_t queued_ns = 40000000; /* of each of QUEUED */
static const int64_t watch_ns = 1000000000; /* at least, after the kill */
static const int64_t quiet_ns = 300000000;  /* nothing was written for so long: it has ended */

/* All times are ns after the kill; -1: not yet, or never. */
struct sign { /* that a process is gone */
        int64_t seen;
        bool based;          /* a copy that was enqueued after it has come: */
        uint64_t base;       /* what that one held */
        int64_t last_device; /* end of the last copy that held something else */
};

struct watch {
        struct peer *writer;
        int pidfd; /* -1: this kernel has none; the end of a child can be asked for, too */
        int64_t begin;
        int younger; /* socket that the writer made after it had opened the driver; its own channel is older
                      */
        struct sign older_end, younger_end, gone;
        const struct page *page; /* that the writer counts in */
        uint64_t word;           /* last seen there */
        int64_t last_host;       /* when it last changed */
        struct page copy;        /* where copies of the counter in device memory go */
        cuda_address counter;
        int64_t copy_begin; /* of the one under way; -1: none */
        cuda_stream stream;
};

/* A writer of either kind counts in memory that the survivor sees, until it is killed. */
static _Noreturn void write_until_killed(struct actor *actor, const struct vmm *vmm, unsigned kernels,
                                         uint64_t ns) {
        cuda_address counter = vmm->address;
        cuda_stream stream = driver_stream(actor);
        struct page page = page_new(actor, PAGE);
        struct message message = { .word = "running", .number = { PAGE } }, younger = { .word = "younger" };
        int ends[2];

        for (unsigned i = 0; i < kernels; i++)
                driver_launch(actor, stream, KERNEL_COUNT, (void *[]){ &counter, &page.device, &ns });
        channel_send(actor, actor->channel, &message, page.fd);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                actor_fail(actor, "socketpair: %s", strerror(errno));
        channel_send(actor, actor->channel, &younger, ends[0]);
        close(ends[0]);
        actor_stay(actor);
}

/* Owns the memory that it writes to. */
static void role_kill_exporter(struct actor *actor) {
        struct message how = channel_receive(actor, "begin", NULL);
        cuda_stream stream;
        struct vmm vmm;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 1);
        driver_fill(actor, stream, vmm.address, vmm.size, 0);
        vmm_send(actor, actor->channel, &vmm, "memory");
        write_until_killed(actor, &vmm, (unsigned)how.number[0], how.number[1]);
}

/* Writes to memory that the survivor owns. */
static void role_kill_importer(struct actor *actor) {
        struct message how = channel_receive(actor, "begin", NULL);
        struct vmm vmm;

        driver_open(actor);
        vmm = vmm_receive(actor, "memory");
        write_until_killed(actor, &vmm, (unsigned)how.number[0], how.number[1]);
}

/* The writer is under way once its count moves, twice. */
static void await_writes(struct actor *actor, const struct page *page) {
        uint64_t seen = page_word(page);

        actor_doing(actor, "waiting for the kernel to write");
        for (unsigned turn = 0, changes = 0; changes < 2; turn++) {
                if (page_word(page) != seen) {
                        seen = page_word(page);
                        changes++;
                }
                actor_spin(actor, turn);
        }
        actor_doing(actor, NULL);
}

static int64_t watch_now(const struct watch *w) {
        return clock_ns() - w->begin;
}

static void look_at_host(struct watch *w) {
        for (unsigned i = 0; i < 100; i++)
                if (page_word(w->page) != w->word) {
                        w->word = page_word(w->page);
                        w->last_host = watch_now(w);
                }
}

/* A write since the host's word was last looked at counts as one before the sign: there is no telling. */
static void sign_set(struct watch *w, struct sign *sign) {
        look_at_host(w);
        sign->seen = watch_now(w);
}

static void look_at_signs(struct actor *actor, struct watch *w) {
        struct pollfd fds[] = { { .fd = w->writer->channel, .events = POLLRDHUP },
                                { .fd = w->younger, .events = POLLRDHUP },
                                { .fd = w->pidfd, .events = POLLIN } };
        siginfo_t end = { 0 };

        if (poll(fds, 3, 0) < 0 && errno != EINTR)
                actor_fail(actor, "poll: %s", strerror(errno));
        if (w->older_end.seen < 0 && (fds[0].revents & (POLLHUP | POLLRDHUP)))
                sign_set(w, &w->older_end);
        if (w->younger_end.seen < 0 && (fds[1].revents & (POLLHUP | POLLRDHUP)))
                sign_set(w, &w->younger_end);
        if (w->pidfd < 0 && waitid(P_PID, (id_t)w->writer->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            end.si_pid != 0)
                fds[2].revents = POLLIN;
        if (w->gone.seen < 0 && (fds[2].revents & POLLIN))
                sign_set(w, &w->gone);
}

/* A copy that was enqueued after a sign, and holds something else than the first such copy, shows a write
 * after it. */
static void compare_copy(struct watch *w, struct sign *sign) {
        uint64_t counter = page_word(&w->copy);

        if (sign->seen < 0 || w->copy_begin < sign->seen)
                return;
        if (sign->based && counter != sign->base) {
                sign->last_device = watch_now(w);
                sign->base = counter;
        }
        if (!sign->based)
                sign->base = counter;
        sign->based = true;
}

/* Copies of the counter, one after the other, none of them waited for. */
static void look_at_device(struct actor *actor, struct watch *w) {
        cuda_result result = CU_TRY(actor, stream_query, w->stream);

        if (result == CUDA_NOT_READY)
                return;
        driver_check(actor, CALL_stream_query, result);
        if (w->copy_begin >= 0) {
                compare_copy(w, &w->older_end);
                compare_copy(w, &w->younger_end);
                compare_copy(w, &w->gone);
        }
        w->copy_begin = watch_now(w);
        CU(actor, copy_out, w->copy.host, w->counter, sizeof *w->copy.host, w->stream);
}

static int64_t watch_later(int64_t a, int64_t b) {
        return a > b ? a : b;
}

/* When the last write was seen that came after a sign; -1: none. */
static int64_t last_after(const struct watch *w, const struct sign *sign) {
        return watch_later(w->last_host > sign->seen ? w->last_host : -1, sign->last_device);
}

/* How long writes went on after a sign; 0: they did not. */
static int64_t writes_after(const struct watch *w, const struct sign *sign) {
        int64_t last = last_after(w, sign);

        return last < 0 ? 0 : last - sign->seen;
}

/* All signs are there, each with a copy after it, and nothing has been written for a while. */
static bool is_over(const struct watch *w) {
        int64_t device = watch_later(w->older_end.last_device, w->younger_end.last_device);
        int64_t last = watch_later(w->last_host, watch_later(device, w->gone.last_device));

        return w->older_end.based && w->younger_end.based && w->gone.based && watch_now(w) >= watch_ns &&
               watch_now(w) - last >= quiet_ns;
}

static double milliseconds(int64_t ns) {
        return (double)ns / 1e6;
}

static void sign_note(struct actor *actor, const struct watch *w, const char *name, const struct sign *sign) {
        int64_t last = last_after(w, sign);

        if (last < 0)
                actor_note(actor, "%s after %.2f ms, no write after it", name, milliseconds(sign->seen));
        else
                actor_note(actor,
                           "%s after %.2f ms, writes for %.2f ms after it (host memory %s, device memory %s)",
                           name, milliseconds(sign->seen), milliseconds(last - sign->seen),
                           w->last_host > sign->seen ? "too" : "no", sign->last_device >= 0 ? "too" : "no");
}

/* Kills the writer and watches. Returns for how long writes went on after the end of file, in ns; 0: they did
 * not. */
static int64_t kill_and_watch(struct actor *actor, struct peer *writer, const struct page *page,
                              cuda_address counter, int younger) {
        struct watch w = {
                .writer = writer,
                .pidfd = (int)syscall(SYS_pidfd_open, writer->pid, 0u),
                .younger = younger,
                .older_end = { .seen = -1, .last_device = -1 },
                .younger_end = { .seen = -1, .last_device = -1 },
                .gone = { .seen = -1, .last_device = -1 },
                .page = page,
                .word = page_word(page),
                .last_host = -1,
                .copy = page_new(actor, PAGE),
                .counter = counter,
                .copy_begin = -1,
                .stream = driver_stream(actor),
        };

        w.begin = clock_ns();
        kill(writer->pid, SIGKILL);
        while (!is_over(&w)) {
                look_at_host(&w);
                look_at_signs(actor, &w);
                look_at_device(actor, &w);
        }
        sign_note(actor, &w, "end of file of a socket older than the driver", &w.older_end);
        sign_note(actor, &w, "of a younger one", &w.younger_end);
        sign_note(actor, &w, w.pidfd >= 0 ? "pidfd" : "waitid (there is no pidfd here)", &w.gone);
        return watch_later(writes_after(&w, &w.older_end), writes_after(&w, &w.younger_end));
}

/* One kill, of a process that owns the memory or of one that has mapped it. */
static int64_t kill_once(struct actor *actor, struct peer *writer, bool exporter, unsigned kernels,
                         uint64_t ns) {
        struct message begin = { .word = "begin", .number = { kernels, ns } }, message;
        struct page page;
        struct vmm vmm;
        int fd, younger;

        channel_send(actor, writer->channel, &begin, -1);
        if (exporter) {
                vmm = vmm_receive_from(actor, writer, "memory");
        } else {
                vmm = vmm_new(actor, 1);
                driver_fill(actor, driver_stream(actor), vmm.address, vmm.size, 0);
                vmm_send(actor, writer->channel, &vmm, "memory");
        }
        message = peer_receive(actor, writer, "running", &fd);
        page = page_open(actor, fd, message.number[0]);
        await_writes(actor, &page);
        peer_receive(actor, writer, "younger", &younger);
        return kill_and_watch(actor, writer, &page, vmm.address, younger);
}

static _Noreturn void kill_several(struct actor *actor, bool exporter, unsigned kernels, uint64_t ns) {
        struct peer writer[KILLS];
        int64_t worst = 0;

        for (unsigned i = 0; i < KILLS; i++)
                writer[i] = peer_start(actor, "kill.writer",
                                       exporter ? role_kill_exporter : role_kill_importer, false);
        driver_open(actor);
        for (unsigned i = 0; i < KILLS; i++) {
                int64_t after = kill_once(actor, &writer[i], exporter, kernels, ns);

                worst = after > worst ? after : worst;
        }
        actor_note(actor,
                   "the answer is whether writes go on after an end of file, and for how long at most of "
                   "%d kills",
                   KILLS);
        if (worst == 0)
                actor_answer(actor, "no");
        actor_answer(actor, "yes, %.2f ms", milliseconds(worst));
}

void fact_kill_exporter(struct actor *actor) {
        kill_several(actor, true, 1, long_ns);
}

void fact_kill_importer(struct actor *actor) {
        kill_several(actor, false, 1, long_ns);
}

/* Do kernels of a killed process begin that were only enqueued? */
void fact_kill_queued(struct actor *actor) {
        kill_several(actor, true, QUEUED, queued_ns);
}
