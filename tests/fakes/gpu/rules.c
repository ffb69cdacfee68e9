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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "peer.h"

#define SMALL 4096u
#define CASE(name) static void name(struct gpu *gpu, struct area *area, struct peer *peer)

static struct machine *machine;

static void hold(bool on) {
        CHECK(machine_hold("hold", on));
}

/* Waits until so many ranges are in use. */
static void wait_for_uses(unsigned wanted) {
        while (machine_leases(machine) != wanted)
                usleep(1000);
}

/* Imports the memory that it is sent, and does to it what the word says, without waiting for another
 * process. */
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
static void two_processes(struct gpu *gpu, struct area *area, struct peer *peer, bool this_writes,
                          char other_does, bool release) {
        unsigned uses = this_writes ? 1 : 2;
        struct area own;

        area_new(gpu, 1, &own);
        int fd = area_export(gpu, area);
        peer_send(peer, "memory", area->bytes, NULL, fd);
        close(fd);
        peer_receive(peer, "ready", NULL);
        hold(true);
        if (this_writes)
                OK(gpu->cuda.set_async(area->address, 1, SMALL, NULL));
        else
                OK(gpu->cuda.copy(own.address, area->address, SMALL, NULL));
        wait_for_uses(uses);
        peer_send(peer, "go", (unsigned char)other_does, NULL, -1);
        if (release) {
                wait_for_uses(uses + (other_does == 'w' ? 1 : 2));
                hold(false);
        }
        OK(gpu->cuda.stream_wait(NULL));
        area_free(gpu, &own);
}

CASE(rule_two_processes_write) {
        two_processes(gpu, area, peer, true, 'w', false);
}

CASE(rule_another_process_reads_what_is_being_written) {
        two_processes(gpu, area, peer, true, 'r', false);
}

CASE(rule_another_process_writes_what_is_being_read) {
        two_processes(gpu, area, peer, false, 'w', false);
}

CASE(good_two_processes_read) {
        two_processes(gpu, area, peer, false, 'r', true);
}

