/* SPDX-License-Identifier: Apache-2.0 */
/* The open step of a plan. The hot path of the daemon: one call per READY, nothing allocated. */
#include "job/plan/step.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/position.h"
#include "proto/names.h"

/* Where buckets go between nodes; NULL: there is only this one. */
static struct exchange *step_exchange(const struct plan *plan) {
        return plan->exchange == NULL || machine_is_alone(plan->job) ? NULL : plan->exchange;
}

static uint64_t step_payloads(const struct plan *plan) {
        const struct exchange *exchange = step_exchange(plan);

        return exchange != NULL ? exchange->n_pieces : plan->reference->n_buckets;
}

/* False: the generation is over. */
static bool open_step(struct plan *plan, uint64_t now) {
        assert(plan_unit(plan) == UNIT_IDLE);
        plan->n_full = plan->n_done = 0;
        plan->spared = 0;
        plan->divisor = 0;
        if (plan->exchange != NULL)
                exchange_reset(plan->exchange);
        if (!machine_open(plan->job, plan->track, 1 + step_payloads(plan)))
                return false;
        plan->opened = now;
        plan->stalled.told = false;
        plan->gate = plan->job->table->gate == GATE_HELD ? GATE_HELD : GATE_OPEN;
        plan->sum_squares = 0;
        plan->nonfinite = 0;
        record_open(plan->job->record, &plan->trace,
                    &(struct record_step){
                            .number = plan->step + 1,
                            .opened = now,
                            .plan = plan->ordinal,
                            .generation = plan->job->generation,
                            .world = plan->job->world,
                            .n_local = plan->job->n_local,
                            .buckets = plan->reference->n_buckets,
                    });
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                record_name(plan->trace, local, plan->job->local[local]->rank);
        return true;
}

static void close_step(struct plan *plan) {
        for (uint32_t b = 0; b < plan->reference->n_buckets; b++)
                bucket_reset(&plan->bucket[b]);
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                plan->part[local].n_ready = 0;
}

static void step_resolve_stall(struct plan *plan) {
        char what[32];

        if (plan->stalled.number == 0)
                return;
        snprintf(what, sizeof(what), "step %" PRIu64, plan->step);
        stalled_end(&plan->stalled, plan->job, plan->step, what);
}

void step_committed(struct plan *plan) {
        struct job *job = plan->job;
        uint64_t now = clock_now();

        plan->step++;
        position_commit(plan);
        step_resolve_stall(plan);
        record_close(job->record, plan->trace, true, plan->opened, now);
        job->record->totals.nonfinite_steps += plan->nonfinite > 0;
        nonfinite_committed(plan);
        hist_add(&job->steps, now - plan->opened, now);
        job->last_step = plan->step > job->last_step ? plan->step : job->last_step;
        recovery_committed(&job->recovery, now);
        job->bytes_reduced += plan->reference->payload - plan->spared;
        job->norm = sqrt(plan->sum_squares);
        job->nonfinite = plan->nonfinite;
        for (uint32_t local = 0; local < job->n_local; local++)
                job->local[local]->last_step = job->last_step;
        close_step(plan);
        job_tell(job, (struct job_event){ .kind = JOB_EVENT_COMMITTED, .plan = plan });
}

/* The step can be tried again under the same number. */
static void forget_ready(struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                for (uint32_t b = 0; b < plan->reference->n_buckets && plan->part[local].ready != NULL; b++)
                        if (plan->part[local].ready[b] > plan->step)
                                plan->part[local].ready[b] = 0;
}

/* A member that has begun the step waits for the next generation; so does one that is told that it is void,
 * when it comes to it. */
static void step_note_waiting(struct plan *plan, bool told) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].n_ready > 0 || (told && plan->part[local].state == PART_MAPPED))
                        plan->job->local[local]->waits_in = plan->job->generation;
}

void step_unbegun(struct plan *plan) {
        step_note_waiting(plan, false);
        nonfinite_void(plan);
        record_close(plan->job->record, plan->trace, false, plan->opened, clock_now());
        close_step(plan);
        journal_void(plan->kept, plan->step + 1);
        forget_ready(plan);
        loop_defer(plan->job->table->config.loop, &plan->job->settle);
}

