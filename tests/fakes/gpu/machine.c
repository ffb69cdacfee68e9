/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the contexts of one machine share. See gpu.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"

uint64_t machine_setting(const char *name, uint64_t otherwise) {
        const char *value = getenv(name);

        return value != NULL && value[0] != '\0' ? strtoull(value, NULL, 10) : otherwise;
}

static unsigned machine_count(const char *call) {
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static struct {
                char name[64];
                unsigned calls;
        } counted[256];
        unsigned i = 0;

        pthread_mutex_lock(&lock);
        while (counted[i].name[0] != '\0' && strcmp(counted[i].name, call) != 0)
                i++;
        snprintf(counted[i].name, sizeof(counted[i].name), "%s", call);
        unsigned calls = ++counted[i].calls;
        pthread_mutex_unlock(&lock);
        return calls;
}

int machine_failure(const char *setting, const char *call) {
        const char *fail = getenv(setting);
        unsigned calls = machine_count(call), number;
        char wanted[64];
        int result, used;

        for (; fail != NULL && sscanf(fail, "%63[^:]:%u:%d%n", wanted, &number, &result, &used) == 3;
             fail += used + (fail[used] == ','))
                if (strcmp(wanted, call) == 0 && (number == 0 || number == calls))
                        return result;
        return 0;
}

static int machine_file(const char *name, int flags) {
        const char *folder = getenv("FAKE_GPU");
        char path[4096];

        if (folder == NULL)
                return -1;
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0)
                fchmod(fd, 0666); /* all users may use a GPU; only the file's maker need do this, and can */
        return fd;
}

void machine_log(const char *format, ...) {
        int fd = machine_file("log", O_WRONLY | O_APPEND);
        char line[512];
        va_list arguments;

        va_start(arguments, format);
        int used = snprintf(line, sizeof(line), "context %d: ", getpid());
        vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
        va_end(arguments);
        strcat(line, "\n");
        if (fd >= 0 && write(fd, line, strlen(line)) < 0)
                abort();
        close(fd);
}

/* A context that was killed leaves its locks behind. */
void machine_enter(pthread_mutex_t *mutex) {
        if (pthread_mutex_lock(mutex) == EOWNERDEAD)
                pthread_mutex_consistent(mutex);
}

bool machine_try(pthread_mutex_t *mutex) {
        int r = pthread_mutex_trylock(mutex);

        if (r == EBUSY)
                usleep(100);
        if (r == EOWNERDEAD)
                pthread_mutex_consistent(mutex);
        return r == 0 || r == EOWNERDEAD;
}

static void machine_init(struct machine *machine) {
        pthread_mutexattr_t attributes;

        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&machine->lock, &attributes);
        for (unsigned d = 0; d < GPU_DEVICES; d++)
                pthread_mutex_init(&machine->slice[d], &attributes);
        machine->last = 1;
}

struct machine *machine_open(void) {
        int fd = machine_file("state", O_RDWR);
        struct flock lock = { .l_type = F_WRLCK };
        struct machine *machine;

        if (fd < 0 || fcntl(fd, F_SETLKW, &lock) < 0)
                return NULL;
        if (ftruncate(fd, sizeof(*machine)) < 0)
                return NULL;
        machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (machine == MAP_FAILED)
                return NULL;
        if (machine->last == 0)
                machine_init(machine);
        close(fd); /* gives the lock back, too */
        return machine;
}

static struct machine_memory *machine_find(struct machine *machine, uint64_t id) {
        for (unsigned i = 0; i < MACHINE_MEMORIES; i++)
                if (machine->memory[i].id == id)
                        return &machine->memory[i];
        return NULL;
}

bool machine_use(struct machine *machine, uint64_t id, uint32_t device, uint64_t bytes) {
        machine_enter(&machine->lock);
        struct machine_memory *memory = machine_find(machine, id);
        bool fits = memory != NULL ||
                    machine->used[device] + bytes <= machine_setting("FAKE_GPU_BYTES", UINT64_C(1) << 30);

        if (fits && memory == NULL && (memory = machine_find(machine, 0)) != NULL) {
                *memory = (struct machine_memory){ .id = id, .bytes = bytes, .device = device };
                machine->used[device] += bytes;
        }
        if (fits && memory != NULL)
                memory->uses++;
        pthread_mutex_unlock(&machine->lock);
        return fits && memory != NULL;
}

