/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, the queue of events, and a network that delays, reorders, drops and repeats. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MAX_EVENTS 8192u
#define MAX_SLOTS 1024u
#define SLOT_MEMBERS 6u
#define SLOT_GONE 32u
#define SLOT_TEXT 24u /* enough to see that there is one */

struct world w;

static struct event heap[MAX_EVENTS];
static uint32_t n_events;

/* A message in flight, without the room for what it does not have. */
struct slot {
        _Alignas(16) char head[offsetof(struct message, mark)];
        uint64_t mark[TRACKS], committed[TRACKS], prepared[TRACKS];
        uint64_t set, links;
        struct message_member member_of[SLOT_MEMBERS];
        struct message_gone gone[SLOT_GONE];
        char text[SLOT_TEXT];
        uint32_t code;
};
static struct slot slot[MAX_SLOTS];
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
        n_events = 0;
        n_free = 0;
        for (uint32_t i = MAX_SLOTS; i-- > 0;)
                free_slot[n_free++] = i;
}

static bool before(const struct event *a, const struct event *b) {
        return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void queue_put(struct event event) {
        uint32_t i = n_events++;

        if (n_events == MAX_EVENTS) {
                fprintf(stderr, "seed %llu: too many events\n", (unsigned long long)w.seed);
                abort();
        }
        event.order = rnd(1u << 30);
        for (; i > 0 && before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
                heap[i] = heap[(i - 1) / 2];
        heap[i] = event;
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
        struct event last;
        uint32_t i = 0;

        if (n_events == 0)
                return false;
        *ret = heap[0];
        last = heap[--n_events];
        for (;;) {
                uint32_t child = 2 * i + 1;

                if (child >= n_events)
                        break;
                if (child + 1 < n_events && before(&heap[child + 1], &heap[child]))
                        child++;
                if (!before(&heap[child], &last))
                        break;
                heap[i] = heap[child];
                i = child;
        }
        heap[i] = last;
        return true;
}

bool reaches(uint32_t from, uint32_t to) {
        return (w.cut_off[from] >> to & 1) == 0;
}

static void pack(struct slot *s, const struct message *message) {
        memcpy(s->head, message, sizeof(s->head));
        memcpy(s->mark, message->mark, message->n_tracks * sizeof(s->mark[0]));
        memcpy(s->committed, message->committed, message->n_tracks * sizeof(s->mark[0]));
        memcpy(s->prepared, message->prepared, message->n_tracks * sizeof(s->mark[0]));
        s->set = message->set[0];
        s->links = message->links[0];
        memcpy(s->member_of, message->member_of, message->n_members * sizeof(s->member_of[0]));
        memcpy(s->gone, message->gone, message->n_gone * sizeof(s->gone[0]));
        if (message->kind != ORDER_REFUSE)
                return;
        s->code = message->refusal.code;
        memcpy(s->text, message->refusal.text, sizeof(s->text) - 1);
}

static void unpack(const struct slot *s, struct message *message) {
        memcpy(message, s->head, sizeof(s->head));
        memcpy(message->mark, s->mark, message->n_tracks * sizeof(s->mark[0]));
        memcpy(message->committed, s->committed, message->n_tracks * sizeof(s->mark[0]));
        memcpy(message->prepared, s->prepared, message->n_tracks * sizeof(s->mark[0]));
        message->set[0] = s->set;
        message->links[0] = s->links;
        memcpy(message->member_of, s->member_of, message->n_members * sizeof(s->member_of[0]));
        memcpy(message->gone, s->gone, message->n_gone * sizeof(s->gone[0]));
        if (message->kind != ORDER_REFUSE)
                return;
        message->refusal.code = s->code;
        memcpy(message->refusal.text, s->text, sizeof(s->text));
}

static void put_on_wire(const struct message *message, uint64_t delay) {
        struct slot *s;
        uint32_t index;

        if (n_free == 0 || message->n_members > SLOT_MEMBERS || message->n_gone > SLOT_GONE ||
            message->n_tracks > TRACKS) {
                fprintf(stderr, "seed %llu: network is full\n", (unsigned long long)w.seed);
                abort();
        }
        index = free_slot[--n_free];
        s = &slot[index];
        pack(s, message);
        at(delay, EVENT_MESSAGE, message->to, index, message->from, 0);
}

static uint64_t net_delay(void) {
        uint32_t kind = rnd(32);

        return kind == 0 ? 5 + rnd(11) : 1 + rnd(4);
}

/* No two in a row are lost, so that nobody is taken for dead only because of the network. */
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
        if (from != to && (!reaches(from, to) || (rnd(32) == 0 && w.dropped[from][to]++ == 0)))
                return;
        w.dropped[from][to] = 0;
        put_on_wire(message, from == to ? 0 : net_delay());
        if (from != to && rnd(32) == 0)
                put_on_wire(message, rnd(16) == 0 ? 100 + rnd(300) : net_delay());
}

void net_free(uint32_t index) {
        free_slot[n_free++] = index;
}

void net_deliver(uint32_t index) {
        static struct message message;
        struct proc *proc;

        unpack(&slot[index], &message);
        net_free(index);
        proc = &w.proc[message.to];
        truth_before(message.to, &message);
        if (message.kind < ANSWER_REPORT)
                node_receive(&proc->node, clock_of(proc), &message);
        else if (proc->candidate)
                coordinator_receive(&proc->coordinator, clock_of(proc), &message);
        truth_after(message.to, &message);
}
