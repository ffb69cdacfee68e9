/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of kernels, for the instruction set that the compiler's flags name; KERNEL_SET is that set's name.
 * Integers and copies are plain loops that the compiler vectorises: their result does not depend on how.
 * Floats are in kernel_float.h.
 */
#include "kernel/kernel_simd.h"

#define KERNEL_GROUP 4u /* inputs read side by side */

#define NOINLINE __attribute__((noinline))

/* Folds to a constant, because every caller's dtype is one. */
static INLINE size_t kernel_bytes(unsigned dtype) {
        return dtype == WIRE__DTYPE__F64 || dtype == WIRE__DTYPE__I64   ? 8
               : dtype == WIRE__DTYPE__F32 || dtype == WIRE__DTYPE__I32 ? 4
               : dtype == WIRE__DTYPE__U8                               ? 1
                                                                        : 2;
}

#define COUNT(type, mask)                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                 \
                type bits;                                                                                   \
                memcpy(&bits, from + i * sizeof bits, sizeof bits);                                          \
                found += (bits & (mask)) == (mask);                                                          \
        }

/* Counts NaNs and infinities, which have all bits of the exponent set. Rare, so not fast. */
static NOINLINE uint64_t kernel_count_nonfinite(unsigned dtype, const unsigned char *from, size_t count) {
        uint64_t found = 0;
        if (dtype == WIRE__DTYPE__F64)
                COUNT(uint64_t, UINT64_C(0x7ff0000000000000))
        else if (dtype == WIRE__DTYPE__F32)
                COUNT(uint32_t, 0x7f800000u)
        else if (dtype == WIRE__DTYPE__F16)
                COUNT(uint16_t, 0x7c00)
        else
                COUNT(uint16_t, 0x7f80)
        return found;
}

/* Finds the first element that is not finite. Blocks are counted first, which is fast, since a count does not
 * depend on what comes first. */
static INLINE void slice_find(const struct kernel_slice *slice, unsigned dtype) {
        size_t end = slice->first + slice->elements, size = kernel_bytes(dtype);
        for (size_t at = slice->first; at < end; at += KERNEL_BLOCK) {
                size_t count = end - at < KERNEL_BLOCK ? end - at : KERNEL_BLOCK;
                const unsigned char *from = slice->inputs[0] + at * size;
                if (kernel_count_nonfinite(dtype, from, count) == 0)
                        continue;
                for (size_t i = 0; i < count; i++)
                        if (kernel_count_nonfinite(dtype, from + i * size, 1) > 0) {
                                *slice->found = at + i;
                                return;
                        }
        }
}

/* One block of a slice, and the first input that a pass takes. */
struct pass_place {
        unsigned input;
        size_t from, count;
};

/* Notes the sum of squares of one input's block. If it is not finite the block is looked through; it is still
 * as it was read. */
static INLINE void pass_note(const struct kernel_slice *slice, const struct pass_place *place, unsigned i,
                             double sum, unsigned dtype) {
        slice->input_sums[place->input + i] += sum;
        if (!__builtin_isfinite(sum))
                slice->input_nonfinite[place->input + i] +=
                        kernel_count_nonfinite(dtype,
                                               slice->inputs[place->input + i] +
                                                       place->from * kernel_bytes(dtype),
                                               place->count);
}

/* ---- accumulators of f32 ---- */

static INLINE struct row_f row_load_f(unsigned dtype, const unsigned char *from) {
        if (dtype == WIRE__DTYPE__F16)
                return row_from_f16(row_get_h(from));
        if (dtype == WIRE__DTYPE__BF16)
                return row_from_bf16(row_get_h(from));
        return row_get_f(from);
}

#define ROW_OUT(suffix, row)                                                                                 \
        for (unsigned i = 0; i < slice->n_outputs; i++)                                                      \
                if (slice->uncached)                                                                         \
                        row_stream_##suffix(slice->outputs[i] + offset, row);                                \
                else                                                                                         \
                        row_put_##suffix(slice->outputs[i] + offset, row);

