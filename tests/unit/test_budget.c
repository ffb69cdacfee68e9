/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The traffic between the nodes of a job and its coordinator, in messages and bytes for each node, with any
 * number of nodes: while a job forms, and when a lost member is replaced. The engine's tables of addresses
 * are not counted.
 */
#define MOST_NODES 64u
#define MOST_TRAINERS 64u
#define FABRIC_NODES 64u
#define HOSTS_APART 1
#include "nodes_fixture.h"

#define FORMING_BYTES 4096u
#define CHANGE_BYTES 2304u
#define FORMING_MESSAGES 20u
#define CHANGE_MESSAGES 24u

struct traffic {
        unsigned messages;
        size_t bytes;
};

static struct traffic said[MOST_NODES];

static struct traffic traffic_of(const struct station *station) {
        struct traffic traffic = { .bytes = station->letter_bytes };

        for (unsigned kind = 0; kind <= POST_TABLE; kind++)
                traffic.messages += kind != POST_TABLE ? station->n_letters[kind] : 0;
        return traffic;
}

static void begin_to_count(void) {
        for (uint32_t n = 0; n < cluster->n; n++)
                said[n] = traffic_of(&cluster->node[n]);
}

/* The most messages, and the most bytes, of any node. */
static struct traffic most_since(void) {
        struct traffic most = { 0 };

        for (uint32_t n = 0; n < cluster->n; n++) {
                struct traffic now = traffic_of(&cluster->node[n]);

                if (now.messages - said[n].messages > most.messages)
                        most.messages = now.messages - said[n].messages;
                if (now.bytes - said[n].bytes > most.bytes)
                        most.bytes = now.bytes - said[n].bytes;
        }
        return most;
}

static bool all_run(uint32_t generation) {
        for (uint32_t n = 0; n < cluster->n; n++)
                if (job_on(n) == NULL || job_on(n)->state != JOB_RUNNING ||
                    job_on(n)->generation != generation)
                        return false;
        return true;
}

static struct traffic form(void) {
        begin_to_count();
        for (uint32_t n = 0; n < cluster->n; n++) {
                join(n, n, cluster->n);
                pass();
        }
        until(all_run(1));
        settle();
        return most_since();
}

/* In the middle of a step. */
static struct traffic change(void) {
        for (uint32_t rank = 0; rank < cluster->n; rank++)
                bring(rank);
        settle();
        for (uint32_t rank = 0; rank < cluster->n; rank++)
                ready(rank, 0);
        settle();
        begin_to_count();
        lose(1);
        until(cluster->node[0].voided == 1);
        join(1, 1, cluster->n);
        until(all_run(2));
        bring(1);
        settle();
        return most_since();
}

NODES_TEST(messages_do_not_grow_with_the_nodes, TWO_AVG, EIGHT, MOST) {
        struct traffic forming = form(), changed = change();

        print_message("%u nodes: forming %u messages, %zu bytes; a change %u messages, %zu bytes\n",
                      cluster->n, forming.messages, forming.bytes, changed.messages, changed.bytes);
        assert_in_range(forming.messages, 1, FORMING_MESSAGES);
        assert_in_range(forming.bytes, 1, FORMING_BYTES);
        assert_in_range(changed.messages, 1, CHANGE_MESSAGES);
        assert_in_range(changed.bytes, 1, CHANGE_BYTES);
}
