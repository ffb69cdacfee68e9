/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of coordinators, and nodes that meet in it: who is coordinated together, what is charged to whom,
 * and when a coordinator comes and goes. Time stands still unless a test moves it.
 */
#include "tests.h"

#include <stdlib.h>

#include "base/list.h"
#include "base/user.h"
#include "gradsync.pb-c.h"
#include "rendezvous/machine/node.h"
#include "rendezvous/service/coordinators.h"

#define NEVER (UINT64_C(1) << 60)
#define SECOND 1000000u
#define NODES 3u

struct daemon { /* the part of one that drives a node */
        struct attachment attachment;
        struct effects effects;
        struct node node;
        void *memory;
        unsigned entered, interrupted, refused;
        struct refusal refusal;
        uint32_t world, host;
        struct sha256 secret;
        uint64_t incarnation;
        bool attached;
        unsigned letters;
        struct hub_letter letter; /* the last one */
};

static struct users *accounts;
static struct coordinators *table;
static struct daemon daemons[NODES];
static uint64_t now, due, last_term;
static struct daemon own; /* for letters to the coordinator's daemon */

static uint64_t clock_stands(void) {
        return now;
}

static uint64_t next_term(void *data) {
        return ++last_term;
}

static void note_due(void *data, uint64_t when) {
        due = when;
}

static void do_effect(const struct effect *effect) {
        struct daemon *d = effect->owner;

        if (effect->action == NULL) {
                if (effect->order != NULL)
                        node_receive(&d->node, now, effect->order);
                else
                        hub_send(&d->attachment, effect->report);
                return;
        }
        switch (effect->action->kind) {
        case ACTION_BUILD: node_built(&d->node, now, effect->action->comm, (struct nodeset){ 0 }); break;
        case ACTION_ABORT: node_aborted(&d->node, now, effect->action->comm); break;
        case ACTION_ENTERED:
                d->entered++;
                d->world = effect->action->world;
                d->secret = effect->action->secret;
                break;
        case ACTION_INTERRUPTED: d->interrupted++; break;
        case ACTION_REFUSED:
                d->refused++;
                d->refusal = *effect->action->refusal;
                break;
        default: break;
        }
}

static void daemon_receive(struct attachment *attachment, const struct order *order) {
        struct daemon *d = list_entry(attachment, struct daemon, attachment);
        struct outlet outlet = { .effects = &d->effects, .owner = d };

        effects_order(&outlet, order);
        effects_drain(&d->effects, do_effect);
}

static void daemon_posted(struct attachment *attachment, const struct hub_letter *letter) {
        struct daemon *d = list_entry(attachment, struct daemon, attachment);

        d->letters++;
        d->letter = *letter;
}

static void on_posted(void *data, const struct hub_job *job, const struct hub_letter *letter) {
        assert_string_equal(job->name, "j");
        daemon_posted(&own.attachment, letter);
}

static int attach(struct daemon *d, uid_t uid, const char *name, uint64_t incarnation) {
        struct hub_job job = { .uid = uid, .name = name, .incarnation = incarnation };
        struct room room = { .memory = d->memory, .members = 8, .tracks = 2, .nodes = HUB_NODES };
        struct outlet outlet = { .effects = &d->effects, .owner = d };
        struct node_config config = { .instance = 1,
                                      .host = d->host,
                                      .name = "j",
                                      .n_lanes = 1,
                                      .window = 1,
                                      .times = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER },
                                      .room = room };
        int r;

        d->attachment.receive = daemon_receive;
        d->attachment.posted = daemon_posted;
        r = hub_attach(coordinators_hub(table), &d->attachment, &job, &d->refusal);
        if (r != 0)
                return r;
        d->attached = true;
        d->incarnation = incarnation;
        config.address = d->attachment.address;
        node_init(&d->node, &config, now, &outlet);
        return 0;
}

static void detach(struct daemon *d) {
        d->attached = false;
        hub_detach(&d->attachment);
}

static void join(struct daemon *d, uint64_t member, uint32_t least, uint32_t most) {
        struct membership_request request = { .member = member_id(d->node.config.address, 0, member),
                                              .min_world = least,
                                              .max_world = most,
                                              .incarnation = d->incarnation,
                                              .grace = SECOND,
                                              .last_call = SECOND,
                                              .timeout = 3 * SECOND };

        assert_int_equal(hub_reserve(&d->attachment, d->node.n + 1, 0, 0, &d->refusal), 0);
        node_join(&d->node, now, &request, &(struct tag){ 0 });
        effects_drain(&d->effects, do_effect);
}

