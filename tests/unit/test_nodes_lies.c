/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemons of a job that lie. A seed chooses which messages between nodes and their coordinator are changed,
 * repeated at once or later, or dropped, while members come, bring plans, run steps and operations, and go. A
 * changed message is valid by itself. No daemon ends because of it, and all memory is given back.
 *
 *   test_nodes_lies [FIRST [LAST]]      these seeds
 */
#define TESTS_OWN_MAIN
#define HOSTS_APART 1 /* so that operations have seals */
#include "nodes_fixture.h"

#include "peer.pb-c.h"
#include "rendezvous/wire/peer.h"

#define NODES 3u
#define SEEDS 300u
#define PASSES 150u
#define OLD 64u
#define PLANS 3u
#define HEAD 8u /* fields with which an order or a report begins, up to its stamp */

static uint64_t chance;
static uint32_t rate; /* of 100 letters that many are lies */
static struct letter *old[OLD];
static struct member *evicted[64];
static unsigned n_evicted;
static unsigned committed; /* steps, on all nodes */
static unsigned lies;      /* letters that were changed */
static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };

static uint32_t below(uint32_t n) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        return (uint32_t)(chance >> 20) % n;
}

/* ---- events: members are found in the jobs ---- */

static void on_lied_event(void *data, const struct job_event *event) {
        switch (event->kind) {
        case JOB_EVENT_PLAN_ARENA:
        case JOB_EVENT_STAGING_ARENA:
                munmap(map_and_touch(event->memory.fds[0], event->memory.bytes), event->memory.bytes);
                break;
        case JOB_EVENT_COMMITTED: committed++; break;
        case JOB_EVENT_EXPELLED:
                if (n_evicted < sizeof(evicted) / sizeof(evicted[0]))
                        evicted[n_evicted++] = event->member;
                break;
        default: break;
        }
}

/* ---- lies ---- */

static uint64_t number(uint64_t before) {
        static const uint64_t some[] = { 0,           1,    2,     3,          4,
                                         7,           4095, 65536, UINT32_MAX, LIMIT_GENERATION,
                                         LIMIT_NUMBER };

        return below(3) > 0 ? before + below(5) - 2 : some[below(sizeof(some) / sizeof(some[0]))];
}

static void change_message(ProtobufCMessage *message);

static void change_value(const ProtobufCFieldDescriptor *field, void *value) {
        ProtobufCBinaryData *bytes = value;
        ProtobufCMessage **message = value;

        switch (field->type) {
        case PROTOBUF_C_TYPE_UINT64: *(uint64_t *)value = number(*(uint64_t *)value); break;
        case PROTOBUF_C_TYPE_UINT32: *(uint32_t *)value = (uint32_t)number(*(uint32_t *)value); break;
        case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)value ^= 1; break;
        case PROTOBUF_C_TYPE_BYTES: /* a set of nodes, which has one byte here, or a secret */
                if (bytes->len > 0)
                        bytes->data[0] ^= (uint8_t)(1u << below(NODES));
                break;
        case PROTOBUF_C_TYPE_MESSAGE:
                if (*message != NULL)
                        change_message(*message);
                break;
        default: break; /* texts, and pids, are for people */
        }
}

/* A list has numbers or messages. The new message is like the last one. */
union values {
        uint64_t *number;
        ProtobufCMessage **message;
};

static void list_add(const ProtobufCFieldDescriptor *field, size_t *n, union values *list) {
        static uint8_t bytes[PEER_MAX];
        size_t length = 0;

        list->number = realloc(list->number, (*n + 1) * sizeof(*list->number));
        list->number[*n] = 0;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
                length = *n > 0 ? protobuf_c_message_pack(list->message[*n - 1], bytes) : 0;
                list->message[*n] = protobuf_c_message_unpack(field->descriptor, NULL, length, bytes);
        }
        ++*n;
}

