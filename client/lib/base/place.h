/* SPDX-License-Identifier: Apache-2.0 */
/* The place where a launcher runs, as a number for the names of its jobs. */
#pragma once

#include <stdint.h>

/* Returns a number that is another one on other hosts, after other boots of this host, in other network
 * namespaces, and for other launchers. `address` is that of the launcher, which all processes that it started
 * know: launchers that run in one network namespace at the same time have different addresses. NULL if there
 * is none: then the number is another one in other PID namespaces instead. */
uint64_t place_number(const char *address);
