/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, the queue of events, and a network that delays, reorders, drops and repeats. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/wire/peer.h"
#include "sim.h"

#define MAX_EVENTS 8192u
#define WHEEL 1024u
#define MAX_SLOTS 1024u
#define SLOT_BYTES 2048u

struct world w;

/* The events to come, by time: each list holds the events of one moment, in their order. No delay is as long
 * as the wheel. */
struct queued {
        struct event event;
        struct queued *next;
};
static struct queued queued[MAX_EVENTS], *unused, *wheel[WHEEL];
static uint64_t turned; /* up to this moment */
static uint32_t n_queued, n_events;

/* A message that a process sends: an order or a report, the other one is NULL. */
struct message {
        uint32_t from, to;
        const struct order *order;
        const struct report *report;
};

/* A message in flight: its bytes, as between two daemons, or the struct, as inside of one. */
struct packet {
        enum { PACKET_ORDER, PACKET_REPORT } kind;
        ssize_t bytes; /* 0: the struct */
        union {
                uint8_t byte[SLOT_BYTES];
                struct order order;
                struct report report;
        };
};
static _Alignas(SCRATCH_ALIGN) uint8_t scratch_bytes[PEER_SCRATCH];
static struct packet slot[MAX_SLOTS];
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

static const char *name_of(const struct message *message) {
        return message->order != NULL ? order_name(message->order->kind) : report_name(message->report->kind);
}

static void encode(struct packet *packet, const struct message *message) {
        static uint8_t bytes[PEER_MAX];

        if (message->order != NULL)
                packet->bytes = peer_encode_order(&scratch, message->order, bytes);
        else
                packet->bytes = peer_encode_report(&scratch, message->report, bytes);
        if (packet->bytes < 0 || packet->bytes > (ssize_t)sizeof(packet->byte)) {
                fprintf(stderr, "seed %llu: %s cannot be sent in %zd bytes\n", (unsigned long long)w.seed,
                        name_of(message), packet->bytes);
                abort();
        }
        memcpy(packet->byte, bytes, (size_t)packet->bytes);
}

static bool is_valid(const struct message *message) {
        return message->order != NULL ? order_valid(message->order) : report_valid(message->report);
}

static void put_on_wire(const struct message *message, uint64_t delay) {
        struct packet *packet;

        if (!is_valid(message)) {
                violate(RULE_VALID, "%u says %s, and contradicts itself", message->from, name_of(message));
                return;
        }
        if (n_free == 0) {
                fprintf(stderr, "seed %llu: network is full: %s\n", (unsigned long long)w.seed,
                        name_of(message));
                abort();
        }
        packet = &slot[free_slot[--n_free]];
        packet->kind = message->order != NULL ? PACKET_ORDER : PACKET_REPORT;
        packet->bytes = 0;
        if (w.coded)
                encode(packet, message);
        else if (packet->kind == PACKET_ORDER)
                order_copy(&packet->order, message->order);
        else
                report_copy(&packet->report, message->report);
        at(delay, EVENT_MESSAGE, message->to, free_slot[n_free], message->from, 0);
}

static uint64_t net_delay(void) {
        uint32_t kind = rnd(32);

        return kind == 0 ? 5 + rnd(11) : 1 + rnd(4);
}

/* Sends over a connection: messages arrive in the order in which they were sent. */
static void send_wired(const struct message *message) {
        uint64_t *arrived = &w.arrived[message->from][message->to],
                 comes = w.now + (message->from == message->to ? 0 : net_delay());

        if (!reaches(message->from, message->to))
                return;
        *arrived = comes > *arrived ? comes : *arrived;
        put_on_wire(message, *arrived - w.now);
}

_Static_assert(N_ORDERS <= 32 && N_ANSWERS <= 32, "a bit each, see world.lost");

