/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on which nodes do not agree. Digests show that two nodes have a plan differently. The coordinator
 * finds the first entry that differs by halves: it asks both nodes for the digest of the entries before one
 * entry, and at last for the entry itself. If a member waits for a plan too long, the coordinator asks the
 * nodes that lack it. All nodes hear the outcome, also those that bring the plan later in the generation.
 */
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/coordinator_private.h"

static void say_rejected(struct coordinator *c, uint32_t node, uint32_t ordinal,
                         const struct refusal *refusal) {
        struct order order;

        coordinator_address(c, node, ORDER_REJECT, &order);
        order.generation = c->current;
        order.ordinal = ordinal;
        order.refusal = *refusal;
        effects_order(&c->out, &order);
}

static void agree_reject(struct coordinator *c, uint32_t ordinal, const struct refusal *refusal) {
        struct agreement *agreement = c->agreement;

        agreement->dispute.kind = DISPUTE_NONE;
        agreement->rejection[agreement->n_rejected++ % LIMIT_REJECTIONS] =
                (struct rejection){ .held = true, .ordinal = ordinal, .refusal = *refusal };
        for (uint32_t node = 0; node < c->top; node++)
                if (coordinator_survives(c, node) && c->node[node].known)
                        say_rejected(c, node, ordinal, refusal);
}

static void dispute_ask(struct coordinator *c, uint32_t node, enum note note) {
        const struct dispute *dispute = &c->agreement->dispute;
        struct order order;

        coordinator_address(c, node, ORDER_EXPLAIN, &order);
        order.generation = c->current;
        order.note = note;
        order.ordinal = dispute->ordinal;
        order.index = dispute->index;
        effects_order(&c->out, &order);
}

/* Returns whether the latest question or statement has been without an answer for so long that it may be
 * lost. */
static bool dispute_is_lost(struct coordinator *c, uint64_t now) {
        struct dispute *dispute = &c->agreement->dispute;

        if (now < dispute->asked + c->config.times.heartbeat)
                return false;
        dispute->asked = now;
        return true;
}

/* ---- a difference ---- */

static void ask_both(struct coordinator *c, uint64_t now, uint32_t index) {
        struct dispute *dispute = &c->agreement->dispute;

        dispute->asked = now;
        dispute->index = index;
        for (unsigned i = 0; i < 2; i++) {
                dispute->has[i] = false;
                dispute_ask(c, dispute->node[i], NOTE_FACTS);
        }
}

static uint32_t fewer(uint32_t a, uint32_t b) {
        return a < b ? a : b;
}

/* Entries that both have; buckets are compared only where the parameters are the same. */
static uint32_t common_entries(const struct plan_facts *a, const struct plan_facts *b) {
        if (a->n_params != b->n_params)
                return fewer(a->n_params, b->n_params);
        return a->n_params + fewer(a->n_buckets, b->n_buckets);
}

static void difference_found(struct coordinator *c, uint64_t now) {
        struct dispute *dispute = &c->agreement->dispute;
        const struct plan_facts *a = &dispute->facts[0], *b = &dispute->facts[1];
        const struct track_owner *owner = tracks_find(c, dispute->ordinal);
        char name_a[48], name_b[48], text[800];

        snprintf(name_a, sizeof(name_a), "rank %u (pid %d)", a->rank, (int)a->pid);
        snprintf(name_b, sizeof(name_b), "rank %u (pid %d)", b->rank, (int)b->pid);
        const char *parameter = facts_differ(a, name_a, b, name_b, text, sizeof(text));
        refuse_for(&dispute->refusal, WIRE__CODE__PLAN_MISMATCH, b->rank, b->pid, "plan %u of job '%s': %s",
                   dispute->ordinal, c->config.name, text);
        refuse_parameter(&dispute->refusal, parameter);
        if (owner == NULL || !owner->begun) {
                agree_reject(c, dispute->ordinal, &dispute->refusal);
                return;
        }
        dispute->kind = DISPUTE_TOLD;
        dispute->asked = now;
        say_rejected(c, dispute->node[1], dispute->ordinal, &dispute->refusal);
}

