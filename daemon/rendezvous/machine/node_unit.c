/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open steps and the open operation of a node: what of them was handed to the engine, in which order, and
 * when the node may call them prepared or committed. Work that was handed out is latched: it counts, whatever
 * happens to it.
 */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/node_private.h"

/* A step's vote is on the lowest lane that it uses. */
static uint32_t vote_lane(const struct node *node, uint32_t which) {
        if (!track_is_step(which))
                return node->config.n_lanes - 1;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (node->track[which].planned[lane] > 0)
                        return lane;
        return 0;
}

bool unit_alone(const struct node *node) {
        return nodeset_count(node->set) <= 1;
}

/* The only writer of a track's state. */
static void track_set_state(struct track *track, enum unit_state state) {
        static const unsigned before[] = {
                [UNIT_IDLE] = 1u << UNIT_IDLE | 1u << UNIT_COMMITTING | 1u << UNIT_VOIDING,
                [UNIT_WANTED] = 1u << UNIT_IDLE,
                [UNIT_OPEN] =
                        1u << UNIT_WANTED | 1u << UNIT_COMMITTING, /* the latter: its results are spoilt */
                [UNIT_COMMITTING] = 1u << UNIT_OPEN,
                [UNIT_VOIDING] = 1u << UNIT_WANTED | 1u << UNIT_OPEN,
        };

        assert(before[state] >> track->state & 1);
        track->state = state;
}

/* A decision counts when members hear of it. */
static uint64_t told(const struct track *track) {
        return track->committed - (track->state == UNIT_COMMITTING);
}

uint64_t unit_steps(const struct node *node) {
        uint64_t steps = 0;

        for (uint32_t which = TRACK_STEP; which < node->n_tracks; which++)
                steps += told(&node->track[which]);
        return steps;
}

/* Nodes hear of the steps of several plans in different order, and may leave in between. */
static uint64_t plans(const struct node *node) {
        uint64_t sum = 0;

        for (uint32_t which = TRACK_STEP; which < node->n_tracks && !unit_alone(node); which++)
                sum += tag_plans(told(&node->track[which]), which);
        return sum;
}

void unit_reset(struct track *track) {
        uint64_t committed = track->committed, mismatches = track->mismatches;

        track_set_state(track, UNIT_IDLE);
        memset(track, 0, sizeof(*track));
        track->mismatches = mismatches;
        track->committed = track->prepared = committed;
        track->vote = -1;
}

/* Results that all members of the node were to have are in the arenas. */
void unit_restore(struct track *track, uint64_t committed, bool opened, bool prepared) {
        unit_reset(track);
        track->committed = committed;
        track->prepared = committed + prepared;
        if (!opened)
                return;
        track_set_state(track, UNIT_WANTED);
        track_set_state(track, UNIT_OPEN);
        track->full = track->landed = prepared;
}

bool unit_idle(const struct node *node) {
        for (uint32_t which = 0; which < node->n_tracks; which++)
                if (node->track[which].state != UNIT_IDLE)
                        return false;
        return true;
}

bool unit_empty(const struct node *node) {
        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].in)
                        return false;
        return true;
}

uint64_t unit_ended(const struct track *track) {
        return track->committed + track->mismatches;
}

uint64_t unit_opened(const struct node *node, uint32_t which) {
        const struct track *track = &node->track[which];

        return unit_ended(track) + (track->state == UNIT_OPEN && !unit_empty(node));
}

static void unit_tell(const struct node *node, uint32_t which, enum action_kind action, uint64_t number) {
        node_act(node, &(struct action){ .kind = action,
                                         .track = which,
                                         .number = number,
                                         .generation = node->generation,
                                         .behind = node->track[which].behind,
                                         .loss = action == ACTION_VOID ? node->loss
                                                                       : (struct membership_loss){ 0 } });
}