static uint64_t used(uid_t uid) {
        return accounts_used(accounts, uid, ACCOUNT_OWN);
}

static void limit(uint64_t bytes) {
        const uint64_t limits[ACCOUNT_SLOTS] = { 10, 4, 8, 0, 100, [ACCOUNT_OWN] = bytes };

        accounts_set_limits(accounts, limits);
}

static int setup(void **state) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { 10,  4,
                                                        8,   UINT64_C(1) << 30,
                                                        100, [ACCOUNT_OWN] = UINT64_C(1) << 30 };
        struct coordinators_config config = { .clock = clock_stands,
                                              .term = next_term,
                                              .nonce = 9,
                                              .key = { { 5 } },
                                              .due = note_due,
                                              .posted = on_posted };
        struct room room = { .members = 8, .tracks = 2, .nodes = HUB_NODES };

        now = UINT64_C(1) << 40;
        due = UINT64_MAX;
        own = (struct daemon){ 0 };
        assert_int_equal(users_new(limits, &accounts), 0);
        config.accounts = accounts;
        assert_int_equal(coordinators_new(&config, &table), 0);
        for (unsigned i = 0; i < NODES; i++) {
                daemons[i] = (struct daemon){ .memory = malloc(node_bytes(&room)) };
                assert_int_equal(effects_init(&daemons[i].effects, EFFECTS_ROOM), 0);
        }
        return 0;
}

static int teardown(void **state) {
        for (unsigned i = 0; i < NODES; i++) {
                if (daemons[i].attached)
                        detach(&daemons[i]);
                effects_deinit(&daemons[i].effects);
                free(daemons[i].memory);
        }
        assert_int_equal(accounts_total(accounts, ACCOUNT_OWN), 0);
        coordinators_free(table);
        users_free(accounts);
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

TEST_ALONE(pointers_may_follow_a_node) {
        for (uint32_t tracks = TRACK_STEP + 1; tracks <= LIMIT_TRACKS; tracks++)
                for (uint32_t nodes = 1; nodes <= 2; nodes++)
                        assert_int_equal(node_bytes(&(struct room){
                                                 .members = 3, .tracks = tracks, .nodes = nodes }) %
                                                 sizeof(void *),
                                         0);
}

TEST(nodes_of_one_job_form_it_together) {
        for (unsigned i = 0; i < NODES; i++) {
                assert_int_equal(attach(&daemons[i], 1000, "j", 7), 0);
                assert_int_equal(daemons[i].attachment.address, i);
        }
        for (unsigned i = 0; i < NODES; i++) {
                assert_int_equal(daemons[0].entered, 0);
                join(&daemons[i], i + 1, 3, 3);
        }
        for (unsigned i = 0; i < NODES; i++) {
                assert_int_equal(daemons[i].entered, 1);
                assert_int_equal(daemons[i].world, 3);
                assert_int_equal(daemons[i].node.member[0].rank, i);
                for (unsigned other = 0; other < NODES; other++)
                        assert_true(nodeset_has(daemons[i].node.set, other));
        }
}

TEST(other_users_names_and_incarnations_are_other_jobs) {
        uint64_t one;

        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        one = used(1000);
        assert_true(one > 0);
        assert_int_equal(attach(&daemons[1], 1001, "j", 7), 0);
        assert_int_equal(daemons[1].attachment.address, 0);
        assert_int_equal(used(1001), one);
        assert_int_equal(attach(&daemons[2], 1000, "j", 8), 0);
        assert_int_equal(daemons[2].attachment.address, 0);
        assert_int_equal(used(1000), 2 * one);
        detach(&daemons[1]);
        assert_int_equal(used(1001), 0);
        assert_int_equal(attach(&daemons[1], 1000, "k", 7), 0);
        assert_int_equal(daemons[1].attachment.address, 0);
        join(&daemons[0], 1, 2, 2);
        join(&daemons[1], 2, 2, 2);
        join(&daemons[2], 3, 2, 2);
        for (unsigned i = 0; i < NODES; i++)
                assert_int_equal(daemons[i].entered, 0);
}

TEST(a_node_that_detaches_is_lost_to_the_others) {
        for (unsigned i = 0; i < NODES; i++)
                assert_int_equal(attach(&daemons[i], 1000, "j", 7), 0);
        for (unsigned i = 0; i < NODES; i++)
                join(&daemons[i], i + 1, 1, 3);
        detach(&daemons[1]);
        assert_int_equal(daemons[0].interrupted, 1);
        assert_int_equal(daemons[2].interrupted, 1);
        assert_int_equal(daemons[0].entered, 1); /* the place is kept */
        assert_true(places_has(&daemons[0].node.places, 1));
        assert_false(places_has(&daemons[0].node.places, 0));
        assert_int_equal(daemons[0].node.places.grace, SECOND);
        assert_int_equal(due, now + SECOND);
        now = due;
        coordinators_tick(table);
        assert_int_equal(daemons[0].entered, 2);
        assert_int_equal(daemons[0].world, 2);
        assert_int_equal(daemons[2].entered, 2);
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), 0); /* comes again, and grows the world */
        assert_int_equal(daemons[1].attachment.address, 1);
        join(&daemons[1], 4, 1, 3);
        assert_int_equal(daemons[1].world, 3);
        assert_int_equal(daemons[0].entered, 3);
}

