/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part between trainers and the machine in a real daemon: reductions that read arenas, results that are
 * written into them, and the gradients of a node without members.
 */
#include <string.h>

#include "sim.h"

static uint32_t members_in(const struct proc *proc) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                n += proc->trainer[i].state != TRAINER_NONE && proc->trainer[i].in &&
                     generation_equal(proc->trainer[i].generation, proc->node.generation);
        return n;
}

static bool alone(const struct proc *proc) {
        uint64_t nodes = nodeset_word(proc->node.set, 0);

        return (nodes & (nodes - 1)) == 0;
}

void local_quiet(uint32_t proc, uint32_t track) {
        struct local *local = &w.proc[proc].local[track];

        if (local->active && local->cancelled && local->tasks == 0)
                at(rnd(4), EVENT_QUIET, proc, track, local->serial, 0);
}

/* All trainers of the node have that plan, and it has a track. */
bool local_has(uint32_t proc, uint32_t unit) {
        return w.proc[proc].track_of[unit] != TRACK_OPERATION && w.proc[proc].dropped[unit] == 0;
}

/* No unit of it is open. Once all have given it up it is gone, and brought again a little later. False:
 * absorbed, as long as another generation begins. */
bool local_drop(uint32_t proc, uint32_t unit) {
        struct proc *p = &w.proc[proc];

        if (members_in(p) == 0)
                return false;
        if (++p->dropped[unit] < members_in(p))
                return true;
        trace("%u drops plan %u", proc, unit);
        p->dropped[unit] = 0;
        p->track_of[unit] = TRACK_OPERATION;
        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                p->trainer[i].known[unit] = 0;
        record_track(proc, unit);
        truth_dropped(proc, unit);
        node_forget(&p->node, clock_of(p), unit);
        at(rnd(30), EVENT_PLAN, proc, unit, 0, 0);
        return true;
}

/* False: absorbed. */
bool local_open(uint32_t proc, struct generation generation, uint32_t track) {
        struct proc *p = &w.proc[proc];
        struct local *local = &p->local[track];
        uint64_t planned[LIMIT_LANES] = { 0 };
        uint32_t serial = local->serial + 1;

        if (local->active)
                return !local->cancelled && generation_equal(local->generation, generation);
        if (track_is_step(track) && (p->ending || !local_has(proc, track)))
                return false;
        for (uint32_t item = 0; item < w.items[track]; item++)
                planned[lane_of(p, track, item)]++;
        memset(local, 0, sizeof(*local));
        *local = (struct local){ .active = true,
                                 .serial = serial,
                                 .generation = generation,
                                 .members = members_in(p),
                                 .number = track_on(p, track)->committed + 1,
                                 .opened = w.now };
        local->active = node_open(&p->node, clock_of(p), generation, p->track_of[track], planned);
        return local->active && track_on(p, track)->state != UNIT_VOIDING;
}

/* A node without members gives zeros, at once. */
void local_look(uint32_t proc) {
        struct proc *p = &w.proc[proc];

        if (p->node.phase != NODE_RUNNING || !p->alive || p->stopped || !p->has_node || p->node.suspended ||
            alone(p) || members_in(p) > 0)
                return;
        for (uint32_t track = 0; track < TRACKS; track++) {
                if (p->local[track].active || !local_open(proc, p->node.generation, track))
                        continue;
                p->local[track].empty = true;
                for (uint32_t item = 0; item < w.items[track]; item++) {
                        p->local[track].offered[lane_of(p, track, item)]++;
                        node_offer(&p->node, clock_of(p), p->node.generation, p->track_of[track],
                                   lane_of(p, track, item));
                }
                node_landed(&p->node, clock_of(p), p->node.generation, p->track_of[track]);
        }
}

static void begin_to_write(uint32_t proc, uint32_t track) {
        record_begin(proc, track);
        w.proc[proc].local[track].written = true;
}

