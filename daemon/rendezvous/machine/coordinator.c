/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into the coordinator: what nodes report, who is judged, and what is to be done next. */
#include "rendezvous/machine/coordinator.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/coordinator_private.h"

#define TERMS_AHEAD (UINT64_C(1) << 48) /* that runs whose state was lost can have begun */

/* A node without a member has been carried along for longer than a place is kept. */
static bool empty_for_long(struct coordinator *c, uint64_t now) {
        struct nodeset full = NODESET_SCRATCH;

        member_add_nodes(c, full);
        if (nodeset_within(c->set, full)) {
                c->empty_since = 0;
                return false;
        }
        if (c->empty_since == 0)
                c->empty_since = now;
        return now >= c->empty_since + c->membership.grace;
}

/* Everybody may open what anybody has opened, so that nothing is void. True if that is more than before. */
static bool raise_stop(struct coordinator *c) {
        bool raised = false;

        for (uint32_t track = 0; track < c->n_tracks; track++) {
                raised |= c->highest[track] > c->stop[track];
                c->stop[track] = c->highest[track];
        }
        return raised;
}

static void coordinator_note_opened(struct coordinator *c, uint32_t node) {
        for (uint32_t track = 0; track < c->n_tracks && nodeset_has(c->set, node); track++)
                if (coordinator_track(c, node, track)->mark > c->highest[track])
                        c->highest[track] = coordinator_track(c, node, track)->mark;
}

/* A member waits for which the world has room. */
static bool grows(const struct coordinator *c) {
        return membership_fitting(&c->membership) > 0 ||
               (planted(PLANTED_HOLDS_FOR_SPARES) && c->membership.n_waiting > 0);
}

/* A node without members cannot learn what a plan is that the others have agreed on meanwhile. */
static uint32_t find_ignorant(const struct coordinator *c) {
        struct nodeset full = NODESET_SCRATCH;

        member_add_nodes(c, full);
        return tracks_find_ignorant(c, full);
}

static void advance_running(struct coordinator *c, uint64_t now) {
        if (loss_found(c) || (planted(PLANTED_RESTLESS) && c->current.number > 1 && c->current.number < 9 &&
                              now > c->since + 2 * c->config.times.heartbeat)) {
                loss_begin(c, now);
        } else if (planted(PLANTED_GROWS_ANYWHERE) && membership_fitting(&c->membership) > 0) {
                loss_begin(c, now);
        } else if (find_ignorant(c) != LIMIT_NODES) {
                loss_node(c, now, find_ignorant(c), WIRE__CAUSE__RESTARTED);
        } else if (c->stage == STAGE_RUNNING && c->n_waits == 0 && (grows(c) || empty_for_long(c, now))) {
                coordinator_give(c, now, STAGE_HOLDING);
        } else if ((c->stage == STAGE_HOLDING || c->stage == STAGE_STOPPING) && !grows(c) &&
                   !empty_for_long(c, now)) {
                coordinator_give(c, now, STAGE_RUNNING); /* the member that waited has gone */
        } else if (c->stage == STAGE_HOLDING && coordinator_all(c, ANSWER_HELD)) {
                memset(c->highest, 0, c->n_tracks * sizeof(*c->highest));
                for (uint32_t node = 0; node < c->top; node++)
                        coordinator_note_opened(c, node);
                raise_stop(c);
                coordinator_give(c, now, STAGE_STOPPING);
        } else if (c->stage == STAGE_STOPPING && coordinator_all(c, ANSWER_PAUSED)) {
                c->abort = false;
                c->growing = true;
                coordinator_give(c, now, STAGE_FREEZING);
        } else if (c->stage == STAGE_STOPPING && !planted(PLANTED_STOPS_ONCE) && raise_stop(c)) {
                coordinator_give(c, now, STAGE_STOPPING);
        } else {
                member_tick(c, now);
        }
}

static void advance_order(struct coordinator *c, uint64_t now) {
        if (c->stage == STAGE_HEARING)
                take_advance(c, now);
        else if (c->stage == STAGE_RUNNING || c->stage == STAGE_HOLDING || c->stage == STAGE_STOPPING)
                advance_running(c, now);
        else if (c->stage >= STAGE_FREEZING && c->stage <= STAGE_DECIDED)
                loss_advance(c, now);
        else if (c->stage != STAGE_ENDED)
                form_advance(c, now);
}

static void coordinator_advance(struct coordinator *c, uint64_t now) {
        enum coordinator_stage stage;
        uint64_t round;

        /* An order may have been carried out before it was given, by everybody: at most all of them in a row.
         */
        do {
                stage = c->stage;
                round = c->round;
                if (c->ending != JOB_END_NONE && stage != STAGE_HEARING && c->stage != STAGE_ENDED)
                        form_break(c, now);
                advance_order(c, now);
        } while (round != c->round || stage != c->stage);
}

