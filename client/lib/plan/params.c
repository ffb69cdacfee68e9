/* SPDX-License-Identifier: Apache-2.0 */
/* The registered parameters. A hash table of indices keeps the check for duplicate names linear over a
 * whole model. */
#include "client/lib/plan/params.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/memory/registered.h"
#include "gradsync/gradsync.h"
#include "proto/names.h"

static uint32_t params_hash(const char *name) {
        uint32_t h = 2166136261u;

        while (*name != 0)
                h = (h ^ (uint8_t)*name++) * 16777619u;
        return h;
}

/* The slot that holds this name, or the free one where it belongs. */
static uint32_t *params_slot_of(const struct params *params, const char *name) {
        uint32_t mask = params->index_size - 1;
        uint32_t at = params_hash(name) & mask;

        while (params->index[at] != 0 && strcmp(params->list[params->index[at] - 1].name, name) != 0)
                at = (at + 1) & mask;
        return &params->index[at];
}

static int params_grow(struct params *params) {
        uint32_t room = params->room == 0 ? 32 : params->room * 2;
        struct param *list = realloc(params->list, room * sizeof(*list));
        uint32_t *index = calloc((size_t)room * 4, sizeof(*index));

        if (list != NULL)
                params->list = list;
        if (list == NULL || index == NULL) {
                free(index);
                return fail(GRADSYNC_NO_MEMORY, "no memory for a list of %u parameters", room);
        }
        free(params->index);
        params->index = index;
        params->index_size = room * 4;
        params->room = room;
        for (uint32_t i = 0; i < params->n; i++)
                *params_slot_of(params, params->list[i].name) = i + 1;
        return GRADSYNC_OK;
}

static int params_check(const struct params *params, const char *name, unsigned dtype, uint32_t dims,
                        const uint64_t *shape, uint64_t *ret_bytes) {
        uint64_t elements;

        if (name == NULL || !name_valid(name))
                return fail(GRADSYNC_INVALID,
                            "parameter %u: its name %s%s%s is not 1 to %u bytes of UTF-8 without control "
                            "characters",
                            params->n, name ? "\"" : "", name && utf8_valid(name, strlen(name)) ? name : "",
                            name ? "\"" : "(NULL)", LIMIT_NAME);
        if (dtype_size(dtype) == 0)
                return fail(GRADSYNC_INVALID, "parameter \"%s\": %u is no element type", name, dtype);
        if ((dims > 0 && shape == NULL) || !shape_elements(shape, dims, &elements))
                return fail(GRADSYNC_INVALID,
                            "parameter \"%s\": a shape has at most %u dimensions, none of them 0, and a "
                            "number of elements that can be counted",
                            name, LIMIT_DIMS);
        if (elements > LIMIT_ARENA / dtype_size(dtype))
                return fail(GRADSYNC_INVALID,
                            "parameter \"%s\": %llu elements are more than one arena can hold", name,
                            (unsigned long long)elements);
        if (params->n >= LIMIT_PARAMS)
                return fail(GRADSYNC_INVALID,
                            "parameter \"%s\": a plan has at most %u parameters; make several plans", name,
                            LIMIT_PARAMS);
        *ret_bytes = elements * dtype_size(dtype);
        return GRADSYNC_OK;
}

static int params_check_fits(const char *name, const struct gradsync_memory *memory, uint64_t offset,
                             uint64_t bytes) {
        if (offset > memory->map.bytes || bytes > memory->map.bytes - offset)
                return fail(GRADSYNC_INVALID,
                            "parameter \"%s\": its %llu bytes at offset %llu do not lie in the registered "
                            "memory of %llu",
                            name, (unsigned long long)bytes, (unsigned long long)offset,
                            (unsigned long long)memory->map.bytes);
        return GRADSYNC_OK;
}

int params_add(struct params *params, const char *name, unsigned dtype, uint32_t dims, const uint64_t *shape,
               struct gradsync_memory *memory, uint64_t offset) {
        struct param param = { .dtype = dtype, .dims = dims, .memory = memory, .offset = offset };

        int r = params_check(params, name, dtype, dims, shape, &param.bytes);
        if (r == GRADSYNC_OK && memory != NULL)
                r = params_check_fits(name, memory, offset, param.bytes);
        if (r == GRADSYNC_OK && params->n == params->room)
                r = params_grow(params);
        if (r != GRADSYNC_OK)
                return r;
        uint32_t *slot = params_slot_of(params, name);
        if (*slot != 0)
                return fail(
                        GRADSYNC_INVALID,
                        "parameter \"%s\" is registered already, as number %u; names are unique in a plan",
                        name, *slot - 1);
        if (dims > 0)
                memcpy(param.shape, shape, dims * sizeof(*shape));
        param.name = strdup(name);
        if (param.name == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for the name of parameter %u", params->n);
        params->list[params->n++] = param;
        *slot = params->n;
        return GRADSYNC_OK;
}

void params_deinit(struct params *params) {
        for (uint32_t i = 0; i < params->n; i++)
                free(params->list[i].name);
        free(params->list);
        free(params->index);
        *params = (struct params){ 0 };
}
