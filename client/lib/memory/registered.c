/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registering memory: it is checked and mapped here, its pages are made present, then the daemon gets the
 * descriptor and checks again. A call that was interrupted goes on where it was when it is repeated with the
 * same arguments.
 */
#include "client/lib/memory/registered.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/job/job.h"
#include "proto/cleanup.h"

void registered_free(struct gradsync_memory *memory) {
        request_close(memory->job->gs, &memory->request);
        request_close(memory->job->gs, &memory->again);
        fd_close(memory->kept);
        if (memory->mapped_here)
                shared_unmap(&memory->map);
        free(memory);
}

static int registered_refuse(const struct gradsync_job *job, int r, const char *text) {
        return fail(r > 0 ? GRADSYNC_INVALID : GRADSYNC_SYSTEM,
                    "job '%s': this memory cannot be registered: %s", job->name, r > 0 ? text : strerror(-r));
}

/* One line of /proc/self/maps. */
struct mapping {
        uint64_t start, end, offset, inode;
        unsigned major, minor;
        char rights[5];
};

/* Whether this process has mapped the range of the file at `address`. True if that cannot be found out. */
static bool registered_is_mapped(const struct gradsync_memory *memory, const void *address, uint64_t bytes) {
        uint64_t at = (uint64_t)(uintptr_t)address, end = at + bytes;
        FILE *maps = fopen("/proc/self/maps", "re");
        struct mapping m;
        char *line = NULL;
        size_t room = 0;

        if (maps == NULL)
                return true;
        while (at < end && getline(&line, &room, maps) >= 0) {
                if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &m.start, &m.end,
                           m.rights, &m.offset, &m.major, &m.minor, &m.inode) != 7 ||
                    m.end <= at)
                        continue;
                if (m.start > at || m.inode != memory->file.inode ||
                    makedev(m.major, m.minor) != memory->file.device || strncmp(m.rights, "rw", 2) != 0 ||
                    m.rights[3] != 's' ||
                    m.offset + (at - m.start) != memory->offset + (at - (uint64_t)(uintptr_t)address))
                        break;
                at = m.end;
        }
        free(line);
        fclose(maps);
        return at >= end;
}

static int registered_take_mapping(struct gradsync_memory *memory, void *address, uint64_t bytes) {
        if ((uintptr_t)address % (uintptr_t)sysconf(_SC_PAGESIZE) != 0 ||
            !registered_is_mapped(memory, address, bytes))
                return fail(GRADSYNC_INVALID,
                            "job '%s': the %" PRIu64 " bytes at %p are not those from offset %" PRIu64
                            " of this file, mapped with PROT_READ | PROT_WRITE and MAP_SHARED",
                            memory->job->name, bytes, address, memory->offset);
        memory->map = (struct shared){ address, bytes };
        return GRADSYNC_OK;
}

static int registered_map(struct gradsync_memory *memory, int fd, uint64_t bytes) {
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)memory->offset);

        if (base == MAP_FAILED)
                return fail(errno == ENOMEM ? GRADSYNC_NO_MEMORY : GRADSYNC_SYSTEM,
                            "job '%s': mapping %" PRIu64
                            " bytes to be registered failed: %s; look at the limit of address space "
                            "(ulimit -v)",
                            memory->job->name, bytes, strerror(errno));
        memory->map = (struct shared){ base, bytes };
        memory->mapped_here = true;
        if (madvise(base, bytes, MADV_DONTFORK) < 0)
                return fail(GRADSYNC_SYSTEM, "job '%s': madvise(MADV_DONTFORK): %s", memory->job->name,
                            strerror(errno));
        return GRADSYNC_OK;
}

static int registered_keep_fd(struct gradsync_memory *memory) {
        memory->kept = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
        if (memory->kept < 0)
                return fail(GRADSYNC_SYSTEM,
                            "job '%s': no file descriptor to keep this memory for another daemon: %s; look "
                            "at the limit of open files (ulimit -n)",
                            memory->job->name, strerror(errno));
        return GRADSYNC_OK;
}

