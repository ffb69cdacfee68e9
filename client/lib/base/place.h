/* SPDX-License-Identifier: Apache-2.0 */
/* Where this process runs, as a number: processes on other hosts, of other boots of this host, or in another
 * PID or network namespace have another one. */
#pragma once

#include <stdint.h>

uint64_t place_number(void);
