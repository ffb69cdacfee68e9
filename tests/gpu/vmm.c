/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts' operations on memory of the virtual memory management: each must not fail.
 */
#include "vmm.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static struct cuda_properties vmm_properties(struct actor *actor) {
        return (struct cuda_properties){
                .type = CUDA_ALLOCATION_PINNED,
                .handle_types = CUDA_HANDLE_FD,
                .location = { .type = CUDA_LOCATION_DEVICE, .id = actor->device },
        };
}

size_t vmm_granularity(struct actor *actor) {
        struct cuda_properties wanted = vmm_properties(actor);
        size_t granularity = 0;

        CU(actor, granularity, &granularity, &wanted, CUDA_GRANULARITY_RECOMMENDED);
        return granularity;
}

struct vmm vmm_new(struct actor *actor, unsigned granules) {
        struct cuda_properties wanted = vmm_properties(actor);
        struct vmm vmm = { .size = granules * vmm_granularity(actor) };

        CU(actor, create, &vmm.handle, vmm.size, &wanted, 0);
        vmm_map(actor, &vmm);
        return vmm;
}

int vmm_export(struct actor *actor, const struct vmm *vmm) {
        int fd = -1;

        CU(actor, export_handle, &fd, vmm->handle, CUDA_HANDLE_FD, 0);
        return fd;
}

cuda_result vmm_import_try(struct actor *actor, struct vmm *vmm, int fd, size_t size) {
        vmm->size = size;
        return CU_TRY(actor, import_handle, &vmm->handle, (void *)(uintptr_t)fd, CUDA_HANDLE_FD);
}

struct vmm vmm_import(struct actor *actor, int fd, size_t size) {
        struct vmm vmm = { 0 };

        driver_check(actor, CALL_import_handle, vmm_import_try(actor, &vmm, fd, size));
        return vmm;
}

void vmm_map(struct actor *actor, struct vmm *vmm) {
        struct cuda_access access = {
                .location = { .type = CUDA_LOCATION_DEVICE, .id = actor->device },
                .flags = CUDA_ACCESS_READ_WRITE,
        };

        CU(actor, reserve, &vmm->address, vmm->size, 0, 0, 0);
        CU(actor, map, vmm->address, vmm->size, 0, vmm->handle, 0);
        CU(actor, set_access, vmm->address, vmm->size, &access, 1);
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

bool vmm_holds(struct actor *actor, cuda_stream stream, const struct vmm *vmm, uint32_t word) {
        return driver_read32(actor, stream, vmm->address) == word &&
               driver_read32(actor, stream, vmm->address + vmm->size / 2) == word &&
               driver_read32(actor, stream, vmm->address + vmm->size - sizeof word) == word;
}
