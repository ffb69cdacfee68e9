// SPDX-License-Identifier: Apache-2.0
/* The check for leftovers of earlier runs. */
#include <string.h>

#include "client/cli/ask/private.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"

void doctor_leftovers(struct findings *findings) {
        struct private_list list;
        size_t in_use = 0, left = 0;
        int r = private_scan(&list);

        if (r < 0)
                return findings_add(findings, "leftovers", VERDICT_WARN,
                                    format_new("%s cannot be read: %s", private_parent(), strerror(-r)),
                                    format_new("let TMPDIR name a directory of your own"));
        for (size_t i = 0; i < list.n; i++) {
                const struct private_place *place = &list.place[i];
                if (place->owned) {
                        in_use++;
                        continue;
                }
                left++;
                if (place->daemon)
                        findings_add(findings, "leftovers", VERDICT_WARN,
                                     format_new("%s: a private daemon (pid %d) outlived its gradsyncctl run",
                                                place->directory, (int)place->daemon),
                                     format_new("kill %d; rm -r %s", (int)place->daemon, place->directory));
                else
                        findings_add(findings, "leftovers", VERDICT_WARN,
                                     format_new("%s: left by a private daemon that is gone",
                                                place->directory),
                                     format_new("rm -r %s", place->directory));
        }
        if (!left)
                findings_add(findings, "leftovers", VERDICT_OK,
                             in_use ? format_new("none; %zu private daemon%s in use", in_use,
                                                 format_plural(in_use))
                                    : format_new("none"),
                             NULL);
        private_list_deinit(&list);
}
