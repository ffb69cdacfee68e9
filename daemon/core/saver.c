/* SPDX-License-Identifier: Apache-2.0 */
#include "core/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define SOON (100 * USEC_PER_MSEC) /* changes within it are one write */
#define AGAIN USEC_PER_SEC         /* after one that has failed */
#define LEAVE 2                    /* seconds that the end waits for a write */

/* A write under way: its thread's until it is done. */
struct writing {
        char *path, *fresh, *text;
        pthread_t thread;
        atomic_bool done;
        int result;
};

struct saver {
        struct saver_config config;
        char *path, *fresh;
        struct loop_timer *timer;
        struct writing *writing; /* NULL: none */
        bool changed;            /* since the latest write began */
        int trouble;             /* that was logged; 0: the latest write has succeeded */
};

/* ---- the file ---- */

static int write_whole(int fd, const char *text) {
        size_t length = strlen(text);

        for (ssize_t n; length > 0; text += n, length -= (size_t)n) {
                n = write(fd, text, length);
                if (n < 0)
                        return -errno;
        }
        return fsync(fd) < 0 ? -errno : 0;
}

static int sync_directory(const char *path) {
        _cleanup_(freep) char *parent = strdup(path);
        _cleanup_(closep) int directory = -1;

        if (parent == NULL)
                return -ENOMEM;
        *strrchr(parent, '/') = '\0';
        directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return directory < 0 || fsync(directory) < 0 ? -errno : 0;
}

static int replace_file(const char *path, const char *fresh, const char *text) {
        _cleanup_(closep) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (fd < 0)
                return -errno;
        r = write_whole(fd, text);
        if (r == 0 && rename(fresh, path) < 0)
                r = -errno;
        if (r < 0)
                unlink(fresh);
        return r < 0 ? r : sync_directory(path);
}

int saver_read(const char *path, char **ret) {
        _cleanup_(closep) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(freep) char *text = NULL;
        struct stat info;
        ssize_t n;

        *ret = NULL;
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        if (fstat(fd, &info) < 0)
                return -errno;
        text = calloc(1, (size_t)info.st_size + 1);
        if (text == NULL)
                return -ENOMEM;
        n = read(fd, text, (size_t)info.st_size);
        if (n != info.st_size)
                return n < 0 ? -errno : -EIO;
        *ret = text;
        text = NULL;
        return 0;
}

/* ---- writing ---- */

static void writing_free(struct writing *writing) {
        free(writing->path);
        free(writing->fresh);
        free(writing->text);
        free(writing);
}

static void *writing_run(void *data) {
        struct writing *writing = data;

        writing->result = replace_file(writing->path, writing->fresh, writing->text);
        atomic_store(&writing->done, true);
        return NULL;
}

static void saver_say(struct saver *saver, int r) {
        if (r < 0 && r != saver->trouble)
                log_warning("%s cannot be written: %s; it is tried again", saver->path, strerror(-r));
        else if (r == 0 && saver->trouble < 0)
                log_info("%s is written again", saver->path);
        saver->trouble = r;
}

/* Takes over the thread's result. */
static void saver_reap(struct saver *saver) {
        int r = saver->writing->result;

        writing_free(saver->writing);
        saver->writing = NULL;
        saver_say(saver, r);
        saver->changed |= r < 0;
}

static int saver_begin(struct saver *saver) {
        struct writing *writing = calloc(1, sizeof(*writing));
        int r = -ENOMEM;

        if (writing == NULL)
                return -ENOMEM;
        writing->path = strdup(saver->path);
        writing->fresh = strdup(saver->fresh);
        writing->text = saver->config.text(saver->config.data);
        if (writing->path != NULL && writing->fresh != NULL && writing->text != NULL)
                r = thread_start(&writing->thread, "gs-saver", 0, writing_run, writing);
        if (r < 0) {
                writing_free(writing);
                return r;
        }
        saver->writing = writing;
        saver->changed = false;
        return 0;
}

static void saver_on_timer(void *data) {
        struct saver *saver = data;

        if (saver->writing != NULL && atomic_load(&saver->writing->done)) {
                pthread_join(saver->writing->thread, NULL);
                saver_reap(saver);
                if (saver->trouble < 0) {
                        loop_timer_arm(saver->timer, AGAIN);
                        return;
                }
        }
        if (saver->writing == NULL && saver->changed) {
                int r = saver_begin(saver);
                if (r < 0)
                        saver_say(saver, r);
        }
        if (saver->writing != NULL || saver->changed)
                loop_timer_arm(saver->timer, SOON);
}

void saver_touch(struct saver *saver) {
        if (saver->changed)
                return;
        saver->changed = true;
        if (saver->writing == NULL)
                loop_timer_arm(saver->timer, SOON);
}

int saver_new(const struct saver_config *config, struct saver **ret) {
        struct saver *saver = calloc(1, sizeof(*saver));
        int r;

        if (saver == NULL)
                return -ENOMEM;
        saver->config = *config;
        saver->path = strdup(config->path);
        if (asprintf(&saver->fresh, "%s.new", config->path) < 0)
                saver->fresh = NULL;
        r = saver->path != NULL && saver->fresh != NULL
                    ? loop_timer_new(config->loop, saver_on_timer, saver, &saver->timer)
                    : -ENOMEM;
        if (r < 0) {
                saver_free(saver);
                return r;
        }
        *ret = saver;
        return 0;
}

/* Waits for the thread. False: the disk hangs. The memory that the thread still uses is left to the end of
 * the process. */
static bool saver_wait(struct saver *saver) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LEAVE;
        if (saver->writing != NULL && pthread_timedjoin_np(saver->writing->thread, NULL, &until) != 0) {
                pthread_detach(saver->writing->thread);
                return false;
        }
        if (saver->writing != NULL)
                saver_reap(saver);
        return true;
}

struct saver *saver_free(struct saver *saver) {
        if (saver == NULL)
                return NULL;
        if (saver_wait(saver) && saver->changed && saver_begin(saver) == 0)
                saver_wait(saver);
        loop_timer_free(saver->timer);
        free(saver->path);
        free(saver->fresh);
        free(saver);
        return NULL;
}
