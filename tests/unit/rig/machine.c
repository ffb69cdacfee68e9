/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig of nodes and their coordinator: members come and go, units open and end, messages are kept,
 * lost, or made up by the script. Each command says what it has led to: the actions of each node in their
 * order, and the phases and the stage that are others than before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "machines.h"
#include "messages.h"
#include "script.h"
#include "text.h"
#include "words.h"

#define SECOND 1000000u

static struct membership_request wish; /* as a member asks that says nothing else */
static struct node_config of_nodes;
static struct coordinator_config of_coordinators;
static struct room room;
static uint32_t job;   /* that the command is about */
static uint32_t alone; /* the only node that there is, made for a script that gives the orders */
static bool shows_orders, shows_reports, shows_state, is_silent;
static struct report report[MACHINES_NODES + 1], words;        /* report: the last one of each node */
static char done[MACHINES_NODES][TEXT_LINE], heard[TEXT_LINE]; /* what nodes have done, and what was said */
static char node_before[MACHINES_JOBS][MACHINES_NODES][TEXT_LINE],
        coordinator_before[MACHINES_JOBS][TEXT_LINE];
static char text_of_refusal[sizeof(((struct refusal *)NULL)->text)];

static void note_action(uint32_t of, uint32_t node, const struct action *action) {
        static bool named; /* the first members of a generation */

        if (is_silent)
                return;
        if (done[node][0] != '\0' && !named)
                text_add(done[node], "; ");
        if (!named && (action->kind == ACTION_GENERATION || action->kind == ACTION_ENTERED))
                text_add(done[node], "generation %u of %u", action->generation.number, action->world);
        named = action->kind == ACTION_GENERATION;
        text_action(done[node], action);
        if (action->kind == ACTION_REFUSED)
                snprintf(text_of_refusal, sizeof(text_of_refusal), "%s", action->refusal->text);
        if (of > 0 && !named)
                text_add(done[node], " in job %u", of);
}

static void note_order(uint32_t of, const struct order *order) {
        if (is_silent || order->kind == ORDER_PLACES || !shows_orders)
                return;
        text_add(heard, "%s", heard[0] != '\0' ? "; " : "");
        text_order(heard, order);
}

static void note_report(uint32_t of, const struct report *said) {
        if (is_silent || !shows_reports)
                return;
        text_add(heard, "%s", heard[0] != '\0' ? "; " : "");
        text_report(heard, said);
}

/* ---- what comes of a command ---- */

/* Nodes that have done the same are named together. */
static void say_done(struct script *script) {
        for (uint32_t node = 0; node < MACHINES_NODES; node++) {
                char who[MACHINES_NODES + 1] = "";
                bool first = true;

                for (uint32_t other = 0; other < MACHINES_NODES; other++) {
                        if (done[node][0] == '\0' || strcmp(done[node], done[other]) != 0)
                                continue;
                        first &= other >= node;
                        snprintf(who + strlen(who), sizeof(who) - strlen(who), "%u", other);
                }
                if (done[node][0] != '\0' && first && w.n_nodes > 1 && alone == MACHINES_ALL)
                        script_say(script, "%s: %s", who, done[node]);
                else if (done[node][0] != '\0' && first)
                        script_say(script, "%s", done[node]);
        }
        memset(done, 0, sizeof(done));
}

/* Nodes that stand alike now are named together, too; those that stand as before are not. */
static void say_nodes(struct script *script, uint32_t of) {
        char text[MACHINES_NODES][TEXT_LINE] = { "" };

        for (uint32_t node = 0; node < w.n_nodes; node++) {
                if (w.job[of].at[node].lives)
                        text_node(text[node], machines_node(of, node), shows_state, alone != MACHINES_ALL);
                if (strcmp(text[node], node_before[of][node]) == 0)
                        text[node][0] = '\0';
                else
                        strcpy(node_before[of][node], text[node]);
        }
        for (uint32_t node = 0; node < w.n_nodes; node++) {
                char who[MACHINES_NODES + 1] = "";
                const char *in = of > 0 ? " in job 1" : "";

                if (text[node][0] == '\0' || is_silent)
                        continue;
                for (uint32_t other = w.n_nodes; other-- > node;)
                        if (strcmp(text[other], text[node]) == 0) {
                                memmove(who + 1, who, strlen(who) + 1);
                                who[0] = (char)('0' + other);
                                if (other > node)
                                        text[other][0] = '\0';
                        }
                if (w.n_nodes > 1 && alone == MACHINES_ALL)
                        script_say(script, "%s %s%s", who, text[node], in);
                else
                        script_say(script, "%s", text[node]);
        }
}

