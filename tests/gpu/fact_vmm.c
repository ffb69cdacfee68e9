/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the virtual memory management between processes: which process can import the descriptor, which
 * of them the memory outlives, and how much of the allocation the descriptor alone shows.
 */
#include "facts.h"
#include "vmm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PATTERN = 0x5a17 };

/* Imports, maps, checks what is in it, and adds 1 to each word by a kernel. Says what came of the import. */
void role_vmm_importer(struct actor *actor) {
        struct message message, imported = { .word = "imported" };
        struct vmm vmm = { 0 };
        CUstream stream;
        CUresult result;
        int fd;

        driver_open(actor);
        stream = driver_stream(actor);
        message = channel_receive(actor, "memory", &fd);
        result = vmm_import_try(actor, &vmm, fd, message.number[0]);
        imported.number[0] = (uint64_t)result;
        if (result == CUDA_SUCCESS) {
                vmm_map(actor, &vmm);
                if (!vmm_holds(actor, stream, &vmm, PATTERN))
                        actor_fail(actor,
                                   "importer: the imported memory does not hold what its exporter wrote");
                driver_check(actor, "a kernel on imported memory",
                             driver_bump(actor, stream, vmm.address, vmm.size));
        }
        channel_send(actor, actor->channel, &imported, -1);
        actor_stay(actor);
}

/* Creates memory of two granules, fills it, and sends its descriptor. */
void role_vmm_exporter(struct actor *actor) {
        CUstream stream;
        struct vmm vmm;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 2);
        driver_fill(actor, stream, vmm.address, vmm.size, PATTERN);
        vmm_send(actor, actor->channel, &vmm, "memory");
        actor_stay(actor);
}

/* A peer imports what this process exports, and both see what the other writes. Returns whether it could. */
static bool peer_can_import(struct actor *actor, CUstream stream, bool other_uid) {
        struct peer importer = peer_start(actor, "vmm.importer", other_uid);
        struct vmm vmm = vmm_new(actor, 2);
        struct message imported;

        driver_fill(actor, stream, vmm.address, vmm.size, PATTERN);
        vmm_send(actor, importer.channel, &vmm, "memory");
        imported = peer_receive(actor, &importer, "imported", NULL);
        actor_note(actor, "exporter uid %u, importer uid %u: %s", (unsigned)geteuid(),
                   (unsigned)(other_uid ? actor->options->other_uid : geteuid()),
                   driver_name(actor, (CUresult)imported.number[0]));
        if (imported.number[0] != CUDA_SUCCESS)
                return false;
        if (!vmm_holds(actor, stream, &vmm, PATTERN + 1))
                actor_fail(actor, "the exporter does not see what the importer's kernel wrote");
        actor_note(actor, "%zu bytes, granularity %zu; each sees what the other writes", vmm.size,
                   vmm_granularity(actor));
        return true;
}

/* This process imports what a peer of the other user exports. */
static bool can_import_peers(struct actor *actor, CUstream stream) {
        struct peer exporter = peer_start(actor, "vmm.exporter", true);
        struct vmm vmm = { 0 };
        int fd;
        struct message message = peer_receive(actor, &exporter, "memory", &fd);
        CUresult result = vmm_import_try(actor, &vmm, fd, message.number[0]);

        actor_note(actor, "exporter uid %u, importer uid %u: %s", (unsigned)actor->options->other_uid,
                   (unsigned)geteuid(), driver_name(actor, result));
        if (result != CUDA_SUCCESS)
                return false;
        vmm_map(actor, &vmm);
        return vmm_holds(actor, stream, &vmm, PATTERN);
}

void fact_vmm_same_uid(struct actor *actor) {
        driver_open(actor);
        actor_answer(actor, peer_can_import(actor, driver_stream(actor), false) ? "yes" : "no");
}

/* In both directions: root as the exporter, and as the importer. */
void fact_vmm_other_uid(struct actor *actor) {
        CUstream stream;
        bool out, in;

        driver_open(actor);
        stream = driver_stream(actor);
        out = peer_can_import(actor, stream, true);
        in = can_import_peers(actor, stream);
        actor_answer(actor, "%s", out && in ? "yes" : out ? "only from root" : in ? "only to root" : "no");
}

static struct stat describe(struct actor *actor, const char *what, int fd) {
        struct stat status;
        char path[64], target[128] = "";

