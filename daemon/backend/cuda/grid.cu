/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points. Compiled with contraction off (-fmad=false); see kernel_image.py. */
#include "grid_body.h"

/* The block that ends last finds the others' sums in memory: each has made its own visible before it took a
 * ticket. */
DEVICE void grid_end(const struct grid_launch *launch, bool find) {
        __shared__ bool last;

        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
                last = atomicAdd(POINTER(unsigned, launch->ticket), 1) == gridDim.x - 1;
        __syncthreads();
        if (!last)
                return;
        __threadfence();
        grid_totals(launch, find);
        if (threadIdx.x == 0)
                *POINTER(unsigned, launch->ticket) = 0;
}

#define GRID_IS_FLOAT(type) (GRID_##type <= GRID_bf16)
#define GRID_ENTRY(name, type, operation, k)                                                                 \
        extern "C" __global__ void __launch_bounds__(GRID_THREADS)                                           \
                gradsync_##name(const __grid_constant__ struct grid_launch launch) {                         \
                block_##type(&launch, blockIdx.x, gridDim.x, operation, k);                                  \
                if (GRID_IS_FLOAT(type))                                                                     \
                        grid_end(&launch, operation == GRID_FIND);                                           \
        }
GRID_LIST(GRID_ENTRY)