static void say_states(struct script *script, uint32_t of) {
        char text[TEXT_LINE] = "";

        say_nodes(script, of);
        if (w.job[of].coordinated)
                text_coordinator(text, &w.job[of].coordinator, shows_state);
        if (strcmp(text, coordinator_before[of]) != 0 && !is_silent)
                script_say(script, of > 0 ? "coordinator %s in job 1" : "coordinator %s", text);
        strcpy(coordinator_before[of], text);
}

static void machine_after(struct script *script) {
        machines_pull();
        if (heard[0] != '\0')
                script_say(script, "%s", heard);
        heard[0] = '\0';
        say_done(script);
        for (uint32_t of = 0; of < w.n_jobs; of++)
                say_states(script, of);
        is_silent = false;
}

/* The phase that ends a command once all nodes are in it. NULL: a command ends when no message is left. */
static const char *until;

static bool has_come(void) {
        for (uint32_t node = 0; node < w.n_nodes && until != NULL; node++)
                if (w.job[job].at[node].lives &&
                    strcmp(text_phases[machines_node(job, node)->phase], until) != 0)
                        return false;
        return until != NULL;
}

static void pump(void) {
        for (unsigned i = 0; !has_come() && machines_deliver(); i++)
                assert_true(i < 10000);
}

static void machine_before(struct script *script) {
        job = (uint32_t)script_option(script, "job", 0);
        until = script_text(script, "until");
}

static void machine_begin(void) {
        wish = (struct membership_request){
                .min_world = 1, .max_world = 4, .grace = SECOND, .last_call = SECOND, .incarnation = 1
        };
        shows_orders = shows_reports = shows_state = is_silent = false;
        w.acted = note_action;
        w.ordered = note_order;
        w.reported = note_report;
        alone = MACHINES_ALL;
        memset(done, 0, sizeof(done));
        memset(report, 0, sizeof(report));
        memset(node_before, 0, sizeof(node_before));
        memset(coordinator_before, 0, sizeof(coordinator_before));
        heard[0] = '\0';
}

/* ---- worlds ---- */

static void configure(struct script *script, uint32_t lanes, uint32_t n_nodes) {
        room = (struct room){ .members = (uint32_t)script_option(script, "members", LIMIT_SEATS),
                              .tracks = (uint32_t)script_option(script, "tracks", LIMIT_TRACKS),
                              .nodes = n_nodes };
        of_nodes = (struct node_config){ .instance = MACHINES_INSTANCE,
                                         .n_lanes = (uint32_t)script_option(script, "lanes", lanes),
                                         .window = script_option(script, "window", 2),
                                         .agreed = script_flag(script, "agreed"),
                                         .incarnation = 1,
                                         .room = room };
        of_coordinators = (struct coordinator_config){ .nonce = 7, .incarnation = 1, .room = room };
        wish = words_request(script, &wish, 0);
}

static void start_node(uint32_t of, uint32_t node) {
        of_nodes.host = node;
        machines_start_node(of, node, of_nodes);
}

/* wish OPTION...: what members ask for that say nothing else */
static void do_wish(struct script *script) {
        wish = words_request(script, &wish, 0);
}

/* nodes N [jobs=N] [started=N] [agreed] [lanes=N] [window=N] [OPTION...]: they and a coordinator; members
 * wish for that */
static void do_nodes(struct script *script) {
        uint32_t n = (uint32_t)script_number(script), jobs = (uint32_t)script_option(script, "jobs", 1);
        uint32_t started = (uint32_t)script_option(script, "started", n);

        configure(script, LIMIT_LANES, n);
        machines_begin(jobs, n, &machines_usual);
        for (uint32_t of = 0; of < jobs; of++) {
                machines_start_coordinator(of, of_coordinators);
                for (uint32_t node = 0; node < started; node++)
                        start_node(of, node);
        }
        machines_tick(0);
        is_silent = true;
}

/* alone [OPTION...]: a node and its coordinator; nothing but the waits of members depends on the time */
static void do_alone(struct script *script) {
        configure(script, 2, 1);
        machines_begin(1, 1, &machines_never);
        of_coordinators.alone = true;
        start_node(0, 0);
        machines_start_coordinator(0, of_coordinators);
        w.aborts = w.quiets = true;
        is_silent = true;
}

/* coordinator [alone]: of nodes whose reports the script makes up: `say` */
static void do_coordinator(struct script *script) {
        bool is_alone = script_flag(script, "alone");

        configure(script, LIMIT_LANES, MACHINES_NODES);
        machines_begin(1, MACHINES_NODES, &machines_usual);
        of_coordinators.alone = is_alone;
        of_coordinators.nonce = 7;
        machines_start_coordinator(0, of_coordinators);
        machines_tick(0);
        is_silent = true;
}

/* start NODE: it and its daemon are new */
static void do_start(struct script *script) {
        start_node(job, (uint32_t)script_number(script));
        pump();
}

