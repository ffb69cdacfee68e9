/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's datagrams, heard on a socket of our own, and sockets passed to us as number 3. */
#include "tests.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "core/notify.h"

static int manager = -1;

#define NOTHING -2 /* was waited for */

static int awaited; /* ms */
static bool deaf;

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

/* Stands for the manager: unless it is deaf, it reads all that it has got while the daemon waits for it. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout) {
        char text[64];

        awaited = timeout;
        if (timeout == 0 || deaf)
                return 0;
        while (recv(manager, text, sizeof(text), 0) >= 0)
                ;
        return 1;
}

static int set_up(void **state) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        socklen_t size = sizeof(address) - 1; /* a zero stays behind the name */

        /* The kernel chooses an abstract address: no file has to be removed, and no other process has it. */
        manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (bind(manager, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 ||
            getsockname(manager, (struct sockaddr *)&address, &size) < 0)
                return -1;
        address.sun_path[0] = '@';
        setenv("NOTIFY_SOCKET", address.sun_path, 1);
        return 0;
}

static int tear_down(void **state) {
        close(manager);
        unsetenv("NOTIFY_SOCKET");
        return 0;
}

static const char *heard(void) {
        static char text[4096];
        ssize_t n = recv(manager, text, sizeof(text) - 1, 0);

        text[n > 0 ? n : 0] = '\0';
        return text;
}

TEST_WITH(messages_have_their_form, set_up, tear_down) {
        unsigned long long now = 0;

        notify_ready("serves cpu");
        assert_string_equal(heard(), "READY=1\nSTATUS=serves cpu");
        notify_status("%d clients", 3);
        assert_string_equal(heard(), "STATUS=3 clients");
        notify_stopping();
        assert_string_equal(heard(), "STOPPING=1");
        notify_watchdog();
        assert_string_equal(heard(), "WATCHDOG=1");
        notify_extend(2500000);
        assert_string_equal(heard(), "EXTEND_TIMEOUT_USEC=2500000");
        notify_reloading();
        assert_int_equal(sscanf(heard(), "RELOADING=1\nMONOTONIC_USEC=%llu", &now), 1);
        assert_true(now > 0 && now <= clock_now());
        notify_ready(NULL);
        assert_string_equal(heard(), "READY=1");
}

/* Texts of clients may end up in a status: they must not add assignments. */
TEST_WITH(a_status_is_one_assignment, set_up, tear_down) {
        notify_status("job %s", "a\nSTOPPING=1\x1b");
        assert_string_equal(heard(), "STATUS=job a STOPPING=1 ");
        notify_ready("b\nFDSTORE=1");
        assert_string_equal(heard(), "READY=1\nSTATUS=b FDSTORE=1");
}

static void tell_ready(void) {
        notify_ready("s");
}

static void fill_queue(void) {
        awaited = NOTHING;
        while (awaited == NOTHING)
                notify_watchdog();
}

/* The queue of a manager that does not read fills up: what is outdated soon is dropped, the rest waits. */
TEST_WITH(what_matters_waits_for_a_busy_manager, set_up, tear_down) {
        static const struct {
                void (*tell)(void);
                const char *heard;
        } rows[] = {
                { tell_ready, "READY=1\nSTATUS=s" },
                { notify_stopping, "STOPPING=1" },
        };

        for (unsigned i = 0; i < 2; i++) {
                fill_queue();
                assert_int_equal(awaited, 0);
                notify_status("dropped");
                rows[i].tell();
                assert_in_range(awaited, 1, 10000);
                assert_string_equal(heard(), rows[i].heard);
                assert_string_equal(heard(), "");
        }
        fill_queue();
        deaf = true;
        notify_stopping(); /* waits once, and no longer */
        deaf = false;
        for (const char *text = heard(); *text; text = heard())
                assert_string_equal(text, "WATCHDOG=1");
}

TEST_WITH(an_unusable_address_is_ignored, set_up, tear_down) {
        static const char *const wrong[] = { "", "@", "relative", "vsock:2:1",
                                             "/nonexistent/gradsync/notify" };

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                setenv("NOTIFY_SOCKET", wrong[i], 1);
                notify_status("nobody hears");
        }
        assert_string_equal(heard(), "");
}

TEST_ALONE(the_watchdog_is_fed_twice_as_often) {
        char pid[16], other[16];

        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        snprintf(other, sizeof(other), "%d", (int)getpid() + 1);
        assert_int_equal(notify_watchdog_interval(), 0);
        setenv("WATCHDOG_USEC", "3000000", 1);
        setenv("WATCHDOG_PID", pid, 1);
        assert_int_equal(notify_watchdog_interval(), 1500000);
        setenv("WATCHDOG_USEC", "3s", 1);
        assert_int_equal(notify_watchdog_interval(), 0);
        setenv("WATCHDOG_USEC", "3000000", 1);
        setenv("WATCHDOG_PID", other, 1); /* meant for another process */
        assert_int_equal(notify_watchdog_interval(), 0);
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
}

static void say_passed_to(pid_t whom, const char *count) {
        char pid[16];

        snprintf(pid, sizeof(pid), "%d", (int)whom);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", count, 1);
}

static void say_passed(const char *count) {
        say_passed_to(getpid(), count);
}

/* Puts a socket where the service manager would. */
static void pass_socket(int type, bool listening) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, type, 0);

        /* any abstract name */
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
        if (listening)
                assert_int_equal(listen(fd, 1), 0);
        if (fd != 3) {
                assert_int_equal(dup2(fd, 3), 3);
                close(fd);
        }
        say_passed("1");
}

static int set_up_fds(void **state) {
        fcntl(3, F_DUPFD_CLOEXEC, 10); /* keep what the test runner may have there */
        close(3);
        return 0;
}

static int tear_down_fds(void **state) {
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDS");
        close(3);
        return 0;
}

TEST_WITH(without_sockets_there_is_none, set_up_fds, tear_down_fds) {
        char error[256] = "";

        assert_int_equal(notify_listen_fd(error, sizeof(error)), -ENOENT);
        say_passed_to(getpid() + 1, "1");
        assert_int_equal(notify_listen_fd(error, sizeof(error)), -ENOENT);
        assert_string_equal(error, "");
}

TEST_WITH(a_listener_is_taken_over, set_up_fds, tear_down_fds) {
        char error[256] = "";

        pass_socket(SOCK_SEQPACKET, true);
        assert_int_equal(notify_listen_fd(error, sizeof(error)), 3);
        assert_string_equal(error, "");
        assert_true(fcntl(3, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(3, F_GETFL) & O_NONBLOCK);
}

TEST_WITH(what_cannot_be_used_is_said, set_up_fds, tear_down_fds) {
        char error[256] = "";

        pass_socket(SOCK_STREAM, true);
        assert_int_equal(notify_listen_fd(error, sizeof(error)), -EINVAL);
        assert_non_null(strstr(error, "SOCK_SEQPACKET"));
        close(3);
        pass_socket(SOCK_SEQPACKET, false);
        assert_int_equal(notify_listen_fd(error, sizeof(error)), -EINVAL);
        assert_non_null(strstr(error, "listen"));
        dup2(3, 4);
        say_passed("2");
        assert_int_equal(notify_listen_fd(error, sizeof(error)), -EINVAL);
        assert_non_null(strstr(error, "passed 2 descriptors"));
        close(4);
}
