/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that a client does not read at once wait in order, up to a bound. The test is the client. */
#include "tests.h"

#include <sys/socket.h>

#include "base/closer.h"
#include "jobs_fixture.h"
#include "session/private.h"
#include "socket/conn.h"

static struct closer *closer;
static struct reports *reports;
static struct sessions *sessions;
static struct conns conns;
static struct session *session;
static int client;
static uint32_t n_sent, n_read; /* frames, which are numbered */

static int setup_conn(void **state) {
        uint64_t limits[ACCOUNT_SLOTS];
        struct reports_config shown = { .device = "cpu", .socket = "s" };
        struct sessions_config config = { .device = "cpu", .handshake_timeout = 3600000000 };
        struct fixture *f;
        int pair[2];

        setup(state);
        f = *state;
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                limits[slot] = UINT64_C(1) << 30;
        accounts_set_limits(f->accounts, limits);
        accounts_set_most(f->accounts, 10);
        closer_new(f->loop, f->accounts, 2, close, &closer);
        config.loop = f->loop;
        config.accounts = f->accounts;
        config.jobs = f->jobs;
        config.backend = &f->fake.backend;
        shown.loop = f->loop;
        shown.accounts = f->accounts;
        shown.jobs = f->jobs;
        assert_int_equal(reports_new(&shown, &reports), 0);
        config.reports = reports;
        sessions_new(&config, &sessions);
        assert_int_equal(conns_init(&conns, f->loop, sessions, f->accounts, closer), 0);
        conns.allow_nobody = true;
        conns.connects_per_uid = 100;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_true(conn_accept(&conns, pair[0]));
        client = pair[1];
        session = list_entry(sessions->list.next, struct session, link);
        n_sent = n_read = 0;
        return 0;
}

static int teardown_conn(void **state) {
        close(client);
        while (sessions_count(sessions) > 0)
                pass(*state);
        conns_deinit(&conns);
        sessions_free(sessions);
        reports_free(reports);
        closer_free(closer);
        return teardown(state);
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_conn, teardown_conn)

/* Bytes that count as the daemon's own, among them those of frames that wait. */
static uint64_t own(void) {
        return accounts_total(fixture->accounts, ACCOUNT_OWN);
}

/* A frame with a number, and a text of about 1 KiB. */
static void send_one(void) {
        Wire__Refused message = WIRE__REFUSED__INIT;
        char text[1000];

        memset(text, 't', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        message.text = text;
        session_send(session, WIRE__MESSAGE_TYPE__REFUSED, ++n_sent, &message.base);
}

/* Reads the next frame. False: none is there. */
static bool read_one(void) {
        uint8_t packet[FRAME_MAX];
        struct frame_header header;
        ssize_t n = recv(client, packet, sizeof(packet), MSG_DONTWAIT);

        if (n <= 0)
                return false;
        assert_int_equal(frame_decode(packet, (size_t)n, &header), FRAME_OK);
        assert_int_equal(header.request, ++n_read);
        return true;
}

/* Sends frames until `n` of them wait, because the kernel takes no more. */
static void send_until_some_wait(uint32_t n) {
        uint64_t before = own();

        while (own() == before)
                send_one();
        for (uint32_t i = 1; i < n; i++)
                send_one();
}

static void read_all(struct fixture *f) {
        while (n_read < n_sent)
                if (!read_one())
                        pass(f);
}

TEST(what_waits_is_sent_first) {
        send_until_some_wait(3);
        while (read_one())
                ; /* so that there is room for the next one */
        send_one();
        read_all(f);
        assert_false(read_one());
}

TEST(room_comes_back) {
        uint64_t before = own();

        for (unsigned i = 0; i < 3; i++) {
                send_until_some_wait(2000); /* three times that are more than may wait */
                read_all(f);
                assert_int_equal(own(), before);
        }
        assert_int_equal(sessions_count(sessions), 1);
}

TEST(too_much_ends_the_session) {
        send_until_some_wait(CONN_QUEUE_MAX / 1000 + 100);
        assert_int_equal(session->state, SESSION_ENDING);
}