static void list_drop(const ProtobufCFieldDescriptor *field, size_t *n, union values *list) {
        uint32_t which = below((uint32_t)*n);

        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                protobuf_c_message_free_unpacked(list->message[which], NULL);
        list->number[which] = list->number[--*n];
}

static void change_list(const ProtobufCFieldDescriptor *field, size_t *n, union values *list) {
        uint32_t way = below(5);

        if (way == 0 && *n > 0)
                list_drop(field, n, list);
        else if (way == 1 && *n < 6)
                list_add(field, n, list);
        else if (*n > 0)
                change_value(field, &list->number[below((uint32_t)*n)]);
}

/* Half of the lies are about a list, and few about what a letter begins with: most of those make its receiver
 * drop it. A term that cannot be would leave a node deaf for the rest. */
static bool is_chosen(const ProtobufCMessageDescriptor *of, const ProtobufCFieldDescriptor *field,
                      bool list) {
        bool head = (of == &peer__order__descriptor || of == &peer__report__descriptor) && field->id <= HEAD;

        return (field->label == PROTOBUF_C_LABEL_REPEATED) == list && strcmp(field->name, "term") != 0 &&
               (!head || below(8) == 0);
}

static const ProtobufCFieldDescriptor *any_field(const ProtobufCMessageDescriptor *of) {
        const ProtobufCFieldDescriptor *field;
        bool list = below(2) == 0;

        for (unsigned tries = 0; tries < 64; tries++) {
                field = &of->fields[below(of->n_fields)];
                if (is_chosen(of, field, list))
                        return field;
        }
        return &of->fields[of->n_fields - 1]; /* of a message without lists */
}

/* Whichever fields it has. */
static void change_message(ProtobufCMessage *message) {
        const ProtobufCFieldDescriptor *field = any_field(message->descriptor);
        unsigned char *at = (unsigned char *)message;

        if (field->label == PROTOBUF_C_LABEL_REPEATED)
                change_list(field, (size_t *)(at + field->quantifier_offset),
                            (union values *)(at + field->offset));
        else
                change_value(field, at + field->offset);
}

/* ---- lies on their way ---- */

static struct letter *letter_of(const struct letter *like, const void *payload, size_t bytes) {
        struct letter *letter = malloc(sizeof(*letter) + bytes);

        *letter = *like;
        letter->bytes = bytes;
        memcpy(letter->payload, payload, bytes);
        return letter;
}

static bool is_valid(enum post_kind kind, const uint8_t *bytes, size_t n) {
        static struct report report;
        static struct order order;
        const char *why;

        return kind == POST_ORDER ? peer_decode_order(&scratch, bytes, n, &order, &why)
                                  : peer_decode_report(&scratch, bytes, n, &report, &why);
}

static struct letter *scrambled(struct letter *letter) {
        static uint8_t bytes[PEER_MAX];
        bool is_order = letter->kind == POST_ORDER;
        struct letter *changed;

        if (!is_order && letter->kind != POST_REPORT)
                return letter;
        for (unsigned tries = 0; tries < 20; tries++) {
                ProtobufCMessage *message = protobuf_c_message_unpack(is_order ? &peer__order__descriptor
                                                                               : &peer__report__descriptor,
                                                                      NULL, letter->bytes, letter->payload);
                size_t n;

                for (unsigned i = 1 + below(3); i > 0; i--)
                        change_message(message);
                n = protobuf_c_message_pack(message, bytes);
                protobuf_c_message_free_unpacked(message, NULL);
                if (!is_valid(letter->kind, bytes, n))
                        continue;
                lies += n != letter->bytes || memcmp(bytes, letter->payload, n) != 0;
                changed = letter_of(letter, bytes, n);
                free(letter);
                return changed;
        }
        return letter;
}

static struct letter *lie(struct letter *letter) {
        unsigned place = below(OLD);

