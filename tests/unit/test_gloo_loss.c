/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses in the engine of Gloo, with real helper processes: nodes that never come, helpers that end or stop,
 * strangers on their ports. Each loss is named, and no process or descriptor is left.
 */
#include "gloo_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "engine/gloo/errand.h"

static char heard[1 << 17]; /* the log of a test */
static pid_t helper[SITES]; /* in the order of the ranks */

static bool said(const char *text) {
        size_t length = strlen(heard);

        snprintf(heard + length, sizeof(heard) - length, "%s", written());
        return strstr(heard, text) != NULL;
}

/* A scene in which nodes give up waiting for another one. Returns false if the other nodes were too slow for
 * it. */
typedef bool (*patience_fn)(struct rig *rig, uint32_t silence, const void *data);

/* Plays the scene with more and more patience, as a busy machine needs. */
static void play_patiently(struct rig *rig, patience_fn scene, const void *data) {
        for (uint32_t silence = SWIFT; silence <= PATIENT; silence *= 2) {
                heard[0] = '\0';
                bool good = scene(rig, silence, data);
                rig_abort(rig);
                rig_end(rig);
                if (good)
                        return;
        }
        FAIL("the log: %s", heard);
}

static void begin(struct rig *rig, uint32_t n, uint32_t silence) {
        rig_open(rig, n, 1, silence);
        for (uint32_t rank = 0; rank < n; rank++)
                rig->site[rank].keeps_back = true;
        rig_build(rig);
        assert_int_equal(children(helper, SITES), n);
}

static void form(struct rig *rig, uint32_t n, uint32_t n_lanes) {
        rig_form(rig, n, n_lanes);
        assert_int_equal(children(helper, SITES), n);
}

static int begin_log(void **state) {
        heard[0] = '\0';
        return capture(state);
}

/* A test that has failed leaves its helpers, which the next one would take for its own. */
static int end_log(void **state) {
        pid_t left[16];

        for (unsigned n = children(left, 16); n > 0; n--) {
                kill(left[n - 1], SIGKILL);
                waitpid(left[n - 1], NULL, 0);
        }
        return release(state);
}

#define TEST(name) RIG_TEST(name, begin_log, end_log)