/* The entries before `low` are the same, and those before any entry after `high` are not. */
static void difference_narrow(struct coordinator *c, uint64_t now) {
        struct dispute *dispute = &c->agreement->dispute;
        const struct plan_facts *a = &dispute->facts[0], *b = &dispute->facts[1];

        if (dispute->high == UINT32_MAX) {
                dispute->high = common_entries(a, b);
        } else if (dispute->low == dispute->high && dispute->index == dispute->low) {
                difference_found(c, now);
                return;
        } else if (a->prefix == b->prefix) {
                dispute->low = dispute->index;
        } else {
                dispute->high = dispute->index - 1;
        }
        ask_both(c, now, dispute->low + (dispute->high - dispute->low + 1) / 2);
}

static bool difference_lasts(const struct coordinator *c) {
        const struct dispute *dispute = &c->agreement->dispute;

        for (unsigned i = 0; i < 2; i++)
                if (!coordinator_survives(c, dispute->node[i]) ||
                    tracks_said_of(c, dispute->node[i], dispute->ordinal) == NULL)
                        return false;
        return true;
}

static void difference_take(struct coordinator *c, uint64_t now, const struct report *report) {
        struct dispute *dispute = &c->agreement->dispute;
        unsigned which = dispute->node[1] == report->from;

        if (!difference_lasts(c)) {
                dispute->kind = DISPUTE_NONE;
                return;
        }
        if (dispute->node[which] != report->from || dispute->has[which])
                return;
        if (report->note != NOTE_FACTS || report->ordinal != dispute->ordinal ||
            report->about.facts.index != dispute->index) {
                if (dispute_is_lost(c, now))
                        dispute_ask(c, report->from, NOTE_FACTS);
                return;
        }
        dispute->has[which] = true;
        dispute->facts[which] = report->about.facts;
        if (dispute->has[0] && dispute->has[1])
                difference_narrow(c, now);
}

static void difference_begin(struct coordinator *c, uint64_t now) {
        struct dispute *dispute = &c->agreement->dispute;
        uint32_t ordinal, nodes[2];

        if (!tracks_find_difference(c, &ordinal, nodes))
                return;
        *dispute = (struct dispute){ .kind = DISPUTE_DIFFERS,
                                     .ordinal = ordinal,
                                     .node = { nodes[0], nodes[1] },
                                     .high = UINT32_MAX };
        ask_both(c, now, 0);
}

/* ---- a member that waits no longer ---- */

/* The next node with members that lacks the plan; LIMIT_NODES: there is no other. */
static uint32_t late_find(const struct coordinator *c, uint32_t from) {
        const struct dispute *dispute = &c->agreement->dispute;
        struct nodeset full = NODESET_SCRATCH;

        member_add_nodes(c, full);
        for (uint32_t node = from; node < c->config.room.nodes; node++)
                if (coordinator_survives(c, node) && nodeset_has(full, node) &&
                    tracks_said_of(c, node, dispute->ordinal) == NULL)
                        return node;
        return LIMIT_NODES;
}

static void late_end(struct coordinator *c) {
        const struct dispute *dispute = &c->agreement->dispute;
        struct refusal refusal;
        bool known = dispute->missing[0] != '\0';

        refuse(&refusal, WIRE__CODE__TIMEOUT, "plan %u of job '%s' was not agreed within %.1f s: %s%s",
               dispute->ordinal, c->config.name, (double)dispute->waited / 1e6,
               known ? dispute->missing : "not all nodes have got ready their memory for it",
               known ? " did not bring it" : "");
        agree_reject(c, dispute->ordinal, &refusal);
}

static void late_ask(struct coordinator *c, uint64_t now, uint32_t from) {
        struct dispute *dispute = &c->agreement->dispute;

        dispute->asked = now;
        dispute->node[0] = late_find(c, from);
        if (dispute->node[0] == LIMIT_NODES)
                late_end(c);
        else
                dispute_ask(c, dispute->node[0], NOTE_LACKS);
}

