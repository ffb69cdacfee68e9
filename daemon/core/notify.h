/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to the service manager (READY, STATUS, RELOADING, STOPPING, WATCHDOG), and the listening socket
 * that it passes to the daemon. Without a service manager all of it does nothing. Needs no library. A manager
 * that does not listen costs at most a second, and that only for messages that must not get lost (ready,
 * reloading, stopping).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void notify_ready(const char *status); /* NULL: the status stays */
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
void notify_reloading(void); /* with MONOTONIC_USEC; followed by notify_ready() */
void notify_stopping(void);
void notify_extend(uint64_t us); /* EXTEND_TIMEOUT_USEC while draining */
void notify_watchdog(void);
/* Interval in which to call notify_watchdog(): half of the manager's timeout; 0 if it does not watch this
 * process. */
uint64_t notify_watchdog_interval(void);
/* The activated listening socket, checked to be a Unix SOCK_SEQPACKET listener; -ENOENT if none was passed;
 * -EINVAL with a sentence in `error` if what was passed cannot be used. */
int notify_listen_fd(char *error, unsigned error_size);
