/* SPDX-License-Identifier: Apache-2.0 */
/* The true history of a world, kept apart from what machines say, and the rules that are judged by it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "sim.h"
#include "tests/unit/recount.h"

#define MAX_GENERATIONS 128u
#define MAX_TERMS 64u
#define MAX_VOIDS 64u
#define MAX_MEMBERS 1024u

struct fact {
        struct generation name, comm;
        uint64_t set, term, round, entered;
        struct sha256 secret;
        uint32_t from, world;
        uint64_t member[MAX_PROCS * MAX_TRAINERS]; /* by rank */
        bool known;                                /* the state of members that are not behind: */
        uint64_t hash;
        struct tag tag;
        struct generation before; /* where the survivors come from, and */
        uint64_t committed;       /* the last step that they were told there */
        uint32_t plan[TRACKS];    /* the plan whose track it is */
        uint64_t number[TRACKS];  /* it has been that plan's since this unit at the latest */
        uint32_t n_entered;
        struct generation whole; /* the latest one before which something is void for its members */
};

/* The steps that members of a process were told, as long as their node is a survivor of its generation. */
static struct {
        bool survivor;
        struct generation generation;
        uint64_t committed, number[TRACKS];
} heard[MAX_PROCS];

/* The generation that members of a process were told last. */
static struct {
        struct generation generation;
        uint32_t before;   /* number of the one before; 0: it does not concern members any more */
        uint32_t world, n; /* n: of its members that are on this process */
        bool over;         /* they were told of a loss in it, or that something is void */
} told[MAX_PROCS];

/* The steps that a restarted node should go on from, and whether nothing is void then. */
static struct {
        bool come, resumes;
        uint64_t step[TRACKS];
} restored[MAX_PROCS];

static struct fact fact[MAX_GENERATIONS];
static uint32_t n_facts;
static struct {
        uint64_t term;
        uint32_t proc, epoch;
} served[MAX_TERMS];
static uint32_t n_served;
static struct {
        struct generation generation;
        uint64_t number;
        uint32_t track;
} voided[MAX_VOIDS];
static uint32_t n_voided;
static struct {
        uint64_t identity;
        uint32_t cause;
} person[MAX_MEMBERS]; /* by member_id_count(); cause: gone, and why */
static struct {
        struct generation generation;
        uint64_t number;
} differs[MAX_VOIDS];
static uint32_t n_differs;
static uint64_t most_opened[TRACKS];             /* steps of each plan, on any node */
static struct generation interrupted[MAX_PROCS]; /* its members know that it has lost a member */
static uint64_t judged_term, judged_round;
static bool ended, refused;
static struct node before;
static struct track track_before[TRACKS];
static bool compare;

const char *const rule_names[N_RULES] = {
        "none",  "same-state", "true-sum", "arena",    "rank",      "generation", "term",
        "wait",  "counts",     "fenced",   "loss",     "track",     "order",      "ready",
        "valid", "restart",    "torn",     "no-fault", "one-fault",
};

void truth_reset(void) {
        memset(heard, 0, sizeof(heard));
        memset(told, 0, sizeof(told));
        memset(interrupted, 0, sizeof(interrupted));
        memset(most_opened, 0, sizeof(most_opened));
        n_facts = n_served = n_voided = n_differs = 0;
        launches_reset();
        memset(restored, 0, sizeof(restored));
        judged_term = judged_round = 0;
        ended = refused = false;
}

void violate(enum rule rule, const char *format, ...) {
        va_list arguments;

        if (w.violated != RULE_NONE)
                return;
        w.violated = rule;
        if (!w.trace)
                return;
        printf("%6llu VIOLATED %s: ", (unsigned long long)w.now, rule_names[rule]);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
}

static struct fact *find(struct generation name) {
        for (uint32_t i = 0; i < n_facts; i++)
                if (generation_equal(fact[i].name, name))
                        return &fact[i];
        return NULL;
}

