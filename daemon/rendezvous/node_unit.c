/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open step and the open operation of a node: what of them was handed to the engine, in which order, and when the node
 * may call them prepared or committed. Work that was handed out is latched: it counts, whatever happens to it.
 */
#include <string.h>

#include "rendezvous/node_private.h"

static uint32_t vote_lane(const struct node *node, enum track_kind kind) {
        return kind == TRACK_STEP ? 0 : node->config.n_lanes - 1;
}

static bool alone(const struct node *node) {
        return (node->set & (node->set - 1)) == 0;
}

void unit_reset(struct track *track) {
        uint64_t committed = track->committed;

        memset(track, 0, sizeof(*track));
        track->committed = track->prepared = committed;
        track->vote = -1;
}

bool unit_idle(const struct node *node) {
        for (unsigned kind = 0; kind < N_TRACKS; kind++)
                if (node->track[kind].state != UNIT_IDLE)
                        return false;
        return true;
}

bool unit_empty(const struct node *node) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].in)
                        return false;
        return true;
}

uint64_t unit_opened(const struct node *node, enum track_kind kind) {
        const struct track *track = &node->track[kind];

        return track->committed + (track->state == UNIT_OPEN && !unit_empty(node));
}

static void tell(const struct node *node, enum track_kind kind, enum action_kind action, uint64_t number) {
        node_act(node, &(struct action){ .kind = action, .track = kind, .number = number,
                                         .generation = node->generation,
                                         .behind = node->track[kind].behind });
}

static void tell_committed(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];
        struct tag tag = { node->config.incarnation, node->generation.term, node->generation.number, track->committed, false };

        for (uint32_t i = 0; i < node->n && kind == TRACK_STEP; i++)
                if (node->member[i].in && !node->member[i].behind)
                        node->member[i].tag = tag;
        if (kind == TRACK_STEP && !unit_empty(node) && tag_compare(&tag, &node->history) > 0)
                node->history = tag;
        tell(node, kind, ACTION_COMMITTED, track->committed);
        unit_reset(track);
}

static void commit(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];

        track->committed = track->prepared = track->committed + 1;
        track->state = UNIT_COMMITTING;
        if (track->landed || planted(PLANTED_TELLS_UNLANDED))
                tell_committed(node, kind);
}

/* Decided; the members hear of it when the arenas are let go of. */
static void begin_void(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];

        track->prepared = track->committed;
        track->silent = track->state == UNIT_WANTED;
        track->state = UNIT_VOIDING;
        if (planted(PLANTED_TELLS_EARLY) && !track->silent)
                tell(node, kind, ACTION_VOID, track->committed + 1);
        node_act(node, &(struct action){ .kind = ACTION_CANCEL, .track = kind, .number = track->committed + 1,
                                         .generation = node->generation });
}

void unit_decide(struct node *node, enum track_kind kind, uint64_t verdict) {
        struct track *track = &node->track[kind];

        bool committed = verdict > track->committed ||
                         (planted(PLANTED_COMMITS_IN_DOUBT) && track->prepared > track->committed);

        if (track->state == UNIT_OPEN && committed)
                commit(node, kind);
        else if (track->state == UNIT_OPEN || track->state == UNIT_WANTED)
                begin_void(node, kind);
}

void unit_give_up(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];

        if (track->state != UNIT_OPEN && track->state != UNIT_WANTED)
                return;
        track->behind = true;
        begin_void(node, kind);
}

static void launch(struct node *node, enum track_kind kind, uint32_t lane, enum launch_kind what, uint64_t value) {
        struct track *track = &node->track[kind];

        node_act(node, &(struct action){
                .kind = ACTION_LAUNCH, .comm = node->comm, .generation = node->generation, .set = node->set, .lane = lane,
                .seq = ++node->lane[lane].launched, .launch = what, .track = kind, .number = track->committed + 1,
                .index = what == LAUNCH_PAYLOAD ? track->launched[lane] : 0, .value = value,
        });
}

static bool window_open(const struct node *node, uint32_t lane) {
        return node->lane[lane].launched - node->lane[lane].completed < node->config.window;
}

/* An operation's first payload compares it across nodes: nothing else moves before its result is there. */
static bool may_launch(const struct track *track, enum track_kind kind, uint32_t lane) {
        return kind != TRACK_OPERATION || track->launched[lane] == 0 || track->completed[lane] > 0;
}

static void launch_payloads(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];

        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                while (track->launched[lane] < track->offered[lane] && window_open(node, lane) &&
                       may_launch(track, kind, lane)) {
                        launch(node, kind, lane, track->mismatch ? LAUNCH_FILLER : LAUNCH_PAYLOAD, 0);
                        track->launched[lane]++;
                }
}

static bool complete(const struct node *node, const struct track *track) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if ((planted(PLANTED_PREPARES_EARLY) ? track->launched[lane] : track->completed[lane]) <
                    track->planned[lane])
                        return false;
        return true;
}

