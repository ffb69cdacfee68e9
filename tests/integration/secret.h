/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a generation share, as text. */
#pragma once

#include <stddef.h>

#include <gradsync/gradsync.h>

/* The result of gradsync_secret(); *out: its hexadecimal digits, or "". */
int secret_of(struct gradsync_job *job, char *out, size_t size);
