/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives the engine the collectives that the machine of a job wants launched. Takes each completion to its
 * step or operation, then to the machine.
 */
#include "job/collective.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "job/op/operation.h"
#include "job/plan/step.h"
#include "job/private.h"

/* All nodes of the set but this one. */
static struct nodeset others_of(const struct job *job, struct nodeset set, struct nodeset to) {
        uint32_t own = job->machine.node.config.address;

        nodeset_copy(to, set);
        to.word[own / 64] &= ~(UINT64_C(1) << own % 64);
        return to;
}

/* The engine refuses a call. That counts as broken links to all other nodes. */
static void collective_fail(struct job *job, const char *what, int error) {
        struct log_context context = LOG_CONTEXT_OF(job);

        log_write(LOG_WARNING, &context, "job '%s': the engine %s could not %s: %s; this node is cut off",
                  job->name, job->table->config.engine->ops->name, what, strerror(-error));
}

/* This node cannot give its part. */
static void collective_cut_off(struct job *job, const char *what, int error) {
        collective_fail(job, what, error);
        comm_set_state(&job->comm, COMM_BROKEN);
        machine_unreachable(job, others_of(job, job->machine.node.set, NODESET_SCRATCH));
}

static void collective_drop_parts(struct job *job, uint64_t id, uint32_t parts) {
        struct engine *engine;

        for (uint32_t part = 0; (engine = machine_engine(job->table, part)) != NULL; part++)
                if (parts >> part & 1)
                        engine->ops->drop(engine, id + part);
}

/* All parts, or none. */
static int collective_build_parts(struct job *job, const struct engine_build *build) {
        struct engine *engine;
        int r = 0;

        for (uint32_t part = 0; r == 0 && (engine = machine_engine(job->table, part)) != NULL; part++) {
                struct engine_build each = *build;

                each.comm = job->comm.id + part;
                each.older = job->comm.old_id != 0 ? job->comm.old_id + part : 0;
                each.n_lanes = machine_lanes(job, part).n;
                r = engine->ops->build(engine, &each);
                if (r == 0)
                        comm_add(&job->comm, part);
        }
        if (r < 0) {
                collective_drop_parts(job, job->comm.id, job->comm.parts);
                comm_end(&job->comm);
        }
        return r;
}

static void collective_build(struct job *job, const struct action *action) {
        uint32_t nodes[LIMIT_NODES];
        struct engine_build build = { .node = nodes };
        char name[2 * LIMIT_NAME];

        snprintf(name, sizeof(name), "%u/%s/%" PRIu64 ".%" PRIu64 ".%u.%u", (unsigned)job->uid, job->name,
                 job->incarnation, action->comm.term, action->comm.number, action->comm.nonce);
        build.name = name;
        for (uint32_t node = 0; node < LIMIT_NODES; node++) {
                if (!nodeset_has(action->set, node))
                        continue;
                if (node == job->machine.node.config.address)
                        build.self = build.n_nodes;
                nodes[build.n_nodes++] = node;
        }
        comm_begin(&job->comm, job->table->last_shared + 1);
        job->table->last_shared += COMM_PARTS;
        job->communicators++;
        int r = collective_build_parts(job, &build);
        if (r == 0)
                return;
        collective_fail(job, "build a communicator", r);
        machine_built(job, action->comm, others_of(job, action->set, NODESET_SCRATCH));
}

/* Describes the collective of that item to the engine. The values of a vote are there already. */
static void collective_fill(struct job *job, const struct comm_item *item, struct engine_launch *launch) {
        bool step = track_is_step(item->track);
        struct comm_words words;

        launch->kind = item->filler                                   ? ENGINE_FILLER
                       : item->index == 0 || item->index == COMM_VOTE ? ENGINE_VOTE
                                                                      : ENGINE_PAYLOAD;
        if (item->index == COMM_VOTE || (item->filler && item->index == 0))
                return;
        if (item->index > 0) {
                launch->piece = step ? step_piece(plan_on_track(job, item->track), (uint32_t)item->index - 1,
                                                  item->filler)
                                     : spread_piece(job, item->filler);
                return;
        }
        bool heard = step ? step_words(plan_on_track(job, item->track), &words) : spread_words(job, &words);
        comm_pack(launch->value, heard ? &words : NULL);
}

