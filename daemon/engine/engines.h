/* SPDX-License-Identifier: Apache-2.0 */
/* The engines that this daemon was built with, and that it needs. */
#pragma once

#include "engine/engine.h"

struct engines_config {
        const char *gloo_helper;  /* path of the helper program; "": where it is installed */
        uint32_t silence;         /* ms without an acknowledgement, after which a node is out of reach */
        const char *host;         /* the same for all daemons of this host, and for no others */
        const char *gpu;          /* UUID of the daemon's GPU, as nvidia-smi prints it; NULL if it has none */
        const char *cuda_driver;  /* path; "": where the system has it */
        const char *nccl_library; /* path; "": where the loader finds it */
        uint32_t nccl_build;      /* ms for a communicator on GPUs to be made */
        uint32_t nccl_timeout;    /* ms for a collective of such a communicator */
        unsigned nccl_ctas;       /* thread blocks of a lane on a GPU; 0: as many as NCCL likes */
        bool nccl_shares_gpu;     /* NCCL allows ranks on one GPU */
        /* Called when this process cannot go on: see nccl.h. */
        void (*failed)(void *owner, const char *why);
        void *owner;
};

struct engines {
        struct engine *device; /* for memory of the device; NULL: there is none */
        struct engine *host;   /* for memory of the host; the same one if the device is a CPU */
        char missing[512];     /* why there is none */
};

/* Opens the engines for memory of the host and, if there is a GPU, of the GPU. 0 or a negative errno. */
int engines_open(const struct engines_config *config, struct engines *ret);
/* All communicators must be dropped or aborted. */
void engines_close(struct engines *engines);