static void tell_committed(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];
        struct tag tag = {
                node->config.incarnation, node->generation.term, node->generation.number, 0, false, 0
        };

        track_set_state(track, UNIT_IDLE);
        tag.step = unit_steps(node);
        tag.plans = plans(node);
        for (uint32_t i = 0; i < node->n && track_is_step(which); i++)
                if (node->member[i].in && !node->member[i].behind)
                        node->member[i].tag = tag;
        if (track_is_step(which) && !unit_empty(node) && tag_compare(&tag, &node->history) > 0)
                node->history = tag;
        node->unsynced &= !track_is_step(which);
        unit_tell(node, which, ACTION_COMMITTED, track->committed);
        unit_reset(track);
}

static void commit(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        track->committed = track->prepared = track->committed + 1;
        track_set_state(track, UNIT_COMMITTING);
        if (track->landed || planted(PLANTED_TELLS_UNLANDED))
                tell_committed(node, which);
}

/* Decided; the members hear of it when the arenas are let go of. */
static void begin_void(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        track->prepared = track->committed;
        track->silent = track->state == UNIT_WANTED;
        track_set_state(track, UNIT_VOIDING);
        if (planted(PLANTED_TELLS_EARLY) && !track->silent)
                unit_tell(node, which, ACTION_VOID, track->committed + 1);
        node_act(node, &(struct action){ .kind = ACTION_CANCEL,
                                         .track = which,
                                         .number = track->committed + 1,
                                         .generation = node->generation });
}

void unit_decide(struct node *node, uint32_t which, uint64_t verdict) {
        struct track *track = &node->track[which];

        bool committed = verdict > track->committed ||
                         (planted(PLANTED_COMMITS_IN_DOUBT) && track->prepared > track->committed);

        if (track->state == UNIT_OPEN && committed)
                commit(node, which);
        else if (track->state == UNIT_OPEN || track->state == UNIT_WANTED)
                begin_void(node, which);
}

void unit_give_up(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (track->state != UNIT_OPEN && track->state != UNIT_WANTED)
                return;
        track->behind = true;
        begin_void(node, which);
}

/* The next collective of that lane: a payload of the unit whose it is, or, after all of these, the vote. */
static void unit_launch(struct node *node, uint32_t lane) {
        uint32_t which = lane_next(node, lane);
        struct track *track = &node->track[which];
        bool vote = track->launched[lane] == track->planned[lane];
        enum launch_kind what = vote ? LAUNCH_VOTE : track->mismatch ? LAUNCH_FILLER : LAUNCH_PAYLOAD;

        node_act(node, &(struct action){
                               .kind = ACTION_LAUNCH,
                               .comm = node->comm,
                               .generation = node->generation,
                               .lane = lane,
                               .seq = lane_count_launch(node, lane),
                               .launch = what,
                               .track = which,
                               .number = track->committed + 1,
                               .index = what == LAUNCH_PAYLOAD ? track->launched[lane] : 0,
                               .value = vote && !track->mismatch,
                       });
        track->launched[lane] += !vote;
}

static void unit_hand_out(struct node *node) {
        uint32_t lane;

        while (lane_take(node, &lane))
                unit_launch(node, lane);
}

/* Another one of the unit's is ready. */
static void unit_note_ready(struct node *node, uint32_t which, uint32_t lane) {
        lane_note_ready(node, which, lane);
        unit_hand_out(node);
}

uint64_t unit_in_turn(const struct node *node, uint32_t which) {
        const struct track *track = &node->track[which];

        if (!track_is_step(which) || track->state != UNIT_OPEN || unit_alone(node))
                return 0;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (lane_is_shared(node->config.n_lanes, lane) && track->planned[lane] > 0 &&
                    (track->full || unit_empty(node) || planted(PLANTED_ASKS_EARLY)))
                        return track->committed + 1;
        return 0;
}