static void note_newgen(uint32_t proc, const struct order *order) {
        struct fact *known = find(order->generation);

        if (known == NULL) {
                if (n_facts == MAX_GENERATIONS) {
                        violate(RULE_WAIT, "generations without end");
                        return;
                }
                known = &fact[n_facts++];
                memset(known, 0, sizeof(*known));
                known->name = order->generation;
                known->comm = order->comm;
                known->set = nodeset_word(order_set(order), 0);
                known->term = order->term;
                known->round = order->round;
                known->from = proc;
                known->world = order->world;
                known->secret = order->secret;
                for (uint32_t i = 0; i + 1 < n_facts; i++)
                        if (!sha256_is_none(&order->secret) && sha256_equal(&fact[i].secret, &order->secret))
                                violate(RULE_GENERATION, "two generations have one secret");
        } else if (known->set != nodeset_word(order_set(order), 0) || known->world != order->world ||
                   known->round != order->round || known->term != order->term || known->from != proc ||
                   !generation_equal(known->comm, order->comm) ||
                   !sha256_equal(&known->secret, &order->secret)) {
                violate(RULE_GENERATION, "generation %u of term %llx is made twice", order->generation.number,
                        (unsigned long long)order->generation.term);
        }
}

/* All lanes are equal when the verdict is given over a communicator that stays. */
static void note_verdict(uint32_t proc, const struct order *order) {
        const struct coordinator *c = &w.proc[proc].coordinator;
        const struct comm *comm = engine_find(c->comm);

        if (c->abort || comm == NULL || (order->term == judged_term && order->round == judged_round))
                return;
        judged_term = order->term;
        judged_round = order->round;
        for (uint32_t lane = 0; lane < N_LANES; lane++)
                for (uint32_t i = 0; i < w.n_procs; i++)
                        if ((comm->set >> i & 1) && comm->launched[lane][i] != c->cut[lane])
                                violate(RULE_COUNTS, "node %u has launched %llu on lane %u, the cut is %llu",
                                        i, (unsigned long long)comm->launched[lane][i], lane,
                                        (unsigned long long)c->cut[lane]);
}

void truth_said(uint32_t proc, const struct order *order) {
        if (order->kind == ORDER_NEWGEN)
                note_newgen(proc, order);
        else if (order->kind == ORDER_VERDICT)
                note_verdict(proc, order);
        else if (order->kind == ORDER_END)
                ended = true;
        else if (order->kind == ORDER_REFUSE)
                refused = true;
        else if (order->kind == ORDER_FENCE)
                w.personal = false; /* too slow: taken for gone with all its members */
        launches_said(proc, order);
}

/* A new run of its daemon says anew what the former one has said. */
void truth_restarted(uint32_t proc) {
        interrupted[proc] = (struct generation){ 0 };
        restored[proc].come = false;
}

void truth_lost(uint32_t proc) {
        if (restored[proc].come && restored[proc].resumes && w.n_faults == 1)
                violate(RULE_ONE_FAULT, "node %u begins anew, though all of its members are back", proc);
        restored[proc].come = false;
        heard[proc].survivor = false;
}

/* All survivors of a generation have been told the same. */
static void compare_told(uint32_t proc, struct fact *f, const struct action *action) {
        if (heard[proc].survivor && generation_equal(heard[proc].generation, action->generation))
                return;
        if (heard[proc].survivor) {
                if (f->before.number == 0) {
                        f->before = heard[proc].generation;
                        f->committed = heard[proc].committed;
                }
                if (generation_equal(f->before, heard[proc].generation) &&
                    f->committed != heard[proc].committed)
                        violate(RULE_SAME_STATE, "survivors of generation %u were told %llu and %llu",
                                f->before.number, (unsigned long long)f->committed,
                                (unsigned long long)heard[proc].committed);
        }
        heard[proc].survivor = true;
        heard[proc].generation = action->generation;
        heard[proc].committed = action->number;
        for (uint32_t track = 0; track < TRACKS; track++)
                heard[proc].number[track] = track_on(&w.proc[proc], track)->committed;
}

