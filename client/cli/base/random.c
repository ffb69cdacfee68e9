// SPDX-License-Identifier: Apache-2.0
#include "client/cli/base/random.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "client/cli/base/cli.h"

int random_hex(char *text, size_t bytes) {
        unsigned char random[RANDOM_MOST];

        assert(bytes <= sizeof random);
        if (getrandom(random, bytes, 0) != (ssize_t)bytes) {
                cli_complain("the kernel gives no random bytes: %s", strerror(errno));
                return -1;
        }
        for (size_t i = 0; i < bytes; i++)
                sprintf(text + 2 * i, "%02x", random[i]);
        explicit_bzero(random, sizeof random);
        return 0;
}