/* A test of one scene, which is played patiently. */
#define SCENE(name)                                                                                          \
        static bool name##_scene(struct rig *rig, uint32_t silence, const void *data);                       \
        TEST(name) {                                                                                         \
                play_patiently(rig, name##_scene, NULL);                                                     \
        }                                                                                                    \
        static bool name##_scene(struct rig *rig, uint32_t silence, const void *data)

/* ---- while it is made ---- */

/* Awaits the tables of all nodes. Returns false if a node has given up before. */
static bool publish_all(struct rig *rig) {
        bool all = true;

        for (uint32_t rank = 0; rank < rig->n; rank++) {
                UNTIL(rig, rig->site[rank].table != NULL || rig->site[rank].n_built > 0);
                all = all && rig->site[rank].table != NULL;
        }
        return all;
}

static void spread_all(struct rig *rig) {
        EACH_SITE(rig, site)
        rig_spread(site);
}

/* Returns whether each other node has lost that node, and no other one. */
static bool all_have_lost(struct rig *rig, uint32_t lost) {
        bool all = true;

        for (uint32_t rank = 0; rank < rig->n; rank++)
                if (rank != lost) {
                        UNTIL(rig, rig->site[rank].n_built > 0);
                        all = all && site_has_lost(&rig->site[rank], lost);
                }
        return all;
}

SCENE(a_node_that_never_says_where_it_is_has_a_name) {
        begin(rig, 3, silence);
        if (!publish_all(rig))
                return false;
        rig_spread(&rig->site[0]);
        rig_spread(&rig->site[2]);
        return all_have_lost(rig, 1) &&
               said("Gloo does not reach node 13: it has not said in time where it is reached");
}

/* It listens, but its helper is stopped. */
SCENE(a_node_that_never_comes_has_a_name) {
        begin(rig, 4, silence);
        if (!publish_all(rig))
                return false;
        kill(helper[1], SIGSTOP);
        spread_all(rig);
        bool named = all_have_lost(rig, 1);
        UNTIL(rig, rig->site[1].n_built > 0);
        assert_int_equal(rig->site[1].n_lost, 3);
        assert_true(said("of Gloo (stopped) has not answered for "));
        return named && said("Gloo does not reach node 13: its connections were not made in time");
}

SCENE(a_helper_that_ends_while_it_connects_has_a_name) {
        begin(rig, 3, silence);
        if (!publish_all(rig))
                return false;
        kill(helper[2], SIGKILL);
        UNTIL(rig, rig->site[2].n_built > 0);
        assert_int_equal(rig->site[2].n_lost, 2);
        spread_all(rig);
        return all_have_lost(rig, 2) && said("has ended, by signal 9: this node lost the others") &&
               said("Gloo does not reach node 23: ");
}

TEST(addresses_of_another_kind_are_refused) {
        unsigned char nonsense[64] = { 1 };
        begin(rig, 2, PATIENT);
        assert_true(publish_all(rig));
        struct engine *engine = rig->site[0].engine;
        assert_int_equal(engine->ops->learn(engine, COMM, 2, nonsense, sizeof(nonsense)), -EINVAL);
        assert_int_equal(engine->ops->learn(engine, COMM, 0, nonsense, sizeof(nonsense)), -EINVAL);
        assert_int_equal(engine->ops->learn(engine, COMM, 1, nonsense, ENGINE_TABLE + 1), -EINVAL);
        assert_int_equal(engine->ops->learn(engine, COMM, 1, nonsense, sizeof(nonsense)), 0);
        UNTIL(rig, rig->site[0].n_built > 0);
        assert_lost(&rig->site[0], 1);
        assert_true(said("Gloo does not reach node 13: it has sent addresses of another kind"));
        rig_abort(rig);
}

TEST(what_cannot_be_built_is_refused) {
        struct engines_config config = { .gloo_helper = "/nowhere/gradsync-gloo", .silence = SWIFT };
        uint32_t nodes[65] = { 0 };
        struct engine_build build = {
                .comm = COMM, .name = "0/wide", .n_lanes = 1, .n_nodes = 65, .node = nodes
        };
        struct engines engines;

        assert_int_equal(engines_open(&config, &engines), 0);
        struct engine *engine = engines.host;
        assert_int_equal(engine->ops->build(engine, &build), -E2BIG);
        assert_true(said("job 0/wide is on 65 nodes: Gloo connects 64 at most"));
        build.n_nodes = 2;
        assert_int_equal(engine->ops->build(engine, &build), -ENOENT);
        assert_true(said("/nowhere/gradsync-gloo, which exchanges data with other nodes, cannot be started: "
                         "No such file"));
        engines_close(&engines);
}

/* ---- a helper of the test's own: this program ---- */

#define PART "GRADSYNC_TEST_PART"
#define STRANGE_RANKS "strange ranks"
#define LAST_WORD "last word"

static void play_say(const struct errand *errand) {
        (void)!send(ERRAND_SOCKET, errand, sizeof(*errand), MSG_NOSIGNAL);
}

/* LAST_WORD: that it is built, and, after a signal, that something is broken, and no more. */
static void play(const char *part) {
        struct errand errand;
        unsigned char room[4096];
        sigset_t signals;
        int number;

        memset(&errand, 0, sizeof(errand));
        errand.kind = ERRAND_BUILT;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        sigprocmask(SIG_BLOCK, &signals, NULL);
        if (strcmp(part, STRANGE_RANKS) == 0) {
                static const uint32_t ranks[] = { 3, 0, 1, UINT32_MAX };

                errand.nodes.n = sizeof(ranks) / sizeof(ranks[0]);
                memcpy(errand.nodes.rank, ranks, sizeof(ranks));
                strcpy(errand.nodes.text, STRANGE_RANKS);
        }
        play_say(&errand);
        if (strcmp(part, LAST_WORD) == 0) {
                sigwait(&signals, &number);
                errand.kind = ERRAND_BROKEN;
                errand.nodes.n = errand.nodes.rank[0] = 1;
                strcpy(errand.nodes.text, LAST_WORD);
                play_say(&errand);
                _exit(3);
        }
        while (recv(ERRAND_SOCKET, room, sizeof(room), 0) > 0)
                ;
        _exit(0);
}

__attribute__((constructor)) static void play_if_told(void) {
        const char *part = getenv(PART);

        if (part != NULL)
                play(part);
}

/* One node, of three, with such a helper. */
static void begin_played(struct rig *rig, const char *part) {
        rig_helper = "/proc/self/exe";
        setenv(PART, part, 1);
        rig_open(rig, 1, 1, PATIENT);
        rig->n_absent = 2;
        rig_build(rig);
        unsetenv(PART);
        rig_helper = HELPER;
}

TEST(ranks_that_are_of_no_other_node_are_left_out) {
        begin_played(rig, STRANGE_RANKS);
        UNTIL(rig, rig->site[0].n_built > 0);
        assert_lost(&rig->site[0], 1);
        assert_true(said("Gloo does not reach node 13: " STRANGE_RANKS));
        rig_abort(rig);
}

static const struct site *speaks_last; /* its helper speaks when it is asked whether it has ended */

int __real_waitid(idtype_t type, id_t id, siginfo_t *info, int options);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options);

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
        if (speaks_last != NULL && speaks_last->n_built > 0) {
                siginfo_t ended;
                pid_t asked;

                speaks_last = NULL;
                assert_int_equal(children(&asked, 1), 1);
                kill(asked, SIGUSR1);
                assert_int_equal(__real_waitid(P_PID, (id_t)asked, &ended, WEXITED | WNOWAIT), 0);
        }
        return __real_waitid(type, id, info, options);
}

