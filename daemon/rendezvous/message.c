/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said about a message, a tag or a generation without knowing any state. */
#include "rendezvous/message.h"

#include "proto/frame.h"

static const char *const names[N_MESSAGE_KINDS] = {
        "COLLECT", "RUN",    "HOLD",   "STOP",    "FREEZE",  "CUT",     "ABORT",  "VERDICT",
        "NEWGEN",  "FENCE",  "END",    "REFUSE",  "PLACES",  "EXPLAIN", "REJECT", "report",
        "held",    "paused", "frozen", "drained", "aborted", "settled", "ack",
};

const char *message_name(enum message_kind kind) {
        return (unsigned)kind < N_MESSAGE_KINDS ? names[kind] : "?";
}

void message_name_nodes(struct message *message, struct nodeset set, struct nodeset links) {
        uint32_t set_length = nodeset_length(set), links_length = nodeset_length(links);

        message->n_words = set_length > links_length ? set_length : links_length;
        nodeset_copy(message_set(message), set);
        nodeset_copy(message_links(message), links);
}

void message_copy(struct message *to, const struct message *from) {
        const size_t tracks = from->n_tracks * sizeof(from->mark[0]),
                     words = from->n_words * sizeof(from->set[0]);

        memcpy(to, from, offsetof(struct message, mark));
        memcpy(to->mark, from->mark, tracks);
        if (from->kind >= ANSWER_REPORT) {
                memcpy(to->committed, from->committed, tracks);
                memcpy(to->prepared, from->prepared, tracks);
        }
        memcpy(to->plan, from->plan, from->n_plans * sizeof(from->plan[0]));
        memcpy(to->set, from->set, words);
        memcpy(to->links, from->links, words);
        if (from->kind == ORDER_REFUSE || from->kind == ORDER_REJECT)
                to->refusal = from->refusal;
        else if (from->kind == ORDER_PLACES)
                memcpy(&to->places, &from->places,
                       offsetof(struct message_places, waiting) +
                               from->places.n_waiting * sizeof(from->places.waiting[0]));
        else
                memcpy(to->member_of, from->member_of, from->n_members * sizeof(from->member_of[0]));
        memcpy(to->gone, from->gone, from->n_gone * sizeof(from->gone[0]));
        if (message_has_note(from))
                to->about = from->about;
}

int tag_compare(const struct tag *a, const struct tag *b) {
        if (a->incarnation != b->incarnation)
                return a->incarnation < b->incarnation ? -1 : 1;
        if (a->term != b->term)
                return a->term < b->term ? -1 : 1;
        if (a->generation != b->generation)
                return a->generation < b->generation ? -1 : 1;
        if (a->step != b->step)
                return a->step < b->step ? -1 : 1;
        return a->plans < b->plans ? -1 : a->plans > b->plans;
}

/* A node speaks of the unit that is open there, and a coordinator of none without a turn. */
static bool unit_valid(const struct message *message, const struct message_plan *plan) {
        bool answers = message->kind >= ANSWER_REPORT;

        if (plan->unit == 0)
                return plan->turn == 0;
        if (plan->unit > LIMIT_NUMBER || plan->turn > LIMIT_NUMBER || !track_is_step(plan->track) ||
            plan->track >= message->n_tracks || !plan->open)
                return false;
        return answers ? plan->unit == message->committed[plan->track] + 1 : plan->turn > 0;
}

/* No track is that of two plans, and no turn that of two units. */
static bool plans_valid(const struct message *message) {
        uint64_t used[(LIMIT_TRACKS + 63) / 64] = { 0 };

        for (uint32_t i = 0; i < message->n_plans; i++) {
                uint32_t track = message->plan[i].track;

                if (track >= LIMIT_TRACKS || (track_is_step(track) && (used[track / 64] >> track % 64 & 1)) ||
                    !unit_valid(message, &message->plan[i]))
                        return false;
                for (uint32_t k = 0; k < i && message->plan[i].turn > 0; k++)
                        if (message->plan[k].turn == message->plan[i].turn)
                                return false;
                used[track / 64] |= UINT64_C(1) << track % 64;
        }
        return true;
}

/* The node whose members a message is about. */
static uint32_t node_of(const struct message *message) {
        return message->kind >= ANSWER_REPORT ? message->from : message->to;
}

static bool member_valid(const struct message *message, const struct message_member *member) {
        const struct membership_request *request = &member->request;

        if (request->member == 0 || member_id_node(request->member) != node_of(message) ||
            request->timeout > LIMIT_NUMBER || request->last_call > LIMIT_NUMBER ||
            request->grace > LIMIT_NUMBER || member->tag.step > LIMIT_NUMBER)
                return false;
        if (request->min_world == 0 || request->min_world > request->max_world ||
            request->max_world > LIMIT_WORLD)
                return false;
        if (request->rank >= LIMIT_WORLD || request->slot >= LIMIT_WORLD || member->slot >= LIMIT_WORLD)
                return false;
        return !member->in || (member->rank < message->world && message->generation.number > 0);
}

/* The nodes of a generation include the one that speaks of it or is spoken to. */
static bool set_valid(const struct message *message, uint32_t node) {
        return message->world == 0 ||
               (message->generation.number > 0 && nodeset_has(message_set(message), node));
}

