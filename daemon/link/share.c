/* SPDX-License-Identifier: Apache-2.0 */
#include "link/share.h"

#include <netinet/in.h>
#include <string.h>

#define NETWORK 8u /* bytes of a network in an IPv6 address */

static const uint8_t *bytes_of(const struct sockaddr_storage *address) {
        return (const uint8_t *)&((const struct sockaddr_in6 *)address)->sin6_addr;
}

static void source_key(const struct sockaddr_storage *address, const struct sockaddr_storage *local,
                       uint8_t key[SOURCE_KEY]) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;

        memset(key, 0, SOURCE_KEY);
        if (address->ss_family == AF_INET) {
                key[0] = 4;
                memcpy(key + 1, &four->sin_addr, 4);
        } else if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
                key[0] = 4;
                memcpy(key + 1, bytes_of(address) + 12, 4);
        } else if (address->ss_family == AF_INET6) {
                bool neighbour = local->ss_family == AF_INET6 &&
                                 memcmp(bytes_of(address), bytes_of(local), NETWORK) == 0;

                key[0] = 6;
                memcpy(key + 1, bytes_of(address), neighbour ? sizeof(six->sin6_addr) : NETWORK);
        }
}

unsigned share_find(struct share *share, const struct sockaddr_storage *address,
                    const struct sockaddr_storage *local, uint64_t now) {
        struct share_source *oldest = NULL;
        uint8_t key[SOURCE_KEY];

        source_key(address, local, key);
        for (unsigned i = 0; i < SHARE_SOURCES; i++) {
                struct share_source *source = &share->source[i];

                if (source->seen != 0 && memcmp(source->key, key, sizeof(key)) == 0) {
                        source->seen = now;
                        return i;
                }
                if (source->held == 0 && (oldest == NULL || source->seen < oldest->seen))
                        oldest = source;
        }
        if (oldest == NULL)
                oldest = &share->source[0];
        /* The turn of a new source comes after those that wait. */
        *oldest = (struct share_source){ .seen = now, .served = share->turns };
        memcpy(oldest->key, key, sizeof(key));
        return (unsigned)(oldest - share->source);
}

bool share_admits(struct share *share, unsigned source, uint64_t rate, uint64_t now) {
        return token_bucket_take(&share->source[source].pace, rate, now);
}

bool share_precedes(const struct share *share, unsigned a, unsigned b) {
        return share->source[a].served < share->source[b].served;
}

void share_serve(struct share *share, unsigned source) {
        share->source[source].served = ++share->turns;
}
