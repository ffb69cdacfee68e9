/* SPDX-License-Identifier: Apache-2.0 */
/* The few things that nearly every fact does with the driver. */
#include "driver.h"

#include "actor.h"
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        WARM_NS = 300 * 1000 * 1000,
        COUNTER_PAGE = 65536, /* a whole page, of any size that is in use */
        LEGACY_STREAM = 1,    /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
};

const char *const kernel_names[KERNELS] = {
        [KERNEL_IDLE] = "idle",
        [KERNEL_BUMP] = "bump",
        [KERNEL_COUNT] = "count",
};

static const char *const call_names[CALLS] = {
#define DRIVER_NAME(member, name, version, arguments) [CALL_##member] = #name,
        CUDA_CALLS(DRIVER_NAME) DRIVER_CALLS(DRIVER_NAME)
#undef DRIVER_NAME
};

void driver_begin(struct actor *actor, unsigned call, bool there) {
        if (!there)
                actor_fail(actor, "%s: the driver has no %s", actor->role, call_names[call]);
        actor_doing(actor, call_names[call]);
}

cuda_result driver_end(struct actor *actor, cuda_result result) {
        actor_doing(actor, NULL);
        return result;
}

void driver_check(struct actor *actor, unsigned call, cuda_result result) {
        if (result != CUDA_OK)
                actor_fail(actor, "%s: %s: %s", actor->role, call_names[call], driver_name(actor, result));
}

const char *driver_name(struct actor *actor, cuda_result result) {
        static char text[4][64];
        static unsigned next;

        return result == CUDA_OK ? "success"
                                 : cuda_error(&actor->cu.cuda, result, text[next++ % 4], sizeof text[0]);
}

/* The function at that version, or NULL and its name in `missing`. */
static void *driver_resolve(void *library, const char *name, int version, char *missing, size_t size) {
        cuda_result (*find)(const char *name, void **function, int version, uint64_t flags, int *found);
        void *function = NULL;
        size_t used = strlen(missing);
        int found;

        *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
        if (find(name, &function, version, LEGACY_STREAM, &found) == CUDA_OK && function != NULL)
                return function;
        snprintf(missing + used, size - used, "%s%s as of CUDA %d.%d", used > 0 ? ", " : "", name,
                 version / 1000, version % 1000 / 10);
        return NULL;
}