/* The engine hears the helper's last word even if the helper has not read all that it was sent. */
TEST(the_last_word_of_a_helper_is_heard) {
        begin_played(rig, LAST_WORD);
        speaks_last = &rig->site[0];
        UNTIL(rig, rig->site[0].n_unreachable > 0);
        assert_lost(&rig->site[0], 1);
        assert_true(said("Gloo has lost node 13: " LAST_WORD));
        rig_abort(rig);
}

/* ---- strangers on the ports of a helper ---- */

static bool is_socket_of(pid_t pid, unsigned long inode) {
        char path[64], link[64], wanted[64];
        bool found = false;
        ssize_t n;

        snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
        for (int fd = 0; fd < 256 && !found; fd++) {
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
                n = readlink(path, link, sizeof(link) - 1);
                link[n > 0 ? n : 0] = '\0';
                found = strcmp(link, wanted) == 0;
        }
        return found;
}

/* Where it listens. */
static unsigned ports_of(pid_t pid, unsigned *ret, unsigned most) {
        FILE *file = fopen("/proc/net/tcp", "re");
        unsigned port, state, n = 0;
        unsigned long inode;
        char line[512];

        assert_non_null(file);
        while (fgets(line, sizeof(line), file) != NULL && n < most)
                if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state, &inode) ==
                            3 &&
                    state == 10 && is_socket_of(pid, inode))
                        ret[n++] = port;
        fclose(file);
        return n;
}

static int visit(unsigned port) {
        struct sockaddr_in where = { .sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
        return fd;
}

struct stranger {
        const char *name;
        void (*speak)(int fd); /* NULL: it does not */
};

static void speak(int fd, const void *bytes, size_t n) {
        (void)!send(fd, bytes, n, MSG_NOSIGNAL);
}

static void speak_garbage(int fd) {
        unsigned char bytes[4096];

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (unsigned char)(i * 2654435761u >> 13);
        speak(fd, bytes, sizeof(bytes));
}

/* Gloo's header: bytes, kind, slot, offset, length, offset there. */
static void speak_header(int fd, uint64_t kind, uint64_t slot, uint64_t length) {
        uint64_t header[6] = { 48 + length, kind, slot, 0, length, 0 };

        speak(fd, header, sizeof(header));
}

static void speak_length(int fd) {
        speak_header(fd, 1, 0, UINT64_C(1) << 62);
}

/* The helper waits for a message of this kind, but this one is too long. */
static void speak_too_much(int fd) {
        speak_header(fd, 1, UINT64_MAX - 1, UINT64_C(1) << 40);
}

static void speak_half(int fd) {
        speak(fd, "1234567", 7);
}

static void speak_zeros(int fd) {
        static const unsigned char zeros[65536];

        speak(fd, zeros, sizeof(zeros));
}

/* Knows how nodes greet each other, but nothing that only they know. */
static void speak_false_proof(int fd) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        unsigned char room[4096];

        if (poll(&readable, 1, FOREVER) <= 0)
                FAIL("the helper does not speak");
        if (recv(fd, room, sizeof(room), MSG_DONTWAIT) <= 0)
                return; /* this port was not that of a connection that it awaits */
        speak_header(fd, 2, UINT64_MAX - 1, 0);
        speak_header(fd, 1, UINT64_MAX - 1, 16);
        speak(fd, "0123456789abcdef", 16);
}