/* The nodes of a job, on these hosts, form it. */
static void form_on(uint32_t first, uint32_t second, uid_t uid, const char *name, uint64_t incarnation) {
        const uint32_t hosts[] = { first, second };

        for (unsigned i = 0; i < 2; i++) {
                daemons[i].host = hosts[i];
                assert_int_equal(attach(&daemons[i], uid, name, incarnation), 0);
        }
        for (unsigned i = 0; i < 2; i++)
                join(&daemons[i], i + 1, 1, 2);
        assert_true(sha256_equal(&daemons[0].secret, &daemons[1].secret));
}

static struct sha256 secret_of(uid_t uid, const char *name, uint64_t incarnation) {
        last_term = 0;
        form_on(1, 2, uid, name, incarnation);
        detach(&daemons[1]);
        detach(&daemons[0]);
        return daemons[0].secret;
}

static void use_key(const struct sha256 *key) {
        struct coordinators_config config = { .accounts = accounts,
                                              .clock = clock_stands,
                                              .term = next_term,
                                              .nonce = 9,
                                              .key = *key,
                                              .due = note_due };

        coordinators_free(table);
        assert_int_equal(coordinators_new(&config, &table), 0);
}

TEST(nodes_on_several_hosts_share_a_secret) {
        struct sha256 secret[6];

        secret[0] = secret_of(1000, "j", 7);
        secret[1] = secret_of(1001, "j", 7);
        secret[2] = secret_of(1000, "k", 7);
        secret[3] = secret_of(1000, "j", 8);
        use_key(&(struct sha256){ { 6 } });
        secret[4] = secret_of(1000, "j", 7);
        secret[5] = (struct sha256){ 0 };
        for (unsigned i = 0; i < 6; i++)
                for (unsigned k = 0; k < i; k++)
                        assert_false(sha256_equal(&secret[i], &secret[k]));
}

TEST(members_on_one_host_share_none) {
        form_on(3, 3, 1000, "j", 7);
        assert_true(sha256_is_none(&daemons[0].secret));
}

TEST(each_generation_has_another_secret) {
        struct sha256 first;

        form_on(1, 2, 1000, "j", 7);
        first = daemons[0].secret;
        daemons[2].host = 1;
        assert_int_equal(attach(&daemons[2], 1000, "j", 7), 0);
        detach(&daemons[1]);
        now = due;
        coordinators_tick(table);
        assert_int_equal(daemons[0].entered, 2);
        assert_true(sha256_is_none(&daemons[0].secret)); /* the other host has gone */
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), 0);
        join(&daemons[1], 4, 1, 2);
        assert_int_equal(daemons[0].entered, 3);
        assert_false(sha256_is_none(&daemons[0].secret));
        assert_false(sha256_equal(&daemons[0].secret, &first));
        assert_true(sha256_equal(&daemons[0].secret, &daemons[1].secret));
}

