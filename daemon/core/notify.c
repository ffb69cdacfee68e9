/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's side of the daemon: datagrams to it, and environment variables from it. Done here and
 * not by libsystemd because sd_notify() waits as long as the manager does not listen, and the event thread
 * must not wait: messages that are soon outdated are dropped instead, the others wait a bounded time. The
 * environment is left as it is.
 */
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#define STATUS_MAX 512
#define MESSAGE_MAX (STATUS_MAX + 64)
#define LISTEN_FD 3      /* the first that is passed, by the protocol */
#define PATIENCE_MS 1000 /* for messages that must not get lost */

/* NOTIFY_SOCKET as an address; its length, or 0 without one. A leading '@' stands for the abstract
 * namespace. */
static socklen_t notify_address(struct sockaddr_un *ret) {
        const char *name = getenv("NOTIFY_SOCKET");
        size_t length = name ? strlen(name) : 0;

        if (length < 2 || length >= sizeof(ret->sun_path) || (name[0] != '/' && name[0] != '@'))
                return 0;
        *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
        memcpy(ret->sun_path, name, length);
        if (name[0] == '@')
                ret->sun_path[0] = '\0';
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] == '/'));
}

static bool notify_try_send(int fd, const char *text, int patience_ms) {
        for (;;) {
                if (send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
                        return true;
                if (errno == EINTR)
                        continue;
                if (errno != EAGAIN ||
                    poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, patience_ms) <= 0)
                        return false;
                patience_ms = 0; /* another sender took the place: tries once more only */
        }
}

static void notify_send(int patience_ms, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void notify_send(int patience_ms, const char *format, ...) {
        struct sockaddr_un address;
        socklen_t length = notify_address(&address);
        char text[MESSAGE_MAX];
        va_list arguments;

        if (length == 0)
                return;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);

        _cleanup_(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        bool told = fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0 &&
                    notify_try_send(fd, text, patience_ms);
        if (!told && patience_ms > 0)
                log_warning("the service manager could not be told '%s': %m", text);
}

/* A line break would start another assignment of the message. */
static void notify_clean(char *text) {
        for (; *text; text++)
                if ((unsigned char)*text < 0x20 || *text == 0x7F)
                        *text = ' ';
}

void notify_ready(const char *status) {
        char text[STATUS_MAX];

        if (!status) {
                notify_send(PATIENCE_MS, "READY=1");
                return;
        }
        snprintf(text, sizeof(text), "%s", status);
        notify_clean(text);
        notify_send(PATIENCE_MS, "READY=1\nSTATUS=%s", text);
}

void notify_status(const char *format, ...) {
        char text[STATUS_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        notify_clean(text);
        notify_send(0, "STATUS=%s", text);
}

void notify_reloading(void) {
        notify_send(PATIENCE_MS, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now());
}

void notify_stopping(void) {
        notify_send(PATIENCE_MS, "STOPPING=1");
}

void notify_extend(uint64_t us) {
        notify_send(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, us);
}

void notify_watchdog(void) {
        notify_send(0, "WATCHDOG=1");
}

/* Whether a variable that holds a pid means this process. */
static bool notify_names_us(const char *pid) {
        char *end;

        errno = 0;
        long value = strtol(pid, &end, 10);
        return errno == 0 && end != pid && *end == '\0' && value == getpid();
}

uint64_t notify_watchdog_interval(void) {
        const char *pid = getenv("WATCHDOG_PID"), *timeout = getenv("WATCHDOG_USEC");
        char *end;

        /* without a pid it is for every process that reads it */
        if (!timeout || (pid && !notify_names_us(pid)))
                return 0;
        errno = 0;
        unsigned long long us = strtoull(timeout, &end, 10);
        return errno == 0 && end != timeout && *end == '\0' ? us / 2 : 0;
}

static bool notify_socket_is(int fd, int option, int expected) {
        int value = -1;
        socklen_t size = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == expected;
}

int notify_listen_fd(char *error, unsigned error_size) {
        const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

        if (!pid || !count || !notify_names_us(pid) || strcmp(count, "0") == 0)
                return -ENOENT;
        int fd = LISTEN_FD;
        if (strcmp(count, "1") != 0) {
                snprintf(error, error_size,
                         "the service manager passed %.16s descriptors: pass one, the socket", count);
                return -EINVAL;
        }
        if (!notify_socket_is(fd, SO_DOMAIN, AF_UNIX) || !notify_socket_is(fd, SO_TYPE, SOCK_SEQPACKET) ||
            !notify_socket_is(fd, SO_ACCEPTCONN, 1)) {
                snprintf(error, error_size,
                         "the socket that the service manager passed does not listen as a Unix socket of "
                         "type SOCK_SEQPACKET (ListenSequentialPacket=)");
                return -EINVAL;
        }
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
                snprintf(error, error_size, "cannot use the socket that the service manager passed: %m");
                return -EINVAL;
        }
        return fd;
}
