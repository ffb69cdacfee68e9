/* SPDX-License-Identifier: Apache-2.0 */
#include "job/op/spread.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <syslog.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "proto/names.h"

bool spread_reduces(unsigned kind) {
        return kind == WIRE__OPERATION_KIND__ALLREDUCE || kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;
}

bool spread_can_be_sealed(unsigned kind) {
        return kind == WIRE__OPERATION_KIND__BROADCAST || kind == WIRE__OPERATION_KIND__ALLGATHER;
}

/* Data of nodes on one host does not leave it: they have no secret. */
bool spread_is_sealed(const struct job *job, const struct operation_request *call) {
        return call->sealed && !sha256_is_none(&job->secret);
}

/* Whether the payload has a slot for each rank of the world. */
static bool spread_has_slots(const struct spread *spread) {
        return spread->kind == WIRE__OPERATION_KIND__ALLGATHER ||
               spread->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;
}

/* Bytes of the slots of all ranks, or of the one range that all members have. */
static uint64_t spread_whole(const struct job *job) {
        const struct spread *spread = &job->operation.spread;

        return spread_has_slots(spread) ? job->world * spread->bytes : spread->bytes;
}

static uint64_t spread_room(const struct job *job) {
        return job->table->config.staging_bytes;
}

/* Room for the seals, too: a part of an allgather has ARENA_ALIGN bytes or more, a broadcast is one part. */
static uint64_t spread_area(const struct job *job) {
        uint64_t room = spread_room(job);

        return frame_round_up(room + room / ARENA_ALIGN * SEAL_BYTES + SEAL_BYTES, ARENA_ALIGN);
}

static uint64_t spread_seals_at(const struct job *job) {
        return frame_round_up(spread_whole(job), ARENA_ALIGN);
}

static uint64_t spread_pieces(const struct job *job) {
        return spread_whole(job) / job->operation.spread.bytes * seal_pieces(job->operation.spread.bytes);
}

/* Bytes that are exchanged. */
static uint64_t spread_payload(const struct job *job) {
        if (!job->operation.spread.sealed)
                return spread_whole(job);
        return spread_seals_at(job) + spread_pieces(job) * SEAL_BYTES;
}

/* Refuses the operation to this node's members only: the other nodes have checked their own data. */
static void spread_reject(struct job *job, uint64_t piece) {
        const struct spread *spread = &job->operation.spread;
        bool broadcast = spread->kind == WIRE__OPERATION_KIND__BROADCAST;
        uint64_t slot = piece / seal_pieces(spread->bytes);
        uint32_t from = broadcast ? job->operation.first.root : (uint32_t)slot;
        struct refusal *refusal = &job->operation.refusal;

        job->operation.failed = true;
        refuse_for(
                refusal, WIRE__CODE__PROTOCOL, from, -1,
                "job '%s': the data that rank %u sent in operation %" PRIu64
                " (sealed %s) was changed on its way between hosts, and nothing of it was taken. Something "
                "between the hosts writes to what Gloo or NCCL send: close that network to strangers "
                "(data_address in gradsyncd.conf(5), and the firewall), then start the ranks of this host "
                "again",
                job->name, from, job->operation.first.sequence, operation_name(spread->kind));
        struct log_context context = LOG_CONTEXT_OF(job);

        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_WARNING, &context, "%s", refusal->text);
}

static void spread_fail(struct job *job, int error);
static bool spread_intact(struct job *job);
static int spread_run(struct job *job, enum spread_phase phase, int (*submit)(struct job *job));
static int spread_hand_out(struct job *job);

static void spread_give(struct job *job) {
        spread_intact(job);
        spread_run(job, SPREAD_HANDS_OUT, spread_hand_out);
}

/* All tasks have ended that work on the payload, or on this node's input to it. */
static void spread_tasks_ended(struct job *job) {
        if (job->operation.spread.broken)
                return; /* it ends with the member that is evicted */
        if (job->operation.spread.phase == SPREAD_CHECKS && !job->operation.failed)
                spread_give(job);
        else if (job->operation.spread.phase != SPREAD_GATHERS)
                machine_say(job, TRACK_OPERATION, node_landed);
        else if (!job->operation.spread.failed)
                machine_offer(job, TRACK_OPERATION);
}

bool spread_can_wait(const struct job *job) {
        return machine_may_resume(job) && !job->operation.differs &&
               job->operation.spread.phase != SPREAD_HANDS_OUT && !job->operation.failed;
}