int driver_load(struct actor *actor, char *error, size_t size, char *missing, size_t missing_size) {
        struct driver *cu = &actor->cu;

        actor->opened = true;
        actor_doing(actor, "the driver's start");
        int r = cuda_load(&cu->cuda, NULL, error, size);
        actor_doing(actor, NULL);
        missing[0] = '\0';
        if (r < 0)
                return r;
#define TAKE(member, name, version, arguments) cu->member = cu->cuda.member;
        CUDA_CALLS(TAKE)
#undef TAKE
#define RESOLVE(member, name, version, arguments)                                                            \
        *(void **)&cu->member = driver_resolve(cu->cuda.library, #name, version, missing, missing_size);
        DRIVER_CALLS(RESOLVE)
#undef RESOLVE
        return 0;
}

void driver_open(struct actor *actor) {
        char error[512], missing[512];
        cuda_context context;

        if (driver_load(actor, error, sizeof error, missing, sizeof missing) < 0)
                actor_fail(actor, "%s: %s", actor->role, error);
        CU(actor, device_get, &actor->device, 0);
        CU(actor, primary_retain, &context, actor->device);
        CU(actor, context_set, context);
}

/* Compiled when the first one is needed: most facts need none, and should not fail for them. */
static cuda_function driver_kernel(struct actor *actor, unsigned which) {
        cuda_module module;

        if (actor->kernel[which] == NULL) {
                CU(actor, module_load, &module, kernels_ptx);
                for (unsigned i = 0; i < KERNELS; i++)
                        CU(actor, module_function, &actor->kernel[i], module, kernel_names[i]);
        }
        return actor->kernel[which];
}

cuda_stream driver_stream(struct actor *actor) {
        cuda_stream stream;

        CU(actor, stream_new, &stream, CUDA_STREAM_NON_BLOCKING, 0);
        return stream;
}

void driver_sync(struct actor *actor, cuda_stream stream) {
        CU(actor, stream_wait, stream);
}

cuda_result driver_read32_try(struct actor *actor, cuda_stream stream, cuda_address address, uint32_t *word) {
        cuda_result result = CU_TRY(actor, copy_out, word, address, sizeof *word, stream);

        return result != CUDA_OK ? result : CU_TRY(actor, stream_wait, stream);
}

uint32_t driver_read32(struct actor *actor, cuda_stream stream, cuda_address address) {
        uint32_t word = 0;

        CU(actor, copy_out, &word, address, sizeof word, stream);
        driver_sync(actor, stream);
        return word;
}

uint64_t driver_read64(struct actor *actor, cuda_stream stream, cuda_address address) {
        uint64_t word = 0;

        CU(actor, copy_out, &word, address, sizeof word, stream);
        driver_sync(actor, stream);
        return word;
}

void driver_fill(struct actor *actor, cuda_stream stream, cuda_address address, size_t size, uint32_t word) {
        CU(actor, set_words, address, word, size / sizeof word, stream);
        driver_sync(actor, stream);
}

void driver_launch(struct actor *actor, cuda_stream stream, unsigned which, void **arguments) {
        cuda_function function = driver_kernel(actor, which);

        CU(actor, launch, function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

void driver_warm_up(struct actor *actor, cuda_stream stream) {
        const size_t size = (size_t)64 << 20;
        int64_t until = clock_ns() + WARM_NS;
        cuda_address memory;

        CU(actor, allocate, &memory, size);
        do
                driver_check(actor, CALL_launch, driver_bump(actor, stream, memory, size));
        while (clock_ns() < until);
        CU(actor, free, memory);
}

cuda_result driver_bump(struct actor *actor, cuda_stream stream, cuda_address address, size_t size) {
        cuda_function function = driver_kernel(actor, KERNEL_BUMP);
        const unsigned threads = 256;
        uint32_t n = (uint32_t)(size / sizeof(uint32_t));
        void *arguments[] = { &address, &n };
        cuda_result result = CU_TRY(actor, launch, function, (n + threads - 1) / threads, 1, 1, threads, 1, 1,
                                    0, stream, arguments, NULL);

        return result != CUDA_OK ? result : CU_TRY(actor, stream_wait, stream);
}

uint64_t page_word(const struct page *page) {
        return __atomic_load_n(&page->host[0], __ATOMIC_ACQUIRE);
}

struct page page_open(struct actor *actor, int fd, size_t size) {
        struct page page = { .fd = fd, .size = size };
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (memory == MAP_FAILED)
                actor_fail(actor, "mmap of a memfd: %s", strerror(errno));
        page.host = memory;
        CU(actor, host_register, memory, size, DRIVER_REGISTER_PORTABLE | DRIVER_REGISTER_DEVICEMAP);
        CU(actor, host_address, &page.device, memory, 0);
        return page;
}

struct page page_new(struct actor *actor, size_t size) {
        int fd = memfd_create("probe-page", MFD_CLOEXEC);

        if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
                actor_fail(actor, "memfd of %zu bytes: %s", size, strerror(errno));
        return page_open(actor, fd, size);
}

struct counter counter_new(struct actor *actor, cuda_stream stream) {
        struct counter counter = { .page = page_new(actor, COUNTER_PAGE) };

        CU(actor, allocate, &counter.device, sizeof(uint64_t));
        driver_fill(actor, stream, counter.device, sizeof(uint64_t), 0);
        return counter;
}

void counter_launch(struct actor *actor, cuda_stream stream, struct counter *counter, uint64_t ns) {
        driver_launch(actor, stream, KERNEL_COUNT,
                      (void *[]){ &counter->device, &counter->page.device, &ns });
}
