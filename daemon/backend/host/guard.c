/* SPDX-License-Identifier: Apache-2.0 */
/* The signal handler belongs to the process. The place where to go on from it belongs to the thread. */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct guard_frame {
        sigjmp_buf back;
        const void *volatile missing; /* the handler writes this and `mask` */
        sigset_t mask;                /* signal mask before the signal */
};

static _Thread_local struct guard_frame *guard_frame; /* NULL: the thread is not in guard_call() */
static struct sigaction guard_former;

/* Ends the thread's guard_call(). A thread in no such call gets the former handler back, and meets it when it
 * repeats the access. */
static void guard_signalled(int number, siginfo_t *info, void *context) {
        struct guard_frame *frame = guard_frame;

        if (frame == NULL) {
                sigaction(SIGBUS, &guard_former, NULL);
                return;
        }
        guard_frame = NULL;
        frame->missing = info->si_addr;
        frame->mask = ((const ucontext_t *)context)->uc_sigmask;
        siglongjmp(frame->back, 1);
}

/* Called each time a backend is opened. */
static void guard_install(void) {
        struct sigaction action = { .sa_sigaction = guard_signalled, .sa_flags = SA_SIGINFO }, now;

        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, &now);
        if (now.sa_sigaction != guard_signalled)
                guard_former = now;
}

/* The guard is only for accesses of the process itself, which needs no privilege: no system call of the
 * daemon reads or writes memory of members. */
int guard_open(void) {
        struct uffdio_api api = { .api = UFFD_API,
                                  .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM };
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

        if (fd < 0)
                return -errno;
        if (ioctl(fd, UFFDIO_API, &api) < 0) {
                int r = -errno;

                close(fd);
                return r;
        }
        guard_install();
        return fd;
}

int guard_add(int guard, void *map, size_t bytes) {
        struct uffdio_register range = { .range = { .start = (uintptr_t)map, .len = bytes },
                                         .mode = UFFDIO_REGISTER_MODE_MISSING };

        return ioctl(guard, UFFDIO_REGISTER, &range) < 0 ? -errno : 0;
}

const void *guard_call(void (*fn)(void *data), void *data) {
        struct guard_frame frame = { .missing = NULL };

        if (sigsetjmp(frame.back, 0) == 0) {
                guard_frame = &frame;
                fn(data);
                guard_frame = NULL;
        } else {
                pthread_sigmask(SIG_SETMASK, &frame.mask, NULL); /* the handler has not returned */
        }
        return frame.missing;
}
