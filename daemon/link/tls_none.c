/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of tls.c where there is no OpenSSL: no connection can be made with a key. */
#include <errno.h>
#include <stddef.h>

#include "link/tls.h"

bool tls_is_built(void) {
        return false;
}

int tls_context_new(struct tls_context **ret) {
        return -ENOTSUP;
}

struct tls_context *tls_context_free(struct tls_context *context) {
        return NULL;
}

int tls_new(struct tls_context *context, const struct keys *keys, bool accepted, struct tls **ret) {
        return -ENOTSUP;
}

struct tls *tls_free(struct tls *tls) {
        return NULL;
}

int tls_feed(struct tls *tls, const void *bytes, size_t length) {
        return -ENOTSUP;
}

size_t tls_drain(struct tls *tls, void *to, size_t size) {
        return 0;
}

int tls_shake_hands(struct tls *tls) {
        return -EPROTO;
}

ssize_t tls_read(struct tls *tls, void *to, size_t size) {
        return -EPROTO;
}

int tls_write(struct tls *tls, const void *bytes, size_t length) {
        return -EPROTO;
}

const struct key *tls_key(const struct tls *tls) {
        return NULL;
}

const char *tls_why(const struct tls *tls) {
        return "this gradsyncd was built without TLS";
}
