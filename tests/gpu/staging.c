/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.h"

static cuda_result staging_map(struct staging *staging, const struct cuda *cuda,
                               const struct cuda_properties *properties, const char **what) {
        struct cuda_access access = { properties->location, CUDA_ACCESS_READ_WRITE };
        cuda_address address;
        cuda_handle handle;
        cuda_result r;

        *what = "creating memory";
        r = cuda->create(&handle, staging->bytes, properties, 0);
        if (r != CUDA_OK)
                return r;
        *what = "mapping memory";
        r = cuda->reserve(&address, staging->bytes, 0, 0, 0);
        if (r == CUDA_OK)
                r = cuda->map(address, staging->bytes, 0, handle, 0);
        cuda->release(handle);
        if (r == CUDA_OK)
                r = cuda->set_access(address, staging->bytes, &access, 1);
        if (r == CUDA_OK)
                staging->address = address;
        return r;
}

cuda_result staging_make(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl,
                         nccl_comm comm, size_t bytes, const char **what) {
        struct cuda_properties properties = { .type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = CUDA_HANDLE_FD,
                                              .location.type = CUDA_LOCATION_DEVICE };
        cuda_device device;
        size_t page;
        int rdma = 0;
        cuda_result r;

        *what = "the properties of memory";
        r = cuda->context_device(&device);
        if (r == CUDA_OK && cuda->device_attribute(&rdma, CUDA_DEVICE_RDMA, device) != CUDA_OK)
                rdma = 0;
        properties.location.id = device;
        properties.flags.rdma = rdma != 0;
        if (r == CUDA_OK)
                r = cuda->granularity(&page, &properties, CUDA_GRANULARITY_RECOMMENDED);
        if (r != CUDA_OK)
                return r;
        *staging = (struct staging){ .bytes = (bytes + page - 1) / page * page, .comm = comm };
        r = staging_map(staging, cuda, &properties, what);
        if (r == CUDA_OK && nccl->register_buffer != NULL && nccl->deregister != NULL &&
            nccl->register_buffer(comm, (void *)(uintptr_t)staging->address, staging->bytes,
                                  &staging->registration) != NCCL_OK)
                staging->registration = NULL; /* it goes another way */
        return r;
}

void staging_free(struct staging *staging, const struct cuda *cuda, const struct nccl *nccl) {
        if (staging->registration != NULL)
                nccl->deregister(staging->comm, staging->registration);
        if (staging->address != 0) {
                cuda->unmap(staging->address, staging->bytes);
                cuda->unreserve(staging->address, staging->bytes);
        }
        *staging = (struct staging){ 0 };
}