bool step_can_wait(const struct plan *plan) {
        for (uint32_t b = 0; b < plan->reference->n_buckets; b++)
                if (plan->bucket[b].state >= BUCKET_FANNING_OUT)
                        return false;
        return machine_may_resume(plan->job);
}

static void step_let_go(struct plan *plan) {
        if (!step_can_wait(plan))
                machine_say(plan->job, plan->track, node_tear_unit);
        machine_say(plan->job, plan->track, node_quiet);
}

void step_voided(struct plan *plan) {
        struct job *job = plan->job;

        job->void_steps++;
        recovery_void(&job->recovery);
        step_note_waiting(plan, true);
        step_unbegun(plan);
        job_tell(job, (struct job_event){ .kind = JOB_EVENT_VOID, .plan = plan });
}

/* Bits of the parameters that no member used, or NULL if there are none: on this node, or, once it is known,
 * on all nodes. */
static const uint8_t *unused_of(const struct bucket *bucket, size_t bytes) {
        if (bucket->used || bucket->n_ready == 0)
                return NULL;
        for (size_t i = 0; i < bytes; i++)
                if (bucket->absent[i] != 0)
                        return bucket->absent;
        return NULL;
}

/* No member that is known of has used any parameter of it. On one node nothing has to move then: members that
 * are absent have put zeros there, see PROTOCOL.md, and that is the result. */
static bool step_is_spared(const struct plan *plan, uint32_t index) {
        const struct bucket *bucket = &plan->bucket[index];
        bool spared = !bucket->used && bucket->n_ready > 0;

        for (uint32_t i = 0; spared && i < plan->reference->bucket[index].n; i++)
                spared = (bucket->absent[i / 8] >> i % 8 & 1) != 0;
        return spared;
}

static void bucket_done(struct plan *plan, uint32_t index, const struct backend_result *result) {
        struct bucket *bucket = &plan->bucket[index];
        size_t bytes = (plan->reference->bucket[index].n + 7) / 8;
        uint64_t now = clock_now();

        result = nonfinite_look(plan, index, result);
        if (result == NULL)
                return;
        record_end(plan->job->record, plan->trace, index, now, bucket->begun, result);
        bucket_set_state(bucket, BUCKET_DONE, now);
        if (machine_may_prepare(plan->job, plan->track))
                journal_done(plan->kept, index, plan->reference->bucket[index].first, result,
                             unused_of(bucket, bytes), bytes);
        plan->sum_squares += result->sum_squares;
        plan->spared += step_is_spared(plan, index) ? plan->reference->bucket[index].payload : 0;
        plan->nonfinite += nonfinite_count(plan, index, result).values;
        job_tell(plan->job,
                 (struct job_event){ .kind = JOB_EVENT_RESULT,
                                     .plan = plan,
                                     .result = { index, result, unused_of(bucket, bytes), bytes } });
        if (++plan->n_done == plan->reference->n_buckets)
                machine_say(plan->job, plan->track, node_landed);
}

/* A member that gave memory back to the kernel during the reduction is evicted now. Small buckets are looked
 * at together with the next ones. */
static void look_again(struct plan *plan, uint32_t index, uint64_t bytes) {
        for (uint32_t local = 0; bytes >= MEMORY_UNCHECKED && local < plan->job->n_local; local++)
                memory_intact(plan->job->local[local], plan_range(plan, local, index).memory, bytes);
}

/* The step cannot be committed, though all members here were ready in some bucket. Several pieces may say it
 * of one bucket. */
static void step_not_full(struct plan *plan) {
        plan->n_full -= plan->n_full > 0;
}

/* A bucket has no result, or not all members have it, because of the one whose memory this is: the step is
 * void with its loss, or now, if it is lost already. */
static void step_break(struct plan *plan, uint32_t bucket, const struct backend_memory *withdrawn) {
        step_not_full(plan);
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan_range(plan, local, bucket).memory == withdrawn) {
                        memory_withdrawn(plan->job->local[local]);
                        break;
                }
        machine_say(plan->job, plan->track, node_spoil);
}

/* Whether the memory that is about to be used is all there. A member that has given some back to the kernel
 * is evicted. */
