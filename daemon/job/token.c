/* SPDX-License-Identifier: Apache-2.0 */
/* Setting, comparing in constant time and wiping the secret of a job. */
#include "job/token.h"

#include <string.h>

bool token_set(struct token *token, const char *text) {
        size_t length = text != NULL ? strlen(text) : 0;

        memset(token, 0, sizeof(*token));
        if (text == NULL)
                return true;
        if (length == 0 || length > LIMIT_TOKEN)
                return false;
        memcpy(token->byte, text, length);
        return true;
}

/* Every byte is looked at, wherever the first difference is. */
bool token_equal(const struct token *a, const struct token *b) {
        volatile uint8_t difference = 0;

        for (size_t i = 0; i < sizeof(a->byte); i++)
                difference |= a->byte[i] ^ b->byte[i];
        return difference == 0;
}

void token_clear(struct token *token) {
        explicit_bzero(token, sizeof(*token));
}
