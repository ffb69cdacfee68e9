/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations outside steps. The caller's data passes through the staging memory that this member shares with
 * the daemon, in chunks that fit there. A job has one call at a time; an interrupted call goes on when it is
 * made again with the same arguments.
 */
#include "client/lib/collective/collective.h"

#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/job/job.h"
#include "client/lib/plan/plan.h"
#include "proto/cleanup.h"
#include "proto/names.h"

#define NEWEST UINT32_MAX
/* The generation that the caller knows of. */
#define CALLERS 0u

/* A call with the arguments of its caller. */
struct call {
        unsigned kind, dtype, reduce;
        uint32_t root;
        bool sealed;
        const void *in;
        void *out;
        /* Size of one member's part. */
        uint64_t bytes;
        /* The call is void in any other generation. Or one of the constants above. */
        uint32_t generation;
};

static bool collective_scatters(unsigned kind) {
        return kind == WIRE__OPERATION_KIND__ALLGATHER || kind == WIRE__OPERATION_KIND__REDUCE_SCATTER;
}

/* Returns the bytes of one member's part that one operation can carry. Where each member has a part of its
 * own, the memory holds the parts of all members, and this member's part besides. */
static uint64_t collective_chunk_max(const struct gradsync_job *job, unsigned kind) {
        uint64_t parts = collective_scatters(kind) ? job->collective->world + 1 : 1;

        return job->collective->staging.bytes / parts / ARENA_ALIGN * ARENA_ALIGN;
}

static int collective_take_staging(struct request *request, const ProtobufCMessage *message,
                                   struct fdpass_packet *packet) {
        const Wire__StagingArena *arena = (const Wire__StagingArena *)message;
        struct gradsync_job *job = OWNER(request, struct collective, request)->job;

        if (packet->n_fds != 1 || arena->bytes < ARENA_PAGE || arena->bytes > LIMIT_ARENA)
                return fail(GRADSYNC_PROTOCOL,
                            "job '%s': gradsyncd sent a staging memory of %llu bytes and %u fds", job->name,
                            (unsigned long long)arena->bytes, packet->n_fds);
        job->collective->staging.bytes = arena->bytes;
        job->collective->staging_fd = packet->fds[0];
        packet->n_fds = 0;
        return GRADSYNC_OK;
}

/* gradsyncd gives the memory once: a call that could not map it leaves it for the next one. */
static int collective_map_staging(struct gradsync_job *job) {
        if (job->collective->staging.base != NULL)
                return GRADSYNC_OK;
        int r = shared_map(&job->collective->staging, job->collective->staging_fd,
                           job->collective->staging.bytes, "the staging memory", job->name);
        if (r == GRADSYNC_PROTOCOL)
                link_fail(&job->gs->link, r);
        /* No other daemon will ask for it. */
        if (r == GRADSYNC_OK && job->gs->link.timer < 0)
                job->collective->staging_fd = fd_close(job->collective->staging_fd);
        return r;
}

/* The first collective of a job that carries data gets the memory for all. */
static int collective_ask_staging(struct gradsync_job *job) {
        Wire__Staging staging = WIRE__STAGING__INIT;

        SET(staging, job, job->handle);
        return request_call(job->gs, &job->collective->request, WIRE__MESSAGE_TYPE__STAGING, &staging.base,
                            -1, WIRE__MESSAGE_TYPE__STAGING_ARENA, collective_take_staging, NEVER);
}

static int collective_touch_staging(struct gradsync_job *job) {
        int r = collective_map_staging(job);

        if (r != GRADSYNC_OK)
                return r;
        /* A process that cannot use the GPU has no data there. */
        if (device_is_cuda(job->gs->device_name))
                context_open_device(job->gs);
        pthread_mutex_unlock(&job->gs->link.lock);
        r = shared_populate(&job->collective->staging, "the staging memory", job->name);
        pthread_mutex_lock(&job->gs->link.lock);
        return r;
}

static int collective_say_mapped(struct gradsync_job *job) {
        Wire__StagingMapped mapped = WIRE__STAGING_MAPPED__INIT;

        SET(mapped, job, job->handle);
        return request_call(job->gs, &job->collective->request, WIRE__MESSAGE_TYPE__STAGING_MAPPED,
                            &mapped.base, -1, WIRE__MESSAGE_TYPE__STAGING_READY, NULL, NEVER);
}

