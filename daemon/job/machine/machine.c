/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivers the messages between the job's node and its coordinator, and gives out the node's actions, in the
 * order in which they arose.
 */
#include "job/machine/machine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/data.h"

#define FIRST_MEMBERS 4u /* for which there is room from the beginning */

/* Other nodes have more plans. Without room for their tracks this node enters no generation, and is lost to
 * those that go on. */
static void machine_make_room(struct job *job, uint32_t tracks) {
        struct log_context context = LOG_CONTEXT_OF(job);
        struct refusal refusal;
        int r = 0;

        if (tracks > job->machine.node.config.room.tracks)
                r = machine_reserve(job, 0, tracks, &refusal);
        if (r != 0 && flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_WARNING, &context, "job '%s': no room for the %u plans of its nodes: %s",
                          job->name, tracks - TRACK_STEP, r > 0 ? refusal.text : strerror(-r));
}

static const struct member *machine_find(const struct job *job, uint64_t id) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->id == id)
                        return member;
        return NULL;
}

/* Whether the order's generation is larger than its members here want. All their memory was made for a world
 * of that size, and a coordinator that exceeds it has not asked them. */
static bool machine_is_overfull(const struct job *job, const struct order *order) {
        uint32_t most = job->state == JOB_FORMING ? UINT32_MAX : job->max_world;

        if (order->kind != ORDER_NEWGEN || order->instance != job->machine.node.config.instance)
                return false;
        for (uint32_t i = 0; i < order->n_members; i++) {
                const struct member *member = machine_find(job, order->member_of[i].member);

                if (member != NULL && most == UINT32_MAX)
                        most = member->max_world;
                if (member != NULL && member->max_world != most)
                        return true;
        }
        return order->world > most;
}

int machine_check_order(const struct job *job, const struct order *order, struct refusal *refusal) {
        if (!machine_is_overfull(job, order))
                return 0;
        return refuse(
                refusal, WIRE__CODE__MEMBER_LOST,
                "job '%s': its coordinator wants a generation of %u members, and those here take part in "
                "none of that size: restart the job from a checkpoint, and look at what coordinates",
                job->name, order->world);
}

static void machine_obey(struct job *job, const struct order *order) {
        machine_make_room(job, order->n_tracks);
        node_receive(&job->machine.node, clock_now(), order);
}

/* A report of the node that says that more is to come: the job settles at the end of the loop pass, and then
 * the coordinator goes on. */
static void machine_report(struct job *job, const struct report *report) {
        if (report->wait)
                loop_defer(job->table->config.loop, &job->settle);
        hub_send(&job->machine.attachment, report);
}

static void machine_set_due(struct job *job) {
        struct machine *machine = &job->machine;

        if (machine->beat == NULL)
                return;
        uint64_t due = node_deadline(&machine->node);
        if (due == machine->due)
                return;
        machine->due = due;
        loop_timer_arm_at(machine->beat, due);
}

/* Does the machine's own part of an action. Returns whether the job has none in it. Without other nodes, or
 * an engine that leads to them, the communicator is only a name: it is built at once, and gone at once. */
static bool machine_carry_out(struct job *job, const struct action *action) {
        struct node *node = &job->machine.node;

        if (action->kind == ACTION_ENTERED) {
                comm_rest(&job->comm);
                job->machine.catching_up = true;
        }
        if (action->kind == ACTION_BUILD && (machine_is_alone(job) || job->table->config.engine == NULL)) {
                comm_begin(&job->comm, 0);
                node_built(node, clock_now(), action->comm, (struct nodeset){ 0 });
        } else if (action->kind == ACTION_ABORT && job->comm.id == 0)
                node_aborted(node, clock_now(), action->comm);
        else
                return false;
        return true;
}

bool machine_next(struct jobs *jobs, struct job **ret_job, const struct action **ret) {
        struct effect effect;

        while (effects_next(&jobs->effects, &effect)) {
                struct job *job = effect.owner;

                if (effect.order != NULL)
                        machine_obey(job, effect.order);
                else if (effect.report != NULL)
                        machine_report(job, effect.report);
                else if (!machine_carry_out(job, effect.action)) {
                        *ret_job = job;
                        *ret = effect.action;
                        return true;
                }
                machine_set_due(job);
        }
        return false;
}

void machine_tick(struct job *job) {
        job->machine.due = 0;
        if (job->handover >= HANDOVER_OPEN)
                return;
        node_tick(&job->machine.node, clock_now());
        machine_set_due(job);
}

