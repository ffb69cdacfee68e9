/* SPDX-License-Identifier: Apache-2.0 */
/* What the project relies on in NCCL's arithmetic. See facts.h. */
#include "facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

#define CHUNK (256u << 10) /* bytes that the fake moves at once */

struct type {
        enum nccl_type number;
        size_t size;
        bool has_sign;
};

static const struct type types[] = {
        { NCCL_INT8, 1, true },    { NCCL_UINT8, 1, false },  { NCCL_INT32, 4, true },
        { NCCL_INT64, 8, true },   { NCCL_UINT64, 8, false }, { NCCL_FLOAT16, 2, true },
        { NCCL_FLOAT32, 4, true }, { NCCL_FLOAT64, 8, true }, { NCCL_BFLOAT16, 2, true },
};

#define TYPES (sizeof(types) / sizeof(types[0]))

/* Of a small integer. */
static uint16_t half(double value) {
        int exponent;
        double fraction = frexp(fabs(value), &exponent);
        unsigned sign = signbit(value) ? 0x8000 : 0;

        if (value == 0)
                return (uint16_t)sign;
        return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | (unsigned)((2 * fraction - 1) * 1024));
}

static uint16_t bfloat(double value) {
        float single = (float)value;
        uint32_t bits;

        memcpy(&bits, &single, sizeof(bits));
        return (uint16_t)(bits >> 16);
}

static void encode(const struct type *type, double value, void *to) {
        int64_t whole = (int64_t)value;
        float single = (float)value;
        uint16_t small = type->number == NCCL_FLOAT16 ? half(value) : bfloat(value);

        switch (type->number) {
        case NCCL_FLOAT16:
        case NCCL_BFLOAT16: memcpy(to, &small, sizeof(small)); break;
        case NCCL_FLOAT32: memcpy(to, &single, sizeof(single)); break;
        case NCCL_FLOAT64: memcpy(to, &value, sizeof(value)); break;
        default: memcpy(to, &whole, type->size); break;
        }
}

/* So that all types can hold sums and products of four. */
static double input(const struct type *type, size_t i, unsigned rank) {
        size_t mixed = i * 7 + rank * 11 + (i >> 5) * rank;

        return type->has_sign ? (double)(mixed % 7) - 3 : (double)(mixed % 3) + 1;
}

static double output(const struct type *type, int operation, size_t i, unsigned ranks) {
        double value = input(type, i, 0);

        for (unsigned r = 1; r < ranks; r++) {
                double more = input(type, i, r);
                switch (operation) {
                case NCCL_SUM: value += more; break;
                case NCCL_PROD: value *= more; break;
                case NCCL_MAX: value = fmax(value, more); break;
                default: value = fmin(value, more); break;
                }
        }
        return value;
}

/* A product that is zero has no sign here. */
static bool is_equal(const struct type *type, const unsigned char *seen, double expected) {
        unsigned char plus[8], minus[8];

        encode(type, expected, plus);
        encode(type, expected == 0 ? -0.0 : expected, minus);
        return memcmp(seen, plus, type->size) == 0 || memcmp(seen, minus, type->size) == 0;
}

static void reduce(const struct rank *rank, const struct area area[2], const struct type *type, int operation,
                   size_t n, bool in_place) {
        unsigned char *data = malloc(n * type->size);

        CHECK(data != NULL);
        for (size_t i = 0; i < n; i++)
                encode(type, input(type, i, rank->number), data + i * type->size);
        cuda_address to = area[in_place ? 0 : 1].address;
        OK(rank->gpu.cuda.copy_in(area[0].address, data, n * type->size, NULL));
        OK(rank->nccl.allreduce(pointer(area[0].address), pointer(to), n, (int)type->number, operation,
                                rank->comm, NULL));
        OK(rank->gpu.cuda.copy_out(data, to, n * type->size, NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        for (size_t i = 0; i < n; i++)
                CHECK(is_equal(type, data + i * type->size, output(type, operation, i, rank->ranks)));
        free(data);
}

static void arithmetic_role(struct rank *rank) {
        struct area area[2];

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area[0]);
        area_new(&rank->gpu, 1, &area[1]);
        for (size_t t = 0; t < TYPES; t++)
                for (int operation = NCCL_SUM; operation <= NCCL_MIN; operation++) {
                        reduce(rank, area, &types[t], operation, 1, operation % 2 == 0);
                        reduce(rank, area, &types[t], operation, 333, false);
                        reduce(rank, area, &types[t], operation, 333, true);
                }
        for (size_t t = 0; t < TYPES; t++)
                reduce(rank, area, &types[t], NCCL_SUM, 2 * CHUNK / types[t].size + 3, t % 2 == 0);
        area_free(&rank->gpu, &area[0]);
        area_free(&rank->gpu, &area[1]);
        rank_leave(rank);
}

void fact_two_ranks_reduce_all_types(void) {
        ranks_run(2, arithmetic_role);
}

void fact_three_ranks_reduce_all_types(void) {
        ranks_run(3, arithmetic_role);
}

void fact_four_ranks_reduce_all_types(void) {
        ranks_run(4, arithmetic_role);
}

static void one_role(struct rank *rank) {
        struct area area[2];

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area[0]);
        area_new(&rank->gpu, 1, &area[1]);
        reduce(rank, area, &types[0], NCCL_SUM, 1001, false);
        reduce(rank, area, &types[0], NCCL_SUM, 1001, true);
        area_free(&rank->gpu, &area[0]);
        area_free(&rank->gpu, &area[1]);
        rank_leave(rank);
}

