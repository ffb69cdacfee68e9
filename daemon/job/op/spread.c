/* SPDX-License-Identifier: Apache-2.0 */
#include "job/op/spread.h"

#include <errno.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/nodes.h"
#include "proto/names.h"

static struct spread *spread_of(struct job *job) {
        return &job->operation.spread;
}

static bool spread_reduces(unsigned kind) {
        return kind == WIRE__OPERATION_KIND__ALLREDUCE || kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;
}

/* Of everybody's slots, or of the one range that all have. */
static uint64_t spread_whole(const struct job *job) {
        const struct spread *spread = &job->operation.spread;
        bool slots = spread->kind == WIRE__OPERATION_KIND__ALLGATHER ||
                     spread->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;

        return slots ? job->world * spread->bytes : spread->bytes;
}

static uint64_t spread_room(const struct job *job) {
        return job->table->config.staging_bytes;
}

int spread_prepare(struct job *job, struct refusal *refusal) {
        struct spread *spread = spread_of(job);
        struct shared_config config;

        if (spread->memory.known || machine_is_alone(job))
                return 0;
        config = nodes_shared(job, job->table->config.staging);
        return shared_init(&spread->memory, &config, 3 * spread_room(job), refusal);
}

/* What is compared is what matters to the kind of call. The node of the root is found out beside it. */
void spread_words(const struct job *job, struct comm_words *ret) {
        const struct operation_request *call = &job->operation.first;
        bool barrier = call->kind == WIRE__OPERATION_KIND__BARRIER, reduces = spread_reduces(call->kind);
        bool broadcast = call->kind == WIRE__OPERATION_KIND__BROADCAST;

        *ret = (struct comm_words){ .word = { call->sequence, call->kind, barrier ? 0 : call->bytes,
                                              barrier ? 0 : call->total, reduces ? call->dtype : 0,
                                              reduces ? call->reduce : 0, broadcast ? call->root : 0 } };
        for (uint32_t local = 0; local < job->n_local && broadcast; local++)
                if (job->local[local]->rank == call->root)
                        ret->largest = machine_node_rank(job) + 1;
}

/* ---- this node's inputs, and its members' outputs ---- */

struct spread_task {
        unsigned reduce;
        uint64_t bytes;
        struct backend_range input[LIMIT_LOCAL], output[LIMIT_LOCAL];
        unsigned n_inputs, n_outputs;
};

static struct backend_range spread_range(const struct job *job, uint64_t offset) {
        return (struct backend_range){ .memory = job->operation.spread.memory.memory, .offset = offset };
}

static struct backend_range spread_input(const struct job *job, uint32_t local) {
        const struct member *member = job->local[local];

        return (struct backend_range){ member->staging.arena->memory, member->operation.call.input };
}

static struct backend_range spread_output(const struct job *job, uint32_t local) {
        const struct member *member = job->local[local];

        return (struct backend_range){ member->staging.arena->memory, member->operation.call.output };
}

static int spread_submit(struct job *job, uint32_t index, const struct spread_task *task) {
        struct backend *backend = job->table->config.staging;
        const struct spread *spread = &job->operation.spread;
        unsigned dtype = spread->dtype;
        struct backend_result result;
        int r = backend->compute->submit(backend,
                                         &(struct backend_task){
                                                 .id = (uint64_t)job->operation.owner->slot << 32 | index,
                                                 .turn = job->id,
                                                 .dtype = dtype,
                                                 .reduce = task->reduce,
                                                 .divisor = job->world,
                                                 .elements = task->bytes / dtype_size(dtype),
                                                 .n_inputs = task->n_inputs,
                                                 .n_outputs = task->n_outputs,
                                                 .inputs = task->input,
                                                 .outputs = task->output,
                                         },
                                         &result);

        if (r == 0)
                job->operation.tasks++;
        return r < 0 ? r : 0;
}

static int spread_copy(struct job *job, uint32_t index, struct backend_range from, struct backend_range to,
                       uint64_t bytes) {
        struct spread_task task = { .reduce = WIRE__REDUCE__REDUCE_NONE,
                                    .bytes = bytes,
                                    .input = { from },
                                    .output = { to },
                                    .n_inputs = 1,
                                    .n_outputs = 1 };

        return spread_submit(job, index, &task);
}

/* Members' slots, and zeros between them. */
static int gather_slots(struct job *job) {
        uint64_t bytes = job->operation.spread.bytes, at = 0, zeros = 2 * spread_room(job);
        uint32_t index = 0;
        int r = 0;

        for (uint32_t local = 0; local < job->n_local && r == 0; local++) {
                uint64_t slot = job->local[local]->rank * bytes;

                if (slot > at)
                        r = spread_copy(job, index++, spread_range(job, zeros), spread_range(job, at),
                                        slot - at);
                if (r == 0)
                        r = spread_copy(job, index++, spread_input(job, local), spread_range(job, slot),
                                        bytes);
                at = slot + bytes;
        }
        if (r == 0 && at < spread_whole(job))
                r = spread_copy(job, index, spread_range(job, zeros), spread_range(job, at),
                                spread_whole(job) - at);
        return r;
}