static bool generation_valid(struct generation generation) {
        return generation.term <= LIMIT_NUMBER && generation.number <= LIMIT_GENERATION;
}

/* Far enough from where they would wrap. */
static bool numbers_valid(const struct message *message) {
        bool valid = message->term <= LIMIT_NUMBER && message->round <= LIMIT_NUMBER &&
                     message->stamp <= LIMIT_NUMBER && message->history.step <= LIMIT_NUMBER &&
                     generation_valid(message->generation) && generation_valid(message->comm);

        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                valid &= message->seq[lane] <= LIMIT_NUMBER && message->go[lane] <= LIMIT_NUMBER &&
                         message->ready[lane] <= LIMIT_NUMBER;
        for (uint32_t track = 0; track < message->n_tracks; track++)
                valid &= message->mark[track] <= LIMIT_NUMBER &&
                         (message->kind < ANSWER_REPORT || message->prepared[track] <= LIMIT_NUMBER);
        for (uint32_t i = 0; i < message->n_plans; i++)
                valid &= message->plan[i].before <= LIMIT_NUMBER;
        return valid;
}

/* A node launches what it may, may what it is ready for, and is ready for no more than a window. Nobody else
 * is ready for anything. */
static bool lanes_valid(const struct message *message) {
        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++) {
                uint64_t seq = message->seq[lane], go = message->go[lane], ready = message->ready[lane];

                if (message->kind < ANSWER_REPORT) {
                        if (ready > 0)
                                return false;
                } else if (go > ready || (ready > 0 && (seq > go || ready - seq > LIMIT_WINDOW))) {
                        return false;
                }
        }
        return true;
}

/* What an order says of single members: only those of the node that hears it. Code 0 is that of a goodbye. */
static bool told_valid(const struct message *message) {
        if (message->kind == ORDER_REFUSE)
                return message->n_members == 0 && member_id_node(message->member) == message->to &&
                       (message->refusal.code == 0) == (message->end == JOB_END_NONE);
        if (message->kind == ORDER_REJECT)
                return message->n_members == 0 && message->refusal.code != 0;
        if (message->kind != ORDER_PLACES)
                return true;
        if (message->n_members > 0 || message->places.n_waiting > LIMIT_SEATS ||
            message->places.places.grace > LIMIT_NUMBER)
                return false;
        for (uint32_t i = 0; i < message->places.n_waiting; i++)
                if (member_id_node(message->places.waiting[i]) != message->to)
                        return false;
        return true;
}

/* A coordinator asks for what a node can say. What a member has waited is a time. */
static bool note_valid(const struct message *message) {
        const struct message_note *about = &message->about;

        if (message->kind == ORDER_EXPLAIN)
                return message->n_members == 0 &&
                       (message->note == NOTE_FACTS || message->note == NOTE_LACKS);
        if (message->kind < ANSWER_REPORT)
                return message->note == NOTE_NONE;
        switch (message->note) {
        case NOTE_NONE:
        case NOTE_LACKS: return true;
        case NOTE_FACTS: return facts_valid(&about->facts);
        case NOTE_LATE: return about->waited > 0 && about->waited <= LIMIT_NUMBER;
        case NOTE_FAILED: return about->refusal.code != 0;
        default: return false;
        }
}

/* The members of the node that it is said to, by rank. */
static bool newgen_valid(const struct message *message) {
        if (message->world == 0 || message->source >= message->world || !set_valid(message, message->to) ||
            message->comm.number == 0)
                return false;
        for (uint32_t i = 0; i < message->n_members; i++)
                if (message->member_of[i].rank >= message->world ||
                    (i > 0 && message->member_of[i].rank <= message->member_of[i - 1].rank))
                        return false;
        return true;
}

bool message_valid(const struct message *message) {
        if ((unsigned)message->kind >= N_MESSAGE_KINDS || message->from >= LIMIT_NODES ||
            message->to >= LIMIT_NODES)
                return false;
        if (message->n_members > LIMIT_SEATS || message->n_gone > LIMIT_LOCAL ||
            message->world > LIMIT_WORLD || message->n_tracks > LIMIT_TRACKS ||
            message->n_words > NODESET_WORDS || message->n_plans > LIMIT_PLANS || !numbers_valid(message) ||
            !lanes_valid(message) || !plans_valid(message) || !told_valid(message) || !note_valid(message))
                return false;
        if ((unsigned)message->end >= N_JOB_ENDS || (unsigned)message->origin >= N_ORIGINS)
                return false;
        if (message->kind < ANSWER_REPORT && (message->term == 0 || message->from != COORDINATOR))
                return false;
        if (message->kind >= ANSWER_REPORT &&
            (message->stamp == 0 || message->to != COORDINATOR || !set_valid(message, message->from)))
                return false;
        if (message->kind == ORDER_NEWGEN && !newgen_valid(message))
                return false;
        for (uint32_t i = 0; i < message->n_members; i++)
                if (!member_valid(message, &message->member_of[i]))
                        return false;
        for (uint32_t i = 0; i < message->n_gone; i++)
                if (member_id_node(message->gone[i].member) != node_of(message))
                        return false;
        for (uint32_t track = 0; message->kind >= ANSWER_REPORT && track < message->n_tracks; track++)
                if (message->committed[track] > message->prepared[track] ||
                    message->prepared[track] - message->committed[track] > 1)
                        return false;
        return true;
}