/* The caller's data may lie on the GPU, if there is one. */
static void collective_fetch(const struct gradsync_job *job, uint8_t *to, const uint8_t *from,
                             uint64_t bytes) {
        struct device *device = job->gs->device;
        int r;

        if (device == NULL || !device_has(device, from))
                memcpy(to, from, bytes);
        else if ((r = device_copy_out(device, to, from, bytes)) != GRADSYNC_OK)
                job->collective->copied = r;
}

static void collective_hand_over(const struct gradsync_job *job, uint8_t *to, const uint8_t *from,
                                 uint64_t bytes) {
        struct device *device = job->gs->device;
        int r;

        if (device == NULL || !device_has(device, to))
                memcpy(to, from, bytes);
        else if ((r = device_copy_in(device, to, from, bytes)) != GRADSYNC_OK)
                job->collective->copied = r;
}

static void collective_copy_part(const struct gradsync_job *job, uint8_t *to, const uint8_t *from,
                                 uint64_t bytes, uint64_t stride) {
        collective_fetch(job, to, from, bytes);
        memset(to + bytes, 0, stride - bytes);
}

/* Fills the staging memory for the chunk at `at`. Parts of a chunk lie `stride` bytes apart there. */
static void collective_copy_in(const struct gradsync_job *job, uint64_t bytes, uint64_t stride) {
        const struct collective *c = job->collective;
        const uint8_t *in = c->in;

        if (c->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER) {
                for (uint32_t rank = 0; rank < c->world; rank++)
                        collective_copy_part(job, job->collective->staging.base + rank * stride,
                                             in + rank * c->bytes + c->at, bytes, stride);
        } else if (c->kind != WIRE__OPERATION_KIND__BROADCAST || c->root == c->rank) {
                collective_copy_part(job, job->collective->staging.base, in + c->at, bytes, stride);
        }
}

/* Returns the offset in the staging memory at which the outputs of the chunk begin. */
static uint64_t collective_output_offset(const struct gradsync_job *job, uint64_t stride) {
        const struct collective *c = job->collective;

        if (c->kind == WIRE__OPERATION_KIND__ALLGATHER)
                return stride;
        return c->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER ? c->world * stride : 0;
}

static void collective_copy_out(const struct gradsync_job *job, uint64_t bytes, uint64_t stride) {
        const struct collective *c = job->collective;
        const uint8_t *from = job->collective->staging.base + collective_output_offset(job, stride);
        uint8_t *out = c->out;

        if (c->kind == WIRE__OPERATION_KIND__ALLGATHER) {
                for (uint32_t rank = 0; rank < c->world; rank++)
                        collective_hand_over(job, out + rank * c->bytes + c->at, from + rank * stride, bytes);
        } else if (c->kind != WIRE__OPERATION_KIND__BROADCAST || (c->root != c->rank && out != NULL)) {
                collective_hand_over(job, out + c->at, from, bytes);
        }
}

static int collective_operate(struct gradsync_job *job, uint64_t stride) {
        struct collective *c = job->collective;
        Wire__Operation operation = WIRE__OPERATION__INIT;

        SET(operation, job, job->handle);
        SET(operation, generation, c->generation);
        SET(operation, sequence, job->collective->sequence);
        SET(operation, kind, (Wire__OperationKind)c->kind);
        if (c->kind != WIRE__OPERATION_KIND__BARRIER) {
                SET(operation, bytes, stride);
                SET(operation, total, c->bytes);
                SET(operation, input, 0);
                SET(operation, output, collective_output_offset(job, stride));
        }
        SET_IF(operation, dtype, c->reduce != 0, (Wire__Dtype)c->dtype);
        SET_IF(operation, reduce, c->reduce != 0, (Wire__Reduce)c->reduce);
        SET_IF(operation, root, c->kind == WIRE__OPERATION_KIND__BROADCAST, c->root);
        SET_IF(operation, blocking, job_waits_alone(job), true);
        SET_IF(operation, sealed, c->sealed, true);
        SET_IF(operation, offset, c->at > 0, c->at);
        return request_call(job->gs, &c->request, WIRE__MESSAGE_TYPE__OPERATION, &operation.base, -1,
                            WIRE__MESSAGE_TYPE__OPERATION_DONE, NULL, NEVER);
}

