/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of JSON. An absent value, and one that JSON has no word for (nan, inf), becomes null. Each function
 * returns a new reference, or NULL if memory is short; a NULL among the values of an object or an array makes
 * the whole NULL.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

json_t *value_text(const char *text);       /* null for NULL; bytes that are not UTF-8 are shown as \xNN */
json_t *value_known_text(const char *text); /* null for "" too, which says as little */
json_t *value_number(uint64_t number);
json_t *value_whole(bool present, uint64_t number);
json_t *value_signed(bool present, int64_t number);
json_t *value_real(bool present, double number);
json_t *value_ms(bool present, uint64_t us);

struct value_field {
        const char *key;
        json_t *value;
};

/* An object of these fields, in this order; the last one has no key. Takes the values. */
json_t *value_object(const struct value_field *fields);
/* The same in short: OBJECT(AS("key", value), …). */
#define OBJECT(...) value_object((const struct value_field[]){ __VA_ARGS__, { 0 } })
#define AS(key, value)                                                                                       \
        { key, value }
/* Adds to an array; takes the value. A spoiled array becomes NULL. */
void value_append(json_t **array, json_t *value);
