/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivers what the job's node and its coordinator say to each other, and turns what they want done into
 * calls of the job: after the call into the machine that has led to it, in the order in which it arose.
 */
#include "job/machine/machine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/private.h"

#define NEVER (UINT64_C(1) << 60) /* in a time that is counted from now */
#define FIRST_MEMBERS 4u          /* for which there is room from the beginning */

static void deliver(struct job *job, const struct message *message) {
        if (message->kind < ANSWER_REPORT) {
                node_receive(&job->machine.node, clock_now(), message);
                return;
        }
        coordinator_receive(&job->machine.coordinator, clock_now(), message);
        loop_defer(job->table->config.loop, &job->settle);
}

static void note_refused(struct job *job, const struct action *action) {
        struct machine *machine = &job->machine;

        machine->refused = true;
        if (machine->refusal != NULL)
                *machine->refusal = *action->refusal;
}

/* What is not for the job. Without other nodes, or an engine that leads to them, the communicator is only a
 * name: it is there at once, and gone at once. */
static void carry_out(struct job *job, const struct action *action) {
        struct machine *machine = &job->machine;

        if (action->kind == ACTION_BUILD && (machine_is_alone(job) || job->table->config.engine == NULL)) {
                comm_begin(&job->comm, 0);
                node_built(&machine->node, clock_now(), action->comm, (struct nodeset){ 0 });
        } else if (action->kind == ACTION_ABORT && job->comm.id == 0)
                node_aborted(&machine->node, clock_now(), action->comm);
        else if (action->kind == ACTION_REFUSED && action->member == machine->joining)
                note_refused(job, action);
        else
                job->table->act(job, action);
}

/* Doubled, so that it is not asked for often. */
static uint32_t machine_grow(uint32_t room, uint32_t wanted, uint32_t most) {
        while (room < wanted)
                room *= 2;
        return room < most ? room : most;
}

static size_t machine_bytes(const struct coordinator_config *config) {
        return node_bytes(&config->room) + coordinator_bytes(config) +
               config->room.members * sizeof(struct member *);
}

/* For a node and a coordinator that are as large as this one. */
static int machine_allocate(struct job *job, const struct coordinator_config *config, struct charge *charge,
                            unsigned char **ret, struct refusal *refusal) {
        size_t bytes = machine_bytes(config);
        int r = charge_take(charge, job->table->config.accounts, job->uid, ACCOUNT_BYTES, bytes, refusal);

        if (r != 0)
                return r;
        *ret = malloc(bytes);
        if (*ret == NULL)
                charge_release(charge);
        return *ret != NULL ? 0 : -ENOMEM;
}

int machine_init(struct job *job, uint64_t incarnation, struct refusal *refusal) {
        static const struct machine_times times = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER };
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };
        struct room room = { .members = FIRST_MEMBERS, .tracks = TRACK_STEP + 1, .nodes = 1 };
        struct node_config node = { .candidates = 1,
                                    .instance = 1,
                                    .name = job->name,
                                    .n_lanes = job->table->config.engine != NULL ? LIMIT_LANES : 1,
                                    .window = COMM_WINDOW,
                                    .incarnation = incarnation,
                                    .times = times,
                                    .room = room };
        struct coordinator_config coordinator = { .candidates = 1,
                                                  .nonce = 1,
                                                  .incarnation = incarnation,
                                                  .alone = true,
                                                  .name = job->name,
                                                  .times = times,
                                                  .room = room };
        struct machine *machine = &job->machine;
        uint64_t now = clock_now();
        int r;

        r = machine_allocate(job, &coordinator, &machine->charge, &machine->memory, refusal);
        if (r != 0)
                return r;
        node.room.memory = machine->memory;
        coordinator.room.memory = machine->memory + node_bytes(&room);
        node_init(&machine->node, &node, now, &outlet);
        coordinator_init(&machine->coordinator, &coordinator, now, &outlet);
        job->local = (void *)(machine->memory + node_bytes(&room) + coordinator_bytes(&coordinator));
        machine->coordinator.hold = true;
        return 0;
}

void machine_deinit(struct machine *machine) {
        free(machine->memory);
        charge_release(&machine->charge);
}

