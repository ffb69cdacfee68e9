/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of one element type. grid_types.h includes this with
 *   RAW, ACC, CMP     an element in memory, as accumulated, as compared
 *   LOAD, STORE       conversions between RAW and ACC
 *   EXPONENT          the bits of RAW that are all set in what is not finite; 0: integers
 *   IS_NAN            of an ACC
 *   EXACT             whether the square of any RAW is exact in f64
 *   T(name)           a name with the suffix of the type
 */
/* clang-format off */

#define LANES (GRID_VECTOR / sizeof(RAW))

#ifdef __CUDACC__
struct __align__(16) T(vector) { RAW e[LANES]; };
#else
struct T(vector) { _Alignas(16) RAW e[LANES]; };
#endif

/* min and max: a NaN stays; of equal values the first does. */
DEVICE ACC T(combine)(int operation, ACC a, ACC b) {
        if (operation == GRID_SUM)
                return (ACC)(a + b);
        if (operation == GRID_PRODUCT)
                return (ACC)(a * b);
        if (operation == GRID_LEAST)
                return (CMP)b < (CMP)a || IS_NAN(b) ? b : a;
        return (CMP)b > (CMP)a || IS_NAN(b) ? b : a;
}

DEVICE bool T(is_finite)(RAW raw) {
        uint64_t bits = 0;

        memcpy(&bits, &raw, sizeof(raw));
        return EXPONENT == 0 || (bits & EXPONENT) != EXPONENT;
}

DEVICE double T(square)(RAW raw, double sum) {
        double value = (double)LOAD(raw);

#ifdef __CUDACC__
        return EXACT ? __fma_rn(value, value, sum) : sum + value * value;
#else
        return sum + value * value;
#endif
}

/* So many elements, from element `at` of the part on: a vector, or one. Adds to the sums of their squares. */
DEVICE void T(unit)(const struct grid_launch *launch, const struct grid_part *part, uint64_t at,
                    unsigned lanes, unsigned from, int operation, unsigned k, bool first, bool last,
                    ACC *kept, struct grid_tally *sums) {
        const uint64_t *input = launch->address + part->inputs + from;
        ACC scale = (ACC)part->scale, acc[LANES];
        struct T(vector) in[GRID_GROUP], out;

        UNROLL for (unsigned e = 0; e < lanes; e++)
                acc[e] = first ? (ACC)0 : kept[e];
        UNROLL for (unsigned i = 0; i < k; i++)
                if (lanes == LANES)
                        in[i] = *POINTER(const struct T(vector), input[i] + at * sizeof(RAW));
                else
                        in[i].e[0] = *POINTER(const RAW, input[i] + at * sizeof(RAW));
        UNROLL for (unsigned i = 0; i < k; i++)
                UNROLL for (unsigned e = 0; e < lanes; e++) {
                        ACC value = LOAD(in[i].e[e]);
                        sums->squares[i] = T(square)(in[i].e[e], sums->squares[i]);
                        if (operation == GRID_SUM && EXPONENT != 0)
                                value = (ACC)(value * scale);
                        acc[e] = i == 0 && first ? value : T(combine)(operation, acc[e], value);
                }
        UNROLL for (unsigned i = 0; i < k && EXPONENT != 0; i++)
                if (!(sums->squares[i] - sums->squares[i] == 0))
                        UNROLL for (unsigned e = 0; e < lanes; e++)
                                sums->nonfinite[i] += !T(is_finite)(in[i].e[e]);
        UNROLL for (unsigned e = 0; e < lanes; e++) {
                if (!last) {
                        kept[e] = acc[e];
                        continue;
                }
                out.e[e] = operation == GRID_COPY ? in[0].e[e] : STORE(acc[e]);
                sums->result = T(square)(out.e[e], sums->result);
        }
        NO_UNROLL for (unsigned o = 0; o < part->n_outputs && last; o++) {
                uint64_t to = launch->address[part->outputs + o] + at * sizeof(RAW);
                if (lanes == LANES)
                        *POINTER(struct T(vector), to) = out;
                else
                        *POINTER(RAW, to) = out.e[0];
        }
}

/*
 * One thread's vectors of a round, starting with element `begin` of the part: takes k inputs from number
 * `from` on. `kept` holds its accumulators between passes that are not the only one; the last one writes the
 * outputs. All but the part, the places and the booleans are constants in every instance.
 */