void fact_one_rank_copies(void) {
        ranks_run(1, one_role);
}

/* Puts a number of 16 or 32 bits, and returns what is there after the operation. */
static uint32_t reduce_bits(const struct rank *rank, cuda_address at, uint32_t bits, int type,
                            int operation) {
        OK(rank->gpu.cuda.copy_in(at, &bits, sizeof(bits), NULL));
        OK(rank->nccl.allreduce(pointer(at), pointer(at), 1, type, operation, rank->comm, NULL));
        OK(rank->gpu.cuda.copy_out(&bits, at, sizeof(bits), NULL));
        OK(rank->gpu.cuda.stream_wait(NULL));
        return type == NCCL_FLOAT32 ? bits : (uint16_t)bits;
}

/* Which of two results it is depends on who adds first; it is the same one everywhere. */
static void rounding_role(struct rank *rank) {
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        uint32_t sum =
                reduce_bits(rank, area.address, half(rank->number == 1 ? 2048 : 1), NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == half(2048) || sum == half(2050));
        ranks_set(rank->number, sum);
        ranks_meet();
        ranks_await(0, sum);
        sum = reduce_bits(rank, area.address, bfloat(rank->number == 1 ? 256 : 1), NCCL_BFLOAT16, NCCL_SUM);
        CHECK(sum == bfloat(256) || sum == bfloat(258));
        sum = reduce_bits(rank, area.address,
                          bfloat(rank->number == 0   ? 256
                                 : rank->number == 1 ? 3
                                                     : 0),
                          NCCL_BFLOAT16, NCCL_SUM);
        CHECK(sum == bfloat(260)); /* a tie */
        sum = reduce_bits(rank, area.address,
                          half(rank->number == 0   ? 2048
                               : rank->number == 1 ? 3
                                                   : 0),
                          NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == half(2052));
        sum = reduce_bits(rank, area.address, rank->number == 2 ? 0x7c00 : 0x3c00, NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == 0x7c00); /* infinite */
        sum = reduce_bits(rank, area.address, 0x7bff, NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == 0x7c00); /* by overflow */
        sum = reduce_bits(rank, area.address, 0x0001, NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == 0x0003); /* the smallest */
        sum = reduce_bits(rank, area.address, 0x0400 - 1, NCCL_FLOAT16, NCCL_SUM);
        CHECK(sum == 0x09fe); /* 3068 of the smallest, not 3069: a tie */
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

void fact_small_floats_are_rounded_after_each_addition(void) {
        ranks_run(3, rounding_role);
}

static void nan_role(struct rank *rank) {
        static const struct {
                int type;
                uint32_t nan, one;
        } of[] = { { NCCL_FLOAT32, 0x7fc00000, 0x3f800000 },
                   { NCCL_FLOAT16, 0x7e00, 0x3c00 },
                   { NCCL_BFLOAT16, 0x7fc0, 0x3f80 } };
        struct area area;

        rank_join(rank, NULL);
        area_new(&rank->gpu, 1, &area);
        for (unsigned j = 0; j < 6; j++) {
                unsigned i = j / 2;
                uint32_t bits = rank->number == j % 2 ? of[i].nan : of[i].one,
                         magnitude = of[i].nan & 0x7fffffff;
                CHECK(reduce_bits(rank, area.address, bits, of[i].type, NCCL_MAX) == of[i].one);
                CHECK(reduce_bits(rank, area.address, bits, of[i].type, NCCL_MIN) == of[i].one);
                CHECK(reduce_bits(rank, area.address, bits, of[i].type, NCCL_SUM) >= magnitude);
        }
        area_free(&rank->gpu, &area);
        rank_leave(rank);
}

void fact_extremes_leave_nans_out(void) {
        ranks_run(2, nan_role);
}