int machine_reserve(struct job *job, uint32_t members, uint32_t tracks, struct refusal *refusal) {
        struct machine *machine = &job->machine;
        struct coordinator_config config = machine->coordinator.config;
        struct room *room = &config.room;
        struct charge charge = { 0 };
        struct member **local;
        unsigned char *memory;
        int r;

        if (members <= room->members && tracks <= room->tracks)
                return 0;
        room->members = machine_grow(room->members, members, LIMIT_SEATS);
        room->tracks = machine_grow(room->tracks, tracks, LIMIT_TRACKS);
        r = machine_allocate(job, &config, &charge, &memory, refusal);
        if (r != 0)
                return r;
        room->memory = memory;
        node_move(&machine->node, room);
        room->memory = memory + node_bytes(room);
        coordinator_move(&machine->coordinator, room);
        local = (void *)(memory + node_bytes(room) + coordinator_bytes(&config));
        memcpy(local, job->local, job->n_local * sizeof(*local));
        job->local = local;
        machine_deinit(machine);
        machine->memory = memory;
        machine->charge = charge;
        return 0;
}

static void do_effect(const struct effect *effect) {
        if (effect->message != NULL)
                deliver(effect->owner, effect->message);
        else
                carry_out(effect->owner, effect->action);
}

static void machine_run(struct job *job) {
        effects_drain(&job->table->effects, do_effect);
}

/* Room for those on their way back, and for `n` newcomers. */
static int machine_reserve_for_all(struct job *job, uint32_t world, uint32_t n, struct refusal *refusal) {
        if (world + n > LIMIT_SEATS)
                return refuse(
                        refusal, WIRE__CODE__JOB_FULL,
                        "job '%s' awaits its %u members after a restart of gradsyncd, and %u others wait "
                        "for a place in it: no more can",
                        job->name, world, n);
        return machine_reserve(job, world + n, 0, refusal);
}

static int machine_ask(struct job *job, const struct membership_request *request, const struct tag *tag,
                       struct refusal *refusal) {
        struct machine *machine = &job->machine;
        struct refusal why;
        const struct membership *m = &machine->coordinator.membership;
        uint32_t n = m->n + m->n_waiting > machine->node.n ? m->n + m->n_waiting : machine->node.n;
        int r = membership_check(job->name, request, refusal);

        if (r == 0 && machine->node.origin == ORIGIN_AWAITED)
                r = machine_reserve_for_all(job, job->world, n + 1, refusal);
        else if (r == 0)
                r = machine_reserve(job, n + 1, 0, refusal);
        if (r != 0)
                return r;
        machine->joining = request->member;
        machine->refusal = &why;
        machine->refused = false;
        node_join(&machine->node, clock_now(), request, tag);
        machine_run(job);
        machine->joining = 0;
        machine->refusal = NULL;
        if (!machine->refused)
                return 0;
        if (refusal != NULL)
                *refusal = why;
        return (int)why.code;
}

int machine_join(struct job *job, const struct membership_request *request, struct refusal *refusal) {
        return machine_ask(job, request, &(struct tag){ 0 }, refusal);
}

void machine_gone(struct job *job, uint64_t member, uint32_t cause) {
        if (cause == WIRE__CAUSE__LEAVING)
                node_leave(&job->machine.node, clock_now(), member);
        else
                node_lose(&job->machine.node, clock_now(), member, cause);
        machine_run(job);
}

void machine_end(struct job *job, uint32_t cause) {
        coordinator_end(&job->machine.coordinator, clock_now(), JOB_END_ENDED, cause);
        machine_run(job);
}

void machine_settle(struct job *job, bool wait) {
        struct coordinator *coordinator = &job->machine.coordinator;

        coordinator->hold = wait;
        coordinator_tick(coordinator, clock_now());
        machine_run(job);
        coordinator->hold = true;
}

uint64_t machine_deadline(const struct job *job) {
        return coordinator_deadline(&job->machine.coordinator);
}

bool machine_is_alone(const struct job *job) {
        return nodeset_count(job->machine.node.set) <= 1;
}

uint32_t machine_node_rank(const struct job *job) {
        const struct node *node = &job->machine.node;

        uint32_t rank = 0;

        for (uint32_t other = 0; other < node->config.address; other++)
                rank += nodeset_has(node->set, other);
        return rank;
}

