/* SPDX-License-Identifier: Apache-2.0 */
/* The table of devices. A row is a name; `cpu` may have a label after it, so that a host can have several
 * daemons. */
#include "backend/registry.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define LABEL_MAX 32
#define CARD_MAX 40 /* a UUID */
#define LABEL_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

static const struct registry_row {
        const char *device;
        const char *forms;             /* forms of the name, as users are shown them */
        const struct backend_ops *ops; /* NULL if the device has no backend */
        size_t label;                  /* most characters of a label; 0: the device has none */
        bool bare;                     /* the name may come without a label */
} registry_rows[] = {
        { "cpu", "cpu, or cpu:LABEL with up to 32 letters, digits, dots, dashes or underscores,",
          &backend_host, LABEL_MAX, .bare = true },
        { "cuda", "or cuda:N or cuda:UUID, for a GPU,", &backend_cuda, CARD_MAX, .bare = false },
        { "none", "or none, for a daemon that coordinates only", NULL, 0, .bare = true },
};

/* Whether the row names the device; `rest` is the text after the row's name. */
static bool registry_row_names(const struct registry_row *row, const char *rest) {
        size_t length = strlen(rest);

        if (length == 0)
                return row->bare;
        return rest[0] == ':' && length >= 2 && length <= row->label + 1 &&
               strspn(rest + 1, LABEL_CHARACTERS) == length - 1;
}

static const struct registry_row *registry_row_of(const char *device) {
        for (size_t i = 0; i < array_size(registry_rows); i++) {
                const struct registry_row *row = &registry_rows[i];
                size_t length = strlen(row->device);

                if (strncmp(device, row->device, length) == 0 && registry_row_names(row, device + length))
                        return row;
        }
        return NULL;
}

int registry_find(const char *device, const struct backend_ops **ret, char *error, size_t size) {
        const struct registry_row *row = registry_row_of(device);

        if (row != NULL) {
                *ret = row->ops;
                return 0;
        }
        int used = snprintf(error, size, "'%.128s' is not a device:", device);
        for (size_t i = 0; i < array_size(registry_rows) && (size_t)used < size; i++)
                used += snprintf(error + used, size - (size_t)used, " %s", registry_rows[i].forms);
        return -EINVAL;
}