void machine_receive(struct job *job, const struct order *order) {
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };

        effects_order(&outlet, order);
}

/* Where this daemon is in the cluster, as far as that is known. */
static void machine_be_at(struct node_config *config, const struct attachment *attachment) {
        config->address = attachment->address == HUB_UNKNOWN ? 0 : attachment->address;
        config->host = attachment->host;
        config->times = attachment->times;
}

/* Its members have had ids of a node without a place. */
static void machine_renumber(struct job *job, struct membership_request *request) {
        const struct node_config *config = &job->machine.node.config;
        struct member *member;
        uint64_t id = member_id(config->address, config->instance, ++job->table->last_id);

        list_for_each(member, &job->members, link)
                if (member->id == request->member)
                        member->id = id;
        request->member = id;
}

void machine_begin_anew(struct job *job) {
        struct node *node = &job->machine.node;
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };
        struct membership_request waiting[LIMIT_SEATS];
        struct node_config config = node->config;
        uint32_t n = node->n;

        for (uint32_t i = 0; i < n; i++)
                waiting[i] = node->member[i].request;
        bool awaited = node->awaits;

        machine_be_at(&config, &job->machine.attachment);
        node_init(node, &config, clock_now(), &outlet);
        node_wait(node, clock_now(), true);
        if (awaited)
                node_expect(node, clock_now());
        for (uint32_t i = 0; i < n; i++) {
                machine_renumber(job, &waiting[i]);
                node_join(node, clock_now(), &waiting[i], &(struct tag){ 0 });
        }
        loop_defer(job->table->config.loop, &job->settle);
        machine_set_due(job);
}

void machine_quit(struct job *job) {
        node_quit(&job->machine.node, clock_now());
        machine_set_due(job);
}

bool machine_builds(const struct job *job, const struct generation *comm, uint32_t from) {
        const struct node *node = &job->machine.node;

        return node->phase != NODE_OUT && generation_equal(node->comm, *comm) && nodeset_has(node->set, from);
}

void machine_publish(struct job *job, const void *table, size_t bytes) {
        hub_publish(&job->machine.attachment, &job->machine.node.comm, table, bytes);
}

bool machine_post(struct job *job, const struct hub_letter *letter) {
        return hub_post(&job->machine.attachment, letter);
}

bool machine_is_unplaced(const struct job *job) {
        return job->machine.attachment.address == HUB_UNKNOWN;
}

bool machine_is_ahead(const struct job *job) {
        const struct node *node = &job->machine.node;

        return node->world > 0 && !node->awaits && !node->suspended &&
               node->generation.number > job->generation;
}

static void machine_release(struct machine *machine) {
        free(machine->memory);
        charge_release(&machine->charge);
}

/* Room is doubled, so that it seldom has to grow. */
static uint32_t machine_grow(uint32_t room, uint32_t wanted, uint32_t most) {
        while (room < wanted)
                room *= 2;
        return room < most ? room : most;
}

static size_t machine_bytes(const struct room *room) {
        return node_bytes(room) + room->members * sizeof(struct member *);
}

/* Memory for a node of that size. */
static int machine_allocate(struct job *job, const struct room *room, struct charge *charge, void **ret,
                            struct refusal *refusal) {
        size_t bytes = machine_bytes(room);
        int r = charge_take(charge, job->table->config.accounts, job->uid, ACCOUNT_OWN, bytes, refusal);

        if (r != 0)
                return r;
        *ret = malloc(bytes);
        if (*ret == NULL)
                charge_release(charge);
        return *ret != NULL ? 0 : -ENOMEM;
}

static int machine_attach(struct job *job, uint64_t incarnation, loop_timer_fn beat,
                          struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        struct machine *machine = &job->machine;
        struct hub_job which = { .uid = job->uid,
                                 .name = job->name,
                                 .incarnation = incarnation,
                                 .address = HUB_UNKNOWN,
                                 .token = job->token.digest };
        int r = 0;

        if (job->cluster)
                r = loop_timer_new(config->loop, beat, job, &machine->beat);
        if (r == 0)
                r = hub_attach(job->cluster ? config->cluster : config->hub, &machine->attachment, &which,
                               refusal);
        return r;
}

