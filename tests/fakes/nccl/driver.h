/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as the fake NCCL uses it: the fake one, which the process has loaded already. */
#pragma once

#include "proto/cuda.h"
#include "tests/fakes/gpu/gpu.h"

const struct cuda *driver(void);
/* A call of the fake driver alone (tests/fakes/gpu/cuda.c). */
cuda_result fake_gpu_collective(cuda_stream stream, const struct gpu_collective *collective, int board);