static bool step_intact(struct plan *plan, const struct backend_range *range, uint64_t bytes) {
        bool all = true;

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                all &= memory_intact(plan->job->local[local], range[local].memory, bytes);
        return all;
}

/* The backend refuses a task: the step cannot be committed, so a member is evicted. */
static void step_give_up(struct plan *plan, uint32_t index, int error) {
        struct member *member = plan->job->local[0];
        struct refusal refusal;

        refuse(&refusal, WIRE__CODE__SYSTEM, "job '%s', step %llu: gradsyncd could not start bucket %u: %s",
               plan->job->name, (unsigned long long)plan->step + 1, index, strerror(-error));
        member_expel(member, &refusal);
}

/* ---- one node: the reduction is all ---- */

static void step_drop(struct plan *plan, uint32_t index) {
        static const double no_squares[LIMIT_LOCAL];
        static const uint64_t no_counts[LIMIT_LOCAL];

        bucket_done(plan, index,
                    &(struct backend_result){ .n_inputs = plan->job->n_local,
                                              .found = BACKEND_NOWHERE,
                                              .input_sum_squares = no_squares,
                                              .input_nonfinite = no_counts });
}

/* All members here are ready: hands the bucket to the backend, in rank order. 1 if that cannot be, because a
 * member is evicted that keeps the step from being committed. */
static int bucket_launch(struct plan *plan, uint32_t index, uint64_t now) {
        const struct description_bucket *place = &plan->reference->bucket[index];
        struct backend_range range[LIMIT_LOCAL];
        struct backend_task task = { .dtype = place->dtype,
                                     .reduce = plan->reference->reduce,
                                     .divisor = plan->divisor,
                                     .elements = place->bytes / dtype_size(place->dtype),
                                     .n_inputs = plan->job->n_local,
                                     .n_outputs = plan->job->n_local,
                                     .inputs = range,
                                     .outputs = range,
                                     .statistics = true,
                                     .room = plan->bucket[index].room };
        struct backend_result result;
        int r = 0;

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                range[local] = plan_range(plan, local, index);
        if (!step_intact(plan, range, place->bytes))
                return 1;
        record_start(plan->job->record, plan->trace, index, now);
        bucket_set_state(&plan->bucket[index], BUCKET_REDUCING, now);
        journal_begin(plan->kept, plan->step + 1, plan->job->n_local, index);
        if (step_is_spared(plan, index))
                step_drop(plan, index);
        else
                r = tasks_submit(&plan->owner, index, plan->job->table->config.backend, &task, &result);
        if (r > 0)
                bucket_done(plan, index, &result);
        return r < 0 ? r : 0;
}

/* Launches the buckets that were held back. *ret: the bucket at which it ended. */
static int buckets_launch(struct plan *plan, uint32_t *ret) {
        int r = 0;

        for (*ret = 0; r == 0 && plan_is_open(plan) && *ret < plan->reference->n_buckets; ++*ret)
                if (plan->bucket[*ret].state == BUCKET_WAITING &&
                    plan->bucket[*ret].n_ready == plan->job->n_local)
                        r = bucket_launch(plan, *ret, clock_now());
        *ret -= r != 0;
        return r;
}

/* ---- several nodes: pieces go through slots, see exchange.h ---- */

static uint64_t piece_bytes(const struct plan *plan, const struct bucket_piece *piece) {
        return piece->elements * dtype_size(plan->reference->bucket[piece->bucket].dtype);
}

/* Where the members here have it. Whether all of that is there, as step_intact() says. */
static bool piece_ranges(struct plan *plan, const struct bucket_piece *piece, struct backend_range *ret) {
        for (uint32_t local = 0; local < plan->job->n_local; local++) {
                ret[local] = plan_range(plan, local, piece->bucket);
                ret[local].offset += piece->offset;
        }
        return step_intact(plan, ret, piece_bytes(plan, piece));
}

/* Submits the task, after it has set the fields that all tasks of the piece have alike. Returns as submit()
 * does. */
