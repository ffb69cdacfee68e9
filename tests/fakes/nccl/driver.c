/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions. See driver.h. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>

cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                unsigned *found);

static struct cuda table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void driver_resolve(void) {
        unsigned found;

#define RESOLVE(member, call, since, arguments)                                                              \
        cuGetProcAddress_v2(#call, (void **)&table.member, since, 0, &found);
        CUDA_CALLS(RESOLVE)
}

const struct cuda *driver(void) {
        pthread_once(&once, driver_resolve);
        return &table;
}