TEST(the_coordinators_own_time_ends_waits) {
        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        assert_int_equal(due > now + 3600u * SECOND, 1);
        join(&daemons[0], 1, 2, 2);
        assert_int_equal(due, now + 3 * SECOND);
        assert_true(places_has(&daemons[0].node.places, 1));
        assert_false(places_has(&daemons[0].node.places, 0)); /* it asks for no rank, and gets the lowest */
        now = due - 1;
        coordinators_tick(table);
        assert_int_equal(daemons[0].refused, 0);
        now++;
        coordinators_tick(table);
        assert_int_equal(daemons[0].refused, 1);
        assert_int_equal(daemons[0].refusal.code, WIRE__CODE__TIMEOUT);
        detach(&daemons[0]);
        assert_int_equal(due, UINT64_MAX);
}

/* A node that waits puts it off, however late it is. */
TEST(nobodys_wait_ends_while_a_node_waits) {
        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        node_wait(&daemons[0].node, now, true);
        join(&daemons[0], 1, 2, 2);
        assert_true(due > now + 3600u * SECOND);
        now += 4 * SECOND;
        coordinators_tick(table);
        assert_int_equal(daemons[0].refused, 0);
        node_wait(&daemons[0].node, now, false);
        effects_drain(&daemons[0].effects, do_effect);
        assert_int_equal(daemons[0].refused, 1);
}

/* A node that is gone waits for nothing. */
TEST(a_node_that_has_gone_puts_off_no_wait) {
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(attach(&daemons[i], 1000, "j", 7), 0);
        node_wait(&daemons[0].node, now, true);
        join(&daemons[0], 1, 3, 3);
        join(&daemons[1], 2, 3, 3);
        detach(&daemons[0]);
        assert_int_equal(due, now + 3 * SECOND);
        now = due;
        coordinators_tick(table);
        assert_int_equal(daemons[1].refused, 1);
}

TEST(one_at_its_end_takes_no_further_node) {
        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        join(&daemons[0], 1, 1, 1);
        assert_int_equal(daemons[0].entered, 1);
        node_end(&daemons[0].node, now, WIRE__CAUSE__SHUTDOWN);
        effects_drain(&daemons[0].effects, do_effect);
        assert_int_equal(daemons[0].node.phase, NODE_ENDED);
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), 0);
        assert_int_equal(daemons[1].attachment.address, 0);
        join(&daemons[1], 2, 1, 1);
        assert_int_equal(daemons[1].entered, 1);
        assert_int_equal(daemons[0].node.generation.nonce, 9);
        assert_true(daemons[1].node.generation.term > daemons[0].node.generation.term);
        assert_int_equal(daemons[1].node.generation.term, last_term);
}

TEST(what_does_not_fit_is_refused) {
        struct daemon *d = &daemons[0];
        uint64_t before;

        limit(100);
        assert_int_equal(attach(d, 1000, "j", 7), WIRE__CODE__QUOTA);
        assert_int_equal(used(1000), 0);
        limit(UINT64_C(1) << 20);
        assert_int_equal(attach(d, 1000, "j", 7), 0);
        before = used(1000);
        limit(before);
        assert_int_equal(hub_reserve(&d->attachment, 4, 0, 2, &d->refusal), 0);
        assert_int_equal(hub_reserve(&d->attachment, 5, 0, 2, &d->refusal), WIRE__CODE__QUOTA);
        assert_int_equal(hub_reserve(&d->attachment, 4, 0, 3, &d->refusal), WIRE__CODE__QUOTA);
        assert_int_equal(hub_reserve(&d->attachment, 1, 4, 2, &d->refusal), 0);
        assert_int_equal(hub_reserve(&d->attachment, 1, 5, 2, &d->refusal), WIRE__CODE__QUOTA);
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), WIRE__CODE__QUOTA);
        assert_int_equal(used(1000), before);
        limit(UINT64_C(1) << 20);
        assert_int_equal(hub_reserve(&d->attachment, 5, 0, 3, &d->refusal), 0);
        assert_true(used(1000) > before);
        assert_int_equal(hub_reserve(&d->attachment, LIMIT_SEATS, 0, 3, &d->refusal), 0);
        assert_int_equal(hub_reserve(&d->attachment, LIMIT_SEATS + 1, 0, 3, &d->refusal),
                         WIRE__CODE__JOB_FULL);
        assert_int_equal(hub_reserve(&d->attachment, 1, LIMIT_SEATS + 1, 3, &d->refusal),
                         WIRE__CODE__JOB_FULL);
        assert_non_null(strstr(d->refusal.text, "job 'j' has as many members"));
}