static void leave(int fd) {
        shutdown(fd, SHUT_RDWR);
}

/* Whether the log says where it came from, and to which port: "[127.0.0.1]:PORT". */
static bool is_named(int fd) {
        struct sockaddr_in own, there;
        socklen_t size = sizeof(own);
        char from[32], to[32];

        assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &size), 0);
        snprintf(from, sizeof(from), "[127.0.0.1]:%u", ntohs(own.sin_port));
        if (getpeername(fd, (struct sockaddr *)&there, &size) < 0) /* the helper has ended */
                return said(from);
        snprintf(to, sizeof(to), "[127.0.0.1]:%u", ntohs(there.sin_port));
        return said(from) && said(to);
}

/* A stranger connects to every port. Each node hears that it does not reach the other, and the log says why.
 * Returns false if the nodes had given up before. */
static bool suffer(struct rig *rig, uint32_t silence, const void *data) {
        const struct stranger *stranger = data;
        unsigned port[4 * STREAMS], n = 0;
        int fd[4 * STREAMS];
        begin(rig, 2, silence);
        if (!publish_all(rig))
                return false;
        for (uint32_t rank = 0; rank < 2; rank++)
                n += ports_of(helper[rank], port + n, 2 * STREAMS);
        for (unsigned i = 0; i < n; i++)
                fd[i] = visit(port[i]);
        spread_all(rig);
        for (unsigned i = 0; i < n && stranger->speak != NULL; i++)
                stranger->speak(fd[i]);
        for (uint32_t rank = 0; rank < 2; rank++) {
                UNTIL(rig, rig->site[rank].n_built > 0);
                if (!site_has_lost(&rig->site[rank], 1 - rank))
                        FAIL("a stranger that %s: rank %u is built", stranger->name, rank);
        }
        if (!said("Gloo"))
                FAIL("a stranger that %s: nothing is said of it", stranger->name);
        bool named = false;
        for (unsigned i = 0; i < n; i++) {
                named = named || is_named(fd[i]);
                close(fd[i]);
        }
        return named && n == 2 * STREAMS; /* else they had given up before */
}

TEST(a_stranger_on_a_port_is_not_taken_for_a_node) {
        static const struct stranger strangers[] = {
                { "is silent", NULL },
                { "sends garbage", speak_garbage },
                { "sends an oversized length", speak_length },
                { "sends too much of what is awaited", speak_too_much },
                { "sends half a header", speak_half },
                { "sends zeros", speak_zeros },
                { "leaves", leave },
        };

        for (size_t i = 0; i < sizeof(strangers) / sizeof(*strangers); i++)
                play_patiently(rig, suffer, &strangers[i]);
}

TEST(a_stranger_that_knows_how_to_greet_is_found_out) {
        /* Which node of a connection connects follows from their ports. If each of them has to, for one of
         * its streams, both may be refused there before either has heard what the stranger says. */
        for (unsigned tries = 0; tries < 30; tries++) {
                play_patiently(rig, suffer, &(struct stranger){ "greets", speak_false_proof });
                if (said("it cannot be reached: something else has answered its connection"))
                        return;
        }
        FAIL("the log: %s", heard);
}

TEST(nobody_listens_once_it_works) {
        unsigned port[64];
        begin(rig, 3, PATIENT);
        assert_true(publish_all(rig));
        assert_int_equal(ports_of(helper[1], port, 64), 2 * STREAMS);
        spread_all(rig);
        for (uint32_t rank = 0; rank < 3; rank++) {
                UNTIL(rig, rig->site[rank].n_built > 0);
                assert_int_equal(rig->site[rank].n_lost, 0);
        }
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(ports_of(helper[rank], port, 64), 0);
}

/* ---- when it works ---- */

static const struct engine_piece large = {
        .memory = MEMORY, .elements = 1 << 20, .dtype = WIRE__DTYPE__F32, .reduce = ENGINE_SUM
};

