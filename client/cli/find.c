// SPDX-License-Identifier: Apache-2.0
/* Where daemons may be: see find.h. */
#include <errno.h>
#include <glob.h>
#include <string.h>

#include "find.h"
#include "private.h"

static const char *variable(const char *name) {
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

const char *find_device(const struct cli *cli) {
        const char *device = cli->device ? cli->device : variable("GRADSYNC_DEVICE");

        return device ? device : "cpu";
}

const char *find_source_name(enum find_source source) {
        static const char *const names[] = { "--socket", "--device", "GRADSYNC_SOCKET", "GRADSYNC_DEVICE",
                                             "" };

        return names[source];
}

/* Takes ownership of `path`; a path that is listed already is dropped. */
static int add(struct places *places, char *path) {
        char **grown = path ? realloc(places->path, (places->n + 1) * sizeof *grown) : NULL;

        if (!grown) {
                free(path);
                return -ENOMEM;
        }
        places->path = grown;
        for (size_t i = 0; i < places->n; i++)
                if (strcmp(places->path[i], path) == 0) {
                        free(path);
                        return 0;
                }
        places->path[places->n++] = path;
        return 0;
}

static int add_device(struct places *places, const char *device) {
        const char *runtime = variable("XDG_RUNTIME_DIR");
        char *path = NULL;
        int r = 0;

        if (runtime)
                r = add(places, asprintf(&path, "%s/gradsync/%s/socket", runtime, device) < 0 ? NULL : path);
        if (r == 0)
                r = add(places, asprintf(&path, "/run/gradsync/%s/socket", device) < 0 ? NULL : path);
        return r;
}

static int add_matching(struct places *places, const char *directory) {
        _cleanup_(freep) char *pattern = NULL;
        glob_t found;
        int r = 0;

        if (asprintf(&pattern, "%s/gradsync/*/socket", directory) < 0)
                return -ENOMEM;
        if (glob(pattern, 0, NULL, &found) == 0) {
                for (size_t i = 0; i < found.gl_pathc && r == 0; i++)
                        r = add(places, strdup(found.gl_pathv[i]));
                globfree(&found);
        }
        return r;
}

static int add_private(struct places *places) {
        struct private_list list;
        int r = 0;

        if (private_scan(&list) < 0)
                return 0; /* unreadable: nothing to be found there */
        for (size_t i = 0; i < list.n && r == 0; i++)
                if (access(list.place[i].socket, F_OK) == 0)
                        r = add(places, strdup(list.place[i].socket));
        private_list_deinit(&list);
        return r;
}

int find_one(const struct cli *cli, struct places *ret) {
        const char *socket = variable("GRADSYNC_SOCKET");
        int r;

        *ret = (struct places){ .one = true, .source = FIND_ANY };
        if (cli->socket) {
                ret->source = FIND_SOCKET_OPTION;
                r = add(ret, strdup(cli->socket));
        } else if (cli->device) {
                ret->source = FIND_DEVICE_OPTION;
                r = add_device(ret, cli->device);
        } else if (socket) {
                ret->source = FIND_SOCKET_VARIABLE;
                r = add(ret, strdup(socket));
        } else {
                if (variable("GRADSYNC_DEVICE"))
                        ret->source = FIND_DEVICE_VARIABLE;
                r = add_device(ret, find_device(cli));
        }
        if (r < 0)
                places_deinit(ret);
        return r;
}

int find_all(const struct cli *cli, struct places *ret) {
        const char *runtime = variable("XDG_RUNTIME_DIR");
        int r = find_one(cli, ret);

        if (r < 0 || ret->source != FIND_ANY)
                return r;
        ret->one = false;
        if (runtime)
                r = add_matching(ret, runtime);
        if (r == 0)
                r = add_matching(ret, "/run");
        if (r == 0)
                r = add_private(ret);
        if (r < 0)
                places_deinit(ret);
        return r;
}

void places_deinit(struct places *places) {
        for (size_t i = 0; i < places->n; i++)
                free(places->path[i]);
        free(places->path);
        *places = (struct places){ 0 };
}
