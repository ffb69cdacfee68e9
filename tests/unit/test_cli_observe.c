/* SPDX-License-Identifier: Apache-2.0 */
/* Several daemons are asked: which failures are reported beside the answer of another one. */
#include "tests.h"

#include "captured_stderr.h"
#include "tree_fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/cli/ask/observe.h"
#include "client/cli/ask/sockets.h"
#include "client/cli/ask/talk.h"

#define DAEMONS 2

static const char *const devices[DAEMONS] = { "cpu", "cpu:b" };

/* Daemons that answer a greeting, each at a socket of its own. */
struct house {
        char socket[DAEMONS][80];
        int listener[DAEMONS];
        pthread_t thread;
};

/* Answers the first frame, and hangs up at the second one. */
static void greet(int listener) {
        static uint8_t in[FRAME_MAX], out[FRAME_MAX];
        Wire__Welcome welcome = WIRE__WELCOME__INIT;
        int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        struct frame_header header;
        ssize_t n = recv(sock, in, sizeof(in), 0);

        if (frame_decode(in, (size_t)n, &header) != FRAME_OK)
                abort();
        n = codec_pack(out, WIRE__MESSAGE_TYPE__WELCOME, header.request, 0, &welcome.base);
        if (send(sock, out, (size_t)n, MSG_NOSIGNAL) != n || recv(sock, in, sizeof(in), 0) < 0)
                abort();
        close(sock);
}

/* Accepts connections until the listeners are shut down. */
static void *house_thread(void *data) {
        struct house *house = data;
        struct pollfd fds[DAEMONS];

        for (unsigned i = 0; i < DAEMONS; i++)
                fds[i] = (struct pollfd){ .fd = house->listener[i], .events = POLLIN };
        while (poll(fds, DAEMONS, -1) > 0 && !((fds[0].revents | fds[1].revents) & POLLHUP))
                for (unsigned i = 0; i < DAEMONS; i++)
                        if (fds[i].revents & POLLIN)
                                greet(fds[i].fd);
        return NULL;
}

