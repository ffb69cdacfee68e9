/* SPDX-License-Identifier: Apache-2.0 */
#include "link/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tls_context {
        SSL_CTX *connecting, *accepting;
};

struct tls {
        SSL *ssl;
        BIO *in, *out; /* the sides of the wire; `ssl` owns them */
        struct keys keys;
        struct key key; /* the key that was shown */
        bool shown, open;
        char why[256];
};

static const unsigned char cipher_id[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256: a PSK needs SHA-256 */

/* Groups that are cheap to compute. */
#define GROUPS "X25519:P-256"

static SSL_SESSION *tls_session_of(SSL *ssl, const struct key *key) {
        const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);
        SSL_SESSION *session = SSL_SESSION_new();

        if (session != NULL && cipher != NULL &&
            SSL_SESSION_set1_master_key(session, key->secret, key->length) == 1 &&
            SSL_SESSION_set_cipher(session, cipher) == 1 &&
            SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
                return session;
        SSL_SESSION_free(session);
        return NULL;
}

static void tls_show(struct tls *tls, const struct key *key) {
        tls->key = *key;
        tls->shown = true;
}

/* Shows the peer the key that tls_choose() has chosen. */
static int tls_on_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *length,
                      SSL_SESSION **session) {
        struct tls *tls = SSL_get_app_data(ssl);

        *session = tls_session_of(ssl, &tls->key);
        *id = (const unsigned char *)tls->key.name;
        *length = strlen(tls->key.name);
        if (*session == NULL || md == NULL)
                return *session != NULL;
        /* On the second call the server has chosen the hash. Only that of the cipher fits. */
        if (SSL_CIPHER_get_handshake_digest(SSL_SESSION_get0_cipher(*session)) == md)
                return 1;
        SSL_SESSION_free(*session);
        *session = NULL;
        return 0;
}

/* Finds the key that the peer shows. Without a session the handshake ends: there is nothing else by which the
 * peer could prove itself. */
static int tls_on_find(SSL *ssl, const unsigned char *id, size_t length, SSL_SESSION **session) {
        struct tls *tls = SSL_get_app_data(ssl);
        const struct key *key = keys_find(&tls->keys, (const char *)id, length, time(NULL));

        *session = NULL;
        if (key == NULL) {
                snprintf(tls->why, sizeof(tls->why), "it has shown a key that is not known here, or over");
                return 1;
        }
        *session = tls_session_of(ssl, key);
        if (*session != NULL)
                tls_show(tls, key);
        return *session != NULL;
}

static SSL_CTX *tls_make(const SSL_METHOD *method) {
        SSL_CTX *context = SSL_CTX_new(method);

        if (context != NULL && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
            SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
            SSL_CTX_set1_groups_list(context, GROUPS) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
            SSL_CTX_set_max_early_data(context, 0) == 1) {
                SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
                SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
                SSL_CTX_set_psk_use_session_callback(context, tls_on_use);
                SSL_CTX_set_psk_find_session_callback(context, tls_on_find);
                return context;
        }
        SSL_CTX_free(context);
        return NULL;
}

bool tls_is_built(void) {
        return true;
}

int tls_context_new(struct tls_context **ret) {
        struct tls_context *context = calloc(1, sizeof(*context));

        if (context == NULL)
                return -ENOMEM;
        context->connecting = tls_make(TLS_client_method());
        context->accepting = tls_make(TLS_server_method());
        if (context->connecting == NULL || context->accepting == NULL) {
                tls_context_free(context);
                return -ENOMEM;
        }
        /* No certificate is ever good enough for the end that connects; the accepting end asks for none. */
        SSL_CTX_set_verify(context->connecting, SSL_VERIFY_PEER, NULL);
        *ret = context;
        return 0;
}

struct tls_context *tls_context_free(struct tls_context *context) {
        if (context == NULL)
                return NULL;
        SSL_CTX_free(context->connecting);
        SSL_CTX_free(context->accepting);
        free(context);
        return NULL;
}

/* Chooses the key that this end shows, if it is the one that connects: the first key that is in force. */
static int tls_choose(struct tls *tls) {
        for (unsigned i = 0; i < tls->keys.n; i++)
                if (!key_is_over(&tls->keys.key[i], time(NULL))) {
                        tls_show(tls, &tls->keys.key[i]);
                        return 0;
                }
        return -ENOKEY;
}