static uint32_t lanes_of(const struct jobs_config *config) {
        uint32_t most = config->engine != NULL ? config->engine->ops->lanes : 0;

        return most > 0 ? most + (config->staging_engine != NULL) : LIMIT_LANES;
}

int machine_init(struct job *job, uint64_t incarnation, loop_timer_fn beat, struct refusal *refusal) {
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };
        const struct engine *engine = job->table->config.engine;
        struct node_config config = {
                .instance = job->table->config.instance,
                .name = job->name,
                .n_lanes = job->cluster ? lanes_of(&job->table->config) : 1,
                .device = job->table->config.device,
                .engine = engine != NULL ? engine->ops->kin : 0,
                .agreed = job->cluster && engine != NULL && engine->ops->agreed,
                .window = COMM_WINDOW,
                .incarnation = incarnation,
                .room = { .members = FIRST_MEMBERS,
                          .tracks = TRACK_STEP + 1,
                          .nodes = job->cluster ? LIMIT_NODES : 1 },
        };
        struct machine *machine = &job->machine;
        int r = machine_allocate(job, &config.room, &machine->charge, &machine->memory, refusal);

        if (r != 0)
                return r;
        r = machine_attach(job, incarnation, beat, refusal);
        if (r != 0) {
                machine->beat = loop_timer_free(machine->beat);
                machine_release(machine);
                return r;
        }
        machine_be_at(&config, &machine->attachment);
        config.room.memory = machine->memory;
        node_init(&machine->node, &config, clock_now(), &outlet);
        node_wait(&machine->node, clock_now(), true);
        job->local = (void *)((unsigned char *)machine->memory + node_bytes(&config.room));
        return 0;
}

void machine_depart(struct job *job) {
        node_depart(&job->machine.node, clock_now());
        machine_set_due(job);
}

bool machine_has_departed(const struct job *job) {
        return !node_may_be_called(&job->machine.node);
}

void machine_leave(struct job *job) {
        job->machine.attachment.stays = true;
        machine_depart(job);
}

void machine_deinit(struct job *job) {
        struct machine *machine = &job->machine;

        effects_forget(&job->table->effects, job);
        hub_detach(&machine->attachment);
        machine->beat = loop_timer_free(machine->beat);
        machine_release(machine);
}

static void machine_move(struct job *job, const struct room *room, struct charge charge) {
        struct machine *machine = &job->machine;
        struct member **local = (void *)((unsigned char *)room->memory + node_bytes(room));

        node_move(&machine->node, room);
        memcpy(local, job->local, job->n_local * sizeof(*local));
        job->local = local;
        machine_release(machine);
        machine->memory = room->memory;
        machine->charge = charge;
}

int machine_reserve(struct job *job, uint32_t members, uint32_t tracks, struct refusal *refusal) {
        struct machine *machine = &job->machine;
        struct room room = machine->node.config.room;
        struct charge charge = { 0 };
        bool grows = members > room.members || tracks > room.tracks;
        int r = 0;

        room.members = machine_grow(room.members, members, LIMIT_SEATS);
        room.tracks = machine_grow(room.tracks, tracks, LIMIT_TRACKS);
        if (grows)
                r = machine_allocate(job, &room, &charge, &room.memory, refusal);
        if (r != 0)
                return r;
        r = hub_reserve(&machine->attachment, members, machine->node.world, tracks, refusal);
        if (grows && r == 0)
                machine_move(job, &room, charge);
        else if (grows) {
                free(room.memory);
                charge_release(&charge);
        }
        return r;
}

/* Room for the members on their way back, and for `n` newcomers. */
static int machine_reserve_for_all(struct job *job, uint32_t members, uint32_t n, struct refusal *refusal) {
        if (members + n > LIMIT_SEATS)
                return refuse(
                        refusal, WIRE__CODE__JOB_FULL,
                        "job '%s' awaits its %u members after a restart of gradsyncd, and %u others wait "
                        "for a place in it: no more can",
                        job->name, members, n);
        return machine_reserve(job, members + n, 0, refusal);
}

int machine_join(struct job *job, const struct membership_request *request, const struct tag *tag,
                 struct refusal *refusal) {
        struct machine *machine = &job->machine;
        uint32_t n = machine->node.n;
        int r = membership_check(job->name, request, refusal);

        if (r == 0 && machine->node.awaits)
                r = machine_reserve_for_all(job, job->n_local, n + 1, refusal);
        else if (r == 0)
                r = machine_reserve(job, n + 1, 0, refusal);
        if (r != 0)
                return r;
        node_join(&machine->node, clock_now(), request, tag);
        machine_set_due(job);
        return 0;
}

