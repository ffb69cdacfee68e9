/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and checks of names.h. Pure: nothing here allocates, logs or keeps state. */
#include "proto/names.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "proto/cleanup.h"
#include "proto/frame.h"

static const struct {
        const char *name;
        size_t size;
        bool is_float;
} dtypes[] = {
        [WIRE__DTYPE__F32] = { "f32", 4, true },  [WIRE__DTYPE__F64] = { "f64", 8, true },
        [WIRE__DTYPE__F16] = { "f16", 2, true },  [WIRE__DTYPE__BF16] = { "bf16", 2, true },
        [WIRE__DTYPE__I32] = { "i32", 4, false }, [WIRE__DTYPE__I64] = { "i64", 8, false },
        [WIRE__DTYPE__U8] = { "u8", 1, false },
};

static const char *const reduces[] = {
        [WIRE__REDUCE__AVG] = "avg", [WIRE__REDUCE__SUM] = "sum",   [WIRE__REDUCE__MIN] = "min",
        [WIRE__REDUCE__MAX] = "max", [WIRE__REDUCE__PROD] = "prod",
};

static const char *const operations[] = {
        [WIRE__OPERATION_KIND__BARRIER] = "barrier",
        [WIRE__OPERATION_KIND__BROADCAST] = "broadcast",
        [WIRE__OPERATION_KIND__ALLGATHER] = "allgather",
        [WIRE__OPERATION_KIND__REDUCE_SCATTER] = "reduce-scatter",
        [WIRE__OPERATION_KIND__ALLREDUCE] = "allreduce",
};

static const char *name_lookup(const char *const *names, size_t count, unsigned index) {
        return index < count && names[index] ? names[index] : "?";
}

size_t dtype_size(unsigned dtype) {
        return dtype < array_size(dtypes) ? dtypes[dtype].size : 0;
}

const char *dtype_name(unsigned dtype) {
        return dtype_size(dtype) ? dtypes[dtype].name : "?";
}

bool dtype_is_float(unsigned dtype) {
        return dtype < array_size(dtypes) && dtypes[dtype].is_float;
}

const char *reduce_name(unsigned reduce) {
        return name_lookup(reduces, array_size(reduces), reduce);
}

bool reduce_valid(unsigned reduce, unsigned dtype) {
        if (reduce >= array_size(reduces) || !reduces[reduce] || !dtype_size(dtype))
                return false;
        return reduce != WIRE__REDUCE__AVG || dtype_is_float(dtype);
}

const char *operation_name(unsigned kind) {
        return name_lookup(operations, array_size(operations), kind);
}

const char *code_name(unsigned code) {
        const ProtobufCEnumValue *value = NULL;

        if (code <= INT32_MAX)
                value = protobuf_c_enum_descriptor_get_value(&wire__code__descriptor, (int)code);
        return value ? value->name : "?";
}

const char *cause_name(unsigned cause) {
        static const char *const names[] = {
                [WIRE__CAUSE__CAUSE_NONE] = "growth",
                [WIRE__CAUSE__EXITED] = "exited",
                [WIRE__CAUSE__CLOSED] = "closed",
                [WIRE__CAUSE__EVICTED] = "evicted",
                [WIRE__CAUSE__LEAVING] = "left",
                [WIRE__CAUSE__SUPERSEDED] = "superseded",
                [WIRE__CAUSE__SHUTDOWN] = "shutdown",
                [WIRE__CAUSE__RESTARTED] = "restarted",
                [WIRE__CAUSE__UNREACHABLE] = "unreachable",
                [WIRE__CAUSE__DEADLOCKED] = "deadlock",
        };

        return cause < array_size(names) ? names[cause] : "?";
}

bool shape_elements(const uint64_t *shape, size_t dims, uint64_t *ret) {
        uint64_t elements = 1;

        if (dims > LIMIT_DIMS)
                return false;
        for (size_t i = 0; i < dims; i++)
                if (shape[i] == 0 || __builtin_mul_overflow(elements, shape[i], &elements))
                        return false;
        *ret = elements;
        return true;
}

size_t utf8_decode(const char *text, size_t length, uint32_t *ret) {
        const uint8_t *at = (const uint8_t *)text;
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t bytes = at[0] < 0x80         ? 1
                       : at[0] >> 5 == 0x6  ? 2
                       : at[0] >> 4 == 0xe  ? 3
                       : at[0] >> 3 == 0x1e ? 4
                                            : 0;

        if (bytes == 0 || bytes > length)
                return 0;
        uint32_t point = bytes == 1 ? at[0] : at[0] & (0x7fu >> bytes);
        for (size_t i = 1; i < bytes; i++) {
                if ((at[i] & 0xc0) != 0x80)
                        return 0;
                point = point << 6 | (at[i] & 0x3fu);
        }
        if (point < least[bytes] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
                return 0;
        *ret = point;
        return bytes;
}

bool utf8_valid(const char *text, size_t length) {
        uint32_t point;
        size_t bytes;

        for (; length > 0; text += bytes, length -= bytes) {
                bytes = (uint8_t)*text < 0x80 ? 1 : utf8_decode(text, length, &point);
                if (bytes == 0)
                        return false;
        }
        return true;
}

bool text_is_deceptive(uint32_t c) {
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

static bool name_is_control(uint32_t point) {
        return point < 0x20 || (point >= 0x7f && point <= 0x9f);
}

bool name_valid(const char *name) {
        size_t length = strnlen(name, LIMIT_NAME + 1), bytes;
        uint32_t point;

        if (length == 0 || length > LIMIT_NAME)
                return false;
        for (; length > 0; name += bytes, length -= bytes) {
                bytes = utf8_decode(name, length, &point);
                if (bytes == 0 || name_is_control(point))
                        return false;
        }
        return true;
}

bool name_valid_job(const char *name) {
        return name_valid(name) && !strchr(name, '/');
}

void utf8_cut(char *text) {
        size_t length = strlen(text);

        while (length > 0 && !utf8_valid(text, length))
                text[--length] = '\0';
}
