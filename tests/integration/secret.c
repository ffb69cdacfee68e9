/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <stdio.h>

int secret_of(struct gradsync_job *job, char *out, size_t size) {
        unsigned char secret[32];
        uint32_t bytes = 0;
        int r = gradsync_secret(job, secret, &bytes);

        out[0] = '\0';
        for (size_t i = 0; i < bytes && r == GRADSYNC_OK; i++)
                snprintf(out + 2 * i, size - 2 * i, "%02x", secret[i]);
        return r;
}