/* Copies without the lock: that takes long for large chunks, and the memory is this call's alone. */
static void collective_copy(struct gradsync_job *job,
                            void (*how)(const struct gradsync_job *, uint64_t, uint64_t), uint64_t bytes,
                            uint64_t stride) {
        pthread_mutex_unlock(&job->gs->link.lock);
        how(job, bytes, stride);
        pthread_mutex_lock(&job->gs->link.lock);
}

/* The daemon counts an operation that has failed, but not one that it would not even begin. */
static bool collective_counts(int result) {
        return result != GRADSYNC_INVALID && result != GRADSYNC_STATE && result != GRADSYNC_STALE &&
               result != GRADSYNC_VOID_RETRY && result != GRADSYNC_MEMBER_LOST &&
               result != GRADSYNC_DEADLOCK && result != REQUEST_BROKEN;
}

void collective_lost(struct collective *c, const char *why) {
        if (standing_is_over(&c->job->standing) || c->phase != COLLECTIVE_CHUNKS)
                request_end(&c->request, REQUEST_BROKEN, why);
}

void collective_settle(struct collective *c, uint64_t operations, bool failed, const char *why) {
        if (operations <= c->sequence)
                request_end(&c->request, REQUEST_BROKEN, why);
        else if (failed)
                request_end(&c->request, GRADSYNC_OPERATION_MISMATCH,
                            "gradsyncd was restarted after it had failed: another member has made a "
                            "different call, or data of a sealed one was changed on its way");
        else
                request_end(&c->request, GRADSYNC_OK, "");
}

/* A GPU that fails in the middle ends the connection: the others have taken part of this member's data, and a
 * repeated call would begin anew while they go on. */
static int collective_end_copies(struct gradsync_job *job) {
        int r = job->collective->copied;

        if (r != GRADSYNC_OK)
                link_fail(&job->gs->link, r);
        return r;
}

/* Finds the caller's mistakes before anything is sent. */
static int collective_check_places(const struct gradsync_job *job) {
        const struct collective *c = job->collective;
        struct device *device = job->gs->device;
        int r = GRADSYNC_OK;

        if (device != NULL && c->at == 0)
                r = device_check_own(device, c->in);
        if (r == GRADSYNC_OK && device != NULL && c->at == 0)
                r = device_check_own(device, c->out);
        return r;
}

static int collective_run_chunk(struct gradsync_job *job, uint64_t bytes) {
        struct collective *c = job->collective;
        /* The daemon wants parts that it splits to be aligned. */
        uint64_t stride = collective_scatters(c->kind) ? frame_round_up(bytes, ARENA_ALIGN) : bytes;

        /* Once the operation has been sent, its answer decides: it may have ended before the generation. */
        if (c->request.id == 0 && c->generation != job->standing.generation)
                return GRADSYNC_VOID_RETRY;
        if (c->chunk == 0 && bytes > 0) {
                int r = collective_check_places(job);

                if (r != GRADSYNC_OK)
                        return r;
                collective_copy(job, collective_copy_in, bytes, stride);
                /* Nothing is sent: the others would take the contents of the memory for data. */
                if (c->copied != GRADSYNC_OK)
                        return collective_end_copies(job);
                c->chunk = bytes;
        }
        if (c->request.id == 0 && job->rejoin.phase != REJOIN_NONE) {
                c->chunk = 0;
                /* The daemon went while the data was copied. */
                return REQUEST_BROKEN;
        }
        int r = collective_operate(job, stride);
        if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                return r;
        c->chunk = 0;
        if (r == REQUEST_BROKEN)
                return r;
        /* A new generation counts from 0. */
        if (c->generation == job->standing.generation && collective_counts(r))
                job->collective->sequence++;
        if (r != GRADSYNC_OK)
                return r;
        if (bytes > 0)
                collective_copy(job, collective_copy_out, bytes, stride);
        c->at += bytes;
        return collective_end_copies(job);
}

