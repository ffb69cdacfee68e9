/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The properties of a CUDA driver on which the project relies, one function per fact: each shall hold on the
 * fake GPU and on hardware alike. Each fact has processes of its own, and no other program may use the GPU
 * meanwhile.
 *
 *     conformance [--driver LIBRARY] [FACT …]
 *
 * A line per fact; the exit status is 1 if one does not hold. Where the documentation leaves open which error
 * a wrong call has, a fact asks only that it has one.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

#define SMALL 4096u
#define FACT(name) static void name(struct gpu *gpu, struct area *area, struct peer *peer)
#define FAILS(result) CHECK((result) != CUDA_OK)

static unsigned attribute(const struct gpu *gpu, unsigned which, cuda_address address) {
        unsigned value = 0;

        OK(gpu->cuda.pointer_attribute(&value, which, address));
        return value;
}

static unsigned long long wide_attribute(const struct gpu *gpu, unsigned which, cuda_address address) {
        unsigned long long value = 0;

        OK(gpu->cuda.pointer_attribute(&value, which, address));
        return value;
}

static bool legacy_capable(const struct gpu *gpu, cuda_address address) {
        bool value = false;

        OK(gpu->cuda.pointer_attribute(&value, CUDA_POINTER_LEGACY_IPC, address));
        return value;
}

static size_t free_bytes(const struct gpu *gpu) {
        size_t bytes = 0, total = 0;

        OK(gpu->cuda.memory_info(&bytes, &total));
        CHECK(bytes <= total);
        return bytes;
}

static struct cuda_properties properties_of(const struct gpu *gpu) {
        return (struct cuda_properties){ .type = CUDA_ALLOCATION_PINNED,
                                         .handle_types = CUDA_HANDLE_FD,
                                         .location = { CUDA_LOCATION_DEVICE, gpu->device } };
}

/* ---- memory that is exported as a descriptor ---- */

static void export_role(struct peer *other) {
        struct gpu gpu;
        struct area area;

        gpu_open(&gpu);
        area_new(&gpu, 2, &area);
        gpu_fill(&gpu, area.address, area.bytes, 0x11);
        int fd = area_export(&gpu, &area);
        peer_send(other, "memory", area.bytes, NULL, fd);
        close(fd);
        peer_receive(other, "written", NULL);
        gpu_expect(&gpu, area.address, area.bytes, 0x22);
        area_free(&gpu, &area);
        gpu_close(&gpu);
}

FACT(exported_memory_is_shared) {
        int fd;
        struct message message = peer_receive(peer, "memory", &fd);

        area_import(gpu, fd, message.number, area);
        gpu_expect(gpu, area->address, area->bytes, 0x11);
        gpu_fill(gpu, area->address, area->bytes, 0x22);
        peer_send(peer, "written", 0, NULL, -1);
        peer_end(peer);
        gpu_expect(gpu, area->address, area->bytes, 0x22);
}

FACT(mapped_memory_outlives_its_killed_exporter) {
        int fd;
        struct message message = peer_receive(peer, "memory", &fd);

        area_import(gpu, fd, message.number, area);
        peer_kill(peer);
        gpu_expect(gpu, area->address, area->bytes, 0x11);
        gpu_fill(gpu, area->address, area->bytes, 0x33);
        gpu_expect(gpu, area->address, area->bytes, 0x33);
}

FACT(a_descriptor_outlives_its_killed_exporter) {
        int fd;
        struct message message = peer_receive(peer, "memory", &fd);

        peer_kill(peer);
        area_import(gpu, fd, message.number, area);
        gpu_expect(gpu, area->address, area->bytes, 0x11);
}

