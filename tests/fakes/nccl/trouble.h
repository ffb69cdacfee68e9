/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of the fake NCCL: those that a test asks for, and their texts. */
#pragma once

#include <stdbool.h>

#include "proto/nccl.h"

/* Counts the call; the result that FAKE_NCCL_FAIL asks for, or NCCL_OK. */
nccl_result trouble_begin(const char *call);
/* FAKE_NCCL_STUCK names it. */
bool trouble_sticks(const char *what);
/* Notes the text for ncclGetLastError(); returns `result`. */
nccl_result trouble(nccl_result result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Likewise, and logs it: the program has broken a rule. */
nccl_result trouble_rule(nccl_result result, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *trouble_last(void);
