/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/shared.h"

#include <assert.h>
#include <string.h>

#include "gradsync.pb-c.h"
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

/* Memory of the daemon's own comes at once, see MEMORY_OWN: nobody has to be told later. */
static int shared_allocate(struct shared *shared, struct refusal *refusal) {
        const struct shared_config *config = &shared->config;
        struct holding_cost cost = holding_cost(config->backend, shared->bytes);
        struct memory_request what = { .kind = MEMORY_OWN, .bytes = shared->bytes };
        int r = holding_new(config->job, NULL, 0, config->backend, &cost, NULL, &shared->holding, refusal);

        if (r == 0)
                r = holding_ask(shared->holding, config->job, &what, refusal);
        if (r != 0)
                return r;
        assert(!holding_is_busy(shared->holding));
        shared->memory = shared->holding->memory;
        return 0;
}

static int shared_tell(const struct shared *shared) {
        const struct memory_ops *ops = shared->config.backend->memory;
        struct engine *engine = shared->config.engine;
        int fds[MEMORY_FDS];

        ops->fds(shared->memory, fds);
        return engine->ops->share(engine, shared->config.id,
                                  &(struct engine_memory){ .address = ops->address(shared->memory),
                                                           .fd = fds[0],
                                                           .bytes = shared->bytes });
}

int shared_init(struct shared *shared, const struct shared_config *config, uint64_t bytes,
                struct refusal *refusal) {
        int r;

        *shared = (struct shared){ .config = *config };
        shared->bytes = (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
        r = shared_allocate(shared, refusal);
        if (r == 0)
                r = shared_tell(shared);
        shared->known = r == 0;
        if (r != 0)
                shared_deinit(shared);
        return r;
}

void shared_deinit(struct shared *shared) {
        const struct shared_config *config = &shared->config;

        if (shared->known)
                config->engine->ops->unshare(config->engine, config->id);
        holding_free(shared->holding);
        *shared = (struct shared){ 0 };
}

void shared_fill_neutral(struct shared *shared, uint64_t offset, unsigned dtype, unsigned reduce,
                         uint64_t elements) {
        bool zeros = reduce < WIRE__REDUCE__MIN;
        uint64_t bits = zeros ? 0 : neutral_bits[dtype][reduce - WIRE__REDUCE__MIN];
        unsigned char *to = shared->config.backend->memory->address(shared->memory);
        size_t size = dtype_size(dtype);

        for (uint64_t i = 0; i < elements; i++)
                memcpy(to + offset + i * size, &bits, size); /* little-endian, like arenas */
}

enum engine_reduce shared_reduce(unsigned reduce) {
        switch (reduce) {
        case WIRE__REDUCE__MIN: return ENGINE_MIN;
        case WIRE__REDUCE__MAX: return ENGINE_MAX;
        case WIRE__REDUCE__PROD: return ENGINE_PROD;
        default: return ENGINE_SUM;
        }
}
