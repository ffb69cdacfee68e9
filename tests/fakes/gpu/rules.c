/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that break one rule of the fake GPU each, so that a test sees that it is noticed; and some that
 * break none, in situations that hardware does not let a test hold still.
 *
 *     rules RULE      FAKE_GPU and LD_LIBRARY_PATH are set
 *
 * A case that makes the file `hold` keeps what it has begun from ending. One that breaks a rule leaves it
 * there: the test takes it away when the line is in the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "peer.h"

#define SMALL 4096u

static struct machine *machine;

static void hold(bool on) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/hold", getenv("FAKE_GPU"));
        if (on) {
                int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
                CHECK(fd >= 0);
                close(fd);
        } else {
                CHECK(unlink(path) == 0);
        }
}

/* Until so many ranges are in use. */
static void wait_for_uses(unsigned wanted) {
        unsigned n;

        do {
                usleep(1000);
                machine_enter(&machine->lock);
                n = 0;
                for (unsigned i = 0; i < MACHINE_LEASES; i++)
                        n += machine->lease[i].id != 0;
                pthread_mutex_unlock(&machine->lock);
        } while (n != wanted);
}

/* Imports what it is sent, and does to it what the word says, without waiting for anybody. */
static void other_role(struct peer *other) {
        struct gpu gpu;
        struct area area, own;
        int fd;

        struct message message = peer_receive(other, "memory", &fd);
        gpu_open(&gpu);
        area_import(&gpu, fd, message.number, &area);
        area_new(&gpu, 1, &own);
        peer_send(other, "ready", 0, NULL, -1);
        message = peer_receive(other, "go", NULL);
        if (message.number == 'w')
                OK(gpu.cuda.set_async(area.address + SMALL - 1, 2, SMALL, NULL));
        else
                OK(gpu.cuda.copy(own.address, area.address + SMALL - 1, SMALL, NULL));
        OK(gpu.cuda.stream_wait(NULL));
        area_free(&gpu, &own);
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

/* Work of this process on a page is under way when the other one is told to go on. */
static void two_processes(bool this_writes, char other_does, bool release) {
        struct peer peer = peer_start(other_role);
        struct gpu gpu;
        struct area area, own;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        area_new(&gpu, 1, &own);
        int fd = area_export(&gpu, &area);
        peer_send(&peer, "memory", area.bytes, NULL, fd);
        close(fd);
        peer_receive(&peer, "ready", NULL);
        hold(true);
        if (this_writes)
                OK(gpu.cuda.set_async(area.address, 1, SMALL, NULL));
        else
                OK(gpu.cuda.copy(own.address, area.address, SMALL, NULL));
        wait_for_uses(this_writes ? 1 : 2);
        peer_send(&peer, "go", (unsigned char)other_does, NULL, -1);
        if (release) {
                wait_for_uses((this_writes ? 1 : 2) + (other_does == 'w' ? 1 : 2));
                hold(false);
        }
        OK(gpu.cuda.stream_wait(NULL));
        peer_end(&peer);
        area_free(&gpu, &own);
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

static void rule_two_processes_write(void) {
        two_processes(true, 'w', false);
}

static void rule_another_process_reads_what_is_being_written(void) {
        two_processes(true, 'r', false);
}

static void rule_another_process_writes_what_is_being_read(void) {
        two_processes(false, 'w', false);
}

static void good_two_processes_read(void) {
        two_processes(false, 'r', true);
}

static void rule_two_streams_without_a_wait(void) {
        struct gpu gpu;
        struct area area;
        cuda_stream stream[2];

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        for (unsigned i = 0; i < 2; i++)
                OK(gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        hold(true);
        for (unsigned i = 0; i < 2; i++)
                OK(gpu.cuda.set_async(area.address, (unsigned char)i, SMALL, stream[i]));
        for (unsigned i = 0; i < 2; i++)
                OK(gpu.cuda.stream_free(stream[i]));
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

static void rule_unmap_while_in_use(void) {
        struct gpu gpu;
        struct area area;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        hold(true);
        OK(gpu.cuda.set_async(area.address, 1, SMALL, NULL));
        wait_for_uses(1);
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

/* What waits in a stream finds its memory gone: an error of the context, and it stays. */
static void rule_unmap_before_use(void) {
        struct gpu gpu;
        struct area first, second;
        size_t bytes;

        gpu_open(&gpu);
        area_new(&gpu, 1, &first);
        area_new(&gpu, 1, &second);
        hold(true);
        OK(gpu.cuda.set_async(first.address, 1, SMALL, NULL));
        OK(gpu.cuda.set_async(second.address, 1, SMALL, NULL));
        wait_for_uses(1);
        area_free(&gpu, &second);
        hold(false);
        IS(gpu.cuda.stream_wait(NULL), CUDA_ILLEGAL_ADDRESS);
        IS(gpu.cuda.memory_info(&bytes, &bytes), CUDA_ILLEGAL_ADDRESS);
        IS(gpu.cuda.release(first.handle), CUDA_ILLEGAL_ADDRESS);
}

static void owner_role(struct peer *other) {
        struct gpu gpu;
        struct cuda_ipc ipc;
        cuda_address address;

        gpu_open(&gpu);
        OK(gpu.cuda.allocate(&address, SMALL));
        OK(gpu.cuda.ipc_get(&ipc, address));
        peer_send(other, "memory", SMALL, &ipc, -1);
        peer_receive(other, "opened", NULL);
        OK(gpu.cuda.free(address));
        gpu_close(&gpu);
}

static void rule_free_while_another_has_it_open(void) {
        struct peer peer = peer_start(owner_role);
        struct gpu gpu;
        cuda_address address;

        gpu_open(&gpu);
        struct message message = peer_receive(&peer, "memory", NULL);
        OK(gpu.cuda.ipc_open(&address, message.ipc, CUDA_IPC_LAZY_PEER_ACCESS));
        peer_send(&peer, "opened", 0, NULL, -1);
        peer_end(&peer);
        OK(gpu.cuda.ipc_close(address));
        gpu_close(&gpu);
}

static void rule_leave_a_handle(void) {
        struct gpu gpu;
        struct area area;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        OK(gpu.cuda.unmap(area.address, area.bytes));
        OK(gpu.cuda.unreserve(area.address, area.bytes));
        gpu_close(&gpu);
}

static void rule_leave_allocations(void) {
        struct gpu gpu;
        cuda_address address;
        void *pinned;

        gpu_open(&gpu);
        OK(gpu.cuda.allocate(&address, SMALL));
        OK(gpu.cuda.host_alloc(&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        gpu_close(&gpu);
}

static void rule_leave_streams_and_events(void) {
        struct gpu gpu;
        cuda_stream stream;
        cuda_event event;

        gpu_open(&gpu);
        OK(gpu.cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu.cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
        gpu_close(&gpu);
}

/* ---- what breaks no rule ---- */

static void good_a_copy_to_pinned_memory_does_not_wait(void) {
        struct gpu gpu;
        struct area area;
        unsigned char *pinned;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        gpu_fill(&gpu, area.address, SMALL, 0x51);
        OK(gpu.cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        volatile unsigned char *seen = pinned;
        memset(pinned, 0, SMALL);
        hold(true);
        OK(gpu.cuda.copy_out(pinned, area.address, SMALL, NULL));
        IS(gpu.cuda.stream_query(NULL), CUDA_NOT_READY);
        while (seen[0] != 0xff || seen[SMALL - 1] != 0xff) /* what is not done yet cannot be relied on */
                usleep(1000);
        hold(false);
        OK(gpu.cuda.stream_wait(NULL));
        CHECK(pinned[0] == 0x51 && pinned[SMALL - 1] == 0x51);
        OK(gpu.cuda.host_free(pinned));
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

static void good_a_copy_from_pinned_memory_reads_late(void) {
        struct gpu gpu;
        struct area area;
        unsigned char *pinned;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        OK(gpu.cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        memset(pinned, 0x61, SMALL);
        hold(true);
        OK(gpu.cuda.set_async(area.address, 0, SMALL, NULL));
        OK(gpu.cuda.copy_in(area.address, pinned, SMALL, NULL));
        memset(pinned, 0x62, SMALL); /* too early: the GPU has not read it */
        hold(false);
        OK(gpu.cuda.stream_wait(NULL));
        gpu_expect(&gpu, area.address, SMALL, 0x62);
        OK(gpu.cuda.host_free(pinned));
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

static void good_an_event_is_its_last_record(void) {
        struct gpu gpu;
        struct area area;
        cuda_stream stream[2];
        cuda_event event;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        for (unsigned i = 0; i < 2; i++)
                OK(gpu.cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu.cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
        hold(true);
        OK(gpu.cuda.set_async(area.address, 1, SMALL, stream[0]));
        OK(gpu.cuda.event_record(event, stream[0]));
        IS(gpu.cuda.event_query(event), CUDA_NOT_READY);
        OK(gpu.cuda.event_record(event, stream[1])); /* which has nothing to do */
        OK(gpu.cuda.event_wait(event));
        IS(gpu.cuda.stream_query(stream[0]), CUDA_NOT_READY);
        hold(false);
        OK(gpu.cuda.event_free(event));
        for (unsigned i = 0; i < 2; i++)
                OK(gpu.cuda.stream_free(stream[i]));
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

/* Events that are destroyed early are given back when their records are over. */
static void good_events_are_destroyed_before_they_are_over(void) {
        struct gpu gpu;
        struct area area;
        cuda_event event;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        for (unsigned i = 0; i < 5; i++) {
                hold(true);
                OK(gpu.cuda.set_async(area.address, 1, SMALL, NULL));
                for (unsigned n = 0; n < 1000; n++) {
                        OK(gpu.cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
                        OK(gpu.cuda.event_record(event, NULL));
                        OK(gpu.cuda.event_free(event));
                }
                IS(gpu.cuda.event_query(event), CUDA_INVALID_HANDLE);
                hold(false);
                OK(gpu.cuda.stream_wait(NULL));
        }
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

static void worker_role(struct peer *other) {
        struct gpu gpu;
        struct area area;
        int fd;

        struct message message = peer_receive(other, "memory", &fd);
        gpu_open(&gpu);
        area_import(&gpu, fd, message.number, &area);
        hold(true);
        OK(gpu.cuda.set_async(area.address, 0x71, SMALL, NULL));
        wait_for_uses(1);
        peer_send(other, "busy", 0, NULL, -1);
        peer_receive(other, "never", NULL);
}

/* What a killed process had begun goes on; who waits for it sees it end. */
static void good_work_outlives_its_killed_process(void) {
        struct peer peer = peer_start(worker_role);
        struct gpu gpu;
        struct area area;

        gpu_open(&gpu);
        area_new(&gpu, 1, &area);
        gpu_fill(&gpu, area.address, SMALL, 0);
        int fd = area_export(&gpu, &area);
        peer_send(&peer, "memory", area.bytes, NULL, fd);
        close(fd);
        peer_receive(&peer, "busy", NULL);
        peer_kill(&peer);
        wait_for_uses(1);
        hold(false);
        wait_for_uses(0);
        gpu_expect(&gpu, area.address, SMALL, 0x71);
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

/* ---- the list ---- */

static const struct {
        const char *name;
        void (*run)(void);
} rules[] = {
#define RULE(name)                                                                                           \
        { #name, name }
        RULE(rule_two_processes_write),
        RULE(rule_another_process_reads_what_is_being_written),
        RULE(rule_another_process_writes_what_is_being_read),
        RULE(rule_two_streams_without_a_wait),
        RULE(rule_unmap_while_in_use),
        RULE(rule_unmap_before_use),
        RULE(rule_free_while_another_has_it_open),
        RULE(rule_leave_a_handle),
        RULE(rule_leave_allocations),
        RULE(rule_leave_streams_and_events),
        RULE(good_two_processes_read),
        RULE(good_a_copy_to_pinned_memory_does_not_wait),
        RULE(good_a_copy_from_pinned_memory_reads_late),
        RULE(good_an_event_is_its_last_record),
        RULE(good_events_are_destroyed_before_they_are_over),
        RULE(good_work_outlives_its_killed_process),
};

int main(int argc, char **argv) {
        machine = machine_open();
        for (size_t i = 0; argc == 2 && machine != NULL && i < sizeof(rules) / sizeof(rules[0]); i++)
                if (strcmp(rules[i].name, argv[1]) == 0) {
                        alarm(300);
                        rules[i].run();
                        return EXIT_SUCCESS;
                }
        fprintf(stderr, "no such rule, or no FAKE_GPU\n");
        return EXIT_FAILURE;
}
