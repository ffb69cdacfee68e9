/* SPDX-License-Identifier: Apache-2.0 */
#include "session/proof.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int proof_make(const struct sessions *sessions, uid_t uid, const char *job, uint64_t incarnation,
               uint64_t member, struct sha256 *ret) {
        char about[LIMIT_NAME + 128];
        int n = snprintf(about, sizeof(about),
                         "gradsync proof: member %" PRIu64 " of incarnation %" PRIu64 " of %u/%s", member,
                         incarnation, (unsigned)uid, job);

        const struct sha256 *key = &sessions->config.proof_key;

        return sha256_hmac(key, sizeof(*key), about, (size_t)n, ret);
}

bool proof_holds(const struct sessions *sessions, uid_t uid, const char *job, uint64_t incarnation,
                 uint64_t member, const ProtobufCBinaryData *shown) {
        struct sha256 right, given;

        if (shown->len != sizeof(given) || proof_make(sessions, uid, job, incarnation, member, &right) < 0)
                return false;
        memcpy(&given, shown->data, sizeof(given));
        return sha256_equal(&right, &given);
}
