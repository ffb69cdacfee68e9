/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first row: which card, driver, kernel and container runtime the others speak of. And whether MPS could
 * be used.
 */
#include "clock.h"
#include "facts.h"
#include "machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note_attributes(struct actor *actor) {
        static const struct {
                const char *name;
                unsigned attribute;
        } table[] = {
                { "compute capability, major", CUDA_DEVICE_MAJOR },
                { "minor", CUDA_DEVICE_MINOR },
                { "multiprocessors", CUDA_DEVICE_MULTIPROCESSORS },
                { "L2 bytes", CUDA_DEVICE_L2 },
                { "compute mode", CUDA_DEVICE_COMPUTE_MODE },
                { "exports descriptors", CUDA_DEVICE_FD_HANDLES },
                { "MPS", CUDA_DEVICE_MPS },
        };

        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
                int value = 0;

                if (CU_TRY(actor, device_attribute, &value, table[i].attribute, actor->device) == CUDA_OK)
                        actor_note(actor, "%s %d", table[i].name, value);
        }
}

static void note_card(struct actor *actor, const char *name) {
        char uuid[CUDA_UUID_TEXT];
        struct cuda_uuid id;
        size_t memory = 0;

        CU(actor, device_uuid, &id, actor->device);
        CU(actor, device_total, &memory, actor->device);
        cuda_uuid_text(&id, uuid);
        actor_note(actor, "card %s; UUID %s; memory %.1f GiB", name, uuid, (double)memory / (1 << 30));
}

static void note_system(struct actor *actor) {
        char runtime[256], path[PATH_MAX];
        Dl_info library;
        int cuda = actor->cu.cuda.version;

        if (dladdr(*(void **)&actor->cu.init, &library) != 0 && library.dli_fname != NULL &&
            realpath(library.dli_fname, path) != NULL)
                actor_note(actor, "library %s", path);
        machine_runtime(actor->root, runtime, sizeof runtime);
        actor_note(actor, "CUDA %d.%d; runtime %s; uid %u; %ld CPUs", cuda / 1000, cuda % 1000 / 10, runtime,
                   (unsigned)geteuid(), sysconf(_SC_NPROCESSORS_ONLN));
}

/* Says "none" where there is no GPU, which makes the probe end with 77. */
void fact_machine(struct actor *actor) {
        char name[64] = "", error[512], missing[512];
        int devices = 0, r = driver_load(actor, error, sizeof error, missing, sizeof missing);

        if (r < 0)
                actor_note(actor, "%s", error);
        if (r == -ENOENT || (r == -ENODEV && driver_is_absent(&actor->cu.cuda)))
                actor_answer(actor, "none");
        if (r < 0)
                actor_answer(actor, "error");
        CU(actor, device_count, &devices);
        CU(actor, device_get, &actor->device, 0);
        CU(actor, device_name, name, sizeof name, actor->device);
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
        cuda_stream stream;

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
