/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is killed while its kernel writes, to memory that it shares with a survivor. Do writes go on
 * after the survivor has read the end of file on its socket, after its pidfd says that it is gone, and for
 * how long? The kernel counts in two places: a word of host memory, which the survivor watches with its CPU,
 * and a word of device memory, which it copies from as soon as both have said so. The kernel ends by itself
 * after a while, should nothing else end it.
 */
#include "clock.h"
#include "facts.h"
#include "vmm.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

enum {
        KILLS = 3,
        PAGE = 65536,
        QUEUED = 100,
};

static const uint64_t long_ns = 4000000000; /* of one kernel */
static const uint64_t queued_ns = 40000000; /* of each of QUEUED */
static const int64_t watch_ns = 1000000000; /* at least, after the kill */
static const int64_t quiet_ns = 300000000;  /* nothing was written for so long: it has ended */

struct times { /* after the kill, ns */
        int64_t end_of_file, pidfd;
        int64_t last_host;   /* write that was seen; -1: none after the kill */
        int64_t last_device; /* end of the last copy that showed a change; -1: none did */
};

/* What both kinds of writer do: count in memory that the survivor sees, until they are killed. */
static _Noreturn void write_until_killed(struct actor *actor, const struct vmm *vmm, unsigned kernels,
                                         uint64_t ns) {
        CUdeviceptr counter = vmm->address;
        CUstream stream = driver_stream(actor);
        struct page page = page_new(actor, PAGE);
        struct message message = { .word = "running", .number = { PAGE } };

        for (unsigned i = 0; i < kernels; i++)
                driver_launch(actor, stream, KERNEL_COUNT, (void *[]){ &counter, &page.device, &ns });
        channel_send(actor, actor->channel, &message, page.fd);
        actor_stay(actor);
}

/* Owns the memory that it writes to. */
void role_kill_exporter(struct actor *actor) {
        struct message how = channel_receive(actor, "begin", NULL);
        CUstream stream;
        struct vmm vmm;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 1);
        driver_fill(actor, stream, vmm.address, vmm.size, 0);
        vmm_send(actor, actor->channel, &vmm, "memory");
        write_until_killed(actor, &vmm, (unsigned)how.number[0], how.number[1]);
}

/* Writes to memory that the survivor owns. */
void role_kill_importer(struct actor *actor) {
        struct message how = channel_receive(actor, "begin", NULL);
        struct vmm vmm;

        driver_open(actor);
        vmm = vmm_receive(actor, "memory");
        write_until_killed(actor, &vmm, (unsigned)how.number[0], how.number[1]);
}

static uint64_t host_word(const struct page *page) {
        return __atomic_load_n(&page->host[0], __ATOMIC_ACQUIRE);
}

/* The writer is under way once its count moves, twice. */
static void await_writes(struct actor *actor, const struct page *page) {
        actor_doing(actor, "waiting for the kernel to write");
        for (uint64_t seen = host_word(page), changes = 0; changes < 2; sched_yield())
                if (host_word(page) != seen) {
                        seen = host_word(page);
                        changes++;
                }
        actor_doing(actor, NULL);
}

/* From the kill on: CPU and, once the process is gone by both signs, copies. */
static struct times watch(struct actor *actor, CUstream stream, struct peer *writer, const struct page *page,
                          CUdeviceptr counter) {
        struct pollfd signs[] = { { .fd = writer->channel, .events = POLLIN | POLLRDHUP },
                                  { .fd = writer->pidfd, .events = POLLIN } };
        struct times times = { -1, -1, -1, -1 };
        uint64_t word = host_word(page), device = 0;
        int64_t begin, now = 0, change = 0;
        bool copied = false;

        begin = clock_ns();
        kill(writer->pid, SIGKILL);
        while (now < watch_ns || times.end_of_file < 0 || times.pidfd < 0 || now - change < quiet_ns) {
                for (unsigned i = 0; i < 100; i++)
                        if (host_word(page) != word) {
                                word = host_word(page);
                                times.last_host = change = clock_ns() - begin;
                        }
                if (poll(signs, 2, 0) < 0 && errno != EINTR)
                        actor_fail(actor, "poll: %s", strerror(errno));
                now = clock_ns() - begin;
                if (times.end_of_file < 0 && (signs[0].revents & (POLLHUP | POLLRDHUP))) {
                        times.end_of_file = now;
                        if (host_word(page) !=
                            word) /* since it was looked at: before the end of file, as far as one can know */
                                times.last_host = change = now;
                        word = host_word(page);
                }
                if (times.pidfd < 0 && (signs[1].revents & POLLIN))
                        times.pidfd = now;
                if (times.end_of_file >= 0 && times.pidfd >= 0) {
                        uint64_t read = driver_read64(actor, stream, counter);

                        now = clock_ns() - begin;
                        if (copied && read != device)
                                times.last_device = change = now;
                        device = read;
                        copied = true;
                }
        }
        return times;
}

static double milliseconds(int64_t ns) {
        return (double)ns / 1e6;
}

/* One kill. Returns for how long writes went on after the end of file, in ns; 0: they did not. */
static int64_t kill_once(struct actor *actor, bool exporter, unsigned kernels, uint64_t ns) {
        struct peer writer =
                peer_start(actor, exporter ? "kill.exporter.writer" : "kill.importer.writer", false);
        struct message begin = { .word = "begin", .number = { kernels, ns } }, message;
        CUstream stream = driver_stream(actor);
        struct times times;
        struct page page;
        struct vmm vmm;
        int64_t last;
        int fd;

        channel_send(actor, writer.channel, &begin, -1);
        if (exporter) {
                vmm = vmm_receive_from(actor, &writer, "memory");
        } else {
                vmm = vmm_new(actor, 1);
                driver_fill(actor, stream, vmm.address, vmm.size, 0);
                vmm_send(actor, writer.channel, &vmm, "memory");
        }
        message = peer_receive(actor, &writer, "running", &fd);
        page = page_open(actor, fd, message.number[0]);
        await_writes(actor, &page);
        times = watch(actor, stream, &writer, &page, vmm.address);
        last = times.last_host > times.last_device ? times.last_host : times.last_device;
        actor_note(
                actor,
                "after the kill: end of file %.2f ms, pidfd %.2f ms, last write seen in host memory %.2f ms, "
                "in device memory %s",
                milliseconds(times.end_of_file), milliseconds(times.pidfd),
                milliseconds(times.last_host < 0 ? 0 : times.last_host),
                times.last_device < 0 ? "none after both" : "after both");
        if (times.last_device >= 0)
                actor_note(actor, "the last at %.2f ms", milliseconds(times.last_device));
        return last > times.end_of_file ? last - times.end_of_file : 0;
}

static _Noreturn void kill_several(struct actor *actor, bool exporter, unsigned kernels, uint64_t ns) {
        int64_t worst = 0;

        driver_open(actor);
        for (unsigned i = 0; i < KILLS; i++) {
                int64_t after = kill_once(actor, exporter, kernels, ns);

                worst = after > worst ? after : worst;
        }
        actor_note(
                actor,
                "the answer is whether writes go on after end of file, and for how long at most of %d kills",
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

/* Of many kernels that are enqueued, do those that have not begun begin? */
void fact_kill_queued(struct actor *actor) {
        kill_several(actor, true, QUEUED, queued_ns);
}
