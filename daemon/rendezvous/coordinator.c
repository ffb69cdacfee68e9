/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into the coordinator, the orders that it says again and again, and the change from one order to the
 * next. */
#include "rendezvous/coordinator.h"

#include <assert.h>
#include <string.h>

#include "rendezvous/coordinator_private.h"

size_t coordinator_bytes(const struct coordinator_config *config) {
        const struct room *room = &config->room;

        return (room->members + 1) * sizeof(struct seat) +
               config->n_texts * sizeof(struct coordinator_refusal) + room->nodes * sizeof(struct reporter) +
               room->tracks * (room->nodes * sizeof(struct track_report) + 3 * sizeof(uint64_t)) +
               nodeset_words(room->nodes) * (3 + TENURE_SETS + 2 * (size_t)room->nodes) * sizeof(uint64_t);
}

static void coordinator_lay_out(struct coordinator *c, const struct room *room) {
        uint32_t n_places = room->members < LIMIT_LOCAL ? room->members : LIMIT_LOCAL;
        struct seat *seat = room->memory;

        c->config.room = *room;
        c->refused = (void *)(seat + room->members + 1);
        c->node = (void *)(c->refused + c->config.n_texts);
        c->track = (void *)(c->node + room->nodes);
        c->stop = (void *)(c->track + room->nodes * room->tracks);
        c->verdict = c->stop + room->tracks;
        c->highest = c->verdict + room->tracks;
        c->set = (struct nodeset){ c->highest + room->tracks, nodeset_words(room->nodes) };
        c->lost = (struct nodeset){ c->set.word + c->set.words, c->set.words };
        c->links = (struct nodeset){ c->lost.word + c->set.words, c->set.words };
        c->nodes = c->links.word + c->set.words;
        tenure_move(&c->tenure, c->nodes + 2 * (size_t)room->nodes * c->set.words, room->nodes);
        membership_move(&c->membership, seat, n_places);
}

void coordinator_hear_anew(struct coordinator *c) {
        const struct room *room = &c->config.room;

        memset(c->node, 0, room->nodes * sizeof(*c->node));
        memset(c->track, 0, (size_t)room->nodes * room->tracks * sizeof(*c->track));
        memset(c->nodes, 0, 2 * (size_t)room->nodes * c->set.words * sizeof(*c->nodes));
}

void coordinator_move(struct coordinator *c, const struct room *room) {
        const struct coordinator before = *c;

        assert(before.n_tracks <= room->tracks && before.config.room.nodes <= room->nodes);
        coordinator_lay_out(c, room);
        coordinator_hear_anew(c);
        memcpy(c->refused, before.refused, c->config.n_texts * sizeof(*c->refused));
        memcpy(c->node, before.node, before.config.room.nodes * sizeof(*c->node));
        for (uint32_t node = 0; node < before.config.room.nodes; node++) {
                memcpy(coordinator_track(c, node, 0), coordinator_track(&before, node, 0),
                       before.n_tracks * sizeof(*c->track));
                nodeset_copy(coordinator_set_of(c, node), coordinator_set_of(&before, node));
                nodeset_copy(coordinator_links_of(c, node), coordinator_links_of(&before, node));
        }
        nodeset_copy(c->set, before.set);
        nodeset_copy(c->lost, before.lost);
        nodeset_copy(c->links, before.links);
        memcpy(c->stop, before.stop, before.n_tracks * sizeof(*c->stop));
        memcpy(c->verdict, before.verdict, before.n_tracks * sizeof(*c->verdict));
        memcpy(c->highest, before.highest, before.n_tracks * sizeof(*c->highest));
}

uint32_t coordinator_members(const struct coordinator *c, uint32_t node, uint32_t members) {
        uint32_t all = membership_all(&c->membership), reported = 0;

        for (uint32_t i = 0; i < all; i++)
                reported +=
                        c->membership.seat[i].state < SEAT_LOST && c->membership.seat[i].request.node == node;
        return all + members - (reported < members ? reported : members);
}

void coordinator_init(struct coordinator *c, const struct coordinator_config *config, uint64_t now,
                      const struct outlet *out) {
        memset(c, 0, sizeof(*c));
        c->config = *config;
        coordinator_lay_out(c, &config->room);
        coordinator_hear_anew(c);
        memset(c->refused, 0, config->n_texts * sizeof(*c->refused));
        memset(c->stop, 0,
               3 * config->room.tracks * sizeof(*c->stop)); /* and the verdicts, and the highest */
        nodeset_clear(c->set);
        nodeset_clear(c->lost);
        nodeset_clear(c->links);
        c->out = *out;
        c->n_tracks = TRACK_STEP + 1;
        own_time_begin(&c->time, now);
        tenure_init(&c->tenure, config->address, config->candidates, &config->times, config->floor, now, out);
        membership_init(&c->membership, config->name, config->incarnation);
}

