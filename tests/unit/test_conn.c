/* SPDX-License-Identifier: Apache-2.0 */
/* What a client does not read at once: it waits in order, up to a bound. The link's other end is ours. */
#include "unit.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/closer.h"
#include "base/user.h"
#include "coordinating.h"
#include "fake_backend.h"
#include "session/private.h"
#include "socket/conn.h"

struct fixture {
        struct loop *loop;
        struct users *users;
        struct closer *closer;
        struct coordinating coordinating;
        struct fake_backend fake;
        struct jobs *jobs;
        struct sessions *sessions;
        struct conns conns;
        struct session *session;
        struct loop_deferred exit;
        int client;
        uint32_t sent, read; /* frames, which are numbered */
};

static void leave_loop(void *data) {
        loop_exit(data, 0);
}

static void pass(struct fixture *f) {
        for (unsigned i = 0; i < 3; i++) {
                loop_defer(f->loop, &f->exit);
                assert_int_equal(loop_run(f->loop), 0);
        }
}

static int setup(void **state) {
        uint64_t limits[ACCOUNT_SLOTS];
        struct fixture *f = calloc(1, sizeof(*f));
        int pair[2];

        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                limits[slot] = UINT64_C(1) << 30;
        loop_new(&f->loop);
        users_new(limits, &f->users);
        accounts_set_most(f->users, 10);
        closer_new(f->loop, f->users, 2, close, &f->closer);
        struct jobs_config jobs = { .loop = f->loop, .accounts = f->users };
        jobs.hub = coordinating_begin(&f->coordinating, f->loop, f->users);
        jobs_new(&jobs, &f->jobs);
        fake_backend_init(&f->fake, f->jobs);
        struct sessions_config sessions = { .loop = f->loop,
                                            .accounts = f->users,
                                            .jobs = f->jobs,
                                            .backend = &f->fake.backend,
                                            .device = "cpu",
                                            .socket = "s",
                                            .handshake_timeout = 3600000000 };
        f->jobs->config.backend = f->jobs->config.staging = &f->fake.backend;
        sessions_new(&sessions, &f->sessions);
        assert_int_equal(conns_init(&f->conns, f->loop, f->sessions, f->users, f->closer), 0);
        f->conns.allow_nobody = true;
        f->conns.connects_per_uid = 100;
        f->exit = (struct loop_deferred){ .fn = leave_loop, .data = f->loop };
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_true(conn_accept(&f->conns, pair[0]));
        f->client = pair[1];
        f->session = list_entry(f->sessions->list.next, struct session, link);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        close(f->client);
        while (sessions_count(f->sessions) > 0)
                pass(f);
        conns_deinit(&f->conns);
        jobs_free(f->jobs);
        fake_backend_close(&f->fake);
        coordinating_end(&f->coordinating);
        sessions_free(f->sessions);
        closer_free(f->closer);
        users_free(f->users);
        loop_free(f->loop);
        free(f);
        return 0;
}

/* A frame with a number, and a text of about 1 KiB. */
static void send_one(struct fixture *f) {
        Wire__Refused message = WIRE__REFUSED__INIT;
        char text[1000];

        memset(text, 't', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        message.text = text;
        session_send(f->session, WIRE__MESSAGE_TYPE__REFUSED, ++f->sent, &message.base);
}

/* False: nothing is there. Otherwise it is the next one. */
static bool read_one(struct fixture *f) {
        uint8_t packet[FRAME_MAX];
        struct frame_header header;
        ssize_t n = recv(f->client, packet, sizeof(packet), MSG_DONTWAIT);

        if (n <= 0)
                return false;
        assert_int_equal(frame_decode(packet, (size_t)n, &header), FRAME_OK);
        assert_int_equal(header.request, ++f->read);
        return true;
}

/* So many frames more than the kernel takes. */
static void send_until_some_wait(struct fixture *f, uint32_t n) {
        size_t room = f->session->ops->room(f->session->transport);

        while (f->session->ops->room(f->session->transport) == room)
                send_one(f);
        for (uint32_t i = 1; i < n; i++)
                send_one(f);
}

static void read_all(struct fixture *f) {
        while (f->read < f->sent)
                if (!read_one(f))
                        pass(f);
}

static void what_waits_is_sent_first(void **state) {
        struct fixture *f = *state;

        send_until_some_wait(f, 3);
        while (read_one(f))
                ; /* so that there is room for the next one */
        send_one(f);
        read_all(f);
        assert_false(read_one(f));
}

static void room_comes_back(void **state) {
        struct fixture *f = *state;
        size_t room = f->session->ops->room(f->session->transport);

        for (unsigned i = 0; i < 3; i++) {
                send_until_some_wait(f, 2000); /* three times that are more than may wait */
                read_all(f);
                assert_int_equal(f->session->ops->room(f->session->transport), room);
        }
        assert_int_equal(sessions_count(f->sessions), 1);
}

static void too_much_ends_the_session(void **state) {
        struct fixture *f = *state;

        send_until_some_wait(f, CONN_QUEUE_MAX / 1000 + 100);
        assert_int_equal(f->session->state, SESSION_ENDING);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(what_waits_is_sent_first),
                TEST(room_comes_back),
                TEST(too_much_ends_the_session),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