void machine_unuse(struct machine *machine, uint64_t id) {
        machine_enter(&machine->lock);
        struct machine_memory *memory = machine_find(machine, id);

        if (memory != NULL && --memory->uses == 0) {
                machine->used[memory->device] -= memory->bytes;
                *memory = (struct machine_memory){ 0 };
        }
        pthread_mutex_unlock(&machine->lock);
}

unsigned machine_uses(struct machine *machine, uint64_t id) {
        machine_enter(&machine->lock);
        const struct machine_memory *memory = machine_find(machine, id);
        unsigned uses = memory != NULL ? memory->uses : 0;

        pthread_mutex_unlock(&machine->lock);
        return uses;
}

bool machine_has(const char *name) {
        const char *folder = getenv("FAKE_GPU");
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : "", name);
        return access(path, F_OK) == 0;
}

bool machine_hold(const char *name, bool on) {
        char path[4096];

        if (on) {
                int fd = machine_file(name, O_WRONLY);
                close(fd);
                return fd >= 0;
        }
        snprintf(path, sizeof(path), "%s/%s", getenv("FAKE_GPU"), name);
        return unlink(path) == 0;
}

unsigned machine_lease(struct machine *machine, uint64_t id, uint64_t offset, uint64_t bytes, bool write,
                       uint32_t queue, const char *what) {
        unsigned place = MACHINE_LEASES;

        machine_enter(&machine->lock);
        for (unsigned i = 0; i < MACHINE_LEASES; i++) {
                const struct machine_lease *other = &machine->lease[i];
                if (other->id == 0)
                        place = i;
                else if (other->id == id && other->offset < offset + bytes &&
                         offset < other->offset + other->bytes && (write || other->write) &&
                         (other->context != getpid() || other->queue != queue))
                        machine_log("%s %s bytes %llu to %llu of memory %llu in queue %u, "
                                    "which %s of context %d %s in queue %u",
                                    what, write ? "writes" : "reads", (unsigned long long)offset,
                                    (unsigned long long)(offset + bytes), (unsigned long long)id, queue,
                                    other->what, other->context, other->write ? "writes" : "reads",
                                    other->queue);
        }
        if (place == MACHINE_LEASES) {
                machine_log("too many ranges are in use");
        } else {
                struct machine_lease *lease = &machine->lease[place];
                *lease = (struct machine_lease){ id, offset, bytes, getpid(), queue, write, "" };
                snprintf(lease->what, sizeof(lease->what), "%s", what);
        }
        pthread_mutex_unlock(&machine->lock);
        return place;
}

void machine_unlease(struct machine *machine, unsigned place) {
        machine_enter(&machine->lock);
        if (place < MACHINE_LEASES)
                machine->lease[place] = (struct machine_lease){ 0 };
        pthread_mutex_unlock(&machine->lock);
}

bool machine_leased(struct machine *machine, uint64_t id, int32_t context, char what[MACHINE_WHAT]) {
        bool found = false;

        machine_enter(&machine->lock);
        for (unsigned i = 0; i < MACHINE_LEASES; i++)
                if (machine->lease[i].id == id && machine->lease[i].context == context) {
                        found = true;
                        if (what != NULL)
                                snprintf(what, MACHINE_WHAT, "%s", machine->lease[i].what);
                }
        pthread_mutex_unlock(&machine->lock);
        return found;
}

unsigned machine_leases(struct machine *machine) {
        unsigned n = 0;

        machine_enter(&machine->lock);
        for (unsigned i = 0; i < MACHINE_LEASES; i++)
                n += machine->lease[i].id != 0;
        pthread_mutex_unlock(&machine->lock);
        return n;
}

void machine_fault(struct machine *machine, unsigned device) {
        machine_enter(&machine->lock);
        machine->faults[device]++;
        pthread_mutex_unlock(&machine->lock);
}

uint64_t machine_faults(struct machine *machine, unsigned device) {
        machine_enter(&machine->lock);
        uint64_t n = machine->faults[device];
        pthread_mutex_unlock(&machine->lock);
        return n;
}

int machine_check(struct machine *machine) {
        unsigned memories = 0;

        machine_enter(&machine->lock);
        for (unsigned i = 0; i < MACHINE_LEASES; i++)
                if (machine->lease[i].id != 0)
                        printf("context %d is at work\n", machine->lease[i].context);
        for (unsigned i = 0; i < MACHINE_MEMORIES; i++)
                memories += machine->memory[i].id != 0;
        printf("%u contexts, %u memories\n", machine->contexts, memories);
        pthread_mutex_unlock(&machine->lock);
        return machine->contexts + memories > 0;
}