/* What one node is told now. Who is outside is heard; who wrongly takes himself for inside is fenced. */
static enum message_kind order_for(const struct coordinator *c, uint32_t node) {
        if (c->order == ORDER_END)
                return ORDER_END;
        if (coordinator_survives(c, node))
                return c->order;
        return c->node[node].world > 0 && !c->collecting ? ORDER_FENCE : ORDER_COLLECT;
}

/* From the loss on, and no longer than until all have entered the next generation. */
static bool tells_loss(enum message_kind order) {
        return (order >= ORDER_FREEZE && order <= ORDER_NEWGEN) || order == ORDER_END;
}

static enum job_end end_of(const struct coordinator *c, enum message_kind order) {
        if (order == ORDER_END)
                return c->end;
        if (order == ORDER_FREEZE && c->membership.state == MEMBERSHIP_BROKEN)
                return c->ending != JOB_END_NONE ? c->ending : JOB_END_TOO_FEW;
        return JOB_END_NONE;
}

static void say_to(struct coordinator *c, uint32_t node) {
        struct message order;

        message_clear(&order);
        order.kind = order_for(c, node);
        order.from = c->config.address;
        order.to = node;
        order.instance = c->node[node].instance;
        order.term = c->term;
        order.round = c->round;
        order.stamp = c->node[node].stamp;
        order.generation = c->current;
        order.comm = c->comm;
        order.history = c->history;
        order.end = end_of(c, order.kind);
        if (tells_loss(order.kind))
                order.loss = c->loss;
        message_name_nodes(&order, c->set, order.kind == ORDER_END ? c->links : (struct nodeset){ 0 });
        memcpy(order.seq, c->cut, sizeof(order.seq));
        order.n_tracks = c->n_tracks;
        memcpy(order.mark, order.kind == ORDER_STOP ? c->stop : c->verdict,
               c->n_tracks * sizeof(order.mark[0]));
        if (order.kind == ORDER_NEWGEN)
                form_fill_order(c, &order);
        effects_send(&c->out, &order);
}

/* Whom the generation has lost first. Without a member it is a daemon or a link, or the one that coordinated
 * before. */
static void coordinator_note_loss(struct coordinator *c) {
        bool lost = c->membership.state == MEMBERSHIP_REPLACING || c->membership.state == MEMBERSHIP_BROKEN;

        if (lost && c->membership.loss.cause != 0 && c->loss.member == 0)
                c->loss = c->membership.loss;
        if (planted(PLANTED_BLAMES_ANYBODY) && c->loss.member != 0 && c->membership.n > 0)
                c->loss.member = c->membership.seat[c->membership.n - 1].request.member;
}

static void say(struct coordinator *c, uint64_t now) {
        c->said = now;
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].known)
                        say_to(c, node);
}

/* A survivor's part in the tally: 1 to put it in, -1 to take it out before it changes. */
static void tally_count(struct coordinator *c, uint32_t node, uint32_t sign) {
        const struct reporter *reporter = &c->node[node];
        bool failing = !nodeset_empty(coordinator_links_of(c, node));

        c->tally.survivors += sign;
        c->tally.failing += failing * sign;
        c->tally.astray += !generation_equal(reporter->comm, c->comm) * sign;
        if (reporter->term != c->term || reporter->round != c->round || reporter->answer < ANSWER_REPORT)
                return;
        c->tally.answered[reporter->answer - ANSWER_REPORT] += sign;
        c->tally.tried += (reporter->answer == ANSWER_ACK || failing) * sign;
}

static void tally_anew(struct coordinator *c) {
        c->tally = (struct coordinator_tally){ .lost = c->tally.lost };
        for (uint32_t node = 0; node < c->config.room.nodes; node++)
                if (coordinator_survives(c, node))
                        tally_count(c, node, 1);
}

void coordinator_give(struct coordinator *c, uint64_t now, enum message_kind order) {
        c->order = order;
        if (order == ORDER_RUN || order == ORDER_COLLECT)
                c->loss = (struct membership_loss){ 0 };
        coordinator_note_loss(c);
        c->since = now;
        c->round++;
        tally_anew(c);
        say(c, now);
}

bool coordinator_all(const struct coordinator *c, enum message_kind answer) {
        return c->tally.answered[answer - ANSWER_REPORT] == c->tally.survivors;
}

void coordinator_set_nodes(struct coordinator *c, struct nodeset nodes) {
        nodeset_copy(c->set, nodes);
        nodeset_clear(c->lost);
        c->tally.lost = 0;
        tally_anew(c);
}

