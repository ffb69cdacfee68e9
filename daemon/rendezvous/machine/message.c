/* SPDX-License-Identifier: Apache-2.0 */
/* Orders, reports and tags by themselves, without a state. See message.h. */
#include "rendezvous/machine/message.h"

#include "proto/frame.h"

const char *order_name(enum order_kind kind) {
        static const char *const names[N_ORDERS] = {
                "COLLECT", "RUN",   "HOLD", "STOP",   "FREEZE", "CUT",     "ABORT",  "VERDICT",
                "NEWGEN",  "FENCE", "END",  "REFUSE", "PLACES", "EXPLAIN", "REJECT",
        };

        return (unsigned)kind < N_ORDERS ? names[kind] : "?";
}

const char *report_name(enum report_kind kind) {
        static const char *const names[N_ANSWERS] = {
                "nothing", "report", "held", "paused", "frozen", "drained", "aborted", "settled", "ack",
        };

        return (unsigned)kind < N_ANSWERS ? names[kind] : "?";
}

void order_name_nodes(struct order *order, struct nodeset set) {
        order->n_words = nodeset_length(set);
        nodeset_copy(order_set(order), set);
}

void report_name_nodes(struct report *report, struct nodeset set, struct nodeset links) {
        uint32_t set_length = nodeset_length(set), links_length = nodeset_length(links);

        report->n_words = set_length > links_length ? set_length : links_length;
        nodeset_copy(report_set(report), set);
        nodeset_copy(report_links(report), links);
}

void order_copy(struct order *to, const struct order *from) {
        memcpy(to, from, offsetof(struct order, mark));
        memcpy(to->mark, from->mark, from->n_tracks * sizeof(from->mark[0]));
        memcpy(to->plan, from->plan, from->n_plans * sizeof(from->plan[0]));
        memcpy(to->set, from->set, from->n_words * sizeof(from->set[0]));
        if (from->kind == ORDER_REFUSE || from->kind == ORDER_REJECT)
                to->refusal = from->refusal;
        else if (from->kind == ORDER_PLACES)
                memcpy(&to->places, &from->places,
                       offsetof(struct order_places, waiting) +
                               from->places.n_waiting * sizeof(from->places.waiting[0]));
        else
                memcpy(to->member_of, from->member_of, from->n_members * sizeof(from->member_of[0]));
}

