/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, loaded at run time as the driver is (cuda.h): nothing here needs its header, and a daemon without a
 * GPU never loads it. The functions declared here have had these signatures since NCCL_LEAST. Later functions
 * are NULL if the library lacks them; the daemon then does without. A test compares names and numbers with
 * nccl.h where that exists.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/cuda.h"

#define NCCL_LIBRARY "libnccl.so.2"
#define NCCL_LEAST 21800 /* as ncclGetVersion() counts: 2.18.0 */
#define NCCL_MAGIC 0xcafebeefu
#define NCCL_UNDEFINED INT_MIN /* of a setting: the library decides */
#define NCCL_VERSION_TEXT 24   /* bytes of "2.28.9", and the NUL */

typedef int nccl_result; /* ncclResult_t */
typedef struct ncclComm *nccl_comm;

/* ncclResult_t, the values in use */
enum {
        NCCL_OK = 0,
        NCCL_SYSTEM_ERROR = 2,
        NCCL_INVALID_ARGUMENT = 4,
        NCCL_INVALID_USAGE = 5,
        NCCL_REMOTE_ERROR = 6, /* another rank has failed, or has gone */
        NCCL_IN_PROGRESS = 7,
};

enum nccl_type { /* ncclDataType_t */
                 NCCL_INT8 = 0,
                 NCCL_UINT8 = 1,
                 NCCL_INT32 = 2,
                 NCCL_INT64 = 4,
                 NCCL_UINT64 = 5,
                 NCCL_FLOAT16 = 6,
                 NCCL_FLOAT32 = 7,
                 NCCL_FLOAT64 = 8,
                 NCCL_BFLOAT16 = 9,
};

enum nccl_operation { NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3 }; /* ncclRedOp_t */

enum { NCCL_WINDOW_SYMMETRIC = 1 }; /* NCCL_WIN_COLL_SYMMETRIC: used at the same place by all ranks */
enum { NCCL_SHRINK_IDLE = 0 };      /* NCCL_SHRINK_DEFAULT: nothing of the communicator is under way */

struct nccl_id { /* ncclUniqueId: any process that knows it can be one of the ranks */
        char bytes[128];
};

/* ncclConfig_t as of 2.18: newer fields get the defaults of the library. */
struct nccl_config {
        size_t size;
        unsigned magic, version;
        int blocking;
        int cga_cluster_size, min_ctas, max_ctas;
        const char *net_name;
        int split_share;
};

#define NCCL_CONFIG                                                                                          \
        (struct nccl_config) {                                                                               \
                .size = sizeof(struct nccl_config), .magic = NCCL_MAGIC, .version = NCCL_LEAST,              \
                .blocking = NCCL_UNDEFINED, .cga_cluster_size = NCCL_UNDEFINED, .min_ctas = NCCL_UNDEFINED,  \
                .max_ctas = NCCL_UNDEFINED, .split_share = NCCL_UNDEFINED                                    \
        }

/* X(member, name, arguments) */
#define NCCL_CALLS(X)                                                                                        \
        X(get_version, ncclGetVersion, (int *version))                                                       \
        X(unique_id, ncclGetUniqueId, (struct nccl_id * id))                                                 \
        X(init, ncclCommInitRankConfig,                                                                      \
          (nccl_comm * comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config))            \
        X(split, ncclCommSplit,                                                                              \
          (nccl_comm comm, int color, int key, nccl_comm *part, struct nccl_config *config))                 \
        X(finalize, ncclCommFinalize, (nccl_comm comm))                                                      \
        X(destroy, ncclCommDestroy, (nccl_comm comm))                                                        \
        X(abort, ncclCommAbort, (nccl_comm comm))                                                            \
        X(async_error, ncclCommGetAsyncError, (nccl_comm comm, nccl_result * error))                         \
        X(allreduce, ncclAllReduce,                                                                          \
          (const void *from, void *to, size_t count, int type, int operation, nccl_comm comm,                \
           cuda_stream stream))                                                                              \
        X(group_start, ncclGroupStart, (void))                                                               \
        X(group_end, ncclGroupEnd, (void))

/* Those of newer releases: X(member, name, the release that brought it, arguments) */
#define NCCL_EXTRAS(X)                                                                                       \
        X(register_buffer, ncclCommRegister, 21900, (nccl_comm comm, void *at, size_t bytes, void **handle)) \
        X(deregister, ncclCommDeregister, 21900, (nccl_comm comm, void *handle))                             \
        X(mem_alloc, ncclMemAlloc, 21900, (void **at, size_t bytes))                                         \
        X(mem_free, ncclMemFree, 21900, (void *at))                                                          \
        X(shrink, ncclCommShrink, 22700,                                                                     \
          (nccl_comm comm, int *without, int n, nccl_comm *rest, struct nccl_config *config, int flags))     \
        X(register_window, ncclCommWindowRegister, 22700,                                                    \
          (nccl_comm comm, void *at, size_t bytes, void **window, int flags))                                \
        X(deregister_window, ncclCommWindowDeregister, 22700, (nccl_comm comm, void *window))                \
        X(revoke, ncclCommRevoke, 22807, (nccl_comm comm, int flags))                                        \
        X(grow, ncclCommGrow, 22902,                                                                         \
          (nccl_comm comm, int ranks, const struct nccl_id *id, int rank, nccl_comm *grown,                  \
           struct nccl_config *config))                                                                      \
        X(grow_id, ncclCommGetUniqueId, 22902, (nccl_comm comm, struct nccl_id * id))

struct nccl {
        void *library;
        int version;                  /* 22809 is 2.28.9 */
        char text[NCCL_VERSION_TEXT]; /* of it */
        char path[512];               /* of the file that was loaded */
        const char *(*result)(nccl_result result);
        /* The text of the last error of the communicator (NULL: of any). NULL: there is no such function. */
        const char *(*last_error)(nccl_comm comm);
#define NCCL_MEMBER(member, name, arguments) nccl_result(*member) arguments;
        NCCL_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
#define NCCL_MEMBER(member, name, since, arguments) nccl_result(*member) arguments;
        NCCL_EXTRAS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

/*
 * Loads the library. `path` may be NULL: NCCL_LIBRARY, wherever the loader finds it. 0, or -ENOENT: there is
 * none; -ENOSYS: it is too old, of another major release, or lacks functions, which `error` names. `error` is
 * one sentence without its end. A library that was loaded is never unloaded: it leaves threads behind.
 */
int nccl_load(struct nccl *nccl, const char *path, char *error, size_t size);

/* "2.28.9" */
void nccl_version_text(int version, char text[NCCL_VERSION_TEXT]);

/* "remote process exited or there was a network error: …", with the library's own text. Returns `text`. */
const char *nccl_error(const struct nccl *nccl, nccl_comm comm, nccl_result result, char *text, size_t size);
