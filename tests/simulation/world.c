/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, the queue of events, and a network that delays, reorders, drops and repeats. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/peer.h"
#include "sim.h"

#define MAX_EVENTS 8192u
#define WHEEL 1024u
#define MAX_SLOTS 1024u
#define SLOT_BYTES 2048u

struct world w;

/* What is to come, by its time: each list holds the events of one moment, in their order. No delay is as long
 * as the wheel. */
struct queued {
        struct event event;
        struct queued *next;
};
static struct queued queued[MAX_EVENTS], *unused, *wheel[WHEEL];
static uint64_t turned; /* up to this moment */
static uint32_t n_queued, n_events;

/* A message in flight: its bytes, as between two daemons, or the struct, as inside of one. */
struct slot {
        ssize_t bytes; /* 0: the struct */
        union {
                uint8_t byte[SLOT_BYTES];
                struct message message;
        };
};
static _Alignas(SCRATCH_ALIGN) uint8_t scratch_bytes[PEER_SCRATCH];
static struct slot slot[MAX_SLOTS];
static struct scratch scratch = { .buffer = scratch_bytes, .size = PEER_SCRATCH };
static uint32_t free_slot[MAX_SLOTS], n_free;

uint32_t rnd(uint32_t below) {
        w.rng ^= w.rng << 13;
        w.rng ^= w.rng >> 7;
        w.rng ^= w.rng << 17;
        return (uint32_t)((w.rng >> 32) * below >> 32);
}

void trace(const char *format, ...) {
        va_list arguments;

        if (!w.trace)
                return;
        printf("%6llu ", (unsigned long long)w.now);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
}

void queue_reset(void) {
        memset(wheel, 0, sizeof(wheel));
        unused = NULL;
        turned = 0;
        n_queued = n_events = n_free = 0;
        for (uint32_t i = MAX_SLOTS; i-- > 0;)
                free_slot[n_free++] = i;
}

static struct queued *queue_room(void) {
        struct queued *room = unused;

        if (room != NULL)
                unused = room->next;
        else if (n_queued < MAX_EVENTS)
                room = &queued[n_queued++];
        return room;
}

void queue_put(struct event event) {
        struct queued *mine = queue_room(), **place = &wheel[event.at % WHEEL];

        if (mine == NULL || event.at < turned || event.at - turned >= WHEEL) {
                fprintf(stderr, "seed %llu: %s\n", (unsigned long long)w.seed,
                        mine == NULL ? "too many events" : "an event too far away");
                abort();
        }
        event.order = w.wired ? 0 : rnd(1u << 30); /* equal ones stay as they come */
        while (*place != NULL && (*place)->event.order <= event.order)
                place = &(*place)->next;
        *mine = (struct queued){ event, *place };
        *place = mine;
        n_events++;
}

void at(uint64_t delay, enum event_kind kind, uint32_t proc, uint32_t a, uint32_t b, uint64_t c) {
        queue_put((struct event){ .at = w.now + delay,
                                  .kind = kind,
                                  .proc = proc,
                                  .epoch = w.proc[proc].epoch,
                                  .a = a,
                                  .b = b,
                                  .c = c });
}

bool next_event(struct event *ret) {
        struct queued *first;

        if (n_events == 0)
                return false;
        while (wheel[turned % WHEEL] == NULL)
                turned++;
        first = wheel[turned % WHEEL];
        wheel[turned % WHEEL] = first->next;
        *ret = first->event;
        first->next = unused;
        unused = first;
        n_events--;
        return true;
}

bool reaches(uint32_t from, uint32_t to) {
        return (w.cut_off[from] >> to & 1) == 0;
}

static void encode(struct slot *s, const struct message *message) {
        static uint8_t bytes[PEER_MAX];

        s->bytes = peer_encode(&scratch, message, bytes);
        if (s->bytes < 0 || s->bytes > (ssize_t)sizeof(s->byte)) {
                fprintf(stderr, "seed %llu: %s cannot be sent in %zd bytes\n", (unsigned long long)w.seed,
                        message_name(message->kind), s->bytes);
                abort();
        }
        memcpy(s->byte, bytes, (size_t)s->bytes);
}

