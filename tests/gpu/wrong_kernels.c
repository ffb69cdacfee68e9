/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for the fake GPU, one of which is wrong: those of the library WRONG_RIGHT, of which WRONG_KERNEL
 * does as WRONG_HOW says, after it has run as it should:
 *   value     the last bit of an output's last element is another one
 *   beyond    the byte after an output is another one
 *   sum       the sum of squares of the result is too large, by one part in a million
 *   count     one element more is not finite
 *   blocks    with more than one block, the last bit of a sum is another one
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/grid.h"
#include "tests/fakes/kernel.h"

#define KERNELS 256u
#define EXPORT __attribute__((visibility("default")))

EXPORT const struct fake_kernel *fake_kernels(size_t *n);

static struct fake_kernel kernels[KERNELS];
static void (*right)(void **parameters, const unsigned grid[3], const unsigned block[3]);
static size_t element;

static bool wrong_is(const char *how) {
        return strcmp(getenv("WRONG_HOW"), how) == 0;
}

static void wrong_values(const struct grid_launch *launch) {
        for (uint32_t p = 0; p < launch->n_parts; p++) {
                const struct grid_part *part = &launch->part[p];
                uint64_t end = launch->address[part->outputs] + part->elements * element;
                if (part->elements > 0 && part->n_outputs > 0)
                        *(unsigned char *)(uintptr_t)(wrong_is("beyond") ? end : end - element) ^= 1;
        }
}

static void wrong_statistics(const struct grid_launch *launch, unsigned blocks) {
        uint64_t *words = (uint64_t *)(uintptr_t)launch->results + launch->part[0].result;
        double sum;

        memcpy(&sum, words, sizeof sum);
        sum *= 1 + 1e-6;
        if (wrong_is("sum"))
                memcpy(words, &sum, sizeof sum);
        if (wrong_is("count"))
                words[launch->part[0].n_inputs + 1]++;
        if (wrong_is("blocks") && blocks > 1)
                words[0] ^= 1;
}

static void wrong_run(void **parameters, const unsigned grid[3], const unsigned block[3]) {
        const struct grid_launch *launch = parameters[0];

        right(parameters, grid, block);
        if (wrong_is("value") || wrong_is("beyond"))
                wrong_values(launch);
        else
                wrong_statistics(launch, grid[0]);
}

/* "gradsync_sum_bf16_2": the type is after the operation. */
static size_t wrong_element(const char *name) {
        return strstr(name, "f16") != NULL                                  ? 2
               : strstr(name, "32") != NULL                                 ? 4
               : strstr(name, "f64") != NULL || strstr(name, "i64") != NULL ? 8
                                                                            : 1;
}

const struct fake_kernel *fake_kernels(size_t *n) {
        void *library = dlopen(getenv("WRONG_RIGHT"), RTLD_NOW | RTLD_LOCAL);
        fake_kernels_fn of_library = NULL;

        *n = 0;
        if (library != NULL)
                *(void **)&of_library = dlsym(library, "fake_kernels");
        if (of_library == NULL)
                return NULL;
        const struct fake_kernel *found = of_library(n);
        if (*n > KERNELS)
                abort();
        memcpy(kernels, found, *n * sizeof *found);
        for (size_t i = 0; i < *n; i++)
                if (strcmp(kernels[i].name, getenv("WRONG_KERNEL")) == 0) {
                        right = kernels[i].run;
                        element = wrong_element(kernels[i].name);
                        kernels[i].run = wrong_run;
                }
        return kernels;
}