void spread_let_go(struct job *job) {
        if (!spread_can_wait(job))
                machine_say(job, TRACK_OPERATION, node_tear_unit);
        machine_say(job, TRACK_OPERATION, node_quiet);
}

static void spread_break(struct job *job, const struct backend_memory *withdrawn) {
        job->operation.spread.broken = true;
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->staging.arena->memory == withdrawn) {
                        memory_withdrawn(job->local[local]);
                        break;
                }
        machine_say(job, TRACK_OPERATION, node_spoil);
}

static void spread_done(struct task_owner *owner, uint32_t index, const struct backend_result *result) {
        struct job *job = container_of(owner, struct job, operation.owner);
        bool voiding = machine_unit(job, TRACK_OPERATION) == UNIT_VOIDING;

        if (!voiding && result->withdrawn != NULL)
                spread_break(job, result->withdrawn);
        if (!voiding && job->operation.spread.phase == SPREAD_CHECKS) {
                if (result->cancelled)
                        spread_fail(job, -ECANCELED);
                else if (result->found != BACKEND_NOWHERE)
                        spread_reject(job, result->found);
        }
        if (owner->tasks > 0)
                return;
        if (voiding)
                spread_let_go(job);
        else
                spread_tasks_ended(job);
}

int spread_prepare(struct job *job, struct refusal *refusal) {
        struct operation *operation = &job->operation;
        int r = tasks_take(&job->table->tasks, &operation->owner, job->uid, job->id, spread_done);

        if (r < 0 || operation->spread.memory.id != 0 || machine_is_alone(job))
                return r;
        return shared_init(&operation->spread.memory, job, job->table->config.staging,
                           &(struct memory_request){ .bytes = 3 * spread_area(job) }, 0, NULL, refusal);
}

#define SEALED (UINT64_C(1) << 32) /* beside the kind of call */

/* The nodes compare only the words that matter to the kind of call. The comparison also finds the node of the
 * root. */
bool spread_words(const struct job *job, struct comm_words *ret) {
        const struct operation_request *call = &job->operation.first;
        bool barrier = call->kind == WIRE__OPERATION_KIND__BARRIER, reduces = spread_reduces(call->kind);
        bool broadcast = call->kind == WIRE__OPERATION_KIND__BROADCAST;

        *ret = (struct comm_words){
                .word = { machine_operation(job), call->kind | (spread_is_sealed(job, call) ? SEALED : 0),
                          barrier ? 0 : call->bytes, barrier ? 0 : call->total,
                          reduces ? call->dtype : call->offset, reduces ? call->reduce : 0,
                          broadcast ? call->root
                          : reduces ? call->offset
                                    : 0 }
        };
        for (uint32_t local = 0; local < job->n_local && broadcast; local++)
                if (job->local[local]->rank == call->root)
                        ret->largest = machine_node_rank(job) + 1;
        return job->n_local > 0;
}

/* A node without members, too, takes part only in an operation that members may call: it hears from the
 * engines of others which one it is. */
static bool spread_may_be(const struct comm_words *words) {
        unsigned kind = (unsigned)words->word[1];
        bool parts = kind == WIRE__OPERATION_KIND__ALLGATHER || kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;

        if (kind == WIRE__OPERATION_KIND__OPERATION_NONE || kind > WIRE__OPERATION_KIND__ALLREDUCE)
                return false;
        if (parts && words->word[2] % ARENA_ALIGN != 0)
                return false;
        return !spread_reduces(kind) || reduce_valid((unsigned)words->word[5], (unsigned)words->word[4]);
}

/* Whether this node can carry out the call that a comparison has given. */
static bool spread_believes(const struct job *job, const struct comm_words *words) {
        struct comm_words own;

        if (words->largest > nodeset_count(job->machine.node.set))
                return false;
        if (spread_words(job, &own))
                return memcmp(own.word, words->word, sizeof(own.word)) == 0;
        return spread_may_be(words) && words->word[2] <= spread_room(job);
}

static void spread_take_words(struct spread *spread, const struct comm_words *words, bool same) {
        bool reduces = spread_reduces((unsigned)words->word[1]);

        spread->kind = (unsigned)words->word[1];
        spread->sealed = (words->word[1] & SEALED) != 0;
        spread->bytes = same ? words->word[2] : 0;
        spread->dtype = reduces ? (unsigned)words->word[4] : WIRE__DTYPE__U8;
        spread->reduce = reduces ? (unsigned)words->word[5] : WIRE__REDUCE__REDUCE_NONE;
        spread->root = words->largest > 0 ? (uint32_t)words->largest - 1 : 0;
}

