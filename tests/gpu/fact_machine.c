/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first row: which card, driver, kernel and container runtime the others speak of. And whether MPS could
 * be used.
 */
#include "clock.h"
#include "facts.h"
#include "machine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 16 };

/* "none" is the answer that makes the probe end with 77. */
static _Noreturn void no_gpu(struct actor *actor, const char *why) {
        actor_note(actor, "%s", why);
        actor_answer(actor, "none");
}

static void note_attributes(struct actor *actor) {
        static const struct {
                const char *name;
                CUdevice_attribute attribute;
        } table[] = {
                { "multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT },
                { "L2 bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE },
                { "copy engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT },
                { "compute mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE },
                { "compute preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED },
                { "host register", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED },
                { "pageable memory access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS },
                { "IPC events", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED },
                { "64-bit stream memory operations", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS },
                { "exports descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED },
                { "MPS", CU_DEVICE_ATTRIBUTE_MPS_ENABLED },
        };

        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
                int value = 0;

                if (CU_TRY(actor, cuDeviceGetAttribute, &value, table[i].attribute, actor->device) ==
                    CUDA_SUCCESS)
                        actor_note(actor, "%s %d", table[i].name, value);
        }
}

static void note_card(struct actor *actor, const char *name) {
        char uuid[64] = "GPU-";
        int major = 0, minor = 0;
        size_t memory = 0;
        CUuuid id;

        CU(actor, cuDeviceGetUuid, &id, actor->device);
        for (unsigned i = 0; i < sizeof id.bytes; i++)
                snprintf(uuid + strlen(uuid), sizeof uuid - strlen(uuid), "%02x%s",
                         (unsigned char)id.bytes[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
        CU(actor, cuDeviceTotalMem, &memory, actor->device);
        CU(actor, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, actor->device);
        CU(actor, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, actor->device);
        actor_note(actor, "card %s; UUID %s", name, uuid);
        actor_note(actor, "compute capability %d.%d; memory %.1f GiB", major, minor,
                   (double)memory / (1 << 30));
}

static void note_system(struct actor *actor) {
        char driver[128], kernel[160], runtime[256], path[PATH_MAX];
        Dl_info library;
        int cuda = 0;

        CU(actor, cuDriverGetVersion, &cuda);
        if (dladdr(*(void **)&actor->cu.cuInit, &library) != 0 && library.dli_fname != NULL &&
            realpath(library.dli_fname, path) != NULL)
                actor_note(actor, "library %s", path);
        machine_driver(actor->options->root, driver, sizeof driver);
        machine_kernel(actor->options->root, kernel, sizeof kernel);
        machine_runtime(actor->options->root, runtime, sizeof runtime);
        actor_note(actor, "driver %s (CUDA %d.%d); kernel %s; runtime %s; uid %u; %ld CPUs", driver,
                   cuda / 1000, cuda % 1000 / 10, kernel, runtime, (unsigned)geteuid(),
                   sysconf(_SC_NPROCESSORS_ONLN));
}

void fact_machine(struct actor *actor) {
        char name[64] = "", why[128], missing[1024];
        const char *problem;
        bool library;
        CUresult result;
        int devices = 0;

        actor_doing(actor, "loading the driver library");
        problem = driver_load(&actor->cu, actor->options->libcuda, &library, missing, sizeof missing);
        actor_doing(actor, NULL);
        if (problem != NULL && !library)
                no_gpu(actor, problem);
        if (problem != NULL)
                actor_fail(actor, "%s", problem);
        result = CU_TRY(actor, cuInit, 0);
        if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
                snprintf(why, sizeof why, "cuInit: %s", driver_name(actor, result));
                no_gpu(actor, why);
        }
        driver_check(actor, "cuInit", result);
        CU(actor, cuDeviceGetCount, &devices);
        if (devices == 0)
                no_gpu(actor, "the driver knows no device");
        CU(actor, cuDeviceGet, &actor->device, 0);
        CU(actor, cuDeviceGetName, name, sizeof name, actor->device);
        note_card(actor, name);
        note_system(actor);
        actor_note(actor, "devices %d, of which this probe uses the first", devices);
        note_attributes(actor);
        if (missing[0] != '\0')
                actor_note(actor, "the driver does not have %s", missing);
        actor_answer(actor, "%s", name);
}

/* The start of a process: the driver, a context, and the first kernel, which the driver compiles. All other
 * facts do this before they measure. */
void fact_driver_start(struct actor *actor) {
        int64_t begin = clock_ns(), opened, loaded;
        CUstream stream;

        driver_open(actor);
        opened = clock_ns();
        stream = driver_stream(actor);
        driver_launch(actor, stream, KERNEL_IDLE, NULL);
        driver_sync(actor, stream);
        loaded = clock_ns();
        actor_note(actor,
                   "library, cuInit and context %.0f ms; compiling and running the first kernel %.0f ms",
                   (double)(opened - begin) / 1e6, (double)(loaded - opened) / 1e6);
        actor_answer(actor, "yes");
}

/* Keeps the devices open: without a process that does, the driver would start the card anew for each of the
 * others. */
void role_holder(struct actor *actor) {
        char path[32];

        for (int i = 0; i < DEVICES; i++) {
                snprintf(path, sizeof path, "/dev/nvidia%d", i);
                open(path, O_RDWR | O_CLOEXEC); /* for as long as this process stays; most do not exist */
        }
        actor_stay(actor);
}

/* Looks for a program in a list of folders, as PATH is one. */
static bool find_program(const char *name, const char *folders, char *path, size_t size) {
        while (folders != NULL && *folders != '\0') {
                int length = (int)strcspn(folders, ":");

                snprintf(path, size, "%.*s/%s", length, folders, name);
                if (length > 0 && access(path, X_OK) == 0)
                        return true;
                folders += length;
                folders += *folders == ':';
        }
        return false;
}

void fact_mps(struct actor *actor) {
        static const char name[] = "nvidia-cuda-mps-control";
        const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
        char path[PATH_MAX];
        bool found = find_program(name, getenv("PATH"), path, sizeof path) ||
                     find_program(name, "/usr/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/nvidia/bin",
                                  path, sizeof path);

        actor_note(actor, "%s: %s", name,
                   found ? path : "not on the PATH, nor where the driver's packages put it");
        if (pipe == NULL)
                pipe = "/tmp/nvidia-mps";
        actor_note(actor, "pipe directory %s: %s", pipe, access(pipe, F_OK) == 0 ? "there" : "not there");
        actor_answer(actor, found ? "yes" : "no");
}
