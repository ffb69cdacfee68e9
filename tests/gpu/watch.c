/* SPDX-License-Identifier: Apache-2.0 */
/* See watch.h. */
#include "watch.h"

static void watch_add(struct watch *w, const bool moves[2], int64_t begin, int64_t end) {
        unsigned runner = moves[1];

        if (moves[0] == moves[1]) {
                *(moves[0] ? &w->totals.both : &w->totals.neither) += end - begin;
                return;
        }
        w->totals.alone[runner] += end - begin;
        if (w->has_runner && w->runner == runner)
                return;
        if (w->has_runner && w->totals.turns < WATCH_TURNS)
                w->turn[w->totals.turns++] = begin - w->turn_begin;
        w->has_runner = true;
        w->runner = runner;
        w->turn_begin = begin;
}

bool watch_note(struct watch *w, const bool moves[2], int64_t begin, int64_t end) {
        bool over = false;

        if (w->moved[0] != 0 && w->moved[1] != 0 && end - begin < WATCH_BLIND_NS)
                watch_add(w, moves, begin, end);
        for (unsigned i = 0; i < 2; i++)
                if (moves[i]) {
                        w->moved[i] = end;
                        w->at[i] = w->totals;
                }
        for (unsigned i = 0; i < 2; i++)
                over |= w->moved[i] != 0 && end - w->moved[i] > WATCH_QUIET_NS;
        return over;
}

const struct watch_totals *watch_end(const struct watch *w) {
        const struct watch_totals *t = &w->at[w->moved[0] > w->moved[1]];
        bool together = w->moved[0] != 0 && w->moved[1] != 0;

        return together && t->both + t->alone[0] + t->alone[1] + t->neither > 0 ? t : NULL;
}