static void put_on_wire(const struct message *message, uint64_t delay) {
        struct slot *s;

        if (!message_valid(message)) {
                violate(RULE_VALID, "%u says %s, and contradicts itself", message->from,
                        message_name(message->kind));
                return;
        }
        if (n_free == 0) {
                fprintf(stderr, "seed %llu: network is full: %s\n", (unsigned long long)w.seed,
                        message_name(message->kind));
                abort();
        }
        s = &slot[free_slot[--n_free]];
        s->bytes = 0;
        if (w.coded)
                encode(s, message);
        else
                message_copy(&s->message, message);
        at(delay, EVENT_MESSAGE, message->to, free_slot[n_free], message->from, 0);
}

static uint64_t net_delay(void) {
        uint32_t kind = rnd(32);

        return kind == 0 ? 5 + rnd(11) : 1 + rnd(4);
}

/* A connection. What was sent first comes first. */
static void send_wired(const struct message *message) {
        uint64_t *arrived = &w.arrived[message->from][message->to],
                 comes = w.now + (message->from == message->to ? 0 : net_delay());

        if (!reaches(message->from, message->to))
                return;
        *arrived = comes > *arrived ? comes : *arrived;
        put_on_wire(message, *arrived - w.now);
}

_Static_assert(N_MESSAGE_KINDS <= 32, "a bit each, see world.lost");

/* No two of a kind in a row are lost, so that nobody is taken for dead only because of the network. */
static void send_unwired(const struct message *message) {
        uint32_t from = message->from, to = message->to, kind = UINT32_C(1) << message->kind;
        uint32_t *lost = &w.lost[from][to];

        if (from != to && !reaches(from, to))
                return;
        if (from != to && rnd(32) == 0 && (*lost & kind) == 0) {
                *lost |= kind;
                return;
        }
        *lost &= ~kind;
        put_on_wire(message, from == to ? 0 : net_delay());
        if (from != to && rnd(32) == 0)
                put_on_wire(message, rnd(16) == 0 ? 100 + rnd(300) : net_delay());
}

void net_send(const struct message *message) {
        uint32_t from = message->from, to = message->to;

        if (to >= w.n_procs || (message->kind < ANSWER_REPORT && !w.proc[to].has_node))
                return;
        truth_message(from, message);
        if (w.trace)
                trace("%u -> %u %s term %llx round %llu gen %u.%llx end %d set %llx n %u", from, to,
                      message_name(message->kind), (unsigned long long)message->term,
                      (unsigned long long)message->round, message->generation.number,
                      (unsigned long long)message->generation.term, message->end,
                      (unsigned long long)nodeset_word(message_set(message), 0), message->n_members);
        if (w.trace && w.agreed)
                trace("%u -> %u ready %llu %llu %llu go %llu %llu %llu", from, to,
                      (unsigned long long)message->ready[0], (unsigned long long)message->ready[1],
                      (unsigned long long)message->ready[2], (unsigned long long)message->go[0],
                      (unsigned long long)message->go[1], (unsigned long long)message->go[2]);
        if (w.wired)
                send_wired(message);
        else
                send_unwired(message);
}

void net_free(uint32_t index) {
        free_slot[n_free++] = index;
}

static const struct message *decode(const struct slot *s) {
        static struct message message;
        const char *why;

        if (!peer_decode(&scratch, s->byte, (size_t)s->bytes, &message, &why)) {
                fprintf(stderr, "seed %llu: a message is refused: %s\n", (unsigned long long)w.seed, why);
                abort();
        }
        return &message;
}

void net_deliver(uint32_t index) {
        const struct message *message = slot[index].bytes > 0 ? decode(&slot[index]) : &slot[index].message;
        struct proc *proc = &w.proc[message->to];

        truth_before(message->to, message);
        if (message->kind < ANSWER_REPORT)
                node_receive(&proc->node, clock_of(proc), message);
        else if (proc->coordinates)
                coordinator_receive(&proc->coordinator, clock_of(proc), message);
        truth_after(message->to, message);
        net_free(index);
}
