/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the NCCL libraries of this machine, also those that PyTorch brings. Files are looked at; no
 * interpreter is started.
 */
#pragma once

enum {
        LIBRARY_PATH = 512,
        LIBRARIES = 16, /* at most */
};

struct libraries {
        char path[LIBRARIES][LIBRARY_PATH];
        unsigned n;
};

void library_add(struct libraries *found, const char *path);

/* The loader's own, then those below the packages of every python3 on the PATH and of the system's. */
void library_nccl(struct libraries *found);