static int collective_run_chunks(struct gradsync_job *job) {
        struct collective *c = job->collective;
        uint64_t most = collective_chunk_max(job, c->kind);
        int r;

        if (most == 0 && c->bytes > 0)
                return fail(GRADSYNC_UNSUPPORTED,
                            "job '%s': a staging memory of %llu bytes is too small for the %s of %u "
                            "members; raise staging_bytes of gradsyncd",
                            job->name, (unsigned long long)job->collective->staging.bytes,
                            operation_name(c->kind), job->standing.world);
        do {
                uint64_t left = c->bytes - c->at;

                r = collective_run_chunk(job, left < most ? left : most);
        } while (r == GRADSYNC_OK && c->at < c->bytes);
        return r;
}

/* The daemon that had begun to share the staging memory is gone. */
static void collective_forget_staging(struct gradsync_job *job) {
        struct collective *c = job->collective;

        request_close(job->gs, &c->request);
        shared_unmap(&job->collective->staging);
        job->collective->staging_fd = fd_close(job->collective->staging_fd);
        c->phase = COLLECTIVE_STAGING;
        c->connection = job->gs->link.connection;
}

static int collective_advance_once(struct gradsync_job *job) {
        struct collective *c = job->collective;
        int r = c->request.id != 0 && c->phase == COLLECTIVE_CHUNKS ? GRADSYNC_OK : job_wait_daemon(job);

        if (r == GRADSYNC_OK && c->phase != COLLECTIVE_CHUNKS && c->connection != job->gs->link.connection)
                collective_forget_staging(job);
        while (r == GRADSYNC_OK && c->phase != COLLECTIVE_CHUNKS) {
                r = c->phase == COLLECTIVE_STAGING ? collective_ask_staging(job)
                    : c->phase == COLLECTIVE_TOUCH ? collective_touch_staging(job)
                                                   : collective_say_mapped(job);
                /* The daemon that follows does not know of this memory. */
                if (r == GRADSYNC_OK && c->connection != job->gs->link.connection)
                        return REQUEST_BROKEN;
                if (r == GRADSYNC_OK)
                        c->staging_agreed = ++c->phase == COLLECTIVE_CHUNKS;
        }
        return r != GRADSYNC_OK ? r : collective_run_chunks(job);
}

static int collective_advance(struct gradsync_job *job) {
        int r;

        do
                r = collective_advance_once(job);
        while (r == REQUEST_BROKEN);
        return r;
}

static bool collective_same_call(const struct collective *c, const struct call *call) {
        return c->kind == call->kind && c->dtype == call->dtype && c->reduce == call->reduce &&
               c->root == call->root && c->sealed == call->sealed && c->in == call->in &&
               c->out == call->out && c->bytes == call->bytes;
}

/* Returns the generation of the call: it is void in any other one, whatever it asks for. */
static uint32_t collective_generation_of(const struct gradsync_job *job, const struct call *call) {
        return call->generation == NEWEST    ? job->standing.generation
               : call->generation == CALLERS ? job->standing.told
                                             : call->generation;
}

static void collective_begin(struct gradsync_job *job, const struct call *call) {
        struct collective *c = job->collective;

        if (call->bytes == 0 || job->collective->staging_agreed)
                c->phase = COLLECTIVE_CHUNKS;
        else
                c->phase = job->collective->staging.bytes == 0 ? COLLECTIVE_STAGING : COLLECTIVE_TOUCH;
        c->kind = call->kind;
        c->dtype = call->dtype;
        c->reduce = call->reduce;
        c->root = call->root;
        c->sealed = call->sealed;
        c->in = call->in;
        c->out = call->out;
        c->bytes = call->bytes;
        c->generation = collective_generation_of(job, call);
        c->rank = job->standing.rank;
        c->world = job->standing.world;
        c->at = c->chunk = 0;
        c->copied = GRADSYNC_OK;
        /* In COLLECTIVE_TOUCH the memory belongs to the connection on which an earlier call got it. */
        if (c->phase != COLLECTIVE_TOUCH)
                c->connection = job->gs->link.connection;
}

