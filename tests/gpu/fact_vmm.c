/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the virtual memory management between processes: which process can import the descriptor, and
 * with which sizes it can be mapped.
 */
#include "facts.h"
#include "vmm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATTERN = 0x5a17 };

/* Imports, maps, checks what is in it, and adds 1 to each word by a kernel. Says what came of the import. */
static void role_vmm_importer(struct actor *actor) {
        struct message message, imported = { .word = "imported" };
        struct vmm vmm = { 0 };
        cuda_stream stream;
        cuda_result result;
        int fd;

        driver_open(actor);
        stream = driver_stream(actor);
        message = channel_receive(actor, "memory", &fd);
        result = vmm_import_try(actor, &vmm, fd, message.number[0]);
        imported.number[0] = (uint64_t)result;
        if (result == CUDA_OK) {
                vmm_map(actor, &vmm);
                if (!vmm_holds(actor, stream, &vmm, PATTERN))
                        actor_fail(actor,
                                   "importer: the imported memory does not hold what its exporter wrote");
                driver_check(actor, CALL_launch, driver_bump(actor, stream, vmm.address, vmm.size));
        }
        channel_send(actor, actor->channel, &imported, -1);
        actor_stay(actor);
}

/* Creates memory of two granules, fills it, and sends its descriptor. */
static void role_vmm_exporter(struct actor *actor) {
        cuda_stream stream;
        struct vmm vmm;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 2);
        driver_fill(actor, stream, vmm.address, vmm.size, PATTERN);
        vmm_send(actor, actor->channel, &vmm, "memory");
        actor_stay(actor);
}

static unsigned uid_of(bool other) {
        return other ? OTHER_UID : (unsigned)geteuid();
}

/* A peer imports what this process exports, and both see what the other writes. Returns whether it could. */
static bool peer_can_import(struct actor *actor, cuda_stream stream, struct peer *importer, bool other_uid) {
        struct vmm vmm = vmm_new(actor, 2);
        struct message imported;

        driver_fill(actor, stream, vmm.address, vmm.size, PATTERN);
        vmm_send(actor, importer->channel, &vmm, "memory");
        imported = peer_receive(actor, importer, "imported", NULL);
        actor_note(actor, "exporter uid %u, importer uid %u: %s", uid_of(false), uid_of(other_uid),
                   driver_name(actor, (cuda_result)imported.number[0]));
        if (imported.number[0] != CUDA_OK)
                return false;
        if (!vmm_holds(actor, stream, &vmm, PATTERN + 1))
                actor_fail(actor, "the exporter does not see what the importer's kernel wrote");
        actor_note(actor, "%zu bytes, granularity %zu; each sees what the other writes", vmm.size,
                   vmm_granularity(actor));
        return true;
}

/* This process imports what a peer of the other user exports. */
static bool can_import_peers(struct actor *actor, cuda_stream stream, struct peer *exporter) {
        struct vmm vmm = { 0 };
        int fd;
        struct message message = peer_receive(actor, exporter, "memory", &fd);
        cuda_result result = vmm_import_try(actor, &vmm, fd, message.number[0]);

        actor_note(actor, "exporter uid %u, importer uid %u: %s", uid_of(true), uid_of(false),
                   driver_name(actor, result));
        if (result != CUDA_OK)
                return false;
        vmm_map(actor, &vmm);
        return vmm_holds(actor, stream, &vmm, PATTERN);
}

void fact_vmm_same_uid(struct actor *actor) {
        struct peer importer = peer_start(actor, "vmm.importer", role_vmm_importer, false);

        driver_open(actor);
        actor_answer(actor, peer_can_import(actor, driver_stream(actor), &importer, false) ? "yes" : "no");
}

/* In both directions: root as the exporter, and as the importer. */
void fact_vmm_other_uid(struct actor *actor) {
        struct peer importer = peer_start(actor, "vmm.importer", role_vmm_importer, true);
        struct peer exporter = peer_start(actor, "vmm.exporter", role_vmm_exporter, true);
        cuda_stream stream;
        bool out, in;

        driver_open(actor);
        stream = driver_stream(actor);
        out = peer_can_import(actor, stream, &importer, true);
        in = can_import_peers(actor, stream, &exporter);
        actor_answer(actor, "%s", out && in ? "yes" : out ? "only from root" : in ? "only to root" : "no");
}

/* Maps `size` bytes of an allocation that has another size, with access. The reserved range has room for any
 * of the sizes. Returns the result of the last call, and its name. */
static cuda_result map_with(struct actor *actor, const struct vmm *vmm, cuda_address address, size_t size,
                            const char **call) {
        struct cuda_access access = {
                .location = { .type = CUDA_LOCATION_DEVICE, .id = actor->device },
                .flags = CUDA_ACCESS_READ_WRITE,
        };
        cuda_result result = CU_TRY(actor, map, address, size, 0, vmm->handle, 0);

        *call = "cuMemMap";
        if (result == CUDA_OK) {
                *call = "cuMemSetAccess";
                result = CU_TRY(actor, set_access, address, size, &access, 1);
        }
        return result;
}

/* Tries a size, notes what came of it, and takes the mapping away again. */
static cuda_result try_size(struct actor *actor, const struct vmm *vmm, cuda_address address, size_t size,
                            const char *what) {
        const char *call;
        cuda_result result = map_with(actor, vmm, address, size, &call);

        actor_note(actor, "%s: %s %s", what, call, driver_name(actor, result));
        CU_TRY(actor, unmap, address, size);
        return result;
}

/* The exporter's memory has two granules; the importer believes other sizes. */
void fact_vmm_wrong_size(struct actor *actor) {
        struct peer exporter = peer_start(actor, "vmm.exporter", role_vmm_exporter, false);
        cuda_address address;
        size_t granularity;
        struct message message;
        cuda_result larger;
        struct vmm vmm;
        int fd;

        driver_open(actor);
        granularity = vmm_granularity(actor);
        message = peer_receive(actor, &exporter, "memory", &fd);
        vmm = vmm_import(actor, fd, message.number[0]);
        CU(actor, reserve, &address, 2 * vmm.size, 0, 0, 0);
        larger = try_size(actor, &vmm, address, vmm.size + granularity, "a granule more");
        try_size(actor, &vmm, address, vmm.size - granularity, "a granule less");
        try_size(actor, &vmm, address, vmm.size - 4096, "4096 bytes less");
        try_size(actor, &vmm, address, vmm.size, "the right size");
        actor_note(actor, "the answer is whether a mapping larger than the memory is refused");
        actor_answer(actor, larger == CUDA_OK ? "no" : "yes");
}

/* If a mapping that is too large was allowed: what lies after the memory? */
void fact_vmm_touch_beyond(struct actor *actor) {
        cuda_address address;
        const char *call;
        uint32_t word = 0;
        cuda_stream stream;
        size_t larger;
        struct vmm vmm;
        cuda_result result;

        driver_open(actor);
        stream = driver_stream(actor);
        vmm = vmm_new(actor, 2);
        larger = vmm.size + vmm_granularity(actor);
        CU(actor, reserve, &address, larger, 0, 0, 0);
        result = map_with(actor, &vmm, address, larger, &call);
        actor_note(actor, "a mapping of a granule more: %s %s", call, driver_name(actor, result));
        if (result != CUDA_OK)
                actor_answer(actor, "yes");
        result = driver_read32_try(actor, stream, address + larger - sizeof word, &word);
        actor_note(actor, "reading its last word: %s, %#x", driver_name(actor, result), word);
        actor_answer(actor, result == CUDA_OK ? "no" : "yes");
}