        if (fstat(fd, &status) < 0)
                actor_fail(actor, "fstat: %s", strerror(errno));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) < 0)
                snprintf(target, sizeof target, "%s", strerror(errno));
        actor_note(actor, "%s: dev %u:%u inode %llu mode %o rdev %u:%u size %lld (%s)", what,
                   major(status.st_dev), minor(status.st_dev), (unsigned long long)status.st_ino,
                   (unsigned)status.st_mode, major(status.st_rdev), minor(status.st_rdev),
                   (long long)status.st_size, target);
        return status;
}

void fact_vmm_fstat(struct actor *actor) {
        struct stat first, second, other;
        struct vmm one, two;

        driver_open(actor);
        one = vmm_new(actor, 1);
        two = vmm_new(actor, 2);
        first = describe(actor, "an allocation", vmm_export(actor, &one));
        second = describe(actor, "the same exported again", vmm_export(actor, &one));
        other = describe(actor, "another allocation", vmm_export(actor, &two));
        actor_note(actor, "the size %s",
                   first.st_size == (off_t)one.size && other.st_size == (off_t)two.size
                           ? "is that of the memory"
                           : "is not the memory's");
        actor_note(actor, "two exports of one allocation have %s inodes",
                   first.st_ino == second.st_ino ? "equal" : "different");
        actor_answer(actor, first.st_dev == other.st_dev && first.st_ino == other.st_ino ? "no" : "yes");
}

/* Maps `size` bytes of an allocation that has another size, with access. The reserved range has room for any
 * of the sizes. Returns the result of the last call, and its name. */
static CUresult map_with(struct actor *actor, const struct vmm *vmm, CUdeviceptr address, size_t size,
                         const char **call) {
        CUmemAccessDesc access = {
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = actor->device },
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        CUresult result = CU_TRY(actor, cuMemMap, address, size, 0, vmm->handle, 0);

        *call = "cuMemMap";
        if (result == CUDA_SUCCESS) {
                *call = "cuMemSetAccess";
                result = CU_TRY(actor, cuMemSetAccess, address, size, &access, 1);
        }
        return result;
}

/* Tries a size, notes what came of it, and takes the mapping away again. */
static CUresult try_size(struct actor *actor, const struct vmm *vmm, CUdeviceptr address, size_t size,
                         const char *what) {
        const char *call;
        CUresult result = map_with(actor, vmm, address, size, &call);

        actor_note(actor, "%s: %s %s", what, call, driver_name(actor, result));
        CU_TRY(actor, cuMemUnmap, address, size);
        return result;
}

/* The exporter's memory has two granules; the importer believes other sizes. */
void fact_vmm_wrong_size(struct actor *actor) {
        struct peer exporter = peer_start(actor, "vmm.exporter", false);
        CUdeviceptr address;
        size_t granularity;
        struct message message;
        CUresult larger;
        struct vmm vmm;
        int fd;

        driver_open(actor);
        granularity = vmm_granularity(actor);
        message = peer_receive(actor, &exporter, "memory", &fd);
        vmm = vmm_import(actor, fd, message.number[0]);
        CU(actor, cuMemAddressReserve, &address, 2 * vmm.size, 0, 0, 0);
        larger = try_size(actor, &vmm, address, vmm.size + granularity, "a granule more");
        try_size(actor, &vmm, address, vmm.size - granularity, "a granule less");
        try_size(actor, &vmm, address, vmm.size - 4096, "4096 bytes less");
        try_size(actor, &vmm, address, vmm.size, "the right size");
        actor_note(actor, "the answer is whether a mapping larger than the memory is refused");
        actor_answer(actor, larger == CUDA_SUCCESS ? "no" : "yes");
}

/* If a mapping that is too large was allowed: what lies after the memory? */
void fact_vmm_touch_beyond(struct actor *actor) {
        CUdeviceptr address;
        const char *call;
        uint32_t word = 0;
        CUstream stream;
        size_t larger;
        struct vmm vmm;
        CUresult result;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 2);
        larger = vmm.size + vmm_granularity(actor);
        CU(actor, cuMemAddressReserve, &address, larger, 0, 0, 0);
        result = map_with(actor, &vmm, address, larger, &call);
        actor_note(actor, "a mapping of a granule more: %s %s", call, driver_name(actor, result));
        if (result != CUDA_SUCCESS)
                actor_answer(actor, "yes");
        result = driver_read32_try(actor, stream, address + larger - sizeof word, &word);
        actor_note(actor, "reading its last word: %s, %#x", driver_name(actor, result), word);
        actor_answer(actor, result == CUDA_SUCCESS ? "no" : "yes");
}