static int registered_create(struct gradsync_job *job, int fd, uint64_t offset, uint64_t bytes, void *address,
                             struct gradsync_memory **ret) {
        struct gradsync_memory *memory = calloc(1, sizeof(*memory));
        char text[512];

        if (memory == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory to register memory");
        memory->job = job;
        memory->offset = offset;
        memory->fd = fd;
        memory->kept = -1;
        int r = memfd_check(fd, offset, bytes, &memory->file, text, sizeof(text));
        if (r != 0)
                r = registered_refuse(job, r, text);
        else
                r = address != NULL ? registered_take_mapping(memory, address, bytes)
                                    : registered_map(memory, fd, bytes);
        if (r == GRADSYNC_OK && job->gs->link.timer >= 0)
                r = registered_keep_fd(memory);
        if (r != GRADSYNC_OK) {
                registered_free(memory);
                return r;
        }
        *ret = memory;
        return GRADSYNC_OK;
}

/* Faulting in gigabytes takes long: other threads go on meanwhile. */
static int registered_touch(struct gradsync_memory *memory) {
        struct gradsync_job *job = memory->job;

        if (memory->touched)
                return GRADSYNC_OK;
        pthread_mutex_unlock(&job->gs->link.lock);
        int r = shared_populate(&memory->map, "the registered memory", job->name);
        pthread_mutex_lock(&job->gs->link.lock);
        memory->touched = r == GRADSYNC_OK;
        return r;
}

static int registered_take_registered(struct request *request, const ProtobufCMessage *message,
                                      struct fdpass_packet *packet) {
        OWNER(request, struct gradsync_memory, request)->handle = ((const Wire__Registered *)message)->memory;
        return GRADSYNC_OK;
}

static Wire__Register registered_message(struct gradsync_memory *memory) {
        Wire__Register message = WIRE__REGISTER__INIT;

        SET(message, job, memory->job->handle);
        SET(message, offset, memory->offset);
        SET(message, bytes, memory->map.bytes);
        if (memory->legacy) {
                message.has_ipc = true;
                message.ipc = (ProtobufCBinaryData){ sizeof(memory->ipc), (uint8_t *)memory->ipc.bytes };
        }
        return message;
}

static int registered_ask(struct gradsync_memory *memory) {
        struct gradsync_job *job = memory->job;
        Wire__Register message = registered_message(memory);

        return request_call(job->gs, &memory->request, WIRE__MESSAGE_TYPE__REGISTER, &message.base,
                            memory->fd, WIRE__MESSAGE_TYPE__REGISTERED, registered_take_registered, NEVER);
}

/* Plans that lie in the memory can be offered from now on. */
static int registered_take_again(struct request *request, const ProtobufCMessage *message,
                                 struct fdpass_packet *packet) {
        struct gradsync_memory *memory = OWNER(request, struct gradsync_memory, again);

        memory->handle = ((const Wire__Registered *)message)->memory;
        memory->job->gs->link.pending = true;
        return GRADSYNC_OK;
}

int registered_offer(struct gradsync_memory *memory, request_refused_fn refused) {
        const struct gradsync_job *job = memory->job;
        Wire__Register message = registered_message(memory);

        request_close(job->gs, &memory->again);
        request_open(job->gs, &memory->again, WIRE__MESSAGE_TYPE__REGISTERED, registered_take_again);
        memory->again.refused = refused;
        int r = link_send(&job->gs->link, WIRE__MESSAGE_TYPE__REGISTER, memory->again.id, &message.base,
                          memory->kept);
        if (r != GRADSYNC_OK)
                request_close(job->gs, &memory->again);
        memory->told = r == GRADSYNC_OK;
        return r;
}

static int registered_offer_alone(struct gradsync_memory *memory) {
        char text[512];
        int r = memfd_check_present(memory->fd, &memory->file, text, sizeof(text));

        return r == 0 ? GRADSYNC_OK : registered_refuse(memory->job, r, text);
}

/* Asks until a daemon that is still there has answered; a question that was asked before is only waited for.
 * The answer of a daemon that has gone does not count, because the daemon that follows knows the state before
 * the question. */
static int registered_ask_until_known(struct gradsync_memory *memory, int (*ask)(struct gradsync_memory *)) {
        const struct link *link = &memory->job->gs->link;
        int r;

        do {
                r = memory->request.id != 0 ? GRADSYNC_OK : job_wait_daemon(memory->job);
                if (memory->request.id == 0)
                        memory->connection = link->connection;
                if (r == GRADSYNC_OK)
                        r = ask(memory);
                if (r == GRADSYNC_OK && memory->connection != link->connection)
                        r = REQUEST_BROKEN;
        } while (r == REQUEST_BROKEN);
        return r;
}

static bool registered_same_call(const struct gradsync_memory *memory, int fd, uint64_t offset,
                                 uint64_t bytes, const void *address) {
        return !memory->on_gpu && memory->fd == fd && memory->offset == offset &&
               memory->map.bytes == bytes &&
               (memory->mapped_here ? address == NULL : address == memory->map.base);
}

/* The part that memory of a file and of a GPU have in common: the daemon checks it again. */
static int registered_finish(struct gradsync_memory *memory, struct gradsync_memory **ret) {
        struct gradsync_job *job = memory->job;
        int r = registered_touch(memory);

        if (r == GRADSYNC_OK)
                r = job->gs->standalone ? registered_offer_alone(memory)
                                        : registered_ask_until_known(memory, registered_ask);
        if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                return r;
        job->registering = NULL;
        if (r != GRADSYNC_OK) {
                registered_free(memory);
                return r;
        }
        memory->fd = -1;
        memory->next = job->memories;
        job->memories = memory;
        *ret = memory;
        return GRADSYNC_OK;
}

static int registered_enlist(struct gradsync_job *job, int fd, uint64_t offset, uint64_t bytes, void *address,
                             struct gradsync_memory **ret) {
        struct gradsync_memory *memory = job->registering;
        int r = GRADSYNC_OK;

        if (memory != NULL && !registered_same_call(memory, fd, offset, bytes, address))
                return fail(GRADSYNC_STATE,
                            "job '%s': other memory is being registered; call gradsync_register() for it "
                            "again until it has finished",
                            job->name);
        if (memory == NULL)
                r = registered_create(job, fd, offset, bytes, address, &memory);
        if (r != GRADSYNC_OK)
                return r;
        job->registering = memory;
        return registered_finish(memory, ret);
}

int gradsync_register(struct gradsync_job *job, int fd, uint64_t offset, uint64_t bytes, void *address,
                      struct gradsync_memory **memory) {
        if (memory == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_register(): no place for the memory");
        int r = job_enter(job, "gradsync_register");
        return r != GRADSYNC_OK ? r
                                : job_leave(job, registered_enlist(job, fd, offset, bytes, address, memory));
}

/* Files with parameters are told apart by device and inode; the inode of an allocation is its address. */
static int registered_create_on_gpu(struct gradsync_job *job, void *address, uint64_t bytes,
                                    struct gradsync_memory **ret) {
        struct gradsync_memory *memory;
        struct device_range range;

        if (!device_is_cuda(job->gs->device_name))
                return fail(GRADSYNC_INVALID,
                            "job '%s': memory of a GPU cannot be registered: gradsyncd serves %s", job->name,
                            job->gs->standalone ? "nobody here, this process is alone"
                                                : job->gs->device_name);
        int r = context_open_device(job->gs);
        if (r == GRADSYNC_OK)
                r = device_share(job->gs->device, address, bytes, &range);
        if (r != GRADSYNC_OK)
                return r;
        memory = calloc(1, sizeof(*memory));
        if (memory == NULL) {
                fd_close(range.fd);
                return fail(GRADSYNC_NO_MEMORY, "no memory to register memory");
        }
        *memory = (struct gradsync_memory){ .job = job,
                                            .file = { .device = (dev_t)-1, .inode = (ino_t)range.base },
                                            .offset = range.offset,
                                            .map = { address, bytes },
                                            .on_gpu = true,
                                            .legacy = range.legacy,
                                            .ipc = range.ipc,
                                            .touched = true,
                                            .fd = range.fd,
                                            .kept = range.fd };
        *ret = memory;
        return GRADSYNC_OK;
}

static int registered_enlist_on_gpu(struct gradsync_job *job, void *address, uint64_t bytes,
                                    struct gradsync_memory **ret) {
        struct gradsync_memory *memory = job->registering;
        int r = GRADSYNC_OK;

        if (memory != NULL && !(memory->on_gpu && memory->map.base == address && memory->map.bytes == bytes))
                return fail(
                        GRADSYNC_STATE,
                        "job '%s': other memory is being registered; repeat that call until it has finished",
                        job->name);
        if (memory == NULL)
                r = registered_create_on_gpu(job, address, bytes, &memory);
        if (r != GRADSYNC_OK)
                return r;
        job->registering = memory;
        return registered_finish(memory, ret);
}

int gradsync_register_device(struct gradsync_job *job, void *address, uint64_t bytes,
                             struct gradsync_memory **memory) {
        if (memory == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_register_device(): no place for the memory");
        int r = job_enter(job, "gradsync_register_device");
        return r != GRADSYNC_OK ? r : job_leave(job, registered_enlist_on_gpu(job, address, bytes, memory));
}

static int registered_ask_back(struct gradsync_memory *memory) {
        struct gradsync_job *job = memory->job;
        Wire__Unregister message = WIRE__UNREGISTER__INIT;

        SET(message, job, job->handle);
        SET(message, memory, memory->handle);
        return request_call(job->gs, &memory->request, WIRE__MESSAGE_TYPE__UNREGISTER, &message.base, -1,
                            WIRE__MESSAGE_TYPE__UNREGISTERED, NULL, NEVER);
}

int registered_withdraw(struct gradsync_memory *memory) {
        return memory->job->gs->standalone ? GRADSYNC_OK
                                           : registered_ask_until_known(memory, registered_ask_back);
}

void *gradsync_memory_address(const struct gradsync_memory *memory) {
        return memory ? memory->map.base : NULL;
}