int tls_new(struct tls_context *context, const struct keys *keys, bool accepted, struct tls **ret) {
        struct tls *tls = calloc(1, sizeof(*tls));

        if (tls == NULL)
                return -ENOMEM;
        tls->keys = *keys;
        int r = accepted ? 0 : tls_choose(tls);
        if (r == 0) {
                tls->ssl = SSL_new(accepted ? context->accepting : context->connecting);
                tls->in = BIO_new(BIO_s_mem());
                tls->out = BIO_new(BIO_s_mem());
                r = tls->ssl != NULL && tls->in != NULL && tls->out != NULL ? 0 : -ENOMEM;
        }
        if (r < 0) {
                BIO_free(tls->in);
                BIO_free(tls->out);
                tls_free(tls);
                return r;
        }
        SSL_set_app_data(tls->ssl, tls);
        SSL_set_bio(tls->ssl, tls->in, tls->out);
        if (accepted)
                SSL_set_accept_state(tls->ssl);
        else
                SSL_set_connect_state(tls->ssl);
        *ret = tls;
        return 0;
}

struct tls *tls_free(struct tls *tls) {
        if (tls == NULL)
                return NULL;
        SSL_free(tls->ssl);
        explicit_bzero(tls, sizeof(*tls));
        free(tls);
        return NULL;
}

int tls_feed(struct tls *tls, const void *bytes, size_t length) {
        const char *at = bytes;

        while (length > 0) {
                int part = length < 65536 ? (int)length : 65536, n = BIO_write(tls->in, at, part);

                if (n <= 0)
                        return -ENOMEM;
                at += n;
                length -= (size_t)n;
        }
        return 0;
}

size_t tls_drain(struct tls *tls, void *to, size_t size) {
        int n = BIO_read(tls->out, to, size < 65536 ? (int)size : 65536);

        return n > 0 ? (size_t)n : 0;
}

static int tls_break(struct tls *tls) {
        unsigned long error = ERR_peek_error();
        const char *reason = ERR_reason_error_string(error);

        if (tls->why[0] == '\0' && !tls->open)
                snprintf(tls->why, sizeof(tls->why),
                         "it has no key that is known here, or another one by that name (%s)",
                         reason != NULL ? reason : "TLS has failed");
        else if (tls->why[0] == '\0')
                snprintf(tls->why, sizeof(tls->why), "what it sends is not what it has encrypted (%s)",
                         reason != NULL ? reason : "TLS has failed");
        ERR_clear_error();
        return -EPROTO;
}

/* Returns 0 if more has to come, -EPIPE if the peer has ended the stream, or -EPROTO. */
static int tls_judge(struct tls *tls, int n) {
        switch (SSL_get_error(tls->ssl, n)) {
        case SSL_ERROR_WANT_READ:
        case SSL_ERROR_WANT_WRITE: return 0;
        case SSL_ERROR_ZERO_RETURN: return -EPIPE;
        default: return tls_break(tls);
        }
}

int tls_shake_hands(struct tls *tls) {
        ERR_clear_error();
        int n = SSL_do_handshake(tls->ssl);

        if (n != 1)
                return tls_judge(tls, n) == 0 ? 0 : -EPROTO;
        if (!SSL_session_reused(tls->ssl) || !tls->shown) /* the handshake has not used the key */
                return tls_break(tls);
        tls->open = true;
        keys_clear(&tls->keys);
        return 1;
}

ssize_t tls_read(struct tls *tls, void *to, size_t size) {
        ERR_clear_error();
        int n = SSL_read(tls->ssl, to, size < 65536 ? (int)size : 65536);

        return n > 0 ? n : tls_judge(tls, n);
}

int tls_write(struct tls *tls, const void *bytes, size_t length) {
        const char *at = bytes;

        while (length > 0) {
                ERR_clear_error();
                int n = SSL_write(tls->ssl, at, length < 65536 ? (int)length : 65536);

                if (n <= 0)
                        return tls_break(tls);
                at += n;
                length -= (size_t)n;
        }
        return 0;
}

const struct key *tls_key(const struct tls *tls) {
        return tls->open ? &tls->key : NULL;
}

const char *tls_why(const struct tls *tls) {
        return tls->why;
}
