/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which libnccl and which PyTorch are on this machine, by path and version.
 */
#include "facts.h"
#include "library.h"
#include "nccl.h"

#include <stdio.h>
#include <string.h>

/* The version in a torch/version.py: its line is __version__ = '2.11.0+cu130'. */
static void versions_read(const char *path, char *version, size_t size) {
        char line[256];
        FILE *file = fopen(path, "re");

        snprintf(version, size, "unknown");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
                char *begin = strncmp(line, "__version__", 11) == 0 ? strpbrk(line, "'\"") : NULL;
                char *end = begin != NULL ? strchr(begin + 1, *begin) : NULL;

                if (end == NULL)
                        continue;
                snprintf(version, size, "%.*s", (int)(end - begin - 1), begin + 1);
                break;
        }
        if (file != NULL)
                fclose(file);
}

static void versions_append(char *list, size_t size, const char *item) {
        size_t used = strlen(list);

        snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "", item);
}

void fact_torch(struct actor *actor) {
        static struct libraries found;
        char versions[BOARD_ANSWER] = "", version[64];

        library_in_python(&found, actor->options->root, "torch/version.py");
        for (unsigned i = 0; i < found.n; i++) {
                versions_read(found.path[i], version, sizeof version);
                versions_append(versions, sizeof versions, version);
                actor_note(actor, "%s %s", version, found.path[i]);
        }
        if (found.n == 0)
                actor_note(actor, "no torch below the packages of any python3");
        actor_answer(actor, "%s", found.n > 0 ? versions : "none");
}

void fact_nccl_versions(struct actor *actor) {
        static struct libraries found;
        char versions[BOARD_ANSWER] = "", version[64];

        library_nccl(&found, actor->options);
        for (unsigned i = 0; i < found.n; i++) {
                struct nccl nccl;
                const char *problem;

                actor_doing(actor, "loading libnccl");
                problem = nccl_load(&nccl, found.path[i]);
                actor_doing(actor, NULL);
                if (problem != NULL) {
                        actor_note(actor, "%s", problem);
                        continue;
                }
                nccl_version_text(nccl.version, version, sizeof version);
                versions_append(versions, sizeof versions, version);
                actor_note(actor, "%s %s", version, nccl.path);
        }
        actor_answer(actor, "%s", versions[0] ? versions : "none");
}
