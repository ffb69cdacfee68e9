/* SPDX-License-Identifier: Apache-2.0 */
/* From orders and reports to protobuf-c's structs and back. Lists of pairs name the fields that are one value
 * on both sides; each list is used in both directions. */
#include "rendezvous/wire/peer.h"

#include <errno.h>

#include "peer.pb-c.h"
#include "proto/names.h"

#define VACANT_WORDS (LIMIT_VACANT / 64)

/* clang-format off */
#define FIELDS_GENERATION(X, ours, theirs) \
        X(ours.term, theirs##_term) X(ours.number, theirs##_number) X(ours.nonce, theirs##_nonce)
#define FIELDS_TAG(X, ours, theirs) \
        X(ours.incarnation, theirs##_incarnation) X(ours.term, theirs##_term) \
        X(ours.generation, theirs##_generation) X(ours.step, theirs##_step) \
        X(ours.checkpoint, theirs##_checkpoint) X(ours.plans, theirs##_plans)
#define FIELDS_ORDER(X) \
        X(kind, kind) X(to, to) X(instance, instance) X(term, term) X(round, round) X(stamp, stamp) \
        X(behind, behind) X(torn, torn) X(world, world) X(source, source) X(end, end) X(member, member) \
        X(next_plan, next_plan) X(note, note) X(ordinal, ordinal) X(index, index) \
        X(loss.member, loss_member) X(loss.rank, loss_rank) X(loss.pid, loss_pid) X(loss.cause, loss_cause) \
        FIELDS_GENERATION(X, generation, generation) FIELDS_GENERATION(X, comm, comm) \
        FIELDS_TAG(X, history, history)
#define FIELDS_REPORT(X) \
        X(kind, kind) X(from, from) X(instance, instance) X(term, term) X(round, round) X(stamp, stamp) \
        X(host, host) X(device, device) X(engine, engine) X(awaits, awaits) X(running, running) \
        X(wait, wait) X(away, away) X(behind, behind) X(torn, torn) X(cause, cause) X(world, world) \
        X(end, end) X(next_plan, next_plan) X(note, note) X(ordinal, ordinal) \
        FIELDS_GENERATION(X, generation, generation) FIELDS_GENERATION(X, comm, comm) \
        FIELDS_TAG(X, history, history)
#define FIELDS_ORDER_MEMBER(X) \
        X(member, member) X(rank, rank) X(slot, slot) X(id, id) X(behind, behind) FIELDS_TAG(X, tag, tag)
#define FIELDS_MEMBER(X) \
        X(rank, rank) X(slot, slot) X(id, id) X(in, in) X(behind, behind) X(leaving, leaving) \
        X(request.member, member) X(request.pid, pid) X(request.min_world, min_world) \
        X(request.max_world, max_world) X(request.has_rank, has_rank) X(request.rank, asked_rank) \
        X(request.has_slot, has_slot) X(request.slot, asked_slot) X(request.spare, spare) \
        X(request.returns, returns) X(request.incarnation, incarnation) X(request.timeout, timeout) \
        X(request.last_call, last_call) X(request.grace, grace) \
        X(request.identity, identity) X(request.instance, instance) FIELDS_TAG(X, tag, tag)
#define FIELDS_GONE(X) X(member, member) X(cause, cause) X(rank, rank) X(in, in)
#define FIELDS_PLAN(X) X(digest, digest) X(ordinal, ordinal) X(track, track) X(open, open) \
        X(unit, unit) X(turn, turn) X(before, before)
#define FIELDS_ORDER_PLAN(X) FIELDS_PLAN(X) X(kept, kept)
#define FIELDS_REPORT_PLAN(X) FIELDS_PLAN(X) X(voids, voids)
#define FIELDS_REFUSAL(X) X(code, code) X(has_culprit, has_culprit) X(rank, rank) X(pid, pid)
#define FIELDS_FACTS(X) \
        X(prefix, prefix) X(index, index) X(n_params, params) X(n_buckets, buckets) X(reduce, reduce) \
        X(voids, voids) X(placed, placed) X(dtype, dtype) X(bucket, bucket) X(bytes, bytes) \
        X(rank, rank) X(pid, pid)
/* clang-format on */
#define PUT(ours, theirs) to->theirs = from->ours;
#define TAKE(ours, theirs) to->ours = from->theirs;

/* A field that is new in one of these belongs into its list, and into peer.proto. */
_Static_assert(sizeof(struct tag) == 48 && sizeof(struct generation) == 16, "carried as it is");
_Static_assert(sizeof(struct membership_request) == 104 && sizeof(struct membership_loss) == 24, "likewise");
_Static_assert(sizeof(struct report_member) == 176 && sizeof(struct report_gone) == 24, "likewise");
_Static_assert(sizeof(struct order_member) == 80 && sizeof(struct places) == 40, "likewise");
_Static_assert(offsetof(struct order, mark) == 296 && offsetof(struct report, mark) == 280, "likewise");
_Static_assert(sizeof(struct order_plan) == 48 && sizeof(struct report_plan) == 48, "likewise");
_Static_assert(sizeof(struct plan_facts) == 376, "likewise");

static void refusal_put(Peer__Refusal *to, const struct refusal *from) {
        peer__refusal__init(to);
        FIELDS_REFUSAL(PUT)
        to->text = (ProtobufCBinaryData){ strnlen(from->text, sizeof(from->text)), (uint8_t *)from->text };
        to->parameter = (char *)from->parameter;
}

static void facts_put(Peer__Facts *to, const struct plan_facts *from) {
        peer__facts__init(to);
        FIELDS_FACTS(PUT)
        to->name = (char *)from->name;
        to->n_shape = from->dims;
        to->shape = (uint64_t *)from->shape;
}

struct about {
        Peer__About about;
        Peer__Facts facts;
        Peer__Refusal refusal;
};

static Peer__About *about_put(struct about *to, const struct report *report) {
        const struct report_note *from = &report->about;

        peer__about__init(&to->about);
        to->about.waited = report->note == NOTE_LATE ? from->waited : 0;
        if (report->note == NOTE_FACTS)
                facts_put(to->about.facts = &to->facts, &from->facts);
        if (report->note == NOTE_LACKS || report->note == NOTE_FAILED)
                refusal_put(to->about.refusal = &to->refusal, &from->refusal);
        return &to->about;
}

/* Without the zeros at its end. */
static bool set_put(struct scratch *scratch, ProtobufCBinaryData *to, struct nodeset from) {
        size_t n = (size_t)nodeset_length(from) * 8;

        to->data = n > 0 ? scratch_alloc(scratch, n) : NULL;
        if (to->data == NULL)
                return n == 0;
        for (size_t i = 0; i < n; i++)
                to->data[i] = (uint8_t)(from.word[i / 8] >> i % 8 * 8);
        while (to->data[n - 1] == 0)
                n--;
        to->len = n;
        return true;
}

static bool places_put(struct scratch *scratch, Peer__Places *to, const struct order_places *from) {
        peer__places__init(to);
        to->grace = from->places.grace;
        to->n_waiting = from->n_waiting;
        to->waiting = (uint64_t *)from->waiting;
        return set_put(scratch, &to->vacant,
                       (struct nodeset){ (uint64_t *)from->places.vacant, VACANT_WORDS });
}

/* Room for `n` structs of protobuf-c, and for the pointers to them. False: there is none. */
#define ROOM(scratch, n, ret_pointers, ret_structs)                                                          \
        ((ret_structs) = scratch_alloc(scratch, (n) * sizeof(*(ret_structs))),                               \
         (ret_pointers) = scratch_alloc(scratch, (n) * sizeof(*(ret_pointers))), (ret_pointers) != NULL)

static bool order_members_put(struct scratch *scratch, Peer__Order *order, const struct order *said) {
        Peer__OrderMember *member;

        order->n_member_of = said->n_members;
        if (!ROOM(scratch, said->n_members, order->member_of, member))
                return false;
        for (uint32_t i = 0; i < said->n_members; i++) {
                const struct order_member *from = &said->member_of[i];
                Peer__OrderMember *to = order->member_of[i] = &member[i];

                peer__order_member__init(to);
                FIELDS_ORDER_MEMBER(PUT)
        }
        return true;
}

static bool order_plans_put(struct scratch *scratch, Peer__Order *order, const struct order *said) {
        Peer__OrderPlan *plan;

        order->n_plan = said->n_plans;
        if (!ROOM(scratch, said->n_plans, order->plan, plan))
                return false;
        for (uint32_t i = 0; i < said->n_plans; i++) {
                const struct order_plan *from = &said->plan[i];
                Peer__OrderPlan *to = order->plan[i] = &plan[i];

                peer__order_plan__init(to);
                FIELDS_ORDER_PLAN(PUT)
        }
        return true;
}

static bool report_members_put(struct scratch *scratch, Peer__Report *report, const struct report *said) {
        Peer__Member *member;

        report->n_member_of = said->n_members;
        if (!ROOM(scratch, said->n_members, report->member_of, member))
                return false;
        for (uint32_t i = 0; i < said->n_members; i++) {
                const struct report_member *from = &said->member_of[i];
                Peer__Member *to = report->member_of[i] = &member[i];

                peer__member__init(to);
                FIELDS_MEMBER(PUT)
        }
        return true;
}

static bool report_gone_put(struct scratch *scratch, Peer__Report *report, const struct report *said) {
        Peer__Gone *gone;

        report->n_gone = said->n_gone;
        if (!ROOM(scratch, said->n_gone, report->gone, gone))
                return false;
        for (uint32_t i = 0; i < said->n_gone; i++) {
                const struct report_gone *from = &said->gone[i];
                Peer__Gone *to = report->gone[i] = &gone[i];

                peer__gone__init(to);
                FIELDS_GONE(PUT)
        }
        return true;
}

static bool report_plans_put(struct scratch *scratch, Peer__Report *report, const struct report *said) {
        Peer__ReportPlan *plan;

        report->n_plan = said->n_plans;
        if (!ROOM(scratch, said->n_plans, report->plan, plan))
                return false;
        for (uint32_t i = 0; i < said->n_plans; i++) {
                const struct report_plan *from = &said->plan[i];
                Peer__ReportPlan *to = report->plan[i] = &plan[i];

                peer__report_plan__init(to);
                FIELDS_REPORT_PLAN(PUT)
        }
        return true;
}

/* The numbers of a lane each, without the zeros at the end. */
static size_t lanes_put(uint64_t **to, const uint64_t from[LIMIT_LANES]) {
        size_t n = LIMIT_LANES;

        while (n > 0 && from[n - 1] == 0)
                n--;
        *to = (uint64_t *)from;
        return n;
}

ssize_t peer_encode_order(struct scratch *scratch, const struct order *from, uint8_t out[PEER_MAX]) {
        Peer__Order order = PEER__ORDER__INIT, *to = &order;
        Peer__Refusal refusal;
        Peer__Places places;

        if (!order_valid(from))
                return -EINVAL;
        scratch_begin(scratch);
        to->major = PEER_MAJOR;
        to->minor = PEER_MINOR;
        FIELDS_ORDER(PUT)
        to->n_seq = lanes_put(&to->seq, from->seq);
        to->n_go = lanes_put(&to->go, from->go);
        to->n_mark = from->n_tracks;
        to->mark = (uint64_t *)from->mark;
        if (from->kind == ORDER_NEWGEN && !sha256_is_none(&from->secret))
                to->secret = (ProtobufCBinaryData){ sizeof(from->secret.byte), (uint8_t *)from->secret.byte };
        if (from->kind == ORDER_REFUSE || from->kind == ORDER_REJECT)
                refusal_put(to->refusal = &refusal, &from->refusal);
        if (from->kind == ORDER_PLACES && !places_put(scratch, to->places = &places, &from->places))
                return -EMSGSIZE;
        if (!set_put(scratch, &to->set, order_set(from)) || !order_members_put(scratch, to, from) ||
            !order_plans_put(scratch, to, from))
                return -EMSGSIZE;
        return (ssize_t)peer__order__pack(to, out);
}

ssize_t peer_encode_report(struct scratch *scratch, const struct report *from, uint8_t out[PEER_MAX]) {
        Peer__Report report = PEER__REPORT__INIT, *to = &report;
        struct about about;

        if (!report_valid(from))
                return -EINVAL;
        scratch_begin(scratch);
        to->major = PEER_MAJOR;
        to->minor = PEER_MINOR;
        FIELDS_REPORT(PUT)
        to->n_seq = lanes_put(&to->seq, from->seq);
        to->n_ready = lanes_put(&to->ready, from->ready);
        to->n_go = lanes_put(&to->go, from->go);
        to->n_mark = to->n_committed = to->n_prepared = from->n_tracks;
        to->mark = (uint64_t *)from->mark;
        to->committed = (uint64_t *)from->committed;
        to->prepared = (uint64_t *)from->prepared;
        if (from->note != NOTE_NONE)
                to->about = about_put(&about, from);
        if (!set_put(scratch, &to->set, report_set(from)) ||
            !set_put(scratch, &to->links, report_links(from)) || !report_members_put(scratch, to, from) ||
            !report_gone_put(scratch, to, from) || !report_plans_put(scratch, to, from))
                return -EMSGSIZE;
        return (ssize_t)peer__report__pack(to, out);
}

static bool name_take(char to[LIMIT_NAME + 1], const char *from) {
        size_t length = strlen(from);

        if (length > 0 && !name_valid(from))
                return false;
        memcpy(to, from, length + 1);
        return true;
}

static bool refusal_take(struct refusal *to, const Peer__Refusal *from) {
        *to = (struct refusal){ 0 };
        if (from == NULL)
                return true;
        FIELDS_REFUSAL(TAKE)
        if (!name_take(to->parameter, from->parameter))
                return false;
        if (from->text.len == 0)
                return true;
        if (from->text.len >= sizeof(to->text) || memchr(from->text.data, 0, from->text.len) != NULL ||
            !utf8_valid((const char *)from->text.data, from->text.len))
                return false;
        memcpy(to->text, from->text.data, from->text.len);
        return true;
}

static bool about_take(struct report *report, const Peer__About *about) {
        struct report_note *note = &report->about;
        const Peer__Facts *from = about != NULL ? about->facts : NULL;
        struct plan_facts *to = &note->facts;

        *note = (struct report_note){ .waited = about != NULL ? about->waited : 0 };
        if (report->note == NOTE_LACKS || report->note == NOTE_FAILED)
                return refusal_take(&note->refusal, about != NULL ? about->refusal : NULL);
        if (report->note != NOTE_FACTS || from == NULL)
                return true;
        FIELDS_FACTS(TAKE)
        if (from->n_shape > LIMIT_DIMS || !name_take(to->name, from->name))
                return false;
        to->dims = (uint32_t)from->n_shape;
        for (size_t i = 0; i < from->n_shape; i++)
                to->shape[i] = from->shape[i];
        return true;
}

static void set_take(struct nodeset to, const ProtobufCBinaryData *from) {
        nodeset_clear(to);
        for (size_t i = 0; i < from->len; i++)
                to.word[i / 8] |= (uint64_t)from->data[i] << i % 8 * 8;
}

/* False: a node has too high an address. */
static bool order_nodes_take(struct order *to, const Peer__Order *from) {
        if (from->set.len > sizeof(to->set))
                return false;
        to->n_words = (uint32_t)(from->set.len + 7) / 8;
        set_take(order_set(to), &from->set);
        return true;
}

static bool report_nodes_take(struct report *to, const Peer__Report *from) {
        size_t longer = from->set.len > from->links.len ? from->set.len : from->links.len;

        if (longer > sizeof(to->set))
                return false;
        to->n_words = (uint32_t)(longer + 7) / 8;
        set_take(report_set(to), &from->set);
        set_take(report_links(to), &from->links);
        return true;
}

static bool waiting_take(struct order_places *to, const Peer__Places *from) {
        *to = (struct order_places){ 0 };
        if (from == NULL)
                return true;
        if (from->vacant.len > VACANT_WORDS * 8 || from->n_waiting > LIMIT_SEATS)
                return false;
        to->places.grace = from->grace;
        set_take((struct nodeset){ to->places.vacant, VACANT_WORDS }, &from->vacant);
        to->n_waiting = (uint32_t)from->n_waiting;
        for (uint32_t i = 0; i < to->n_waiting; i++)
                to->waiting[i] = from->waiting[i];
        return true;
}

static bool lanes_take(uint64_t to[LIMIT_LANES], const uint64_t *from, size_t n) {
        for (size_t i = 0; i < n && n <= LIMIT_LANES; i++)
                to[i] = from[i];
        return n <= LIMIT_LANES;
}

static bool secret_take(struct order *to, const ProtobufCBinaryData *from) {
        if (from->len == 0)
                return true;
        if (to->kind != ORDER_NEWGEN || from->len != sizeof(to->secret.byte))
                return false;
        memcpy(to->secret.byte, from->data, from->len);
        return true;
}

static bool order_tracks_take(struct order *to, const Peer__Order *from) {
        if (!lanes_take(to->seq, from->seq, from->n_seq) || !lanes_take(to->go, from->go, from->n_go) ||
            from->n_mark > LIMIT_TRACKS)
                return false;
        to->n_tracks = (uint32_t)from->n_mark;
        for (size_t i = 0; i < from->n_mark; i++)
                to->mark[i] = from->mark[i];
        return true;
}

static bool order_members_take(struct order *order, const Peer__Order *said) {
        if (said->n_member_of > (order->kind == ORDER_NEWGEN ? LIMIT_SEATS : 0))
                return false;
        order->n_members = (uint32_t)said->n_member_of;
        for (uint32_t i = 0; i < order->n_members; i++) {
                const Peer__OrderMember *from = said->member_of[i];
                struct order_member *to = &order->member_of[i];

                *to = (struct order_member){ 0 };
                FIELDS_ORDER_MEMBER(TAKE)
        }
        return true;
}

static bool order_plans_take(struct order *order, const Peer__Order *said) {
        if (said->n_plan > LIMIT_PLANS)
                return false;
        order->n_plans = (uint32_t)said->n_plan;
        for (uint32_t i = 0; i < order->n_plans; i++) {
                const Peer__OrderPlan *from = said->plan[i];
                struct order_plan *to = &order->plan[i];

                FIELDS_ORDER_PLAN(TAKE)
        }
        return true;
}

/* Returns the mistake in it; NULL if there is none. */
static const char *order_take(struct order *to, const Peer__Order *from) {
        if (from->major != PEER_MAJOR)
                return "it is of another major version";
        order_clear(to);
        FIELDS_ORDER(TAKE)
        if ((to->kind == ORDER_REFUSE || to->kind == ORDER_REJECT) &&
            !refusal_take(&to->refusal, from->refusal))
                return "its text is too long, or not UTF-8";
        if (to->kind == ORDER_PLACES && !waiting_take(&to->places, from->places))
                return "it names too many places, or members that wait";
        if (!order_nodes_take(to, from))
                return "it names a node with too high an address";
        if (!order_tracks_take(to, from))
                return "it is about too many lanes or tracks";
        if (!secret_take(to, &from->secret))
                return "it has a secret that is none";
        if (!order_members_take(to, from))
                return "it names too many members";
        if (!order_plans_take(to, from))
                return "it names too many plans";
        return order_valid(to) ? NULL : "its fields contradict each other, or are out of range";
}

static bool report_tracks_take(struct report *to, const Peer__Report *from) {
        size_t n = from->n_mark;

        if (!lanes_take(to->seq, from->seq, from->n_seq) ||
            !lanes_take(to->ready, from->ready, from->n_ready) || !lanes_take(to->go, from->go, from->n_go) ||
            n > LIMIT_TRACKS || from->n_committed != n || from->n_prepared != n)
                return false;
        to->n_tracks = (uint32_t)n;
        for (size_t i = 0; i < n; i++) {
                to->mark[i] = from->mark[i];
                to->committed[i] = from->committed[i];
                to->prepared[i] = from->prepared[i];
        }
        return true;
}

/* The node says once where its members live. */
static bool report_members_take(struct report *report, const Peer__Report *said) {
        if (said->n_member_of > LIMIT_SEATS)
                return false;
        report->n_members = (uint32_t)said->n_member_of;
        for (uint32_t i = 0; i < report->n_members; i++) {
                const Peer__Member *from = said->member_of[i];
                struct report_member *to = &report->member_of[i];

                *to = (struct report_member){ 0 };
                FIELDS_MEMBER(TAKE)
                to->request.host = report->host;
                to->request.device = report->device;
                to->request.node = report->from;
        }
        return true;
}

static bool report_gone_take(struct report *report, const Peer__Report *said) {
        if (said->n_gone > LIMIT_LOCAL)
                return false;
        report->n_gone = (uint32_t)said->n_gone;
        for (uint32_t i = 0; i < report->n_gone; i++) {
                const Peer__Gone *from = said->gone[i];
                struct report_gone *to = &report->gone[i];

                FIELDS_GONE(TAKE)
        }
        return true;
}

static bool report_plans_take(struct report *report, const Peer__Report *said) {
        if (said->n_plan > LIMIT_PLANS)
                return false;
        report->n_plans = (uint32_t)said->n_plan;
        for (uint32_t i = 0; i < report->n_plans; i++) {
                const Peer__ReportPlan *from = said->plan[i];
                struct report_plan *to = &report->plan[i];

                FIELDS_REPORT_PLAN(TAKE)
        }
        return true;
}

static const char *report_take(struct report *to, const Peer__Report *from) {
        if (from->major != PEER_MAJOR)
                return "it is of another major version";
        report_clear(to);
        FIELDS_REPORT(TAKE)
        if (to->note != NOTE_NONE && !about_take(to, from->about))
                return "what it says of a plan makes no sense";
        if (!report_nodes_take(to, from))
                return "it names a node with too high an address";
        if (!report_tracks_take(to, from))
                return "it is about too many lanes or tracks, or does not say all of each";
        if (!report_members_take(to, from) || !report_gone_take(to, from))
                return "it names too many members";
        if (!report_plans_take(to, from))
                return "it names too many plans";
        return report_valid(to) ? NULL : "its fields contradict each other, or are out of range";
}

/* Why the bytes could not be unpacked. */
static const char *peer_mistake(const struct scratch *scratch, size_t length) {
        if (length > PEER_MAX)
                return "it is too long";
        return scratch_exhausted(scratch) ? "it is too complex" : "it is malformed";
}

bool peer_decode_order(struct scratch *scratch, const void *bytes, size_t length, struct order *ret,
                       const char **ret_why) {
        const Peer__Order *order = NULL;

        if (length <= PEER_MAX)
                order = peer__order__unpack(scratch_begin(scratch), length, bytes);
        *ret_why = order != NULL ? order_take(ret, order) : peer_mistake(scratch, length);
        return *ret_why == NULL;
}

bool peer_decode_report(struct scratch *scratch, const void *bytes, size_t length, struct report *ret,
                        const char **ret_why) {
        const Peer__Report *report = NULL;

        if (length <= PEER_MAX)
                report = peer__report__unpack(scratch_begin(scratch), length, bytes);
        *ret_why = report != NULL ? report_take(ret, report) : peer_mistake(scratch, length);
        return *ret_why == NULL;
}
