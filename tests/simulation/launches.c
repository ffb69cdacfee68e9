/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promise of nodes that agree on launches: no node launches what another one is not ready for, and all
 * launch in one order, as long as each of them hears each word of the coordinator, in order. Fillers are no
 * part of it.
 */
#include <string.h>

#include "sim.h"

#define AGREED (N_LANES - 1) /* lanes of which that holds */
#define WORDS 64u            /* of a generation, the latest ones */
#define PLACES 64u           /* in the order of launches, likewise */
#define MAX_TRAILS 128u

/* The launches that a node has been ready for, in the latest unit of each track. */
static struct given {
        struct generation generation;
        uint64_t number, offered[N_LANES];
        bool complete; /* all results are there: it votes */
        bool in_turn;
} given[MAX_PROCS][TRACKS];

/* Up to where nodes may launch in a generation, word by word; and in which order they have. */
static struct trail {
        struct generation name;
        uint64_t term;
        uint32_t n;
        uint64_t said[WORDS][AGREED];
        struct {
                uint64_t place; /* number of the launch, from 1 on */
                uint32_t lane;
        } launched[PLACES];
} trail[MAX_TRAILS];
static uint32_t n_trails;

/* The words of a trail that a node has heard. */
static struct {
        struct generation generation;
        uint64_t go[AGREED];
        uint32_t word; /* the latest one */
        bool lost;     /* `word` is none of those that are kept */
        uint64_t from; /* the node has heard each word about launches from there on */
} follower[MAX_PROCS];

void launches_reset(void) {
        memset(given, 0, sizeof(given));
        memset(follower, 0, sizeof(follower));
        n_trails = 0;
}

static bool is_later(const struct given *g, const struct local *local) {
        int later = generation_compare(local->generation, g->generation);

        return later > 0 || (later == 0 && local->number > g->number);
}

static void note_given(struct given *g, const struct proc *p, uint32_t unit) {
        const struct local *local = &p->local[unit];
        uint32_t results = 0;

        if (is_later(g, local))
                *g = (struct given){ .generation = local->generation, .number = local->number };
        if (!generation_equal(g->generation, local->generation) || g->number != local->number)
                return;
        for (uint32_t lane = 0; lane < N_LANES; lane++) {
                results += local->results[lane];
                if (local->offered[lane] > g->offered[lane])
                        g->offered[lane] = local->offered[lane];
        }
        g->complete |= results == w.items[unit];
        g->in_turn |= track_on(p, unit)->turn > 0;
}

void launches_look(uint32_t proc) {
        const struct proc *p = &w.proc[proc];

        for (uint32_t unit = TRACK_STEP; unit < TRACKS && w.agreed; unit++)
                if (p->local[unit].active && p->track_of[unit] != TRACK_OPERATION)
                        note_given(&given[proc][p->track_of[unit]], p, unit);
}

/* A node that is past the action's unit counts as ready: its earlier state is not known any more. */
static bool was_ready(uint32_t proc, const struct comm *comm, const struct action *action) {
        const struct given *g = &given[proc][action->track];
        int later = generation_compare(g->generation, action->generation);

        if (later != 0 || g->number != action->number)
                return later > 0 || (later == 0 && g->number > action->number);
        if (lane_is_shared(N_LANES, action->lane) && !g->in_turn)
                return false;
        return (action->launch == LAUNCH_VOTE ? g->complete : g->offered[action->lane] > action->index) &&
               action->seq <= comm->done[action->lane][proc] + WINDOW;
}

static struct trail *trail_find(struct generation name) {
        for (uint32_t i = n_trails; i-- > 0;)
                if (generation_equal(trail[i].name, name))
                        return &trail[i];
        return NULL;
}

static struct trail *trail_begin(const struct order *order) {
        struct trail *t = &trail[n_trails];

        if (n_trails == MAX_TRAILS) {
                violate(RULE_WAIT, "generations without end");
                return NULL;
        }
        n_trails++;
        *t = (struct trail){ .name = order->generation, .term = order->term, .n = 1 };
        memcpy(t->said[0], order->go, sizeof(t->said[0]));
        return t;
}

static bool is_below(const uint64_t *a, const uint64_t *b) {
        for (uint32_t lane = 0; lane < AGREED; lane++)
                if (a[lane] < b[lane])
                        return true;
        return false;
}