static int piece_submit(struct plan *plan, const struct bucket_piece *piece, struct backend_task *task,
                        struct backend_result *ret) {
        task->dtype = plan->reference->bucket[piece->bucket].dtype;
        task->elements = piece->elements;
        task->statistics = true;
        task->uncached = true; /* they are two sides of one copy between arenas and slots */
        task->room = exchange_slot(plan->exchange, piece->number)->room;
        return tasks_submit(&plan->owner, plan->reference->n_buckets + piece->number,
                            plan->job->table->config.backend, task, ret);
}

/* Pieces are offered in their order, once it is known that all nodes have the same plan. A node without
 * members has nothing to wait for. */
static void step_offer(struct plan *plan) {
        struct exchange *exchange = plan->exchange;

        while (exchange->compared && exchange->offered < exchange->n_pieces &&
               (plan->job->n_local == 0 ||
                (exchange->offered < exchange->started &&
                 exchange_slot(exchange, exchange->offered)->state == SLOT_GIVEN))) {
                struct bucket_piece piece = exchange_piece(exchange, plan->reference, exchange->offered);
                struct bucket *bucket = &plan->bucket[piece.bucket];

                exchange_give(exchange, plan->job, plan->reference, bucket->used ? NULL : bucket->absent);
                machine_offer(plan->job, plan->track);
        }
}

static void piece_reduced(struct plan *plan, const struct bucket_piece *piece,
                          const struct backend_result *result) {
        exchange_keep(plan->exchange, piece->number, result);
        if (piece->offset == 0)
                bucket_set_state(&plan->bucket[piece->bucket], BUCKET_EXCHANGING, clock_now());
        step_offer(plan);
}

/* As bucket_launch(). */
static int piece_launch(struct plan *plan, const struct bucket_piece *piece) {
        struct backend_range range[LIMIT_LOCAL], slot = exchange_range(plan->exchange, piece->number);
        struct backend_task task = { .reduce = plan->reference->reduce,
                                     .divisor = plan->divisor,
                                     .n_inputs = plan->job->n_local,
                                     .n_outputs = 1,
                                     .inputs = range,
                                     .outputs = &slot };
        struct backend_result result;
        uint64_t now = clock_now();

        if (!piece_ranges(plan, piece, range))
                return 1;
        exchange_start(plan->exchange);
        if (piece->offset == 0) {
                record_start(plan->job->record, plan->trace, piece->bucket, now);
                bucket_set_state(&plan->bucket[piece->bucket], BUCKET_REDUCING, now);
        }
        int r = piece_submit(plan, piece, &task, &result);
        if (r > 0)
                piece_reduced(plan, piece, &result);
        return r < 0 ? r : 0;
}

/* As many pieces as there are slots for, of buckets in which all members here are ready. *ret: the bucket at
 * which it ended. */
static int pieces_launch(struct plan *plan, uint32_t *ret) {
        struct exchange *exchange = plan->exchange;
        int r = 0;

        while (r == 0 && plan_is_open(plan) && exchange_may_start(exchange)) {
                struct bucket_piece piece = exchange_piece(exchange, plan->reference, exchange->started);

                *ret = piece.bucket;
                if (plan->bucket[piece.bucket].n_ready < plan->job->n_local)
                        break;
                r = piece_launch(plan, &piece);
        }
        return r;
}

/* Pieces that all members here have, in their order. The last one of a bucket keeps its slot, which has the
 * measures, until that bucket is done: a search may go on for a while. */
static void step_settle(struct plan *plan) {
        struct exchange *exchange = plan->exchange;

        while (plan_is_open(plan) && exchange->free < exchange->n_pieces &&
               exchange_slot(exchange, exchange->free)->state == SLOT_WRITTEN) {
                struct bucket_piece piece = exchange_piece(exchange, plan->reference, exchange->free);
                struct bucket *bucket = &plan->bucket[piece.bucket];
                struct backend_result whole;

                if (exchange_take(exchange, plan->job, plan->reference, bucket->used ? NULL : bucket->absent,
                                  &whole))
                        bucket_done(plan, piece.bucket, &whole);
                if (piece.last && bucket->state != BUCKET_DONE)
                        return;
                exchange_let_go(exchange);
        }
        if (plan_is_open(plan) && plan->job->n_local > 0)
                step_release(plan); /* there are free slots */
}

