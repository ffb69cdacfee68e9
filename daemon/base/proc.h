/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about other processes: their state in words for people, and pidfds that show a
 * client's death. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* "running", "sleeping" (also for waiting on a device), "stopped", "traced", "zombie" or "gone"; never NULL.
 * Reads /proc/PID/stat; the command name in it may contain anything. */
const char *proc_state(pid_t pid);

/* The same, but a process whose first thread sleeps is running as long as another one is: trainers leave the
 * work to threads. Looks at a few dozen threads, and at no more than *left, which it lowers by their number:
 * a caller that looks at many processes in one go has one bound for all of them. */
const char *proc_state_threads(pid_t pid, unsigned *left);

/* Whether it is ending: gone, a zombie, or being taken down by the kernel at this moment. */
bool proc_exiting(pid_t pid);

/* What this process uses. 0 stands for what the kernel does not say; the count of open descriptors needs
 * Linux 6.2. */
struct proc_usage {
        uint64_t resident, size; /* bytes of memory, and of address space */
        uint64_t open_fds, max_fds;
};

void proc_usage(struct proc_usage *ret);

/* Whose process is at the other end of a Unix socket, from the kernel. */
int proc_peer(int sock, struct ucred *ret);
/* A pidfd of the process at the other end of a connected Unix socket, from the kernel (SO_PEERPIDFD).
 * -ENOTSUP (and the like) where the kernel has no such thing: then the client sends its own, to be checked
 * with proc_pidfd_is(). */
int proc_peer_pidfd(int sock);
/* Whether the process at the other end was in `group` when it connected, by its primary or another group. */
bool proc_peer_in_group(int sock, gid_t primary, gid_t group);
/* Whether `pidfd` is a pidfd and names process `pid` (in our pid namespace), from /proc/self/fdinfo. */
bool proc_pidfd_is(int pidfd, pid_t pid);
