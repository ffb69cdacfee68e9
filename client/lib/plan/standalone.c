/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reduction of a world of one, for a trainer that was started by itself on a machine without a daemon.
 * The result is the input, divided where a divisor was set; the statistics are the ones a daemon would
 * report.
 */
#include "client/lib/plan/standalone.h"

#include <math.h>
#include <string.h>

#include "client/lib/plan/plan.h"
#include "proto/names.h"

struct sums {
        /* Sums of squares. */
        double input, result;
        uint64_t nonfinite;
};

static float alone_bits_float(uint32_t bits) {
        float value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

static uint32_t alone_float_bits(float value) {
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

static float alone_load_bf16(uint16_t bits) {
        return alone_bits_float((uint32_t)bits << 16);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static uint16_t alone_store_bf16(float value) {
        uint32_t bits = alone_float_bits(value);

        if (isnan(value))
                return (uint16_t)(bits >> 16 | 0x40u);
        return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float alone_load_f16(uint16_t bits) {
        uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu,
                 fraction = bits & 0x3ffu;

        if (exponent == 0x1f)
                return alone_bits_float(sign | 0x7f800000u | fraction << 13);
        if (exponent == 0)
                return (sign ? -1.0f : 1.0f) * ldexpf((float)fraction, -24);
        return alone_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t alone_store_f16(float value) {
        uint32_t bits = alone_float_bits(value);
        uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
        float magnitude = fabsf(value);

        if (isnan(value))
                return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
        if (magnitude >= 65520.0f)
                return (uint16_t)(sign | 0x7c00u);
        /* Subnormal: the fraction counts units of 2^-24. */
        if (magnitude < 0x1p-14f)
                return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(magnitude, 24)));
        bits = alone_float_bits(magnitude);
        bits += 0xfffu + (bits >> 13 & 1u);
        return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

static void alone_count(struct sums *sums, double input, double result) {
        sums->input += input * input;
        sums->result += result * result;
        sums->nonfinite += !isfinite(input);
}

static void alone_scale_f32(float *at, uint64_t n, uint32_t divisor, struct sums *sums) {
        float factor = 1.0f / (float)divisor;

        for (uint64_t i = 0; i < n; i++) {
                float input = at[i];

                if (divisor > 1)
                        at[i] = input * factor;
                alone_count(sums, input, at[i]);
        }
}

static void alone_scale_f64(double *at, uint64_t n, uint32_t divisor, struct sums *sums) {
        double factor = 1.0 / (double)divisor;

        for (uint64_t i = 0; i < n; i++) {
                double input = at[i];

                if (divisor > 1)
                        at[i] = input * factor;
                alone_count(sums, input, at[i]);
        }
}

static void alone_scale_16(uint16_t *at, uint64_t n, uint32_t divisor, struct sums *sums,
                           float (*load)(uint16_t), uint16_t (*store)(float)) {
        float factor = 1.0f / (float)divisor;

        for (uint64_t i = 0; i < n; i++) {
                float input = load(at[i]);

                if (divisor > 1)
                        at[i] = store(input * factor);
                alone_count(sums, input, load(at[i]));
        }
}

static void alone_scale(void *at, unsigned dtype, uint64_t n, uint32_t divisor, struct sums *sums) {
        switch (dtype) {
        case GRADSYNC_F32: alone_scale_f32(at, n, divisor, sums); break;
        case GRADSYNC_F64: alone_scale_f64(at, n, divisor, sums); break;
        case GRADSYNC_F16: alone_scale_16(at, n, divisor, sums, alone_load_f16, alone_store_f16); break;
        case GRADSYNC_BF16: alone_scale_16(at, n, divisor, sums, alone_load_bf16, alone_store_bf16); break;
        /* Integers have no average and no norm. */
        default: break;
        }
}

void standalone_reduce(struct gradsync_plan *plan, uint32_t b) {
        const struct layout_bucket *bucket = &plan->layout.bucket[b];
        struct results *results = &plan->results[plan->current];
        uint32_t divisor = plan->reduce == GRADSYNC_AVG && plan->step.divisor > 0 ? plan->step.divisor : 1;
        struct sums sums = { 0 };

        for (uint32_t k = 0; k < bucket->n; k++) {
                uint32_t i = plan->layout.order[bucket->first + k];

                alone_scale(plan_address(plan, i), bucket->dtype,
                            plan->params.list[i].bytes / dtype_size(bucket->dtype), divisor, &sums);
                results->unused[i] = plan->step.mark[i] == MARK_ABSENT;
        }
        results->sum_squares[b] = sums.result;
        results->rank_squares[b] = sums.input;
        results->rank_nonfinite[b] = sums.nonfinite;
}
