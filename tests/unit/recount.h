/* SPDX-License-Identifier: Apache-2.0 */
/* Counts anew, from all reports, the tally that a coordinator keeps up to date as reports come. */
#pragma once

#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

static inline struct coordinator_tally recount(const struct coordinator *c) {
        struct coordinator_tally tally = { 0 };

        for (uint32_t node = 0; node < c->config.room.nodes; node++) {
                const struct reporter *reporter = &c->node[node];
                bool failing = !nodeset_empty(coordinator_links_of(c, node));
                bool answers = reporter->term == c->term && reporter->round == c->round &&
                               reporter->answer >= ANSWER_REPORT &&
                               (reporter->answer != ANSWER_ACK ||
                                generation_equal(reporter->generation, c->current));

                tally.lost += nodeset_has(c->lost, node);
                if (!coordinator_survives(c, node))
                        continue;
                tally.survivors++;
                tally.failing += failing;
                tally.astray += !generation_equal(reporter->comm, c->comm);
                if (answers && reporter->answer - ANSWER_REPORT < N_ANSWERS)
                        tally.answered[reporter->answer - ANSWER_REPORT]++;
                tally.cut_off += answers && failing;
        }
        return tally;
}

static inline bool counts_agree(const struct coordinator *c) {
        const struct coordinator_tally tally = recount(c);

        return memcmp(&tally, &c->tally, sizeof(tally)) == 0;
}