static void note_wait(struct coordinator *c, uint32_t node, bool wait) {
        c->n_waits += (uint32_t)wait - c->node[node].wait;
        c->node[node].wait = wait;
}

static void forget_node(struct coordinator *c, uint64_t now, uint32_t node) {
        c->node[node].known = false;
        note_wait(c, node, false);
        if (coordinator_survives(c, node))
                loss_node(c, now, node, WIRE__CAUSE__UNREACHABLE);
        else
                member_forget(c, now, node, WIRE__CAUSE__UNREACHABLE);
}

/* A node that has not been heard for too long is lost; outside, it is forgotten. */
static void judge(struct coordinator *c, uint64_t now) {
        for (uint32_t node = 0; node < c->top && !planted(PLANTED_FORGETS_A_NODE); node++)
                if (c->node[node].known && now > c->node[node].heard + coordinator_patience(c, node))
                        forget_node(c, now, node);
}

/* The coordinator's own time. Where it has slept, or its clock has jumped, all times begin anew. */
static uint64_t coordinator_look(struct coordinator *c, uint64_t now) {
        const struct machine_times *times = &c->config.times;
        uint64_t last = c->time.now;

        now = own_time_look(&c->time, now, times->death, times->death);
        if (now <= last + 2 * times->heartbeat)
                return now;
        for (uint32_t node = 0; node < c->top; node++)
                c->node[node].heard = now;
        c->begun = c->since = now;
        c->unbuilt = c->unbuilt != 0 ? now : 0;
        c->empty_since = c->empty_since != 0 ? now : 0;
        return now;
}

static void note_tracks(struct coordinator *c, const struct report *report) {
        if (report->n_tracks > c->n_tracks) {
                memset(&c->stop[c->n_tracks], 0, (report->n_tracks - c->n_tracks) * sizeof(c->stop[0]));
                memset(&c->verdict[c->n_tracks], 0, (report->n_tracks - c->n_tracks) * sizeof(c->verdict[0]));
                memset(&c->highest[c->n_tracks], 0, (report->n_tracks - c->n_tracks) * sizeof(c->highest[0]));
                c->n_tracks = report->n_tracks;
        }
        for (uint32_t track = 0; track < c->n_tracks; track++) {
                struct track_report *said = coordinator_track(c, report->from, track);

                *said = (struct track_report){ 0 };
                if (track < report->n_tracks)
                        *said = (struct track_report){ report->mark[track], report->committed[track],
                                                       report->prepared[track] };
        }
}

static void note_report(struct coordinator *c, uint64_t now, const struct report *report) {
        struct reporter *reporter = &c->node[report->from];
        bool survives = coordinator_survives(c, report->from);

        if (survives)
                coordinator_count(c, report->from, -1u);
        reporter->known = true;
        reporter->instance = report->instance;
        reporter->heard = now;
        reporter->stamp = report->stamp;
        reporter->term = report->term;
        reporter->round = report->round;
        reporter->answer = report->kind;
        reporter->generation = report->generation;
        reporter->comm = report->comm;
        nodeset_copy(coordinator_set_of(c, report->from), report_set(report));
        nodeset_copy(coordinator_links_of(c, report->from), report_links(report));
        reporter->world = report->world;
        reporter->history = report->history;
        reporter->engine = report->engine;
        reporter->host = report->host;
        reporter->next_plan = report->next_plan;
        reporter->awaits = report->awaits;
        reporter->renewed &= !report->awaits && report->world == 0;
        reporter->running = report->running;
        reporter->away = report->away;
        reporter->torn = report->torn;
        reporter->behind = report->behind;
        note_wait(c, report->from, report->wait);
        memcpy(reporter->seq, report->seq, sizeof(reporter->seq));
        memcpy(reporter->ready, report->ready, sizeof(reporter->ready));
        memcpy(reporter->go, report->go, sizeof(reporter->go));
        if (survives)
                coordinator_count(c, report->from, 1);
        note_tracks(c, report);
        coordinator_note_opened(c, report->from);
        if (report->from >= c->top)
                c->top = report->from + 1;
        if (report->generation.number > c->number)
                c->number = report->generation.number;
}

static bool coordinator_is_ending(const struct coordinator *c) {
        return c->ending != JOB_END_NONE || c->end != JOB_END_NONE;
}

/* The daemon of a node of the generation has started anew, and its members come back, or may. Its first
 * report may be about a newcomer that was faster. All nodes are heard again, as by a coordinator that has
 * just begun. */