DEVICE void T(pass)(const struct grid_launch *launch, const struct grid_part *part, unsigned thread,
                    uint64_t begin, unsigned from, int operation, unsigned k, bool first, bool last,
                    ACC *kept, struct grid_tally *tally) {
        NO_UNROLL for (unsigned v = 0; v < GRID_VECTORS; v++) {
                uint64_t at = begin + ((uint64_t)v * GRID_THREADS + thread) * LANES;
                struct grid_tally sums = { 0 };
                ACC *mine = kept == NULL ? NULL : kept + v * LANES;

                if (at >= part->elements)
                        break;
                if (part->aligned && part->elements - at >= LANES)
                        T(unit)(launch, part, at, LANES, from, operation, k, first, last, mine, &sums);
                else
                        NO_UNROLL for (unsigned e = 0; e < LANES && at + e < part->elements; e++)
                                T(unit)(launch, part, at + e, 1, from, operation, k, first, last,
                                        mine == NULL ? NULL : mine + e, &sums);
                tally->result += sums.result;
                UNROLL for (unsigned i = 0; i < k; i++) {
                        tally->squares[i] += sums.squares[i];
                        tally->nonfinite[i] += sums.nonfinite[i];
                }
        }
}

DEVICE void T(clear)(struct grid_tally *tally) {
        struct grid_tally empty = { 0 };

        EACH_THREAD {
                MINE(tally) = empty;
        }
}

/* One chunk of a part whose inputs are all read in one pass. */
DEVICE void T(chunk)(const struct grid_launch *launch, const struct grid_part *part, uint64_t begin,
                     uint64_t *words, int operation, unsigned k) {
        struct grid_tally tally[OWN];

        T(clear)(tally);
        NO_UNROLL for (unsigned r = 0; r < part->rounds; r++, begin += GRID_ROUND_BYTES / sizeof(RAW)) {
                EACH_THREAD {
                        T(pass)(launch, part, THREAD, begin, 0, operation, k, true, true, NULL, &MINE(tally));
                }
        }
        if (EXPONENT != 0)
                grid_fold(tally, words, 0, k, k, true);
}

/* One of any number of inputs: some at a time, round by round. */
DEVICE void T(chunk_any)(const struct grid_launch *launch, const struct grid_part *part, uint64_t begin,
                         uint64_t *words, int operation) {
        struct grid_tally tally[OWN];
        ACC kept[OWN][GRID_VECTORS * LANES];
        unsigned n = part->n_inputs;

        NO_UNROLL for (unsigned r = 0; r < part->rounds; r++, begin += GRID_ROUND_BYTES / sizeof(RAW))
                NO_UNROLL for (unsigned from = 0, k; from < n; from += k) {
                        bool wide = operation == GRID_SUM && n - from >= GRID_GROUP;
                        k = wide ? GRID_GROUP : 1;
                        T(clear)(tally);
                        EACH_THREAD {
                                if (wide)
                                        T(pass)(launch, part, THREAD, begin, from, operation, GRID_GROUP,
                                                from == 0, from + k == n, MINE(kept), &MINE(tally));
                                else
                                        T(pass)(launch, part, THREAD, begin, from, operation, 1, from == 0,
                                                from + k == n, MINE(kept), &MINE(tally));
                        }
                        if (EXPONENT != 0)
                                grid_fold(tally, words, from, k, n, r == 0);
                }
}

/* The first element of a chunk that is not finite. */
DEVICE void T(chunk_find)(const struct grid_launch *launch, const struct grid_part *part, uint64_t begin,
                          uint64_t *words) {
        uint64_t end = begin + (uint64_t)part->rounds * GRID_ROUND_BYTES / sizeof(RAW);
        const RAW *from = POINTER(const RAW, launch->address[part->inputs]);
        uint64_t found[OWN];

        end = end < part->elements ? end : part->elements;
        EACH_THREAD {
                uint64_t at = begin + THREAD;
                while (at < end && T(is_finite)(from[at]))
                        at += GRID_THREADS;
                MINE(found) = at < end ? at : UINT64_MAX;
        }
        grid_fold_least(found, words);
}

DEVICE void T(block)(const struct grid_launch *launch, unsigned block, unsigned blocks, int operation,
                     unsigned k) {
        const struct grid_part *part = launch->part;

        for (uint32_t chunk = block; chunk < launch->n_chunks; chunk += blocks) {
                while (chunk >= part->chunk + part->n_chunks)
                        part++;
                uint64_t number = chunk - part->chunk,
                         begin = number * part->rounds * GRID_ROUND_BYTES / sizeof(RAW);
                uint64_t *words = POINTER(uint64_t, launch->scratch) + part->scratch +
                                  number * GRID_WORDS(part->n_inputs);
                if (operation == GRID_FIND)
                        T(chunk_find)(launch, part, begin, words);
                else if (k == 0)
                        T(chunk_any)(launch, part, begin, words, operation);
                else
                        T(chunk)(launch, part, begin, words, operation, k > 0 ? k : 1);
        }
}

#undef RAW
#undef ACC
#undef CMP
#undef LOAD
#undef STORE
#undef EXPONENT
#undef IS_NAN
#undef EXACT
#undef T
#undef LANES
