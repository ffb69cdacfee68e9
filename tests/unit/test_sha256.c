/* SPDX-License-Identifier: Apache-2.0 */
/* The digest against published vectors, and what a job's token becomes. */
#include "tests.h"

#include "job/token.h"
#include "proto/frame.h"

static void assert_hmac(const void *key, size_t key_bytes, const char *data, const char *hex) {
        struct sha256 digest;
        char text[65];

        assert_int_equal(sha256_hmac(key, key_bytes, data, strlen(data), &digest), 0);
        for (unsigned i = 0; i < 32; i++)
                snprintf(text + 2 * i, 3, "%02x", digest.byte[i]);
        assert_string_equal(text, hex);
}

TEST_ALONE(zeros_are_none) {
        struct sha256 digest = { 0 };

        assert_true(sha256_is_none(&digest));
        digest.byte[31] = 1;
        assert_false(sha256_is_none(&digest));
}

/* RFC 4231: 1, 2 and 6. */
TEST_ALONE(keyed_digests_are_those_of_the_standard) {
        unsigned char key[131];

        memset(key, 0x0b, 20);
        assert_hmac(key, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_hmac("Jefe", 4, "what do ya want for nothing?",
                    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        memset(key, 0xaa, sizeof(key));
        assert_hmac(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
                    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static struct token token_of(uid_t uid, const char *job, const char *text) {
        struct token token;

        assert_int_equal(token_set(&token, uid, job, text), 0);
        return token;
}

TEST_ALONE(tokens_are_told_apart_and_say_nothing_of_other_jobs) {
        struct token one = token_of(1000, "job", "secret"), same = token_of(1000, "job", "secret");
        struct token others[] = { token_of(1000, "job", "secres"), token_of(1000, "job2", "secret"),
                                  token_of(1001, "job", "secret"), token_of(1000, "job", NULL) };
        char longest[LIMIT_TOKEN + 2];

        assert_true(token_equal(&one, &same));
        for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                assert_false(token_equal(&one, &others[i]));
        for (size_t i = 0; i + 6 <= sizeof(one); i++)
                assert_memory_not_equal(one.digest.byte + i, "secret", 6);
        assert_int_equal(token_set(&same, 1000, "job", ""), -EINVAL);
        memset(longest, 't', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(token_set(&same, 1000, "job", longest), -EINVAL);
        longest[LIMIT_TOKEN] = '\0';
        assert_int_equal(token_set(&same, 1000, "job", longest), 0);
}
