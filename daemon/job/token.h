/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret of a job whose uid is shared by several tenants. Only a digest of it is held, of the token with
 * the job's identity: it says nothing of another job that has the same token. It is never logged and never
 * told, except to the coordinator of the job.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/sha256.h"

struct token { /* all zero: none */
        struct sha256 digest;
};

/* Sets the token that the text makes for that job; `text` NULL: no token. 0, -EINVAL if it is empty or too
 * long, or -EIO if there is no digest. */
int token_set(struct token *token, uid_t uid, const char *job, const char *text);
bool token_equal(const struct token *a, const struct token *b);
