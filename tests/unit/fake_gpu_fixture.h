/* SPDX-License-Identifier: Apache-2.0 */
/* A machine with fake GPUs, whose rules are checked when the tests have ended. */
#pragma once

#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/cuda.h"

static struct cuda driver; /* the tests' own view of the GPUs, in the same process */
static char folder[64], error[512];

static inline int gpu_setup(const char *devices) {
        snprintf(folder, sizeof(folder), "/tmp/fake-gpu.XXXXXX");
        if (mkdtemp(folder) == NULL)
                return -1;
        setenv("FAKE_GPU", folder, 1);
        setenv("FAKE_GPU_KERNELS", FAKE_GPU_KERNELS_LIBRARY, 1);
        setenv("FAKE_GPU_DEVICES", devices, 1);
        if (cuda_load(&driver, FAKE_GPU_LIBRARY, error, sizeof(error)) == 0)
                return 0;
        fprintf(stderr, "%s\n", error);
        return -1;
}

/* The path of a file of the folder, until the next call. */
static inline const char *gpu_file(const char *name) {
        static char path[128];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        return path;
}

/* Makes that file of the folder, which is an order to the fakes, or removes it. */
static inline void gpu_order(const char *name, bool on) {
        const char *path = gpu_file(name);

        if (on)
                assert_int_equal(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
        else
                assert_int_equal(unlink(path), 0);
}

/* Returns whether no rule was broken and nothing is left. It is no teardown, because a failing teardown would
 * go unnoticed. */
static inline bool gpu_check(void) {
        char command[512];
        int status;

        snprintf(command, sizeof(command), "%s check > /dev/null", FAKE_GPU_CONTEXT);
        for (unsigned i = 0; (status = system(command)) != 0 && i < 3000; i++)
                usleep(10000);
        snprintf(command, sizeof(command),
                 "cat %s/log >&2 2> /dev/null; test ! -s %s/log; r=$?; rm -r %s; exit $r", folder, folder,
                 folder);
        if (system(command) == 0 && status == 0)
                return true;
        fprintf(stderr, "a rule of the GPU was broken, or something is left on it\n");
        return false;
}
