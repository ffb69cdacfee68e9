/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels, as cuModuleLoadData() takes them: a fat binary, or PTX with a NUL at its end. */
#pragma once

extern const unsigned char grid_image[];
