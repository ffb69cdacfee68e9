/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret of a job whose uid is shared by several tenants. It is held zero-padded, so that a comparison
 * takes the same time whatever is compared; it is never logged and never told.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/frame.h"

struct token { /* all zero: none */
        uint8_t byte[LIMIT_TOKEN + 1];
};

/* Takes a text over; NULL: no token. False if it is empty or too long. */
bool token_set(struct token *token, const char *text);
bool token_equal(const struct token *a, const struct token *b);
void token_clear(struct token *token);
