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

#include "rendezvous/wire/peer.h"

#define NODES 3u
#define SEEDS 300u
#define PASSES 150u
#define OLD 64u
#define PLANS 3u

static uint64_t chance;
static uint32_t rate; /* of 100 letters that many are lies */
static struct letter *old[OLD];
static struct member *evicted[64];
static unsigned n_evicted;
static unsigned committed; /* steps, on all nodes */
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

static struct generation generation(struct generation a, struct generation b) {
        struct generation other = below(2) ? a : b;

        if (below(3) == 0)
                other.number = (uint32_t)number(other.number);
        if (below(8) == 0)
                other.term = number(other.term);
        return other;
}

/* ---- lies in orders ---- */

static void order_member(struct order *order) {
        struct order_member *member = &order->member_of[below(order->n_members)];

        switch (below(6)) {
        case 0: member->rank = (uint32_t)number(member->rank); break;
        case 1: member->slot = below(5); break;
        case 2: member->behind = !member->behind; break;
        case 3: member->tag.step = number(member->tag.step); break;
        case 4: member->id = below(9); break;
        default: member->member = member_id(member_id_node(member->member), 0, 1 + below(9)); break;
        }
}

static void order_members(struct order *order) {
        if (order->n_members == 0)
                return;
        uint32_t way = below(5), which = below(order->n_members);

        if (way == 0) {
                order->n_members--;
                order->member_of[which] = order->member_of[order->n_members];
        } else if (way == 1 && order->n_members < 6) {
                order->member_of[order->n_members] = order->member_of[which];
                order->n_members++;
        } else {
                order_member(order);
        }
}

static void order_track(struct order *order) {
        uint32_t track = below(order->n_tracks + 1);

        if (track == order->n_tracks && track < LIMIT_TRACKS)
                order->mark[order->n_tracks++] = 0;
        if (track >= LIMIT_TRACKS)
                return;
        if (below(2) == 0)
                order->mark[track] = number(order->mark[track]);
        else
                order->n_tracks = 1 + below(order->n_tracks);
}

static void order_plan(struct order *order) {
        struct order_plan *plan = &order->plan[below(order->n_plans + 1)];

        if (plan == &order->plan[order->n_plans] && order->n_plans < 6)
                order->plan[order->n_plans++] =
                        (struct order_plan){ .ordinal = below(PLANS), .track = below(4) };
        switch (below(9)) {
        case 0: plan->track = below(6); break;
        case 1: plan->ordinal = below(PLANS); break;
        case 2: plan->open = !plan->open; break;
        case 3: plan->before = number(plan->before); break;
        case 4: plan->unit = number(plan->unit); break;
        case 5: plan->turn = number(plan->turn); break;
        case 6: plan->digest++; break;
        case 7: plan->kept = !plan->kept; break;
        default: order->n_plans = below(order->n_plans + 1); break;
        }
}

static void order_number(struct order *order) {
        uint32_t lane = below(LIMIT_LANES);

        switch (below(11)) {
        case 0: order->round = number(order->round); break;
        case 1: order->generation = generation(order->generation, order->comm); break;
        case 2: order->comm = generation(order->generation, order->comm); break;
        case 3: order->world = below(7); break;
        case 4: order->source = below(4); break;
        case 5: order->seq[lane] = number(order->seq[lane]); break;
        case 6: order->go[lane] = number(order->go[lane]); break;
        case 7: order->history.step = number(order->history.step); break;
        case 8: order->stamp = number(order->stamp); break;
        case 9: order->instance = number(order->instance); break;
        default: order->loss = (struct membership_loss){ below(2), below(4), 1, below(9) }; break;
        }
}

static void order_flag(struct order *order) {
        switch (below(7)) {
        case 0: order->behind = !order->behind; break;
        case 1: order->torn = !order->torn; break;
        case 2: order->end = below(N_JOB_ENDS); break;
        case 3: order->set[0] ^= UINT64_C(1) << below(NODES); break;
        case 4: order->ordinal = below(PLANS); break;
        case 5: order->index = below(40); break;
        default: order->note = below(N_NOTES); break;
        }
}

