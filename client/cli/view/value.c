// SPDX-License-Identifier: Apache-2.0
/* Values of JSON: see value.h. */
#include <math.h>

#include "client/cli/base/escape.h"
#include "client/cli/view/value.h"
#include "proto/cleanup.h"

json_t *value_text(const char *text) {
        if (!text)
                return json_null();
        json_t *string = json_string(text);
        if (string)
                return string;
        _cleanup_(freep) char *shown = escape_text(text);
        return shown ? json_string(shown) : NULL;
}

json_t *value_known_text(const char *text) {
        return value_text(text && *text ? text : NULL);
}

json_t *value_number(uint64_t number) {
        return json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number);
}

json_t *value_whole(bool present, uint64_t number) {
        return present ? value_number(number) : json_null();
}

json_t *value_signed(bool present, int64_t number) {
        return present ? json_integer(number) : json_null();
}

json_t *value_real(bool present, double number) {
        return present && isfinite(number) ? json_real(number) : json_null();
}

json_t *value_ms(bool present, uint64_t us) {
        return value_real(present, (double)us / 1e3);
}

json_t *value_object(const struct value_field *fields) {
        json_t *object = json_object();

        for (; fields->key; fields++) {
                if (!object) {
                        json_decref(fields->value);
                } else if (json_object_set_new(object, fields->key, fields->value) < 0) {
                        json_decref(object);
                        object = NULL;
                }
        }
        return object;
}

void value_append(json_t **array, json_t *value) {
        if (!*array) {
                json_decref(value);
        } else if (json_array_append_new(*array, value) < 0) {
                json_decref(*array);
                *array = NULL;
        }
}
