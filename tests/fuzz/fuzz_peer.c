/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between daemons: what is decoded is valid, and the same after it was encoded and decoded
 * again, or copied. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
        static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
        static struct message first, second;
        static uint8_t bytes[PEER_MAX], again[PEER_MAX];
        struct message *copy;
        const char *why = NULL;
        ssize_t n;

        if (!peer_decode(&scratch, data, size, &first, &why)) {
                must(why != NULL);
                return 0;
        }
        must(why == NULL && message_valid(&first));
        n = peer_encode(&scratch, &first, bytes);
        must(n > 0 && n <= (ssize_t)PEER_MAX);
        must(peer_decode(&scratch, bytes, (size_t)n, &second, &why));
        must(peer_encode(&scratch, &second, again) == n && memcmp(bytes, again, (size_t)n) == 0);
        must(message_bytes(&first) <= sizeof(first));
        copy = malloc(message_bytes(&first));
        must(copy != NULL);
        message_copy(copy, &first);
        must(peer_encode(&scratch, copy, again) == n && memcmp(bytes, again, (size_t)n) == 0);
        free(copy);
        return 0;
}