/* So a seal is good for one part of one call alone. 0 or -EIO. */
static int spread_seal(struct job *job) {
        struct spread *spread = &job->operation.spread;
        const struct operation_request *call = &job->operation.first;
        bool broadcast = spread->kind == WIRE__OPERATION_KIND__BROADCAST;
        const struct {
                char use[16];
                uint64_t number, kind, bytes, total, offset, root;
        } about = { .use = "operation",
                    .number = machine_operation(job),
                    .kind = spread->kind,
                    .bytes = spread->bytes,
                    .total = call->total,
                    .offset = call->offset,
                    .root = broadcast ? call->root : 0 };

        spread->sealed &=
                spread->bytes > 0 && spread_can_be_sealed(spread->kind) && !sha256_is_none(&job->secret);
        if (!spread->sealed)
                return 0;
        spread->seal = (struct backend_seal){ .part = spread->bytes };
        return sha256_hmac(&job->secret, sizeof(job->secret), &about, sizeof(about), &spread->seal.key);
}

/* ---- this node's inputs, and its members' outputs ---- */

struct combination {
        unsigned reduce;
        uint64_t bytes;
        struct backend_range input[LIMIT_LOCAL], output[LIMIT_LOCAL];
        unsigned n_inputs, n_outputs;
};

static struct backend_range spread_range(const struct job *job, uint64_t offset) {
        return shared_range(&job->operation.spread.memory, offset);
}

static struct backend_range spread_input(const struct job *job, uint32_t local) {
        const struct member *member = job->local[local];

        return (struct backend_range){ member->staging.arena->memory, member->operation.call.input };
}

static struct backend_range spread_output(const struct job *job, uint32_t local) {
        const struct member *member = job->local[local];

        return (struct backend_range){ member->staging.arena->memory, member->operation.call.output };
}

static int spread_submit(struct job *job, uint32_t index, const struct combination *c) {
        unsigned dtype = job->operation.spread.dtype;
        struct backend_task task = { .dtype = dtype,
                                     .reduce = c->reduce,
                                     .divisor = job->world,
                                     .elements = c->bytes / dtype_size(dtype),
                                     .n_inputs = c->n_inputs,
                                     .n_outputs = c->n_outputs,
                                     .inputs = c->input,
                                     .outputs = c->output };
        struct backend_result result;
        int r = tasks_submit(&job->operation.owner, index, job->table->config.staging, &task, &result);

        return r < 0 ? r : 0;
}

/* On one node: of a gather the input of one member, of a reduce-scatter its output; of anything else all. */
static int spread_combine_part(struct job *job, uint32_t part) {
        const struct spread *spread = &job->operation.spread;
        bool scatter = spread->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;
        bool gather = spread->kind == WIRE__OPERATION_KIND__ALLGATHER;
        bool broadcast = spread->kind == WIRE__OPERATION_KIND__BROADCAST;
        struct combination c = { .reduce = spread->reduce, .bytes = spread->bytes };
        uint64_t shift = job->local[part]->rank * spread->bytes;

        for (uint32_t local = 0; local < job->n_local; local++) {
                bool root = job->local[local]->rank == job->operation.first.root;

                if (broadcast ? root : !gather || local == part) {
                        c.input[c.n_inputs] = spread_input(job, local);
                        c.input[c.n_inputs++].offset += scatter ? shift : 0;
                }
                if (broadcast ? !root : !scatter || local == part) {
                        c.output[c.n_outputs] = spread_output(job, local);
                        c.output[c.n_outputs++].offset += gather ? shift : 0;
                }
        }
        return c.n_outputs > 0 ? spread_submit(job, part, &c) : 0;
}

static int spread_combine(struct job *job) {
        uint32_t parts = spread_has_slots(&job->operation.spread) ? job->n_local : 1;
        int r = 0;

        for (uint32_t part = 0; part < parts && r == 0; part++)
                r = spread_combine_part(job, part);
        return r;
}

static int spread_copy(struct job *job, uint32_t index, struct backend_range from, struct backend_range to,
                       uint64_t bytes) {
        struct combination c = { .reduce = WIRE__REDUCE__REDUCE_NONE,
                                 .bytes = bytes,
                                 .input = { from },
                                 .output = { to },
                                 .n_inputs = 1,
                                 .n_outputs = 1 };

        return spread_submit(job, index, &c);
}