static void collective_start(struct job *job, uint32_t lane, uint64_t sequence, uint64_t value) {
        uint32_t part = lane >= machine_lanes(job, 0).n;
        struct engine *engine = machine_engine(job->table, part);
        struct engine_launch launch = { .comm = job->comm.id + part,
                                        .lane = lane - machine_lanes(job, part).first,
                                        .sequence = sequence,
                                        .value = { value } };

        collective_fill(job, comm_item(&job->comm, lane, sequence), &launch);
        int r = engine->ops->launch(engine, &launch);
        if (r == 0)
                return;
        collective_cut_off(job, "launch a collective", r);
}

static void collective_launch(struct job *job, const struct action *action) {
        uint64_t planned = action->launch == LAUNCH_PAYLOAD ? machine_payloads(job, action->track) : 0;

        if (comm_take(&job->comm, action, planned))
                collective_start(job, action->lane, action->seq, action->value);
}

static void collective_abort(struct job *job) {
        bool begins = job->comm.id != 0 && job->comm.state != COMM_ABORTING;
        struct engine *engine;

        for (uint32_t part = 0; begins && (engine = machine_engine(job->table, part)) != NULL; part++)
                engine->ops->abort(engine, job->comm.id + part);
        comm_set_state(&job->comm, COMM_ABORTING);
}

void collective_give_up(struct job *job) {
        if (job->comm.id != 0)
                collective_abort(job);
}

static void collective_drop(struct job *job) {
        if (job->comm.old_id != 0)
                collective_drop_parts(job, job->comm.old_id, UINT32_MAX);
        job->comm.old_id = 0;
}

void collective_act(struct job *job, const struct action *action) {
        switch (action->kind) {
        case ACTION_BUILD: collective_build(job, action); break;
        case ACTION_LAUNCH: collective_launch(job, action); break;
        case ACTION_ABORT: collective_abort(job); break;
        default: collective_drop(job);
        }
}

static struct nodeset set_of(const uint32_t *nodes, uint32_t n, struct nodeset to) {
        for (uint32_t i = 0; i < n; i++)
                nodeset_add(to, nodes[i]);
        return to;
}

void collective_free_exchanges(struct job *job) {
        struct exchange *exchange, *spare;

        if (machine_engine_busy(job))
                return;
        list_for_each_safe(exchange, spare, &job->exchanges, link)
                exchange_free(exchange);
}

static int collective_learn_parts(const struct job *job, uint32_t rank, struct comm_table table) {
        struct comm_table learned[COMM_PARTS] = { table };
        struct engine *engine;
        int r = machine_engine(job->table, 1) != NULL ? comm_split(table, learned) : 0;

        for (uint32_t part = 0; r == 0 && (engine = machine_engine(job->table, part)) != NULL; part++)
                r = engine->ops->learn(engine, job->comm.id + part, rank, learned[part].start,
                                       learned[part].bytes);
        return r;
}

/* A table that the engine cannot use comes from a daemon of another kind: the two count as unreachable for
 * each other. */
void collective_learn(struct job *job, uint32_t from, const void *table, size_t bytes) {
        struct nodeset broken = NODESET_SCRATCH;

        if (job->comm.id == 0 || job->comm.state != COMM_WORKS)
                return;
        int r = collective_learn_parts(job, machine_rank_of(job, from), (struct comm_table){ table, bytes });
        if (r == 0)
                return;
        collective_fail(job, "use the addresses of another node", r);
        comm_set_state(&job->comm, COMM_BROKEN);
        nodeset_add(broken, from);
        machine_unreachable(job, broken);
}

