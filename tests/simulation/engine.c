/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the engine, with what was measured on a real one: a collective completes on a node only when all
 * nodes have launched that sequence number; after a kill some nodes see it complete and others never do; a
 * stopped node finds its completions when it wakes; an abort ends everything on the node that asks for it,
 * and nowhere else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

void engine_reset(void) {
        w.n_comms = 0;
}

struct comm *engine_find(struct generation name) {
        for (uint32_t i = w.n_comms; i-- > 0;)
                if (generation_equal(w.comm[i].name, name))
                        return &w.comm[i];
        return NULL;
}

static bool linked(uint32_t a, uint32_t b) {
        return reaches(a, b) && reaches(b, a) && (w.bad_link[a] >> b & 1) == 0;
}

/* The nodes that `proc` does not reach. */
static uint64_t unreachable(const struct comm *comm, uint32_t proc) {
        uint64_t nodes = 0;

        for (uint32_t i = 0; i < w.n_procs; i++)
                if ((comm->set >> i & 1) && !linked(proc, i))
                        nodes |= UINT64_C(1) << i;
        return nodes;
}

static void build(uint32_t proc, const struct action *action) {
        struct comm *comm = engine_find(action->comm);

        if (comm == NULL) {
                if (w.n_comms == MAX_COMMS) {
                        violate(RULE_WAIT, "more than %u communicators", MAX_COMMS);
                        return;
                }
                comm = &w.comm[w.n_comms++];
                memset(comm, 0, sizeof(*comm));
                comm->name = action->comm;
                comm->set = action->set.word[0];
        }
        comm->begun |= UINT64_C(1) << proc;
        comm->epoch[proc] = w.proc[proc].epoch;
        for (uint32_t i = 0; i < w.n_procs && comm->begun == comm->set; i++)
                if (comm->set >> i & 1)
                        queue_put((struct event){ .at = w.now + 1 + rnd(rnd(4) == 0 ? 60 : 5),
                                                  .kind = EVENT_BUILT,
                                                  .proc = i,
                                                  .epoch = comm->epoch[i],
                                                  .a = (uint32_t)(comm - w.comm) });
}

void engine_built(const struct event *event) {
        struct comm *comm = &w.comm[event->a];

        uint64_t nodes = unreachable(comm, event->proc);

        if (comm->dead >> event->proc & 1)
                return;
        if (nodes == 0)
                comm->works |= UINT64_C(1) << event->proc;
        else
                comm->dead |= UINT64_C(1) << event->proc;
        node_built(&w.proc[event->proc].node, clock_of(&w.proc[event->proc]), comm->name, set_of(&nodes));
}

static void contribute(struct collective *c, const struct action *action, uint32_t proc) {
        bool filler = action->launch == LAUNCH_FILLER;

        if (c->launched == 0)
                c->value = 1;
        if (c->named && !filler &&
            (c->kind != action->launch || c->track != action->track || c->number != action->number ||
             c->index != action->index))
                violate(RULE_ORDER,
                        "node %u launches part %llu of unit %llu on track %u as number %llu of lane %u, "
                        "others part %llu of unit %llu on track %u",
                        proc, (unsigned long long)action->index, (unsigned long long)action->number,
                        action->track, (unsigned long long)action->seq, action->lane,
                        (unsigned long long)c->index, (unsigned long long)c->number, c->track);
        if (!filler) {
                c->named = true;
                c->kind = action->launch;
                c->track = action->track;
                c->number = action->number;
                c->index = action->index;
        }
        c->mixed |= filler;
        if (action->launch != LAUNCH_PAYLOAD && action->value < c->value)
                c->value = action->value;
        if (action->launch == LAUNCH_PAYLOAD) {
                c->payload |= UINT64_C(1) << proc;
                c->unit[proc] = unit_on(&w.proc[proc], action->track);
                c->members += w.proc[proc].local[c->unit[proc]].members;
                c->serial[proc] = w.proc[proc].local[c->unit[proc]].serial;
        }
        c->launched |= UINT64_C(1) << proc;
}

static void launch(uint32_t proc, const struct action *action) {
        struct comm *comm = engine_find(action->comm);
        struct collective *c;

        if (comm == NULL || action->seq != comm->launched[action->lane][proc] + 1) {
                violate(RULE_COUNTS,
                        "node %u launches %llu on lane %u of a communicator where it is not the next", proc,
                        (unsigned long long)action->seq, action->lane);
                return;
        }
        if ((comm->works >> proc & 1) == 0)
                violate(RULE_WAIT, "node %u launches on a communicator that does not work there yet", proc);
        launches_judge(proc, comm, action);
        comm->launched[action->lane][proc] = action->seq;
        c = &comm->ring[action->lane][action->seq % RING];
        if (c->seq != action->seq)
                *c = (struct collective){ .seq = action->seq };
        contribute(c, action, proc);
        if (c->launched != comm->set)
                return;
        for (uint32_t i = 0; i < w.n_procs; i++) {
                uint64_t *next = &comm->next_at[action->lane][i];

                if ((comm->set >> i & 1) == 0)
                        continue;
                *next = (*next > w.now ? *next : w.now) + 1 + rnd(rnd(8) == 0 ? 12 : 3);
                queue_put((struct event){ .at = *next,
                                          .kind = EVENT_DONE,
                                          .proc = i,
                                          .epoch = comm->epoch[i],
                                          .a = (uint32_t)(comm - w.comm),
                                          .b = action->lane,
                                          .c = action->seq });
        }
}

void engine_done(const struct event *event) {
        struct comm *comm = &w.comm[event->a];
        const struct collective *c = &comm->ring[event->b][event->c % RING];
        struct node *node = &w.proc[event->proc].node;
        bool held = false;

        if (comm->dead >> event->proc & 1)
                return;
        if (generation_equal(node->comm, comm->name) && event->c > node->lane[event->b].completed + 1) {
                at(1, EVENT_DONE, event->proc, event->a, event->b,
                   event->c); /* in order, also for a node that wakes */
                return;
        }
        for (uint32_t i = 0; i < w.n_procs; i++) {
                if ((comm->set >> i & 1) == 0)
                        continue;
                if ((!w.proc[i].alive || w.proc[i].epoch != comm->epoch[i]) && rnd(2) == 0)
                        comm->dead |= UINT64_C(1)
                                      << event->proc; /* it waits for bytes that will never come */
                held |= !linked(event->proc, i);
        }
        if (held) {
                comm->dead |= UINT64_C(1) << event->proc;
                at(5 + rnd(60), EVENT_UNREACHABLE, event->proc, event->a, 0, unreachable(comm, event->proc));
        }
        if (comm->dead >> event->proc & 1)
                return;
        comm->done[event->b][event->proc] = event->c;
        local_result(event->proc, event->b, c);
        node_done(node, clock_of(&w.proc[event->proc]), comm->name, event->b, event->c, c->value);
}

void engine_act(uint32_t proc, const struct action *action) {
        struct comm *comm;

        switch (action->kind) {
        case ACTION_BUILD: build(proc, action); break;
        case ACTION_LAUNCH: launch(proc, action); break;
        case ACTION_DROP:
                comm = engine_find(action->comm);
                if (comm != NULL)
                        comm->dead |= UINT64_C(1) << proc;
                break;
        case ACTION_ABORT:
                comm = engine_find(action->comm);
                if (comm != NULL) {
                        comm->dead |= UINT64_C(1) << proc;
                        at(1 + rnd(3), EVENT_ABORTED, proc, (uint32_t)(comm - w.comm), 0, 0);
                }
                break;
        default: break;
        }
}
