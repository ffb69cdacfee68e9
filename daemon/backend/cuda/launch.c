/* SPDX-License-Identifier: Apache-2.0 */
/* See launch.h. */
#include "backend/cuda/launch.h"

#include <string.h>

#include "proto/frame.h"
#include "proto/gradsync.pb-c.h"
#include "proto/names.h"

#define BLOCKS_MOST 65535u

const char *const launch_names[GRID_KERNELS] = {
#define LAUNCH_NAME(name, type, operation, k) GRID_PREFIX #name,
        GRID_LIST(LAUNCH_NAME)
#undef LAUNCH_NAME
};

static const struct launch_row {
        enum grid_type type;
        enum grid_operation operation;
        unsigned k;
} launch_rows[GRID_KERNELS] = {
#define LAUNCH_ROW(name, type, operation, k) { GRID_##type, operation, k },
        GRID_LIST(LAUNCH_ROW)
#undef LAUNCH_ROW
};

static int launch_type(unsigned dtype) {
        switch (dtype) {
        case WIRE__DTYPE__F32: return GRID_f32;
        case WIRE__DTYPE__F64: return GRID_f64;
        case WIRE__DTYPE__F16: return GRID_f16;
        case WIRE__DTYPE__BF16: return GRID_bf16;
        case WIRE__DTYPE__I32: return GRID_i32;
        case WIRE__DTYPE__I64: return GRID_i64;
        case WIRE__DTYPE__U8: return GRID_u8;
        default: return -1;
        }
}

static bool launch_is_float(unsigned dtype) {
        int type = launch_type(dtype);

        return type >= 0 && type <= GRID_bf16;
}

/* Whether a part is a copy of bytes, as every copy without statistics is. */
static bool launch_copies_bytes(const struct launch_part *part) {
        return part->reduce == WIRE__REDUCE__REDUCE_NONE && !part->find &&
               !(part->statistics && launch_is_float(part->dtype));
}

static int launch_operation(const struct launch_part *part) {
        switch (part->reduce) {
        case WIRE__REDUCE__REDUCE_NONE:
                if (part->n_inputs != 1 || (part->find && !launch_is_float(part->dtype)))
                        return -1;
                return part->find ? GRID_FIND : GRID_COPY;
        case WIRE__REDUCE__AVG: return launch_is_float(part->dtype) && part->divisor > 0 ? GRID_SUM : -1;
        case WIRE__REDUCE__SUM: return GRID_SUM;
        case WIRE__REDUCE__PROD: return GRID_PRODUCT;
        case WIRE__REDUCE__MIN: return GRID_LEAST;
        case WIRE__REDUCE__MAX: return GRID_GREATEST;
        default: return -1;
        }
}

static bool launch_is_valid(const struct launch_part *part) {
        if (part->n_inputs < 1 || part->n_inputs > LIMIT_LOCAL || part->n_outputs > LIMIT_LOCAL ||
            part->elements > LIMIT_ARENA)
                return false;
        return part->n_outputs > 0 ? !part->find : part->reduce == WIRE__REDUCE__REDUCE_NONE;
}

_Static_assert(2 * LIMIT_LOCAL <= GRID_ADDRESSES, "the largest combination fits a launch");

int launch_kernel(const struct launch_part *part) {
        int type = launch_copies_bytes(part) ? GRID_u8 : launch_type(part->dtype), found = -1;
        int operation = launch_is_valid(part) && launch_type(part->dtype) >= 0 ? launch_operation(part) : -1;

        for (int i = 0; i < GRID_KERNELS && operation >= 0; i++) {
                const struct launch_row *row = &launch_rows[i];

                if ((int)row->type == type && (int)row->operation == operation &&
                    (row->k == part->n_inputs || (row->k == 0 && found < 0)))
                        found = i;
        }
        return found;
}

/* Returns 1/divisor in the accumulator's type. The inputs of a sum are multiplied by one, which changes no
 * value. */
static double launch_scale(const struct launch_part *part) {
        if (part->reduce != WIRE__REDUCE__AVG)
                return 1;
        return part->dtype == WIRE__DTYPE__F64 ? 1.0 / part->divisor : (float)(1.0 / part->divisor);
}