void truth_generation(uint32_t proc, struct trainer *trainer, const struct action *action) {
        struct fact *f = find(action->generation);

        if (f == NULL || action->rank >= MAX_PROCS * MAX_TRAINERS || action->rank >= action->world) {
                violate(RULE_RANK, "member %llu has rank %u of %u", (unsigned long long)trainer->id,
                        action->rank, action->world);
                return;
        }
        if (f->member[action->rank] != 0 && f->member[action->rank] != trainer->id)
                violate(RULE_RANK, "rank %u is given to %llu and %llu", action->rank,
                        (unsigned long long)f->member[action->rank], (unsigned long long)trainer->id);
        f->member[action->rank] = trainer->id;
        if (f->entered == 0)
                f->entered = w.now;
        compare_told(proc, f, action);
        if (!generation_equal(told[proc].generation, action->generation)) {
                told[proc].before = told[proc].generation.number;
                told[proc].generation = action->generation;
                told[proc].world = action->world;
                told[proc].n = 0;
                told[proc].over = false;
        }
        told[proc].n++;
        if (trainer->generation.number >= action->generation.number)
                violate(RULE_GENERATION, "member %llu comes from generation %u into %u",
                        (unsigned long long)trainer->id, trainer->generation.number,
                        action->generation.number);
        for (uint32_t track = 0; track < TRACKS; track++)
                if (w.proc[proc].local[track].active)
                        violate(RULE_ARENA, "a new generation while the daemon has the arena of member %llu",
                                (unsigned long long)trainer->id);
        if (action->behind && action->rank == action->source)
                violate(RULE_SAME_STATE, "rank %u is the source, and lacks the state itself", action->rank);
        if (action->behind)
                return;
        if (f->known && f->hash != trainer->hash)
                violate(RULE_SAME_STATE,
                        "member %llu (step %llu) and an earlier one (step %llu) go on from other states",
                        (unsigned long long)trainer->id, (unsigned long long)trainer->tag.step,
                        (unsigned long long)f->tag.step);
        f->known = true;
        f->hash = trainer->hash;
        f->tag = trainer->tag;
}

uint64_t truth_state(struct generation generation, struct tag *ret_tag) {
        const struct fact *f = find(generation);

        if (f == NULL || !f->known) {
                violate(RULE_SAME_STATE, "nobody in generation %u has the state that the others take",
                        generation.number);
                return 0;
        }
        *ret_tag = f->tag;
        return f->hash;
}

/* A unit that is void for some members is void for all, and a new member repeats nothing. */
void truth_entered(uint32_t proc, const struct action *action) {
        struct fact *f = find(action->generation);
        struct proc *p = &w.proc[proc];

        if (f == NULL || !node_has_members(p))
                return; /* the former has been said already */
        if (action->torn)
                p->whole = action->generation;
        if (f->n_entered++ == 0)
                f->whole = p->whole;
        if (!generation_equal(f->whole, p->whole))
                violate(RULE_TORN, "members of node %u repeat what was void before generation %u, others %u",
                        proc, p->whole.number, f->whole.number);
        if ((p->torn || p->fresh) && !action->torn)
                violate(RULE_TORN, "node %u enters generation %u as if nothing had happened%s", proc,
                        action->generation.number, p->fresh ? ", with new members" : "");
        for (uint32_t i = 0; i < MAX_TRAINERS; i++) {
                struct trainer *trainer = &p->trainer[i];

                if (trainer->state == TRAINER_NONE || !trainer->in)
                        continue;
                if (trainer->unsynced && action->torn && !action->behind && w.n_procs > 1)
                        violate(RULE_TORN, "member %llu enters generation %u, and has to synchronise still",
                                (unsigned long long)trainer->id, action->generation.number);
                trainer->unsynced |= action->behind;
        }
        p->torn = p->fresh = false;
}

static void note_void(const struct action *action) {
        for (uint32_t i = 0; i < n_voided; i++)
                if (generation_equal(voided[i].generation, action->generation) &&
                    voided[i].number == action->number && voided[i].track == action->track)
                        return;
        if (n_voided < MAX_VOIDS) {
                voided[n_voided].generation = action->generation;
                voided[n_voided].track = action->track;
                voided[n_voided++].number = action->number;
        }
}

/* Two worlds of one job: something has begun, and was committed, in a generation after a later one had been
 * entered. */
static void look_for_two_worlds(uint32_t proc, const struct local *local, const struct action *action) {
        for (uint32_t i = 0; i < n_facts; i++)
                if (fact[i].entered > 0 && fact[i].entered < local->opened &&
                    generation_compare(fact[i].name, action->generation) > 0)
                        violate(RULE_FENCED, "node %u goes on in generation %u, while others are in %u", proc,
                                action->generation.number, fact[i].name.number);
}

