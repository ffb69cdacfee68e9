/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's functions, and the polling that a communicator that does not block needs.
 */
#include "nccl.h"

#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>

enum {
        NCCL_MAGIC = 0xcafebeef,
        NCCL_2_18_1 = 21801,
        UNDEFINED = INT_MIN,
        LEAST_VERSION = 21800,
};

static void *nccl_find(void *library, const char *name, const char **missing) {
        void *function = dlsym(library, name);

        if (function == NULL && *missing == NULL)
                *missing = name;
        return function;
}

const char *nccl_load(struct nccl *nccl, const char *path) {
        static char why[512];
        const char *missing = NULL;
        struct link_map *map;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

        if (library == NULL) {
                snprintf(why, sizeof why, "%s", dlerror());
                return why;
        }
        *(void **)&nccl->GetVersion = nccl_find(library, "ncclGetVersion", &missing);
        *(void **)&nccl->GetErrorString = nccl_find(library, "ncclGetErrorString", &missing);
        *(void **)&nccl->GetUniqueId = nccl_find(library, "ncclGetUniqueId", &missing);
        *(void **)&nccl->CommInitRankConfig = nccl_find(library, "ncclCommInitRankConfig", &missing);
        *(void **)&nccl->CommGetAsyncError = nccl_find(library, "ncclCommGetAsyncError", &missing);
        *(void **)&nccl->AllReduce = nccl_find(library, "ncclAllReduce", &missing);
        *(void **)&nccl->CommAbort = nccl_find(library, "ncclCommAbort", &missing);
        *(void **)&nccl->GetLastError = dlsym(library, "ncclGetLastError"); /* may be missing, as may these */
        *(void **)&nccl->CommRevoke = dlsym(library, "ncclCommRevoke");
        *(void **)&nccl->MemAlloc = dlsym(library, "ncclMemAlloc");
        *(void **)&nccl->CommWindowRegister = dlsym(library, "ncclCommWindowRegister");
        *(void **)&nccl->CommWindowDeregister = dlsym(library, "ncclCommWindowDeregister");
        if (missing != NULL) {
                snprintf(why, sizeof why, "%s has no %s", path, missing);
                return why;
        }
        if (nccl->GetVersion(&nccl->version) != NCCL_SUCCESS) {
                snprintf(why, sizeof why, "%s does not tell its version", path);
                return why;
        }
        nccl->path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] ? map->l_name : path;
        return NULL;
}

void nccl_version_text(int version, char *text, size_t size) {
        snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

void nccl_open(struct actor *actor, struct nccl *nccl) {
        static struct libraries found; /* zero */
        char version[32];

        library_nccl(&found, actor->options);
        for (unsigned i = 0; i < found.n; i++) {
                const char *problem;

                actor_doing(actor, "loading libnccl");
                problem = nccl_load(nccl, found.path[i]);
                actor_doing(actor, NULL);
                if (problem != NULL)
                        actor_note(actor, "%s", problem);
                if (problem != NULL || nccl->version < LEAST_VERSION)
                        continue;
                nccl_version_text(nccl->version, version, sizeof version);
                actor_note(actor, "NCCL %s, %s", version, nccl->path);
                return;
        }
        actor_skip(actor, "no libnccl from 2.18 on was found");
}

const char *nccl_why(struct nccl *nccl, struct nccl_comm *comm, int result) {
        static char text[512];
        const char *last = nccl->GetLastError != NULL ? nccl->GetLastError(comm) : NULL;

        snprintf(text, sizeof text, "%s%s%s", nccl->GetErrorString(result),
                 last != NULL && last[0] ? ": " : "", last != NULL ? last : "");
        return text;
}

void nccl_await(struct actor *actor, struct nccl *nccl, struct nccl_comm *comm, const char *what,
                int result) {
        unsigned turn = 0;

        actor_doing(actor, what);
        while (result == NCCL_IN_PROGRESS) {
                int state = NCCL_SUCCESS;

                actor_spin(actor, turn++);
                result = nccl->CommGetAsyncError(comm, &state);
                if (result == NCCL_SUCCESS)
                        result = state;
        }
        actor_doing(actor, NULL);
        if (result != NCCL_SUCCESS)
                actor_fail(actor, "%s: %s: %s", actor->options->role, what, nccl_why(nccl, comm, result));
}

struct nccl_comm *nccl_init(struct actor *actor, struct nccl *nccl, int ranks, int rank,
                            const struct nccl_id *id) {
        struct nccl_config config = {
                .size = sizeof config,
                .magic = NCCL_MAGIC,
                .version = NCCL_2_18_1,
                .blocking = 0,
                .cga_cluster_size = UNDEFINED,
                .min_ctas = UNDEFINED,
                .max_ctas = UNDEFINED,
                .split_share = UNDEFINED,
        };
        struct nccl_comm *comm = NULL;
        int result;

        actor_doing(actor, "ncclCommInitRankConfig");
        result = nccl->CommInitRankConfig(&comm, ranks, *id, rank, &config);
        nccl_await(actor, nccl, comm, "ncclCommInitRankConfig", result);
        return comm;
}

void nccl_allreduce(struct actor *actor, struct nccl *nccl, struct nccl_comm *comm, CUdeviceptr words,
                    size_t n, CUstream stream) {
        int result;

        actor_doing(actor, "ncclAllReduce");
        result = nccl->AllReduce((const void *)words, (void *)words, n, NCCL_INT32, NCCL_SUM, comm, stream);
        nccl_await(actor, nccl, comm, "ncclAllReduce", result);
}
