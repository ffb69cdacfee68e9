/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as the product loads it (proto/cuda.h), and the calls that only the probe makes: a driver
 * may lack those. Each call is noted on the board, under the driver's own name of it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/cuda.h"

/* X(member, name, version, arguments), as CUDA_CALLS */
#define DRIVER_CALLS(X)                                                                                      \
        X(host_register, cuMemHostRegister, 6050, (void *host, size_t bytes, unsigned flags))                \
        X(set_words, cuMemsetD32Async, 3020,                                                                 \
          (cuda_address address, unsigned word, size_t words, cuda_stream stream))                           \
        X(wait_value, cuStreamWaitValue64, 11070,                                                            \
          (cuda_stream stream, cuda_address address, uint64_t value, unsigned flags))                        \
        X(write_value, cuStreamWriteValue64, 11070,                                                          \
          (cuda_stream stream, cuda_address address, uint64_t value, unsigned flags))

enum {
        DRIVER_REGISTER_PORTABLE = 1, /* CU_MEMHOSTREGISTER_… */
        DRIVER_REGISTER_DEVICEMAP = 2,
        DRIVER_WAIT_VALUE_GEQ = 0, /* CUstreamWaitValue_flags */
};

enum {
#define DRIVER_NUMBER(member, name, version, arguments) CALL_##member,
        CUDA_CALLS(DRIVER_NUMBER) DRIVER_CALLS(DRIVER_NUMBER)
#undef DRIVER_NUMBER
                CALLS,
};

struct driver {
        struct cuda cuda;
#define DRIVER_MEMBER(member, name, version, arguments) cuda_result(*member) arguments;
        CUDA_CALLS(DRIVER_MEMBER) DRIVER_CALLS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

/* Whether a driver that cannot be started has no GPU, or is the library that stands in for it where programs
 * are only linked. */
static inline bool driver_is_absent(const struct cuda *cuda) {
        const cuda_result stub = 34;
        cuda_result r = cuda->init(0);

        return r == CUDA_NO_DEVICE || r == stub;
}

enum {
        KERNEL_IDLE,  /* () does nothing */
        KERNEL_BUMP,  /* (u32 *words, u32 n) adds 1 to each word */
        KERNEL_COUNT, /* (u64 *device, u64 *host, u64 ns) counts in both places until ns have passed */
        KERNELS,
};

extern const char *const kernel_names[KERNELS];
extern const char kernels_ptx[]; /* PTX */

struct actor;

/* Calls a driver function, and ends the fact with "error" if it fails, or if the driver does not have it. */
#define CU(actor, member, ...) driver_check((actor), CALL_##member, CU_TRY((actor), member, __VA_ARGS__))

/* Calls a driver function that may fail: its result. */
#define CU_TRY(actor, member, ...)                                                                           \
        (driver_begin((actor), CALL_##member, (actor)->cu.member != NULL),                                   \
         driver_end((actor), (actor)->cu.member(__VA_ARGS__)))

void driver_begin(struct actor *actor, unsigned call, bool there);
cuda_result driver_end(struct actor *actor, cuda_result result);
void driver_check(struct actor *actor, unsigned call, cuda_result result);

/* "CUDA_ERROR_INVALID_VALUE", or "success", or the number of an error that the driver cannot name. The text
 * is valid until the fourth call after this one. */
const char *driver_name(struct actor *actor, cuda_result result);

/* Loads the driver. Returns what cuda_load() returns, with the reason in `error`. Functions that it does not
 * have are NULL, and named in `missing` ("": none). */
int driver_load(struct actor *actor, char *error, size_t size, char *missing, size_t missing_size);

/* Loads the driver, and makes device 0 and its primary context current. */
void driver_open(struct actor *actor);

/* A stream that does not wait for the legacy default stream. */
cuda_stream driver_stream(struct actor *actor);

/* Waits for the stream. */
void driver_sync(struct actor *actor, cuda_stream stream);

/* One word of device memory, copied in `stream`; _try: the result of the first call that fails. */
uint32_t driver_read32(struct actor *actor, cuda_stream stream, cuda_address address);
uint64_t driver_read64(struct actor *actor, cuda_stream stream, cuda_address address);
cuda_result driver_read32_try(struct actor *actor, cuda_stream stream, cuda_address address, uint32_t *word);

/* Sets all words of a range whose size is in bytes, and waits. */
void driver_fill(struct actor *actor, cuda_stream stream, cuda_address address, size_t size, uint32_t word);

/* Launches one thread of a kernel. */
void driver_launch(struct actor *actor, cuda_stream stream, unsigned kernel, void **arguments);

/* Adds 1 to each word of a range, by a kernel with a thread for each, and returns what waiting for it
 * returned. */
cuda_result driver_bump(struct actor *actor, cuda_stream stream, cuda_address address, size_t size);

/* Keeps the whole card busy for a moment: the clocks of an idle one are low. Everything that is loaded late
 * is loaded then. */
void driver_warm_up(struct actor *actor, cuda_stream stream);

/* Host memory that a descriptor names, mapped here and registered with the driver: both addresses are of the
 * same bytes. */
struct page {
        int fd;
        size_t size;
        uint64_t *host;
        cuda_address device;
};

/* The two words in which KERNEL_COUNT counts: one in device memory, and the first one of a page, both 0 at
 * first. */
struct counter {
        cuda_address device;
        struct page page;
};

struct counter counter_new(struct actor *actor, cuda_stream stream);
void counter_launch(struct actor *actor, cuda_stream stream, struct counter *counter, uint64_t ns);

/* The first word of it, as another process or the card has written it. */
uint64_t page_word(const struct page *page);

/* A new memfd, or one that was received; size is a multiple of the page size. */
struct page page_new(struct actor *actor, size_t size);
struct page page_open(struct actor *actor, int fd, size_t size);