TEST(it_is_aborted_under_way) {
        form(rig, 3, 2);
        for (uint64_t sequence = 1; sequence <= 8; sequence++)
                for (uint32_t rank = 0; rank < 2; rank++)
                        site_launch(&rig->site[rank], rank, sequence, ENGINE_PAYLOAD, &large);
        rig_abort(rig);
        rig_end(rig);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(kill(helper[rank], 0), -1);
}

/* An abort ends what is stopped, too, and memory can be shared anew after it. */
TEST(a_stopped_helper_is_aborted) {
        form(rig, 2, 1);
        kill(helper[0], SIGSTOP);
        rig_launch(rig, 0, 1, &large);
        rig_abort(rig);
}

/* The rest goes once there is room for it; no launch comes that would bring it along. */
TEST(a_helper_that_was_stopped_catches_up) {
        uint64_t last = 0;
        int r;

        form(rig, 2, 1);
        kill(helper[0], SIGSTOP);
        do {
                r = site_try(&rig->site[0], 0, last + 1, ENGINE_VOTE, NULL);
                last += r == 0;
        } while (r == 0);
        assert_int_equal(r, -ENOBUFS);
        kill(helper[0], SIGCONT);
        for (uint64_t sequence = 1; sequence <= last; sequence++) {
                site_launch(&rig->site[1], 0, sequence, ENGINE_VOTE, NULL);
                UNTIL(rig, rig->site[1].done[0] == sequence);
        }
        UNTIL(rig, rig->site[0].done[0] == last);
}

/* Ends the helper of node 1. The first of the other nodes that misses something from it says so; the next one
 * may wait for that node. */
static void lose_helper(struct rig *rig, int number, bool busy, const char *text) {
        heard[0] = '\0';
        form(rig, 3, 1);
        for (uint32_t rank = 0; rank < 3 && busy; rank++)
                if (rank != 1)
                        site_launch(&rig->site[rank], 0, 1, ENGINE_PAYLOAD, &large);
        kill(helper[1], number);
        UNTIL(rig, rig->site[1].n_unreachable > 0);
        assert_int_equal(rig->site[1].n_lost, 2);
        if (!said(text))
                FAIL("'%s' is not in the log: %s", text, heard);
        for (uint32_t rank = 0; rank < 3 && !busy; rank++)
                if (rank != 1)
                        site_launch(&rig->site[rank], 0, 1, ENGINE_VOTE, NULL);
        UNTIL(rig, rig->site[0].n_unreachable + rig->site[2].n_unreachable > 0);
        assert_true(said("Gloo has lost node 13: "));
        for (uint32_t rank = 0; rank < 3; rank++) {
                if (rank != 1 && rig->site[rank].n_unreachable > 0)
                        assert_lost(&rig->site[rank], 1);
                assert_int_equal(rig->site[rank].done[0], 0);
        }
        rig_abort(rig);
}

TEST(a_helper_that_ends_has_a_name) {
        lose_helper(rig, SIGKILL, false, "has ended, by signal 9: this node lost the others");
        lose_helper(rig, SIGKILL, true, "has ended, by signal 9: this node lost the others");
        lose_helper(rig, SIGSEGV, true, "has ended, ");
}

/* ---- helpers that do not answer ---- */

static bool is_silent(const struct site *site, pid_t expected) {
        uint64_t since, now = clock_now();
        pid_t pid = site->engine->ops->silent(site->engine, COMM, &since);

        if (pid != 0) {
                assert_int_equal(pid, expected);
                assert_true(since <= now);
        }
        return pid != 0;
}

SCENE(a_stopped_helper_is_named_and_ended) {
        rig_open(rig, 3, 1, silence);
        rig_build(rig);
        assert_int_equal(children(helper, SITES), 3);
        rig_await_built(rig);
        for (uint32_t rank = 0; rank < 3; rank++)
                if (rig->site[rank].n_lost > 0)
                        return false;
        assert_false(is_silent(&rig->site[1], helper[1]));
        kill(helper[1], SIGSTOP);
        rig_launch(rig, 0, 1, &large);
        UNTIL(rig, is_silent(&rig->site[1], helper[1]));
        assert_true(said("of Gloo (stopped) does not answer"));
        UNTIL(rig, rig->site[1].n_unreachable > 0);
        assert_int_equal(rig->site[1].n_lost, 2);
        assert_true(said("of Gloo (stopped) has not answered for "));
        assert_false(is_silent(&rig->site[1], helper[1]));
        UNTIL(rig, rig->site[0].n_unreachable + rig->site[2].n_unreachable > 0);
        for (uint32_t rank = 0; rank < 3; rank += 2)
                if (rig->site[rank].n_unreachable > 0 && !site_has_lost(&rig->site[rank], 1))
                        return false;
        return true;
}

