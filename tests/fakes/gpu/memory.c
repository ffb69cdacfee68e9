/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a context: files without a name, which lead to it from other processes, too. See gpu.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu.h"

#define GARBAGE 0xcd

static struct memory *memory_add(struct machine *machine, uint64_t id, uint64_t bytes, uint32_t on, int fd) {
        struct memory *memory = calloc(1, sizeof(*memory));

        if (memory == NULL || !machine_use(machine, id, on, bytes)) {
                free(memory);
                close(fd);
                return NULL;
        }
        *memory = (struct memory){ id, bytes, on, fd, 1 };
        return memory;
}

struct memory *memory_new(struct machine *machine, uint32_t device, uint64_t bytes) {
        char name[128];

        machine_enter(&machine->lock);
        uint64_t id = ++machine->last;
        pthread_mutex_unlock(&machine->lock);
        snprintf(name, sizeof(name), "fake-gpu:%u:%llu:%llu", device, (unsigned long long)id,
                 (unsigned long long)bytes);
        int fd = memfd_create(name, MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
                return NULL;
        struct memory *memory = memory_add(machine, id, bytes, device, fd);
        if (memory != NULL) {
                void *map = mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, fd, 0);
                memset(map, GARBAGE, bytes);
                munmap(map, bytes);
        }
        return memory;
}

struct memory *memory_find(struct machine *machine, const char *path) {
        char name[256], after;
        unsigned on;
        unsigned long long id, bytes;
        ssize_t length = readlink(path, name, sizeof(name) - 1);

        name[length < 0 ? 0 : length] = '\0';
        if (sscanf(name, "/memfd:fake-gpu:%u:%llu:%llu%c", &on, &id, &bytes, &after) != 4 ||
            on >= GPU_DEVICES)
                return NULL;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        return fd < 0 ? NULL : memory_add(machine, id, bytes, on, fd);
}

void memory_drop(struct machine *machine, struct memory *memory) {
        if (--memory->uses > 0)
                return;
        machine_unuse(machine, memory->id);
        close(memory->fd);
        free(memory);
}
