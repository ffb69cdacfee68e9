/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that was registered with a communicator. The real library only notes the range, and finds out later
 * that it is of no use (src/register/register.cc); here a wrong one is refused.
 */
#include "registration.h"

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "driver.h"
#include "meet.h"

#define ALIGNMENT 4096u

EXPORT nccl_result ncclCommRegister(nccl_comm comm, void *at, size_t bytes, void **handle);
EXPORT nccl_result ncclCommDeregister(nccl_comm comm, void *handle);
EXPORT nccl_result ncclMemAlloc(void **at, size_t bytes);
EXPORT nccl_result ncclMemFree(void *at);
EXPORT nccl_result ncclCommWindowRegister(nccl_comm comm, void *at, size_t bytes, void **window, int flags);
EXPORT nccl_result ncclCommWindowDeregister(nccl_comm comm, void *window);

struct registration {
        struct registration *next;
        uintptr_t at;
        size_t bytes;
        unsigned long long memory; /* that was there */
        unsigned uses;
        bool window;
        unsigned number; /* of windows of the communicator that are used alike; 0: it is none */
};

static unsigned long long registration_attribute(unsigned which, uintptr_t at) {
        unsigned long long value = 0;

        return driver()->pointer_attribute(&value, which, at) == CUDA_OK ? value : 0;
}

static bool registration_is_mapped(uintptr_t at, size_t bytes) {
        unsigned type = 0;

        return driver()->pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, at) == CUDA_OK &&
               type == CUDA_MEMORY_DEVICE &&
               at + bytes <= registration_attribute(CUDA_POINTER_RANGE_START, at) +
                                     registration_attribute(CUDA_POINTER_RANGE_SIZE, at);
}

/* Some thread that ends a communicator may have no context, and cannot ask. */
static void registration_check_memory(const struct registration *registration) {
        unsigned long long memory = 0;
        cuda_result r = driver()->pointer_attribute(&memory, CUDA_POINTER_BUFFER_ID, registration->at);

        if (r == CUDA_INVALID_VALUE || (r == CUDA_OK && memory != registration->memory))
                trouble_rule(NCCL_OK, "memory %llu is unmapped or freed while it is registered",
                             registration->memory);
}

static nccl_result registration_add(struct ncclComm *comm, uintptr_t at, size_t bytes, bool window,
                                    void **ret) {
        struct registration *found;

        if (bytes == 0 || !registration_is_mapped(at, bytes))
                return trouble_rule(NCCL_INVALID_ARGUMENT, "what is registered is no device memory");
        for (found = comm->registrations; found != NULL; found = found->next)
                if (found->at <= at && at + bytes <= found->at + found->bytes && found->window == window)
                        break;
        if (found == NULL) {
                found = calloc(1, sizeof(*found));
                if (found == NULL)
                        abort();
                *found = (struct registration){ comm->registrations,
                                                at,
                                                bytes,
                                                registration_attribute(CUDA_POINTER_BUFFER_ID, at),
                                                0,
                                                window,
                                                0 };
                comm->registrations = found;
        }
        found->uses++;
        *ret = found;
        return NCCL_OK;
}

static nccl_result registration_remove(struct ncclComm *comm, const void *handle, bool window) {
        struct registration **at = &comm->registrations;

        while (*at != NULL && *at != handle)
                at = &(*at)->next;
        if (*at == NULL || (*at)->window != window)
                return trouble_rule(NCCL_INVALID_USAGE, "what is deregistered was not registered");
        struct registration *registration = *at;
        if (--registration->uses > 0)
                return NCCL_OK;
        registration_check_memory(registration);
        *at = registration->next;
        free(registration);
        return NCCL_OK;
}

void registrations_drop(struct ncclComm *comm) {
        while (comm->registrations != NULL) {
                struct registration *registration = comm->registrations;
                registration_check_memory(registration);
                comm->registrations = registration->next;
                free(registration);
        }
}

/* ---- buffers ---- */

nccl_result ncclCommRegister(nccl_comm comm, void *at, size_t bytes, void **handle) {
        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommRegister");
        return registration_add(comm, (uintptr_t)at, bytes, false, handle);
}

nccl_result ncclCommDeregister(nccl_comm comm, void *handle) {
        CALL_BEGIN_ON(comm, call_check_idle, "ncclCommDeregister");
        return handle == NULL ? NCCL_OK : registration_remove(comm, handle, false);
}

/* ---- memory that windows may be in ---- */

static cuda_result memory_map(cuda_handle handle, size_t bytes, cuda_device device, void **ret) {
        const struct cuda_access access = { { CUDA_LOCATION_DEVICE, device }, CUDA_ACCESS_READ_WRITE };
        cuda_address at;
        cuda_result r = driver()->reserve(&at, bytes, 0, 0, 0);

        if (r != CUDA_OK)
                return r;
        r = driver()->map(at, bytes, 0, handle, 0);
        if (r == CUDA_OK)
                r = driver()->set_access(at, bytes, &access, 1);
        else
                driver()->unreserve(at, bytes);
        *ret = (void *)(uintptr_t)at;
        return r;
}