static int spread_copy_part(struct job *job, uint32_t index, uint32_t local, struct backend_range to) {
        return spread_copy(job, index, spread_input(job, local), to, job->operation.spread.bytes);
}

static int spread_submit_seals(struct job *job, uint32_t index, struct backend_seal seal,
                               struct backend_task *task) {
        struct backend_result result;

        task->dtype = WIRE__DTYPE__U8;
        task->seal = &seal;
        int r = tasks_submit(&job->operation.owner, index, job->table->config.staging, task, &result);
        if (r == 1 && result.found != BACKEND_NOWHERE)
                spread_reject(job, result.found);
        return r < 0 ? r : 0;
}

/* Copies it, and puts its seals where those of all are. */
static int spread_seal_part(struct job *job, uint32_t index, uint32_t local, struct backend_range to) {
        const struct spread *spread = &job->operation.spread;
        bool gather = spread->kind == WIRE__OPERATION_KIND__ALLGATHER;
        uint64_t pieces = seal_pieces(spread->bytes);
        struct backend_seal seal = spread->seal;
        struct backend_range input = spread_input(job, local), outputs[2];

        seal.number = gather ? job->local[local]->rank * pieces : 0;
        outputs[0] = spread_range(job, spread_seals_at(job) + seal.number * SEAL_BYTES);
        outputs[1] = to;
        struct backend_task task = {
                .elements = pieces, .n_inputs = 1, .inputs = &input, .n_outputs = 2, .outputs = outputs
        };
        return spread_submit_seals(job, index, seal, &task);
}

static int spread_put_part(struct job *job, uint32_t index, uint32_t local, struct backend_range to) {
        return job->operation.spread.sealed ? spread_seal_part(job, index, local, to)
                                            : spread_copy_part(job, index, local, to);
}

static int spread_put_zeros(struct job *job, uint32_t index, uint64_t from, uint64_t to) {
        if (from == to)
                return 0;
        return spread_copy(job, index, spread_range(job, 2 * spread_area(job)), spread_range(job, from),
                           to - from);
}

/* Clears the slots of other nodes' ranks: from `start` on each rank has a slot of `bytes` bytes. */
static int spread_clear_others(struct job *job, uint32_t *index, uint64_t start, uint64_t bytes) {
        uint64_t at = start;
        int r = 0;

        for (uint32_t local = 0; local < job->n_local && r == 0; local++) {
                uint64_t slot = start + job->local[local]->rank * bytes;

                r = spread_put_zeros(job, (*index)++, at, slot);
                at = slot + bytes;
        }
        return r == 0 ? spread_put_zeros(job, (*index)++, at, start + job->world * bytes) : r;
}

static int spread_gather_parts(struct job *job) {
        const struct spread *spread = &job->operation.spread;
        uint32_t index = 0;
        int r = spread_clear_others(job, &index, 0, spread->bytes);

        if (r == 0 && spread->sealed)
                r = spread_clear_others(job, &index, spread_seals_at(job),
                                        seal_pieces(spread->bytes) * SEAL_BYTES);
        for (uint32_t local = 0; local < job->n_local && r == 0; local++)
                r = spread_put_part(job, index++, local,
                                    spread_range(job, job->local[local]->rank * spread->bytes));
        return r;
}

static int spread_gather_root(struct job *job) {
        uint32_t local = 0;

        while (local < job->n_local && job->local[local]->rank != job->operation.first.root)
                local++;
        return local == job->n_local ? 0 : spread_put_part(job, 0, local, spread_range(job, 0));
}

static int spread_gather(struct job *job) {
        const struct spread *spread = &job->operation.spread;
        struct combination c = { .reduce = spread->reduce,
                                 .bytes = spread_whole(job),
                                 .n_inputs = job->n_local,
                                 .output = { spread_range(job, 0) },
                                 .n_outputs = 1 };

        switch (spread->kind) {
        case WIRE__OPERATION_KIND__ALLGATHER: return spread_gather_parts(job);
        case WIRE__OPERATION_KIND__BROADCAST: return spread_gather_root(job);
        case WIRE__OPERATION_KIND__BARRIER: return 0;
        default:
                for (uint32_t local = 0; local < job->n_local; local++)
                        c.input[local] = spread_input(job, local);
                return spread_submit(job, 0, &c);
        }
}

