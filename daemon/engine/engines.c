/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/nccl/environment.h"
#include "engine/nccl/nccl.h"

#define ENDING 10000u /* ms that a communicator on GPUs has to end */

#if HAVE_GLOO
#include "engine/gloo/gloo.h"

static int open_for_host(const struct engines_config *config, struct engines *engines) {
        struct gloo_config gloo = { .helper = config->gloo_helper[0] != '\0' ? config->gloo_helper
                                                                             : GLOO_HELPER,
                                    .silence = config->silence,
                                    /* The coordinator gives up later: after twice `silence`. */
                                    .timeout = config->silence + config->silence / 2 };

        return gloo_open(&gloo, &engines->host);
}

static void close_for_host(struct engines *engines) {
        gloo_close(engines->host);
}
#else
static int open_for_host(const struct engines_config *config, struct engines *engines) {
        snprintf(engines->missing, sizeof(engines->missing), "it was built without Gloo");
        return 0;
}

static void close_for_host(struct engines *engines) {}
#endif

static const char *path_or_null(const char *path) {
        return path != NULL && path[0] != '\0' ? path : NULL;
}

/* Opens the engine for the GPU. Without NCCL a daemon serves the jobs of its own node. */
static int open_for_device(const struct engines_config *config, struct engines *engines) {
        struct nccl_engine_config nccl = { .host = config->host,
                                           .uuid = config->gpu,
                                           .driver = path_or_null(config->cuda_driver),
                                           .library = path_or_null(config->nccl_library),
                                           .timeout = config->nccl_build,
                                           .exchange = config->nccl_timeout,
                                           .ending = ENDING,
                                           .ctas = config->nccl_ctas,
                                           .shares_gpu = config->nccl_shares_gpu,
                                           .log = environment_log(),
                                           .failed = config->failed,
                                           .owner = config->owner };
        int r = nccl_open(&nccl, &engines->device, engines->missing, sizeof(engines->missing));

        return r == -ENOENT || r == -ENOSYS || r == -ENODEV ? 0 : r;
}

int engines_open(const struct engines_config *config, struct engines *ret) {
        memset(ret, 0, sizeof(*ret));
        int r = open_for_host(config, ret);

        if (r == 0 && config->gpu == NULL)
                ret->device = ret->host;
        else if (r == 0 && ret->host != NULL)
                r = open_for_device(config, ret);
        if (ret->device == NULL)
                engines_close(ret);
        return r;
}

void engines_close(struct engines *engines) {
        if (engines->device != engines->host)
                nccl_close(engines->device);
        close_for_host(engines);
        engines->device = engines->host = NULL;
}
