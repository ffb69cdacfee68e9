/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/table.h"

#include <stdint.h>
#include <string.h>

static const char table_mark[8] = "gs-nccl1";

enum { TABLE_SHRINKS = 1, TABLE_GROWS = 2 }; /* bits */

static unsigned char *table_put_bytes(unsigned char *to, const void *from, size_t bytes) {
        memcpy(to, from, bytes);
        return to + bytes;
}

static const unsigned char *table_get_bytes(void *to, const unsigned char *from, size_t bytes) {
        memcpy(to, from, bytes);
        return from + bytes;
}

void table_put(const struct table *table, unsigned char to[TABLE_BYTES]) {
        uint32_t version = (uint32_t)table->version;

        to = table_put_bytes(to, table_mark, sizeof(table_mark));
        to = table_put_bytes(to, &version, sizeof(version));
        to = table_put_bytes(to, table->uuid, CUDA_UUID_TEXT);
        to = table_put_bytes(to, table->host, TABLE_HOST);
        *to++ = table->has_id;
        to = table_put_bytes(to, &table->id, sizeof(table->id));
        *to++ = (unsigned char)table->reform;
        *to++ = (unsigned char)((table->shrinks ? TABLE_SHRINKS : 0) | (table->grows ? TABLE_GROWS : 0));
        to = table_put_bytes(to, table->older, TABLE_OLDER);
        table_put_bytes(to, &table->n_older, sizeof(table->n_older));
}

bool table_get(struct table *ret, const void *from, size_t bytes) {
        const unsigned char *at = from;
        uint32_t version;

        *ret = (struct table){ .reform = REFORM_NONE };
        if (bytes != TABLE_BYTES || memcmp(at, table_mark, sizeof(table_mark)) != 0)
                return false;
        at = table_get_bytes(&version, at + sizeof(table_mark), sizeof(version));
        at = table_get_bytes(ret->uuid, at, CUDA_UUID_TEXT);
        at = table_get_bytes(ret->host, at, TABLE_HOST);
        ret->version = (int)(version & INT32_MAX);
        ret->has_id = *at++ != 0;
        at = table_get_bytes(&ret->id, at, sizeof(ret->id));
        unsigned char reform = *at++, abilities = *at++;
        ret->reform = (enum reform)reform;
        ret->shrinks = (abilities & TABLE_SHRINKS) != 0;
        ret->grows = (abilities & TABLE_GROWS) != 0;
        at = table_get_bytes(ret->older, at, TABLE_OLDER);
        table_get_bytes(&ret->n_older, at, sizeof(ret->n_older));
        return ret->uuid[CUDA_UUID_TEXT - 1] == '\0' && ret->host[TABLE_HOST - 1] == '\0' &&
               ret->version > 0 && reform <= REFORM_GROW && ret->older[TABLE_OLDER - 1] == '\0';
}