static bool is_different(const struct action *action) {
        for (uint32_t i = 0; i < n_differs; i++)
                if (generation_equal(differs[i].generation, action->generation) &&
                    differs[i].number == action->number)
                        return true;
        return false;
}

void truth_differs(struct generation generation, uint64_t number) {
        if (n_differs == MAX_VOIDS) {
                violate(RULE_WAIT, "operations without end");
                return;
        }
        differs[n_differs].generation = generation;
        differs[n_differs++].number = number;
}

void truth_outcome(uint32_t proc, const struct action *action) {
        uint32_t unit = unit_on(&w.proc[proc], action->track);
        const struct local *local = &w.proc[proc].local[unit];

        if (action->kind == ACTION_MISMATCH && !is_different(action))
                violate(RULE_TRUE_SUM, "an operation that is the same everywhere is called different");
        told[proc].over |= action->kind == ACTION_VOID;
        w.proc[proc].torn |= action->kind == ACTION_VOID && local->written;
        if (action->kind == ACTION_VOID && track_is_step(action->track) && !local->empty)
                note_void(action);
        if (action->kind != ACTION_COMMITTED || local->empty)
                return;
        look_for_two_worlds(proc, local, action);
        heard[proc].number[unit] = action->number;
        if (track_is_step(action->track)) {
                for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                        w.proc[proc].trainer[i].unsynced &= !w.proc[proc].trainer[i].in;
                heard[proc].committed++;
        }
        for (uint32_t item = 0; item < w.items[unit]; item++)
                if (!local->good[item] || !local->fanned[item])
                        violate(RULE_TRUE_SUM, "node %u commits %llu without the result of item %u", proc,
                                (unsigned long long)action->number, item);
}

void truth_serving(uint32_t proc) {
        const struct proc *p = &w.proc[proc];

        for (uint32_t i = 0; i < n_served; i++)
                if (served[i].term == p->coordinator.term) {
                        if (served[i].proc != proc || served[i].epoch != p->epoch)
                                violate(RULE_TERM, "%u and %u serve in term %llx", served[i].proc, proc,
                                        (unsigned long long)p->coordinator.term);
                        return;
                }
        if (n_served < MAX_TERMS) {
                served[n_served].term = p->coordinator.term;
                served[n_served].proc = proc;
                served[n_served++].epoch = p->epoch;
        }
}

uint64_t truth_units_before(uint32_t proc, uint32_t plan) {
        const struct node *node = &w.proc[proc].node;

        for (uint32_t i = 0; i < node->n_plans; i++)
                if (node->plan[i].ordinal == plan)
                        return node->plan[i].before;
        return 0;
}

void truth_counted(uint32_t proc, uint32_t plan, uint64_t steps) {
        heard[proc].number[plan] = track_on(&w.proc[proc], plan)->committed;
        if (steps > most_opened[plan])
                violate(RULE_TRACK, "node %u counts %llu steps of plan %u, of which %llu were ever opened",
                        proc, (unsigned long long)steps, plan, (unsigned long long)most_opened[plan]);
}

void truth_opened(uint32_t proc, const struct action *action) {
        struct fact *f = find(action->generation);
        uint32_t unit = unit_on(&w.proc[proc], action->track);

        if (track_is_step(action->track) &&
            action->number - truth_units_before(proc, unit) > most_opened[unit])
                most_opened[unit] = action->number - truth_units_before(proc, unit);
        if (f == NULL || !track_is_step(action->track))
                return;
        if (f->plan[action->track] != 0 && f->plan[action->track] != unit &&
            f->number[action->track] == action->number)
                violate(RULE_TRACK, "node %u has plan %u on track %u, others have plan %u", proc, unit,
                        action->track, f->plan[action->track]);
        if (action->number < f->number[action->track])
                return;
        f->plan[action->track] = unit;
        f->number[action->track] = action->number;
}

/* The unit may come to be another plan, whose numbers are those of another track. */
void truth_dropped(uint32_t proc, uint32_t unit) {
        heard[proc].number[unit] = 0;
        most_opened[unit] = UINT64_MAX; /* others may count those of the former plan of that name */
}