static INLINE struct row_f row_store_f(unsigned dtype, const struct kernel_slice *slice, size_t offset,
                                       struct row_f row) {
        if (dtype == WIRE__DTYPE__F32) {
                ROW_OUT(f, row)
                return row;
        }
        struct row_h packed = dtype == WIRE__DTYPE__F16 ? row_to_f16(row) : row_to_bf16(row);
        ROW_OUT(h, packed)
        return dtype == WIRE__DTYPE__F16 ? row_from_f16(packed) : row_from_bf16(packed);
}

#define ACC float
#define VEC vec_f
#define MASK mask_f
#define ROW struct row_f
#define VECS VECS_F
#define F(name) name##_f
#include "kernel/kernel_float.h"

/* ---- accumulators of f64 ---- */

static INLINE struct row_d row_load_d(unsigned dtype __attribute__((unused)), const unsigned char *from) {
        return row_get_d(from);
}

static INLINE struct row_d row_store_d(unsigned dtype __attribute__((unused)),
                                       const struct kernel_slice *slice, size_t offset, struct row_d row) {
        ROW_OUT(d, row)
        return row;
}

#define ACC double
#define VEC vec_d
#define MASK mask_d
#define ROW struct row_d
#define VECS VECS_D
#define F(name) name##_d
#include "kernel/kernel_float.h"

/* ---- floats ---- */

typedef void (*pass_fn)(const struct kernel_slice *slice, const struct pass_place *place, void *acc);
typedef void (*place_fn)(const struct kernel_slice *slice, const struct pass_place *place);

/* The passes of one float type. Sums are needed in nearly all cases, so they read two or four inputs side by
 * side. */
struct passes {
        pass_fn first[KERNEL_OPS], more[KERNEL_OPS]; /* one input */
        pass_fn first2, first4, more2;               /* several, added */
        pass_fn store;
        place_fn through, measure;
};

#define PASS(name, dtype, op, inputs, is_first, suffix)                                                      \
        static NOINLINE void name(const struct kernel_slice *slice, const struct pass_place *place,          \
                                  void *acc) {                                                               \
                pass_##suffix(slice, place, acc, dtype, op, inputs, is_first);                               \
        }
#define PLACE(name, function, dtype)                                                                         \
        static NOINLINE void name(const struct kernel_slice *slice, const struct pass_place *place) {        \
                function(slice, place, dtype);                                                               \
        }