static void progress_open(struct node *node, enum track_kind kind) {
        struct track *track = &node->track[kind];

        if (alone(node)) {
                if (track->full)
                        commit(node, kind);
                return;
        }
        launch_payloads(node, kind);
        if (!track->voted && complete(node, track)) {
                if (!track->mismatch)
                        track->prepared = track->committed + 1;
                track->voted = true;
                launch(node, kind, vote_lane(node, kind), LAUNCH_VOTE, !track->mismatch);
        }
        if (track->vote == 1)
                commit(node, kind);
        else if (track->vote == 0 && kind == TRACK_OPERATION) {
                track->mismatch = true;
                begin_void(node, kind);
        }
}

static bool may_open(const struct node *node, enum track_kind kind) {
        if (node->missing && !planted(PLANTED_IGNORES_MISSING))
                return false;
        return !node->held || node->track[kind].committed < node->stop[kind];
}

void unit_progress(struct node *node) {
        if (node->phase != NODE_RUNNING || node->suspended)
                return;
        for (unsigned kind = 0; kind < N_TRACKS; kind++) {
                struct track *track = &node->track[kind];

                if (track->state == UNIT_WANTED && may_open(node, kind))
                        track->state = UNIT_OPEN;
                if (track->state == UNIT_OPEN)
                        progress_open(node, kind);
        }
}

/* Whether the call is about what is open now. */
static struct track *find(struct node *node, struct generation generation, enum track_kind kind) {
        if ((unsigned)kind >= N_TRACKS || !generation_equal(generation, node->generation) ||
            node->track[kind].state == UNIT_IDLE)
                return NULL;
        return &node->track[kind];
}

bool node_open(struct node *node, uint64_t now, struct generation generation, enum track_kind kind,
               const uint64_t planned[LIMIT_LANES]) {
        struct track *track;

        node_wake(node, now);
        if (node->phase != NODE_RUNNING || (unsigned)kind >= N_TRACKS ||
            !generation_equal(generation, node->generation) || node->track[kind].state != UNIT_IDLE)
                return false;
        track = &node->track[kind];
        unit_reset(track);
        track->state = UNIT_WANTED;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                track->planned[lane] = planned[lane];
        node_advance(node, now);
        return true;
}

void node_offer(struct node *node, uint64_t now, struct generation generation, enum track_kind kind, uint32_t lane) {
        struct track *track;

        node_wake(node, now);
        track = find(node, generation, kind);
        if (track == NULL || lane >= node->config.n_lanes || track->offered[lane] >= track->planned[lane])
                return;
        track->offered[lane]++;
        node_advance(node, now);
}

void node_full(struct node *node, uint64_t now, struct generation generation, enum track_kind kind) {
        struct track *track;

        node_wake(node, now);
        track = find(node, generation, kind);
        if (track == NULL || (track->state != UNIT_WANTED && track->state != UNIT_OPEN))
                return;
        track->full = true;
        node_advance(node, now);
}

void node_landed(struct node *node, uint64_t now, struct generation generation, enum track_kind kind) {
        struct track *track;

        node_wake(node, now);
        track = find(node, generation, kind);
        if (track == NULL || track->state == UNIT_VOIDING)
                return;
        track->landed = true;
        if (track->state == UNIT_COMMITTING)
                tell_committed(node, kind);
        node_advance(node, now);
}

void node_quiet(struct node *node, uint64_t now, struct generation generation, enum track_kind kind) {
        struct track *track;

        node_wake(node, now);
        track = find(node, generation, kind);
        if (track == NULL || track->state != UNIT_VOIDING)
                return;
        if (track->mismatch)
                tell(node, kind, ACTION_MISMATCH, track->committed + 1);
        else if (!track->silent && !planted(PLANTED_TELLS_EARLY))
                tell(node, kind, ACTION_VOID, track->committed + 1);
        unit_reset(track);
        node_advance(node, now);
}

/* In order on each lane: the payloads of the open unit, its vote, then fillers. */
static void note_done(struct node *node, uint32_t lane, uint64_t value) {
        enum track_kind kind = lane == node->config.n_lanes - 1 ? TRACK_OPERATION : TRACK_STEP;
        struct track *track = &node->track[kind];

        node->lane[lane].completed++;
        if (track->state != UNIT_OPEN)
                return;
        if (track->completed[lane] < track->launched[lane]) {
                track->completed[lane]++;
                if (kind == TRACK_OPERATION && track->completed[lane] == 1 && value == 0 &&
                    node->phase == NODE_RUNNING)        /* a filler compares equal with nothing */
                        track->mismatch = true;
        } else if (track->voted && track->vote < 0 && lane == vote_lane(node, kind)) {
                track->vote = value != 0;
        }
}

void node_done(struct node *node, uint64_t now, struct generation comm, uint32_t lane, uint64_t seq, uint64_t value) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || lane >= node->config.n_lanes ||
            seq != node->lane[lane].completed + 1 || seq > node->lane[lane].launched)
                return;
        note_done(node, lane, value);
        node_advance(node, now);
}