void truth_write(uint32_t proc, const struct local *local) {
        if (local->told)
                violate(RULE_ARENA, "node %u writes into arenas of step %llu, which its members have back",
                        proc, (unsigned long long)local->number);
}

/* An order must change nothing if its coordinator's term is over, or if it is meant for another run of the
 * node. */
void truth_before(uint32_t proc, const struct order *order) {
        const struct node *node = &w.proc[proc].node;

        compare = order->term < node->term || order->instance != node->config.instance;
        if (compare) {
                before = *node;
                memcpy(track_before, node->track, sizeof(track_before));
        }
}

void truth_after(uint32_t proc, const struct order *order) {
        const struct node *node = &w.proc[proc].node, *was = &before;

        launches_heard(proc);
        if (!compare || node->suspended != was->suspended || node->phase == NODE_LEAVING)
                return; /* or time has come for what it does of itself */
        if (node->term != was->term || node->round != was->round || node->phase != was->phase ||
            node->n != was->n || !generation_equal(node->generation, was->generation) ||
            memcmp(node->track, track_before, sizeof(track_before)) != 0 ||
            memcmp(node->lane, was->lane, sizeof(node->lane)) != 0)
                violate(RULE_FENCED, "%s of term %llx has changed node %u, which is in term %llx",
                        order_name(order->kind), (unsigned long long)order->term, proc,
                        (unsigned long long)was->term);
}

void truth_reported(uint32_t proc) {
        if (!counts_agree(&w.proc[proc].coordinator))
                violate(RULE_COUNTS, "coordinator %u has not counted right what it was told", proc);
}

void truth_hired(uint64_t member, uint64_t identity) {
        uint32_t count = member_id_count(member);

        if (count >= MAX_MEMBERS) {
                violate(RULE_WAIT, "members without end");
                return;
        }
        person[count].identity = identity;
        person[count].cause = 0;
}

void truth_gone(uint64_t member, uint32_t cause) {
        uint32_t count = member_id_count(member);

        if (count < MAX_MEMBERS && person[count].cause == 0)
                person[count].cause = cause;
}

static bool has_successor(uint32_t member) {
        for (uint32_t later = member + 1; later <= w.next_member; later++)
                if (person[later].identity == person[member].identity)
                        return true;
        return false;
}

/* A member that is reported as lost is gone, for that cause, unless its whole node is taken for gone. */
static void judge_loss(uint32_t proc, const struct membership_loss *loss) {
        uint32_t count = member_id_count(loss->member);
        uint32_t truly = count <= w.next_member ? person[count].cause : 0;
        bool node = loss->cause == WIRE__CAUSE__UNREACHABLE || loss->cause == WIRE__CAUSE__RESTARTED;

        if (loss->member == 0 || truly == loss->cause || (!w.personal && node))
                return;
        if (loss->cause == WIRE__CAUSE__SUPERSEDED && has_successor(count))
                return;
        violate(RULE_LOSS, "node %u says that member %llu is gone with cause %u, but it is %u", proc,
                (unsigned long long)loss->member, loss->cause, truly);
}

void truth_loss(uint32_t proc, const struct action *action) {
        bool known = generation_equal(interrupted[proc], action->generation);

        judge_loss(proc, &action->loss);
        if (action->kind == ACTION_INTERRUPTED) {
                if (known || action->loss.cause == 0)
                        violate(RULE_LOSS, "node %u interrupts generation %u again, or without a cause", proc,
                                action->generation.number);
                interrupted[proc] = action->generation;
                told[proc].over |= action->loss.member != 0;
        }
        if (action->kind == ACTION_VOID && !action->behind && !known &&
            !w.proc[proc].local[unit_on(&w.proc[proc], action->track)].empty &&
            w.proc[proc].node.phase != NODE_ENDED)
                violate(RULE_LOSS, "node %u says void in generation %u, and has not said why", proc,
                        action->generation.number);
}

/* Restarts. */
static bool is_begun(uint32_t proc, uint32_t plan) {
        const struct local *former = &w.proc[proc].former[plan];

        return former->active && former->written && former->number > heard[proc].number[plan];
}

