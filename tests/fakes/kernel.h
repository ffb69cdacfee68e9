/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of kernels gives the function fake_kernels() to the fake GPU, which finds kernels by name and
 * runs them on the CPU. Device addresses are ordinary pointers where kernels run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called for each range of memory that a launch uses. */
typedef void (*fake_range_fn)(void *data, uint64_t address, uint64_t bytes, bool write);

struct fake_kernel {
        const char *name;
        unsigned n_parameters;
        const size_t *parameter_bytes;
        /* All blocks of a launch, to their end. */
        void (*run)(void **parameters, const unsigned grid[3], const unsigned block[3]);
        /* The ranges that it reads or writes; NULL: they are not checked. */
        void (*ranges)(void **parameters, fake_range_fn add, void *data);
};

typedef const struct fake_kernel *(*fake_kernels_fn)(size_t *n);

/* Tells a kernel that takes long whether the client of its context has gone. */
__attribute__((visibility("default"))) bool fake_client_is_gone(void);
