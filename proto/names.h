/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about data types, reductions and names that both sides must agree on. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of one element, 0 for an unknown type (numbers of Wire__Dtype). */
size_t dtype_size(unsigned dtype);
const char *dtype_name(unsigned dtype); /* "f32", …, "?" */
bool dtype_is_float(unsigned dtype);
const char *reduce_name(unsigned reduce);           /* "avg", …, "?" */
bool reduce_valid(unsigned reduce, unsigned dtype); /* avg needs a float */
const char *operation_name(unsigned kind);          /* "broadcast", …, "?" */
const char *code_name(unsigned code);               /* "MEMBER_LOST", …, "?" */
const char *cause_name(unsigned cause);             /* why a generation ended: "growth", "exited", …, "?" */

/* Elements of a shape; false on overflow, a zero dimension or more than LIMIT_DIMS dimensions. A scalar has 0
 * dimensions and 1 element. */
bool shape_elements(const uint64_t *shape, size_t dims, uint64_t *ret);

/* UTF-8 (no overlong forms, no surrogates), 1..LIMIT_NAME bytes, no control characters (C0, DEL, C1). */
bool name_valid(const char *name);
bool name_valid_job(const char *name); /* and without '/' */
/* Whether this code point is a control character, a separator of lines or paragraphs, invisible, or turns
 * the direction of writing: shown to a person as it is, it could make a text look like another one. */
bool text_is_deceptive(uint32_t point);
bool utf8_valid(const char *text, size_t length);
/* Removes an incomplete character from the end of a text that was cut. */
void utf8_cut(char *text);
/* The first code point of at most `length` (>= 1) bytes. Returns its bytes, or 0 if it is not well-formed. */
size_t utf8_decode(const char *text, size_t length, uint32_t *ret);