/* Makes it an order of another kind, which has no members unless it is a NEWGEN order. */
static void order_other(struct order *order) {
        if (order->kind < ORDER_REFUSE)
                order->kind = below(ORDER_REFUSE);
        if (order->kind != ORDER_NEWGEN)
                order->n_members = 0;
}

static void change_order(struct order *order) {
        static void (*const ways[])(struct order * order) = { order_members, order_track, order_plan,
                                                              order_number,  order_flag,  order_other };

        order->n_words += order->n_words == 0;
        for (unsigned n = 1 + below(3); n > 0; n--)
                ways[below(sizeof(ways) / sizeof(ways[0]))](order);
}

/* ---- lies in reports ---- */

static void report_member(struct report *report) {
        struct report_member *member = &report->member_of[below(report->n_members)];
        struct membership_request *request = &member->request;

        switch (below(14)) {
        case 0: member->rank = (uint32_t)number(member->rank); break;
        case 1: member->slot = below(5); break;
        case 2: member->in = !member->in; break;
        case 3: member->behind = !member->behind; break;
        case 4: member->leaving = !member->leaving; break;
        case 5: member->tag.step = number(member->tag.step); break;
        case 6: request->max_world = 1 + below(6); break;
        case 7: request->min_world = 1 + below(3); break;
        case 8: request->spare = !request->spare; break;
        case 9: request->rank = below(5); break;
        case 10: request->has_rank = !request->has_rank; break;
        case 11: request->identity = below(3); break;
        case 12: request->member = member_id(member_id_node(request->member), 0, 1 + below(9)); break;
        default: request->returns = !request->returns; break;
        }
}

static void report_members(struct report *report) {
        if (report->n_members == 0)
                return;
        uint32_t way = below(5), which = below(report->n_members);

        if (way == 0) {
                report->n_members--;
                report->member_of[which] = report->member_of[report->n_members];
        } else if (way == 1 && report->n_members < 6) {
                report->member_of[report->n_members] = report->member_of[which];
                report->n_members++;
        } else {
                report_member(report);
        }
}

static void report_track(struct report *report) {
        uint32_t track = below(report->n_tracks + 1);

        if (track == report->n_tracks && track < LIMIT_TRACKS) {
                report->mark[track] = report->committed[track] = report->prepared[track] = 0;
                report->n_tracks++;
        }
        if (track >= LIMIT_TRACKS)
                return;
        switch (below(4)) {
        case 0: report->mark[track] = number(report->mark[track]); break;
        case 1: report->committed[track] = report->prepared[track] = number(report->committed[track]); break;
        case 2: report->prepared[track] = report->committed[track] + below(2); break;
        default: report->n_tracks = 1 + below(report->n_tracks); break;
        }
}

static void report_plan(struct report *report) {
        struct report_plan *plan = &report->plan[below(report->n_plans + 1)];

        if (plan == &report->plan[report->n_plans] && report->n_plans < 6)
                report->plan[report->n_plans++] =
                        (struct report_plan){ .ordinal = below(PLANS), .track = below(4) };
        switch (below(9)) {
        case 0: plan->track = below(6); break;
        case 1: plan->ordinal = below(PLANS); break;
        case 2: plan->open = !plan->open; break;
        case 3: plan->before = number(plan->before); break;
        case 4: plan->unit = number(plan->unit); break;
        case 5: plan->turn = number(plan->turn); break;
        case 6: plan->digest++; break;
        case 7: plan->voids = !plan->voids; break;
        default: report->n_plans = below(report->n_plans + 1); break;
        }
}