static bool coordinator_takes_back(const struct coordinator *c, const struct report *report) {
        return coordinator_survives(c, report->from) &&
               (report->awaits || member_is_any_on(c, report->from)) && c->stage > STAGE_FORMING &&
               !coordinator_is_ending(c);
}

/* Whether a report is the latest one of the latest run of its node. Another run of it is the end of the one
 * before. */
static bool fresh(struct coordinator *c, uint64_t now, const struct report *report) {
        struct reporter *reporter = &c->node[report->from];

        if (!reporter->known)
                return report->instance >= reporter->instance;
        if (report->instance == reporter->instance)
                return report->stamp > reporter->stamp;
        if (report->instance < reporter->instance)
                return false;
        if (coordinator_takes_back(c, report)) {
                take_again(c, now);
                reporter->renewed = true;
        } else {
                forget_node(c, now, report->from);
        }
        return true;
}

/* A node of the generation that has left it by itself is lost to it, though it lives. Into one with another
 * communicator nodes also come from outside, unless what was open before goes on in it. */
static bool has_left(const struct coordinator *c, const struct report *report) {
        bool comes = c->stage == STAGE_ENTERING && generation_equal(c->comm, c->current) && c->torn;

        return coordinator_survives(c, report->from) && report->world == 0 && !comes &&
               !coordinator_awaits(c, report->from) && c->stage > STAGE_FORMING;
}

/* No number of starts explains a term that is higher, and terms above it would come to their end. */
static bool is_term_possible(const struct coordinator *c, uint64_t term) {
        return term - c->term <= TERMS_AHEAD && term <= LIMIT_NUMBER / 2;
}

static void receive_report(struct coordinator *c, uint64_t now, const struct report *report) {
        if (report->term > c->term) {
                if (is_term_possible(c, report->term))
                        take_over(c, now, report->term);
                return;
        }
        if (!fresh(c, now, report))
                return;
        bool first = !c->node[report->from].known || c->node[report->from].term != c->term;
        bool departs = report->away && !c->node[report->from].away; /* it waits to know that this was heard */
        note_report(c, now, report);
        bool plans = tracks_note(c, report);
        if (has_left(c, report))
                loss_node(c, now, report->from, WIRE__CAUSE__RESTARTED);
        member_report(c, now, report);
        if (report->cause != 0 && !coordinator_is_ending(c)) {
                c->ending = JOB_END_ENDED;
                c->cause = report->cause;
        }
        if (c->stage != STAGE_HEARING) {
                /* In this order, and all in any case: what has a track now may need a turn at once. */
                bool assigned = plans && tracks_assign(c), turns = tracks_give_turns(c, report),
                     launches = launches_agree(c);

                if (assigned || turns || launches)
                        coordinator_say(c, now);
                agree_take(c, now, report);
        }
        if (first || departs)
                coordinator_say_to(c, report->from);
        if (first)
                places_say_to(c, report->from);
}

void coordinator_receive(struct coordinator *c, uint64_t now, const struct report *report) {
        if (!report_valid(report) || report->from >= c->config.room.nodes ||
            !report_fits(report, &c->config.room) || report->n_tracks > c->config.room.tracks ||
            report->n_plans > c->config.room.tracks || report->world > c->membership.most)
                return;
        now = coordinator_look(c, now);
        receive_report(c, now, report);
        coordinator_advance(c, now);
        places_tell(c, now, false);
}

void coordinator_lose(struct coordinator *c, uint64_t now, uint32_t node) {
        now = coordinator_look(c, now);
        if (node >= c->top || !c->node[node].known)
                return;
        forget_node(c, now, node);
        coordinator_advance(c, now);
        places_tell(c, now, false);
}

bool coordinator_is_over(const struct coordinator *c) {
        return coordinator_is_ending(c) || c->membership.state == MEMBERSHIP_BROKEN;
}

static uint64_t sooner(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

uint64_t coordinator_deadline(const struct coordinator *c) {
        uint64_t due = c->time.now + c->config.times.heartbeat / 2;

        if (c->n_waits == 0) {
                due = sooner(due, membership_deadline(&c->membership));
                if (c->empty_since != 0)
                        due = sooner(due, c->empty_since + c->membership.grace);
        }
        return own_time_to_driver(&c->time, due > c->time.now ? due : c->time.now);
}

void coordinator_tick(struct coordinator *c, uint64_t now) {
        now = coordinator_look(c, now);
        judge(c, now);
        coordinator_advance(c, now);
        if (now >= c->said + c->config.times.heartbeat)
                coordinator_say(c, now);
        places_tell(c, now, c->said == now);
}
