/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a coordinator. */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

size_t coordinator_bytes(const struct coordinator_config *config) {
        const struct room *room = &config->room;

        return (room->members + 1) * sizeof(struct seat) + (config->alone ? 0 : sizeof(struct agreement)) +
               config->n_texts * sizeof(struct coordinator_refusal) + room->nodes * sizeof(struct reporter) +
               room->tracks * (room->nodes * (sizeof(struct track_report) + sizeof(struct report_plan)) +
                               sizeof(struct track_owner) + 3 * sizeof(uint64_t)) +
               nodeset_words(room->nodes) * (3 + 2 * (size_t)room->nodes) * sizeof(uint64_t);
}

static void coordinator_lay_out(struct coordinator *c, const struct room *room) {
        uint32_t n_places = room->members < LIMIT_WORLD ? room->members : LIMIT_WORLD;
        struct seat *seat = room->memory;

        c->config.room = *room;
        c->agreement = c->config.alone ? NULL : (void *)(seat + room->members + 1);
        c->refused = c->agreement != NULL ? (void *)(c->agreement + 1) : (void *)(seat + room->members + 1);
        c->node = (void *)(c->refused + c->config.n_texts);
        c->track = (void *)(c->node + room->nodes);
        c->plan = (void *)(c->track + (size_t)room->nodes * room->tracks);
        c->owner = (void *)(c->plan + (size_t)room->nodes * room->tracks);
        c->stop = (void *)(c->owner + room->tracks);
        c->verdict = c->stop + room->tracks;
        c->highest = c->verdict + room->tracks;
        c->set = (struct nodeset){ c->highest + room->tracks, nodeset_words(room->nodes) };
        c->lost = (struct nodeset){ c->set.word + c->set.words, c->set.words };
        c->made_set = (struct nodeset){ c->lost.word + c->set.words, c->set.words };
        c->nodes = c->made_set.word + c->set.words;
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
        memset(c->owner, 0, room->tracks * sizeof(*c->owner));
        memcpy(c->owner, before.owner, before.n_tracks * sizeof(*c->owner));
        memcpy(c->refused, before.refused, c->config.n_texts * sizeof(*c->refused));
        if (c->agreement != NULL)
                *c->agreement = *before.agreement;
        memcpy(c->node, before.node, before.config.room.nodes * sizeof(*c->node));
        for (uint32_t node = 0; node < before.config.room.nodes; node++) {
                memcpy(coordinator_track(c, node, 0), coordinator_track(&before, node, 0),
                       before.n_tracks * sizeof(*c->track));
                memcpy(coordinator_plans(c, node), coordinator_plans(&before, node),
                       before.node[node].n_plans * sizeof(*c->plan));
                nodeset_copy(coordinator_set_of(c, node), coordinator_set_of(&before, node));
                nodeset_copy(coordinator_links_of(c, node), coordinator_links_of(&before, node));
        }
        nodeset_copy(c->set, before.set);
        nodeset_copy(c->lost, before.lost);
        nodeset_copy(c->made_set, before.made_set);
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
        memset(c->refused, 0, config->n_texts * sizeof(*c->refused));
        if (c->agreement != NULL)
                memset(c->agreement, 0, sizeof(*c->agreement));
        memset(c->stop, 0,
               3 * config->room.tracks * sizeof(*c->stop)); /* and the verdicts, and the highest */
        nodeset_clear(c->made_set);
        c->out = *out;
        c->n_tracks = TRACK_STEP + 1;
        own_time_begin(&c->time, now);
        take_over(c, now, 0);
}