bool unit_asks(struct node *node) {
        bool asks = false;

        for (uint32_t which = TRACK_STEP; which < node->n_tracks; which++)
                if (!node->track[which].asked && unit_in_turn(node, which) > 0)
                        node->track[which].asked = asks = true;
        return asks;
}

void unit_take_turn(struct node *node, uint32_t which, uint64_t number, uint64_t turn) {
        if (number > 0 && unit_in_turn(node, which) == number)
                node->track[which].turn = turn;
}

/* Units with a lower turn launch nothing more. A node that hears of a turn hears of all lower ones. */
static bool has_its_turn(const struct node *node, uint32_t which) {
        uint64_t turn = node->track[which].turn;

        for (uint32_t other = TRACK_STEP; other < node->n_tracks; other++) {
                const struct track *track = &node->track[other];

                if (track->state == UNIT_OPEN && !track->voted && track->turn > 0 && track->turn < turn)
                        return false;
        }
        return turn > 0;
}

/* An operation's first payload compares it across nodes: nothing else moves before its result is there. */
static bool may_launch(const struct node *node, uint32_t which, uint32_t lane) {
        const struct track *track = &node->track[which];

        if (which == TRACK_OPERATION)
                return track->launched[lane] == 0 || track->completed[lane] > 0;
        return !lane_is_shared(node->config.n_lanes, lane) || has_its_turn(node, which) ||
               planted(PLANTED_LAUNCHES_BY_READY);
}

static void launch_payloads(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                while (track->ready[lane] < track->offered[lane] && lane_has_room(node, lane) &&
                       may_launch(node, which, lane)) {
                        track->ready[lane]++;
                        unit_note_ready(node, which, lane);
                }
}

static bool complete(const struct node *node, const struct track *track) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if ((planted(PLANTED_PREPARES_EARLY) ? track->launched[lane] : track->completed[lane]) <
                    track->planned[lane])
                        return false;
        return true;
}

/* True if another unit may follow it on a shared lane now. */
static bool progress_open(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];
        bool voted = track->voted;

        if (unit_alone(node)) {
                if (track->mismatch)
                        begin_void(node, which);
                else if (track->full)
                        commit(node, which);
                return false;
        }
        launch_payloads(node, which);
        if (!track->voted && complete(node, track)) {
                if (!track->mismatch)
                        track->prepared = track->committed + 1;
                track->voted = true;
                unit_note_ready(node, which, vote_lane(node, which));
        }
        if (track->vote == 1)
                commit(node, which);
        else if (track->vote == 0 && which == TRACK_OPERATION) {
                track->mismatch = true;
                begin_void(node, which);
        }
        return track->voted && !voted && track->turn > 0;
}

/* Members have not given everything to what is open: perhaps they need another unit before they can. */
static bool waits_for_more(const struct node *node) {
        for (uint32_t which = 0; which < node->n_tracks; which++)
                if (node->track[which].state == UNIT_OPEN && !node->track[which].full &&
                    !node->track[which].mismatch)
                        return !unit_empty(node) && !planted(PLANTED_HOLDS_BACK);
        return false;
}

static bool may_open(const struct node *node, uint32_t which) {
        if ((node->missing && !planted(PLANTED_IGNORES_MISSING)) || plan_is_closed(node, which))
                return false;
        return !node->held || unit_ended(&node->track[which]) < node->stop[which] || waits_for_more(node);
}

/* False if there was nothing: what one pass has opened may be a reason to open more. */
static bool open_what_may_be(struct node *node, bool *ret_beyond) {
        bool opened = false;

        for (uint32_t which = 0; which < node->n_tracks; which++) {
                struct track *track = &node->track[which];

                if (track->state != UNIT_WANTED || !may_open(node, which))
                        continue;
                track_set_state(track, UNIT_OPEN);
                node_act(node, &(struct action){ .kind = ACTION_OPEN,
                                                 .track = which,
                                                 .number = track->committed + 1,
                                                 .generation = node->generation });
                *ret_beyond |= node->held && unit_ended(track) >= node->stop[which];
                opened = true;
        }
        return opened;
}

