/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a text in a file. A thread of its own writes the whole text soon after a change, so that neither a
 * slow disk nor many changes delay the loop. The file is always the former one or the new one. A failure to
 * write is logged once, and the saver tries again. Loop thread only.
 */
#pragma once

#include "base/loop.h"

struct saver;

struct saver_config {
        struct loop *loop;
        const char *path;          /* the file; beside it, for a moment, PATH.new */
        char *(*text)(void *data); /* for free(); NULL: there is no memory for it now */
        void *data;
};

/* 0 or -ENOMEM. The path is copied. */
int saver_new(const struct saver_config *config, struct saver **ret);
/* The text is another one. */
void saver_touch(struct saver *saver);
/* Writes changes that are not on the disk yet first, but waits only for a moment for a disk that hangs. NULL
 * is fine. */
struct saver *saver_free(struct saver *saver);

/* The file's text, for free(), or NULL: there is none. 0 or a negative errno. */
int saver_read(const char *path, char **ret);
