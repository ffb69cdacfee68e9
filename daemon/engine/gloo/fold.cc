/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gloo/fold.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if HAVE_FOLD_AVX2
#include <cpuid.h>
#endif

#include "engine/engine.h"
#include "gradsync.pb-c.h"

namespace {

float from_bits(uint32_t bits) {
        float value;

        std::memcpy(&value, &bits, sizeof(value));
        return value;
}

uint32_t to_bits(float value) {
        uint32_t bits;

        std::memcpy(&bits, &value, sizeof(bits));
        return bits;
}

struct Bf16 {
        static float load(uint16_t stored) {
                return from_bits(static_cast<uint32_t>(stored) << 16);
        }
        static uint16_t store(float value) {
                uint32_t bits = to_bits(value);

                if (value != value)
                        return static_cast<uint16_t>(bits >> 16 | 0x40);
                return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
};

struct F16 {
        static float load(uint16_t stored) {
                uint32_t sign = static_cast<uint32_t>(stored & 0x8000) << 16, rest = stored & 0x7fff;

                if (rest >= 0x7c00) /* infinite, or NaN */
                        return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
                if (rest >= 0x400)
                        return from_bits(sign | ((rest << 13) + (112u << 23)));
                float small = static_cast<float>(rest) * 0x1p-24f;
                return from_bits(sign | to_bits(small));
        }
        static uint16_t store(float value) {
                uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;

                if (rest > 0x7f800000)
                        return static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff));
                if (rest >= 0x477ff000) /* rounds to infinity */
                        return static_cast<uint16_t>(sign | 0x7c00);
                if (rest < 0x38800000) { /* subnormal: adding this moves its bits to the end, rounded */
                        float moved = from_bits(rest) + 0.5f;
                        return static_cast<uint16_t>(sign | (to_bits(moved) - to_bits(0.5f)));
                }
                return static_cast<uint16_t>(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
        }
};

/* Conversions between a stored element and the value that is reduced. */
template <typename T> struct Plain {
        static T load(T stored) {
                return stored;
        }
        static T store(T value) {
                return value;
        }
};

template <typename T> struct Sum {
        static T apply(T a, T b) {
                return static_cast<T>(a + b);
        }
};
template <typename T> struct Prod {
        static T apply(T a, T b) {
                return static_cast<T>(a * b);
        }
};
template <typename T> struct Min {
        static T apply(T a, T b) {
                return b < a || b != b ? b : a;
        }
};
template <typename T> struct Max {
        static T apply(T a, T b) {
                return b > a || b != b ? b : a;
        }
};

/* If both are NaN the result has the bits of the first one: a compiler may add either way round, and each set
 * has to do the same. */
template <typename Op> struct FirstNan {
        static float apply(float a, float b) {
                return a != a ? a : Op::apply(a, b);
        }
};

template <typename Stored, typename Form, typename Op>
void fold(void *result, const void *a, const void *b, std::size_t n) {
        const Stored *x = static_cast<const Stored *>(a), *y = static_cast<const Stored *>(b);
        Stored *z = static_cast<Stored *>(result);

        for (std::size_t i = 0; i < n; i++)
                z[i] = Form::store(Op::apply(Form::load(x[i]), Form::load(y[i])));
}

template <typename Stored, typename Form, typename Value> fold_fn choose(unsigned reduce) {
        switch (reduce) {
        case ENGINE_SUM: return fold<Stored, Form, Sum<Value>>;
        case ENGINE_MIN: return fold<Stored, Form, Min<Value>>;
        case ENGINE_MAX: return fold<Stored, Form, Max<Value>>;
        case ENGINE_PROD: return fold<Stored, Form, Prod<Value>>;
        default: return nullptr;
        }
}

template <typename Form> fold_fn choose_half(unsigned reduce) {
        switch (reduce) {
        case ENGINE_SUM: return fold<uint16_t, Form, FirstNan<Sum<float>>>;
        case ENGINE_MIN: return fold<uint16_t, Form, FirstNan<Min<float>>>;
        case ENGINE_MAX: return fold<uint16_t, Form, FirstNan<Max<float>>>;
        case ENGINE_PROD: return fold<uint16_t, Form, FirstNan<Prod<float>>>;
        default: return nullptr;
        }
}

/* Signed integers are added as unsigned ones, which wrap, and compared as signed ones. */
template <typename Signed, typename Unsigned> fold_fn choose_signed(unsigned reduce) {
        if (reduce == ENGINE_SUM || reduce == ENGINE_PROD)
                return choose<Unsigned, Plain<Unsigned>, Unsigned>(reduce);
        return choose<Signed, Plain<Signed>, Signed>(reduce);
}

#if HAVE_FOLD_AVX2
bool has_avx2() {
        unsigned a, b, c = 0, d;

        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#else
bool has_avx2() {
        return false;
}

fold_fn fold_find_avx2(unsigned, unsigned) {
        return nullptr;
}
#endif

} // namespace

const char *fold_best(void) {
        return has_avx2() ? "avx2" : "baseline";
}

fold_fn fold_find(unsigned dtype, unsigned reduce, const char *set) {
        if (set == nullptr)
                set = std::getenv("GRADSYNC_SIMD");
        if (has_avx2() && (set == nullptr || std::strcmp(set, "baseline") != 0)) {
                fold_fn better = fold_find_avx2(dtype, reduce);

                if (better != nullptr)
                        return better;
        }
        switch (dtype) {
        case WIRE__DTYPE__F32: return choose<float, Plain<float>, float>(reduce);
        case WIRE__DTYPE__F64: return choose<double, Plain<double>, double>(reduce);
        case WIRE__DTYPE__F16: return choose_half<F16>(reduce);
        case WIRE__DTYPE__BF16: return choose_half<Bf16>(reduce);
        case WIRE__DTYPE__I32: return choose_signed<int32_t, uint32_t>(reduce);
        case WIRE__DTYPE__I64: return choose_signed<int64_t, uint64_t>(reduce);
        case WIRE__DTYPE__U8: return choose<uint8_t, Plain<uint8_t>, uint8_t>(reduce);
        default: return nullptr;
        }
}

std::size_t fold_size(unsigned dtype) {
        switch (dtype) {
        case WIRE__DTYPE__F32:
        case WIRE__DTYPE__I32: return 4;
        case WIRE__DTYPE__F64:
        case WIRE__DTYPE__I64: return 8;
        case WIRE__DTYPE__F16:
        case WIRE__DTYPE__BF16: return 2;
        case WIRE__DTYPE__U8: return 1;
        default: return 0;
        }
}