void coordinator_lose_node(struct coordinator *c, uint32_t node) {
        if (!coordinator_survives(c, node))
                return;
        tally_count(c, node, -1u);
        nodeset_add(c->lost, node);
        c->tally.lost++;
}

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

/* Somebody waits for whom the world has room. */
static bool grows(const struct coordinator *c) {
        return membership_fitting(&c->membership) > 0 ||
               (planted(PLANTED_HOLDS_FOR_SPARES) && c->membership.n_waiting > 0);
}

static void advance_running(struct coordinator *c, uint64_t now) {
        if (loss_found(c) || (planted(PLANTED_RESTLESS) && c->membership.loss.member != 0 &&
                              c->current.number < 9 && now > c->since + 2 * c->config.times.heartbeat)) {
                loss_begin(c, now);
        } else if (planted(PLANTED_GROWS_ANYWHERE) && membership_fitting(&c->membership) > 0) {
                loss_begin(c, now);
        } else if (c->order == ORDER_RUN && c->n_waits == 0 && (grows(c) || empty_for_long(c, now))) {
                coordinator_give(c, now, ORDER_HOLD);
        } else if ((c->order == ORDER_HOLD || c->order == ORDER_STOP) && !grows(c) &&
                   !empty_for_long(c, now)) {
                coordinator_give(c, now, ORDER_RUN); /* whoever waited has gone */
        } else if (c->order == ORDER_HOLD && coordinator_all(c, ANSWER_HELD)) {
                memset(c->highest, 0, c->n_tracks * sizeof(*c->highest));
                for (uint32_t node = 0; node < c->top; node++)
                        coordinator_note_opened(c, node);
                raise_stop(c);
                coordinator_give(c, now, ORDER_STOP);
        } else if (c->order == ORDER_STOP && coordinator_all(c, ANSWER_PAUSED)) {
                c->abort = false;
                c->growing = true;
                coordinator_give(c, now, ORDER_FREEZE);
        } else if (c->order == ORDER_STOP && !planted(PLANTED_STOPS_ONCE) && raise_stop(c)) {
                coordinator_give(c, now, ORDER_STOP);
        } else {
                member_tick(c, now);
        }
}

static void advance_order(struct coordinator *c, uint64_t now) {
        if (c->collecting)
                take_advance(c, now);
        else if (c->order == ORDER_RUN || c->order == ORDER_HOLD || c->order == ORDER_STOP)
                advance_running(c, now);
        else if (c->order == ORDER_COLLECT || (c->order == ORDER_VERDICT && c->settled) ||
                 c->order == ORDER_NEWGEN)
                form_advance(c, now);
        else if (c->order != ORDER_END)
                loss_advance(c, now);
}

static void coordinator_advance(struct coordinator *c, uint64_t now) {
        bool collecting, settled, recording;
        uint64_t round;

        /* An order may have been carried out before it was given, by everybody: at most all of them in a row.
         */
        do {
                collecting = c->collecting;
                settled = c->settled;
                recording = c->recording;
                round = c->round;
                if (c->ending != JOB_END_NONE && !collecting && c->order != ORDER_END)
                        form_break(c, now);
                if (c->order != ORDER_END)
                        coordinator_note_loss(c);
                advance_order(c, now);
        } while (round != c->round || collecting != c->collecting || settled != c->settled ||
                 recording != c->recording);
}

static void note_wait(struct coordinator *c, uint32_t node, bool wait) {
        c->n_waits += (uint32_t)wait - c->node[node].wait;
        c->node[node].wait = wait;
}

static void forget_node(struct coordinator *c, uint64_t now, uint32_t node) {
        c->node[node].known = false;
        note_wait(c, node, false);
        if (coordinator_survives(c, node))
                loss_node(c, now, node);
        else
                member_forget(c, now, node);
}

/* Whoever has not been heard for too long is lost; outside, it is forgotten. */
static void judge(struct coordinator *c, uint64_t now) {
        for (uint32_t node = 0; node < c->top && !planted(PLANTED_FORGETS_A_NODE); node++)
                if (c->node[node].known && now > c->node[node].heard + c->config.times.death)
                        forget_node(c, now, node);
}

/* The coordinator's own time. Where it has slept, or its clock has jumped, all times begin anew. */
static uint64_t coordinator_look(struct coordinator *c, uint64_t now) {
        const struct machine_times *times = &c->config.times;
        uint64_t last = c->time.now;

        now = own_time_look(&c->time, now, times->lease, times->lease);
        if (now <= last + 2 * times->heartbeat)
                return now;
        for (uint32_t node = 0; node < c->top; node++)
                c->node[node].heard = now;
        c->since = now;
        tenure_slept(&c->tenure, last, now);
        return now;
}

