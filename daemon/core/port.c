/* SPDX-License-Identifier: Apache-2.0 */
#include "core/port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "link/address.h"

#define BACKLOG 16

static int port_fail(int r, const char *address, char *error, size_t size) {
        if (r == -EADDRINUSE)
                snprintf(error, size,
                         "metrics_listen: another process listens on %s; where several gradsyncd read one "
                         "configuration file, leave the key out of it and give each a port of its own "
                         "(--metrics-listen in its unit), or use metrics_socket",
                         address);
        else if (r == -EADDRNOTAVAIL)
                snprintf(error, size, "metrics_listen: this host does not have the address of %s", address);
        else
                snprintf(error, size, "metrics_listen: cannot listen on %s: %s", address, strerror(-r));
        return r;
}

/* Connections of the process before may linger in the kernel; the port is free all the same. */
int port_listen(const char *address, int *ret, char *error, size_t size) {
        _cleanup_(closep) int fd = -1;
        struct sockaddr_storage at;
        struct address parsed;
        socklen_t length;
        const int on = 1;

        int r = address_parse(address, &parsed, error, size);
        if (r == 0)
                r = address_resolve_here(&parsed, false, &at, &length);
        if (r < 0)
                return port_fail(r, address, error, size);
        fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
            bind(fd, (const struct sockaddr *)&at, length) < 0 || listen(fd, BACKLOG) < 0)
                return port_fail(-errno, address, error, size);
        *ret = fd_steal(&fd);
        return 0;
}
