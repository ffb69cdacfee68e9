/* SPDX-License-Identifier: Apache-2.0 */
/* Texts about machines: their actions, their messages, and their states. */
#include "text.h"

#include <stdio.h>
#include <string.h>

#include "machines.h"
#include "proto/names.h"

const char *const text_phases[] = { "OUT",     "BUILDING", "RUNNING", "FROZEN",  "FILLING", "ABORTING",
                                    "ABORTED", "SETTLING", "SETTLED", "LEAVING", "ENDED" };
static const char *const stages[] = { "HEARING",  "FORMING", "ENTERING", "RUNNING", "HOLDING", "STOPPING",
                                      "FREEZING", "CUTTING", "ABORTING", "DECIDED", "SETTLED", "ENDED" };
const char *const text_ends[N_JOB_ENDS] = { "NONE", "NO_STATE", "TOO_FEW", "REFUSED", "FENCED", "ENDED" };

void text_add(char *text, const char *format, ...) {
        size_t used = strlen(text);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text + used, TEXT_LINE - used, format, arguments);
        va_end(arguments);
        assert_true(strlen(text) + 1 < TEXT_LINE);
}

static void add_loss(char *text, const struct membership_loss *loss) {
        if (loss->cause != 0 && loss->member != 0)
                text_add(text, ", lost %u: %s", member_id_count(loss->member), cause_name(loss->cause));
        else if (loss->cause != 0)
                text_add(text, ", %s", cause_name(loss->cause));
}

static void add_end(char *text, enum job_end end) {
        if (end != JOB_END_NONE)
                text_add(text, ", %s", text_ends[end]);
}

static void add_numbers(char *text, const char *name, const uint64_t *number, uint32_t n) {
        uint32_t used = 0;

        for (uint32_t i = 0; i < n; i++)
                used = number[i] != 0 ? i + 1 : used;
        for (uint32_t i = 0; i < used; i++)
                text_add(text, "%s%llu", i == 0 ? name : ",", (unsigned long long)number[i]);
}

static void add_launch(char *text, const struct action *a) {
        text_add(text, "launch %u#%llu", a->lane, (unsigned long long)a->seq);
        if (a->launch == LAUNCH_FILLER)
                text_add(text, " filler");
        else if (a->launch == LAUNCH_VOTE)
                text_add(text, " vote %llu of %u/%llu", (unsigned long long)a->value, a->track,
                         (unsigned long long)a->number);
        else
                text_add(text, " payload %llu of %u/%llu", (unsigned long long)a->index, a->track,
                         (unsigned long long)a->number);
}

/* A member of a generation, after its rank; `*`: it is behind; its place follows if it is not the expected
 * one. */
static void add_place(char *text, const struct action *a) {
        text_add(text, " %u:%u%s", a->rank, member_id_count(a->member), a->behind ? "*" : "");
        if (a->id != a->rank + 1)
                text_add(text, "#%llu", (unsigned long long)a->id);
}

static void add_entered(char *text, const struct action *a) {
        if (a->number > 0)
                text_add(text, ", %llu steps", (unsigned long long)a->number);
        if (a->source > 0)
                text_add(text, ", state of rank %u", a->source);
        add_loss(text, &a->loss);
        text_add(text, "%s%s", a->behind ? ", behind" : "", a->torn ? ", torn" : "");
}

void text_action(char *text, const struct action *a) {
        unsigned long long number = a->number;

        switch (a->kind) {
        case ACTION_BUILD: text_add(text, "build %u", a->comm.number); break;
        case ACTION_DROP: text_add(text, "drop %u", a->comm.number); break;
        case ACTION_ABORT: text_add(text, "abort %u", a->comm.number); break;
        case ACTION_LAUNCH: add_launch(text, a); break;
        case ACTION_CANCEL: text_add(text, "cancel %u/%llu", a->track, number); break;
        case ACTION_TRACK:
                text_add(text, "track %u is plan %llu's from %llu", a->track, number,
                         (unsigned long long)a->index);
                break;
        case ACTION_OPEN: text_add(text, "open %u/%llu", a->track, number); break;
        case ACTION_INTERRUPTED: text_add(text, "interrupted"); break;
        case ACTION_COMMITTED: text_add(text, "committed %u/%llu", a->track, number); break;
        case ACTION_VOID:
                text_add(text, "void %u/%llu%s", a->track, number, a->behind ? ", behind" : "");
                break;
        case ACTION_MISMATCH: text_add(text, "mismatch %u/%llu", a->track, number); break;
        case ACTION_UNBEGUN: text_add(text, "unbegun %u/%llu", a->track, number); break;
        case ACTION_GENERATION: add_place(text, a); return;
        case ACTION_ENTERED: add_entered(text, a); return;
        case ACTION_OUT: text_add(text, "out after %lld", (long long)(w.now - a->since)); break;
        case ACTION_REFUSED:
                text_add(text, "refused %u%s", member_id_count(a->member),
                         a->refusal->text[0] != '\0' || a->end == JOB_END_NONE ? "" : " without a word");
                break;
        case ACTION_ENDED: text_add(text, "ended"); break;
        case ACTION_EXPLAIN: text_add(text, "explain %llu", number); break;
        case ACTION_REJECTED: text_add(text, "rejected %llu", number); break;
        }
        add_end(text, a->end);
        add_loss(text, &a->loss);
}