static void piece_written(struct plan *plan, const struct bucket_piece *piece,
                          const struct backend_result *result) {
        struct exchange_slot *slot = exchange_slot(plan->exchange, piece->number);

        slot->written = result->sum_squares;
        slot_set_state(slot, SLOT_WRITTEN);
        step_settle(plan);
}

void step_exchanged(struct plan *plan, uint32_t number) {
        struct bucket_piece piece = exchange_piece(plan->exchange, plan->reference, number);
        struct backend_range range[LIMIT_LOCAL], slot = exchange_range(plan->exchange, number);
        struct backend_task task = { .reduce = WIRE__REDUCE__REDUCE_NONE,
                                     .n_inputs = 1,
                                     .n_outputs = plan->job->n_local,
                                     .inputs = &slot,
                                     .outputs = range };
        struct backend_result result = { 0 };
        int r = 1;

        piece_ranges(plan, &piece, range);
        bucket_touch(&plan->bucket[piece.bucket], clock_now());
        if (piece.offset == 0) {
                bucket_set_state(&plan->bucket[piece.bucket], BUCKET_FANNING_OUT, clock_now());
                journal_begin(plan->kept, plan->step + 1, plan->job->n_local, piece.bucket);
        }
        slot_set_state(exchange_slot(plan->exchange, number), SLOT_FANNING_OUT);
        if (plan->job->n_local > 0)
                r = piece_submit(plan, &piece, &task, &result);
        if (r < 0)
                step_give_up(plan, piece.bucket, r);
        else if (r > 0)
                piece_written(plan, &piece, &result);
}

/* A part of the search in a bucket has ended. */
static void step_searched(struct plan *plan, uint32_t index, const struct backend_result *result) {
        bucket_done(plan, index, result);
        if (!plan_is_open(plan) || plan->bucket[index].state != BUCKET_DONE)
                return;
        exchange_let_go(plan->exchange);
        step_settle(plan);
}

static void piece_done(struct plan *plan, uint32_t number, const struct backend_result *result) {
        struct bucket_piece piece = exchange_piece(plan->exchange, plan->reference, number);

        look_again(plan, piece.bucket, piece_bytes(plan, &piece));
        if (exchange_slot(plan->exchange, number)->state == SLOT_FANNING_OUT)
                piece_written(plan, &piece, result);
        else
                piece_reduced(plan, &piece, result);
}

/* ---- both ---- */

void step_done(struct task_owner *owner, uint32_t index, const struct backend_result *result) {
        struct plan *plan = container_of(owner, struct plan, owner);
        uint32_t n = plan->reference->n_buckets;

        if (plan_unit(plan) == UNIT_VOIDING) {
                if (plan->owner.tasks == 0)
                        step_let_go(plan);
                return;
        }
        if (result->withdrawn != NULL) {
                step_break(plan,
                           index < n ? index
                                     : exchange_piece(plan->exchange, plan->reference, index - n).bucket,
                           result->withdrawn);
                return;
        }
        if (index >= n) {
                piece_done(plan, index - n, result);
                return;
        }
        look_again(plan, index, plan->reference->bucket[index].bytes);
        if (step_exchange(plan) != NULL)
                step_searched(plan, index, result);
        else
                bucket_done(plan, index, result);
}

/* Hands the backend all that can go to it now. Returns as bucket_launch() does; *ret: the bucket at which it
 * ended. */
static int step_launch(struct plan *plan, uint32_t *ret) {
        return step_exchange(plan) != NULL ? pieces_launch(plan, ret) : buckets_launch(plan, ret);
}

/* Keeps, per bucket, which parameters have been absent on all members so far. */
static int note_absent(struct plan *plan, const struct ready *ready, struct refusal *refusal) {
        struct bucket *bucket = &plan->bucket[ready->bucket];
        uint32_t n = plan->reference->bucket[ready->bucket].n;
        size_t bytes = (n + 7) / 8;

        if (ready->absent_bytes != bytes || (n % 8 != 0 && ready->absent[bytes - 1] >> n % 8 != 0))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "bucket %u has %u parameters, but its map of absent ones has %zu bytes or bits "
                              "beyond them",
                              ready->bucket, n, ready->absent_bytes);
        if (plan->reference->reduce != WIRE__REDUCE__AVG && plan->reference->reduce != WIRE__REDUCE__SUM)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "plan %u computes the %s, to which an absent parameter contributes nothing "
                              "that is defined",
                              plan->ordinal, reduce_name(plan->reference->reduce));
        if (bucket->n_ready == 0)
                memset(bucket->absent, 0xff, bytes);
        for (size_t i = 0; i < bytes; i++)
                bucket->absent[i] &= ready->absent[i];
        return 0;
}