#define PASSES(name, dtype, suffix)                                                                          \
        PASS(first_add_##name, dtype, KERNEL_ADD, 1, true, suffix)                                           \
        PASS(first_##name, dtype, KERNEL_MUL, 1, true, suffix)                                               \
        PASS(more_add_##name, dtype, KERNEL_ADD, 1, false, suffix)                                           \
        PASS(more_mul_##name, dtype, KERNEL_MUL, 1, false, suffix)                                           \
        PASS(more_min_##name, dtype, KERNEL_MIN, 1, false, suffix)                                           \
        PASS(more_max_##name, dtype, KERNEL_MAX, 1, false, suffix)                                           \
        PASS(first2_##name, dtype, KERNEL_ADD, 2, true, suffix)                                              \
        PASS(first4_##name, dtype, KERNEL_ADD, 4, true, suffix)                                              \
        PASS(more2_##name, dtype, KERNEL_ADD, 2, false, suffix)                                              \
        PLACE(through_##name, through_##suffix, dtype)                                                       \
        PLACE(measure_##name, measure_##suffix, dtype)                                                       \
        static NOINLINE void store_##name(const struct kernel_slice *slice, const struct pass_place *place,  \
                                          void *acc) {                                                       \
                store_##suffix(slice, place, acc, dtype);                                                    \
        }                                                                                                    \
        static const struct passes passes_##name = {                                                         \
                .first = { first_add_##name, first_##name, first_##name, first_##name },                     \
                .more = { more_add_##name, more_mul_##name, more_min_##name, more_max_##name },              \
                .first2 = first2_##name,                                                                     \
                .first4 = first4_##name,                                                                     \
                .more2 = more2_##name,                                                                       \
                .store = store_##name,                                                                       \
                .through = through_##name,                                                                   \
                .measure = measure_##name,                                                                   \
        };

PASSES(f32, WIRE__DTYPE__F32, f)
PASSES(f16, WIRE__DTYPE__F16, f)
PASSES(bf16, WIRE__DTYPE__BF16, f)
PASSES(f64, WIRE__DTYPE__F64, d)

/* Reads all inputs of one block, in their order. */
static INLINE void block_load(const struct passes *passes, const struct kernel_slice *slice,
                              struct pass_place place, unsigned op, void *acc) {
        unsigned n = slice->n_inputs, wide = op != KERNEL_ADD || n < 2 ? 1 : n < 4 ? 2 : 4;
        (wide == 4 ? passes->first4 : wide == 2 ? passes->first2 : passes->first[op])(slice, &place, acc);
        for (place.input = wide; op == KERNEL_ADD && place.input + 2 <= n; place.input += 2)
                passes->more2(slice, &place, acc);
        for (; place.input < n; place.input++)
                passes->more[op](slice, &place, acc);
}

/*
 * A block of the result is made in a scratch in the first-level cache while the inputs stream through, and is
 * written to the outputs afterwards. So every member receives one and the same value whatever happens to the
 * shared inputs meanwhile. The inputs are also still unmodified when a block turns out to hold an element
 * that is not finite, and must be counted.
 */
static void slice_reduce(const struct passes *passes, const struct kernel_slice *slice, unsigned op) {
        _Alignas(64) double acc[KERNEL_BLOCK];
        size_t end = slice->first + slice->elements;
        bool through = op == KERNEL_ADD && slice->n_inputs == 1 && slice->n_outputs == 1 &&
                       slice->inputs[0] != slice->outputs[0];
        for (size_t at = slice->first; at < end; at += KERNEL_BLOCK) {
                struct pass_place place = { 0, at, end - at < KERNEL_BLOCK ? end - at : KERNEL_BLOCK };
                if (through) {
                        passes->through(slice, &place);
                        continue;
                }
                block_load(passes, slice, place, op, acc);
                passes->store(slice, &place, acc);
        }
}

/* ---- integers and bytes ---- */

/* Writes a block, as much of it as possible around the caches if the slice asks for that. */
static INLINE void block_put(const struct kernel_slice *slice, unsigned char *to, const unsigned char *from,
                             size_t bytes) {
        size_t at = 0;
        for (; slice->uncached && at + KERNEL_LINE <= bytes; at += KERNEL_LINE)
                row_stream_f(to + at, row_get_f(from + at));
        memcpy(to + at, from + at, bytes - at);
}

/* One block of one operation: arithmetic on the unsigned type wraps, comparison is on the type itself. */
#define INTEGER_OP(type, wide, name, expression)                                                             \
        static void name(const struct kernel_slice *slice) {                                                 \
                _Alignas(64) type acc[KERNEL_BLOCK];                                                         \
                size_t end = slice->first + slice->elements;                                                 \
                for (size_t at = slice->first; at < end; at += KERNEL_BLOCK) {                               \
                        size_t count = end - at < KERNEL_BLOCK ? end - at : KERNEL_BLOCK;                    \
                        memcpy(acc, slice->inputs[0] + at * sizeof(type), count * sizeof(type));             \
                        for (unsigned i = 1; i < slice->n_inputs; i++) {                                     \
                                const type *in = (const type *)(const void *)slice->inputs[i] + at;          \
                                for (size_t j = 0; j < count; j++) {                                         \
                                        type a = acc[j], b = in[j];                                          \
                                        acc[j] = (type)(expression);                                         \
                                }                                                                            \
                        }                                                                                    \
                        for (unsigned i = 0; i < slice->n_outputs; i++)                                      \
                                block_put(slice, slice->outputs[i] + at * sizeof(type),                      \
                                          (const unsigned char *)acc, count * sizeof(type));                 \
                }                                                                                            \
        }                                                                                                    \
        static void fold_##name(const struct kernel_slice *slice) {                                          \
                size_t from = slice->first * sizeof(type), end = from + slice->elements * sizeof(type);      \
                const unsigned char *first = slice->inputs[0], *second = slice->inputs[1];                   \
                unsigned char *to = slice->outputs[0];                                                       \
                for (size_t at = from; at < end; at += sizeof(type)) {                                       \
                        type a, b;                                                                           \
                        memcpy(&a, first + at, sizeof(a));                                                   \
                        memcpy(&b, second + at, sizeof(b));                                                  \
                        a = (type)(expression);                                                              \
                        memcpy(to + at, &a, sizeof(a));                                                      \
                }                                                                                            \
        }

#define INTEGER(type, wide)                                                                                  \
        INTEGER_OP(type, wide, add_##type, (wide)a + (wide)b)                                                \
        INTEGER_OP(type, wide, mul_##type, (wide)a *(wide)b)                                                 \
        INTEGER_OP(type, wide, min_##type, b < a ? b : a)                                                    \
        INTEGER_OP(type, wide, max_##type, b > a ? b : a)

INTEGER(int32_t, uint32_t)
INTEGER(int64_t, uint64_t)
INTEGER(uint8_t, uint8_t)

/* ---- copies ---- */

#define COPY_BLOCK 4096u /* bytes: read once, written to every output; stays in the first-level cache */

static INLINE void kernel_copy_bytes(const struct kernel_slice *slice, size_t first, size_t elements,
                                     size_t size) {
        _Alignas(64) unsigned char block[COPY_BLOCK];
        size_t bytes = elements * size;
        for (size_t at = 0; at < bytes; at += COPY_BLOCK) {
                const unsigned char *from = slice->inputs[0] + first * size + at;
                size_t count = bytes - at < COPY_BLOCK ? bytes - at : COPY_BLOCK;
                /* All outputs get the same bytes, whatever the input's owner writes meanwhile. */
                if (slice->n_outputs > 1)
                        from = memcpy(block, from, count);
                for (unsigned i = 0; i < slice->n_outputs; i++)
                        if (slice->outputs[i] != slice->inputs[0])
                                block_put(slice, slice->outputs[i] + first * size + at, from, count);
        }
}

/* Copies the only input, and measures it block by block meanwhile. The result has the same statistics. */
static void slice_copy(const struct passes *passes, const struct kernel_slice *slice, size_t size) {
        size_t end = slice->first + slice->elements;
        for (size_t at = slice->first; at < end; at += KERNEL_BLOCK) {
                struct pass_place place = { 0, at, end - at < KERNEL_BLOCK ? end - at : KERNEL_BLOCK };
                passes->measure(slice, &place);
                kernel_copy_bytes(slice, at, place.count, size);
        }
        *slice->result_sum = slice->input_sums[0];
}

#define COPY_FLOAT(name, dtype)                                                                              \
        static void copy_##name(const struct kernel_slice *slice) {                                          \
                if (slice->measure)                                                                          \
                        slice_copy(&passes_##name, slice, kernel_bytes(dtype));                              \
                else                                                                                         \
                        kernel_copy_bytes(slice, slice->first, slice->elements, kernel_bytes(dtype));        \
        }
#define COPY_INTEGER(name, dtype)                                                                            \
        static void name(const struct kernel_slice *slice) {                                                 \
                kernel_copy_bytes(slice, slice->first, slice->elements, kernel_bytes(dtype));                \
        }

COPY_FLOAT(f32, WIRE__DTYPE__F32)
COPY_FLOAT(f64, WIRE__DTYPE__F64)
COPY_FLOAT(f16, WIRE__DTYPE__F16)
COPY_FLOAT(bf16, WIRE__DTYPE__BF16)
COPY_INTEGER(copy_i32, WIRE__DTYPE__I32)
COPY_INTEGER(copy_i64, WIRE__DTYPE__I64)
COPY_INTEGER(copy_u8, WIRE__DTYPE__U8)

/* ---- searches ---- */

#define FIND(name, dtype)                                                                                    \
        static void find_##name(const struct kernel_slice *slice) {                                          \
                slice_find(slice, dtype);                                                                    \
        }

FIND(f32, WIRE__DTYPE__F32)
FIND(f64, WIRE__DTYPE__F64)
FIND(f16, WIRE__DTYPE__F16)
FIND(bf16, WIRE__DTYPE__BF16)

/* ---- the table ---- */

#define FLOAT_OP(op, name, kernel_op, dtype, suffix)                                                         \
        static void op##_##name(const struct kernel_slice *slice) {                                          \
                slice_reduce(&passes_##name, slice, kernel_op);                                              \
        }                                                                                                    \
        static void fold_##op##_##name(const struct kernel_slice *slice) {                                   \
                fold_##suffix(slice, dtype, kernel_op);                                                      \
        }
#define FLOAT(name, dtype, suffix)                                                                           \
        FLOAT_OP(add, name, KERNEL_ADD, dtype, suffix)                                                       \
        FLOAT_OP(mul, name, KERNEL_MUL, dtype, suffix)                                                       \
        FLOAT_OP(min, name, KERNEL_MIN, dtype, suffix)                                                       \
        FLOAT_OP(max, name, KERNEL_MAX, dtype, suffix)

FLOAT(f32, WIRE__DTYPE__F32, f)
FLOAT(f16, WIRE__DTYPE__F16, f)
FLOAT(bf16, WIRE__DTYPE__BF16, f)
FLOAT(f64, WIRE__DTYPE__F64, d)

#define OPS(prefix, name)                                                                                    \
        {                                                                                                    \
                [KERNEL_ADD] = prefix##add_##name, [KERNEL_MUL] = prefix##mul_##name,                        \
                [KERNEL_MIN] = prefix##min_##name, [KERNEL_MAX] = prefix##max_##name                         \
        }
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

const struct kernel_set PASTE(kernel_set_, KERNEL_SET) = {
        .name = TEXT(KERNEL_SET),
        .reduce = {
                [WIRE__DTYPE__F32] = OPS(, f32),
                [WIRE__DTYPE__F64] = OPS(, f64),
                [WIRE__DTYPE__F16] = OPS(, f16),
                [WIRE__DTYPE__BF16] = OPS(, bf16),
                [WIRE__DTYPE__I32] = OPS(, int32_t),
                [WIRE__DTYPE__I64] = OPS(, int64_t),
                [WIRE__DTYPE__U8] = OPS(, uint8_t),
        },
        .fold = {
                [WIRE__DTYPE__F32] = OPS(fold_, f32),
                [WIRE__DTYPE__F64] = OPS(fold_, f64),
                [WIRE__DTYPE__F16] = OPS(fold_, f16),
                [WIRE__DTYPE__BF16] = OPS(fold_, bf16),
                [WIRE__DTYPE__I32] = OPS(fold_, int32_t),
                [WIRE__DTYPE__I64] = OPS(fold_, int64_t),
                [WIRE__DTYPE__U8] = OPS(fold_, uint8_t),
        },
        .copy = {
                [WIRE__DTYPE__F32] = copy_f32,
                [WIRE__DTYPE__F64] = copy_f64,
                [WIRE__DTYPE__F16] = copy_f16,
                [WIRE__DTYPE__BF16] = copy_bf16,
                [WIRE__DTYPE__I32] = copy_i32,
                [WIRE__DTYPE__I64] = copy_i64,
                [WIRE__DTYPE__U8] = copy_u8,
        },
        .find = {
                [WIRE__DTYPE__F32] = find_f32,
                [WIRE__DTYPE__F64] = find_f64,
                [WIRE__DTYPE__F16] = find_f16,
                [WIRE__DTYPE__BF16] = find_bf16,
        },
};
