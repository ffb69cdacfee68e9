/* SPDX-License-Identifier: Apache-2.0 */
/* From a struct message to protobuf-c's structs and back. What is one value on both sides is copied by a list
 * of pairs, the same one in both directions. */
#include "rendezvous/peer.h"

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
#define FIELDS_MESSAGE(X) \
        X(kind, kind) X(from, from) X(to, to) X(instance, instance) X(term, term) X(round, round) \
        X(stamp, stamp) X(host, host) X(device, device) X(engine, engine) \
        X(origin, origin) X(running, running) X(wait, wait) X(away, away) X(cause, cause) X(world, world) \
        X(source, source) X(behind, behind) X(torn, torn) X(end, end) X(member, member) \
        X(next_plan, next_plan) X(note, note) X(ordinal, ordinal) X(index, index) \
        X(loss.member, loss_member) X(loss.rank, loss_rank) X(loss.pid, loss_pid) X(loss.cause, loss_cause) \
        FIELDS_GENERATION(X, generation, generation) FIELDS_GENERATION(X, comm, comm) \
        FIELDS_TAG(X, history, history)
#define FIELDS_MEMBER(X) \
        X(rank, rank) X(slot, slot) X(id, id) X(in, in) X(behind, behind) X(leaving, leaving) \
        X(request.member, member) X(request.pid, pid) X(request.min_world, min_world) \
        X(request.max_world, max_world) X(request.has_rank, has_rank) X(request.rank, asked_rank) \
        X(request.has_slot, has_slot) X(request.slot, asked_slot) X(request.spare, spare) \
        X(request.returns, returns) X(request.incarnation, incarnation) X(request.timeout, timeout) \
        X(request.last_call, last_call) X(request.grace, grace) \
        X(request.identity, identity) X(request.instance, instance) FIELDS_TAG(X, tag, tag)
#define FIELDS_GONE(X) X(member, member) X(cause, cause)
#define FIELDS_PLAN(X) X(digest, digest) X(ordinal, ordinal) X(track, track) X(open, open) \
        X(unit, unit) X(turn, turn) X(before, before) X(voids, voids) X(kept, kept)
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
_Static_assert(sizeof(struct message_member) == 176 && sizeof(struct message_gone) == 16, "likewise");
_Static_assert(offsetof(struct message, mark) == 368 && sizeof(struct places) == 40, "likewise");
_Static_assert(sizeof(struct message_plan) == 48 && sizeof(struct plan_facts) == 376, "likewise");

/* Only answers say what a node has committed and is prepared for. */
static bool peer_says_units(enum message_kind kind) {
        return kind >= ANSWER_REPORT;
}

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

