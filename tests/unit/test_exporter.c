/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the metrics socket, with a text of the test's own, however little the socket takes at a time. */
#include "tests.h"
#include "tree_fixture.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "core/exporter.h"
#include "core/http.h"

#define PIECES 3u

static const char *const pieces[PIECES] = { "one 1\n", "two, which is longer 2\n", "last 3\n" };
static size_t send_most; /* bytes that a socket takes at a time */

ssize_t __real_send(int sock, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int sock, const void *bytes, size_t length, int flags);

ssize_t __wrap_send(int sock, const void *bytes, size_t length, int flags) {
        return __real_send(sock, bytes, length > send_most ? send_most : length, flags);
}

/* ---- in place of scrape.c ---- */

void scrape_begin(struct scrape *scrape, const struct scrape_config *config) {
        *scrape = (struct scrape){ .config = config };
}

void scrape_end(struct scrape *scrape) {
        scrape->family = PIECES;
}

bool scrape_is_over(const struct scrape *scrape) {
        return scrape->family == PIECES;
}

void scrape_write(struct scrape *scrape, FILE *to) {
        fputs(pieces[scrape->family++], to);
}

/* ---- a caller ---- */

struct caller_of {
        struct loop *loop;
        char heard[4096];
        size_t n;
};

static void hear(void *data, int fd, unsigned events) {
        struct caller_of *caller = data;
        ssize_t n = recv(fd, caller->heard + caller->n, sizeof(caller->heard) - 1 - caller->n, 0);

        assert_true(n >= 0);
        caller->n += (size_t)n;
        if (n == 0)
                loop_exit(caller->loop, 0);
}

static const char *answer_to(const char *request, size_t most) {
        static struct caller_of caller;
        static const uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_FDS] = 100 };
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        char error[256];
        struct exporter_config config = { .socket = { .fd = -1, .key = "metrics_socket", .mode = 0600 } };
        struct exporter *exporter;
        struct users *accounts;
        struct loop_io *io;

        caller = (struct caller_of){ 0 };
        send_most = most;
        strcpy(address.sun_path, in_tree("metrics"));
        assert_int_equal(loop_new(&caller.loop), 0);
        assert_int_equal(users_new(limits, &accounts), 0);
        assert_int_equal(closer_new(caller.loop, accounts, 1, close, &config.closer), 0);
        config.loop = caller.loop;
        config.socket.path = address.sun_path;
        assert_int_equal(exporter_new(&config, &exporter, error, sizeof(error)), 0);
        int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(sock, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(__real_send(sock, request, strlen(request), 0), strlen(request));
        assert_int_equal(loop_io_new(caller.loop, sock, LOOP_READ, hear, &caller, &io), 0);
        assert_int_equal(loop_run(caller.loop), 0);
        loop_io_free(io);
        close(sock);
        exporter_free(exporter);
        closer_free(config.closer);
        users_free(accounts);
        loop_free(caller.loop);
        return caller.heard;
}

TREE_TEST(a_text_is_whole_however_little_goes_at_a_time) {
        for (size_t most = 1; most < 40; most += 6)
                assert_string_equal(answer_to("x", most), "one 1\ntwo, which is longer 2\nlast 3\n");
}

TREE_TEST(so_are_chunks) {
        for (size_t most = 1; most < 40; most += 6) {
                const char *text = answer_to("GET / HTTP/1.1\r\n\r\n", most);

                assert_non_null(strstr(text, "\r\n\r\n00000006\r\none 1\n\r\n00000017\r\ntwo, which"));
                assert_non_null(strstr(text, "00000007\r\nlast 3\n\r\n" HTTP_CHUNK_LAST));
        }
}
