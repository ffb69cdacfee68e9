/* SPDX-License-Identifier: Apache-2.0 */
/* Small reads of /proc. Nothing is cached: callers want the present state. */
#include "proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

#define THREADS 32u     /* threads of a process that are looked at, at most */
#define PF_EXITING 0x4u /* a process flag of the kernel, include/linux/sched.h */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* Reads a whole small file; false if it cannot be read or does not fit. */
static bool proc_read_small(const char *path, char *buffer, size_t size) {
        _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        size_t used = 0;

        if (fd < 0)
                return false;
        while (used < size) {
                ssize_t n = read(fd, buffer + used, size - used);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return false;
                if (n == 0) {
                        buffer[used] = '\0';
                        return true;
                }
                used += (size_t)n;
        }
        return false;
}

/* Returns the fields of a thread's `stat` after the name: state, parent and so on. The name may itself
 * contain parentheses. NULL if there is no such thread. */
static const char *proc_read_thread(pid_t pid, pid_t tid, char *text, size_t size) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
        if (pid <= 0 || tid <= 0 || !proc_read_small(path, text, size))
                return NULL;
        const char *end = strrchr(text, ')');
        return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

/* Reads the fields of the first thread, which stands for the process. */
static const char *proc_read_stat(pid_t pid, char *text, size_t size) {
        return proc_read_thread(pid, pid, text, size);
}

const char *proc_state(pid_t pid) {
        char text[4096];
        const char *fields = proc_read_stat(pid, text, sizeof(text));

        if (fields == NULL)
                return "gone";
        switch (fields[0]) {
        case 'R': return "running";
        case 'T': return "stopped";
        case 't': return "traced";
        case 'Z': return "zombie";
        case 'X':
        case 'x': return "gone";
        default: return "sleeping";
        }
}

const char *proc_state_threads(pid_t pid, unsigned *left) {
        const char *state = proc_state(pid), *fields;
        const struct dirent *entry;
        char path[64], text[4096];
        unsigned most = *left < THREADS ? *left : THREADS, n = 0;

        if (most == 0 || strcmp(state, "sleeping") != 0)
                return state;
        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        DIR *threads = opendir(path);
        while (threads != NULL && n < most && (entry = readdir(threads)) != NULL) {
                if (entry->d_name[0] == '.')
                        continue;
                n++;
                fields = proc_read_thread(pid, atoi(entry->d_name), text, sizeof(text));
                if (fields != NULL && fields[0] == 'R') {
                        state = "running";
                        break;
                }
        }
        if (threads != NULL)
                closedir(threads);
        *left -= n;
        return state;
}

bool proc_exiting(pid_t pid) {
        char text[4096], state;
        const char *fields = proc_read_stat(pid, text, sizeof(text));
        unsigned flags;

        /* state, parent, group, session, terminal, its group, flags */
        if (fields == NULL || sscanf(fields, "%c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
                return true;
        return state == 'Z' || state == 'X' || (flags & PF_EXITING) != 0;
}

void proc_usage(struct proc_usage *ret) {
        unsigned long size, resident;
        struct rlimit limit;
        struct stat st;
        char text[256];

        *ret = (struct proc_usage){ 0 };
        if (proc_read_small("/proc/self/statm", text, sizeof(text)) &&
            sscanf(text, "%lu %lu", &size, &resident) == 2) {
                ret->size = (uint64_t)size * (uint64_t)sysconf(_SC_PAGESIZE);
                ret->resident = (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
        }
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
                ret->max_fds = limit.rlim_cur;
        if (stat("/proc/self/fd", &st) == 0)
                ret->open_fds = (uint64_t)st.st_size;
}

int proc_peer(int sock, struct ucred *ret) {
        socklen_t size = sizeof(*ret);

        return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, ret, &size) < 0 ? -errno : 0;
}

int proc_peer_pidfd(int sock) {
        int fd = -1;
        socklen_t size = sizeof(fd);

        if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) < 0)
                return errno == ENOPROTOOPT ? -ENOTSUP : -errno;
        return fd;
}

bool proc_peer_in_group(int sock, gid_t primary, gid_t group) {
        gid_t few[64];
        _cleanup_(freep) gid_t *many = NULL;
        gid_t *groups = few;
        socklen_t size = sizeof(few);
        int r = getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &size);

        if (primary == group)
                return true;
        if (r < 0 && errno == ERANGE) { /* the kernel has said how much it needs */
                groups = many = malloc(size);
                if (many == NULL)
                        return false;
                r = getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
        }
        for (size_t i = 0; r == 0 && i < size / sizeof(gid_t); i++)
                if (groups[i] == group)
                        return true;
        return false;
}

/* Whether the link in /proc/self/fd is that of a pidfd. A path always starts with '/', so no file can look
 * like one. */
static bool proc_is_pidfd(int fd) {
        char path[64], target[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n < 0)
                return false;
        target[n] = '\0';
        return strcmp(target, "anon_inode:[pidfd]") == 0 || strncmp(target, "pidfd:", strlen("pidfd:")) == 0;
}

bool proc_pidfd_is(int pidfd, pid_t pid) {
        char path[64], text[4096];

        if (pidfd < 0 || pid <= 0 || !proc_is_pidfd(pidfd))
                return false;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        if (!proc_read_small(path, text, sizeof(text)))
                return false;

        const char *line = strncmp(text, "Pid:", 4) == 0 ? text : strstr(text, "\nPid:");
        if (!line)
                return false;
        line += *line == '\n' ? strlen("\nPid:") : strlen("Pid:");
        return strtol(line, NULL, 10) == pid;
}

void proc_boot(char ret[PROC_BOOT]) {
        _cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

        memset(ret, 0, PROC_BOOT);
        if (fd < 0 || read(fd, ret, PROC_BOOT - 1) < 0)
                ret[0] = '\0';
        ret[strcspn(ret, "\n")] = '\0';
}
