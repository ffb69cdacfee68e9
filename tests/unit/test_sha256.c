/* SPDX-License-Identifier: Apache-2.0 */
/* The digest against published vectors, and what a job's token becomes. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "job/token.h"
#include "proto/frame.h"

static void assert_hex(struct sha256 digest, const char *hex) {
        char text[65];

        for (unsigned i = 0; i < 32; i++)
                snprintf(text + 2 * i, 3, "%02x", digest.byte[i]);
        assert_string_equal(text, hex);
}

/* FIPS 180-4, and lengths around the block. */
static void digests_are_those_of_the_standard(void **state) {
        unsigned char many[119];

        memset(many, 'a', sizeof(many));
        assert_hex(sha256_of("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_hex(sha256_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_hex(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
                   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        assert_hex(sha256_of(many, 55), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
        assert_hex(sha256_of(many, 64), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
        assert_hex(sha256_of(many, 119), "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
}

/* RFC 4231: 1, 2 and 6. */
static void keyed_digests_are_those_of_the_standard(void **state) {
        unsigned char key[131];

        memset(key, 0x0b, 20);
        assert_hex(sha256_hmac(key, 20, "Hi There", 8),
                   "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_hex(sha256_hmac("Jefe", 4, "what do ya want for nothing?", 28),
                   "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        memset(key, 0xaa, sizeof(key));
        assert_hex(sha256_hmac(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
                               54),
                   "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static struct token token_of(uid_t uid, const char *job, const char *text) {
        struct token token;

        assert_true(token_set(&token, uid, job, text));
        return token;
}

static void tokens_are_told_apart_and_say_nothing_of_other_jobs(void **state) {
        struct token one = token_of(1000, "job", "secret"), same = token_of(1000, "job", "secret");
        struct token others[] = { token_of(1000, "job", "secres"), token_of(1000, "job2", "secret"),
                                  token_of(1001, "job", "secret"), token_of(1000, "job", NULL) };
        char longest[LIMIT_TOKEN + 2];

        assert_true(token_equal(&one, &same));
        for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                assert_false(token_equal(&one, &others[i]));
        for (size_t i = 0; i + 6 <= sizeof(one); i++)
                assert_memory_not_equal(one.digest.byte + i, "secret", 6);
        assert_false(token_set(&same, 1000, "job", ""));
        memset(longest, 't', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        assert_false(token_set(&same, 1000, "job", longest));
        longest[LIMIT_TOKEN] = '\0';
        assert_true(token_set(&same, 1000, "job", longest));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(digests_are_those_of_the_standard),
                cmocka_unit_test(keyed_digests_are_those_of_the_standard),
                cmocka_unit_test(tokens_are_told_apart_and_say_nothing_of_other_jobs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
