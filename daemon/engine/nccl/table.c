/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/table.h"

#include <stdint.h>
#include <string.h>

static const char table_mark[8] = "gs-nccl1", table_mark_of_ways[8] = "gs-nccl2";

enum { TABLE_SHRINKS = 1, TABLE_GROWS = 2 }; /* bits */

static unsigned char *table_put_bytes(unsigned char *to, const void *from, size_t bytes) {
        memcpy(to, from, bytes);
        return to + bytes;
}

static const unsigned char *table_get_bytes(void *to, const unsigned char *from, size_t bytes) {
        memcpy(to, from, bytes);
        return from + bytes;
}

static unsigned char *table_put_ways(const struct table *table, unsigned char *to) {
        *to++ = (unsigned char)table->way;
        *to++ = (unsigned char)((table->shrinks ? TABLE_SHRINKS : 0) | (table->grows ? TABLE_GROWS : 0));
        to = table_put_bytes(to, table->older, TABLE_OLDER);
        return table_put_bytes(to, &table->n_older, sizeof(table->n_older));
}

size_t table_put(const struct table *table, uint32_t dialect, unsigned char to[TABLE_BYTES_AT_MOST]) {
        uint32_t version = (uint32_t)table->version;
        bool ways = dialect >= TABLE_WAYS;
        unsigned char *at = to;

        at = table_put_bytes(at, ways ? table_mark_of_ways : table_mark, sizeof(table_mark));
        at = table_put_bytes(at, &version, sizeof(version));
        at = table_put_bytes(at, table->uuid, CUDA_UUID_TEXT);
        at = table_put_bytes(at, table->host, TABLE_HOST);
        *at++ = table->has_id;
        at = table_put_bytes(at, &table->id, sizeof(table->id));
        if (ways)
                at = table_put_ways(table, at);
        return (size_t)(at - to);
}

static bool table_get_ways(struct table *ret, const unsigned char *at) {
        unsigned char way = *at++, abilities = *at++;

        ret->way = (enum way)way;
        ret->shrinks = (abilities & TABLE_SHRINKS) != 0;
        ret->grows = (abilities & TABLE_GROWS) != 0;
        at = table_get_bytes(ret->older, at, TABLE_OLDER);
        table_get_bytes(&ret->n_older, at, sizeof(ret->n_older));
        return way <= WAY_GROW && ret->older[TABLE_OLDER - 1] == '\0';
}

bool table_get(struct table *ret, const void *from, size_t bytes) {
        const unsigned char *at = from;
        bool ways = bytes == TABLE_BYTES_AT_MOST;
        uint32_t version;

        *ret = (struct table){ .way = WAY_INIT };
        if ((bytes != TABLE_BYTES && !ways) ||
            memcmp(at, ways ? table_mark_of_ways : table_mark, sizeof(table_mark)) != 0)
                return false;
        at = table_get_bytes(&version, at + sizeof(table_mark), sizeof(version));
        at = table_get_bytes(ret->uuid, at, CUDA_UUID_TEXT);
        at = table_get_bytes(ret->host, at, TABLE_HOST);
        ret->version = (int)(version & INT32_MAX);
        ret->has_id = *at++ != 0;
        at = table_get_bytes(&ret->id, at, sizeof(ret->id));
        return ret->uuid[CUDA_UUID_TEXT - 1] == '\0' && ret->host[TABLE_HOST - 1] == '\0' &&
               ret->version > 0 && (!ways || table_get_ways(ret, at));
}