static Peer__About *about_put(struct about *to, const struct message *message) {
        const struct message_note *from = &message->about;

        peer__about__init(&to->about);
        to->about.waited = message->note == NOTE_LATE ? from->waited : 0;
        if (message->note == NOTE_FACTS)
                facts_put(to->about.facts = &to->facts, &from->facts);
        if (message->note == NOTE_LACKS || message->note == NOTE_FAILED)
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

static bool places_put(struct scratch *scratch, Peer__Places *to, const struct message_places *from) {
        peer__places__init(to);
        to->grace = from->places.grace;
        to->n_waiting = from->n_waiting;
        to->waiting = (uint64_t *)from->waiting;
        return set_put(scratch, &to->vacant,
                       (struct nodeset){ (uint64_t *)from->places.vacant, VACANT_WORDS });
}

static bool members_put(struct scratch *scratch, Peer__Message *message, const struct message *said) {
        Peer__Member *member = scratch_alloc(scratch, said->n_members * sizeof(*member));

        message->n_member_of = said->n_members;
        message->member_of = scratch_alloc(scratch, said->n_members * sizeof(member));
        if (message->member_of == NULL)
                return false;
        for (uint32_t i = 0; i < said->n_members; i++) {
                const struct message_member *from = &said->member_of[i];
                Peer__Member *to = message->member_of[i] = &member[i];

                peer__member__init(to);
                FIELDS_MEMBER(PUT)
        }
        return true;
}

static bool gone_put(struct scratch *scratch, Peer__Message *message, const struct message *said) {
        Peer__Gone *gone = scratch_alloc(scratch, said->n_gone * sizeof(*gone));

        message->n_gone = said->n_gone;
        message->gone = scratch_alloc(scratch, said->n_gone * sizeof(gone));
        if (message->gone == NULL)
                return false;
        for (uint32_t i = 0; i < said->n_gone; i++) {
                const struct message_gone *from = &said->gone[i];
                Peer__Gone *to = message->gone[i] = &gone[i];

                peer__gone__init(to);
                FIELDS_GONE(PUT)
        }
        return true;
}

static bool plans_put(struct scratch *scratch, Peer__Message *message, const struct message *said) {
        Peer__Plan *plan = scratch_alloc(scratch, said->n_plans * sizeof(*plan));

        message->n_plan = said->n_plans;
        message->plan = scratch_alloc(scratch, said->n_plans * sizeof(plan));
        if (message->plan == NULL)
                return false;
        for (uint32_t i = 0; i < said->n_plans; i++) {
                const struct message_plan *from = &said->plan[i];
                Peer__Plan *to = message->plan[i] = &plan[i];

                peer__plan__init(to);
                FIELDS_PLAN(PUT)
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

static void secret_put(ProtobufCBinaryData *to, const struct message *from) {
        if (from->kind == ORDER_NEWGEN && !sha256_is_none(&from->secret))
                *to = (ProtobufCBinaryData){ sizeof(from->secret.byte), (uint8_t *)from->secret.byte };
}

static void tracks_put(Peer__Message *to, const struct message *from) {
        to->n_seq = lanes_put(&to->seq, from->seq);
        to->n_ready = lanes_put(&to->ready, from->ready);
        to->n_go = lanes_put(&to->go, from->go);
        to->n_mark = from->n_tracks;
        to->mark = (uint64_t *)from->mark;
        to->n_committed = to->n_prepared = peer_says_units(from->kind) ? from->n_tracks : 0;
        to->committed = (uint64_t *)from->committed;
        to->prepared = (uint64_t *)from->prepared;
}

ssize_t peer_encode(struct scratch *scratch, const struct message *from, uint8_t out[PEER_MAX]) {
        Peer__Message message = PEER__MESSAGE__INIT, *to = &message;
        Peer__Refusal refusal;
        Peer__Places places;
        struct about about;

        if (!message_valid(from))
                return -EINVAL;
        scratch_begin(scratch);
        to->major = PEER_MAJOR;
        to->minor = PEER_MINOR;
        FIELDS_MESSAGE(PUT)
        tracks_put(to, from);
        secret_put(&to->secret, from);
        if (message_has_note(from))
                to->about = about_put(&about, from);
        if (from->kind == ORDER_REFUSE || from->kind == ORDER_REJECT)
                refusal_put(to->refusal = &refusal, &from->refusal);
        if (from->kind == ORDER_PLACES && !places_put(scratch, to->places = &places, &from->places))
                return -EMSGSIZE;
        if (!set_put(scratch, &to->set, message_set(from)) ||
            !set_put(scratch, &to->links, message_links(from)) || !members_put(scratch, to, from) ||
            !gone_put(scratch, to, from) || !plans_put(scratch, to, from))
                return -EMSGSIZE;
        return (ssize_t)peer__message__pack(to, out);
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

static bool about_take(struct message *message, const Peer__About *about) {
        struct message_note *note = &message->about;
        const Peer__Facts *from = about != NULL ? about->facts : NULL;
        struct plan_facts *to = &note->facts;

        *note = (struct message_note){ .waited = about != NULL ? about->waited : 0 };
        if (message->note == NOTE_LACKS || message->note == NOTE_FAILED)
                return refusal_take(&note->refusal, about != NULL ? about->refusal : NULL);
        if (message->note != NOTE_FACTS || from == NULL)
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

static bool nodes_take(struct message *to, const Peer__Message *from) {
        size_t longer = from->set.len > from->links.len ? from->set.len : from->links.len;

        if (longer > NODESET_WORDS * 8)
                return false;
        to->n_words = (uint32_t)(longer + 7) / 8;
        set_take(message_set(to), &from->set);
        set_take(message_links(to), &from->links);
        return true;
}

static bool waiting_take(struct message_places *to, const Peer__Places *from) {
        *to = (struct message_places){ 0 };
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

static bool tracks_take(struct message *to, const Peer__Message *from) {
        size_t n = peer_says_units(to->kind) ? from->n_mark : 0;

        if (!lanes_take(to->seq, from->seq, from->n_seq) ||
            !lanes_take(to->ready, from->ready, from->n_ready) || !lanes_take(to->go, from->go, from->n_go) ||
            from->n_mark > LIMIT_TRACKS || from->n_committed != n || from->n_prepared != n)
                return false;
        to->n_tracks = (uint32_t)from->n_mark;
        for (size_t i = 0; i < from->n_mark; i++)
                to->mark[i] = from->mark[i];
        for (size_t i = 0; i < n; i++) {
                to->committed[i] = from->committed[i];
                to->prepared[i] = from->prepared[i];
        }
        return true;
}

static bool secret_take(struct message *to, const ProtobufCBinaryData *from) {
        if (from->len == 0)
                return true;
        if (to->kind != ORDER_NEWGEN || from->len != sizeof(to->secret.byte))
                return false;
        memcpy(to->secret.byte, from->data, from->len);
        return true;
}

/* Where a member lives is said once, by its node. */
static bool members_take(struct message *message, const Peer__Message *said) {
        bool elsewhere = message->kind >= ORDER_REFUSE && message->kind < ANSWER_REPORT;

        if (said->n_member_of > (elsewhere ? 0 : LIMIT_SEATS))
                return false;
        message->n_members = (uint32_t)said->n_member_of;
        for (uint32_t i = 0; i < message->n_members; i++) {
                const Peer__Member *from = said->member_of[i];
                struct message_member *to = &message->member_of[i];

                *to = (struct message_member){ 0 };
                FIELDS_MEMBER(TAKE)
                to->request.host = message->host;
                to->request.device = message->device;
                to->request.node = message->from;
        }
        return true;
}

static bool gone_take(struct message *message, const Peer__Message *said) {
        if (said->n_gone > LIMIT_LOCAL)
                return false;
        message->n_gone = (uint32_t)said->n_gone;
        for (uint32_t i = 0; i < message->n_gone; i++) {
                const Peer__Gone *from = said->gone[i];
                struct message_gone *to = &message->gone[i];

                FIELDS_GONE(TAKE)
        }
        return true;
}

static bool plans_take(struct message *message, const Peer__Message *said) {
        if (said->n_plan > LIMIT_PLANS)
                return false;
        message->n_plans = (uint32_t)said->n_plan;
        for (uint32_t i = 0; i < message->n_plans; i++) {
                const Peer__Plan *from = said->plan[i];
                struct message_plan *to = &message->plan[i];

                FIELDS_PLAN(TAKE)
        }
        return true;
}

/* What is wrong with it; NULL: nothing. */
static const char *peer_take(struct message *to, const Peer__Message *from) {
        if (from->major != PEER_MAJOR)
                return "it is of another major version";
        message_clear(to);
        FIELDS_MESSAGE(TAKE)
        if ((to->kind == ORDER_REFUSE || to->kind == ORDER_REJECT) &&
            !refusal_take(&to->refusal, from->refusal))
                return "its text is too long, or not UTF-8";
        if (message_has_note(to) && !about_take(to, from->about))
                return "what it says of a plan makes no sense";
        if (to->kind == ORDER_PLACES && !waiting_take(&to->places, from->places))
                return "it names too many places, or members that wait";
        if (!nodes_take(to, from))
                return "it names a node with too high an address";
        if (!tracks_take(to, from))
                return "it is about too many lanes or tracks, or does not say all of each";
        if (!secret_take(to, &from->secret))
                return "it has a secret that is none";
        if (!members_take(to, from) || !gone_take(to, from))
                return "it names too many members";
        if (!plans_take(to, from))
                return "it names too many plans";
        return message_valid(to) ? NULL : "its fields contradict each other, or are out of range";
}

bool peer_decode(struct scratch *scratch, const void *bytes, size_t length, struct message *ret,
                 const char **ret_why) {
        const Peer__Message *message = NULL;

        if (length <= PEER_MAX)
                message = peer__message__unpack(scratch_begin(scratch), length, bytes);
        if (length > PEER_MAX)
                *ret_why = "it is too long";
        else if (message == NULL)
                *ret_why = scratch_exhausted(scratch) ? "it is too complex" : "it is malformed";
        else
                *ret_why = peer_take(ret, message);
        return *ret_why == NULL;
}