/* A node that listens to this coordinator has heard of more. */
static bool falls_behind(const struct order *order) {
        for (uint32_t i = 0; i < w.n_procs; i++) {
                const struct node *node = &w.proc[i].node;

                for (uint32_t lane = 0; lane < AGREED; lane++)
                        if (w.proc[i].alive && node->phase == NODE_RUNNING && node->term == order->term &&
                            generation_equal(node->generation, order->generation) &&
                            node->lane[lane].go > order->go[lane])
                                return true;
        }
        return false;
}

/* Words that no node has heard which listens to a later coordinator were never said. */
void launches_said(uint32_t proc, const struct order *order) {
        struct trail *t = trail_find(order->generation);

        if (!w.agreed ||
            (order->kind != ORDER_NEWGEN && (order->kind < ORDER_RUN || order->kind > ORDER_STOP)))
                return;
        if (t == NULL)
                t = trail_begin(order);
        if (t == NULL)
                return;
        while (order->term > t->term && t->n > 1 && is_below(order->go, t->said[(t->n - 1) % WORDS]))
                t->n--;
        t->term = order->term;
        if (is_below(order->go, t->said[(t->n - 1) % WORDS]) || falls_behind(order))
                violate(RULE_ORDER, "coordinator %u takes back what it, or another one, has let nodes launch",
                        proc);
        if (memcmp(order->go, t->said[(t->n - 1) % WORDS], sizeof(t->said[0])) != 0)
                memcpy(t->said[t->n++ % WORDS], order->go, sizeof(t->said[0]));
}

/* Its number; that of no word if it is none of those. */
static uint32_t find_word(const struct trail *t, const uint64_t *go) {
        uint32_t word = t->n;

        while (word-- > 0 && word + WORDS >= t->n)
                if (memcmp(t->said[word % WORDS], go, sizeof(t->said[0])) == 0)
                        return word;
        return t->n;
}

void launches_heard(uint32_t proc) {
        const struct node *node = &w.proc[proc].node;
        const struct trail *t = trail_find(node->generation);
        uint64_t go[AGREED];
        uint32_t word;

        if (!w.agreed || t == NULL || node->phase != NODE_RUNNING)
                return;
        if (!generation_equal(follower[proc].generation, node->generation)) {
                follower[proc].generation = node->generation;
                follower[proc].word = 0;
                follower[proc].lost = t->n > WORDS;
                follower[proc].from = 0;
                memcpy(follower[proc].go, t->said[0], sizeof(go));
        }
        for (uint32_t lane = 0; lane < AGREED; lane++)
                go[lane] = node->lane[lane].go;
        if (memcmp(go, follower[proc].go, sizeof(go)) == 0)
                return;
        memcpy(follower[proc].go, go, sizeof(go));
        word = find_word(t, go);
        if (follower[proc].lost || word != follower[proc].word + 1) {
                follower[proc].from = 1;
                for (uint32_t lane = 0; lane < AGREED; lane++)
                        follower[proc].from += go[lane];
        }
        follower[proc].lost = word == t->n;
        follower[proc].word = word;
}

static void judge_order(uint32_t proc, const struct comm *comm, const struct action *action) {
        struct trail *t = trail_find(action->generation);
        uint64_t place = 1;

        for (uint32_t lane = 0; lane < AGREED; lane++)
                place += comm->launched[lane][proc];
        if (t == NULL || follower[proc].lost || place < follower[proc].from ||
            !generation_equal(follower[proc].generation, action->generation))
                return;
        if (t->launched[place % PLACES].place == place && t->launched[place % PLACES].lane != action->lane)
                violate(RULE_ORDER, "launch %llu of node %u is on lane %u, that of another one on lane %u",
                        (unsigned long long)place, proc, action->lane, t->launched[place % PLACES].lane);
        t->launched[place % PLACES].place = place;
        t->launched[place % PLACES].lane = action->lane;
}

void launches_judge(uint32_t proc, const struct comm *comm, const struct action *action) {
        if (!w.agreed || action->lane >= AGREED || action->launch == LAUNCH_FILLER)
                return;
        launches_look(proc);
        for (uint32_t i = 0; i < w.n_procs; i++)
                if ((comm->set >> i & 1) && !was_ready(i, comm, action))
                        violate(RULE_READY,
                                "node %u launches number %llu of lane %u, for which node %u is not ready",
                                proc, (unsigned long long)action->seq, action->lane, i);
        judge_order(proc, comm, action);
}
