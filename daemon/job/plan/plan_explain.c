/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the coordinator's questions about a plan on which the nodes have not agreed. */
#include <stdio.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan_private.h"

static bool explain_facts(const struct plan *plan, uint32_t index, struct plan_facts *ret) {
        const struct job *job = plan->job;
        const struct description *description = plan->reference;

        if (description == NULL || index > description->n_params + description->n_buckets)
                return false;
        *ret = description_facts(description, index);
        ret->prefix = description_prefix(description, index);
        if (plan->reference_local < job->n_local) {
                ret->rank = plan_member(plan, plan->reference_local)->rank;
                ret->pid = (int32_t)plan_member(plan, plan->reference_local)->pid;
        }
        return true;
}

/* The members that the plan waits for here. One that counts from a later plan on has let go of this one. */
static void explain_lacks(const struct job *job, const struct plan *plan, uint32_t ordinal, char *text,
                          size_t size) {
        size_t used = 0;

        for (uint32_t local = 0; local < job->n_local && used + 40 < size; local++) {
                const struct member *member = job->local[local];
                bool awaited =
                        plan != NULL ? part_is_awaited(&plan->part[local]) : member->next_plan <= ordinal;

                if (awaited)
                        used += (size_t)snprintf(text + used, size - used, "%srank %u (pid %d)",
                                                 used > 0 ? ", " : "", member->rank, (int)member->pid);
        }
}

void plan_explain(struct job *job, uint32_t ordinal, enum note note, uint32_t index) {
        struct plan *plan = plan_find(job, ordinal);
        struct report_note about = { 0 };

        if (note == NOTE_LACKS)
                explain_lacks(job, plan, ordinal, about.refusal.text, 200);
        else if (plan == NULL || !explain_facts(plan, index, &about.facts))
                return; /* it has been given up meanwhile, and the report says so */
        machine_explain(job, ordinal, note, &about);
}