nccl_result ncclMemAlloc(void **at, size_t bytes) {
        struct cuda_properties properties = { .type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = CUDA_HANDLE_FD,
                                              .location = { CUDA_LOCATION_DEVICE, 0 } };
        size_t whole = (bytes + GPU_GRANULARITY - 1) / GPU_GRANULARITY * GPU_GRANULARITY;
        cuda_handle handle;

        CALL_BEGIN("ncclMemAlloc");
        *at = NULL;
        cuda_result r = driver()->context_device(&properties.location.id);
        if (r == CUDA_OK)
                r = driver()->create(&handle, whole, &properties, 0);
        if (r != CUDA_OK)
                return trouble(NCCL_CUDA_ERROR, "Cuda failure %d", r);
        r = memory_map(handle, whole, properties.location.id, at);
        driver()->release(handle);
        return r == CUDA_OK ? NCCL_OK : trouble(NCCL_CUDA_ERROR, "Cuda failure %d", r);
}

nccl_result ncclMemFree(void *at) {
        uintptr_t address = (uintptr_t)at;
        size_t bytes = registration_attribute(CUDA_POINTER_RANGE_SIZE, address);

        CALL_BEGIN("ncclMemFree");
        if (bytes == 0)
                return trouble_rule(NCCL_INVALID_ARGUMENT, "what is freed is no memory");
        driver()->unmap(address, bytes);
        driver()->unreserve(address, bytes);
        return NCCL_OK;
}

/* ---- windows ---- */

/* All ranks call it, with memory that was made to be mapped. */
static nccl_result registration_run_window(struct task *task) {
        struct ncclComm *comm = task->comm;
        uintptr_t at = (uintptr_t)task->window.at;
        int64_t all[BOARD_RANKS][BOARD_WORDS];
        const int64_t own[BOARD_WORDS] = { (int64_t)task->window.bytes, task->window.flags };
        cuda_handle handle;

        if (trouble_sticks("window"))
                comm_await_abort(comm);
        nccl_result result = meet_agree(task, comm, ~0U, own, all);
        for (unsigned r = 0; r < comm->ranks && result == NCCL_OK; r++)
                if (all[r][0] != own[0] || all[r][1] != own[1])
                        result = trouble_rule(NCCL_INVALID_USAGE, "ranks register windows that differ");
        if (result == NCCL_OK)
                result = registration_add(comm, at, task->window.bytes, true, task->window.ret);
        if (result != NCCL_OK)
                return result;
        struct registration *made = *task->window.ret;
        if ((task->window.flags & NCCL_WINDOW_SYMMETRIC) != 0 && made->number == 0)
                made->number = ++comm->windows;
        if ((at - registration_attribute(CUDA_POINTER_RANGE_START, at)) % ALIGNMENT != 0)
                result = trouble(NCCL_INVALID_ARGUMENT, "Window address must be suitably aligned.");
        else if (driver()->retain_handle(&handle, task->window.at) != CUDA_OK)
                result = trouble(NCCL_CUDA_ERROR, "the memory of a window was not made by cuMemCreate");
        else
                driver()->release(handle);
        if (result != NCCL_OK) {
                registration_remove(comm, *task->window.ret, true);
                *task->window.ret = NULL;
        }
        return result;
}

/* Without a use for them the library makes none (src/init.cc, symmetricSupport). */
static bool windows_are_of_use(void) {
        const char *enabled = getenv("NCCL_WIN_ENABLE");

        return enabled == NULL || strcmp(enabled, "0") != 0;
}

nccl_result ncclCommWindowRegister(nccl_comm comm, void *at, size_t bytes, void **window, int flags) {
        struct task task = { .run = registration_run_window,
                             .comm = comm,
                             .silent = true,
                             .window = { at, bytes, flags, window } };

        CALL_BEGIN_ON(comm, call_check_alive, "ncclCommWindowRegister");
        *window = NULL;
        return windows_are_of_use() ? task_submit(&task) : NCCL_OK;
}

nccl_result ncclCommWindowDeregister(nccl_comm comm, void *window) {
        CALL_BEGIN_ON(comm, call_check_idle, "ncclCommWindowDeregister");
        return window == NULL ? NCCL_OK : registration_remove(comm, window, true);
}

static const struct registration *window_at(const struct ncclComm *comm, uintptr_t at, size_t bytes) {
        const struct registration *window = comm->registrations;

        while (window != NULL &&
               (window->number == 0 || at < window->at || at + bytes > window->at + window->bytes))
                window = window->next;
        return window;
}

static uint64_t window_place(const struct registration *window, uintptr_t at) {
        return (uint64_t)window->number << 28 | (at - window->at);
}

uint64_t registrations_place(const struct ncclComm *comm, uintptr_t from, uintptr_t to, size_t bytes) {
        const struct registration *input = window_at(comm, from, bytes), *output = window_at(comm, to, bytes);

        if (input == NULL || output == NULL)
                return 0;
        return window_place(input, from) << 32 | window_place(output, to);
}
