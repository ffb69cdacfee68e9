/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a TLS 1.3 connection, over memory: bytes of the wire go in and out, and bytes of the peer. Both
 * ends prove that they have one of the keys (external PSK with a Diffie-Hellman exchange); there are no
 * certificates, no early data and no tickets, so nothing that was recorded can be said again. The only user
 * of OpenSSL. No socket, no thread: a context is for all of them, and each end for one at a time.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "link/key.h"

struct tls_context;
struct tls;

/* 0, -ENOMEM, or -ENOTSUP: this was built without OpenSSL. */
int tls_context_new(struct tls_context **ret);
struct tls_context *tls_context_free(struct tls_context *context); /* NULL is fine */

/* The end that has connected, or that has accepted. The keys are copied. 0, -ENOMEM, or -ENOKEY: no key is in
 * force. */
int tls_new(struct tls_context *context, const struct keys *keys, bool accepted, struct tls **ret);
struct tls *tls_free(struct tls *tls); /* NULL is fine */

/* From the wire: takes all of it. -ENOMEM. */
int tls_feed(struct tls *tls, const void *bytes, size_t length);
/* For the wire: how many bytes it has written to `to`. */
size_t tls_drain(struct tls *tls, void *to, size_t size);
/* Goes on with the handshake: 1 once it is over, 0 if more has to come from the wire, or -EPROTO. */
int tls_shake_hands(struct tls *tls);
/* After the handshake. Bytes of the peer: how many; 0 if more has to come; -EPIPE at their end; -EPROTO. */
ssize_t tls_read(struct tls *tls, void *to, size_t size);
/* … for the peer: takes all of it. 0 or -EPROTO. */
int tls_write(struct tls *tls, const void *bytes, size_t length);
/* The key that both ends have shown, as it was then; NULL before the handshake is over. */
const struct key *tls_key(const struct tls *tls);
/* Why it is broken, for people. */
const char *tls_why(const struct tls *tls);
