/* SPDX-License-Identifier: Apache-2.0 */
/* See vmm.h. */
#include "backend/cuda/vmm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/fill.h"
#include "base/cleanup.h"
#include "gradsync.pb-c.h"

#define FILL_BYTES 4096u

void vmm_free(const struct card *card, struct pinned *pinned, struct vmm *vmm) {
        if (vmm == NULL)
                return;
        if (vmm->legacy) {
                card->cuda.ipc_close(vmm->base);
        } else if (vmm->base != 0) {
                card->cuda.unmap(vmm->base, vmm->mapped);
                card->cuda.unreserve(vmm->base, vmm->mapped);
        }
        pinned_leave(pinned, vmm->companion);
        fd_close(vmm->fd);
        free(vmm);
}

/* Whether this daemon makes the memory now. */
static bool vmm_is_made(const struct memory_request *request) {
        return request->kind == MEMORY_SHARED || request->kind == MEMORY_OWN;
}

static uint64_t vmm_round_up(const struct card *card, uint64_t bytes) {
        return (bytes + card->granularity - 1) / card->granularity * card->granularity;
}

/* Maps the allocation. The mapping keeps it. */
static cuda_result vmm_map(const struct card *card, struct vmm *vmm, cuda_handle handle) {
        const struct cuda_access access = { { CUDA_LOCATION_DEVICE, card->device }, CUDA_ACCESS_READ_WRITE };
        cuda_address base;
        cuda_result r = card->cuda.reserve(&base, vmm->mapped, 0, 0, 0);

        if (r != CUDA_OK)
                return r;
        r = card->cuda.map(base, vmm->mapped, 0, handle, 0);
        if (r != CUDA_OK) {
                card->cuda.unreserve(base, vmm->mapped);
                return r;
        }
        vmm->base = base;
        return card->cuda.set_access(base, vmm->mapped, &access, 1);
}

/* Clears new memory, which holds what other processes have left there. */
static cuda_result vmm_clear(const struct card *card, cuda_stream stream, const struct vmm *vmm) {
        cuda_result r = card->cuda.set_async(vmm->base, 0, vmm->mapped, stream);

        return r == CUDA_OK ? card->cuda.stream_wait(stream) : r;
}

/* Fills a range whose first `there` bytes are filled already: they are copied behind themselves, twice as
 * many each time. */
static cuda_result vmm_repeat(const struct card *card, cuda_stream stream, cuda_address at, uint64_t there,
                              uint64_t bytes) {
        cuda_result r = CUDA_OK;

        for (uint64_t more = 0; there < bytes && r == CUDA_OK; there += more) {
                more = there < bytes - there ? there : bytes - there;
                r = card->cuda.copy(at + there, at, more, stream);
        }
        return r;
}

/* Fills a range. A copy from memory that is not pinned is over when the call returns. */
static cuda_result vmm_fill(const struct card *card, cuda_stream stream, const struct vmm *vmm,
                            const struct memory_fill *fill) {
        unsigned char first[FILL_BYTES];
        uint64_t n = fill->bytes < sizeof(first) ? fill->bytes : sizeof(first);

        if (n == 0)
                return CUDA_OK;
        fill_repeat(first, n, fill->bits, fill->size);
        cuda_result r = card->cuda.copy_in(vmm->base + fill->offset, first, n, stream);
        return r == CUDA_OK ? vmm_repeat(card, stream, vmm->base + fill->offset, n, fill->bytes) : r;
}

static cuda_result vmm_write(const struct card *card, cuda_stream stream, const struct vmm *vmm,
                             const struct memory_request *request) {
        cuda_result r = vmm_clear(card, stream, vmm);

        for (unsigned i = 0; i < request->n_fills && r == CUDA_OK; i++)
                r = vmm_fill(card, stream, vmm, &request->fills[i]);
        return r == CUDA_OK && request->n_fills > 0 ? card->cuda.stream_wait(stream) : r;
}

/* Makes an allocation. Only memory of the daemon itself, as an engine uses, may be read and written by
 * network adapters: members share none of it. */
static cuda_result vmm_make(const struct card *card, cuda_stream stream, struct vmm *vmm,
                            const struct memory_request *request) {
        const struct cuda_properties properties = {
                .type = CUDA_ALLOCATION_PINNED,
                .handle_types = CUDA_HANDLE_FD,
                .location = { CUDA_LOCATION_DEVICE, card->device },
                .flags.rdma = request->kind == MEMORY_OWN && card->rdma,
        };
        cuda_handle handle;
        cuda_result r = card->cuda.create(&handle, vmm->mapped, &properties, 0);

        if (r != CUDA_OK)
                return r;
        r = vmm_map(card, vmm, handle);
        if (r == CUDA_OK)
                r = vmm_write(card, stream, vmm, request);
        if (r == CUDA_OK && request->kind == MEMORY_SHARED)
                r = card->cuda.export_handle(&vmm->fd, handle, CUDA_HANDLE_FD, 0);
        card->cuda.release(handle);
        return r;
}