const struct report_member *machine_member(const struct job *job, uint64_t member) {
        const struct node *node = &job->machine.node;

        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i];
        return NULL;
}

void machine_gone(struct job *job, uint64_t member, uint32_t cause) {
        if (cause == WIRE__CAUSE__LEAVING)
                node_leave(&job->machine.node, clock_now(), member);
        else
                node_lose(&job->machine.node, clock_now(), member, cause);
        machine_set_due(job);
}

void machine_end(struct job *job, uint32_t cause) {
        node_end(&job->machine.node, clock_now(), cause);
        machine_set_due(job);
}

void machine_wait(struct job *job, bool wait) {
        node_wait(&job->machine.node, clock_now(), wait);
        machine_set_due(job);
}

uint64_t machine_committed(const struct job *job, uint32_t track) {
        return job->machine.node.track[track].committed;
}

uint64_t machine_operation(const struct job *job) {
        const struct track *track = &job->machine.node.track[TRACK_OPERATION];

        return track->committed + track->mismatches + 1;
}

bool machine_is_alone(const struct job *job) {
        return nodeset_count(job->machine.node.set) <= 1;
}

bool machine_may_prepare(const struct job *job, uint32_t track) {
        const struct track *unit = &job->machine.node.track[track];

        return machine_is_alone(job) || job->machine.node.phase == NODE_RUNNING ||
               unit->prepared > unit->committed || unit->state == UNIT_COMMITTING;
}

uint32_t machine_rank_of(const struct job *job, uint32_t address) {
        const struct node *node = &job->machine.node;
        uint32_t rank = 0;

        for (uint32_t other = 0; other < address; other++)
                rank += nodeset_has(node->set, other);
        return rank;
}

uint32_t machine_node_rank(const struct job *job) {
        return machine_rank_of(job, job->machine.node.config.address);
}

struct engine *machine_engine(const struct jobs *jobs, uint32_t part) {
        return part == 0 ? jobs->config.engine : part == 1 ? jobs->config.staging_engine : NULL;
}

struct machine_lanes machine_lanes(const struct job *job, uint32_t part) {
        uint32_t n = job->machine.node.config.n_lanes, first = n - (machine_engine(job->table, 1) != NULL);

        return part == 0 ? (struct machine_lanes){ 0, first } : (struct machine_lanes){ first, n - first };
}

/* The last lane is that of operations; the one before it is shared by plans that have none of their own. */
static uint32_t track_lane(const struct node *node, uint32_t track) {
        uint32_t last = node->config.n_lanes - 1, own = track - TRACK_STEP;

        if (!track_is_step(track) || last == 0)
                return last;
        return own < last ? own : last - 1;
}

bool machine_is_awaiting(const struct job *job) {
        return job->machine.node.awaits;
}

void machine_agree(struct job *job, uint32_t ordinal, uint64_t digest, bool voids) {
        node_agree(&job->machine.node, clock_now(), ordinal, digest, voids);
        machine_set_due(job);
}

void machine_explain(struct job *job, uint32_t ordinal, enum note note, const struct report_note *about) {
        node_explain(&job->machine.node, clock_now(), ordinal, note, about);
        machine_set_due(job);
}

uint32_t machine_plans(const struct job *job, uint32_t ordinal) {
        const struct node *node = &job->machine.node;
        uint32_t n = 0;

        for (uint32_t i = 0; i < node->n_plans; i++)
                n += node->plan[i].ordinal != ordinal;
        return n;
}

uint32_t machine_kept(const struct job *job, const uint32_t **ret_list, uint32_t *ret_next) {
        *ret_list = job->machine.node.kept;
        *ret_next = job->machine.node.next_plan;
        return job->machine.node.n_kept;
}

uint64_t machine_before(const struct job *job, uint32_t ordinal) {
        const struct node *node = &job->machine.node;

        for (uint32_t i = 0; i < node->n_plans; i++)
                if (node->plan[i].ordinal == ordinal)
                        return node->plan[i].before;
        return 0;
}

void machine_forget(struct job *job, uint32_t ordinal) {
        node_forget(&job->machine.node, clock_now(), ordinal);
        machine_set_due(job);
}