/* The operation ended with its generation: waits for the next one, which may be known already. */
static int collective_end_void(struct gradsync_job *job) {
        if (job->collective->generation == job->standing.generation &&
            job->standing.state == STANDING_SETTLED)
                job_interrupt(job, 0, 0, fail_text());
        int r = job_wait_generation(job);
        if (r == GRADSYNC_OK)
                r = job_check_together(job);
        if (r != GRADSYNC_OK)
                return r;
        r = job_void_code(job);
        job->standing.told = job->standing.generation;
        return fail(r, "the operation is void, the job has gone on to generation %u: %s; %s",
                    job->standing.generation, job->standing.loss.text,
                    r == GRADSYNC_VOID_BEHIND
                            ? "synchronise the state with gradsync_sync_state(), then call it again"
                            : "call it again");
}

/* In a world of one the input is the output, in whatever memory both lie. */
static int collective_alone(const struct call *call) {
        if (collective_scatters(call->kind) && call->in != call->out && call->bytes > 0)
                return device_copy_alone(call->out, call->in, call->bytes);
        return GRADSYNC_OK;
}

static int collective_check(const struct gradsync_job *job, const struct call *call) {
        if (call->kind != WIRE__OPERATION_KIND__BARRIER && call->bytes > 0 &&
            (call->in == NULL || (call->out == NULL && call->kind != WIRE__OPERATION_KIND__BROADCAST)))
                return fail(GRADSYNC_INVALID, "job '%s': %s without data", job->name,
                            operation_name(call->kind));
        if (call->bytes > LIMIT_ARENA)
                return fail(GRADSYNC_INVALID, "job '%s': %s of %llu bytes is too large", job->name,
                            operation_name(call->kind), (unsigned long long)call->bytes);
        if (call->kind == WIRE__OPERATION_KIND__BROADCAST && call->root >= job->standing.world &&
            collective_generation_of(job, call) == job->standing.generation)
                return fail(GRADSYNC_INVALID, "job '%s': broadcast from rank %u of %u", job->name, call->root,
                            job->standing.world);
        if (call->reduce != 0 && !reduce_valid(call->reduce, call->dtype))
                return fail(GRADSYNC_INVALID, "job '%s': the %s of %s is not defined", job->name,
                            reduce_name(call->reduce), dtype_name(call->dtype));
        return GRADSYNC_OK;
}

/* The operation was refused because of a loss that ends the job. gradsyncd may send LOST only later, when
 * nothing is done in the job any more; the call waits for it, so that the next call returns the same
 * result. */
static bool collective_ends_job(int r) {
        return r == GRADSYNC_MEMBER_LOST || r == GRADSYNC_DEADLOCK;
}

/* Calls of no bytes are left out by every member alike, so nothing is sent for them. */
static int collective_perform(struct gradsync_job *job, const struct call *call) {
        struct collective *c = job->collective;
        int r = collective_check(job, call);

        if (r == GRADSYNC_OK && c->phase != COLLECTIVE_IDLE && !collective_same_call(c, call))
                r = fail(GRADSYNC_STATE,
                         "job '%s': a %s is under way; call it again with the same arguments until it has "
                         "finished",
                         job->name, operation_name(c->kind));
        if (r != GRADSYNC_OK || (call->bytes == 0 && call->kind != WIRE__OPERATION_KIND__BARRIER))
                return r;
        if (job->gs->standalone)
                return collective_alone(call);
        plan_note_caller(job, true);
        if (c->phase == COLLECTIVE_IDLE)
                collective_begin(job, call);
        r = c->phase == COLLECTIVE_VOID ? GRADSYNC_VOID_RETRY : collective_advance(job);
        if (r == GRADSYNC_VOID_RETRY || collective_ends_job(r)) {
                c->phase = COLLECTIVE_VOID;
                r = collective_end_void(job);
        }
        if (r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED)
                c->phase = COLLECTIVE_IDLE;
        return r;
}

/* A call is void in a generation that the caller does not know of: so the caller learns of it. */
static int collective_call(struct gradsync_job *job, struct call *call, const char *name) {
        int r = job_enter_together(job, name);

        call->generation = CALLERS;
        return r != GRADSYNC_OK ? r : job_leave(job, collective_perform(job, call));
}

