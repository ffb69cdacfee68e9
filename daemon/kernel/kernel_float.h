/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of float reductions that depend on the accumulator, written once for both. kernel.c includes this
 * with
 *   ACC, VEC, MASK, ROW   scalar, vector, comparison and row types of the accumulator
 *   VECS, F(name)         vectors of a row; a name with the suffix of the accumulator
 * after having defined, with that suffix, row_load (a row of dtype as accumulators), row_store (to all
 * outputs; returns the row as stored) and row_square. Counts are multiples of KERNEL_LANES.
 */
/* clang-format off */

static INLINE ROW F(row_combine)(unsigned op, ROW a, ROW b) {
        ROW row;
        UNROLL for (unsigned i = 0; i < VECS; i++) {
                MASK take = op == KERNEL_MIN ? (b.v[i] < a.v[i]) | (b.v[i] != b.v[i])
                                             : (b.v[i] > a.v[i]) | (b.v[i] != b.v[i]);
                if (op == KERNEL_ADD)
                        row.v[i] = a.v[i] + b.v[i];
                else if (op == KERNEL_MUL)
                        row.v[i] = a.v[i] * b.v[i];
                else
                        row.v[i] = (VEC)select_u((mask_f)take, (vec_u)b.v[i], (vec_u)a.v[i]);
        }
        return row;
}

/* Gives lanes in which both operands of a fold are NaN one of the two, whichever way round the compiler has
 * combined them. Adding a NaN to itself makes it quiet. */
static INLINE ROW F(row_fix_nan)(unsigned dtype, unsigned op, ROW a, ROW b, ROW row) {
        bool half = dtype == WIRE__DTYPE__F16 || dtype == WIRE__DTYPE__BF16;
        if (!half && op != KERNEL_ADD && op != KERNEL_MUL)
                return row; /* a comparison has chosen the second */
        UNROLL for (unsigned i = 0; i < VECS; i++) {
                VEC stays = half ? a.v[i] : b.v[i], quiet = half ? stays : stays + stays;
                row.v[i] = (VEC)select_u((mask_f)(stays != stays), (vec_u)quiet, (vec_u)row.v[i]);
        }
        return row;
}

static INLINE ROW F(row_scale)(ROW row, ACC scale) {
        UNROLL for (unsigned i = 0; i < VECS; i++)
                row.v[i] *= scale;
        return row;
}

/*
 * Takes `inputs` inputs, from number place->input on, into the scratch: combined with its content, or as its
 * first content. All parameters except the first three are constants in every instance. Prefetching is left
 * to the processor: with prefetches by hand, at whatever distance, the same lines came up to a fifth later
 * where several workers share the memory.
 */
static INLINE void F(pass)(const struct kernel_slice *slice, const struct pass_place *place, ACC *acc,
                           unsigned dtype, unsigned op, unsigned inputs, bool first) {
        const unsigned char *in[KERNEL_GROUP];
        struct row_d lanes[KERNEL_GROUP] = { { { { 0 } } } };
        ACC scale = (ACC)slice->scale;
        UNROLL for (unsigned i = 0; i < inputs; i++)
                in[i] = slice->inputs[place->input + i] + place->from * kernel_bytes(dtype);
        for (size_t at = 0; at < place->count; at += KERNEL_LANES) {
                ROW row = first ? (ROW){ { { 0 } } } : F(row_get)(acc + at);
                UNROLL for (unsigned i = 0; i < inputs; i++) {
                        const unsigned char *from = in[i] + at * kernel_bytes(dtype);
                        ROW value = F(row_load)(dtype, from);
                        F(row_square)(&lanes[i], value);
                        value = op == KERNEL_ADD ? F(row_scale)(value, scale) : value;
                        row = first && i == 0 ? value : F(row_combine)(op, row, value);
                }
                F(row_put)(acc + at, row);
        }
        UNROLL for (unsigned i = 0; i < inputs; i++)
                pass_note(slice, place, i, row_fold(&lanes[i]), dtype);
}

/* Writes the scratch to all outputs, and adds the sum of squares of what was stored. */
static INLINE void F(store)(const struct kernel_slice *slice, const struct pass_place *place, const ACC *acc,
                            unsigned dtype) {
        struct row_d lanes = { { { 0 } } };
        for (size_t at = 0; at < place->count; at += KERNEL_LANES)
                F(row_square)(&lanes, F(row_store)(dtype, slice, (place->from + at) * kernel_bytes(dtype),
                                                   F(row_get)(acc + at)));
        *slice->result_sum += row_fold(&lanes);
}

/*
 * Takes one input, times the scale, into one output that is other memory. No scratch is needed: the value
 * that is measured and stored is the one that was read.
 */
static INLINE void F(through)(const struct kernel_slice *slice, const struct pass_place *place,
                              unsigned dtype) {
        struct row_d read = { { { 0 } } }, stored = { { { 0 } } };
        const unsigned char *in = slice->inputs[0] + place->from * kernel_bytes(dtype);
        ACC scale = (ACC)slice->scale;
        for (size_t at = 0; at < place->count; at += KERNEL_LANES) {
                ROW row = F(row_load)(dtype, in + at * kernel_bytes(dtype));
                F(row_square)(&read, row);
                F(row_square)(&stored, F(row_store)(dtype, slice, (place->from + at) * kernel_bytes(dtype),
                                                    F(row_scale)(row, scale)));
        }
        pass_note(slice, place, 0, row_fold(&read), dtype);
        *slice->result_sum += row_fold(&stored);
}

/* Folds two inputs into one output. No scratch is needed: each row is read before it is written. */
static INLINE void F(fold)(const struct kernel_slice *slice, unsigned dtype, unsigned op) {
        size_t size = kernel_bytes(dtype), end = (slice->first + slice->elements) * size;
        const unsigned char *a = slice->inputs[0], *b = slice->inputs[1];
        unsigned char *output = slice->outputs[0];
        const struct kernel_slice to = { .outputs = &output, .n_outputs = 1 };
        for (size_t at = slice->first * size; at < end; at += KERNEL_LANES * size) {
                ROW x = F(row_load)(dtype, a + at), y = F(row_load)(dtype, b + at);
                F(row_store)(dtype, &to, at, F(row_fix_nan)(dtype, op, x, y, F(row_combine)(op, x, y)));
        }
}

/* Only measures the input. */
static INLINE void F(measure)(const struct kernel_slice *slice, const struct pass_place *place,
                              unsigned dtype) {
        struct row_d lanes = { { { 0 } } };
        const unsigned char *in = slice->inputs[0] + place->from * kernel_bytes(dtype);
        for (size_t at = 0; at < place->count; at += KERNEL_LANES)
                F(row_square)(&lanes, F(row_load)(dtype, in + at * kernel_bytes(dtype)));
        pass_note(slice, place, 0, row_fold(&lanes), dtype);
}

#undef ACC
#undef VEC
#undef MASK
#undef ROW
#undef VECS
#undef F
