/* SPDX-License-Identifier: Apache-2.0 */
/* The advice of proto/advice.h as one sentence, with the programs that lie beside this library. */
#include "client/lib/base/start.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/base/environ.h"
#include "proto/advice.h"

/* The folder of the library, or NULL. */
static const char *start_folder(char ret[PATH_MAX]) {
        Dl_info info;
        int n = dladdr((const void *)start_folder, &info) != 0 && info.dli_fname != NULL
                        ? snprintf(ret, PATH_MAX, "%s", info.dli_fname)
                        : 0;
        char *slash = n > 0 && n < PATH_MAX ? strrchr(ret, '/') : NULL;

        if (slash == NULL)
                return NULL;
        *slash = '\0';
        return ret;
}

void start_advice(const char *device, const char *place, char *text, size_t size) {
        char ways[ADVICE_TEXT], folder[PATH_MAX];
        struct advice advice;

        if (device == NULL)
                device = environ_get("GRADSYNC_DEVICE") ? environ_get("GRADSYNC_DEVICE") : "cpu";
        advice_look(&advice, "", start_folder(folder));
        if (!advice_start(&advice, device, place, ", or ", ways, sizeof(ways)))
                snprintf(text, size, "To have one, %s", ways);
        else if (place != NULL)
                snprintf(text, size, "Start it (%s), or name another socket", ways);
        else
                snprintf(text, size, "Start one (%s), or set GRADSYNC_SOCKET", ways);
}
