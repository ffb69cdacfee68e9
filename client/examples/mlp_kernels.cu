/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points. Compiled with contraction off (-fmad=false); see kernel_image.py. */
#include "mlp_body.h"

#define MLP_ENTRY(name)                                                                                      \
        extern "C" __global__ void __launch_bounds__(MLP_THREADS)                                            \
                digits_##name(const __grid_constant__ struct mlp_work work) {                                \
                uint32_t n = blockIdx.x * MLP_THREADS + threadIdx.x;                                         \
                if (n < mlp_threads(MLP_KERNEL_##name, &work))                                               \
                        mlp_at_##name(&work, n);                                                             \
        }
MLP_KERNELS(MLP_ENTRY)
