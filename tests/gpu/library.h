/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the libraries of this machine that gradsync works with: NCCL, and PyTorch, which brings an NCCL of
 * its own. Files are looked at; no interpreter is started.
 */
#pragma once

#include "options.h"

#include <stddef.h>

enum {
        LIBRARY_PATH = 512,
        LIBRARIES = 16, /* of a kind, at most */
};

struct libraries {
        char path[LIBRARIES][LIBRARY_PATH];
        unsigned n;
};

/* Files below the site-packages of every python3 on the PATH and of the system's: `inside` is a path there,
 * such as "torch/version.py". */
void library_in_python(struct libraries *found, const char *root, const char *inside);

/* The libraries that the options name, then the loader's libnccl.so.2, then those of Python packages. */
void library_nccl(struct libraries *found, const struct options *options);