/* takeover: another coordinator, which knows nothing */
static void do_takeover(struct script *script) {
        machines_start_coordinator(job, of_coordinators);
        coordinator_tick(&w.job[job].coordinator, w.now);
        pump();
}

/* move members=N tracks=N: machines have other memory */
static void do_move(struct script *script) {
        uint32_t members = (uint32_t)script_option(script, "members", room.members);

        machines_move(members, (uint32_t)script_option(script, "tracks", room.tracks));
}

/* hand [build] [abort] [quiet]: these are answered by the script */
static void do_hand(struct script *script) {
        w.builds = script_flag(script, "build");
        w.aborts = script_flag(script, "abort");
        w.quiets = script_flag(script, "quiet");
}

/* show [orders] [reports] [state] */
static void do_show(struct script *script) {
        shows_orders |= script_flag(script, "orders");
        shows_reports |= script_flag(script, "reports");
        shows_state |= script_flag(script, "state");
}

/* ---- messages and the time ---- */

static uint32_t some_nodes(struct script *script) {
        uint32_t nodes = script_has_word(script) ? 0 : MACHINES_ALL;

        while (script_has_word(script))
                nodes |= 1u << script_number(script);
        return nodes;
}

/* keep [NODE...], lose-orders [NODE...]: orders to them, or to all, do not arrive, or never */
static void do_keep(struct script *script) {
        w.keeps = some_nodes(script);
}

static void do_lose_orders(struct script *script) {
        w.loses = some_nodes(script);
}

/* deaf: the coordinator hears nothing; what nodes say is lost */
static void do_deaf(struct script *script) {
        w.is_deaf = true;
}

/* through: messages arrive again. release: the orders that were kept arrive */
static void do_through(struct script *script) {
        w.keeps = w.loses = 0;
        w.is_deaf = false;
        pump();
}

static void do_release(struct script *script) {
        machines_release();
        pump();
}

/* tick [US]: so much time passes. tick due: time passes until a wait of members ends */
static void do_tick(struct script *script) {
        uint64_t due = membership_deadline(&w.job[job].coordinator.membership);
        bool is_due = script_flag(script, "due");

        if (script_flag(script, "alone"))
                w.now += script_number(script);
        else if (is_due && due == UINT64_MAX)
                script_refuse(script, "nobody waits");
        else
                machines_tick(is_due                    ? due - w.now
                              : script_has_word(script) ? script_number(script)
                                                        : MACHINES_HEARTBEAT);
}

static bool is_in_force(uint32_t of) {
        bool running = w.job[of].coordinator.stage == STAGE_RUNNING;

        for (uint32_t node = 0; node < w.n_nodes; node++) {
                const struct node *it = machines_node(of, node);

                if (!w.job[of].at[node].lives || it->n == 0)
                        continue;
                running &= it->phase == NODE_RUNNING;
                for (uint32_t plan = 0; plan < it->n_plans; plan++)
                        running &= it->plan[plan].open;
        }
        return running;
}

static void settle_all(void) {
        machines_pump();
        for (unsigned i = 0; !is_in_force(0) || (w.n_jobs > 1 && !is_in_force(1)); i++) {
                assert_true(i < 40);
                machines_tick(MACHINES_HEARTBEAT);
        }
}

/* settle: ticks until the generation is in force */
static void do_settle(struct script *script) {
        settle_all();
}

/* ---- members ---- */

static uint64_t id_of(uint32_t node, uint64_t count) {
        return member_id(node, MACHINES_INSTANCE, count);
}

/* Which node a member is on. */
static uint32_t node_with(struct script *script, uint64_t count) {
        for (uint32_t node = 0; node < w.n_nodes; node++)
                for (uint32_t i = 0; w.job[job].at[node].lives && i < machines_node(job, node)->n; i++)
                        if (member_id_count(machines_node(job, node)->member[i].request.member) == count)
                                return node;
        script_refuse(script, "there is no member %llu", (unsigned long long)count);
}

static void join_on(uint32_t of, uint32_t node, struct membership_request request, uint64_t count,
                    const struct tag *tag) {
        request.member = id_of(node, count);
        request.pid = 100 + (int32_t)count;
        node_join(machines_node(of, node), w.now, &request, tag);
        pump();
}

/* join MEMBER... [on=NODE] [OPTION...] */
static void do_join(struct script *script) {
        uint32_t node = (uint32_t)script_option(script, "on", alone != MACHINES_ALL ? alone : 0);
        struct membership_request request = words_request(script, &wish, 0);
        struct tag tag = request.returns ? words.history : (struct tag){ 0 };

        while (script_has_word(script))
                join_on(job, node, request, script_number(script), &tag);
}

