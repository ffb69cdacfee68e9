/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a node, and the small things that all of its files do. */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/node_private.h"

size_t node_bytes(const struct room *room) {
        size_t bytes = room->members * (sizeof(struct report_member) + sizeof(struct report_gone)) +
                       room->tracks * (sizeof(struct track) + sizeof(struct node_plan) + sizeof(uint64_t) +
                                       sizeof(uint32_t)) +
                       2 * nodeset_words(room->nodes) * sizeof(uint64_t) +
                       (room->nodes > 1 ? sizeof(struct report_note) : 0);

        return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

static void node_lay_out(struct node *node, const struct room *room) {
        node->config.room = *room;
        node->member = room->memory;
        node->gone = (void *)(node->member + room->members);
        node->track = (void *)(node->gone + room->members);
        node->plan = (void *)(node->track + room->tracks);
        node->stop = (void *)(node->plan + room->tracks);
        node->set = (struct nodeset){ node->stop + room->tracks, nodeset_words(room->nodes) };
        node->links = (struct nodeset){ node->set.word + node->set.words, node->set.words };
        node->about = room->nodes > 1 ? (void *)(node->links.word + node->links.words) : NULL;
        node->kept = (void *)((char *)(node->links.word + node->links.words) +
                              (room->nodes > 1 ? sizeof(struct report_note) : 0));
        for (uint32_t which = node->n_tracks; which < room->tracks; which++) {
                node->track[which] = (struct track){ .vote = -1 };
                node->stop[which] = 0;
        }
}

void node_move(struct node *node, const struct room *room) {
        const struct node before = *node;

        assert(before.n <= room->members && before.n_gone <= room->members &&
               before.n_tracks <= room->tracks && before.config.room.nodes <= room->nodes);
        node_lay_out(node, room);
        memcpy(node->member, before.member, before.n * sizeof(*node->member));
        memcpy(node->gone, before.gone, before.n_gone * sizeof(*node->gone));
        memcpy(node->track, before.track, before.n_tracks * sizeof(*node->track));
        memcpy(node->plan, before.plan, before.n_plans * sizeof(*node->plan));
        memcpy(node->stop, before.stop, before.n_tracks * sizeof(*node->stop));
        memcpy(node->kept, before.kept, before.n_kept * sizeof(*node->kept));
        nodeset_copy(node->set, before.set);
        nodeset_copy(node->links, before.links);
        if (before.note != NOTE_NONE)
                *node->about = *before.about;
}

void node_init(struct node *node, const struct node_config *config, uint64_t now, const struct outlet *out) {
        memset(node, 0, sizeof(*node));
        node->config = *config;
        node->out = *out;
        own_time_begin(&node->time, now);
        node->contact = now;
        node->stamp = now;
        node->answer = ANSWER_REPORT;
        assert(config->window <= LIMIT_WINDOW);
        node_lay_out(node, &config->room);
        nodeset_clear(node->set);
        nodeset_clear(node->links);
        node->n_tracks = TRACK_STEP + 1;
}

uint64_t node_look(struct node *node, uint64_t now) {
        const struct machine_times *times = &node->config.times;

        return own_time_look(&node->time, now, times->abandon + 1, times->patience + 1);
}

void node_use_tracks(struct node *node, uint32_t n) {
        assert(n <= node->config.room.tracks);
        if (n > node->n_tracks)
                node->n_tracks = n;
}

void node_act(const struct node *node, const struct action *action) {
        effects_act(&node->out, action);
}

void node_set_phase(struct node *node, enum node_phase phase, enum report_kind answer) {
        node->phase = phase;
        node->answer = answer;
}

void node_drop_older(struct node *node) {
        if (node->old_comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_DROP, .comm = node->old_comm });
        node->old_comm = (struct generation){ 0 };
}

void node_abort_engine(struct node *node) {
        node_drop_older(node);
        if (node->comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_ABORT, .comm = node->comm });
}