/* Each pass is an event of an engine. Each engine has two in a beat at most, the question and the answer. */
SCENE(a_helper_that_waits_for_others_answers) {
        rig_open(rig, 2, 1, silence);
        rig_build(rig);
        rig_await_built(rig);
        if (rig->site[0].n_lost + rig->site[1].n_lost > 0)
                return false;
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &large);
        for (uint32_t passes = 0; passes < 12 * silence / 250; passes++) {
                rig_pass(rig, "beats");
                if (rig->site[0].n_unreachable + rig->site[1].n_unreachable > 0)
                        return false;
        }
        site_launch(&rig->site[1], 0, 1, ENGINE_PAYLOAD, &large);
        rig_await(rig, 0, 1);
        return true;
}

TEST(a_helper_that_was_stopped_for_a_moment_works_on) {
        form(rig, 2, 1);
        kill(helper[1], SIGSTOP);
        rig_launch(rig, 0, 1, &large);
        UNTIL(rig, is_silent(&rig->site[1], helper[1]));
        kill(helper[1], SIGCONT);
        rig_await(rig, 0, 1);
        UNTIL(rig, said("of Gloo answers again"));
        assert_false(is_silent(&rig->site[1], helper[1]));
}

/* ---- nodes that launch different things under one number ---- */

static const struct engine_piece as_launched = {
        .memory = MEMORY, .elements = 32, .dtype = WIRE__DTYPE__F32, .reduce = ENGINE_SUM
};

static void differ(struct rig *rig, const struct engine_piece *other, bool is_gathered) {
        struct engine_piece piece = as_launched;
        if (!is_gathered)
                piece.reduce = ENGINE_COPY;
        form(rig, 2, 2);
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        site_launch(&rig->site[1], 0, 1, other != NULL ? ENGINE_PAYLOAD : ENGINE_VOTE, other);
        for (uint64_t sequence = 1; sequence <= 50; sequence++) {
                rig_launch(rig, 1, sequence, NULL);
                rig_await(rig, 1, sequence);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(rig->site[rank].done[0], 0);
        rig_abort(rig);
}

TEST(different_types_and_reductions_are_not_mixed_up) {
        struct engine_piece other = as_launched;

        other.dtype = WIRE__DTYPE__I32;
        differ(rig, &other, true);
        other.dtype = as_launched.dtype;
        other.reduce = ENGINE_MAX;
        differ(rig, &other, true);
        differ(rig, NULL, true);
        other.reduce = ENGINE_COPY;
        other.root = 1;
        differ(rig, &other, false);
}

static void differ_in_size(struct rig *rig, uint64_t elements, uint64_t others) {
        struct engine_piece piece = as_launched;
        heard[0] = '\0';
        form(rig, 2, 1);
        piece.elements = elements;
        site_launch(&rig->site[0], 0, 1, ENGINE_PAYLOAD, &piece);
        piece.elements = others;
        site_launch(&rig->site[1], 0, 1, ENGINE_PAYLOAD, &piece);
        UNTIL(rig, rig->site[0].n_unreachable + rig->site[1].n_unreachable > 0);
        for (uint32_t rank = 0; rank < 2; rank++)
                if (rig->site[rank].n_unreachable > 0)
                        assert_lost(&rig->site[rank], 1 - rank);
        assert_true(said("Gloo"));
        rig_abort(rig);
}

/* Where one gathers and the other goes around a ring they wait for each other. */
TEST(different_sizes_are_reported_or_not_mixed_up) {
        struct engine_piece other = as_launched;

        differ_in_size(rig, 10, 20);
        differ_in_size(rig, 20, 10);
        differ_in_size(rig, 1000000, 1000001);
        other.elements = 1000000;
        differ(rig, &other, true);
}
