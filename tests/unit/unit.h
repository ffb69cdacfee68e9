/* SPDX-License-Identifier: Apache-2.0 */
/* Included by every unit test: cmocka, with the headers that it needs in front of it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
