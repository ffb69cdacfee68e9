/* SPDX-License-Identifier: Apache-2.0 */
/* Where a launcher runs, as a number for the names of its jobs. */
#pragma once

#include <stdint.h>

/* `address`: of the launcher, which all processes that it has started know: another launcher that is in the
 * same network namespace at the same time has another one. So the number is another one on other hosts, after
 * other boots of this host, in other network namespaces, and of other launchers. NULL: there is no address;
 * processes in other PID namespaces have another number then, too. */
uint64_t place_number(const char *address);