/* Sees whether this one may serve. False: there is nothing to do. */
static bool coordinator_wake(struct coordinator *c, uint64_t now) {
        tenure_tick(&c->tenure, now);
        if (c->serving && (!c->tenure.serving || c->tenure.term != c->term))
                c->serving = false;
        if (!c->serving && c->tenure.serving)
                take_over(c, now);
        return c->serving;
}

static void note_tracks(struct coordinator *c, const struct message *report) {
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

static void note_report(struct coordinator *c, uint64_t now, const struct message *report) {
        struct reporter *reporter = &c->node[report->from];
        bool survives = coordinator_survives(c, report->from);

        if (survives)
                tally_count(c, report->from, -1u);
        reporter->known = true;
        reporter->instance = report->instance;
        reporter->heard = now;
        reporter->stamp = report->stamp;
        reporter->term = report->term;
        reporter->round = report->round;
        reporter->answer = report->kind;
        reporter->generation = report->generation;
        reporter->comm = report->comm;
        nodeset_copy(coordinator_set_of(c, report->from), message_set(report));
        nodeset_copy(coordinator_links_of(c, report->from), message_links(report));
        reporter->world = report->world;
        reporter->history = report->history;
        reporter->origin = report->origin;
        reporter->running = report->running;
        note_wait(c, report->from, report->wait);
        memcpy(reporter->seq, report->seq, sizeof(reporter->seq));
        if (survives)
                tally_count(c, report->from, 1);
        note_tracks(c, report);
        coordinator_note_opened(c, report->from);
        if (report->from >= c->top)
                c->top = report->from + 1;
        if (report->generation.number > c->number)
                c->number = report->generation.number;
}

/* Whether a report is the latest one of the latest run of its node. Another run of it is the end of the one
 * before. */
static bool fresh(struct coordinator *c, uint64_t now, const struct message *report) {
        struct reporter *reporter = &c->node[report->from];

        if (!reporter->known)
                return report->instance >= reporter->instance;
        if (report->instance == reporter->instance)
                return report->stamp > reporter->stamp;
        if (report->instance < reporter->instance)
                return false;
        forget_node(c, now, report->from);
        return true;
}

/* A node of the generation that has left it by itself is lost to it, though it lives. Into one with another
 * communicator nodes also come from outside. */
static bool has_left(const struct coordinator *c, const struct message *report) {
        bool comes = (c->order == ORDER_NEWGEN || c->recording) && generation_equal(c->comm, c->current);

        return coordinator_survives(c, report->from) && report->world == 0 && !comes &&
               c->order != ORDER_COLLECT;
}

static bool coordinator_is_ending(const struct coordinator *c) {
        return c->ending != JOB_END_NONE || c->order == ORDER_END;
}

static void receive_report(struct coordinator *c, uint64_t now, const struct message *report) {
        bool first;

        if (report->term > c->term) {
                tenure_exceeded(&c->tenure, report->term, now);
                c->serving = c->tenure.serving;
                return;
        }
        if (!fresh(c, now, report))
                return;
        first = !c->node[report->from].known || c->node[report->from].term != c->term;
        note_report(c, now, report);
        if (has_left(c, report) && !c->collecting)
                loss_node(c, now, report->from);
        member_report(c, now, report);
        if (report->cause != 0 && !coordinator_is_ending(c)) {
                c->ending = JOB_END_ENDED;
                c->cause = report->cause;
        }
        if (first) {
                say_to(c, report->from);
                places_say_to(c, report->from);
        }
}

void coordinator_receive(struct coordinator *c, uint64_t now, const struct message *message) {
        bool serves;

        if (!message_valid(message) || message->to != c->config.address || message->kind < ANSWER_REPORT ||
            message->from >= c->config.room.nodes || !message_fits(message, &c->config.room) ||
            message->world > c->membership.most)
                return;
        now = coordinator_look(c, now);
        if (message->kind >= LEASE_ASK)
                tenure_receive(&c->tenure, now, message);
        serves = coordinator_wake(c, now);
        if (!serves)
                return;
        if (message->kind < LEASE_ASK)
                receive_report(c, now, message);
        if (!c->serving)
                return;
        coordinator_advance(c, now);
        places_tell(c, false);
}

void coordinator_lose(struct coordinator *c, uint64_t now, uint32_t node) {
        now = coordinator_look(c, now);
        if (!coordinator_wake(c, now) || node >= c->top || !c->node[node].known)
                return;
        forget_node(c, now, node);
        coordinator_advance(c, now);
        places_tell(c, false);
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
        if (!coordinator_wake(c, now))
                return;
        judge(c, now);
        coordinator_advance(c, now);
        if (!c->serving)
                return;
        if (now >= c->said + c->config.times.heartbeat)
                say(c, now);
        places_tell(c, c->said == now);
}