bool unit_open_more(struct node *node) {
        bool beyond = false;

        while (open_what_may_be(node, &beyond))
                ;
        return beyond;
}

void unit_progress(struct node *node) {
        bool again = false;

        unit_hand_out(node);
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                struct track *track = &node->track[which];

                if (track->state == UNIT_OPEN)
                        again |= progress_open(node, which);
                else if (track->state == UNIT_WANTED && track->mismatch && unit_alone(node))
                        begin_void(node, which);
        }
        if (again)
                unit_progress(node);
}

bool unit_is_open(const struct node *node, struct generation generation, uint32_t which) {
        return which < node->config.room.tracks && generation_equal(generation, node->generation) &&
               node->track[which].state != UNIT_IDLE;
}

void unit_begin(struct node *node, uint32_t which, const uint64_t planned[LIMIT_LANES]) {
        struct track *track = &node->track[which];

        unit_reset(track);
        track_set_state(track, UNIT_WANTED);
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                track->planned[lane] = planned[lane];
}

void unit_offer(struct node *node, uint32_t which, uint32_t lane) {
        struct track *track = &node->track[which];

        if (lane < node->config.n_lanes && track->offered[lane] < track->planned[lane])
                track->offered[lane]++;
}

/* Nothing is decided about it. */
static bool track_is_undecided(const struct track *track) {
        return track->state == UNIT_WANTED || track->state == UNIT_OPEN;
}

void unit_full(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (track_is_undecided(track))
                track->full = !track->spoilt;
}

void unit_differ(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (track_is_step(which) || !track_is_undecided(track) ||
            track->launched[node->config.n_lanes - 1] > 0)
                return;
        track->mismatch = true;
        memcpy(track->offered, track->planned,
               sizeof(track->offered)); /* fillers: the others wait for them */
}

void unit_spoil(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (!unit_alone(node))
                return;
        if (track->state == UNIT_COMMITTING) {
                track->prepared = --track->committed;
                track_set_state(track, UNIT_OPEN);
                track->behind = node->phase == NODE_LEAVING;
                if (node->phase >= NODE_SETTLING)
                        begin_void(node, which);
        }
        track->full = false;
        track->spoilt = true;
}

void unit_landed(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (track->state == UNIT_VOIDING)
                return;
        track->landed = true;
        if (track->state == UNIT_COMMITTING)
                tell_committed(node, which);
}

void unit_tear(struct node *node, uint32_t which) {
        const struct track *track = &node->track[which];

        node->torn |= track->state == UNIT_VOIDING && !track->silent;
}

void unit_quiet(struct node *node, uint32_t which) {
        struct track *track = &node->track[which];

        if (track->state != UNIT_VOIDING)
                return;
        track->mismatches += track->mismatch;
        if (track->mismatch)
                unit_tell(node, which, ACTION_MISMATCH, track->committed + 1);
        else if (track->silent)
                unit_tell(node, which, ACTION_UNBEGUN, track->committed + 1);
        else if (!planted(PLANTED_TELLS_EARLY))
                unit_tell(node, which, ACTION_VOID, track->committed + 1);
        unit_reset(track);
}

/* In order on each lane: the payloads of a unit, its vote, then those of the next one; fillers. */
void unit_done(struct node *node, uint32_t lane, uint64_t value) {
        uint32_t which = lane_complete(node, lane);
        struct track *track;

        if (which == LIMIT_TRACKS || node->track[which].state != UNIT_OPEN)
                return;
        track = &node->track[which];
        if (track->completed[lane] < track->launched[lane]) {
                track->completed[lane]++;
                if (which == TRACK_OPERATION && track->completed[lane] == 1 && value == 0 &&
                    node->phase == NODE_RUNNING) /* a filler compares equal with nothing */
                        track->mismatch = true;
        } else {
                track->vote = value != 0;
        }
}