static int set_up(void **state) {
        static struct house house;

        if (tree_make(state) < 0)
                return -1;
        for (unsigned i = 0; i < DAEMONS; i++) {
                struct sockaddr_un address = { .sun_family = AF_UNIX };

                snprintf(house.socket[i], sizeof(house.socket[i]), "gradsync/%s/socket", devices[i]);
                put(house.socket[i], "");
                strcpy(house.socket[i], in_tree(house.socket[i]));
                unlink(house.socket[i]);
                strcpy(address.sun_path, house.socket[i]);
                house.listener[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
                if (bind(house.listener[i], (struct sockaddr *)&address, sizeof(address)) < 0 ||
                    listen(house.listener[i], 4) < 0)
                        return -1;
        }
        clearenv();
        setenv("XDG_RUNTIME_DIR", root, 1);
        setenv("TMPDIR", root, 1);
        *state = &house;
        return pthread_create(&house.thread, NULL, house_thread, &house) == 0 ? capture_stderr() : -1;
}

static int tear_down(void **state) {
        struct house *house = *state;

        shutdown(house->listener[0], SHUT_RDWR);
        pthread_join(house->thread, NULL);
        for (unsigned i = 0; i < DAEMONS; i++)
                close(house->listener[i]);
        return tree_remove(state) | release_stderr();
}

/* Answers of the daemons at the two paths. */
struct case_of {
        const char *name;
        enum talk_result result[DAEMONS];
        bool found[DAEMONS];
        bool again;            /* one was seen before */
        const char *complaint; /* NULL: none */
        int code;
        bool tells; /* the reason why no daemon has answered, in place of a complaint */
};

struct asked {
        const struct house *house;
        const struct case_of *of;
};

static enum talk_result ask(struct talk *talk, const char *path, const char *job, void *data,
                            bool *ret_found) {
        const struct asked *asked = data;

        for (unsigned i = 0; i < DAEMONS; i++) {
                if (strcmp(path, asked->house->socket[i]) != 0)
                        continue;
                *ret_found = asked->of->found[i];
                return asked->of->result[i] ? talk_fail(talk, asked->of->result[i], "trouble") : TALK_OK;
        }
        return TALK_OK; /* a daemon of this machine */
}

static const struct case_of cases[] = {
        { "both answer", { TALK_OK, TALK_OK }, { true, true }, false, NULL, CLI_OK, false },
        { "silent", { TALK_OK, TALK_SILENT }, { true }, false, "trouble", CLI_ERROR, false },
        { "silent in a watch", { TALK_OK, TALK_SILENT }, { true }, true, NULL, CLI_OK, false },
        { "cut", { TALK_CUT, TALK_OK }, { false, true }, false, "trouble", CLI_ERROR, false },
        { "cut in a watch", { TALK_CUT, TALK_OK }, { false, true }, true, NULL, CLI_OK, false },
        { "broken in a watch", { TALK_OK, TALK_BROKEN }, { true }, true, "trouble", CLI_ERROR, false },
        { "refused", { TALK_OK, TALK_REFUSED }, { true }, false, "trouble", CLI_ERROR, false },
        { "gone", { TALK_OK, TALK_GONE }, { true }, false, NULL, CLI_OK, false },
        { "denied beside an answer", { TALK_DENIED, TALK_OK }, { false, true }, false, NULL, CLI_OK, false },
        { "all denied",
          { TALK_DENIED, TALK_DENIED },
          { false },
          false,
          "no daemon may be asked by you",
          CLI_DENIED,
          false },
        { "all gone",
          { TALK_GONE, TALK_GONE },
          { false },
          false,
          "no daemon is running",
          CLI_NO_DAEMON,
          false },
        { "all gone in a watch", { TALK_GONE, TALK_SILENT }, { false }, true, NULL, CLI_NO_DAEMON, true },
        { "without the job",
          { TALK_OK, TALK_OK },
          { false },
          false,
          "there is no job \"mine\"",
          CLI_UNKNOWN_JOB,
          false },
        { "without the job in a watch",
          { TALK_OK, TALK_GONE },
          { false },
          true,
          NULL,
          CLI_UNKNOWN_JOB,
          false },
};

#define TEST(name) TEST_OF(name, struct house *house, set_up, tear_down)

TEST(what_is_reported) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                const struct case_of *of = &cases[i];
                struct asked asked = { house, of };
                struct cli cli = { 0 };
                char *gone = NULL;
                struct inquiry inquiry = {
                        .job = "mine", .ask = ask, .data = &asked, .gone = of->again ? &gone : NULL
                };
                int code = observe_each(&cli, &inquiry);
                const char *text = written();

                if (code != of->code)
                        fail_msg("%s: exit code %d instead of %d: %s", of->name, code, of->code, text);
                if (of->complaint ? strstr(text, of->complaint) == NULL : *text != '\0')
                        fail_msg("%s: \"%s\" on stderr", of->name, text);
                if ((gone != NULL) != of->tells)
                        fail_msg("%s: it tells %s", of->name, gone ? gone : "nothing");
                free(gone);
        }
}

/* The place of the usual device is found twice. */
TEST(each_daemon_is_asked_once) {
        struct sockets sockets;
        unsigned found[DAEMONS] = { 0 };

        assert_int_equal(sockets_find_all(&(struct cli){ 0 }, &sockets), 0);
        for (size_t i = 0; i < sockets.n; i++)
                for (unsigned k = 0; k < DAEMONS; k++)
                        found[k] += strcmp(sockets.at[i].path, house->socket[k]) == 0;
        assert_int_equal(found[0], 1);
        assert_int_equal(found[1], 1);
        sockets_deinit(&sockets);
}

/* A daemon that ends before it has answered a question is gone, whatever it answered before. */
TEST(a_daemon_that_ends_while_it_is_asked_is_gone) {
        Wire__Status status = WIRE__STATUS__INIT;
        const ProtobufCMessage *reply;
        struct talk talk;

        assert_int_equal(talk_open(&talk, house->socket[0], TALK_TIMEOUT), TALK_OK);
        assert_int_equal(talk_ask(&talk, WIRE__MESSAGE_TYPE__STATUS, &status.base,
                                  WIRE__MESSAGE_TYPE__STATUS_END, "the question", &reply),
                         TALK_GONE);
        assert_string_equal(talk.error, "the daemon has hung up");
        talk_close(&talk);
}