void report_copy(struct report *to, const struct report *from) {
        const size_t tracks = from->n_tracks * sizeof(from->mark[0]),
                     words = from->n_words * sizeof(from->set[0]);

        memcpy(to, from, offsetof(struct report, mark));
        memcpy(to->mark, from->mark, tracks);
        memcpy(to->committed, from->committed, tracks);
        memcpy(to->prepared, from->prepared, tracks);
        memcpy(to->plan, from->plan, from->n_plans * sizeof(from->plan[0]));
        memcpy(to->set, from->set, words);
        memcpy(to->links, from->links, words);
        memcpy(to->member_of, from->member_of, from->n_members * sizeof(from->member_of[0]));
        memcpy(to->gone, from->gone, from->n_gone * sizeof(from->gone[0]));
        if (from->note != NOTE_NONE)
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

static bool generation_valid(struct generation generation) {
        return generation.term <= LIMIT_NUMBER && generation.number <= LIMIT_GENERATION;
}

/* ---- plans: no track is that of two, and no turn that of two units ---- */

struct tracks_used {
        uint64_t word[(LIMIT_TRACKS + 63) / 64];
};

static bool track_use(struct tracks_used *used, uint32_t track) {
        uint64_t bit = UINT64_C(1) << track % 64;

        if (track >= LIMIT_TRACKS || (track_is_step(track) && (used->word[track / 64] & bit) != 0))
                return false;
        used->word[track / 64] |= bit;
        return true;
}

/* A coordinator speaks of no unit without a turn. */
static bool ordered_unit_valid(const struct order *order, const struct order_plan *plan) {
        if (plan->unit == 0)
                return plan->turn == 0;
        return plan->unit <= LIMIT_NUMBER && plan->turn <= LIMIT_NUMBER && track_is_step(plan->track) &&
               plan->track < order->n_tracks && plan->open && plan->turn > 0;
}

static bool ordered_plans_valid(const struct order *order) {
        struct tracks_used used = { 0 };

        for (uint32_t i = 0; i < order->n_plans; i++) {
                const struct order_plan *plan = &order->plan[i];

                if (!track_use(&used, plan->track) || !ordered_unit_valid(order, plan) ||
                    plan->before > LIMIT_NUMBER)
                        return false;
                for (uint32_t k = 0; k < i && plan->turn > 0; k++)
                        if (order->plan[k].turn == plan->turn)
                                return false;
        }
        return true;
}

/* A node speaks of the unit that is open there. */
static bool reported_unit_valid(const struct report *report, const struct report_plan *plan) {
        if (plan->unit == 0)
                return plan->turn == 0;
        return plan->unit <= LIMIT_NUMBER && plan->turn <= LIMIT_NUMBER && track_is_step(plan->track) &&
               plan->track < report->n_tracks && plan->open &&
               plan->unit == report->committed[plan->track] + 1;
}

static bool reported_plans_valid(const struct report *report) {
        struct tracks_used used = { 0 };

        for (uint32_t i = 0; i < report->n_plans; i++) {
                const struct report_plan *plan = &report->plan[i];

                if (!track_use(&used, plan->track) || !reported_unit_valid(report, plan) ||
                    plan->before > LIMIT_NUMBER)
                        return false;
                for (uint32_t k = 0; k < i && plan->turn > 0; k++)
                        if (report->plan[k].turn == plan->turn)
                                return false;
        }
        return true;
}

/* ---- orders ---- */

/* Far enough from where they would wrap. */
static bool ordered_numbers_valid(const struct order *order) {
        bool valid = order->term <= LIMIT_NUMBER && order->round <= LIMIT_NUMBER &&
                     order->stamp <= LIMIT_NUMBER && order->history.step <= LIMIT_NUMBER &&
                     generation_valid(order->generation) && generation_valid(order->comm);

        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                valid &= order->seq[lane] <= LIMIT_NUMBER && order->go[lane] <= LIMIT_NUMBER;
        for (uint32_t track = 0; track < order->n_tracks; track++)
                valid &= order->mark[track] <= LIMIT_NUMBER;
        return valid;
}

/* Only members of the node that hears the order are named in it. Code 0 is that of a goodbye. */
static bool told_valid(const struct order *order) {
        if (order->kind == ORDER_REFUSE)
                return member_id_node(order->member) == order->to &&
                       (order->refusal.code == 0) == (order->end == JOB_END_NONE);
        if (order->kind == ORDER_REJECT)
                return order->refusal.code != 0;
        if (order->kind == ORDER_EXPLAIN)
                return order->note == NOTE_FACTS || order->note == NOTE_LACKS;
        if (order->kind != ORDER_PLACES)
                return true;
        if (order->places.n_waiting > LIMIT_SEATS || order->places.places.grace > LIMIT_NUMBER)
                return false;
        for (uint32_t i = 0; i < order->places.n_waiting; i++)
                if (member_id_node(order->places.waiting[i]) != order->to)
                        return false;
        return true;
}

/* The nodes of the generation include the one that hears of it, and its members stand by rank. */
static bool newgen_valid(const struct order *order) {
        if (order->world == 0 || order->source >= order->world || order->generation.number == 0 ||
            !nodeset_has(order_set(order), order->to) || order->comm.number == 0)
                return false;
        for (uint32_t i = 0; i < order->n_members; i++) {
                const struct order_member *member = &order->member_of[i];

                if (member->member == 0 || member_id_node(member->member) != order->to ||
                    member->rank >= order->world || member->slot >= LIMIT_WORLD ||
                    member->tag.step > LIMIT_NUMBER ||
                    (i > 0 && member->rank <= order->member_of[i - 1].rank))
                        return false;
        }
        return true;
}

bool order_valid(const struct order *order) {
        if ((unsigned)order->kind >= N_ORDERS || order->to >= LIMIT_NODES || order->term == 0)
                return false;
        if (order->n_members > (order->kind == ORDER_NEWGEN ? LIMIT_SEATS : 0) ||
            order->world > LIMIT_WORLD || order->n_tracks > LIMIT_TRACKS || order->n_words > NODESET_WORDS ||
            order->n_plans > LIMIT_PLANS || (unsigned)order->end >= N_JOB_ENDS)
                return false;
        if (order->note != NOTE_NONE && order->kind != ORDER_EXPLAIN)
                return false;
        return ordered_numbers_valid(order) && ordered_plans_valid(order) && told_valid(order) &&
               (order->kind != ORDER_NEWGEN || newgen_valid(order));
}

/* ---- reports ---- */

static bool reported_numbers_valid(const struct report *report) {
        bool valid = report->term <= LIMIT_NUMBER && report->round <= LIMIT_NUMBER &&
                     report->stamp <= LIMIT_NUMBER && report->history.step <= LIMIT_NUMBER &&
                     generation_valid(report->generation) && generation_valid(report->comm);

        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                valid &= report->seq[lane] <= LIMIT_NUMBER && report->go[lane] <= LIMIT_NUMBER &&
                         report->ready[lane] <= LIMIT_NUMBER;
        for (uint32_t track = 0; track < report->n_tracks; track++)
                valid &= report->mark[track] <= LIMIT_NUMBER && report->prepared[track] <= LIMIT_NUMBER;
        return valid;
}

/* A node launches what it may, may what it is ready for, and is ready for no more than a window. */
static bool lanes_valid(const struct report *report) {
        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++) {
                uint64_t seq = report->seq[lane], go = report->go[lane], ready = report->ready[lane];

                if (go > ready || (ready > 0 && (seq > go || ready - seq > LIMIT_WINDOW)))
                        return false;
        }
        return true;
}

