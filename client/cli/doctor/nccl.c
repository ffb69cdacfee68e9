// SPDX-License-Identifier: Apache-2.0
/* Whether the daemon of a GPU can exchange with others, and if not, which NCCL of this host it could use:
 * that of a PyTorch is seldom where the loader looks. */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"
#include "proto/nccl.h"

#define BELOW "nvidia/nccl/lib/libnccl.so.2" /* of a folder of Python packages */

/* Folders of Python installations, and what is below them up to their packages. */
static const struct {
        const char *variable; /* NULL: the path is whole */
        const char *path;
} pythons[] = {
        { "VIRTUAL_ENV", "/lib/python3*/site-packages/" },
        { "CONDA_PREFIX", "/lib/python3*/site-packages/" },
        { "HOME", "/.local/lib/python3*/site-packages/" },
        { NULL, "/usr/local/lib/python3*/dist-packages/" },
        { NULL, "/usr/local/lib/python3*/site-packages/" },
        { NULL, "/usr/lib/python3*/site-packages/" },
        { NULL, "/opt/*/lib/python3*/site-packages/" },
};

/* Loads the libraries that match, until one is good enough. */
static bool nccl_look_in(const char *pattern, struct nccl *ret) {
        char error[512];
        bool found = false;
        glob_t paths;

        if (glob(pattern, 0, NULL, &paths) != 0)
                return false;
        for (size_t i = 0; i < paths.gl_pathc && !found; i++)
                found = nccl_load(ret, paths.gl_pathv[i], error, sizeof(error)) == 0;
        globfree(&paths);
        return found;
}

static bool nccl_look_for(struct nccl *ret) {
        char pattern[4096];

        for (size_t i = 0; i < array_size(pythons); i++) {
                const char *folder = pythons[i].variable ? environ_get(pythons[i].variable) : "";

                if (!folder)
                        continue;
                snprintf(pattern, sizeof(pattern), "%s%s%s", folder, pythons[i].path, BELOW);
                if (nccl_look_in(pattern, ret))
                        return true;
        }
        return false;
}

void doctor_nccl(const struct checkup *checkup, struct findings *findings) {
        const Wire__StatusDaemon *daemon = checkup->snapshot.daemon;
        const Wire__StatusEngine *engine = daemon ? daemon->engine : NULL;
        struct nccl found;

        if (!engine || !daemon->gpu)
                return;
        if (!engine->missing) {
                findings_add(findings, "nccl", VERDICT_OK,
                             format_new("the daemon exchanges with others by NCCL %s, %s",
                                        engine->version ? engine->version : "",
                                        engine->library ? engine->library : ""),
                             NULL);
                return;
        }
        findings_add(
                findings, "nccl", VERDICT_FAIL,
                format_new("the daemon exchanges nothing with others: %s", engine->missing),
                nccl_look_for(&found)
                        ? format_new("set nccl_library = %s (NCCL %s) in %s, and restart it", found.path,
                                     found.text, advice_config(&checkup->advice))
                        : format_new("install NCCL 2.18 or newer, or set nccl_library in %s to that of a "
                                     "PyTorch: site-packages/" BELOW,
                                     advice_config(&checkup->advice)));
}