/* form MEMBER... [plans=N]: in each job, one after the other on each node; then the job is in force */
static void do_form(struct script *script) {
        uint32_t plans = (uint32_t)script_option(script, "plans", 0), next = 0;

        while (script_has_word(script)) {
                uint64_t count = script_number(script);

                for (uint32_t of = 0; of < w.n_jobs; of++)
                        join_on(of, next % w.n_nodes, wish, count, &(struct tag){ 0 });
                next++;
        }
        if (w.times.heartbeat == MACHINES_NEVER && w.job[0].coordinator.stage != STAGE_RUNNING)
                machines_tick(membership_deadline(&w.job[0].coordinator.membership) - w.now);
        for (uint32_t of = 0; of < w.n_jobs; of++)
                for (uint32_t node = 0; node < next && node < w.n_nodes; node++)
                        for (uint32_t plan = 1; plan <= plans; plan++)
                                node_agree(machines_node(of, node), w.now, plan, 11 * plan, false);
        settle_all();
        memset(done, 0, sizeof(done));
        heard[0] = '\0';
        is_silent = true;
}

/* lose MEMBER [CAUSE], leave MEMBER */
static void do_lose(struct script *script) {
        uint64_t count = script_number(script);
        uint32_t node = node_with(script, count);

        node_lose(machines_node(job, node), w.now, id_of(node, count), words_cause(script));
        pump();
}

static void do_leave(struct script *script) {
        uint64_t count = script_number(script);
        uint32_t node = node_with(script, count);

        node_leave(machines_node(job, node), w.now, id_of(node, count));
        pump();
}

/* synced MEMBER OTHER: it has the other one's state */
static void do_synced(struct script *script) {
        uint64_t count = script_number(script), other = script_number(script);
        uint32_t node = node_with(script, count);
        struct node *from = machines_node(job, node_with(script, other));

        for (uint32_t i = 0; i < from->n; i++)
                if (member_id_count(from->member[i].request.member) == other)
                        node_synced(machines_node(job, node), id_of(node, count), &from->member[i].tag);
}

/* tags: what each member has, as far as it has something: generation and step */
static void do_tags(struct script *script) {
        for (uint32_t node = 0; node < w.n_nodes; node++)
                for (uint32_t i = 0; w.job[job].at[node].lives && i < machines_node(job, node)->n; i++) {
                        const struct report_member *member = &machines_node(job, node)->member[i];

                        script_say(script, "%u has step %llu of generation %u%s",
                                   member_id_count(member->request.member),
                                   (unsigned long long)member->tag.step, member->tag.generation,
                                   member->behind ? ", behind" : "");
                }
}

/* wait yes|no: the node has more to say. end CAUSE: its daemon ends the job */
static void do_wait(struct script *script) {
        bool waits = script_flag(script, "yes");

        if (!waits && !script_flag(script, "no"))
                script_refuse(script, "yes or no?");
        node_wait(machines_node(job, (uint32_t)script_option(script, "on", 0)), w.now, waits);
        pump();
}

static void do_end(struct script *script) {
        node_end(machines_node(job, (uint32_t)script_option(script, "on", 0)), w.now, words_cause(script));
        pump();
}

/* why: the text of the last refusal */
static void do_why(struct script *script) {
        script_say(script, "%s", text_of_refusal);
}

/* ---- a former run of the daemon ---- */

/* expect world=N [step=N] [opened] [prepared]: its members are on their way back, from generation 41 */
static void do_expect(struct script *script) {
        uint64_t step = script_option(script, "step", 9);
        bool opened = script_flag(script, "opened"), prepared = script_flag(script, "prepared");

        node_wait(machines_node(0, 0), w.now, true);
        node_expect(machines_node(0, 0), w.now);
        pump();
        report_clear(&words);
        words.generation.number = 41;
        words.world = (uint32_t)script_option(script, "world", 1);
        words.n_tracks = TRACK_STEP + 1;
        words.committed[TRACK_OPERATION] = words.mark[TRACK_OPERATION] = words.prepared[TRACK_OPERATION] = 0;
        words.committed[TRACK_STEP] = step;
        words.prepared[TRACK_STEP] = step + prepared;
        words.mark[TRACK_STEP] = step + opened;
        words.history = (struct tag){ .incarnation = 1, .generation = 41, .step = step };
}

/* back MEMBER rank=N [step=N]: it has come, and says that */
static void do_back(struct script *script) {
        struct report_member *member = &words.member_of[words.n_members++];
        uint32_t rank = (uint32_t)script_option(script, "rank", 0);

        *member = (struct report_member){
                .rank = rank, .slot = rank, .id = 50 + rank, .in = true, .tag = words.history
        };
        member->tag.step = script_option(script, "step", words.history.step);
        member->request = wish;
        member->request.member = id_of(0, script_number(script));
        member->request.pid = 100 + (int32_t)member_id_count(member->request.member);
}