static int note_divisor(struct plan *plan, const struct member *member, const struct ready *ready,
                        struct refusal *refusal) {
        uint32_t divisor = ready->divisor > 0 ? ready->divisor : plan->job->world;

        if (plan->divisor == 0)
                plan->divisor = divisor;
        if (plan->divisor != divisor)
                return refuse_for(refusal, WIRE__CODE__OPERATION_MISMATCH, member->rank, (int32_t)member->pid,
                                  "job '%s', step %llu: rank %u (pid %d) divides by %u, the others by %u; "
                                  "set the same divisor on all members",
                                  plan->job->name, (unsigned long long)plan->step + 1, member->rank,
                                  (int)member->pid, divisor, plan->divisor);
        return 0;
}

/* The nodes compare their plans and divisors while members here still compute. */
static void step_compare(struct plan *plan) {
        struct exchange *exchange = step_exchange(plan);

        if (exchange == NULL || exchange->asked || plan_unit(plan) != UNIT_OPEN ||
            !exchange_has_staging(exchange) || (plan->divisor == 0 && plan->job->n_local > 0))
                return;
        exchange->asked = true;
        machine_offer(plan->job, plan->track);
}

/* Checks a READY, apart from its contents. */
static int step_check_place(const struct plan *plan, const struct member *member, const struct ready *ready,
                            struct refusal *refusal) {
        const char *job = member->job->name;

        if (plan == NULL || plan->part[member->local].state != PART_MAPPED || !plan->agreed)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s', rank %u: READY for plan %u, which is not agreed", job, member->rank,
                              ready->plan);
        if (plan->dropped)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s', rank %u: READY for plan %u, which another member has freed", job,
                              member->rank, ready->plan);
        if (shared_check(plan->job, refusal) != 0)
                return (int)refusal->code;
        if (ready->generation != member->job->generation)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s', rank %u: READY for generation %u while the job is in %u", job,
                              member->rank, ready->generation, member->job->generation);
        if (ready->bucket >= plan->reference->n_buckets)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s', rank %u: READY for bucket %u of %u",
                              job, member->rank, ready->bucket, plan->reference->n_buckets);
        if (ready->step != plan->step + 1)
                return refuse(
                        refusal, WIRE__CODE__STATE,
                        "job '%s', rank %u: READY for bucket %u of step %llu while step %llu is the next",
                        job, member->rank, ready->bucket, (unsigned long long)ready->step,
                        (unsigned long long)plan->step + 1);
        if (plan->part[member->local].ready[ready->bucket] == ready->step)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s', rank %u: second READY for bucket %u in step %llu; it is gradsyncd's "
                              "until DONE",
                              job, member->rank, ready->bucket, (unsigned long long)ready->step);
        return 0;
}

int step_ready(struct member *member, const struct ready *ready, struct refusal *refusal) {
        struct job *job = member->job;

        if (ready->generation < job->generation || job->state != JOB_RUNNING) {
                member->waits_in = ready->generation;
                return 0; /* absorbed: its step is void, or will be */
        }
        struct plan *plan = plan_find(job, ready->plan);
        int r = step_check_place(plan, member, ready, refusal);
        if (r != 0)
                return r;
        r = plan_prepare_exchange(plan, step_staged,
                                  refusal); /* QUOTA: no member of that user can go on here */
        if (r != 0)
                return r;
        uint64_t now = clock_now();
        uint32_t index = 0;
        if (plan_unit(plan) == UNIT_IDLE && (job->table->gate == GATE_STOPPING || !open_step(plan, now)))
                return 0;
        struct plan_part *part = &plan->part[member->local];
        struct bucket *bucket = &plan->bucket[ready->bucket];
        r = note_divisor(plan, member, ready, refusal);
        if (r == 0 && ready->has_absent)
                r = note_absent(plan, ready, refusal);
        if (r != 0)
                return r;
        if (!ready->has_absent)
                bucket->used = true;
        part->ready[ready->bucket] = ready->step;
        part->n_ready++;
        if (bucket->n_ready++ == 0)
                bucket->since = now;
        record_ready(plan->trace, ready->bucket, member->local, now);
        step_compare(plan);
        if (bucket->n_ready < job->n_local)
                return 0;
        plan->n_full++;
        if (step_gate(plan) == GATE_OPEN)
                r = step_exchange(plan) != NULL ? pieces_launch(plan, &index)
                                                : bucket_launch(plan, ready->bucket, now);
        if (r != 0)
                step_not_full(plan); /* so that the loss of this member, or the evicted one, voids the step */
        else if (plan->n_full == plan->reference->n_buckets)
                machine_full(job, plan->track);
        return r < 0 ? r : 0;
}

