/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NCCL's functions. */
#include "proto/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define MAJOR(version) ((version) / 10000)

void nccl_version_text(int version, char text[NCCL_VERSION_TEXT]) {
        snprintf(text, NCCL_VERSION_TEXT, "%d.%d.%d", MAJOR(version), version / 100 % 100, version % 100);
}

static void *nccl_symbol(const struct nccl *nccl, const char *name, char *missing, size_t size) {
        void *function = dlsym(nccl->library, name);
        size_t used = strlen(missing);

        if (function == NULL)
                snprintf(missing + used, size - used, "%s%s", used > 0 ? ", " : "", name);
        return function;
}

static int nccl_resolve(struct nccl *nccl, char *error, size_t size) {
        char missing[256] = "";

#define NCCL_RESOLVE(member, name, arguments)                                                                \
        *(void **)&nccl->member = nccl_symbol(nccl, #name, missing, sizeof(missing));
        NCCL_CALLS(NCCL_RESOLVE)
#undef NCCL_RESOLVE
        *(void **)&nccl->result = nccl_symbol(nccl, "ncclGetErrorString", missing, sizeof(missing));
        *(void **)&nccl->last_error = dlsym(nccl->library, "ncclGetLastError");
#define NCCL_RESOLVE(member, name, since, arguments) *(void **)&nccl->member = dlsym(nccl->library, #name);
        NCCL_EXTRAS(NCCL_RESOLVE)
#undef NCCL_RESOLVE
        if (missing[0] == '\0')
                return 0;
        snprintf(error, size, "%s, which is NCCL %s, lacks %s", nccl->path, nccl->text, missing);
        return -ENOSYS;
}

/* The version is checked first: it explains why functions are missing. */
static int nccl_ask_version(struct nccl *nccl, char *error, size_t size) {
        char least[NCCL_VERSION_TEXT];

        *(void **)&nccl->get_version = dlsym(nccl->library, "ncclGetVersion");
        if (nccl->get_version == NULL || nccl->get_version(&nccl->version) != NCCL_OK) {
                snprintf(error, size, "%s does not tell the version of NCCL that it is", nccl->path);
                return -ENOSYS;
        }
        nccl_version_text(nccl->version, nccl->text);
        nccl_version_text(NCCL_LEAST, least);
        if (nccl->version < NCCL_LEAST)
                snprintf(error, size, "%s is NCCL %s; %s or newer is needed", nccl->path, nccl->text, least);
        else if (MAJOR(nccl->version) != MAJOR(NCCL_LEAST))
                snprintf(error, size, "%s is NCCL %s; one of release %d is needed", nccl->path, nccl->text,
                         MAJOR(NCCL_LEAST));
        else
                return 0;
        return -ENOSYS;
}

int nccl_load(struct nccl *nccl, const char *path, char *error, size_t size) {
        const char *name = path != NULL ? path : NCCL_LIBRARY;
        struct link_map *map = NULL;

        *nccl = (struct nccl){ .library = dlopen(name, RTLD_NOW | RTLD_LOCAL) };
        if (nccl->library == NULL) {
                const char *why = dlerror();

                snprintf(error, size, "NCCL cannot be loaded: %s", why != NULL ? why : name);
                return -ENOENT;
        }
        dlinfo(nccl->library, RTLD_DI_LINKMAP, &map);
        snprintf(nccl->path, sizeof(nccl->path), "%s",
                 map != NULL && map->l_name[0] != '\0' ? map->l_name : name);
        int r = nccl_ask_version(nccl, error, size);

        return r < 0 ? r : nccl_resolve(nccl, error, size);
}

const char *nccl_error(const struct nccl *nccl, nccl_comm comm, nccl_result result, char *text, size_t size) {
        const char *last = nccl->last_error != NULL ? nccl->last_error(comm) : NULL;
        bool more = last != NULL && last[0] != '\0';
        int used = snprintf(text, size, "%s%s%s", nccl->result(result), more ? ": " : "", more ? last : "");

        for (size_t i = 0; used > 0 && i < size && text[i] != '\0'; i++)
                if (text[i] == '\n')
                        text[i] = ' ';
        return text;
}
