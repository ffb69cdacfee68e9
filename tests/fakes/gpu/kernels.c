/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that a context can run: those of all libraries that FAKE_GPU_KERNELS names. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "tests/fakes/kernel.h"

static const struct fake_kernel *kernels[KERNELS];
static size_t n_kernels;

static void kernels_add(const char *path) {
        void *library = dlopen(path, RTLD_NOW);
        fake_kernels_fn function = NULL;
        size_t n = 0;

        if (library != NULL)
                *(void **)&function = dlsym(library, "fake_kernels");
        const struct fake_kernel *of_library = function != NULL ? function(&n) : NULL;
        if (n == 0)
                machine_log("no kernels in %s: %s", path, dlerror());
        for (size_t i = 0; i < n; i++) {
                if (n_kernels == KERNELS || kernels_find(of_library[i].name) != 0)
                        machine_log("no place, or no other name, for kernel %s", of_library[i].name);
                else
                        kernels[n_kernels++] = &of_library[i];
        }
}

void kernels_load(void) {
        const char *paths = getenv("FAKE_GPU_KERNELS");
        char *copy = strdup(paths != NULL ? paths : ""), *rest;

        if (copy == NULL)
                abort();
        for (char *path = strtok_r(copy, ":", &rest); path != NULL; path = strtok_r(NULL, ":", &rest))
                kernels_add(path);
        free(copy);
}

uint64_t kernels_find(const char *name) {
        for (size_t i = 0; i < n_kernels; i++)
                if (strcmp(kernels[i]->name, name) == 0)
                        return i + 1;
        return 0;
}

const struct fake_kernel *kernels_get(uint64_t number) {
        return number >= 1 && number <= n_kernels ? kernels[number - 1] : NULL;
}