static void report_number(struct report *report) {
        uint32_t lane = below(LIMIT_LANES);

        switch (below(10)) {
        case 0: report->round = number(report->round); break;
        case 1: report->generation = generation(report->generation, report->comm); break;
        case 2: report->comm = generation(report->generation, report->comm); break;
        case 3: report->world = below(7); break;
        case 4: report->seq[lane] = number(report->seq[lane]); break;
        case 5: report->go[lane] = number(report->go[lane]); break;
        case 6: report->ready[lane] = number(report->ready[lane]); break;
        case 7: report->history.step = number(report->history.step); break;
        case 8: report->stamp = number(report->stamp); break;
        default: report->instance = number(report->instance); break;
        }
}

static void report_flag(struct report *report) {
        switch (below(12)) {
        case 0: report->running = !report->running; break;
        case 1: report->wait = !report->wait; break;
        case 2: report->away = !report->away; break;
        case 3: report->behind = !report->behind; break;
        case 4: report->torn = !report->torn; break;
        case 5: report->cause = below(9); break;
        case 6: report->end = below(N_JOB_ENDS); break;
        case 7: report->awaits = below(2); break;
        case 8: report->set[0] ^= UINT64_C(1) << below(NODES); break;
        case 9: report->links[0] ^= UINT64_C(1) << below(NODES); break;
        case 10: report->ordinal = below(PLANS); break;
        default: report->note = below(N_NOTES); break;
        }
}

static void report_other(struct report *report) {
        report->kind = ANSWER_REPORT + below(N_ANSWERS - ANSWER_REPORT);
}

static void change_report(struct report *report) {
        static void (*const ways[])(struct report * report) = { report_members, report_track, report_plan,
                                                                report_number,  report_flag,  report_other };

        report->n_words += report->n_words == 0;
        for (unsigned n = 1 + below(3); n > 0; n--)
                ways[below(sizeof(ways) / sizeof(ways[0]))](report);
}

/* ---- lies on their way ---- */

static struct letter *letter_of(const struct letter *like, const void *payload, size_t bytes) {
        struct letter *letter = malloc(sizeof(*letter) + bytes);

        *letter = *like;
        letter->bytes = bytes;
        memcpy(letter->payload, payload, bytes);
        return letter;
}

static ssize_t order_lie(const struct letter *letter, uint8_t bytes[PEER_MAX]) {
        static struct order truth, lie;
        const char *why;
        ssize_t n = -1;

        memset(&truth, 0, sizeof(truth));
        if (!peer_decode_order(&scratch, letter->payload, letter->bytes, &truth, &why))
                return -1;
        for (unsigned tries = 0; tries < 20 && n < 0; tries++) {
                lie = truth;
                change_order(&lie);
                n = peer_encode_order(&scratch, &lie, bytes);
        }
        return n;
}

static ssize_t report_lie(const struct letter *letter, uint8_t bytes[PEER_MAX]) {
        static struct report truth, lie;
        const char *why;
        ssize_t n = -1;

        memset(&truth, 0, sizeof(truth));
        if (!peer_decode_report(&scratch, letter->payload, letter->bytes, &truth, &why))
                return -1;
        for (unsigned tries = 0; tries < 20 && n < 0; tries++) {
                lie = truth;
                change_report(&lie);
                n = peer_encode_report(&scratch, &lie, bytes);
        }
        return n;
}

static struct letter *scrambled(struct letter *letter) {
        static uint8_t bytes[PEER_MAX];
        struct letter *changed;
        ssize_t n = -1;

        if (letter->kind == POST_ORDER)
                n = order_lie(letter, bytes);
        if (letter->kind == POST_REPORT)
                n = report_lie(letter, bytes);
        if (n < 0)
                return letter;
        changed = letter_of(letter, bytes, (size_t)n);
        free(letter);
        return changed;
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
                assert_true(committed > 50); /* else members did nothing about which one could lie */
}

int main(int argc, char **argv) {
        if (argc > 1)
                first = last = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                last = strtoull(argv[2], NULL, 10);
        return tests_run(NULL, NULL);
}
