/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trailer follows the elements of a bucket on their way between nodes, as more elements of the same type.
 * It has, for each parameter of a sum or an average, how many nodes have members that used it; then, if the
 * type is a float, the measures of each rank's input. An engine reduces it with the rest, so it needs no
 * collective of its own, and a node that gives only neutral elements has used nothing, and has no rank. Its
 * size depends on the plan and the world only. This file knows memory, but neither jobs nor engines.
 *
 * Every number is small enough to be exact in the type: a larger one is cut into digits, which only the node
 * that has the rank gives. In U8 a count of 256 nodes would be 0, but no engine connects that many.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trailer {
        unsigned dtype, reduce; /* WIRE__DTYPE__…, WIRE__REDUCE__…, of the bucket */
        uint32_t params;        /* that it has and that can be absent */
        uint32_t world;         /* ranks */
        unsigned char *at;
};

/* The number of its elements; `at` is not used. */
uint64_t trailer_elements(const struct trailer *trailer);
/* Before anything else is put into it. */
void trailer_clear(const struct trailer *trailer);
/* The members here have used all parameters except those in the map; NULL: all. */
void trailer_put_used(const struct trailer *trailer, const uint8_t *absent);
/* Takes out of the map the parameters that some node has used. */
void trailer_get_used(const struct trailer *trailer, uint8_t *absent);
/* Whether it has room for the measures of ranks. */
bool trailer_has_ranks(const struct trailer *trailer);
/* Counts above UINT32_MAX become that. */
void trailer_put_rank(const struct trailer *trailer, uint32_t rank, double sum_squares, uint64_t count);
void trailer_get_rank(const struct trailer *trailer, uint32_t rank, double *ret_sum_squares,
                      uint64_t *ret_count);