static cuda_result vmm_make_companion(const struct card *card, struct pinned *pinned, struct vmm *vmm,
                                      size_t bytes) {
        cuda_result r = pinned_take(pinned, &card->cuda, bytes, &vmm->companion);

        if (r == CUDA_OK)
                memset(vmm->companion->address, 0, bytes);
        return r;
}

static int vmm_refuse_room(const struct card *card, const struct vmm *vmm, struct refusal *refusal) {
        size_t free = 0, total = 0;

        card->cuda.memory_info(&free, &total);
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "the GPU (%s) has no room for %" PRIu64
                      " bytes: %zu of %zu are free; end other programs "
                      "that use it, or make the model's batch smaller",
                      card->name, vmm->mapped, free, total);
}

static int vmm_judge(const struct card *card, const struct vmm *vmm, cuda_result result,
                     const struct memory_request *request, struct refusal *refusal, cuda_result *sticky) {
        char name[64];

        if (cuda_is_sticky(result))
                *sticky = result;
        if (result == CUDA_OUT_OF_MEMORY)
                return vmm_refuse_room(card, vmm, refusal);
        if (*sticky != CUDA_OK || vmm_is_made(request))
                return -EIO;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "this is no memory of the GPU that the daemon serves (%s, %s), or there are fewer than "
                      "%" PRIu64 " bytes of it: %s",
                      card->name, card->uuid, request->offset + request->bytes,
                      cuda_error(&card->cuda, result, name, sizeof(name)));
}

static int vmm_refuse_place(const struct card *card, struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__INVALID,
                      "this memory is not of the GPU that the daemon serves (%s, %s)", card->name,
                      card->uuid);
}

static int vmm_check_place(const struct card *card, cuda_handle handle, struct refusal *refusal,
                           cuda_result *ret) {
        struct cuda_properties properties;

        *ret = card->cuda.handle_properties(&properties, handle);
        if (*ret != CUDA_OK ||
            (properties.type == CUDA_ALLOCATION_PINNED && properties.location.type == CUDA_LOCATION_DEVICE &&
             properties.location.id == card->device))
                return 0;
        return vmm_refuse_place(card, refusal);
}

static int vmm_import(const struct card *card, struct vmm *vmm, struct refusal *refusal, cuda_result *ret) {
        cuda_handle handle;

        *ret = card->cuda.import_handle(&handle, (void *)(intptr_t)vmm->fd, CUDA_HANDLE_FD);
        if (*ret != CUDA_OK)
                return 0;
        int r = vmm_check_place(card, handle, refusal, ret);
        if (r == 0 && *ret == CUDA_OK)
                *ret = vmm_map(card, vmm, handle);
        card->cuda.release(handle);
        return r;
}

/* Opens an IPC handle. It names a whole allocation, of which the range is a part. */
static int vmm_open(const struct card *card, struct vmm *vmm, const struct memory_request *request,
                    struct refusal *refusal, cuda_result *ret) {
        size_t whole = 0;
        int device = 0;

        *ret = card->cuda.ipc_open(&vmm->base, *request->ipc, CUDA_IPC_LAZY_PEER_ACCESS);
        vmm->legacy = *ret == CUDA_OK;
        if (*ret == CUDA_OK)
                *ret = card->cuda.address_range(NULL, &whole, vmm->base);
        if (*ret == CUDA_OK) /* a GPU that is a peer can be opened, too, but not used by these kernels */
                *ret = card->cuda.pointer_attribute(&device, CUDA_POINTER_DEVICE_ORDINAL, vmm->base);
        if (*ret != CUDA_OK)
                return 0;
        if (device != card->device)
                return vmm_refuse_place(card, refusal);
        vmm->mapped = whole;
        if (request->offset <= whole && request->bytes <= whole - request->offset)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "the allocation has %zu bytes, so %" PRIu64 " bytes from offset %" PRIu64
                      " are not in it",
                      whole, request->bytes, request->offset);
}

int vmm_new(const struct card *card, struct pinned *pinned, cuda_stream stream,
            const struct memory_request *request, int fd, struct vmm **ret, struct refusal *refusal,
            cuda_result *sticky) {
        struct vmm *vmm = calloc(1, sizeof(*vmm));
        cuda_result result;
        int r = 0;

        if (vmm == NULL) {
                fd_close(fd);
                return -ENOMEM;
        }
        vmm->fd = fd;
        vmm->bytes = request->bytes;
        vmm->mapped = vmm_round_up(card, request->offset + request->bytes);
        if (vmm_is_made(request)) {
                vmm->bytes = vmm->mapped;
                result = vmm_make(card, stream, vmm, request);
                if (result == CUDA_OK && request->companion > 0)
                        result = vmm_make_companion(card, pinned, vmm, request->companion);
        } else if (request->ipc != NULL) {
                r = vmm_open(card, vmm, request, refusal, &result);
        } else {
                r = vmm_import(card, vmm, refusal, &result);
        }
        if (r == 0 && result != CUDA_OK)
                r = vmm_judge(card, vmm, result, request, refusal, sticky);
        if (r != 0) {
                vmm_free(card, pinned, vmm);
                return r;
        }
        vmm->address = vmm->base + request->offset;
        *ret = vmm;
        return 0;
}
