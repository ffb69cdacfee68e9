/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's kernels for the fake GPU: the bodies that nvcc compiles, compiled for the host. */
#include "backend/cuda/grid_body.h"
#include "tests/fakes/kernel.h"

static const size_t parameter_bytes[] = { sizeof(struct grid_launch) };

/* As kernel_end() in grid.cu. */
static void end(const struct grid_launch *launch, bool find) {
        uint32_t *ticket = POINTER(uint32_t, launch->ticket);

        if (*ticket != 0)
                __builtin_trap();
        grid_totals(launch, find);
}

#define RUN(name, type, operation, k)                                                                        \
        static void run_##name(void **parameters, const unsigned grid[3], const unsigned block[3]) {         \
                const struct grid_launch *launch = parameters[0];                                            \
                if (block[0] != GRID_THREADS)                                                                \
                        __builtin_trap();                                                                    \
                for (unsigned b = 0; b < grid[0]; b++)                                                       \
                        block_##type(launch, b, grid[0], operation, k);                                      \
                if (GRID_##type <= GRID_bf16)                                                                \
                        end(launch, operation == GRID_FIND);                                                 \
        }
GRID_LIST(RUN)

static const unsigned char bytes_of[] = { [GRID_f32] = 4, [GRID_f64] = 8, [GRID_f16] = 2, [GRID_bf16] = 2,
                                          [GRID_i32] = 4, [GRID_i64] = 8, [GRID_u8] = 1 };

static void ranges_of(const struct grid_launch *launch, enum grid_type type, fake_range_fn add, void *data) {
        for (uint32_t p = 0; p < launch->n_parts; p++) {
                const struct grid_part *part = &launch->part[p];
                uint64_t bytes = part->elements * bytes_of[type];

                for (uint32_t i = 0; i < part->n_inputs; i++)
                        add(data, launch->address[part->inputs + i], bytes, false);
                for (uint32_t i = 0; i < part->n_outputs; i++)
                        add(data, launch->address[part->outputs + i], bytes, true);
        }
}

#define RANGES(name, type, operation, k)                                                                     \
        static void ranges_##name(void **parameters, fake_range_fn add, void *data) {                        \
                ranges_of(parameters[0], GRID_##type, add, data);                                            \
        }
GRID_LIST(RANGES)

static const struct fake_kernel kernels[] = {
#define ROW(name, type, operation, k) { GRID_PREFIX #name, 1, parameter_bytes, run_##name, ranges_##name },
        GRID_LIST(ROW)
};

__attribute__((visibility("default"))) const struct fake_kernel *fake_kernels(size_t *n);
const struct fake_kernel *fake_kernels(size_t *n) {
        *n = sizeof(kernels) / sizeof(kernels[0]);
        return kernels;
}