static void add_turn(char *text, uint32_t ordinal, uint64_t unit, uint64_t turn) {
        if (unit > 0)
                text_add(text, ", plan %u asks for unit %llu turn %llu", ordinal, (unsigned long long)unit,
                         (unsigned long long)turn);
}

void text_order(char *text, const struct order *order) {
        text_add(text, "%u hears %s", order->to, order_name(order->kind));
        add_numbers(text, ", seq ", order->seq, LIMIT_LANES);
        add_numbers(text, ", go ", order->go, LIMIT_LANES);
        if (order->kind == ORDER_STOP)
                add_numbers(text, ", opened ", order->mark, order->n_tracks < 4 ? order->n_tracks : 4);
        for (uint32_t i = 0; i < order->n_plans; i++)
                add_turn(text, order->plan[i].ordinal, order->plan[i].unit, order->plan[i].turn);
        if (order->torn)
                text_add(text, ", torn");
        add_end(text, order->end);
        add_loss(text, &order->loss);
}

void text_report(char *text, const struct report *report) {
        text_add(text, "%u says %s", report->from, report_name(report->kind));
        add_numbers(text, ", seq ", report->seq, LIMIT_LANES);
        add_numbers(text, ", ready ", report->ready, LIMIT_LANES);
        add_numbers(text, ", go ", report->go, LIMIT_LANES);
        if (report->n_words > 0)
                add_numbers(text, ", links ", report->links, 1);
        if (report->kind == ANSWER_HELD)
                add_numbers(text, ", opened ", report->mark, report->n_tracks < 4 ? report->n_tracks : 4);
        for (uint32_t i = 0; i < report->n_plans; i++)
                add_turn(text, report->plan[i].ordinal, report->plan[i].unit, report->plan[i].turn);
        if (report->torn)
                text_add(text, ", torn");
        add_end(text, report->end);
}

static void add_track(char *text, uint32_t at, const struct track *track) {
        static const char *const states[] = { "idle", "wanted", "open", "committing", "voiding" };

        if (track->state == UNIT_IDLE && track->committed == 0)
                return;
        text_add(text, ", track %u %s %llu", at, states[track->state], (unsigned long long)track->committed);
        if (track->prepared != track->committed)
                text_add(text, "+1");
}

/* All that matters of a node. */
void text_node(char *text, const struct node *node, bool all, bool lone) {
        text_add(text, "%s", text_phases[node->phase]);
        if (!all)
                return;
        if (node->phase != NODE_OUT && node->generation.number > 1)
                text_add(text, " %u", node->generation.number);
        if (node->comm.number > 1)
                text_add(text, " on %u", node->comm.number);
        text_add(text, "%s%s%s%s%s%s%s", node->suspended ? ", suspended" : "", node->held ? ", held" : "",
                 node->stopping ? ", stopping" : "", node->missing ? ", missing" : "",
                 node->torn ? ", torn" : "", node->unbuilt ? ", unbuilt" : "",
                 node->interrupted ? ", interrupted" : "");
        if (lone && node->term > MACHINES_TERM)
                text_add(text, ", term %llu", (unsigned long long)node->term);
        if (node->filling > 0)
                text_add(text, ", filled in %llu", (unsigned long long)node->filling);
        for (uint32_t track = 0; track < node->n_tracks; track++)
                add_track(text, track, &node->track[track]);
        for (uint32_t at = 0; at < node->config.n_lanes; at++) {
                const struct node_lane *lane = &node->lane[at];

                if (lane->ready + lane->launched + lane->completed > 0)
                        text_add(text, ", lane %u %llu>%llu>%llu>%llu", at, (unsigned long long)lane->ready,
                                 (unsigned long long)lane->go, (unsigned long long)lane->launched,
                                 (unsigned long long)lane->completed);
        }
}

void text_coordinator(char *text, const struct coordinator *c, bool all) {
        text_add(text, "%s", stages[c->stage]);
        if (all && c->current.number > 1)
                text_add(text, " %u", c->current.number);
        if (all)
                add_numbers(text, ", go ", c->go, LIMIT_LANES);
        if (all && !w.job[0].at[0].lives)
                text_add(text, ", %u nodes", c->tally.survivors);
}