/* restore: the node awaits no other members */
static void do_restore(struct script *script) {
        node_restore(machines_node(0, 0), w.now, &words);
        pump();
}

/* ---- units; NODES is one, or * ---- */

static uint32_t first_of(struct script *script, uint32_t *ret_end) {
        if (alone != MACHINES_ALL || w.n_nodes == 1) {
                *ret_end = (alone != MACHINES_ALL ? alone : 0) + 1;
                return *ret_end - 1;
        }
        if (script_flag(script, "*")) {
                for (*ret_end = 0; *ret_end < w.n_nodes && w.job[job].at[*ret_end].lives;)
                        (*ret_end)++;
                return 0;
        }
        *ret_end = (uint32_t)script_number(script) + 1;
        return *ret_end - 1;
}

static struct generation generation_of(struct script *script, uint32_t node) {
        struct generation generation = machines_node(job, node)->generation;

        generation.number = (uint32_t)script_option(script, "generation", generation.number);
        return generation;
}

/* open NODES TRACK LANE:PAYLOADS... [generation=N] */
static void do_open(struct script *script) {
        uint32_t end, node = first_of(script, &end), track = (uint32_t)script_number(script);
        uint64_t planned[LIMIT_LANES] = { 0 };
        struct generation generation = generation_of(script, node);

        while (script_has_word(script)) {
                char *rest;
                unsigned long lane = strtoul(script_word(script), &rest, 0);

                if (*rest != ':' || lane >= LIMIT_LANES)
                        script_refuse(script, "which lane?");
                planned[lane] = strtoul(rest + 1, NULL, 0);
        }
        for (; node < end; node++) {
                if (!node_open(machines_node(job, node), w.now, generation, track, planned))
                        script_say(script, "absorbed");
                pump();
        }
}

/* offer NODES TRACK LANE [times=N] [generation=N] */
static void do_offer(struct script *script) {
        uint32_t end, node = first_of(script, &end), track = (uint32_t)script_number(script);
        uint32_t lane = (uint32_t)script_number(script), times = (uint32_t)script_option(script, "times", 1);
        struct generation generation = generation_of(script, node);

        for (; node < end; node++)
                for (uint32_t i = 0; i < times; i++) {
                        node_offer(machines_node(job, node), w.now, generation, track, lane);
                        pump();
                }
}

static void unit_call(struct script *script, void (*call)(struct node *node, uint64_t now,
                                                          struct generation generation, uint32_t track)) {
        uint32_t end, node = first_of(script, &end);
        struct generation generation = generation_of(script, node);

        while (script_has_word(script)) {
                uint32_t track = (uint32_t)script_number(script);

                for (uint32_t i = node; i < end; i++) {
                        call(machines_node(job, i), w.now, generation, track);
                        pump();
                }
        }
}

/* full, landed, quiet, spoil, differ, tear NODES TRACK... [generation=N] */
#define UNIT_COMMAND(name, call)                                                                             \
        static void do_##name(struct script *script) {                                                       \
                unit_call(script, call);                                                                     \
        }
UNIT_COMMAND(full, node_full)
UNIT_COMMAND(landed, node_landed)
UNIT_COMMAND(quiet, node_quiet)
UNIT_COMMAND(spoil, node_spoil)
UNIT_COMMAND(differ, node_differ)
UNIT_COMMAND(tear, node_tear_unit)

/* done NODES LANE [value=N] [seq=N] [comm=N]: the next collective of that lane has ended */
static void do_done(struct script *script) {
        uint32_t end, node = first_of(script, &end), lane = (uint32_t)script_number(script);
        uint64_t value = script_option(script, "value", 1), seq = script_option(script, "seq", 0);
        uint32_t number = (uint32_t)script_option(script, "comm", 0);

        for (; node < end; node++) {
                struct generation comm = machines_node(job, node)->comm;

                comm.number = number > 0 ? number : comm.number;
                node_done(machines_node(job, node), w.now, comm, lane,
                          seq > 0 ? seq : ++w.job[job].at[node].done[lane], value);
                pump();
        }
}

/* agree NODES PLAN... [digest=N] */
static void do_agree(struct script *script) {
        uint32_t end, node = first_of(script, &end);
        uint64_t digest = script_option(script, "digest", 0);

        while (script_has_word(script)) {
                uint32_t plan = (uint32_t)script_number(script);

                for (uint32_t i = node; i < end; i++) {
                        for (uint32_t of = job; of < (w.n_jobs > 1 ? w.n_jobs : job + 1); of++)
                                node_agree(machines_node(of, i), w.now, plan, digest > 0 ? digest : 11 * plan,
                                           false);
                        pump();
                }
        }
}