static bool tracks_valid(const struct report *report) {
        for (uint32_t track = 0; track < report->n_tracks; track++)
                if (report->committed[track] > report->prepared[track] ||
                    report->prepared[track] - report->committed[track] > 1)
                        return false;
        return true;
}

static bool member_valid(const struct report *report, const struct report_member *member) {
        const struct membership_request *request = &member->request;

        if (request->member == 0 || member_id_node(request->member) != report->from ||
            request->timeout > LIMIT_NUMBER || request->last_call > LIMIT_NUMBER ||
            request->grace > LIMIT_NUMBER || member->tag.step > LIMIT_NUMBER)
                return false;
        if (request->min_world == 0 || request->min_world > request->max_world ||
            request->max_world > LIMIT_WORLD)
                return false;
        if (request->rank >= LIMIT_WORLD || request->slot >= LIMIT_WORLD || member->slot >= LIMIT_WORLD)
                return false;
        return !member->in || member->rank < report->world; /* and then there is a generation */
}

static bool members_valid(const struct report *report) {
        for (uint32_t i = 0; i < report->n_members; i++)
                if (!member_valid(report, &report->member_of[i]))
                        return false;
        for (uint32_t i = 0; i < report->n_gone; i++)
                if (member_id_node(report->gone[i].member) != report->from ||
                    (report->gone[i].in && report->gone[i].rank >= report->world))
                        return false;
        return true;
}

/* The time that a member has waited is a time. */
static bool note_valid(const struct report *report) {
        const struct report_note *about = &report->about;

        switch (report->note) {
        case NOTE_NONE:
        case NOTE_LACKS: return true;
        case NOTE_FACTS: return facts_valid(&about->facts);
        case NOTE_LATE: return about->waited > 0 && about->waited <= LIMIT_NUMBER;
        case NOTE_FAILED: return about->refusal.code != 0;
        default: return false;
        }
}

bool report_valid(const struct report *report) {
        if (report->kind == ANSWER_NONE || (unsigned)report->kind >= N_ANSWERS ||
            report->from >= LIMIT_NODES || report->stamp == 0)
                return false;
        if (report->n_members > LIMIT_SEATS || report->n_gone > LIMIT_LOCAL || report->world > LIMIT_WORLD ||
            report->n_tracks > LIMIT_TRACKS || report->n_words > NODESET_WORDS ||
            report->n_plans > LIMIT_PLANS || (unsigned)report->end >= N_JOB_ENDS)
                return false;
        if (report->world > 0 &&
            (report->generation.number == 0 || !nodeset_has(report_set(report), report->from)))
                return false;
        return reported_numbers_valid(report) && lanes_valid(report) && reported_plans_valid(report) &&
               note_valid(report) && tracks_valid(report) && members_valid(report);
}
