/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two kinds of failure that never mix. A negative errno is fatal for the operation and travels up unchanged.
 * A positive code (enum Code of the protocol) is a condition that belongs to a client: it stops at the
 * session, which sends it as REFUSED with the text composed here. The code that first knows the condition
 * composes the text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct refusal {
        uint32_t code;   /* WIRE__CODE__… */
        char text[1024]; /* what happened, to whom, what to do */
        bool has_culprit;
        uint32_t rank; /* rank of the member that caused it, if has_culprit */
        int32_t pid;
        char parameter[LIMIT_NAME + 1]; /* the parameter that it is about; "" if none */
};

/* Fills *refusal (may be NULL) and returns `code`, so that callers can write `return refuse(...)`. */
int refuse(struct refusal *refusal, uint32_t code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Names the parameter that a refusal is about; NULL if none. */
void refuse_parameter(struct refusal *refusal, const char *parameter);
/* As refuse(), with the member that caused it. */
int refuse_for(struct refusal *refusal, uint32_t code, uint32_t rank, int32_t pid, const char *format, ...)
        __attribute__((format(printf, 5, 6)));

/* Writes what failed, and the text of the negative errno `r`. Returns r. */
int error_say(int r, char *error, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));
