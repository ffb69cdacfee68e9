/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the kernel about processes: the state of a process in words for people, pidfds that show a
 * client's death, and the usage of this process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Returns "running", "sleeping" (also while waiting for a device), "stopped", "traced", "zombie" or "gone";
 * never NULL. Reads /proc/PID/stat; the command name in it may contain anything. */
const char *proc_state(pid_t pid);

/* As proc_state(), except that a process whose first thread sleeps is running while another of its threads
 * is: trainers leave the work to threads. Looks at a few dozen threads, at most *left, and lowers *left by
 * their number, so that a caller that looks at many processes has one bound for all of them. */
const char *proc_state_threads(pid_t pid, unsigned *left);

/* Whether the process is ending: gone, a zombie, or being taken down by the kernel at this moment. */
bool proc_exiting(pid_t pid);

/* Resources that this process uses. A value that the kernel does not give is 0; the count of open descriptors
 * needs Linux 6.2. */
struct proc_usage {
        uint64_t resident, size; /* bytes of memory, and of address space */
        uint64_t open_fds, max_fds;
};

void proc_usage(struct proc_usage *ret);

/* Finds the process at the other end of a Unix socket, from the kernel. 0 or a negative errno. */
int proc_peer(int sock, struct ucred *ret);
/* Returns a pidfd of the process at the other end of a connected Unix socket, from the kernel (SO_PEERPIDFD);
 * or a negative errno, -ENOTSUP if the kernel has no such option. Then the client sends its own pidfd, to be
 * checked with proc_pidfd_is(). */
int proc_peer_pidfd(int sock);
/* Whether the process at the other end was in `group` when it connected, by its primary or another group. */
bool proc_peer_in_group(int sock, gid_t primary, gid_t group);
/* Whether `pidfd` is a pidfd and names process `pid` (in our pid namespace), from /proc/self/fdinfo. */
bool proc_pidfd_is(int pidfd, pid_t pid);

#define PROC_BOOT 40u
/* An id of this start of the machine, padded with NULs; "" if the kernel tells none. */
void proc_boot(char ret[PROC_BOOT]);