TEST(a_job_has_so_many_nodes_and_no_more) {
        static struct attachment many[HUB_NODES + 1];
        struct hub_job job = { .uid = 1000, .name = "j" };
        struct refusal refusal;

        for (unsigned i = 0; i < HUB_NODES; i++) {
                many[i].receive = daemon_receive;
                assert_int_equal(hub_attach(coordinators_hub(table), &many[i], &job, &refusal), 0);
                assert_int_equal(many[i].address, i);
        }
        assert_int_equal(hub_attach(coordinators_hub(table), &many[HUB_NODES], &job, &refusal),
                         WIRE__CODE__JOB_FULL);
        hub_detach(&many[5]);
        assert_int_equal(hub_attach(coordinators_hub(table), &many[HUB_NODES], &job, &refusal), 0);
        assert_int_equal(many[HUB_NODES].address, 5);
        for (unsigned i = 0; i <= HUB_NODES; i++)
                if (i != 5)
                        hub_detach(&many[i]);
}

/* One that begins anew has left nothing behind; the others have lost it. */
TEST(a_node_begins_anew) {
        struct node_config config;

        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        join(&daemons[0], 1, 2, 2);
        hub_renew(&daemons[0].attachment);
        config = daemons[0].node.config;
        node_init(&daemons[0].node, &config, now + 1,
                  &(struct outlet){ .effects = &daemons[0].effects, .owner = &daemons[0] });
        join(&daemons[0], 2, 2, 2);
        assert_int_equal(daemons[0].entered, 0);
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), 0);
        join(&daemons[1], 3, 2, 2);
        assert_int_equal(daemons[0].entered, 1);
        hub_renew(&daemons[1].attachment);
        assert_int_equal(daemons[0].interrupted, 1);
        assert_int_equal(daemons[1].interrupted, 0);
}

/* ---- letters */

static void send(unsigned from, uint32_t to, size_t size) {
        static const uint8_t bytes[HUB_LETTER];
        const struct hub_letter letter = { to, bytes, size };

        assert_true(hub_post(&daemons[from].attachment, &letter));
}

static void assert_letters(unsigned first, unsigned second, unsigned third, unsigned here) {
        assert_int_equal(daemons[0].letters, first);
        assert_int_equal(daemons[1].letters, second);
        assert_int_equal(daemons[2].letters, third);
        assert_int_equal(own.letters, here);
}

static void attach_two_jobs(void) {
        assert_int_equal(attach(&daemons[0], 1000, "j", 7), 0);
        assert_int_equal(attach(&daemons[1], 1000, "j", 7), 0);
        assert_int_equal(attach(&daemons[2], 1000, "j", 8), 0); /* another one */
}

TEST(letters_go_where_they_are_for) {
        const struct hub_job job = { .uid = 1000, .name = "j", .incarnation = 7 };
        struct hub_letter letter = { 1, "text", 4 };

        attach_two_jobs();
        send(0, 1, 5);
        assert_letters(0, 1, 0, 0);
        assert_int_equal(daemons[1].letter.node, 0);
        assert_int_equal(daemons[1].letter.size, 5);
        send(1, HUB_ALL, 6);
        assert_letters(1, 1, 0, 0);
        assert_int_equal(daemons[0].letter.node, 1);
        send(1, HUB_COORDINATOR, 7);
        assert_letters(1, 1, 0, 1);
        assert_int_equal(own.letter.node, 1);
        send(1, 9, 8); /* there is none */
        coordinators_post(table, &job, &letter);
        assert_letters(1, 2, 0, 1);
        assert_int_equal(daemons[1].letter.node, HUB_COORDINATOR);
        letter.node = HUB_COORDINATOR;
        coordinators_post(table, &job, &letter);
        assert_letters(1, 2, 0, 2);
}

TEST(letters_are_bounded) {
        attach_two_jobs();
        send(0, HUB_ALL, HUB_WANTS + 1);
        assert_letters(0, 0, 0, 0);
        send(0, HUB_ALL, HUB_WANTS);
        assert_letters(0, 1, 0, 0);
        for (unsigned i = 0; i < 1000; i++)
                send(0, 1, 1);
        assert_in_range(daemons[1].letters, 100, 500);
        unsigned before = daemons[1].letters;
        send(1, 0, 1); /* it has sent none before */
        assert_letters(1, before, 0, 0);
        now += SECOND;
        send(0, 1, 1);
        assert_letters(1, before + 1, 0, 0);
}