/* ---- the engine ---- */

static struct generation comm_of(struct script *script, const struct node *node) {
        struct generation comm = node->comm;

        comm.number = (uint32_t)script_option(script, "comm", comm.number);
        return comm;
}

/* built, unreachable NODE [comm=N] [broken=NODE]; aborted NODE [comm=N] */
static void do_built(struct script *script) {
        uint32_t end;
        struct node *node = machines_node(job, first_of(script, &end));
        struct generation comm = comm_of(script, node);
        uint64_t broken = script_option(script, "broken", 64), word = broken < 64 ? UINT64_C(1) << broken : 0;

        node_built(node, w.now, comm, (struct nodeset){ &word, 1 });
        pump();
}

static void do_unreachable(struct script *script) {
        uint32_t end;
        struct node *node = machines_node(job, first_of(script, &end));
        struct generation comm = comm_of(script, node);
        uint64_t word = UINT64_C(1) << script_option(script, "broken", 0);

        node_unreachable(node, w.now, comm, (struct nodeset){ &word, 1 });
        pump();
}

static void do_aborted(struct script *script) {
        uint32_t end;
        struct node *node = machines_node(job, first_of(script, &end));

        node_aborted(node, w.now, comm_of(script, node));
        pump();
}

/* torn [generation=N]: the node cannot go on as if nothing had happened */
static void do_torn(struct script *script) {
        uint32_t end, node = first_of(script, &end);

        node_tear(machines_node(job, node), generation_of(script, node));
}

/* ---- messages that the script makes up ---- */

static enum order_kind order_named(struct script *script, const char *name) {
        for (unsigned kind = 0; kind < N_ORDERS; kind++)
                if (strcmp(order_name(kind), name) == 0)
                        return kind;
        script_refuse(script, "there is no order '%s'", name);
}

static enum report_kind report_named(struct script *script, const char *name) {
        for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++)
                if (strcmp(report_name(kind), name) == 0)
                        return kind;
        script_refuse(script, "there is no report '%s'", name);
}

static enum job_end read_end(struct script *script, enum job_end end) {
        const char *name = script_text(script, "end");

        for (unsigned i = 0; i < N_JOB_ENDS && name != NULL; i++)
                if (strcmp(text_ends[i], name) == 0)
                        end = i;
        return end;
}

static uint32_t read_cause(struct script *script, uint32_t cause) {
        const char *name = script_text(script, "cause");

        for (uint32_t i = 1; i < 10 && name != NULL; i++)
                if (strcmp(cause_name(i), name) == 0)
                        cause = i;
        return cause;
}

/* Options of an order: term=N of the coordinator, round, instance, to, generation, comm, nonce, world,
 * seq=N,… and go, mark by track, set as a mask, torn, cause, end=END, member=MEMBER, plan=…,
 * `ahead`: it answers what the node has not said yet; `names`: it names the node's member. */
static struct order read_order(struct script *script, enum order_kind kind) {
        struct order order = machines_order(kind);
        uint64_t about = script_option(script, "member", 0);
        struct words_plan plan;

        order.stamp += script_option(script, "ahead", 0);
        while (words_plan(script, order.n_plans, &order.n_tracks, order.mark, &plan))
                order.plan[order.n_plans++] = (struct order_plan){ .digest = 11 * plan.ordinal,
                                                                   .ordinal = plan.ordinal,
                                                                   .track = plan.track,
                                                                   .open = true,
                                                                   .unit = plan.unit,
                                                                   .turn = plan.turn };
        words_generation(script, &order.generation, &order.comm);
        order.term = script_option(script, "term", order.term);
        order.round = script_option(script, "round", order.round);
        order.instance = script_option(script, "instance", order.instance);
        order.to = (uint32_t)script_option(script, "to", order.to);
        order.world = (uint32_t)script_option(script, "world", order.world);
        words_numbers(script_text(script, "seq"), order.seq, LIMIT_LANES);
        words_numbers(script_text(script, "go"), order.go, LIMIT_LANES);
        words_marks(script, &order.n_tracks, order.mark);
        order.set[0] = script_option(script, "set", order.set[0]);
        order.torn |= script_flag(script, "torn");
        order.end = read_end(script, order.end);
        order.loss.cause = read_cause(script, order.loss.cause);
        order.member = id_of(MACHINES_LONE, about > 0 ? about : 1);
        if (script_flag(script, "names"))
                machines_name_member(&order);
        order.n_members = (uint32_t)script_option(script, "members", order.n_members);
        if (kind == ORDER_REFUSE) {
                order.end = JOB_END_REFUSED;
                order.refusal = (struct refusal){ .code = 1 };
        }
        return order;
}

