/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of TLS between daemons, and connections that it refuses, however the other end is set up. The
 * other end is OpenSSL without the daemon's settings, but with its key. */
#include "tests.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/types.h>

#include "link/tls.h"

#define ONE "one 00112233445566778899aabbccddeeff"

static struct tls_context *context;
static struct keys keys, shown; /* what the daemon knows, and the other end shows */
static struct tls *tls;         /* the daemon's end, which has accepted */
static SSL_CTX *other_context;
static SSL *other;
static BIO *in, *out;  /* the other end's wire */
static uint32_t early; /* bytes that the other end's session allows */
static unsigned tickets;

static int other_on_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *length,
                        SSL_SESSION **session) {
        static const unsigned char cipher[] = { 0x13, 0x01 };

        *session = SSL_SESSION_new();
        *id = (const unsigned char *)shown.key[0].name;
        *length = strlen(shown.key[0].name);
        return SSL_SESSION_set1_master_key(*session, shown.key[0].secret, shown.key[0].length) == 1 &&
               SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, cipher)) == 1 &&
               SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION) == 1 &&
               SSL_SESSION_set_max_early_data(*session, early) == 1;
}

static int other_on_ticket(SSL *ssl, SSL_SESSION *session) {
        tickets++;
        return 0;
}

static int setup(void **state) {
        char error[256];

        early = tickets = 0;
        assert_int_equal(keys_parse(ONE, strlen(ONE), "keys", &keys, error, sizeof(error)), 0);
        shown = keys;
        assert_int_equal(tls_context_new(&context), 0);
        assert_int_equal(tls_new(context, &keys, true, &tls), 0);
        other_context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_psk_use_session_callback(other_context, other_on_use);
        SSL_CTX_set_session_cache_mode(other_context, SSL_SESS_CACHE_CLIENT);
        SSL_CTX_sess_set_new_cb(other_context, other_on_ticket);
        return 0;
}

static void begin(void) {
        other = SSL_new(other_context);
        in = BIO_new(BIO_s_mem());
        out = BIO_new(BIO_s_mem());
        SSL_set_bio(other, in, out);
        SSL_set_connect_state(other);
}

static int teardown(void **state) {
        SSL_free(other);
        SSL_CTX_free(other_context);
        tls_free(tls);
        tls_context_free(context);
        other = NULL;
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

static void carry_there(void) {
        uint8_t bytes[4096];
        int n;

        while ((n = BIO_read(out, bytes, sizeof(bytes))) > 0)
                assert_int_equal(tls_feed(tls, bytes, (size_t)n), 0);
}

static void carry_back(void) {
        uint8_t bytes[4096];
        size_t n;

        while ((n = tls_drain(tls, bytes, sizeof(bytes))) > 0)
                assert_int_equal(BIO_write(in, bytes, (int)n), n);
}

/* 1: both ends are through; -1: the daemon refuses, or the other one gives up. */
static int shake(void) {
        int mine = 0, theirs = 0;

        for (unsigned i = 0; i < 10 && (mine == 0 || theirs == 0); i++) {
                int n = theirs == 1 ? 1 : SSL_do_handshake(other);

                theirs = n == 1 ? 1 : SSL_get_error(other, n) == SSL_ERROR_WANT_READ ? 0 : -1;
                carry_there();
                mine = mine == 0 ? tls_shake_hands(tls) : mine;
                carry_back();
                if (mine < 0 || theirs < 0)
                        return -1;
        }
        assert_true(mine == 1 && theirs == 1);
        return 1;
}

TEST(a_key_and_an_exchange) {
        char bytes[16];
        EVP_PKEY *key = NULL;

        begin();
        assert_int_equal(shake(), 1);
        assert_int_equal(SSL_version(other), TLS1_3_VERSION);
        assert_string_equal(SSL_get_cipher_name(other), "TLS_AES_128_GCM_SHA256");
        assert_int_equal(SSL_get_peer_tmp_key(other, &key), 1);
        EVP_PKEY_free(key);
        assert_string_equal(tls_key(tls)->name, "one");
        assert_int_equal(SSL_write(other, "hello", 5), 5);
        carry_there();
        assert_int_equal(tls_read(tls, bytes, sizeof(bytes)), 5);
        assert_int_equal(tls_write(tls, "there", 5), 0);
        carry_back();
        assert_int_equal(SSL_read(other, bytes, sizeof(bytes)), 5); /* and with it what else there was */
        assert_int_equal(tickets, 0);
}

/* The other end would do without the exchange, and knows no group for it that the daemon knows. */
TEST(never_without_an_exchange) {
        SSL_CTX_set_options(other_context, SSL_OP_ALLOW_NO_DHE_KEX);
        assert_int_equal(SSL_CTX_set1_groups_list(other_context, "P-521"), 1);
        begin();
        assert_int_equal(shake(), -1);
        assert_null(tls_key(tls));
}

/* An attacker could record data of the first flight, and send it again. */
TEST(never_early_data) {
        size_t written = 0;
        char bytes[16];

        early = 1000;
        begin();
        assert_int_equal(SSL_write_early_data(other, "early", 5, &written), 1);
        assert_int_equal(shake(), 1);
        assert_int_equal(SSL_get_early_data_status(other), SSL_EARLY_DATA_REJECTED);
        assert_int_equal(tls_read(tls, bytes, sizeof(bytes)), 0);
}

TEST(keys_are_copied) {
        keys_clear(&keys); /* the caller's may change meanwhile */
        begin();
        assert_int_equal(shake(), 1);
}