FACT(a_descriptor_is_of_no_use_to_the_host) {
        char byte;
        int fd = area_export(gpu, area);

        CHECK(mmap(NULL, SMALL, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
        CHECK(read(fd, &byte, 1) <= 0);
        CHECK(ftruncate(fd, 0) < 0);
        close(fd);
}

FACT(what_is_no_memory_is_not_imported) {
        struct cuda_ipc forged = { "forged" };
        cuda_handle handle;
        cuda_address address;
        int fd = memfd_create("no memory of a GPU", MFD_CLOEXEC);

        CHECK(fd >= 0 && ftruncate(fd, (off_t)gpu->granularity) == 0);
        FAILS(gpu->cuda.import_handle(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD));
        FAILS(gpu->cuda.ipc_open(&address, forged, CUDA_IPC_LAZY_PEER_ACCESS));
        close(fd);
}

FACT(an_import_tells_the_properties) {
        struct cuda_properties seen = { 0 };
        cuda_handle imported;
        int fd = area_export(gpu, area);

        OK(gpu->cuda.import_handle(&imported, (void *)(intptr_t)fd, CUDA_HANDLE_FD));
        close(fd);
        OK(gpu->cuda.handle_properties(&seen, imported));
        IS((int)seen.type, CUDA_ALLOCATION_PINNED);
        IS((int)seen.location.type, CUDA_LOCATION_DEVICE);
        IS(seen.location.id, gpu->device);
        CHECK((seen.handle_types & CUDA_HANDLE_FD) != 0);
        OK(gpu->cuda.release(imported));
}

/* ---- reservations and mappings ---- */

FACT(sizes_are_multiples_of_the_granularity) {
        cuda_handle handle;
        cuda_address address;
        struct cuda_properties properties = properties_of(gpu);

        IS(gpu->cuda.create(&handle, gpu->granularity + SMALL, &properties, 0), CUDA_INVALID_VALUE);
        IS(gpu->cuda.create(&handle, 0, &properties, 0), CUDA_INVALID_VALUE);
        IS(gpu->cuda.reserve(&address, 0, 0, 0, 0), CUDA_INVALID_VALUE);
}

FACT(a_mapping_is_unmapped_whole_and_before_its_reservation_goes) {
        FAILS(gpu->cuda.unmap(area->address, gpu->granularity));
        FAILS(gpu->cuda.unreserve(area->address, area->bytes));
        gpu_fill(gpu, area->address, area->bytes, 0x44);
        gpu_expect(gpu, area->address, area->bytes, 0x44);
}

FACT(a_reservation_may_be_larger_than_what_is_mapped) {
        struct cuda_properties properties = properties_of(gpu);
        cuda_address address;
        cuda_handle handle;

        OK(gpu->cuda.create(&handle, gpu->granularity, &properties, 0));
        OK(gpu->cuda.reserve(&address, 4 * gpu->granularity, 0, 0, 0));
        for (unsigned i = 0; i < 2; i++) {
                OK(gpu->cuda.map(address, gpu->granularity, 0, handle, 0));
                OK(gpu->cuda.unmap(address, gpu->granularity));
        }
        OK(gpu->cuda.unreserve(address, 4 * gpu->granularity));
        OK(gpu->cuda.release(handle));
}

FACT(memory_lives_until_its_last_use) {
        cuda_handle again;

        area_new(gpu, 1, area); /* what the driver keeps for itself is taken by now */
        area_free(gpu, area);
        size_t before = free_bytes(gpu);
        area_new(gpu, 8, area);
        CHECK(free_bytes(gpu) + area->bytes <= before);
        OK(gpu->cuda.release(area->handle));
        gpu_fill(gpu, area->address, area->bytes, 0x55);
        gpu_expect(gpu, area->address, area->bytes, 0x55);
        OK(gpu->cuda.retain_handle(&again, (void *)(uintptr_t)area->address));
        OK(gpu->cuda.unmap(area->address, area->bytes));
        OK(gpu->cuda.unreserve(area->address, area->bytes));
        CHECK(free_bytes(gpu) + area->bytes <= before);
        area->handle = again;
        area_map(gpu, area);
        gpu_expect(gpu, area->address, area->bytes, 0x55);
        area_free(gpu, area);
        CHECK(free_bytes(gpu) >= before);
}

FACT(more_than_there_is_cannot_be_had) {
        size_t total;
        cuda_handle handle;
        cuda_address address;

        OK(gpu->cuda.device_total(&total, gpu->device));
        size_t bytes = (total / gpu->granularity + 1) * gpu->granularity, before = free_bytes(gpu);
        struct cuda_properties properties = properties_of(gpu);
        IS(gpu->cuda.create(&handle, bytes, &properties, 0), CUDA_OUT_OF_MEMORY);
        IS(gpu->cuda.allocate(&address, bytes), CUDA_OUT_OF_MEMORY);
        CHECK(free_bytes(gpu) == before);
}

/* ---- allocations and their handles ---- */

static void ipc_role(struct peer *other) {
        struct gpu gpu;
        struct cuda_ipc ipc;
        cuda_address address;

        gpu_open(&gpu);
        OK(gpu.cuda.allocate(&address, SMALL));
        gpu_fill(&gpu, address, SMALL, 0x66);
        OK(gpu.cuda.ipc_get(&ipc, address));
        peer_send(other, "memory", SMALL, &ipc, -1);
        peer_receive(other, "closed", NULL);
        gpu_expect(&gpu, address, SMALL, 0x77);
        OK(gpu.cuda.free(address));
        gpu_close(&gpu);
}

FACT(an_allocation_is_shared_by_its_handle) {
        cuda_address first, second;
        struct message message = peer_receive(peer, "memory", NULL);

        FAILS(gpu->cuda.ipc_open(&first, message.ipc, 0)); /* the flag must be there */
        OK(gpu->cuda.ipc_open(&first, message.ipc, CUDA_IPC_LAZY_PEER_ACCESS));
        OK(gpu->cuda.ipc_open(&second, message.ipc, CUDA_IPC_LAZY_PEER_ACCESS));
        CHECK(first == second);
        gpu_expect(gpu, first, SMALL, 0x66);
        OK(gpu->cuda.ipc_close(first));
        gpu_fill(gpu, first, SMALL, 0x77); /* it was opened once more */
        FAILS(gpu->cuda.free(first));
        OK(gpu->cuda.ipc_close(first));
        FAILS(gpu->cuda.ipc_close(first));
        peer_send(peer, "closed", 0, NULL, -1);
        peer_end(peer);
}

FACT(an_opened_allocation_outlives_its_killed_owner) {
        cuda_address address;
        struct message message = peer_receive(peer, "memory", NULL);

        OK(gpu->cuda.ipc_open(&address, message.ipc, CUDA_IPC_LAZY_PEER_ACCESS));
        peer_kill(peer);
        gpu_expect(gpu, address, SMALL, 0x66);
        OK(gpu->cuda.ipc_close(address));
}

FACT(which_memory_has_a_handle) {
        struct cuda_ipc ipc;
        cuda_address address, opened;

        OK(gpu->cuda.allocate(&address, SMALL));
        CHECK(legacy_capable(gpu, address));
        OK(gpu->cuda.ipc_get(&ipc, address));
        IS(gpu->cuda.ipc_open(&opened, ipc, CUDA_IPC_LAZY_PEER_ACCESS), CUDA_INVALID_CONTEXT); /* its own */
        CHECK(!legacy_capable(gpu, area->address));
        FAILS(gpu->cuda.ipc_get(&ipc, area->address));
        OK(gpu->cuda.free(address));
}

FACT(an_address_is_known) {
        cuda_address first, second, base;
        size_t bytes;
        void *host = malloc(SMALL), *pinned;
        unsigned value;

        OK(gpu->cuda.allocate(&first, 3 * SMALL));
        OK(gpu->cuda.allocate(&second, 3 * SMALL));
        OK(gpu->cuda.address_range(&base, &bytes, first + SMALL));
        CHECK(base == first && bytes >= 3 * SMALL);
        CHECK(wide_attribute(gpu, CUDA_POINTER_RANGE_START, first + SMALL) == first);
        CHECK(wide_attribute(gpu, CUDA_POINTER_RANGE_SIZE, area->address + 1) == area->bytes);
        IS((int)attribute(gpu, CUDA_POINTER_MEMORY_TYPE, first + 1), CUDA_MEMORY_DEVICE);
        IS((int)attribute(gpu, CUDA_POINTER_MEMORY_TYPE, area->address), CUDA_MEMORY_DEVICE);
        IS((int)attribute(gpu, CUDA_POINTER_DEVICE_ORDINAL, area->address), gpu->device);
        CHECK(wide_attribute(gpu, CUDA_POINTER_BUFFER_ID, first) ==
              wide_attribute(gpu, CUDA_POINTER_BUFFER_ID, first + SMALL));
        CHECK(wide_attribute(gpu, CUDA_POINTER_BUFFER_ID, first) !=
              wide_attribute(gpu, CUDA_POINTER_BUFFER_ID, second));
        OK(gpu->cuda.host_alloc(&pinned, SMALL, CUDA_HOST_DEVICEMAP));
        OK(gpu->cuda.host_address(&base, pinned, 0));
        IS((int)attribute(gpu, CUDA_POINTER_MEMORY_TYPE, base), CUDA_MEMORY_HOST);
        FAILS(gpu->cuda.pointer_attribute(&value, CUDA_POINTER_MEMORY_TYPE, (uintptr_t)host));
        FAILS(gpu->cuda.address_range(&base, &bytes, (uintptr_t)host));
        OK(gpu->cuda.host_free(pinned));
        OK(gpu->cuda.free(first));
        OK(gpu->cuda.free(second));
        free(host);
}

FACT(memory_is_freed_once_and_by_its_base) {
        cuda_address address;

        OK(gpu->cuda.allocate(&address, SMALL));
        FAILS(gpu->cuda.free(address + 512));
        gpu_fill(gpu, address, SMALL, 0x12);
        gpu_expect(gpu, address, SMALL, 0x12);
        OK(gpu->cuda.free(address));
        FAILS(gpu->cuda.free(address));
        IS(gpu->cuda.allocate(&address, 0), CUDA_INVALID_VALUE);
}

FACT(the_host_cannot_read_device_memory) {
        cuda_address allocated;

        OK(gpu->cuda.allocate(&allocated, SMALL));
        const uintptr_t addresses[] = { (uintptr_t)area->address, (uintptr_t)allocated };
        for (unsigned i = 0; i < 2; i++) {
                pid_t pid = fork();
                int status;
                if (pid == 0) {
                        signal(SIGSEGV, SIG_DFL);
                        signal(SIGBUS, SIG_DFL);
                        _exit(*(volatile char *)addresses[i] & 0); /* NOLINT */
                }
                CHECK(waitpid(pid, &status, 0) == pid);
                CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
        }
        OK(gpu->cuda.free(allocated));
}

/* ---- work ---- */

FACT(what_is_beyond_memory_is_not_written_silently) {
        int r = gpu->cuda.set_async(area->address + area->bytes - 1, 1, SMALL, NULL);
        FAILS(r != CUDA_OK ? r : gpu->cuda.stream_wait(NULL));
        _exit(EXIT_SUCCESS); /* the error may be one that stays */
}

FACT(a_stream_works_in_order) {
        cuda_stream stream;

        OK(gpu->cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 1; i <= 40; i++) {
                OK(gpu->cuda.set_async(area->address, (unsigned char)i, SMALL, stream));
                OK(gpu->cuda.copy(area->address + i * SMALL, area->address, SMALL, stream));
        }
        OK(gpu->cuda.stream_wait(stream));
        OK(gpu->cuda.stream_query(stream));
        for (unsigned i = 1; i <= 40; i++)
                gpu_expect(gpu, area->address + i * SMALL, SMALL, (unsigned char)i);
        OK(gpu->cuda.stream_free(stream));
}

FACT(a_destroyed_stream_ends_its_work) {
        cuda_stream stream;
        cuda_event event;

        OK(gpu->cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
        OK(gpu->cuda.set_async(area->address, 0x21, area->bytes, stream));
        OK(gpu->cuda.event_record(event, stream));
        OK(gpu->cuda.stream_free(stream));
        OK(gpu->cuda.event_wait(event));
        gpu_expect(gpu, area->address, area->bytes, 0x21);
        OK(gpu->cuda.event_free(event));
}

FACT(an_event_is_its_last_record) {
        cuda_stream stream[3];
        cuda_event event;

        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC));
        OK(gpu->cuda.event_query(event)); /* it was never recorded */
        OK(gpu->cuda.event_wait(event));
        for (unsigned i = 0; i < 3; i++)
                OK(gpu->cuda.stream_new(&stream[i], CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < 3; i++) {
                OK(gpu->cuda.set_async(area->address + i * gpu->granularity, 0x31, gpu->granularity,
                                       stream[i]));
                OK(gpu->cuda.event_record(event, stream[i]));
        }
        OK(gpu->cuda.event_wait(event));
        OK(gpu->cuda.event_query(event));
        gpu_expect(gpu, area->address + 2 * gpu->granularity, gpu->granularity, 0x31);
        OK(gpu->cuda.event_free(event));
        for (unsigned i = 0; i < 3; i++) {
                OK(gpu->cuda.stream_wait(stream[i]));
                OK(gpu->cuda.stream_free(stream[i]));
        }
}

FACT(pageable_memory_is_done_with_when_a_copy_returns) {
        unsigned char bytes[SMALL], back[SMALL];

        for (unsigned i = 0; i < 20; i++) {
                memset(bytes, (int)i, sizeof(bytes));
                OK(gpu->cuda.copy_in(area->address, bytes, sizeof(bytes), NULL));
                memset(bytes, 0xee, sizeof(bytes));
                OK(gpu->cuda.copy_out(back, area->address, sizeof(back), NULL));
                for (unsigned b = 0; b < sizeof(back); b++)
                        IS(back[b], (int)i);
        }
}

FACT(pinned_memory_is_copied_from_and_to) {
        unsigned char *pinned;

        OK(gpu->cuda.host_alloc((void **)&pinned, 2 * SMALL, CUDA_HOST_DEVICEMAP));
        memset(pinned, 0x41, SMALL);
        OK(gpu->cuda.copy_in(area->address, pinned, SMALL, NULL));
        OK(gpu->cuda.copy_out(pinned + SMALL, area->address, SMALL, NULL));
        OK(gpu->cuda.stream_wait(NULL));
        for (unsigned i = 0; i < SMALL; i++)
                IS(pinned[SMALL + i], 0x41);
        OK(gpu->cuda.host_free(pinned));
        FAILS(gpu->cuda.host_free(pinned));
}

/* ---- devices, contexts, kernels ---- */

FACT(there_are_only_so_many_devices) {
        struct cuda_uuid uuid;
        char name[64];
        int n, value;
        size_t bytes;
        cuda_device device;
        cuda_context context;

        OK(gpu->cuda.device_count(&n));
        CHECK(n > 0);
        IS(gpu->cuda.device_get(&device, n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.device_get(&device, -1), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.device_name(name, sizeof(name), n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.device_uuid(&uuid, n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.device_attribute(&value, CUDA_DEVICE_MAJOR, n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.device_total(&bytes, n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.primary_retain(&context, n), CUDA_INVALID_DEVICE);
        IS(gpu->cuda.primary_release(n), CUDA_INVALID_DEVICE);
}

FACT(a_context_is_counted) {
        cuda_context again, current;
        cuda_address address;
        unsigned flags;
        int active;

        OK(gpu->cuda.primary_retain(&again, gpu->device));
        CHECK(again == gpu->context);
        OK(gpu->cuda.primary_release(gpu->device));
        OK(gpu->cuda.primary_state(gpu->device, &flags, &active));
        CHECK(active == 1);
        OK(gpu->cuda.allocate(&address, SMALL));
        OK(gpu->cuda.free(address));
        OK(gpu->cuda.context_set(NULL));
        OK(gpu->cuda.context_get(&current));
        CHECK(current == NULL);
        IS(gpu->cuda.allocate(&address, SMALL), CUDA_INVALID_CONTEXT);
        OK(gpu->cuda.primary_release(gpu->device));
        OK(gpu->cuda.primary_state(gpu->device, &flags, &active));
        CHECK(active == 0);
        IS(gpu->cuda.primary_release(gpu->device), CUDA_INVALID_CONTEXT);
        OK(gpu->cuda.primary_retain(&again, gpu->device)); /* given back after the case */
}

/* Asked where there are two GPUs. */
FACT(a_stream_is_of_one_gpu) {
        cuda_context other;
        cuda_device device;
        cuda_stream own, stream;
        cuda_event event;
        int n;

        OK(gpu->cuda.device_count(&n));
        if (n < 2)
                return;
        OK(gpu->cuda.stream_new(&own, CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING));
        OK(gpu->cuda.device_get(&device, 1));
        OK(gpu->cuda.primary_retain(&other, device));
        OK(gpu->cuda.context_set(other));
        OK(gpu->cuda.stream_new(&stream, CUDA_STREAM_NON_BLOCKING, 0));
        OK(gpu->cuda.context_set(gpu->context));
        IS(gpu->cuda.event_record(event, stream), CUDA_INVALID_HANDLE);
        IS(gpu->cuda.set_async(area->address, 1, SMALL, stream), CUDA_INVALID_HANDLE);
        OK(gpu->cuda.event_free(event));
        OK(gpu->cuda.stream_free(own));
        OK(gpu->cuda.context_set(other));
        OK(gpu->cuda.stream_free(stream));
        OK(gpu->cuda.primary_release(device));
        OK(gpu->cuda.context_set(gpu->context));
}

FACT(a_forked_child_cannot_use_the_gpu) {
        cuda_address address;
        int status;

        pid_t pid = fork();
        if (pid == 0) {
                FAILS(gpu->cuda.allocate(&address, SMALL));
                _exit(EXIT_SUCCESS);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        OK(gpu->cuda.allocate(&address, SMALL));
        OK(gpu->cuda.free(address));
}

FACT(only_kernels_of_a_module_are_found) {
        static const char idle[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                                   ".visible .entry idle()\n{\n        ret;\n}\n";
        cuda_module module;
        cuda_function function;

        FAILS(gpu->cuda.module_load(&module, "this is no program"));
        OK(gpu->cuda.module_load(&module, idle));
        IS(gpu->cuda.module_function(&function, module, "busy"), CUDA_NOT_FOUND);
}

/* ---- the list: those that count free bytes come before processes that end late ---- */

static const struct gpu_case facts[] = {
#define ROW(name, role, granules)                                                                            \
        { #name, name, role, granules }
        ROW(memory_lives_until_its_last_use, NULL, 0),
        ROW(more_than_there_is_cannot_be_had, NULL, 0),
        ROW(exported_memory_is_shared, export_role, 0),
        ROW(mapped_memory_outlives_its_killed_exporter, export_role, 0),
        ROW(a_descriptor_outlives_its_killed_exporter, export_role, 0),
        ROW(a_descriptor_is_of_no_use_to_the_host, NULL, 1),
        ROW(what_is_no_memory_is_not_imported, NULL, 0),
        ROW(an_import_tells_the_properties, NULL, 1),
        ROW(sizes_are_multiples_of_the_granularity, NULL, 0),
        ROW(a_mapping_is_unmapped_whole_and_before_its_reservation_goes, NULL, 2),
        ROW(a_reservation_may_be_larger_than_what_is_mapped, NULL, 0),
        ROW(an_allocation_is_shared_by_its_handle, ipc_role, 0),
        ROW(an_opened_allocation_outlives_its_killed_owner, ipc_role, 0),
        ROW(which_memory_has_a_handle, NULL, 1),
        ROW(an_address_is_known, NULL, 1),
        ROW(memory_is_freed_once_and_by_its_base, NULL, 0),
        ROW(the_host_cannot_read_device_memory, NULL, 1),
        ROW(what_is_beyond_memory_is_not_written_silently, NULL, 1),
        ROW(a_stream_works_in_order, NULL, 1),
        ROW(a_destroyed_stream_ends_its_work, NULL, 1),
        ROW(an_event_is_its_last_record, NULL, 3),
        ROW(pageable_memory_is_done_with_when_a_copy_returns, NULL, 1),
        ROW(pinned_memory_is_copied_from_and_to, NULL, 1),
        ROW(there_are_only_so_many_devices, NULL, 0),
        ROW(a_context_is_counted, NULL, 0),
        ROW(a_stream_is_of_one_gpu, NULL, 1),
        ROW(a_forked_child_cannot_use_the_gpu, NULL, 0),
        ROW(only_kernels_of_a_module_are_found, NULL, 0),
};

static const char *name_of(size_t i) {
        return facts[i].name;
}

static void run(size_t i) {
        gpu_case_run(&facts[i]);
}

int main(int argc, char **argv) {
        return cases_main(argv, sizeof(facts) / sizeof(facts[0]), name_of, run);
}
