/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the journal of a daemon, see struct record: each fact before members hear of it. */
#include "rendezvous/machine/planted.h"
#include "sim.h"

struct record_member *record_find(struct record *record, uint64_t member) {
        for (uint32_t i = 0; i < record->n; i++)
                if (record->member[i].member == member)
                        return &record->member[i];
        return NULL;
}

void record_enter(uint32_t proc, const struct action *action, bool resumed) {
        const struct node *node = &w.proc[proc].node;
        struct record *record = &w.proc[proc].record;

        record->generation = action->generation;
        record->world = action->world;
        record->resumed = resumed;
        record->ended = false;
        record->unsynced = node->unsynced;
        record->set = nodeset_word(node->set, 0);
        record->history = node->history;
        record->steps = 0;
        record->n = 0;
        for (uint32_t i = 0; i < node->n && record->n < MAX_TRAINERS; i++) {
                const struct report_member *member = &node->member[i];

                if (member->in && !member->leaving)
                        record->member[record->n++] =
                                (struct record_member){ .member = member->request.member,
                                                        .id = member->id,
                                                        .rank = member->rank,
                                                        .slot = member->slot,
                                                        .behind = member->behind };
        }
        for (uint32_t track = 0; track < TRACKS; track++) {
                record->committed[track] = node->track[track].committed;
                record->steps += track_is_step(track) ? record->committed[track] : 0;
        }
}

static const struct report_member *record_look_up(const struct node *node, uint64_t member) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i];
        return NULL;
}

void record_end(uint32_t proc) {
        struct record *record = &w.proc[proc].record;
        uint32_t n = 0;

        record->ended = true;
        for (uint32_t i = 0; i < record->n; i++)
                if (record_look_up(&w.proc[proc].node, record->member[i].member) != NULL)
                        record->member[n++] = record->member[i];
        record->n = n;
}

void record_drop(uint32_t proc) {
        w.proc[proc].record = (struct record){ 0 };
}

void record_track(uint32_t proc, uint32_t plan) {
        const struct proc *p = &w.proc[proc];
        struct record *record = &w.proc[proc].record;
        uint32_t former = record->track_of[plan], track = p->track_of[plan];
        uint64_t committed = track_on(p, plan)->committed;

        if (track_is_step(former) && former != track)
                record->committed[former] = record->trace[plan].committed;
        if (former != track || record->trace[plan].committed != committed)
                record->trace[plan] = (struct trace){ .committed = committed };
        record->track_of[plan] = track;
        record->before[plan] = truth_units_before(proc, plan);
}

void record_begin(uint32_t proc, uint32_t plan) {
        struct trace *trace = &w.proc[proc].record.trace[plan];

        if (track_is_step(plan) && trace->step != trace->committed + 1)
                *trace = (struct trace){ .committed = trace->committed, .step = trace->committed + 1 };
}

void record_done(uint32_t proc, uint32_t plan) {
        w.proc[proc].record.trace[plan].done = true;
}

void record_void(uint32_t proc, uint32_t plan) {
        struct trace *trace = &w.proc[proc].record.trace[plan];

        if (trace->step > trace->committed)
                *trace = (struct trace){ .committed = trace->committed };
}

/* A step is committed once all members have the state. A member that is gone keeps its place, as long as the
 * others have not heard of its loss. */
static void record_note_synced(const struct node *node, struct record *record) {
        record->unsynced = node->unsynced;
        for (uint32_t i = 0; i < record->n; i++) {
                const struct report_member *member = record_look_up(node, record->member[i].member);

                if (member != NULL)
                        record->member[i].behind = member->behind;
        }
}

void record_commit(uint32_t proc, uint32_t unit, uint64_t number, bool heard) {
        struct record *record = &w.proc[proc].record;

        if (heard != planted(PLANTED_FORGETS_COMMITS))
                return;
        if (!track_is_step(unit)) {
                record->committed[TRACK_OPERATION] = number;
                return;
        }
        record->trace[unit].committed = number;
        record_note_synced(&w.proc[proc].node, record);
}