/* The last lane is that of operations; plans take turns on the others. */
static uint32_t track_lane(const struct node *node, uint32_t track) {
        uint32_t last = node->config.n_lanes - 1;

        return track_is_step(track) && last > 0 ? (track - TRACK_STEP) % last : last;
}

bool machine_open(struct job *job, uint32_t track, uint64_t payloads) {
        struct node *node = &job->machine.node;
        uint64_t planned[LIMIT_LANES] = { 0 };
        bool open;

        planned[track_lane(node, track)] = payloads;
        open = node_open(node, clock_now(), node->generation, track, planned);
        machine_run(job);
        return open;
}

void machine_offer(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_offer(node, clock_now(), node->generation, track, track_lane(node, track));
        machine_run(job);
}

uint64_t machine_payloads(const struct job *job, uint32_t track) {
        const struct node *node = &job->machine.node;

        return node->track[track].planned[track_lane(node, track)];
}

bool machine_engine_busy(const struct job *job) {
        const struct node *node = &job->machine.node;

        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (node->lane[lane].completed < node->lane[lane].launched)
                        return true;
        return false;
}

void machine_built(struct job *job, struct generation comm, struct nodeset unreachable) {
        node_built(&job->machine.node, clock_now(), comm, unreachable);
        machine_run(job);
}

void machine_done(struct job *job, uint32_t lane, uint64_t sequence, uint64_t value) {
        struct node *node = &job->machine.node;

        node_done(node, clock_now(), node->comm, lane, sequence, value);
        machine_run(job);
}

void machine_aborted(struct job *job) {
        struct node *node = &job->machine.node;

        node_aborted(node, clock_now(), node->comm);
        machine_run(job);
}

void machine_unreachable(struct job *job, struct nodeset nodes) {
        struct node *node = &job->machine.node;

        node_unreachable(node, clock_now(), node->comm, nodes);
        machine_run(job);
}

enum unit_state machine_unit(const struct job *job, uint32_t track) {
        return job->machine.node.track[track].state;
}

/* Whoever gives all of a step says that its state is the others': it has taken it, or needs none. */
static void note_up_to_date(struct job *job) {
        struct node *node = &job->machine.node;

        for (uint32_t local = 0; local < job->n_local; local++)
                node_synced(node, job->local[local]->id, &node->history);
}

void machine_full(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        if (track_is_step(track) && job->catching_up) {
                job->catching_up = false;
                note_up_to_date(job);
        }
        node_full(node, clock_now(), node->generation, track);
        machine_run(job);
}

void machine_landed(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_landed(node, clock_now(), node->generation, track);
        machine_run(job);
}

void machine_spoil(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_spoil(node, clock_now(), node->generation, track);
        machine_run(job);
}

void machine_differ(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_differ(node, clock_now(), node->generation, track);
        machine_run(job);
}

void machine_quiet(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_quiet(node, clock_now(), node->generation, track);
        machine_run(job);
}

int machine_expect(struct job *job, uint32_t world, struct refusal *refusal) {
        struct machine *machine = &job->machine;
        struct node_config node = machine->node.config;
        struct coordinator_config coordinator = machine->coordinator.config;
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };
        struct membership_request waiting[LIMIT_SEATS];
        uint32_t n = machine->node.n;
        uint64_t now = clock_now();
        int r = machine_reserve_for_all(job, world, n, refusal);

        if (r != 0)
                return r;
        for (uint32_t i = 0; i < n; i++)
                waiting[i] = machine->node.member[i].request;
        node.room = machine->node.config.room;
        coordinator.room = machine->coordinator.config.room;
        node_init(&machine->node, &node, now, &outlet);
        coordinator_init(&machine->coordinator, &coordinator, now, &outlet);
        machine->coordinator.hold = true;
        node_expect(&machine->node, now);
        for (uint32_t i = 0; i < n; i++)
                node_join(&machine->node, now, &waiting[i], &(struct tag){ 0 });
        machine_run(job);
        return 0;
}

void machine_restore(struct job *job, const struct message *report) {
        node_restore(&job->machine.node, clock_now(), report);
        machine_run(job);
}

int machine_return(struct job *job, const struct membership_request *request, const struct tag *tag,
                   struct refusal *refusal) {
        return machine_ask(job, request, tag, refusal);
}
