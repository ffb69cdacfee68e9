/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the set of kernels that this CPU can run. Also runs kernels on the elements after the last full
 * row, which a kernel cannot take. */
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel.h"
#include "proto/frame.h"

#if HAVE_X86_KERNELS
#include <cpuid.h>

static int kernel_supports_avx2(void) {
        unsigned a, b, c = 0, d;
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int kernel_supports_avx512(void) {
        return kernel_supports_avx2() && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
}
#endif

static int kernel_supports_baseline(void) {
        return 1;
}

/* The best set comes first. */
static const struct {
        const struct kernel_set *set;
        int (*supported)(void);
} sets[] = {
#if HAVE_X86_KERNELS
        { &kernel_set_avx512, kernel_supports_avx512 },
        { &kernel_set_avx2, kernel_supports_avx2 },
#endif
        { &kernel_set_baseline, kernel_supports_baseline },
};

const struct kernel_set *kernel_find(const char *name) {
        for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
                if (sets[i].supported() && (!name || strcmp(sets[i].set->name, name) == 0))
                        return sets[i].set;
        return NULL;
}

const struct kernel_set *kernel_select(void) {
        const char *name = getenv("GRADSYNC_SIMD");
        return kernel_find(name && *name ? name : NULL);
}

size_t kernel_size(unsigned dtype) {
        switch (dtype) {
        case WIRE__DTYPE__F64:
        case WIRE__DTYPE__I64: return 8;
        case WIRE__DTYPE__F32:
        case WIRE__DTYPE__I32: return 4;
        case WIRE__DTYPE__F16:
        case WIRE__DTYPE__BF16: return 2;
        case WIRE__DTYPE__U8: return 1;
        default: return 0;
        }
}

#define ROW_BYTES (KERNEL_LANES * 8) /* bytes of a row of the largest type */

/* Runs a kernel on fewer elements than a row, followed by zeros, which add nothing to a sum of squares. */
static void kernel_run_padded(kernel_fn kernel, const struct kernel_slice *slice, size_t size) {
        unsigned char input[LIMIT_LOCAL][ROW_BYTES], output[ROW_BYTES], *outputs[1] = { output };
        const unsigned char *inputs[LIMIT_LOCAL];
        struct kernel_slice row = *slice;
        size_t offset = slice->first * size, bytes = slice->elements * size;
        for (unsigned i = 0; i < slice->n_inputs; i++) {
                memset(input[i], 0, ROW_BYTES);
                memcpy(input[i], slice->inputs[i] + offset, bytes);
                inputs[i] = input[i];
        }
        row.inputs = inputs;
        row.outputs = outputs;
        row.n_outputs = 1;
        row.uncached = false;
        row.first = 0;
        row.elements = KERNEL_LANES;
        kernel(&row);
        for (unsigned i = 0; i < slice->n_outputs; i++)
                memcpy(slice->outputs[i] + offset, output, bytes);
}

/* Makes stores around the caches visible before another thread is told of them. */
static void kernel_fence(void) {
#if defined(__SSE2__)
        __builtin_ia32_sfence();
#endif
}

void kernel_run(kernel_fn kernel, const struct kernel_slice *slice, size_t size) {
        struct kernel_slice part = *slice;
        size_t odd = slice->elements % KERNEL_LANES;
        part.elements -= odd;
        if (part.elements > 0)
                kernel(&part);
        part.first += part.elements;
        part.elements = odd;
        if (odd > 0)
                kernel_run_padded(kernel, &part, size);
        if (slice->uncached)
                kernel_fence();
}

void kernel_fold(kernel_fn fold, size_t size, void *result, const void *a, const void *b, size_t elements) {
        const unsigned char *inputs[] = { a, b };
        unsigned char *outputs[] = { result };
        const struct kernel_slice slice = {
                .inputs = inputs, .outputs = outputs, .n_inputs = 2, .n_outputs = 1, .elements = elements
        };
        kernel_run(fold, &slice, size);
}
