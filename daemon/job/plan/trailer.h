/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows the elements of a bucket on their way between nodes, as more elements of the same type: for
 * each parameter of the bucket, how many nodes have members that used it. An engine adds it up with the
 * rest, so it needs no collective of its own, and a node that gives only zeros has used nothing. Its size
 * depends on the plan only. It knows memory, neither jobs nor engines.
 *
 * Every number is small enough to be exact in the type. In U8 a count of 256 nodes would be 0, which is more
 * than an engine connects.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trailer {
        unsigned dtype;  /* WIRE__DTYPE__…, of the bucket */
        uint32_t params; /* that it has */
        unsigned char *at;
};

/* How many it has; `at` is not looked at. */
uint64_t trailer_elements(const struct trailer *trailer);
/* The members here have used all parameters except those in the map; NULL: all. */
void trailer_put_used(const struct trailer *trailer, const uint8_t *absent);
/* Takes out of the map the parameters that some node has used. */
void trailer_get_used(const struct trailer *trailer, uint8_t *absent);
