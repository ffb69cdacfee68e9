/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts' operations on memory of the virtual memory management: each must not fail.
 */
#include "vmm.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static CUmemAllocationProp vmm_properties(struct actor *actor) {
        return (CUmemAllocationProp){
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = actor->device },
        };
}

size_t vmm_granularity(struct actor *actor) {
        CUmemAllocationProp wanted = vmm_properties(actor);
        size_t granularity = 0;

        CU(actor, cuMemGetAllocationGranularity, &granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        return granularity;
}

struct vmm vmm_new(struct actor *actor, unsigned granules) {
        CUmemAllocationProp wanted = vmm_properties(actor);
        struct vmm vmm = { .size = granules * vmm_granularity(actor) };

        CU(actor, cuMemCreate, &vmm.handle, vmm.size, &wanted, 0);
        vmm_map(actor, &vmm);
        return vmm;
}

int vmm_export(struct actor *actor, const struct vmm *vmm) {
        int fd = -1;

        CU(actor, cuMemExportToShareableHandle, &fd, vmm->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
           0);
        return fd;
}

CUresult vmm_import_try(struct actor *actor, struct vmm *vmm, int fd, size_t size) {
        vmm->size = size;
        return CU_TRY(actor, cuMemImportFromShareableHandle, &vmm->handle, (void *)(uintptr_t)fd,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

struct vmm vmm_import(struct actor *actor, int fd, size_t size) {
        struct vmm vmm = { 0 };

        driver_check(actor, "cuMemImportFromShareableHandle", vmm_import_try(actor, &vmm, fd, size));
        return vmm;
}

void vmm_map(struct actor *actor, struct vmm *vmm) {
        CUmemAccessDesc access = {
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = actor->device },
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };

        CU(actor, cuMemAddressReserve, &vmm->address, vmm->size, 0, 0, 0);
        CU(actor, cuMemMap, vmm->address, vmm->size, 0, vmm->handle, 0);
        CU(actor, cuMemSetAccess, vmm->address, vmm->size, &access, 1);
}

void vmm_send(struct actor *actor, int channel, const struct vmm *vmm, const char *word) {
        struct message message = { .number = { vmm->size } };
        int fd = vmm_export(actor, vmm);

        snprintf(message.word, sizeof message.word, "%s", word);
        channel_send(actor, channel, &message, fd);
        close(fd);
}

static struct vmm vmm_open_received(struct actor *actor, const struct message *message, int fd) {
        struct vmm vmm = vmm_import(actor, fd, message->number[0]);

        vmm_map(actor, &vmm);
        close(fd);
        return vmm;
}

struct vmm vmm_receive_from(struct actor *actor, struct peer *peer, const char *word) {
        int fd;
        struct message message = peer_receive(actor, peer, word, &fd);

        return vmm_open_received(actor, &message, fd);
}

struct vmm vmm_receive(struct actor *actor, const char *word) {
        int fd;
        struct message message = channel_receive(actor, word, &fd);

        return vmm_open_received(actor, &message, fd);
}

bool vmm_holds(struct actor *actor, CUstream stream, const struct vmm *vmm, uint32_t word) {
        return driver_read32(actor, stream, vmm->address) == word &&
               driver_read32(actor, stream, vmm->address + vmm->size / 2) == word &&
               driver_read32(actor, stream, vmm->address + vmm->size - sizeof word) == word;
}