/* Options of a report: those of an order that are about nodes, and ready=N,…, links as a mask, wait, away,
 * awaits. */
static void read_report(struct script *script, struct report *said) {
        struct words_plan plan;

        while (words_plan(script, said->n_plans, &said->n_tracks, said->mark, &plan))
                said->plan[said->n_plans++] = (struct report_plan){ .digest = 11 * plan.ordinal,
                                                                    .ordinal = plan.ordinal,
                                                                    .track = plan.track,
                                                                    .open = true,
                                                                    .unit = plan.unit,
                                                                    .turn = plan.turn };
        words_generation(script, &said->generation, &said->comm);
        said->term = script_option(script, "term", said->term);
        said->round = script_option(script, "round", said->round);
        said->instance = script_option(script, "instance", said->instance);
        said->from = (uint32_t)script_option(script, "from", said->from);
        said->world = (uint32_t)script_option(script, "world", said->world);
        words_numbers(script_text(script, "seq"), said->seq, LIMIT_LANES);
        words_numbers(script_text(script, "go"), said->go, LIMIT_LANES);
        words_numbers(script_text(script, "ready"), said->ready, LIMIT_LANES);
        words_marks(script, &said->n_tracks, said->mark);
        said->set[0] = script_option(script, "set", said->set[0]);
        said->links[0] = script_option(script, "links", said->links[0]);
        said->torn |= script_flag(script, "torn");
        said->away |= script_flag(script, "away");
        said->wait |= script_flag(script, "waits");
        said->end = read_end(script, said->end);
        said->awaits |= script_flag(script, "awaits");
        said->cause = read_cause(script, said->cause);
}

/* order KIND [OPTION...]: the node hears it. */
static void do_order(struct script *script) {
        struct order order = read_order(script, order_named(script, script_word(script)));

        node_receive(machines_node(0, MACHINES_LONE), w.now, &order);
        machines_pump();
}

static enum node_phase phase_named(struct script *script) {
        const char *name = script_word(script);

        for (unsigned phase = NODE_RUNNING; phase <= NODE_SETTLED; phase++)
                if (strcmp(text_phases[phase], name) == 0)
                        return phase;
        script_refuse(script, "no node reaches '%s'", name);
}

/* reach PHASE [lanes=N]: a node at address 1 that is in that phase, through the orders that lead there:
 * with one member, of whose step one payload of lane 0 was planned */
static void do_reach(struct script *script) {
        configure(script, 2, MACHINES_NODES);
        is_silent = true;
        shows_state = true;
        alone = 1;
        machines_reach(phase_named(script), of_nodes, &wish);
        memset(done, 0, sizeof(done));
        heard[0] = '\0';
}

/* A node of that phase hears the order: whether that does anything. */
static bool applies(enum node_phase phase, enum order_kind kind, const struct order *other) {
        struct track tracks[LIMIT_TRACKS];
        struct node before, *node;
        struct order m;

        machines_reach(phase, of_nodes, &wish);
        alone = 1;
        node = machines_node(0, 1);
        m = machines_order(kind);
        done[1][0] = '\0';
        before = *node;
        memcpy(tracks, before.track, sizeof(tracks));
        m.seq[0] = 2;
        m.member = id_of(1, 1);
        if (kind == ORDER_REFUSE)
                m.end = JOB_END_REFUSED, m.refusal = (struct refusal){ .code = 1 };
        if (kind == ORDER_NEWGEN) {
                m.generation.number = 2;
                m.comm = m.generation;
        }
        m.round = other->round > 0 ? before.round : m.round;
        m.term = other->term > 0 ? other->term : m.term;
        m.instance = other->instance > 0 ? other->instance : m.instance;
        m.to = other->to < MACHINES_NODES ? other->to : m.to;
        m.n_members = other->n_members;
        m.kind += other->kind;
        node_receive(node, w.now, &m);
        machines_pull();
        w.n_letters = 0;
        return done[1][0] != '\0' || node->phase != before.phase || node->term != before.term ||
               node->held != before.held || node->n != before.n || node->stopping != before.stopping ||
               !generation_equal(node->generation, before.generation) ||
               !generation_equal(node->comm, before.comm) ||
               memcmp(node->track, tracks, sizeof(tracks)) != 0 ||
               memcmp(node->lane, before.lane, sizeof(before.lane)) != 0;
}

/* applies PHASE [term=N] [instance=N] [to=N] [members=N] [kinds=N] [again]: which orders do
 * something to a node in that phase; `term` is that of the message, `kinds` is added to the kind, and
 * `again` is the round that it has heard last */
