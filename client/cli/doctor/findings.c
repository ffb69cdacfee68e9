// SPDX-License-Identifier: Apache-2.0
/* The list of findings: see findings.h. */
#include <stdlib.h>

#include "client/cli/doctor/findings.h"

void findings_add(struct findings *findings, const char *check, enum verdict verdict, char *what, char *fix) {
        struct finding *grown = what ? realloc(findings->finding, (findings->n + 1) * sizeof *grown) : NULL;

        if (!grown) {
                findings->incomplete = true;
                free(what);
                free(fix);
                return;
        }
        findings->finding = grown;
        grown[findings->n++] = (struct finding){ check, verdict, what, fix };
}

void findings_deinit(struct findings *findings) {
        for (size_t i = 0; i < findings->n; i++) {
                free(findings->finding[i].what);
                free(findings->finding[i].fix);
        }
        free(findings->finding);
        *findings = (struct findings){ 0 };
}