CASE(rule_two_streams_without_a_wait) {
        cuda_stream stream[2];

        for (unsigned i = 0; i < 2; i++)
                OK(gpu->cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        hold(true);
        for (unsigned i = 0; i < 2; i++)
                OK(gpu->cuda.set_async(area->address, (unsigned char)i, SMALL, stream[i]));
        for (unsigned i = 0; i < 2; i++)
                OK(gpu->cuda.stream_free(stream[i]));
}

CASE(rule_unmap_while_in_use) {
        hold(true);
        OK(gpu->cuda.set_async(area->address, 1, SMALL, NULL));
        wait_for_uses(1); /* the area is freed now */
}

/* An operation that waits in a stream finds its memory gone: the context has an error, which stays. */
CASE(rule_unmap_before_use) {
        struct area first, second;
        size_t bytes;

        area_new(gpu, 1, &first);
        area_new(gpu, 1, &second);
        hold(true);
        OK(gpu->cuda.set_async(first.address, 1, SMALL, NULL));
        OK(gpu->cuda.set_async(second.address, 1, SMALL, NULL));
        wait_for_uses(1);
        area_free(gpu, &second);
        hold(false);
        IS(gpu->cuda.stream_wait(NULL), CUDA_ILLEGAL_ADDRESS);
        IS(gpu->cuda.memory_info(&bytes, &bytes), CUDA_ILLEGAL_ADDRESS);
        IS(gpu->cuda.release(first.handle), CUDA_ILLEGAL_ADDRESS);
        _exit(EXIT_SUCCESS);
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

CASE(rule_free_while_another_has_it_open) {
        cuda_address address;
        struct message message = peer_receive(peer, "memory", NULL);

        OK(gpu->cuda.ipc_open(&address, message.ipc, CUDA_IPC_LAZY_PEER_ACCESS));
        peer_send(peer, "opened", 0, NULL, -1);
        peer_end(peer);
        OK(gpu->cuda.ipc_close(address));
}

CASE(rule_leave_a_handle) {
        OK(gpu->cuda.unmap(area->address, area->bytes));
        OK(gpu->cuda.unreserve(area->address, area->bytes));
        area->bytes = 0;
}

CASE(rule_leave_allocations) {
        cuda_address address;
        void *pinned;

        OK(gpu->cuda.allocate(&address, SMALL));
        OK(gpu->cuda.host_alloc(&pinned, SMALL, CUDA_HOST_DEVICEMAP));
}

CASE(rule_leave_streams_and_events) {
        cuda_stream stream;
        cuda_event event;

        OK(gpu->cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
}

/* ---- what breaks no rule ---- */

CASE(good_a_copy_to_pinned_memory_does_not_wait) {
        unsigned char *pinned;

        gpu_fill(gpu, area->address, SMALL, 0x51);
        OK(gpu->cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        volatile unsigned char *seen = pinned;
        memset(pinned, 0, SMALL);
        hold(true);
        OK(gpu->cuda.copy_out(pinned, area->address, SMALL, NULL));
        IS(gpu->cuda.stream_query(NULL), CUDA_NOT_READY);
        while (seen[0] != 0xff || seen[SMALL - 1] != 0xff) /* what is not done yet cannot be relied on */
                usleep(1000);
        hold(false);
        OK(gpu->cuda.stream_wait(NULL));
        CHECK(pinned[0] == 0x51 && pinned[SMALL - 1] == 0x51);
        OK(gpu->cuda.host_free(pinned));
}

CASE(good_a_copy_from_pinned_memory_reads_late) {
        unsigned char *pinned;

        OK(gpu->cuda.host_alloc((void **)&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        memset(pinned, 0x61, SMALL);
        hold(true);
        OK(gpu->cuda.set_async(area->address, 0, SMALL, NULL));
        OK(gpu->cuda.copy_in(area->address, pinned, SMALL, NULL));
        memset(pinned, 0x62, SMALL); /* too early: the GPU has not read it */
        hold(false);
        OK(gpu->cuda.stream_wait(NULL));
        gpu_expect(gpu, area->address, SMALL, 0x62);
        OK(gpu->cuda.host_free(pinned));
}

CASE(good_an_event_is_its_last_record) {
        cuda_stream stream[2];
        cuda_event event;

        for (unsigned i = 0; i < 2; i++)
                OK(gpu->cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
        hold(true);
        OK(gpu->cuda.set_async(area->address, 1, SMALL, stream[0]));
        OK(gpu->cuda.event_record(event, stream[0]));
        IS(gpu->cuda.event_query(event), CUDA_NOT_READY);
        OK(gpu->cuda.event_record(event, stream[1])); /* which has nothing to do */
        OK(gpu->cuda.event_wait(event));
        IS(gpu->cuda.stream_query(stream[0]), CUDA_NOT_READY);
        hold(false);
        OK(gpu->cuda.event_free(event));
        for (unsigned i = 0; i < 2; i++)
                OK(gpu->cuda.stream_free(stream[i]));
}

/* Events that are destroyed early are given back when their records are over. */
CASE(good_events_are_destroyed_before_they_are_over) {
        cuda_event event;

        for (unsigned i = 0; i < 5; i++) {
                hold(true);
                OK(gpu->cuda.set_async(area->address, 1, SMALL, NULL));
                for (unsigned n = 0; n < 1000; n++) {
                        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
                        OK(gpu->cuda.event_record(event, NULL));
                        OK(gpu->cuda.event_free(event));
                }
                IS(gpu->cuda.event_query(event), CUDA_INVALID_HANDLE);
                hold(false);
                OK(gpu->cuda.stream_wait(NULL));
        }
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

/* Work that a killed process has begun goes on, and a process that waits for it sees it end. */
CASE(good_work_outlives_its_killed_process) {
        gpu_fill(gpu, area->address, SMALL, 0);
        int fd = area_export(gpu, area);
        peer_send(peer, "memory", area->bytes, NULL, fd);
        close(fd);
        peer_receive(peer, "busy", NULL);
        peer_kill(peer);
        wait_for_uses(1);
        hold(false);
        wait_for_uses(0);
        gpu_expect(gpu, area->address, SMALL, 0x71);
}

/* ---- the list ---- */

static const struct gpu_case cases[] = {
#define ROW(name, role, granules)                                                                            \
        { #name, name, role, granules }
        ROW(rule_two_processes_write, other_role, 1),
        ROW(rule_another_process_reads_what_is_being_written, other_role, 1),
        ROW(rule_another_process_writes_what_is_being_read, other_role, 1),
        ROW(rule_two_streams_without_a_wait, NULL, 1),
        ROW(rule_unmap_while_in_use, NULL, 1),
        ROW(rule_unmap_before_use, NULL, 0),
        ROW(rule_free_while_another_has_it_open, owner_role, 0),
        ROW(rule_leave_a_handle, NULL, 1),
        ROW(rule_leave_allocations, NULL, 0),
        ROW(rule_leave_streams_and_events, NULL, 0),
        ROW(good_two_processes_read, other_role, 1),
        ROW(good_a_copy_to_pinned_memory_does_not_wait, NULL, 1),
        ROW(good_a_copy_from_pinned_memory_reads_late, NULL, 1),
        ROW(good_an_event_is_its_last_record, NULL, 1),
        ROW(good_events_are_destroyed_before_they_are_over, NULL, 1),
        ROW(good_work_outlives_its_killed_process, worker_role, 1),
};

static const char *name_of(size_t i) {
        return cases[i].name;
}

static void run(size_t i) {
        gpu_case_run(&cases[i]);
}

int main(int argc, char **argv) {
        machine = machine_open();
        return machine != NULL ? cases_main(argv, sizeof(cases) / sizeof(cases[0]), name_of, run)
                               : EXIT_FAILURE;
}
