/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/table.h"

#include <stdint.h>
#include <string.h>

static const char table_mark[8] = "gs-nccl1";

void table_put(const struct table *table, unsigned char to[TABLE_BYTES]) {
        uint32_t version = (uint32_t)table->version;

        memcpy(to, table_mark, sizeof(table_mark));
        to += sizeof(table_mark);
        memcpy(to, &version, sizeof(version));
        to += sizeof(version);
        memcpy(to, table->uuid, CUDA_UUID_TEXT);
        to += CUDA_UUID_TEXT;
        memcpy(to, table->host, TABLE_HOST);
        to += TABLE_HOST;
        *to++ = table->has_id;
        memcpy(to, &table->id, sizeof(table->id));
}

bool table_get(struct table *ret, const void *from, size_t bytes) {
        const unsigned char *at = from;
        uint32_t version;

        if (bytes != TABLE_BYTES || memcmp(at, table_mark, sizeof(table_mark)) != 0)
                return false;
        at += sizeof(table_mark);
        memcpy(&version, at, sizeof(version));
        at += sizeof(version);
        memcpy(ret->uuid, at, CUDA_UUID_TEXT);
        at += CUDA_UUID_TEXT;
        memcpy(ret->host, at, TABLE_HOST);
        at += TABLE_HOST;
        ret->version = (int)(version & INT32_MAX);
        ret->has_id = *at++ != 0;
        memcpy(&ret->id, at, sizeof(ret->id));
        return ret->uuid[CUDA_UUID_TEXT - 1] == '\0' && ret->host[TABLE_HOST - 1] == '\0' && ret->version > 0;
}