int gradsync_barrier(struct gradsync_job *job) {
        struct call call = { .kind = WIRE__OPERATION_KIND__BARRIER };

        return collective_call(job, &call, "gradsync_barrier");
}

int collective_allgather(struct gradsync_job *job, const void *in, void *out, uint64_t bytes) {
        struct call call = { .kind = WIRE__OPERATION_KIND__ALLGATHER,
                             .sealed = true,
                             .in = in,
                             .out = out,
                             .bytes = bytes,
                             .generation = NEWEST };
        int r = job_check(job);

        return r != GRADSYNC_OK ? r : collective_perform(job, &call);
}

int collective_broadcast(struct gradsync_job *job, uint32_t generation, const void *in, void *out,
                         uint64_t bytes, uint32_t root) {
        struct call call = { .kind = WIRE__OPERATION_KIND__BROADCAST,
                             .root = root,
                             .sealed = true,
                             .in = in,
                             .out = out,
                             .bytes = bytes,
                             .generation = generation };
        int r = job_check(job);

        return r != GRADSYNC_OK ? r : collective_perform(job, &call);
}

int gradsync_broadcast(struct gradsync_job *job, void *data, size_t bytes, uint32_t root) {
        struct call call = {
                .kind = WIRE__OPERATION_KIND__BROADCAST, .root = root, .in = data, .out = data, .bytes = bytes
        };

        return collective_call(job, &call, "gradsync_broadcast");
}

int gradsync_broadcast_sealed(struct gradsync_job *job, void *data, size_t bytes, uint32_t root) {
        struct call call = { .kind = WIRE__OPERATION_KIND__BROADCAST,
                             .root = root,
                             .sealed = true,
                             .in = data,
                             .out = data,
                             .bytes = bytes };

        return collective_call(job, &call, "gradsync_broadcast_sealed");
}

int gradsync_allgather(struct gradsync_job *job, const void *in, void *out, size_t bytes) {
        struct call call = { .kind = WIRE__OPERATION_KIND__ALLGATHER, .in = in, .out = out, .bytes = bytes };

        return collective_call(job, &call, "gradsync_allgather");
}

int gradsync_allgather_sealed(struct gradsync_job *job, const void *in, void *out, size_t bytes) {
        struct call call = {
                .kind = WIRE__OPERATION_KIND__ALLGATHER, .sealed = true, .in = in, .out = out, .bytes = bytes
        };

        return collective_call(job, &call, "gradsync_allgather_sealed");
}

/* Checks what collective_check() cannot see any more: the element type, and the multiplication. */
static int collective_reduce(struct gradsync_job *job, struct call *call, size_t count, const char *name) {
        size_t size = dtype_size(call->dtype);

        if (size == 0 || call->reduce == 0)
                return fail(GRADSYNC_INVALID, "%s(): element type %u or reduction %u is unknown", name,
                            call->dtype, call->reduce);
        if (count > LIMIT_ARENA / size)
                return fail(GRADSYNC_INVALID, "%s(): %zu elements are too many", name, count);
        call->bytes = count * size;
        return collective_call(job, call, name);
}

int gradsync_reduce_scatter(struct gradsync_job *job, const void *in, void *out, size_t count,
                            enum gradsync_dtype dtype, enum gradsync_reduce reduce) {
        struct call call = { .kind = WIRE__OPERATION_KIND__REDUCE_SCATTER,
                             .dtype = (unsigned)dtype,
                             .reduce = (unsigned)reduce,
                             .in = in,
                             .out = out };

        return collective_reduce(job, &call, count, "gradsync_reduce_scatter");
}

int gradsync_allreduce(struct gradsync_job *job, void *data, size_t count, enum gradsync_dtype dtype,
                       enum gradsync_reduce reduce) {
        struct call call = { .kind = WIRE__OPERATION_KIND__ALLREDUCE,
                             .dtype = (unsigned)dtype,
                             .reduce = (unsigned)reduce,
                             .in = data,
                             .out = data };

        return collective_reduce(job, &call, count, "gradsync_allreduce");
}
