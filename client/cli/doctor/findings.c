// SPDX-License-Identifier: Apache-2.0
/* The list of findings: see findings.h. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/doctor/findings.h"

const char *const verdict_names[] = { "ok", "warn", "fail" };

void findings_add(struct findings *findings, const char *check, enum verdict verdict, char *what, char *fix) {
        struct finding *grown = realloc(findings->finding, (findings->n + 1) * sizeof *grown);
        char *name = strdup(check);

        if (grown)
                findings->finding = grown;
        if (!grown || !name || !what) {
                findings->incomplete = true;
                free(name);
                free(what);
                free(fix);
                return;
        }
        grown[findings->n++] = (struct finding){ name, verdict, what, fix };
}

void findings_deinit(struct findings *findings) {
        for (size_t i = 0; i < findings->n; i++) {
                free(findings->finding[i].check);
                free(findings->finding[i].what);
                free(findings->finding[i].fix);
        }
        free(findings->finding);
        *findings = (struct findings){ 0 };
}