/* A root that is alone here hands out nothing. */
static int spread_check(struct job *job) {
        struct backend_range inputs[] = { spread_range(job, 0), spread_range(job, spread_seals_at(job)) };
        struct backend_task task = { .elements = spread_pieces(job), .n_inputs = 2, .inputs = inputs };
        bool broadcast = job->operation.spread.kind == WIRE__OPERATION_KIND__BROADCAST;

        if (broadcast && job->n_local == 1 && job->local[0]->rank == job->operation.first.root)
                return 0;
        return spread_submit_seals(job, 0, job->operation.spread.seal, &task);
}

static int spread_hand_out(struct job *job) {
        const struct spread *spread = &job->operation.spread;
        struct combination c = { .reduce = WIRE__REDUCE__REDUCE_NONE,
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
                        c.output[c.n_outputs++] = spread_output(job, local);
        }
        return r == 0 && c.n_outputs > 0 ? spread_submit(job, 0, &c) : r;
}

/* Whether the memory that is about to be used is all there. A member that has given some back to the kernel
 * is evicted. */
static bool spread_intact(struct job *job) {
        bool all = true;

        for (uint32_t local = 0; local < job->n_local && spread_whole(job) > 0; local++)
                all &= memory_intact(job->local[local], job->local[local]->staging.arena->memory,
                                     spread_whole(job));
        return all;
}

/* The members are told, and the job goes on. */
static void spread_fail(struct job *job, int error) {
        job->operation.failed = true;
        refuse(&job->operation.refusal, WIRE__CODE__SYSTEM, "job '%s': gradsyncd could not start the %s: %s",
               job->name, operation_name(job->operation.first.kind), strerror(-error));
}

/* The tasks are counted from one, so that results which come at once do not end it early. */
static int spread_run(struct job *job, enum spread_phase phase, int (*submit)(struct job *job)) {
        struct operation *operation = &job->operation;
        int r = 0;

        operation->spread.phase = phase;
        operation->spread.broken = false;
        operation->owner.tasks++;
        if (spread_whole(job) > 0 && job->n_local > 0)
                r = submit(job);
        operation->spread.failed = r < 0;
        if (r < 0 && phase != SPREAD_GATHERS)
                spread_fail(job, r);
        if (--operation->owner.tasks == 0)
                spread_tasks_ended(job);
        return r;
}

void spread_here(struct job *job) {
        struct comm_words words;

        spread_words(job, &words);
        spread_take_words(&job->operation.spread, &words, true);
        if (!spread_intact(job))
                return;
        machine_full(job, TRACK_OPERATION);
        spread_run(job, SPREAD_HANDS_OUT, spread_combine);
}

/* A node without members. */
static void spread_give_nothing(struct job *job) {
        struct spread *spread = &job->operation.spread;
        struct memory_fill neutral = shared_neutral(0, spread->dtype, spread->reduce,
                                                    spread_payload(job) / dtype_size(spread->dtype));

        shared_fill(&spread->memory, &neutral);
}

int spread_compared(struct job *job, bool same, const struct comm_words *words) {
        struct spread *spread = &job->operation.spread;

        if (same && !spread_believes(job, words))
                return -EPROTO;
        spread_take_words(spread, words, same);
        if (spread_whole(job) > spread_room(job))
                return -EMSGSIZE;
        int r = spread_seal(job);
        if (r == 0 && spread_payload(job) > spread_area(job))
                r = -EMSGSIZE;
        if (r < 0)
                return r;
        if (!spread_intact(job))
                return 0; /* it ends with the member that is evicted */
        if (job->n_local == 0 && spread->bytes > 0)
                spread_give_nothing(job);
        return spread_run(job, SPREAD_GATHERS, spread_gather);
}

/* A filler uses scratch memory, which no member reads. */
struct engine_piece spread_piece(const struct job *job, bool filler) {
        const struct spread *spread = &job->operation.spread;
        uint64_t at = filler ? spread_area(job) : 0;

        if (spread->bytes == 0)
                return (struct engine_piece){ 0 };
        return (struct engine_piece){
                .memory = spread->memory.id,
                .input = at,
                .output = at,
                .elements = spread_payload(job) / dtype_size(spread->dtype),
                .dtype = spread->dtype,
                .reduce = spread->kind == WIRE__OPERATION_KIND__BROADCAST ? ENGINE_COPY
                                                                          : shared_reduce(spread->reduce),
                .root = spread->root,
        };
}

void spread_exchanged(struct job *job) {
        if (job->operation.spread.sealed)
                spread_run(job, SPREAD_CHECKS, spread_check);
        else
                spread_give(job);
}
