// SPDX-License-Identifier: Apache-2.0
/* Places where daemons may listen: see sockets.h. */
#include <errno.h>
#include <glob.h>
#include <string.h>

#include "client/cli/ask/private.h"
#include "client/cli/ask/sockets.h"
#include "client/cli/base/format.h"

const char *sockets_device(const struct cli *cli) {
        const char *device = cli->device ? cli->device : environ_get("GRADSYNC_DEVICE");

        return device ? device : "cpu";
}

const char *sockets_source_name(enum sockets_source source) {
        static const char *const names[] = { "--socket", "--device", "GRADSYNC_SOCKET", "GRADSYNC_DEVICE",
                                             "" };

        return names[source];
}

/* Takes ownership of `path`; a path that is listed already is dropped. */
static int sockets_add(struct sockets *sockets, char *path) {
        struct attempt *grown = path ? realloc(sockets->at, (sockets->n + 1) * sizeof *grown) : NULL;

        if (!grown) {
                free(path);
                return -ENOMEM;
        }
        sockets->at = grown;
        for (size_t i = 0; i < sockets->n; i++)
                if (strcmp(sockets->at[i].path, path) == 0) {
                        free(path);
                        return 0;
                }
        sockets->at[sockets->n++] = (struct attempt){ .path = path };
        return 0;
}

static int sockets_add_device(struct sockets *sockets, const char *device) {
        const char *runtime = environ_get("XDG_RUNTIME_DIR");
        int r = 0;

        if (runtime)
                r = sockets_add(sockets, format_new("%s/gradsync/%s/socket", runtime, device));
        if (r == 0)
                r = sockets_add(sockets, format_new("/run/gradsync/%s/socket", device));
        return r;
}

static int sockets_add_matching(struct sockets *sockets, const char *directory) {
        _cleanup_(freep) char *pattern = format_new("%s/gradsync/*/socket", directory);
        glob_t found;
        int r = 0;

        if (!pattern)
                return -ENOMEM;
        if (glob(pattern, 0, NULL, &found) == 0) {
                for (size_t i = 0; i < found.gl_pathc && r == 0; i++)
                        r = sockets_add(sockets, strdup(found.gl_pathv[i]));
                globfree(&found);
        }
        return r;
}

static int sockets_add_private(struct sockets *sockets) {
        struct private_list list;
        int r = 0;

        if (private_scan(&list) < 0)
                return 0; /* it cannot be read: nothing is to be found there */
        for (size_t i = 0; i < list.n && r == 0; i++)
                if (access(list.place[i].socket, F_OK) == 0)
                        r = sockets_add(sockets, strdup(list.place[i].socket));
        private_list_deinit(&list);
        return r;
}

int sockets_find_one(const struct cli *cli, struct sockets *ret) {
        const char *socket = environ_get("GRADSYNC_SOCKET");
        int r;

        *ret = (struct sockets){ .one = true, .source = SOCKETS_FROM_ANYWHERE };
        if (cli->socket) {
                ret->source = SOCKETS_FROM_OPTION;
                r = sockets_add(ret, strdup(cli->socket));
        } else if (cli->device) {
                ret->source = SOCKETS_FROM_DEVICE_OPTION;
                r = sockets_add_device(ret, cli->device);
        } else if (socket) {
                ret->source = SOCKETS_FROM_VARIABLE;
                r = sockets_add(ret, strdup(socket));
        } else {
                if (environ_get("GRADSYNC_DEVICE"))
                        ret->source = SOCKETS_FROM_DEVICE_VARIABLE;
                r = sockets_add_device(ret, sockets_device(cli));
        }
        if (r < 0)
                sockets_deinit(ret);
        return r;
}

int sockets_find_all(const struct cli *cli, struct sockets *ret) {
        const char *runtime = environ_get("XDG_RUNTIME_DIR");
        int r = sockets_find_one(cli, ret);

        if (r < 0 || ret->source != SOCKETS_FROM_ANYWHERE)
                return r;
        ret->one = false;
        if (runtime)
                r = sockets_add_matching(ret, runtime);
        if (r == 0)
                r = sockets_add_matching(ret, "/run");
        if (r == 0)
                r = sockets_add_private(ret);
        if (r < 0)
                sockets_deinit(ret);
        return r;
}

void sockets_deinit(struct sockets *sockets) {
        for (size_t i = 0; i < sockets->n; i++)
                free(sockets->at[i].path);
        free(sockets->at);
        *sockets = (struct sockets){ 0 };
}