static void do_applies(struct script *script) {
        enum node_phase phase = phase_named(script);
        const struct order other = { .kind = (enum order_kind)script_option(script, "kinds", 0),
                                     .to = (uint32_t)script_option(script, "to", MACHINES_NODES),
                                     .instance = script_option(script, "instance", 0),
                                     .term = script_option(script, "term", 0),
                                     .round = script_flag(script, "again"),
                                     .n_members = (uint32_t)script_option(script, "members", 0) };
        char applied[TEXT_LINE] = "";

        configure(script, 2, MACHINES_NODES);
        for (unsigned kind = 0; kind < N_ORDERS; kind++)
                if (applies(phase, kind, &other))
                        text_add(applied, "%s%s", applied[0] != '\0' ? " " : "", order_name(kind));
        done[1][0] = '\0';
        script_say(script, "%s", applied[0] != '\0' ? applied : "none");
        is_silent = true;
}

/* say KIND [from=NODE] [OPTION...] [members=MEMBER,…] [in] [fresh] [plan=…]: the coordinator hears a report
 * of that node. An option that is missing is as in the node's last report, and everything about the
 * coordinator is as it is now. `in`: the node's members are in the present generation; `has=RANK`: they are
 * in generation 1 of two nodes, which another coordinator has made; `fresh`: it is the node's first report;
 * `late`: the node has not heard of the last order. */
static void do_say(struct script *script) {
        enum report_kind kind = report_named(script, script_word(script));
        uint32_t from = (uint32_t)script_option(script, "from", 0);
        struct report *m = &report[from];
        const struct coordinator *c = &w.job[0].coordinator;
        const char *members = script_text(script, "members");
        uint64_t has = script_option(script, "has", UINT64_MAX);
        static struct generation former;
        bool in = script_flag(script, "in") || has != UINT64_MAX;

        if (script_flag(script, "fresh") || m->stamp == 0)
                *m = (struct report){ .instance = 1, .stamp = m->stamp > 0 ? m->stamp : w.now };
        m->kind = kind;
        m->from = from;
        m->stamp++;
        m->awaits = false;
        m->end = JOB_END_NONE;
        m->n_plans = 0;
        if (!script_flag(script, "late")) {
                m->term = c->term;
                m->round = c->round;
        }
        m->running = in;
        if (has != UINT64_MAX) {
                m->generation = m->comm = (struct generation){ 1, 1, 7 };
                m->world = 2;
                m->n_words = 1;
                m->set[0] = 3;
        } else if (in) {
                former = c->current.number > 0 ? c->current : former; /* the coordinator knows none yet */
                m->generation = former;
                m->comm = c->current.number > 0 ? c->comm : former;
                m->world = c->membership.n > 0 ? c->membership.n : 2;
                m->n_words = 1;
                m->set[0] = UINT64_C(1) << from;
        }
        if (members != NULL)
                m->n_members = 0;
        while (members != NULL && *members != '\0') {
                char *rest;
                struct report_member *member = &m->member_of[m->n_members];
                uint64_t count = strtoull(members, &rest, 0);

                *member = (struct report_member){ .request = wish };
                member->request.member = id_of(from, count);
                member->request.pid = 100 + (int32_t)count;
                member->rank = m->n_members++;
                members = *rest == ',' ? rest + 1 : NULL;
        }
        for (uint32_t i = 0; i < m->n_members; i++) {
                const struct seat *seat = membership_find(&c->membership, m->member_of[i].request.member);

                m->member_of[i].in |= in;
                if (has != UINT64_MAX)
                        m->member_of[i].rank = (uint32_t)has;
                else if (in && seat != NULL)
                        m->member_of[i].rank = seat->rank;
        }
        read_report(script, m);
        coordinator_receive(&w.job[0].coordinator, w.now, m);
        machines_pump();
        coordinator_tick(&w.job[0].coordinator, w.now);
        machines_pump();
}

static const struct script_command commands[] = {
#define C(name)                                                                                              \
        { #name, do_##name }
        C(aborted),     C(agree),
        C(alone),       C(applies),
        C(back),        C(built),
        C(coordinator), C(deaf),
        C(differ),      C(done),
        C(end),         C(expect),
        C(form),        C(full),
        C(hand),        C(join),
        C(keep),        C(landed),
        C(leave),       C(lose),
        C(move),        C(nodes),
        C(offer),       C(open),
        C(order),       C(quiet),
        C(reach),       C(release),
        C(say),         C(restore),
        C(settle),      C(show),

        C(spoil),       C(start),
        C(synced),      C(tags),
        C(takeover),    C(tear),
        C(through),     C(tick),
        C(torn),        C(unreachable),
        C(wait),        C(wish),
        C(why),         { "lose-orders", do_lose_orders },
        { NULL, NULL },
#undef C
};

const struct rig rig = { .commands = commands,
                         .begin = machine_begin,
                         .before = machine_before,
                         .after = machine_after,
                         .end = machines_end };
