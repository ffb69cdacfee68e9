/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda, on which the probe's own logic is tested: who starts whom, what is sent, what
 * counts as an answer. Memory is a memfd, a device address is a host address, a stream is a thread, the
 * probe's kernels are C. It shows nothing about a GPU: nothing here is slow, nothing is late, and a killed
 * process' kernels end with it.
 *
 * STUB_CUDA makes functions misbehave: a list, separated by commas, of
 *   missing:NAME       the driver has no such function
 *   hang:NAME          it never returns
 *   crash:NAME         it ends its process by SIGABRT
 *   refuse:NAME=CODE   it returns that error
 *   outlive            a kernel that counts goes on for 200 ms after its process was killed
 *   lax-map            memory can be mapped with a size beyond its own; what is touched there ends the
 * process write-code         loading kernels needs memory that was written and is executed
 */
#pragma once

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_API __attribute__((visibility("default")))

enum {
        STUB_GRANULARITY = 2 << 20,
        STUB_ARGUMENTS = 4,
};

/* Something that a stream does, one after the other. */
struct stub_operation {
        struct stub_operation *next;
        void (*run)(struct stub_operation *operation);
        uint64_t number[STUB_ARGUMENTS];
        void *pointer[2];
};

/* A zeroed operation; enqueued once, and freed by the stream. */
STUB_API struct stub_operation *stub_operation(void (*run)(struct stub_operation *));
STUB_API void stub_enqueue(CUstream stream, struct stub_operation *operation);

/* Waits politely until the word is at least that, or *stop is set. */
STUB_API void stub_wait_word(const volatile uint64_t *word, uint64_t least, const volatile int *stop);

/* A sticky error, as an illegal address leaves one behind: every stream reports it from then on. */
void stub_break(CUresult error);

/* Whether the process has made a context current; memory and streams need one. */
bool stub_has_context(void);

/* Whether the driver knows of memory at this address: it checks a copy before anything touches it. */
bool stub_knows(CUdeviceptr address);

/* The kernel of that name, or NULL. */
void (*stub_kernel(const char *name))(struct stub_operation *);

/* A descriptor of another process of the same user, by its number there, or -1. */
STUB_API int stub_open_foreign(int pid, int fd);

/* The functions that misbehave: what to answer for `name` instead of `function`; NULL: it is missing. */
void *stub_misbehave(const char *name, void *function);
