/* SPDX-License-Identifier: Apache-2.0 */
#include "link/share.h"

#include <netinet/in.h>
#include <string.h>

static void source_key(const struct sockaddr_storage *address, uint8_t key[9]) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        const uint8_t *bytes = (const uint8_t *)&six->sin6_addr;

        memset(key, 0, 9);
        if (address->ss_family == AF_INET) {
                key[0] = 4;
                memcpy(key + 1, &four->sin_addr, 4);
        } else if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
                key[0] = 4;
                memcpy(key + 1, bytes + 12, 4);
        } else if (address->ss_family == AF_INET6) {
                key[0] = 6;
                memcpy(key + 1, bytes, 8);
        }
}

unsigned share_find(struct share *share, const struct sockaddr_storage *address, uint64_t now) {
        struct share_source *oldest = NULL;
        uint8_t key[9];

        source_key(address, key);
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
        *oldest = (struct share_source){ .seen = now, .served = share->turns }; /* after those that wait */
        memcpy(oldest->key, key, sizeof(key));
        return (unsigned)(oldest - share->source);
}

bool share_admits(struct share *share, unsigned source, uint64_t rate, uint64_t now) {
        return pace_admits(&share->source[source].pace, rate, now);
}

bool share_precedes(const struct share *share, unsigned a, unsigned b) {
        return share->source[a].served < share->source[b].served;
}

void share_serve(struct share *share, unsigned source) {
        share->source[source].served = ++share->turns;
}
