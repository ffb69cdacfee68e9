/* SPDX-License-Identifier: Apache-2.0 */
/* See nccl.h. */
#include "nccl.h"

#include "library.h"

void library_open(struct actor *actor, struct nccl *nccl) {
        static struct libraries found; /* zero */
        char error[512];

        library_nccl(&found);
        for (unsigned i = 0; i < found.n; i++) {
                actor_doing(actor, "loading libnccl");
                int r = nccl_load(nccl, found.path[i], error, sizeof error);
                actor_doing(actor, NULL);
                if (r == 0) {
                        actor_note(actor, "NCCL %s, %s", nccl->text, nccl->path);
                        return;
                }
                actor_note(actor, "%s", error);
        }
        actor_skip(actor, "no libnccl from 2.18 on was found");
}

void call_await(struct actor *actor, struct nccl *nccl, nccl_comm comm, const char *what,
                nccl_result result) {
        char text[512];
        unsigned turn = 0;

        while (result == NCCL_IN_PROGRESS) {
                nccl_result state = NCCL_OK;

                actor_spin(actor, turn++);
                result = nccl->async_error(comm, &state);
                if (result == NCCL_OK)
                        result = state;
        }
        actor_doing(actor, NULL);
        if (result != NCCL_OK)
                actor_fail(actor, "%s: %s: %s", actor->role, what,
                           nccl_error(nccl, comm, result, text, sizeof text));
}

void call_allreduce(struct actor *actor, struct nccl *nccl, nccl_comm comm, cuda_address words, size_t n,
                    cuda_stream stream) {
        void *at = (void *)(uintptr_t)words;

        NCCL(actor, nccl, comm, "ncclAllReduce",
             nccl->allreduce(at, at, n, NCCL_INT32, NCCL_SUM, comm, stream));
}