bool machine_open(struct job *job, uint32_t track, uint64_t payloads) {
        struct node *node = &job->machine.node;
        uint64_t planned[LIMIT_LANES] = { 0 };

        planned[track_lane(node, track)] = payloads;
        bool open = node_open(node, clock_now(), node->generation, track, planned);
        machine_set_due(job);
        return open;
}

void machine_offer(struct job *job, uint32_t track) {
        struct node *node = &job->machine.node;

        node_offer(node, clock_now(), node->generation, track, track_lane(node, track));
        machine_set_due(job);
}

uint64_t machine_payloads(const struct job *job, uint32_t track) {
        const struct node *node = &job->machine.node;

        return node->track[track].planned[track_lane(node, track)];
}

uint64_t machine_filling(const struct job *job) {
        return job->machine.node.filling;
}

bool machine_engine_busy(const struct job *job) {
        const struct node *node = &job->machine.node;

        for (uint32_t lane = 0; lane < node->config.n_lanes && job->comm.id != 0; lane++)
                if (node->lane[lane].completed < node->lane[lane].launched)
                        return true;
        return false;
}

void machine_built(struct job *job, struct generation comm, struct nodeset unreachable) {
        if (job->handover >= HANDOVER_OPEN)
                return;
        node_built(&job->machine.node, clock_now(), comm, unreachable);
        machine_set_due(job);
}

void machine_done(struct job *job, uint32_t lane, uint64_t sequence, uint64_t value) {
        struct node *node = &job->machine.node;

        node_done(node, clock_now(), node->comm, lane, sequence, value);
        machine_set_due(job);
}

void machine_aborted(struct job *job) {
        struct node *node = &job->machine.node;

        node_aborted(node, clock_now(), node->comm);
        machine_set_due(job);
}

void machine_unreachable(struct job *job, struct nodeset nodes) {
        struct node *node = &job->machine.node;

        node_unreachable(node, clock_now(), node->comm, nodes);
        machine_set_due(job);
}

enum unit_state machine_unit(const struct job *job, uint32_t track) {
        return job->machine.node.track[track].state;
}

/* A member that has given all buckets of a step has the same state as the others: it has taken theirs, or
 * needs none. */
static void note_up_to_date(struct job *job) {
        struct node *node = &job->machine.node;

        for (uint32_t local = 0; local < job->n_local; local++)
                node_synced(node, job->local[local]->id, &node->history);
}

void machine_full(struct job *job, uint32_t track) {
        if (track_is_step(track) && job->machine.catching_up) {
                job->machine.catching_up = false;
                note_up_to_date(job);
        }
        machine_say(job, track, node_full);
}

void machine_say(struct job *job, uint32_t track,
                 void (*say)(struct node *node, uint64_t now, struct generation generation, uint32_t track)) {
        struct node *node = &job->machine.node;

        say(node, clock_now(), node->generation, track);
        machine_set_due(job);
}

bool machine_may_resume(const struct job *job) {
        if (!job->cluster || job->state != JOB_REPLACING || job->loss.member != 0 || job->torn ||
            job->takeover != NULL)
                return false;
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->owner == NULL)
                        return false;
        return job->n_local > 0;
}

void machine_tear(struct job *job) {
        node_tear(&job->machine.node, job->machine.node.generation);
}

void machine_end_of_job(struct job *job) {
        job->machine.attachment.ended = true;
}

/* The coordinator of a job of this daemon alone begins anew as well; another one hears that the node does. */
int machine_expect(struct job *job, uint32_t members, struct refusal *refusal) {
        struct node *node = &job->machine.node;
        struct outlet outlet = { .effects = &job->table->effects, .owner = job };
        struct membership_request waiting[LIMIT_SEATS];
        uint32_t n = node->n;
        uint64_t now = clock_now();
        int r = machine_reserve_for_all(job, members, n, refusal);
        struct node_config config = node->config;

        if (r != 0)
                return r;
        for (uint32_t i = 0; i < n; i++)
                waiting[i] = node->member[i].request;
        if (!job->cluster)
                hub_renew(&job->machine.attachment);
        node_init(node, &config, now, &outlet);
        node_wait(node, now, true);
        node_expect(node, now);
        for (uint32_t i = 0; i < n; i++)
                node_join(node, now, &waiting[i], &(struct tag){ 0 });
        machine_set_due(job);
        return 0;
}

void machine_restore(struct job *job, const struct report *report) {
        node_restore(&job->machine.node, clock_now(), report);
        machine_set_due(job);
}
