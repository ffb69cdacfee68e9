/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a context, and the memory that lies there. See gpu.h. */
#include <sys/mman.h>

#include "gpu.h"

struct mapping mapping[MAPPINGS];
static unsigned device;
static uint64_t next_address;

void mappings_begin(unsigned on) {
        device = on;
        next_address = GPU_WINDOW + device * ((GPU_WINDOW_END - GPU_WINDOW) / GPU_DEVICES);
}

struct mapping *mapping_at(uint64_t address) {
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (mapping[i].bytes > 0 && address - mapping[i].address < mapping[i].bytes)
                        return &mapping[i];
        return NULL;
}

struct mapping *mapping_new(uint64_t address, uint64_t bytes, enum kind kind) {
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (mapping[i].bytes == 0) {
                        mapping[i] = (struct mapping){ .address = address, .bytes = bytes, .kind = kind };
                        return &mapping[i];
                }
        return NULL;
}

uint64_t address_new(uint64_t bytes) {
        uint64_t address = next_address;

        next_address += (bytes + 2 * GPU_GRANULARITY - 1) / GPU_GRANULARITY * GPU_GRANULARITY;
        return address;
}

bool mapping_fill(struct mapping *m, struct memory *memory) {
        if (mmap((void *)(uintptr_t)m->address, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 memory->fd, 0) == MAP_FAILED)
                return false;
        m->memory = memory;
        return true;
}

bool mapping_has(uint64_t address, uint64_t bytes) {
        const struct mapping *m = mapping_at(address);

        return m != NULL && m->memory != NULL && m->access && bytes <= m->address + m->bytes - address;
}

int mapping_attribute(uint64_t attribute, uint64_t address, uint64_t *ret) {
        const struct mapping *m = mapping_at(address);

        if (m == NULL || m->memory == NULL)
                return CUDA_INVALID_VALUE;
        switch (attribute) {
        case CUDA_POINTER_MEMORY_TYPE: *ret = m->kind == HOST ? CUDA_MEMORY_HOST : CUDA_MEMORY_DEVICE; break;
        case CUDA_POINTER_BUFFER_ID: *ret = m->memory->id; break;
        case CUDA_POINTER_IS_MANAGED: *ret = m->how == ALLOCATED_MANAGED; break;
        case CUDA_POINTER_DEVICE_ORDINAL: *ret = m->kind == IPC ? m->memory->device : device; break;
        case CUDA_POINTER_LEGACY_IPC: *ret = m->kind == ALLOCATED && m->how == ALLOCATED_PLAIN; break;
        case CUDA_POINTER_RANGE_START: *ret = m->address; break;
        case CUDA_POINTER_RANGE_SIZE: *ret = m->bytes; break;
        default: return CUDA_INVALID_VALUE;
        }
        return CUDA_OK;
}
