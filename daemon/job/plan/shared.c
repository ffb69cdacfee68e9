/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/shared.h"

#include <assert.h>

#include "backend/fill.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "proto/names.h"

#define DTYPES (WIRE__DTYPE__U8 + 1)

/* Bits of the elements that change nothing: of a minimum, a maximum, a product. Those of a sum are zeros. */
static const uint64_t neutral_bits[DTYPES][3] = {
        [WIRE__DTYPE__F32] = { 0x7f800000, 0xff800000, 0x3f800000 },
        [WIRE__DTYPE__F64] = { UINT64_C(0x7ff0) << 48, UINT64_C(0xfff0) << 48, UINT64_C(0x3ff0) << 48 },
        [WIRE__DTYPE__F16] = { 0x7c00, 0xfc00, 0x3c00 },
        [WIRE__DTYPE__BF16] = { 0x7f80, 0xff80, 0x3f80 },
        [WIRE__DTYPE__I32] = { 0x7fffffff, 0x80000000, 1 },
        [WIRE__DTYPE__I64] = { INT64_MAX, UINT64_C(1) << 63, 1 },
        [WIRE__DTYPE__U8] = { 0xff, 0, 1 },
};

int shared_check(const struct job *job, struct refusal *refusal) {
        if (!job->cluster || job->n_local == job->world || job->table->config.engine != NULL)
                return 0; /* after a restart a job of one daemon may lack members */
        return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                      "job '%s': only %u of its %u members are on this node, and this gradsyncd exchanges "
                      "nothing with other nodes",
                      job->name, job->n_local, job->world);
}

static int shared_ask(struct shared *shared, struct job *job, struct backend *backend,
                      const struct memory_request *what, uint32_t number, holding_done_fn late,
                      struct refusal *refusal) {
        struct memory_request request = *what;

        request.kind = MEMORY_OWN;
        request.bytes = (what->bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
        struct charges_amount cost = holding_cost(backend, request.bytes, request.companion);

        cost.own += cost.bytes; /* no client touches it */
        cost.bytes = 0;
        int r = holding_new(job, NULL, number, backend, &cost, late, &shared->holding, refusal);

        return r == 0 ? holding_ask(shared->holding, job, &request, refusal) : r;
}

int shared_take(struct shared *shared, struct job *job) {
        struct backend *backend = shared->holding->backend;
        const struct backend_memory *own = shared->holding->memory;
        const struct jobs_config *config = &job->table->config;
        bool staging = backend == config->staging && config->staging_engine != NULL;
        struct engine *engine = staging ? config->staging_engine : config->engine;
        struct engine_memory memory = { .address = backend->memory->address(own),
                                        .bytes = backend->memory->bytes(own) };
        uint64_t id = ++job->table->last_shared;
        int fds[MEMORY_FDS];

        backend->memory->fds(own, fds);
        memory.fd = fds[0];
        int r = engine->ops->share(engine, id, &memory);
        if (r < 0)
                return r;
        shared->engine = engine;
        shared->id = id;
        shared->usable = r == 0;
        return 0;
}

int shared_init(struct shared *shared, struct job *job, struct backend *backend,
                const struct memory_request *what, uint32_t number, holding_done_fn late,
                struct refusal *refusal) {
        int r = shared_ask(shared, job, backend, what, number, late, refusal);

        if (r == 0 && !holding_is_busy(shared->holding))
                r = shared_take(shared, job);
        assert(r != 0 || late != NULL || shared_is_there(shared));
        if (r != 0)
                shared_deinit(shared);
        return r;
}

void shared_deinit(struct shared *shared) {
        bool gone = shared->id == 0 || shared->engine->ops->unshare(shared->engine, shared->id);

        if (gone)
                holding_free(shared->holding);
        else
                shared->holding->shared = shared->id;
        *shared = (struct shared){ 0 };
}

void shared_gone(struct jobs *jobs, uint64_t id) {
        struct holding *holding, *spare;

        list_for_each_safe(holding, spare, &jobs->holdings.list, link)
                if (holding->shared == id) {
                        holding->shared = 0;
                        holding_free(holding);
                        return;
                }
}

bool shared_any_left(const struct jobs *jobs) {
        const struct holding *holding;

        list_for_each(holding, &jobs->holdings.list, link)
                if (holding->shared != 0)
                        return true;
        return false;
}

unsigned char *shared_companion(const struct shared *shared) {
        return shared->holding->backend->memory->companion(shared->holding->memory);
}

struct memory_fill shared_neutral(uint64_t offset, unsigned dtype, unsigned reduce, uint64_t elements) {
        bool zeros = reduce < WIRE__REDUCE__MIN;
        unsigned size = (unsigned)dtype_size(dtype);

        return (struct memory_fill){ .offset = offset,
                                     .bytes = elements * size,
                                     .bits = zeros ? 0 : neutral_bits[dtype][reduce - WIRE__REDUCE__MIN],
                                     .size = size };
}

void shared_fill(struct shared *shared, const struct memory_fill *fill) {
        unsigned char *start = shared->holding->backend->memory->address(shared->holding->memory);

        fill_repeat(start + fill->offset, fill->bytes, fill->bits, fill->size);
}

enum engine_reduce shared_reduce(unsigned reduce) {
        switch (reduce) {
        case WIRE__REDUCE__MIN: return ENGINE_MIN;
        case WIRE__REDUCE__MAX: return ENGINE_MAX;
        case WIRE__REDUCE__PROD: return ENGINE_PROD;
        default: return ENGINE_SUM;
        }
}
