/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, loaded at run time. Its header is not needed: the few functions that the probe calls have had these
 * signatures since 2.18, and the configuration is versioned by its first fields.
 */
#pragma once

#include "actor.h"

#include <stddef.h>
#include <stdint.h>

enum {
        NCCL_SUCCESS = 0,
        NCCL_IN_PROGRESS = 7,
        NCCL_INT32 = 2, /* ncclDataType_t */
        NCCL_SUM = 0,   /* ncclRedOp_t */
        NCCL_ID = 128,  /* bytes */
        NCCL_WIN_COLL_SYMMETRIC = 1,
};

struct nccl_id {
        char bytes[NCCL_ID];
};

struct nccl_comm;

struct nccl_config { /* ncclConfig_t of 2.18; newer fields get their defaults from the library */
        size_t size;
        unsigned magic;
        unsigned version;
        int blocking;
        int cga_cluster_size;
        int min_ctas;
        int max_ctas;
        const char *net_name;
        int split_share;
};

struct nccl {
        int version;      /* 22809 is 2.28.9 */
        const char *path; /* of the file that was loaded */
        int (*GetVersion)(int *version);
        const char *(*GetErrorString)(int result);
        int (*GetUniqueId)(struct nccl_id *id);
        int (*CommInitRankConfig)(struct nccl_comm **comm, int ranks, struct nccl_id id, int rank,
                                  struct nccl_config *config);
        int (*CommGetAsyncError)(struct nccl_comm *comm, int *result);
        int (*AllReduce)(const void *from, void *to, size_t count, int type, int op, struct nccl_comm *comm,
                         CUstream stream);
        int (*CommAbort)(struct nccl_comm *comm);
        const char *(*GetLastError)(struct nccl_comm *comm);  /* NULL: the library has none */
        int (*CommRevoke)(struct nccl_comm *comm, int flags); /* likewise: it came with 2.28.7 */
        int (*MemAlloc)(void **at, size_t bytes);             /* 2.19 */
        int (*CommWindowRegister)(struct nccl_comm *comm, void *at, size_t bytes, void **window,
                                  int flags); /* 2.27, as the next one */
        int (*CommWindowDeregister)(struct nccl_comm *comm, void *window);
};

/* Describes a result, with the library's own last error. The text is valid until the next call. */
const char *nccl_why(struct nccl *nccl, struct nccl_comm *comm, int result);

/* Loads a library. Returns NULL, or why it cannot be used; the text is valid until the next call. */
const char *nccl_load(struct nccl *nccl, const char *path);

/* "2.28.9" */
void nccl_version_text(int version, char *text, size_t size);

/* Loads the first library that is found and adds its path and version to the detail, or ends the fact with
 * "skipped". */
void nccl_open(struct actor *actor, struct nccl *nccl);

/* A non-blocking communicator, once it is ready; ends the fact with "error" if it does not become so. */
struct nccl_comm *nccl_init(struct actor *actor, struct nccl *nccl, int ranks, int rank,
                            const struct nccl_id *id);

/* Waits until what was begun on the communicator is under way. */
void nccl_await(struct actor *actor, struct nccl *nccl, struct nccl_comm *comm, const char *what, int result);

/* Adds `words` 32-bit integers of all ranks, in place, in `stream`. */
void nccl_allreduce(struct actor *actor, struct nccl *nccl, struct nccl_comm *comm, CUdeviceptr words,
                    size_t n, CUstream stream);