static void late_begin(struct coordinator *c, uint64_t now, const struct report *report) {
        c->agreement->dispute = (struct dispute){ .kind = DISPUTE_LATE,
                                                  .ordinal = report->ordinal,
                                                  .waited = report->about.waited };
        late_ask(c, now, 0);
}

static void late_note(struct dispute *dispute, const char *members) {
        size_t used = strlen(dispute->missing);

        if (members[0] != '\0' && used + strlen(members) + 8 < sizeof(dispute->missing))
                snprintf(dispute->missing + used, sizeof(dispute->missing) - used, "%s%s",
                         used > 0 ? ", " : "", members);
        else if (members[0] != '\0' && (used < 3 || strcmp(dispute->missing + used - 3, "...") != 0))
                snprintf(dispute->missing + used, sizeof(dispute->missing) - used, ", ...");
}

static void late_take(struct coordinator *c, uint64_t now, const struct report *report) {
        struct dispute *dispute = &c->agreement->dispute;
        const struct track_owner *owner = tracks_find(c, dispute->ordinal);
        uint32_t asked = dispute->node[0];
        bool answers = report->note == NOTE_LACKS && report->ordinal == dispute->ordinal;

        if (owner != NULL && owner->open) {
                dispute->kind = DISPUTE_NONE; /* it has come after all */
                return;
        }
        if (late_find(c, asked) != asked) {
                late_ask(c, now, asked);
        } else if (report->from == asked && answers) {
                late_note(dispute, report->about.refusal.text);
                late_ask(c, now, asked + 1);
        } else if (report->from == asked && dispute_is_lost(c, now)) {
                dispute_ask(c, asked, NOTE_LACKS);
        }
}

/* ---- what nodes say ---- */

/* It has a plan, or wants one, of which the others have heard that no node has it. */
static void agree_repeat(struct coordinator *c, const struct report *report) {
        struct rejection *rejection = NULL;

        if (report->note == NOTE_LATE || report->note == NOTE_FAILED)
                rejection = coordinator_rejection(c, report->ordinal);
        for (uint32_t i = 0; i < report->n_plans && rejection == NULL; i++)
                rejection = coordinator_rejection(c, report->plan[i].ordinal);
        if (rejection != NULL)
                say_rejected(c, report->from, rejection->ordinal, &rejection->refusal);
}

static void told_take(struct coordinator *c, uint64_t now, const struct report *report) {
        struct dispute *dispute = &c->agreement->dispute;

        if (!difference_lasts(c))
                dispute->kind = DISPUTE_NONE;
        else if (report->from == dispute->node[1] && dispute_is_lost(c, now))
                say_rejected(c, report->from, dispute->ordinal, &dispute->refusal);
}

/* A note on a plan with which the other nodes go on concerns its node alone. */
static void agree_hear(struct coordinator *c, uint64_t now, const struct report *report) {
        const struct track_owner *owner = tracks_find(c, report->ordinal);

        if (coordinator_rejection(c, report->ordinal) != NULL || (owner != NULL && owner->begun))
                return;
        if (report->note == NOTE_FAILED)
                agree_reject(c, report->ordinal, &report->about.refusal);
        else if (report->note == NOTE_LATE && c->agreement->dispute.kind == DISPUTE_NONE)
                late_begin(c, now, report);
}

void agree_take(struct coordinator *c, uint64_t now, const struct report *report) {
        if (c->agreement == NULL || c->current.number == 0 || !coordinator_survives(c, report->from) ||
            !generation_equal(report->generation, c->current))
                return;
        agree_repeat(c, report);
        switch (c->agreement->dispute.kind) {
        case DISPUTE_DIFFERS: difference_take(c, now, report); break;
        case DISPUTE_LATE: late_take(c, now, report); break;
        case DISPUTE_TOLD: told_take(c, now, report); break;
        case DISPUTE_NONE: break;
        }
        agree_hear(c, now, report);
        if (c->agreement->dispute.kind == DISPUTE_NONE)
                difference_begin(c, now);
}

void agree_begin(struct coordinator *c) {
        if (c->agreement != NULL)
                memset(c->agreement, 0, sizeof(*c->agreement));
}
