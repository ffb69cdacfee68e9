/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of 16-bit floats with AVX2 and F16C: compiled for these, and used if the CPU has them. */
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "engine/engine.h"
#include "engine/gloo/fold.h"
#include "gradsync.pb-c.h"

namespace {

const size_t kRow = 16; /* elements */

struct Row {
        __m256 low, high;
};

__m128i *half_of(uint16_t *at, unsigned which) {
        return reinterpret_cast<__m128i *>(at) + which;
}

__m128i read_half(const uint16_t *at, unsigned which) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(at) + which);
}

__m256 is_nan(__m256 v) {
        return _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
}

struct F16 {
        static Row load(const uint16_t *at) {
                return { _mm256_cvtph_ps(read_half(at, 0)), _mm256_cvtph_ps(read_half(at, 1)) };
        }
        static void store(uint16_t *at, const Row &row) {
                _mm_storeu_si128(half_of(at, 0), _mm256_cvtps_ph(row.low, _MM_FROUND_TO_NEAREST_INT));
                _mm_storeu_si128(half_of(at, 1), _mm256_cvtps_ph(row.high, _MM_FROUND_TO_NEAREST_INT));
        }
};

struct Bf16 {
        static Row load(const uint16_t *at) {
                return { widen(read_half(at, 0)), widen(read_half(at, 1)) };
        }
        static void store(uint16_t *at, const Row &row) {
                __m256i packed = _mm256_packus_epi32(narrow(row.low), narrow(row.high));

                /* The instruction has packed each half of the registers on its own. */
                _mm256_storeu_si256(reinterpret_cast<__m256i *>(at),
                                    _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
        }

      private:
        static __m256 widen(__m128i stored) {
                return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
        }
        static __m256i narrow(__m256 value) {
                __m256i bits = _mm256_castps_si256(value), top = _mm256_srli_epi32(bits, 16);
                __m256i even = _mm256_and_si256(top, _mm256_set1_epi32(1));
                __m256i bias = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
                __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
                __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));

                return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan(value)));
        }
};

struct Sum {
        static __m256 apply(__m256 a, __m256 b) {
                return _mm256_add_ps(a, b);
        }
};
struct Prod {
        static __m256 apply(__m256 a, __m256 b) {
                return _mm256_mul_ps(a, b);
        }
};
/* If both are equal the result is the first one, as for the baseline: the instructions return the second
 * operand then, or if any is a NaN. */
struct Min {
        static __m256 apply(__m256 a, __m256 b) {
                return _mm256_blendv_ps(_mm256_min_ps(b, a), b, is_nan(b));
        }
};
struct Max {
        static __m256 apply(__m256 a, __m256 b) {
                return _mm256_blendv_ps(_mm256_max_ps(b, a), b, is_nan(b));
        }
};

/* If both are NaN the result has the bits of the first one. */
template <typename Op> __m256 combine(__m256 a, __m256 b) {
        return _mm256_blendv_ps(Op::apply(a, b), a, is_nan(a));
}

template <typename Form, typename Op> void fold_row(uint16_t *z, const uint16_t *x, const uint16_t *y) {
        Row a = Form::load(x), b = Form::load(y);

        Form::store(z, { combine<Op>(a.low, b.low), combine<Op>(a.high, b.high) });
}

template <typename Form, typename Op> void fold(void *result, const void *a, const void *b, size_t n) {
        const uint16_t *x = static_cast<const uint16_t *>(a), *y = static_cast<const uint16_t *>(b);
        uint16_t *z = static_cast<uint16_t *>(result), rest[2][kRow] = {};
        size_t odd = n % kRow, at = 0;

        for (; at + kRow <= n; at += kRow)
                fold_row<Form, Op>(z + at, x + at, y + at);
        if (odd == 0)
                return;
        std::memcpy(rest[0], x + at, odd * sizeof(*x));
        std::memcpy(rest[1], y + at, odd * sizeof(*y));
        fold_row<Form, Op>(rest[0], rest[0], rest[1]);
        std::memcpy(z + at, rest[0], odd * sizeof(*z));
}

template <typename Form> fold_fn choose(unsigned reduce) {
        switch (reduce) {
        case ENGINE_SUM: return fold<Form, Sum>;
        case ENGINE_MIN: return fold<Form, Min>;
        case ENGINE_MAX: return fold<Form, Max>;
        case ENGINE_PROD: return fold<Form, Prod>;
        default: return nullptr;
        }
}

} // namespace

fold_fn fold_find_avx2(unsigned dtype, unsigned reduce) {
        if (dtype == WIRE__DTYPE__F16)
                return choose<F16>(reduce);
        return dtype == WIRE__DTYPE__BF16 ? choose<Bf16>(reduce) : nullptr;
}
