/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that use a GPU from several processes: a peer is forked before this process loads the driver, and
 * both speak over a socket. An error ends the process, with a line that says where.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/cuda.h"

struct peer {
        pid_t pid;
        int socket; /* to the other process */
};

struct message {
        char word[16];
        uint64_t number;
        struct cuda_ipc ipc;
};

#define CHECK(condition) ((condition) ? (void)0 : peer_fail(__FILE__, __LINE__, #condition))
#define IS(result, expected) peer_is(__FILE__, __LINE__, #result, (result), (expected))
#define OK(result) IS(result, CUDA_OK)

void peer_fail(const char *file, int line, const char *what) __attribute__((noreturn));
void peer_is(const char *file, int line, const char *what, int result, int expected);

/* The driver and the first GPU's primary context, current in this thread. */
struct gpu {
        struct cuda cuda;
        cuda_context context;
        cuda_device device;
        size_t granularity;
};

/* The libraries that are loaded; NULL: those that the loader finds by their own names. */
extern const char *gpu_library, *nccl_library;
void gpu_open(struct gpu *gpu);
void gpu_close(struct gpu *gpu);

/* Memory that can be exported: a handle, and a mapping of it where there is access to it. */
struct area {
        cuda_handle handle;
        cuda_address address;
        size_t bytes;
};

void area_new(const struct gpu *gpu, size_t granules, struct area *ret);
void area_map(const struct gpu *gpu, struct area *area); /* `handle` and `bytes` are known */
void area_free(const struct gpu *gpu, struct area *area);
int area_export(const struct gpu *gpu, const struct area *area);
void area_import(const struct gpu *gpu, int fd, size_t bytes, struct area *ret); /* closes `fd` */

/* Whole ranges, waited for. */
void gpu_fill(const struct gpu *gpu, cuda_address address, size_t bytes, unsigned char value);
void gpu_expect(const struct gpu *gpu, cuda_address address, size_t bytes, unsigned char value);

/* Runs `role` in a process of its own, which ends when it returns. */
struct peer peer_start(void (*role)(struct peer *other));
void peer_send(const struct peer *peer, const char *word, uint64_t number, const struct cuda_ipc *ipc,
               int fd);
/* The next message must be `word`. */
struct message peer_receive(const struct peer *peer, const char *word, int *ret_fd);
/* Waits until it has ended well. */
void peer_end(struct peer *peer);
void peer_kill(struct peer *peer);

/*
 * For programs that are lists of cases, `PROGRAM [--driver LIBRARY] [--nccl LIBRARY] [NAME …]`: runs all of
 * them, or those that are named, each in a process of its own, and prints a line for each. Returns the status
 * to exit with.
 */
int cases_main(char **argv, size_t n, const char *(*name)(size_t i), void (*run)(size_t i));

/* A case that uses the first GPU. gpu_case_run() ends the peer, frees the area and closes the GPU if the case
 * has not. */
struct gpu_case {
        const char *name;
        void (*run)(struct gpu *gpu, struct area *area, struct peer *peer);
        void (*role)(struct peer *other); /* of `peer`; NULL: there is none */
        size_t granules;                  /* of `area`; 0: there is none yet */
};

void gpu_case_run(const struct gpu_case *which);