enum gate step_gate(const struct plan *plan) {
        if (plan->gate != GATE_OPEN)
                return plan->gate;
        if (plan->job->paused_at != 0)
                return GATE_PAUSED;
        return plan_unit(plan) == UNIT_WANTED ? GATE_GENERATION : GATE_OPEN;
}

bool step_begun(const struct plan *plan) {
        for (uint32_t b = 0; plan_is_open(plan) && b < plan->reference->n_buckets; b++)
                if (plan->bucket[b].state != BUCKET_WAITING)
                        return true;
        return plan_unit(plan) == UNIT_VOIDING;
}

/* A result that comes at once may end the step, and with it this walk. */
void step_release(struct plan *plan) {
        uint32_t index = 0;
        int r = step_launch(plan, &index);

        if (r < 0)
                step_give_up(plan, index, r);
        if (r == 0)
                return;
        step_not_full(plan);
        machine_say(plan->job, plan->track, node_spoil);
}

/* A node without members takes part in the exchange, but has nothing to reduce. */
static void step_give_nothing(struct plan *plan) {
        uint64_t now = clock_now();

        plan->exchange->started = plan->exchange->n_pieces;
        for (uint32_t b = 0; b < plan->reference->n_buckets; b++) {
                bucket_set_state(&plan->bucket[b], BUCKET_REDUCING, now);
                bucket_set_state(&plan->bucket[b], BUCKET_EXCHANGING, now);
        }
}

void step_opened(struct plan *plan) {
        step_compare(plan);
        if (plan->job->n_local == 0)
                step_give_nothing(plan);
        else if (plan->n_full > 0 && step_gate(plan) == GATE_OPEN) /* it was wanted for a while */
                step_release(plan);
}

/* The members are evicted, with the same words. */
static void step_unstaged(struct plan *plan, const struct refusal *why) {
        struct job *job = plan->job;
        struct refusal refusal;

        refuse(&refusal, why->code, "plan %u of job '%s': what goes to other nodes has no place: %s",
               plan->ordinal, job->name, why->text);
        for (uint32_t local = 0; local < job->n_local; local++)
                member_expel(job->local[local], &refusal);
}

/* Its staging is there. */
static void step_go_on(struct plan *plan) {
        if (plan_unit(plan) != UNIT_OPEN)
                return;
        step_compare(plan);
        if (step_gate(plan) == GATE_OPEN && plan->job->n_local > 0)
                step_release(plan);
}

void step_staged(struct job *job, const struct holder *holder, const struct refusal *refusal) {
        struct plan *plan = plan_find(job, holder->number);
        struct refusal why;

        if (plan == NULL || plan->exchange == NULL || plan->exchange->staging.id != 0)
                return;
        int r = refusal == NULL ? shared_take(&plan->exchange->staging, job) : 0;
        if (r < 0) {
                refuse(&why, WIRE__CODE__SYSTEM, "the engine does not take the staging: %s", strerror(-r));
                refusal = &why;
        }
        if (refusal != NULL && job->n_local > 0)
                step_unstaged(plan, refusal);
        else if (refusal == NULL && exchange_has_staging(plan->exchange))
                step_go_on(plan);
}

void step_shared(struct plan *plan, uint64_t id) {
        if (plan->exchange == NULL || plan->exchange->staging.id != id)
                return;
        shared_use(&plan->exchange->staging);
        step_go_on(plan);
}

