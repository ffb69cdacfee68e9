/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/shared.h"

#include <assert.h>
#include <string.h>

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
        if (job->n_local == job->world || job->table->config.engine != NULL)
                return 0;
        return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                      "job '%s': only %u of its %u members are on this node, and this gradsyncd exchanges "
                      "nothing with other nodes",
                      job->name, job->n_local, job->world);
}

/* Memory of the daemon's own is there at once, see MEMORY_OWN: no late answer comes. */
static int shared_allocate(struct shared *shared, struct job *job, struct backend *backend, uint64_t bytes,
                           struct refusal *refusal) {
        struct holding_cost cost = holding_cost(backend, bytes, 0);
        struct memory_request what = { .kind = MEMORY_OWN, .bytes = bytes };
        int r = holding_new(job, NULL, 0, backend, &cost, NULL, &shared->holding, refusal);

        if (r == 0)
                r = holding_ask(shared->holding, job, &what, refusal);
        assert(r != 0 || !holding_is_busy(shared->holding));
        return r;
}

int shared_init(struct shared *shared, struct job *job, struct backend *backend, uint64_t bytes,
                struct refusal *refusal) {
        struct engine_memory memory = { .bytes = (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE };
        struct engine *engine = job->table->config.engine;
        uint64_t id = ++job->table->last_shared;
        int r = shared_allocate(shared, job, backend, memory.bytes, refusal);
        int fds[MEMORY_FDS];

        if (r == 0) {
                backend->memory->fds(shared->holding->memory, fds);
                memory.fd = fds[0];
                memory.address = backend->memory->address(shared->holding->memory);
                r = engine->ops->share(engine, id, &memory);
        }
        if (r != 0) {
                shared_deinit(shared);
                return r;
        }
        shared->engine = engine;
        shared->id = id;
        return 0;
}

void shared_deinit(struct shared *shared) {
        if (shared->id != 0)
                shared->engine->ops->unshare(shared->engine, shared->id);
        holding_free(shared->holding);
        *shared = (struct shared){ 0 };
}

unsigned char *shared_address(const struct shared *shared, uint64_t offset) {
        unsigned char *start = shared->holding->backend->memory->address(shared->holding->memory);

        return start + offset;
}

void shared_fill_neutral(struct shared *shared, uint64_t offset, unsigned dtype, unsigned reduce,
                         uint64_t elements) {
        bool zeros = reduce < WIRE__REDUCE__MIN;
        uint64_t bits = zeros ? 0 : neutral_bits[dtype][reduce - WIRE__REDUCE__MIN];
        unsigned char *to = shared_address(shared, offset);
        size_t bytes = elements * dtype_size(dtype), filled = bytes > 0 ? dtype_size(dtype) : 0;

        memcpy(to, &bits, filled); /* little-endian, like arenas */
        for (size_t more = 0; filled < bytes; filled += more) {
                more = filled < bytes - filled ? filled : bytes - filled;
                memcpy(to + filled, to, more);
        }
}

enum engine_reduce shared_reduce(unsigned reduce) {
        switch (reduce) {
        case WIRE__REDUCE__MIN: return ENGINE_MIN;
        case WIRE__REDUCE__MAX: return ENGINE_MAX;
        case WIRE__REDUCE__PROD: return ENGINE_PROD;
        default: return ENGINE_SUM;
        }
}