        if (below(100) >= rate)
                return letter;
        free(old[place]);
        old[place] = letter_of(letter, letter->payload, letter->bytes);
        if (below(4) > 0)
                return scrambled(letter);
        place = below(OLD);
        if (old[place] != NULL) {
                struct letter *again = letter_of(old[place], old[place]->payload, old[place]->bytes);

                list_append(&cluster->letters, &again->link);
        }
        return letter;
}

/* ---- members ---- */

static struct member *any_member(struct job *job) {
        struct member *member;
        uint32_t n = 0;

        list_for_each(member, &job->members, link)
                n += member->owner != NULL;
        for (uint32_t i = n > 0 ? below(n) : 0; n > 0;)
                list_for_each(member, &job->members, link)
                        if (member->owner != NULL && i-- == 0)
                                return member;
        return NULL;
}

static void end_evicted(void) {
        struct member *member, *spare;
        struct job *job;

        for (unsigned i = 0; i < n_evicted; i++)
                for (uint32_t n = 0; n < NODES; n++)
                        list_for_each(job, &cluster->node[n].jobs->list, link)
                                list_for_each_safe(member, spare, &job->members, link)
                                        if (member == evicted[i] && member->owner != NULL) {
                                                member_gone(member, WIRE__CAUSE__EVICTED);
                                                goto next;
                                        }
next:
        n_evicted = 0;
}

static void come(uint32_t node) {
        uint32_t world = below(8) > 0 ? 3 : 1 + below(5), rank = below(world);
        struct job_join join = { .name = "j",
                                 .cluster = true,
                                 .uid = 1000,
                                 .pid = getpid(),
                                 .program = "t",
                                 .request = 7,
                                 .token = &cluster->token,
                                 .owner = cluster,
                                 .owner_members = &cluster->node[node].members,
                                 .membership = { .min_world = 1 + below(world),
                                                 .max_world = world,
                                                 .has_rank = below(4) == 0,
                                                 .rank = rank,
                                                 .incarnation = below(40) == 0,
                                                 .spare = below(8) == 0,
                                                 .grace = below(2) * USEC_PER_MSEC } };

        join.membership.spare &= !join.membership.has_rank;
        join.membership.rank *= join.membership.has_rank;
        join.membership.min_world = below(4) > 0 ? 2 : join.membership.min_world;
        jobs_join(cluster->node[node].jobs, &join, &cluster->refusal);
}

static void describe_some(struct member *member, uint32_t ordinal) {
        struct offer begin = { .generation = member->job->generation,
                               .plan = ordinal,
                               .params = 2,
                               .buckets = 2,
                               .arena_bytes = 8192,
                               .control_bytes = 4096,
                               .reduce = WIRE__REDUCE__AVG,
                               .void_on_loss = below(4) == 0 };
        uint64_t shape = 48 - 4 * (below(20) == 0);
        struct offer_param param[2] = {
                { .name = "a", .dtype = WIRE__DTYPE__F32, .shape = &shape, .dims = 1, .bucket = 0 },
                { .name = "b", .dtype = WIRE__DTYPE__F32, .shape = &shape, .dims = 1, .bucket = 1 }
        };
        struct offer_bucket bucket[2] = {
                { .dtype = WIRE__DTYPE__F32, .offset = 0, .bytes = 4 * shape, .payload = 4 * shape },
                { .dtype = WIRE__DTYPE__F32, .offset = 4096, .bytes = 4 * shape, .payload = 4 * shape }
        };
        struct refusal *refusal = &cluster->refusal;

        if (plan_begin(member, &begin, refusal) == 0 &&
            plan_params(member, ordinal, param, 2, refusal) == 0 &&
            plan_buckets(member, ordinal, bucket, 2, refusal) == 0 &&
            plan_commit(member, ordinal, 8, refusal) == 0)
                plan_mapped(member, ordinal, 9, refusal);
}