static int spread_gather(struct job *job) {
        const struct spread *spread = &job->operation.spread;
        struct spread_task task = { .reduce = spread->reduce,
                                    .bytes = spread_whole(job),
                                    .n_inputs = job->n_local,
                                    .output = { spread_range(job, 0) },
                                    .n_outputs = 1 };
        uint32_t root = 0;

        switch (spread->kind) {
        case WIRE__OPERATION_KIND__ALLGATHER: return gather_slots(job);
        case WIRE__OPERATION_KIND__BROADCAST:
                while (root < job->n_local && job->local[root]->rank != job->operation.first.root)
                        root++;
                return root == job->n_local ? 0
                                            : spread_copy(job, 0, spread_input(job, root),
                                                          spread_range(job, 0), spread->bytes);
        case WIRE__OPERATION_KIND__BARRIER: return 0;
        default:
                for (uint32_t local = 0; local < job->n_local; local++)
                        task.input[local] = spread_input(job, local);
                return spread_submit(job, 0, &task);
        }
}

static int spread_hand_out(struct job *job) {
        const struct spread *spread = &job->operation.spread;
        struct spread_task task = { .reduce = WIRE__REDUCE__REDUCE_NONE,
                                    .bytes = spread_whole(job),
                                    .input = { spread_range(job, 0) },
                                    .n_inputs = 1 };
        int r = 0;

        for (uint32_t local = 0; local < job->n_local && r == 0; local++) {
                uint32_t rank = job->local[local]->rank;

                if (spread->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER)
                        r = spread_copy(job, local, spread_range(job, rank * spread->bytes),
                                        spread_output(job, local), spread->bytes);
                else if (spread->kind != WIRE__OPERATION_KIND__BROADCAST || rank != job->operation.first.root)
                        task.output[task.n_outputs++] = spread_output(job, local);
        }
        return r == 0 && task.n_outputs > 0 ? spread_submit(job, 0, &task) : r;
}

/* Whether nobody has given back memory that is about to be used. Who has is evicted. */
static bool spread_intact(struct job *job) {
        bool all = true;

        for (uint32_t local = 0; local < job->n_local && spread_whole(job) > 0; local++)
                all &= memory_intact(job->local[local], job->local[local]->staging.arena->memory,
                                     spread_whole(job));
        return all;
}

/* The tasks are counted from one, so that results which come at once do not end it early. */
static int spread_run(struct job *job, int (*submit)(struct job *job)) {
        int r = 0;

        job->operation.tasks++;
        if (spread_whole(job) > 0 && job->n_local > 0)
                r = submit(job);
        job->operation.spread.failed = r < 0;
        if (--job->operation.tasks == 0)
                spread_tasks_done(job);
        return r;
}

void spread_tasks_done(struct job *job) {
        if (job->operation.spread.handing_out)
                machine_landed(job, TRACK_OPERATION);
        else if (!job->operation.spread.failed)
                machine_offer(job, TRACK_OPERATION);
}

int spread_compared(struct job *job, bool same, const struct comm_words *words) {
        struct spread *spread = spread_of(job);

        spread->handing_out = false;
        spread->kind = (unsigned)words->word[1];
        spread->bytes = same ? words->word[2] : 0;
        spread->dtype = spread_reduces(spread->kind) ? (unsigned)words->word[4] : WIRE__DTYPE__U8;
        spread->reduce = (unsigned)words->word[5];
        spread->root = words->largest > 0 ? (uint32_t)words->largest - 1 : 0;
        if (spread_whole(job) > spread_room(job))
                return -EMSGSIZE;
        if (!spread_intact(job))
                return 0; /* it ends with the member that is evicted */
        if (job->n_local == 0 && spread->bytes > 0)
                shared_fill_neutral(&spread->memory, 0, spread->dtype, spread->reduce,
                                    spread_whole(job) / dtype_size(spread->dtype));
        return spread_run(job, spread_gather);
}

/* What this node has nothing to do with goes where nobody reads. */
struct engine_piece spread_piece(const struct job *job, bool filler) {
        const struct spread *spread = &job->operation.spread;
        uint64_t at = filler ? spread_room(job) : 0;

        if (spread->bytes == 0)
                return (struct engine_piece){ 0 };
        return (struct engine_piece){
                .memory = spread->memory.config.id,
                .input = at,
                .output = at,
                .elements = spread_whole(job) / dtype_size(spread->dtype),
                .dtype = spread->dtype,
                .reduce = spread->kind == WIRE__OPERATION_KIND__BROADCAST ? ENGINE_COPY
                                                                          : shared_reduce(spread->reduce),
                .root = spread->root,
        };
}

int spread_exchanged(struct job *job) {
        job->operation.spread.handing_out = true;
        spread_intact(job);
        return spread_run(job, spread_hand_out);
}
