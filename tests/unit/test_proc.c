/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about other processes: states, pidfds, CPU time of threads. */
#include "tests.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/proc.h"

static pid_t child_that_waits(void) {
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                prctl(PR_SET_NAME, "a) Z (b"); /* a name that looks like a state */
                for (;;)
                        pause();
        }
        assert_true(pid > 0);
        return pid;
}

TEST_ALONE(states_of_a_child) {
        pid_t pid = child_that_waits();
        siginfo_t info;

        assert_string_equal(proc_state(getpid()), "running");
        kill(pid, SIGSTOP);
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
        assert_string_equal(proc_state(pid), "stopped");
        kill(pid, SIGCONT);
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WCONTINUED), 0);
        while (strcmp(proc_state(pid), "sleeping") != 0) /* on its way back into pause() */
                sched_yield();
        kill(pid, SIGKILL);
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
        assert_string_equal(proc_state(pid), "zombie");
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_string_equal(proc_state(pid), "gone");
        assert_string_equal(proc_state(0), "gone");
        assert_string_equal(proc_state(-1), "gone");
}

static void *spin(void *ended) {
        while (!__atomic_load_n((bool *)ended, __ATOMIC_RELAXED))
                continue;
        return NULL;
}

/* Two processes that sleep, as far as their first threads go; in one of them another thread works. */
TEST_ALONE(another_thread_may_work) {
        unsigned many = 1000000, none = 0, left;
        pid_t pid[2];

        for (int works = 0; works < 2; works++) {
                pid[works] = fork();
                if (pid[works] == 0) {
                        bool ended = false;
                        pthread_t thread;

                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (!works)
                                _exit(pause());
                        pthread_create(&thread, NULL, spin, &ended);
                        pthread_join(thread, NULL);
                        _exit(1);
                }
                assert_true(pid[works] > 0);
        }
        while (strcmp(proc_state(pid[1]), "sleeping") != 0 ||
               strcmp(proc_state_threads(pid[1], &many), "running") != 0)
                sched_yield();
        /* a sanitizer's own thread works at times */
        while (strcmp(proc_state_threads(pid[0], &many), "sleeping") != 0)
                sched_yield();
        /* where no thread may be looked at, the first one stands for the process */
        while (strcmp(proc_state_threads(pid[1], &none), "sleeping") != 0)
                sched_yield();
        assert_int_equal(none, 0);
        do
                left = 1;
        while (strcmp(proc_state_threads(pid[1], &left), "sleeping") != 0);
        assert_int_equal(left, 0);
        for (int works = 0; works < 2; works++) {
                siginfo_t info;

                kill(pid[works], SIGKILL);
                assert_int_equal(waitid(P_PID, (id_t)pid[works], &info, WEXITED | WNOWAIT), 0);
                assert_string_equal(proc_state_threads(pid[works], &many), "zombie");
                assert_int_equal(waitpid(pid[works], NULL, 0), pid[works]);
        }
        assert_string_equal(proc_state_threads(pid[1], &many), "gone");
}

TEST_ALONE(pidfds_are_told_from_other_fds) {
        pid_t pid = child_that_waits();
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0),
            file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

        assert_true(pidfd >= 0);
        assert_true(proc_pidfd_is(pidfd, pid));
        assert_false(proc_pidfd_is(pidfd, getpid()));
        assert_false(proc_pidfd_is(file, pid));
        assert_false(proc_pidfd_is(-1, pid));
        assert_false(proc_pidfd_is(pidfd, 0));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(proc_pidfd_is(pidfd, pid)); /* another process may have the number now */
        close(pidfd);
        assert_false(proc_pidfd_is(pidfd, pid));
        close(file);
}

TEST_ALONE(the_peer_has_a_pidfd) {
        int sockets[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        int pidfd = proc_peer_pidfd(sockets[0]);
        if (pidfd >= 0) {
                assert_true(proc_pidfd_is(pidfd, getpid()));
                assert_true(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
                close(pidfd);
        } else {
                assert_true(pidfd < -1); /* an errno: the kernel has no such option */
        }
        close(sockets[0]);
        close(sockets[1]);
        assert_true(proc_peer_pidfd(sockets[0]) < 0);
}
