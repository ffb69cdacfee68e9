/* SPDX-License-Identifier: Apache-2.0 */
#include "job/token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/frame.h"

int token_set(struct token *token, uid_t uid, const char *job, const char *text) {
        char about[LIMIT_NAME + 64];
        size_t length = text != NULL ? strlen(text) : 0;

        *token = (struct token){ 0 };
        if (text == NULL)
                return 0;
        if (length == 0 || length > LIMIT_TOKEN)
                return -EINVAL;
        int n = snprintf(about, sizeof(about), "gradsync token of %u/%s", (unsigned)uid, job);
        return sha256_hmac(text, length, about, (size_t)n, &token->digest);
}

bool token_equal(const struct token *a, const struct token *b) {
        return sha256_equal(&a->digest, &b->digest);
}