void local_reduce(uint32_t proc, uint32_t track, uint32_t item) {
        struct local *local = &w.proc[proc].local[track];

        local->tasks++;
        local->begun[item] = true;
        if (alone(&w.proc[proc])) /* what it reads from, it writes to */
                begin_to_write(proc, track);
        at(rnd(4), EVENT_REDUCED, proc, track, item, local->serial);
}

/* A unit is open: from now on its data may be touched. */
void local_opened(uint32_t proc, uint32_t track) {
        struct local *local = &w.proc[proc].local[track];

        local->open = true;
        for (uint32_t item = 0; item < w.items[track] && !local->empty; item++)
                if (local->ready[item] == local->members && local->members > 0)
                        local_reduce(proc, track, item);
}

/* A member takes its memory with it: results that are being written cannot be written everywhere. */
void local_spoil(uint32_t proc) {
        struct proc *p = &w.proc[proc];

        for (uint32_t track = 0; track < TRACKS; track++) {
                struct local *local = &p->local[track];

                if (!local->active || local->cancelled || !alone(p))
                        continue;
                local->spoilt = true;
                node_spoil(&p->node, clock_of(p), local->generation, p->track_of[track]);
        }
}

static void fan_out(uint32_t proc, uint32_t track, uint32_t item) {
        begin_to_write(proc, track);
        w.proc[proc].local[track].tasks++;
        at(rnd(4), EVENT_FANNED, proc, track, item, w.proc[proc].local[track].serial);
}

/* The n-th payload of a lane. */
static uint32_t item_of(const struct proc *p, uint32_t track, uint32_t lane, uint32_t n) {
        for (uint32_t item = 0; item < w.items[track]; item++)
                if (lane_of(p, track, item) == lane && n-- == 0)
                        return item;
        return MAX_ITEMS;
}

void local_reduced(uint32_t proc, uint32_t track, uint32_t item) {
        struct proc *p = &w.proc[proc];
        struct local *local = &p->local[track];
        uint32_t lane = lane_of(p, track, item);

        local->tasks--;
        if (local->cancelled) {
                local_quiet(proc, track);
                return;
        }
        local->reduced[item] = true;
        if (alone(p)) {
                local->good[item] = local->members == p->node.world;
                fan_out(proc, track, item);
                return;
        }
        while ((item = item_of(p, track, lane, local->offered[lane])) < MAX_ITEMS && local->reduced[item]) {
                local->offered[lane]++;
                node_offer(&p->node, clock_of(p), local->generation, p->track_of[track], lane);
        }
}

void local_result(uint32_t proc, uint32_t lane, const struct collective *c) {
        uint32_t track = c->unit[proc];
        struct local *local = &w.proc[proc].local[track];
        uint32_t item;

        if ((c->payload >> proc & 1) == 0 || c->serial[proc] != local->serial || !local->active ||
            local->cancelled)
                return;
        item = item_of(&w.proc[proc], track, lane, local->results[lane]++);
        local->good[item] = !c->mixed && c->members == w.proc[proc].node.world;
        if (!local->empty)
                fan_out(proc, track, item);
}

void local_fanned(uint32_t proc, uint32_t track, uint32_t item) {
        struct proc *p = &w.proc[proc];
        const struct track *unit = track_on(p, track);
        struct local *local = &p->local[track];

        truth_write(proc, local);
        local->tasks--;
        local->fanned[item] = true;
        if (local->cancelled) {
                local_quiet(proc, track);
                return;
        }
        for (uint32_t i = 0; i < w.items[track]; i++)
                if (!local->fanned[i] || local->spoilt)
                        return;
        if (alone(p) || p->node.phase == NODE_RUNNING || unit->prepared > unit->committed ||
            unit->state == UNIT_COMMITTING)
                record_done(proc, track); /* else fillers may have taken part */
        node_landed(&p->node, clock_of(p), local->generation, p->track_of[track]);
}
