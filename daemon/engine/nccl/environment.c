/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/environment.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PREFIX "NCCL_"

extern char **environ;

/* Settings besides those of the configuration, which come first. */
static const struct {
        const char *name, *value;
} settings_own[] = {
        { "NCCL_CONF_FILE", "/dev/null" },       /* else it reads a file in the home directory */
        { "NCCL_RAS_ENABLE", "0" },              /* else a port on which every local user may ask */
        { "NCCL_LAUNCH_ORDER_IMPLICIT", "1" },   /* kernels in the order in which they are issued */
        { "CUDA_DEVICE_MAX_CONNECTIONS", "32" }, /* queues, so that streams do not wait for each other */
};

/* Moves to the next word of the settings. Returns its length, or 0 at their end. */
static size_t settings_next(const char **at) {
        *at += strspn(*at, " \t");
        return strcspn(*at, " \t");
}

static size_t name_length(const char *word, size_t length) {
        size_t n = 0;

        while (n < length &&
               (isupper((unsigned char)word[n]) || isdigit((unsigned char)word[n]) || word[n] == '_'))
                n++;
        return n;
}

bool environment_valid(const char *settings) {
        size_t length;

        for (const char *at = settings; (length = settings_next(&at)) > 0; at += length)
                if (strncmp(at, PREFIX, strlen(PREFIX)) != 0 || name_length(at, length) == strlen(PREFIX) ||
                    at[name_length(at, length)] != '=')
                        return false;
        return true;
}

/* Whether a word of the settings sets that name. */
static bool settings_have(const char *settings, const char *name, size_t name_bytes) {
        size_t length;

        for (const char *at = settings; (length = settings_next(&at)) > 0; at += length)
                if (name_length(at, length) == name_bytes && memcmp(at, name, name_bytes) == 0)
                        return true;
        return false;
}

bool environment_shares_gpu(const char *settings) {
        return settings_have(settings, "NCCL_HOSTID", 11) ||
               settings_have(settings, "NCCL_MULTI_RANK_GPU_ENABLE", 26);
}

static void names_add(char *names, size_t size, const char *name, size_t length) {
        size_t used = strlen(names);

        snprintf(names + used, size - used, "%s%.*s", used > 0 ? ", " : "", (int)length, name);
}

/* Removes the first setting that NCCL would read. False if there is none. */
static bool environment_clear_one(char *ignored, size_t size) {
        char name[128];

        for (char **at = environ; at != NULL && *at != NULL; at++) {
                size_t length = strcspn(*at, "=");

                if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0 || length >= sizeof(name))
                        continue;
                snprintf(name, sizeof(name), "%.*s", (int)length, *at);
                names_add(ignored, size, name, length);
                unsetenv(name);
                return true;
        }
        return false;
}

static void environment_set_words(const char *settings) {
        size_t length;

        for (const char *at = settings; (length = settings_next(&at)) > 0; at += length) {
                size_t n = name_length(at, length);
                char *name = strndup(at, n), *value = strndup(at + n + 1, length - n - 1);

                if (name != NULL && value != NULL)
                        setenv(name, value, 1);
                free(name);
                free(value);
        }
}

static int log_fd = -1;

int environment_log(void) {
        return log_fd;
}

/* Makes the log, which NCCL opens by name, and goes on writing to. */
static void environment_set_log(const char *settings) {
        char path[64];

        if (settings_have(settings, "NCCL_DEBUG", 10) || settings_have(settings, "NCCL_DEBUG_FILE", 15))
                return;
        if (log_fd < 0)
                log_fd = memfd_create("nccl-log", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", log_fd);
        if (log_fd < 0)
                return;
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_SUBSYS", "INIT,P2P,SHM,NET,NVLS", 0);
        setenv("NCCL_DEBUG_FILE", path, 1);
}

void environment_prepare(const char *settings, char *ignored, size_t size) {
        ignored[0] = '\0';
        while (environment_clear_one(ignored, size))
                ;
        environment_set_words(settings);
        environment_set_log(settings);
        for (size_t i = 0; i < sizeof(settings_own) / sizeof(settings_own[0]); i++)
                setenv(settings_own[i].name, settings_own[i].value, 0);
}

void environment_list_file(const char *path, char *names, size_t size) {
        FILE *file = fopen(path, "re");
        char line[1024], name[128];

        names[0] = '\0';
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
                size_t length = name_length(line, strlen(line));

                if (length == 0 || line[length] != '=' || length >= sizeof(name))
                        continue;
                snprintf(name, sizeof(name), "%.*s", (int)length, line);
                if (getenv(name) == NULL) /* the environment comes first */
                        names_add(names, size, name, length);
        }
        if (file != NULL)
                fclose(file);
}
