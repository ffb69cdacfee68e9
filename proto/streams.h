/* SPDX-License-Identifier: Apache-2.0 */
/* Standard streams of a program whose caller has closed some of them (`>&-`). Header only. */
#pragma once

#include <fcntl.h>
#include <unistd.h>

/* To be called before anything is opened: else the next descriptor would get the number of the stream that is
 * missing, and what is printed would be written to it. What takes its place here cannot be written to, like a
 * closed stream. */
static inline void streams_fill(void) {
        int fd;

        do
                fd = open("/dev/null", O_RDONLY);
        while (fd >= 0 && fd <= STDERR_FILENO);
        if (fd >= 0)
                close(fd);
}
