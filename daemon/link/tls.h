/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a TLS 1.3 connection, over memory: bytes of the wire go in and out, and plain bytes of the peer.
 * Both ends prove that they have one of the keys (external PSK with a Diffie-Hellman exchange). There are no
 * certificates, no early data and no tickets, so nothing that was recorded can be replayed. tls.c is the only
 * user of OpenSSL's TLS. No socket, no thread: several threads may use one context; one thread at a time uses
 * an end.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "link/key.h"

struct tls_context;
struct tls;

/* Whether this was built with OpenSSL. */
bool tls_is_built(void);
/* 0, -ENOMEM, or -ENOTSUP if this was built without OpenSSL. */
int tls_context_new(struct tls_context **ret);
struct tls_context *tls_context_free(struct tls_context *context); /* NULL is fine */

/* Makes the end that has connected, or the one that has accepted. Copies the keys. 0, -ENOMEM, or -ENOKEY if
 * no key is in force. */
int tls_new(struct tls_context *context, const struct keys *keys, bool accepted, struct tls **ret);
struct tls *tls_free(struct tls *tls); /* NULL is fine */

/* Takes bytes from the wire, all of them. 0 or -ENOMEM. */
int tls_feed(struct tls *tls, const void *bytes, size_t length);
/* Writes bytes for the wire to `to`. Returns their number. */
size_t tls_drain(struct tls *tls, void *to, size_t size);
/* Goes on with the handshake. Returns 1 once it is over, 0 if more has to come from the wire, or -EPROTO. */
int tls_shake_hands(struct tls *tls);
/* Reads plain bytes of the peer, after the handshake. Returns their number; 0 if more has to come from the
 * wire; -EPIPE at the end; or -EPROTO. */
ssize_t tls_read(struct tls *tls, void *to, size_t size);
/* Writes plain bytes for the peer, all of them. 0 or -EPROTO. */
int tls_write(struct tls *tls, const void *bytes, size_t length);
/* Returns the key that both ends have shown, as it was then; NULL before the handshake is over. */
const struct key *tls_key(const struct tls *tls);
/* Returns why the connection is broken, for people. */
const char *tls_why(const struct tls *tls);