void step_cancel(struct plan *plan) {
        const struct exchange *exchange = step_exchange(plan);

        if (plan->gate == GATE_LEFT)
                return; /* it is the next daemon's as it is */
        if (plan->owner.tasks == 0) {
                step_let_go(plan);
                return;
        }
        for (uint32_t b = 0; b < plan->reference->n_buckets; b++)
                if (plan->bucket[b].state == BUCKET_REDUCING || plan->bucket[b].state == BUCKET_FANNING_OUT)
                        tasks_cancel(&plan->owner, b, plan->job->table->config.backend);
        for (uint32_t p = exchange != NULL ? exchange->free : 0; exchange != NULL && p < exchange->started;
             p++)
                tasks_cancel(&plan->owner, plan->reference->n_buckets + p, plan->job->table->config.backend);
}

void step_follow(struct plan *plan) {
        if (plan->job->n_local > 0 || !plan->agreed || plan->exchange == NULL ||
            exchange_has_failed(plan->exchange) || machine_is_alone(plan->job) ||
            plan_unit(plan) != UNIT_IDLE)
                return;
        open_step(plan, clock_now());
}

/* Words that nodes compare before a step. The digest is that of the plan. The shape differs between daemons
 * of releases that put something else around the buckets, or cut them otherwise. */
enum { WORD_DIGEST, WORD_DIVISOR, WORD_ORDINAL, WORD_TRACK, WORD_SHAPE };

bool step_words(const struct plan *plan, struct comm_words *ret) {
        *ret = (struct comm_words){ .word = {
                                            [WORD_DIGEST] = plan->exchange->digest,
                                            [WORD_DIVISOR] = plan->divisor,
                                            [WORD_ORDINAL] = plan->ordinal,
                                            [WORD_TRACK] = plan->track,
                                            [WORD_SHAPE] = exchange_shape(plan->exchange, plan->reference,
                                                                          plan->job->world),
                                    } };
        return plan->job->n_local > 0;
}

static bool step_differs_in(const struct comm_words *heard, unsigned word) {
        return heard->word[word] != heard->most[word];
}

/* It is not known which node is wrong: each of them evicts a member, with a text that says why. */
static void step_differs(struct plan *plan, const struct comm_words *heard) {
        const struct member *first = plan->job->local[0];
        unsigned long long step = plan->step + 1, other = heard->word[WORD_DIVISOR];
        const char *job = plan->job->name;
        struct refusal refusal;

        if (other == plan->divisor)
                other = heard->most[WORD_DIVISOR];
        if (step_differs_in(heard, WORD_DIGEST) || step_differs_in(heard, WORD_ORDINAL) ||
            step_differs_in(heard, WORD_TRACK))
                refuse(&refusal, WIRE__CODE__PLAN_MISMATCH,
                       "job '%s', step %llu: plan %u is not the same on all nodes", job, step, plan->ordinal);
        else if (step_differs_in(heard, WORD_DIVISOR))
                refuse_for(&refusal, WIRE__CODE__OPERATION_MISMATCH, first->rank, (int32_t)first->pid,
                           "job '%s', step %llu: rank %u (pid %d) divides by %u, members of another node by "
                           "%llu; set the same divisor on all members",
                           job, step, first->rank, (int)first->pid, plan->divisor, other);
        else
                refuse(&refusal, WIRE__CODE__PLAN_MISMATCH,
                       "job '%s', step %llu: the buckets of plan %u go to other nodes in another shape than "
                       "theirs come: install the same release of gradsyncd on all nodes",
                       job, step, plan->ordinal);
        member_expel(plan->job->local[0], &refusal);
}

void step_compared(struct plan *plan, bool same, const struct comm_words *heard) {
        if (!same) {
                if (plan->job->n_local > 0)
                        step_differs(plan, heard);
                return;
        }
        plan->exchange->compared = true;
        step_offer(plan);
}

struct engine_piece step_piece(const struct plan *plan, uint32_t number, bool filler) {
        return exchange_payload(plan->exchange, plan->reference, number, plan->job->world,
                                filler || plan->job->n_local == 0);
}
