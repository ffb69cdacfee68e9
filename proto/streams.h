/* SPDX-License-Identifier: Apache-2.0 */
/* Standard streams of a program whose caller has closed some of them (`>&-`). Header only. */
#pragma once

#include <fcntl.h>
#include <unistd.h>

/* To be called before any file is opened: otherwise the next descriptor would get the number of the missing
 * stream, and printed text would go into that file. The substitute for a missing stream cannot be written to,
 * like a closed one. */
static inline void streams_fill(void) {
        int fd;

        do
                fd = open("/dev/null", O_RDONLY);
        while (fd >= 0 && fd <= STDERR_FILENO);
        if (fd >= 0)
                close(fd);
}
