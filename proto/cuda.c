/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the driver's functions. */
#include "proto/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/cleanup.h"

typedef cuda_result (*cuda_find_fn)(const char *name, void **function, int version, uint64_t flags,
                                    int *found);

#define CUDA_LEGACY_STREAM 1 /* the default stream is the one that older programs know */

/* A name without a path is also looked for in the folders where containers put drivers that their loader does
 * not know. */
static void *cuda_open_library(const char *path) {
        static const char *const folders[] = { "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                                               "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                               "/usr/lib64" };
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        char full[512];

        for (size_t i = 0; library == NULL && strchr(path, '/') == NULL && i < array_size(folders); i++) {
                snprintf(full, sizeof(full), "%s/%s", folders[i], path);
                if (access(full, F_OK) == 0)
                        library = dlopen(full, RTLD_NOW | RTLD_LOCAL);
        }
        return library;
}

static void *cuda_find(cuda_find_fn find, const char *name, int version, char *missing, size_t size) {
        void *function = NULL;
        int found = 0;
        size_t used = strlen(missing);

        if (find(name, &function, version, CUDA_LEGACY_STREAM, &found) == CUDA_OK && function != NULL)
                return function;
        snprintf(missing + used, size - used, "%s%s (CUDA %d.%d)", used > 0 ? ", " : "", name, version / 1000,
                 version % 1000 / 10);
        return NULL;
}

static int cuda_resolve(struct cuda *cuda, const char *path, char *error, size_t size) {
        char missing[256] = "";
        cuda_find_fn find;

        *(void **)&find = dlsym(cuda->library, "cuGetProcAddress_v2");
        if (find == NULL) {
                snprintf(error, size, "%s has no cuGetProcAddress_v2: the driver is older than CUDA 12",
                         path);
                return -ENOSYS;
        }
#define CUDA_RESOLVE(member, name, version, arguments)                                                       \
        *(void **)&cuda->member = cuda_find(find, #name, version, missing, sizeof(missing));
        CUDA_CALLS(CUDA_RESOLVE)
#undef CUDA_RESOLVE
        if (missing[0] == '\0')
                return 0;
        snprintf(error, size, "the driver %s lacks %s", path, missing);
        return -ENOSYS;
}

static int cuda_start(struct cuda *cuda, const char *path, char *error, size_t size) {
        char name[64];
        int r = cuda->init(0);

        if (r == CUDA_OK)
                r = cuda->driver_version(&cuda->version);
        if (r != CUDA_OK) {
                snprintf(error, size, "%s finds no GPU that it can use: %s", path,
                         cuda_error(cuda, r, name, sizeof(name)));
                return -ENODEV;
        }
        if (cuda->version >= CUDA_DRIVER_LEAST)
                return 0;
        snprintf(error, size, "the driver %s is of CUDA %d.%d; %d.%d is needed (driver 580 or newer)", path,
                 cuda->version / 1000, cuda->version % 1000 / 10, CUDA_DRIVER_LEAST / 1000,
                 CUDA_DRIVER_LEAST % 1000 / 10);
        return -ENOSYS;
}

int cuda_load(struct cuda *cuda, const char *path, char *error, size_t size) {
        if (path == NULL)
                path = CUDA_LIBRARY;
        *cuda = (struct cuda){ .library = cuda_open_library(path) };
        if (cuda->library == NULL) {
                dlerror();
                dlopen(path, RTLD_NOW | RTLD_LOCAL);
                const char *why = dlerror();

                snprintf(error, size, "there is no NVIDIA driver: %s", why != NULL ? why : path);
                return -ENOENT;
        }
        int r = cuda_resolve(cuda, path, error, size);

        return r < 0 ? r : cuda_start(cuda, path, error, size);
}

bool cuda_look(struct cuda *cuda, const char *path) {
        char ignored[512];

        *cuda = (struct cuda){ .library =
                                       dlopen(path != NULL ? path : CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD) };
        return cuda->library != NULL && cuda_resolve(cuda, CUDA_LIBRARY, ignored, sizeof(ignored)) == 0;
}

const char *cuda_error(const struct cuda *cuda, cuda_result result, char *text, size_t size) {
        const char *name = NULL;

        if (cuda->error_name != NULL && cuda->error_name(result, &name) == CUDA_OK && name != NULL)
                snprintf(text, size, "%s", name);
        else
                snprintf(text, size, "CUDA error %d", result);
        return text;
}

void cuda_uuid_text(const struct cuda_uuid *uuid, char text[CUDA_UUID_TEXT]) {
        char *at = text + sprintf(text, "GPU");

        for (unsigned i = 0; i < CUDA_UUID; i++)
                at += sprintf(at, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              uuid->bytes[i]);
}

int cuda_find_gpu(const struct cuda *cuda, const char *uuid, cuda_device *ret_device) {
        char text[CUDA_UUID_TEXT];
        struct cuda_uuid own;
        int n = 0;

        cuda->device_count(&n);
        for (int i = 0; i < n; i++) {
                if (cuda->device_get(ret_device, i) != CUDA_OK ||
                    cuda->device_uuid(&own, *ret_device) != CUDA_OK)
                        continue;
                cuda_uuid_text(&own, text);
                if (strcmp(text, uuid) == 0)
                        return i;
        }
        return -1;
}

bool cuda_is_sticky(cuda_result result) {
        switch (result) {
        case CUDA_DEINITIALIZED:
        case CUDA_ECC:
        case CUDA_NVLINK:
        case CUDA_CONTAINED:
        case CUDA_ILLEGAL_ADDRESS:
        case CUDA_LAUNCH_TIMEOUT:
        case CUDA_CONTEXT_DESTROYED:
        case CUDA_ASSERT:
        case CUDA_UNKNOWN: return true;
        default: return result >= CUDA_HARDWARE_STACK && result <= CUDA_LAUNCH_FAILED;
        }
}