/* All results of the step are in the arenas. */
static bool is_there(uint32_t proc, uint32_t plan) {
        const struct local *former = &w.proc[proc].former[plan];
        bool there = is_begun(proc, plan) && !former->spoilt;

        for (uint32_t item = 0; item < w.items[plan]; item++)
                there &= former->good[item] && former->fanned[item];
        return there;
}

/* All members of the generation come back, and have not heard that it is over. */
static bool is_whole(uint32_t proc) {
        const struct proc *p = &w.proc[proc];
        uint32_t n = 0;

        for (uint32_t i = 0; i < MAX_TRAINERS; i++)
                n += p->trainer[i].returns && (p->trainer[i].heard == told[proc].generation.number ||
                                               p->trainer[i].heard == told[proc].before);
        return n == told[proc].n && (w.n_procs > 1 || n == told[proc].world) && !told[proc].over;
}

void truth_restored(uint32_t proc, const struct report *report, bool resumes) {
        const struct proc *p = &w.proc[proc];
        bool whole = is_whole(proc), expected = whole && w.n_procs == 1;

        for (uint32_t unit = 0; unit < TRACKS; unit++) {
                uint64_t committed = heard[proc].number[unit];

                if (unit > 0 && p->track_of[unit] == TRACK_OPERATION)
                        continue;
                if (report->committed[p->track_of[unit]] != committed)
                        violate(RULE_RESTART, "node %u goes on after unit %llu of %u, %llu were committed",
                                proc, (unsigned long long)report->committed[p->track_of[unit]], unit,
                                (unsigned long long)committed);
                restored[proc].step[unit] = committed + is_there(proc, unit);
                expected &= unit == 0 || !is_begun(proc, unit) || is_there(proc, unit);
                if (unit > 0 && report->mark[p->track_of[unit]] != committed + is_begun(proc, unit))
                        violate(RULE_RESTART, "node %u goes on as if step %llu of plan %u was %s", proc,
                                (unsigned long long)committed + 1, unit,
                                is_begun(proc, unit) ? "not begun" : "begun");
        }
        if (!generation_equal(report->generation, told[proc].generation) || report->torn == whole ||
            resumes != expected)
                violate(RULE_RESTART, "node %u %s, and %s", proc, resumes ? "resumes" : "does not resume",
                        expected ? "should" : "should not");
        restored[proc].come = w.n_procs == 1;
        restored[proc].resumes = resumes;
}

/* Where nothing is called void, nothing that is not committed may have been begun; and what is committed is
 * what was. */
void truth_resumed(uint32_t proc, bool resumed) {
        for (uint32_t plan = TRACK_STEP; plan < TRACKS && restored[proc].come; plan++) {
                uint64_t committed = track_on(&w.proc[proc], plan)->committed;

                if (w.proc[proc].track_of[plan] != TRACK_OPERATION && committed != restored[proc].step[plan])
                        violate(RULE_RESTART, "node %u goes on after step %llu, which should be %llu", proc,
                                (unsigned long long)committed, (unsigned long long)restored[proc].step[plan]);
                if (resumed && is_begun(proc, plan))
                        violate(RULE_TRUE_SUM, "node %u goes on with arenas of which a part was begun", proc);
        }
        restored[proc].come = false;
        told[proc].before *= resumed;
        w.upgraded &= resumed;
}

static uint32_t count_voided(uint32_t track) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < n_voided; i++)
                n += voided[i].track == track;
        return n;
}

void truth_end(void) {
        if (w.n_done == 0 && (n_voided > 0 || ended || (refused && !w.grows)))
                violate(RULE_NO_FAULT, "%u steps are void, and nobody has done anything", n_voided);
        if (w.n_done == 1 && (ended || (refused && !w.crowded)) && w.gentle)
                violate(RULE_ONE_FAULT,
                        "somebody is turned away, though all members and nodes are back at once");
        if (w.n_done == 1 && w.fault[0].fault == FAULT_UPGRADE && w.upgraded && n_voided > 0)
                violate(RULE_ONE_FAULT, "%u steps are void after an orderly restart", n_voided);
        for (uint32_t track = TRACK_STEP; track < TRACKS && w.n_done == 1; track++)
                if (count_voided(track) > 2)
                        violate(RULE_ONE_FAULT, "%u steps of a plan are void after one fault",
                                count_voided(track));
}
