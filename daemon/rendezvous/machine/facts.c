/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/machine/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "proto/names.h"

static bool facts_equal_shape(const struct plan_facts *a, const struct plan_facts *b) {
        return a->dims == b->dims && memcmp(a->shape, b->shape, a->dims * sizeof(a->shape[0])) == 0;
}

static bool facts_equal_entry(const struct plan_facts *a, const struct plan_facts *b) {
        return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->bucket == b->bucket &&
               a->bytes == b->bytes && facts_equal_shape(a, b);
}

static void shape_text(const struct plan_facts *param, char *text, size_t size) {
        size_t used = (size_t)snprintf(text, size, "[");

        for (unsigned i = 0; i < param->dims; i++)
                used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i > 0 ? ", " : "",
                                         param->shape[i]);
        snprintf(text + used, size - used, "]");
}

static const char *hint_of(const struct plan_facts *a, const struct plan_facts *b) {
        return a->placed || b->placed ? ", and remember that a gap in registered memory ends a bucket" : "";
}

static void param_differs(const struct plan_facts *a, const char *name_a, const struct plan_facts *b,
                          const char *name_b, char *text, size_t size) {
        char shape_a[LIMIT_DIMS * 22 + 3], shape_b[LIMIT_DIMS * 22 + 3];

        shape_text(a, shape_a, sizeof(shape_a));
        shape_text(b, shape_b, sizeof(shape_b));
        if (strcmp(a->name, b->name) != 0)
                snprintf(text, size,
                         "parameter %u is \"%s\" on %s but \"%s\" on %s: register the same parameters in "
                         "the same order",
                         a->index, b->name, name_b, a->name, name_a);
        else if (a->dtype != b->dtype)
                snprintf(text, size, "parameter %u \"%s\" is %s on %s but %s on %s", a->index, a->name,
                         dtype_name(b->dtype), name_b, dtype_name(a->dtype), name_a);
        else if (!facts_equal_shape(a, b))
                snprintf(text, size, "parameter %u \"%s\" has shape %s on %s but %s on %s", a->index, a->name,
                         shape_b, name_b, shape_a, name_a);
        else
                snprintf(text, size,
                         "parameter %u \"%s\" is in bucket %u on %s but in %u on %s: use the same bucket "
                         "sizes%s",
                         a->index, a->name, b->bucket, name_b, a->bucket, name_a, hint_of(a, b));
}

/* All parameters are the same, or one of the two has more of them. */
static void whole_differs(const struct plan_facts *a, const char *name_a, const struct plan_facts *b,
                          const char *name_b, char *text, size_t size) {
        if (a->n_params != b->n_params)
                snprintf(text, size,
                         "%s has %u parameters, %s has %u; the first one too many is parameter %u \"%s\"",
                         name_b, b->n_params, name_a, a->n_params, a->index,
                         b->n_params > a->n_params ? b->name : a->name);
        else if (a->n_buckets != b->n_buckets)
                snprintf(text, size,
                         "%s cuts the plan into %u buckets, %s into %u: use the same bucket sizes%s", name_b,
                         b->n_buckets, name_a, a->n_buckets, hint_of(a, b));
        else if (a->reduce != b->reduce)
                snprintf(text, size, "%s wants the %s, %s the %s", name_b, reduce_name(b->reduce), name_a,
                         reduce_name(a->reduce));
        else if (a->voids != b->voids)
                snprintf(text, size, "%s has made it %s void_on_loss, %s %s", name_b,
                         b->voids ? "with" : "without", name_a, a->voids ? "with" : "without");
        else
                snprintf(text, size,
                         "bucket %u has %" PRIu64 " bytes on %s but %" PRIu64
                         " on %s: use the same library version",
                         a->index - a->n_params, b->bytes, name_b, a->bytes, name_a);
}

const char *facts_differ(const struct plan_facts *a, const char *name_a, const struct plan_facts *b,
                         const char *name_b, char *text, size_t size) {
        bool both = a->name[0] != '\0' && b->name[0] != '\0';

        if (both && !facts_equal_entry(a, b)) {
                param_differs(a, name_a, b, name_b, text, size);
                return b->name;
        }
        whole_differs(a, name_a, b, name_b, text, size);
        if (a->n_params == b->n_params)
                return NULL;
        return b->n_params > a->n_params ? b->name : a->name;
}

bool facts_valid(const struct plan_facts *facts) {
        bool param = facts->index < facts->n_params;

        return facts->n_params <= LIMIT_PARAMS && facts->n_buckets <= LIMIT_BUCKETS &&
               facts->index <= facts_entries(facts) && facts->dims <= LIMIT_DIMS &&
               facts->dtype <= WIRE__DTYPE__U8 && facts->reduce <= WIRE__REDUCE__PROD &&
               (param ? name_valid(facts->name) : facts->name[0] == '\0');
}