void collective_published(struct job *job, uint32_t part, const void *table, size_t bytes) {
        if (machine_engine(job->table, 1) == NULL) {
                machine_publish(job, table, bytes);
                return;
        }
        void *joined = comm_join(&job->comm, part, (struct comm_table){ table, bytes }, &bytes);
        if (joined != NULL)
                machine_publish(job, joined, bytes);
        free(joined);
}

void collective_built(struct job *job, uint32_t part, const uint32_t *unreachable, uint32_t n) {
        if (comm_built(&job->comm, part, n == 0))
                machine_built(job, job->machine.node.comm, set_of(unreachable, n, NODESET_SCRATCH));
}

/* Reports the result of a collective to its unit. A filler, launched for the sake of other nodes, concerns no
 * unit here. */
static bool collective_tell(struct job *job, const struct comm_item *item, const uint64_t *value) {
        bool step = track_is_step(item->track), open = machine_unit(job, item->track) == UNIT_OPEN;
        struct comm_words words;
        int r = 0;

        if (item->index == COMM_VOTE)
                return value[0] != 0;
        if (item->index > 0) {
                if (open && !item->filler)
                        step ? step_exchanged(plan_on_track(job, item->track), (uint32_t)item->index - 1)
                             : spread_exchanged(job);
                return true;
        }
        bool same = comm_unpack(value, &words);
        if (open && !item->filler && step && value[0] != 0) /* else it is frozen: others have filled up */
                step_compared(plan_on_track(job, item->track), same, &words);
        else if (open && !item->filler && !step)
                r = operation_compared(job, same, &words);
        if (r < 0)
                collective_cut_off(job, "be given what this node has for an operation", r);
        return same;
}

void collective_done(struct job *job, uint32_t part, uint32_t own_lane, uint64_t sequence,
                     const uint64_t *value) {
        uint32_t lane = machine_lanes(job, part).first + own_lane;
        uint64_t held;
        struct comm_item item = *comm_item(&job->comm, lane, sequence);
        bool yes = collective_tell(job, &item, value);
        while ((held = comm_next_held(&job->comm, lane, sequence)) > 0)
                collective_start(job, lane, held, 0);
        machine_done(job, lane, sequence, yes);
}

/* If the other part is not built yet, the loss is what is told of the whole. */
void collective_unreachable(struct job *job, uint32_t part, const uint32_t *nodes, uint32_t n) {
        if (job->comm.told)
                machine_unreachable(job, set_of(nodes, n, NODESET_SCRATCH));
        else
                collective_built(job, part, nodes, n);
}

static bool any_aborting(const struct jobs *jobs) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->comm.id != 0)
                        return true;
        return false;
}

static void collective_wait(struct jobs *jobs) {
        struct pollfd fd[COMM_PARTS];
        struct engine *engine;
        uint32_t n = 0;

        for (; (engine = machine_engine(jobs, n)) != NULL; n++)
                fd[n] = (struct pollfd){ .fd = engine->ops->fd(engine), .events = POLLIN };
        if (poll(fd, n, -1) < 0)
                return;
        for (uint32_t part = 0; (engine = machine_engine(jobs, part)) != NULL; part++)
                engine->ops->dispatch(engine);
}

void collective_end(struct jobs *jobs) {
        struct job *job;

        list_for_each(job, &jobs->list, link) {
                collective_abort(job);
                collective_drop(job);
        }
        while (any_aborting(jobs))
                collective_wait(jobs);
}

void collective_let_go(struct jobs *jobs) {
        while (shared_any_left(jobs))
                collective_wait(jobs);
}

void collective_follow(struct job *job) {
        struct plan *plan;

        if (job->n_local > 0 || machine_is_alone(job))
                return;
        list_for_each(plan, &job->plans, link)
                step_follow(plan);
        int r = operation_follow(job);
        if (r < 0)
                collective_cut_off(job, "have memory for operations", r);
}