struct launch_cut {
        uint32_t rounds, chunks;
};

static uint64_t launch_bytes(const struct launch_part *part) {
        return part->elements * dtype_size(part->dtype);
}

uint32_t launch_result_words(const struct launch_part *part) {
        return launch_is_float(part->dtype) && !launch_copies_bytes(part) ? GRID_WORDS(part->n_inputs) : 0;
}

static struct launch_cut launch_cut(const struct launch_part *part) {
        uint64_t rounds = (launch_bytes(part) + GRID_ROUND_BYTES - 1) / GRID_ROUND_BYTES;
        uint32_t words = launch_result_words(part);
        uint64_t most = words * GRID_CHUNKS > GRID_SCRATCH_WORDS ? GRID_SCRATCH_WORDS / words : GRID_CHUNKS;
        uint64_t each = (rounds + most - 1) / most;

        return (struct launch_cut){ .rounds = (uint32_t)each,
                                    .chunks = each > 0 ? (uint32_t)((rounds + each - 1) / each) : 0 };
}

uint64_t launch_scratch_words(const struct launch_part *part) {
        return (uint64_t)launch_cut(part).chunks * launch_result_words(part);
}

void launch_init(struct launch *launch, unsigned kernel) {
        launch->kernel = kernel;
        launch->n_addresses = launch->scratch_words = launch->result_words = 0;
        launch->grid.n_parts = launch->grid.n_chunks = 0;
}

static bool launch_is_in_place(const struct launch_part *part) {
        return part->n_inputs == part->n_outputs &&
               memcmp(part->inputs, part->outputs, part->n_inputs * sizeof(*part->inputs)) == 0;
}

static bool launch_is_aligned(const uint64_t *address, unsigned n) {
        uint64_t all = 0;

        for (unsigned i = 0; i < n; i++)
                all |= address[i];
        return all % GRID_VECTOR == 0;
}

static uint32_t launch_put(struct launch *launch, const uint64_t *address, unsigned n) {
        uint32_t at = launch->n_addresses;

        if (n > 0)
                memcpy(launch->grid.address + at, address, n * sizeof(*address));
        launch->n_addresses += n;
        return at;
}

bool launch_add(struct launch *launch, const struct launch_part *part, uint64_t scratch_words,
                uint32_t result_words) {
        struct grid_launch *grid = &launch->grid;
        struct launch_cut cut = launch_cut(part);
        bool in_place = launch_is_in_place(part);
        unsigned addresses = part->n_inputs + (in_place ? 0 : part->n_outputs);
        int kernel = launch_kernel(part);

        if (kernel != (int)launch->kernel || grid->n_parts >= GRID_PARTS ||
            launch->n_addresses + addresses > GRID_ADDRESSES ||
            launch->scratch_words + launch_scratch_words(part) > scratch_words ||
            launch->result_words + launch_result_words(part) > result_words)
                return false;
        struct grid_part *to = &grid->part[grid->n_parts++];
        *to = (struct grid_part){
                .elements = launch_rows[kernel].type == GRID_u8 ? launch_bytes(part) : part->elements,
                .scale = launch_scale(part),
                .inputs = launch_put(launch, part->inputs, part->n_inputs),
                .n_inputs = part->n_inputs,
                .n_outputs = part->n_outputs,
                .chunk = grid->n_chunks,
                .n_chunks = cut.chunks,
                .rounds = cut.rounds,
                .aligned = launch_is_aligned(part->inputs, part->n_inputs) &&
                           launch_is_aligned(part->outputs, part->n_outputs),
                .scratch = launch->scratch_words,
                .result = launch->result_words,
        };
        to->outputs = in_place ? to->inputs : launch_put(launch, part->outputs, part->n_outputs);
        grid->n_chunks += cut.chunks;
        launch->scratch_words += (uint32_t)launch_scratch_words(part);
        launch->result_words += launch_result_words(part);
        return true;
}

unsigned launch_blocks(const struct launch *launch, unsigned cap) {
        unsigned most = cap > 0 && cap < BLOCKS_MOST ? cap : BLOCKS_MOST;

        if (launch->grid.n_chunks == 0)
                return 1;
        return launch->grid.n_chunks < most ? launch->grid.n_chunks : most;
}