static void step_some(struct member *member, uint32_t ordinal) {
        const struct plan *plan = plan_find(member->job, ordinal);

        for (uint32_t b = 0; b < 2 && plan != NULL; b++) {
                struct ready ready = { .generation = member->job->generation,
                                       .plan = ordinal,
                                       .step = plan->step + 1,
                                       .bucket = b };

                step_ready(member, &ready, &cluster->refusal);
                plan = plan_find(member->job, ordinal);
        }
}

static void call_some(struct member *member) {
        struct operation_request call = { .sequence = member->operation.next,
                                          .kind = 1 + below(5),
                                          .dtype = WIRE__DTYPE__F32,
                                          .reduce = WIRE__REDUCE__SUM,
                                          .bytes = 64,
                                          .total = 64,
                                          .output = STAGING / 2 };

        call.sealed = spread_can_be_sealed(call.kind);

        if (!staging_is_attached(&member->staging) && staging_ask(member, 12, &cluster->refusal) == 0)
                staging_attach(member, 13, &cluster->refusal);
        operation_call(member, 11, &call, &cluster->refusal);
}

static void act_some(struct member *member) {
        struct refusal refusal;
        uint32_t way = below(30);

        if (way < 2)
                member_gone(member, way == 0 ? WIRE__CAUSE__LEAVING : WIRE__CAUSE__EXITED);
        else if (member_check(member, &refusal) != 0)
                return; /* as the session does */
        else if (way < 8)
                describe_some(member, below(PLANS));
        else if (way == 8)
                plan_drop(member, below(PLANS), 10, &refusal);
        else if (way < 22)
                step_some(member, below(2) * below(PLANS));
        else
                call_some(member);
}

static void live(void) {
        uint32_t node = below(NODES);
        struct job *job = jobs_find(cluster->node[node].jobs, 1000, "j");
        struct member *member = job != NULL ? any_member(job) : NULL;

        if (job != NULL && below(40) == 0)
                below(2) ? job_pause(job) : job_resume(job);
        if (member == NULL || below(16) == 0)
                come(node);
        else
                act_some(member);
        end_evicted();
}

static void all_go(void) {
        for (uint32_t n = 0; n < NODES; n++) {
                struct job *job, *spare;

                list_for_each_safe(job, spare, &cluster->node[n].jobs->list, link) {
                        struct member *member, *next;

                        list_for_each_safe(member, next, &job->members, link)
                                if (member->owner != NULL)
                                        member_gone(member, WIRE__CAUSE__EXITED);
                }
                cluster->node[n].gone = true;
        }
        n_evicted = 0;
}

static void run_seed(uint64_t seed) {
        chance = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        on_node_event = on_lied_event;
        letter_change = lie;
        setup_cluster(NODES, WIRE__DTYPE__F32, WIRE__REDUCE__AVG);
        cluster->fabric->forgiving = true;
        for (unsigned i = 0; i < PASSES; i++) {
                rate = i < PASSES / 8 ? 0 : below(3) * 8;
                for (unsigned n = below(8); n > 0; n--)
                        live();
                if (below(8) == 0)
                        test_clock += unhurried.times.heartbeat * below(5);
                pass();
        }
        rate = 0;
        all_go();
        settle();
        teardown(NULL);
        for (unsigned i = 0; i < OLD; i++) {
                free(old[i]);
                old[i] = NULL;
        }
}

static uint64_t first = 1, last = SEEDS;

TEST_ALONE(no_daemon_ends_for_a_lie) {
        for (uint64_t seed = first; seed <= last; seed++) {
                if (last != SEEDS)
                        print_message("seed %llu\n", (unsigned long long)seed);
                run_seed(seed);
        }
        if (last == SEEDS)
                assert_true(committed > 50 && lies > 5000); /* else there was little about which to lie */
}

int main(int argc, char **argv) {
        if (argc > 1)
                first = last = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                last = strtoull(argv[2], NULL, 10);
        return tests_run(NULL, NULL);
}
