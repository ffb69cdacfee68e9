// SPDX-License-Identifier: Apache-2.0
/* Ranks as people read them: see ranks.h. */
#include <stdio.h>

#include "client/cli/run/ranks.h"

static const char ranks_omission[] = ", …";

char *ranks_text(const bool *of, unsigned n, char out[RANKS_TEXT]) {
        unsigned runs = 0, all = 0;
        size_t used = 0;
        char list[RANKS_TEXT - 8] = "";

        for (unsigned first = 0, last; first < n; first = last + 1) {
                last = first;
                if (!of[first])
                        continue;
                while (last + 1 < n && of[last + 1])
                        last++;
                all += last - first + 1;
                if (used + sizeof "999 to 999, " + sizeof ranks_omission >= sizeof list) {
                        snprintf(list + used, sizeof list - used, ranks_omission);
                        break;
                }
                used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", runs++ ? ", " : "", first);
                if (last > first)
                        used += (size_t)snprintf(list + used, sizeof list - used, "%s%u",
                                                 last > first + 1 ? " to " : ", ", last);
        }
        snprintf(out, RANKS_TEXT, "%s %s", all == 1 ? "rank" : "ranks", list);
        return out;
}