/* A process sends another one only orders or only reports, so that they may have the same bits. */
static uint32_t kind_bit(const struct message *message) {
        return UINT32_C(1) << (message->order != NULL ? (uint32_t)message->order->kind
                                                      : (uint32_t)message->report->kind);
}

/* Sends over a network that loses messages, but no two of a kind in a row: it takes more than that to be
 * taken for dead. */
static void send_unwired(const struct message *message) {
        uint32_t from = message->from, to = message->to, kind = kind_bit(message);
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

static void net_send(const struct message *message) {
        if (w.wired)
                send_wired(message);
        else
                send_unwired(message);
}

void net_order(uint32_t from, const struct order *order) {
        if (order->to >= w.n_procs || !w.proc[order->to].has_node)
                return;
        truth_said(from, order);
        if (w.trace)
                trace("%u -> %u %s term %llx round %llu gen %u.%llx end %d set %llx n %u", from, order->to,
                      order_name(order->kind), (unsigned long long)order->term,
                      (unsigned long long)order->round, order->generation.number,
                      (unsigned long long)order->generation.term, order->end,
                      (unsigned long long)nodeset_word(order_set(order), 0), order->n_members);
        if (w.trace && w.agreed)
                trace("%u -> %u ready 0 0 0 go %llu %llu %llu", from, order->to,
                      (unsigned long long)order->go[0], (unsigned long long)order->go[1],
                      (unsigned long long)order->go[2]);
        net_send(&(struct message){ .from = from, .to = order->to, .order = order });
}

void net_report(uint32_t from, const struct report *report) {
        if (w.trace)
                trace("%u -> %u %s term %llx round %llu gen %u.%llx end %d set %llx n %u", from, COORDINATOR,
                      report_name(report->kind), (unsigned long long)report->term,
                      (unsigned long long)report->round, report->generation.number,
                      (unsigned long long)report->generation.term, report->end,
                      (unsigned long long)nodeset_word(report_set(report), 0), report->n_members);
        if (w.trace && w.agreed)
                trace("%u -> %u ready %llu %llu %llu go %llu %llu %llu", from, COORDINATOR,
                      (unsigned long long)report->ready[0], (unsigned long long)report->ready[1],
                      (unsigned long long)report->ready[2], (unsigned long long)report->go[0],
                      (unsigned long long)report->go[1], (unsigned long long)report->go[2]);
        net_send(&(struct message){ .from = from, .to = COORDINATOR, .report = report });
}

void net_free(uint32_t index) {
        free_slot[n_free++] = index;
}

static void refused(const char *why) {
        fprintf(stderr, "seed %llu: a message is refused: %s\n", (unsigned long long)w.seed, why);
        abort();
}

static const struct order *order_in(const struct packet *packet) {
        static struct order order;
        const char *why;

        if (packet->bytes == 0)
                return &packet->order;
        if (!peer_decode_order(&scratch, packet->byte, (size_t)packet->bytes, &order, &why))
                refused(why);
        return &order;
}

static const struct report *report_in(const struct packet *packet) {
        static struct report report;
        const char *why;

        if (packet->bytes == 0)
                return &packet->report;
        if (!peer_decode_report(&scratch, packet->byte, (size_t)packet->bytes, &report, &why))
                refused(why);
        return &report;
}

static void deliver_order(uint32_t to, const struct order *order) {
        truth_before(to, order);
        node_receive(&w.proc[to].node, clock_of(&w.proc[to]), order);
        truth_after(to, order);
}

static void deliver_report(uint32_t to, const struct report *report) {
        struct proc *proc = &w.proc[to];

        if (proc->coordinates)
                coordinator_receive(&proc->coordinator, clock_of(proc), report);
        truth_reported(to);
}

void net_deliver(uint32_t to, uint32_t index) {
        const struct packet *packet = &slot[index];

        if (packet->kind == PACKET_ORDER)
                deliver_order(to, order_in(packet));
        else
                deliver_report(to, report_in(packet));
        net_free(index);
}
