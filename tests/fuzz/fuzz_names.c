/* SPDX-License-Identifier: Apache-2.0 */
/* Names and shapes: a valid name is printable UTF-8 of bounded length; an accepted shape has the product
 * that it claims. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/names.h"

static void check_name(const uint8_t *data, size_t size) {
        char *name = malloc(size + 1);
        bool valid;

        must(name);
        memcpy(name, data, size);
        name[size] = '\0';
        valid = name_valid(name);
        must(name_valid_job(name) == (valid && !strchr(name, '/')));
        if (valid) {
                size_t length = strlen(name);
                must(length >= 1 && length <= LIMIT_NAME && utf8_valid(name, length));
                for (size_t i = 0; i < length; i++)
                        must((uint8_t)name[i] >= 0x20 && name[i] != 0x7f);
        }
        free(name);
}

/* Text is valid exactly if it can be cut into valid pieces of one to four bytes. */
static void check_utf8(const uint8_t *data, size_t size) {
        const char *text = (const char *)data;
        size_t at = 0;

        while (at < size) {
                size_t piece = 1;
                while (piece <= 4 && at + piece <= size && !utf8_valid(text + at, piece))
                        piece++;
                if (piece > 4 || at + piece > size)
                        break;
                at += piece;
        }
        must(utf8_valid(text, size) == (at == size));
}

static void check_shape(const uint8_t *data, size_t size) {
        uint64_t shape[LIMIT_DIMS + 2], elements = 0;
        size_t dims = size / sizeof(shape[0]);
        unsigned __int128 product = 1;
        bool fits;

        if (dims > LIMIT_DIMS + 2)
                dims = LIMIT_DIMS + 2;
        memcpy(shape, data, dims * sizeof(shape[0]));
        fits = dims <= LIMIT_DIMS;
        for (size_t i = 0; i < dims && fits; i++) {
                product *= shape[i];
                fits = product != 0 && product <= UINT64_MAX;
        }
        must(shape_elements(shape, dims, &elements) == fits);
        must(!fits || elements == product);
}

static void check_numbers(const uint8_t *data, size_t size) {
        uint32_t value, other;

        if (size < 8)
                return;
        memcpy(&value, data, sizeof(value));
        memcpy(&other, data + 4, sizeof(other));
        must(*dtype_name(value) && *reduce_name(value) && *operation_name(value) && *code_name(value));
        must(dtype_size(value) <= 8 && (!dtype_is_float(value) || dtype_size(value) >= 2));
        must(!reduce_valid(value, other) || (dtype_size(other) && strcmp(reduce_name(value), "?")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        check_name(data, size);
        check_utf8(data, size);
        if (size > 0) { /* memcpy() from nowhere is undefined, also of nothing */
                check_shape(data, size);
                check_numbers(data, size);
        }
        return 0;
}
