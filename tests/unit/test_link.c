/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between daemons: who gets in, and what becomes of the others. Two ends in one loop, over real
 * sockets. */
#include "tests.h"
#include "tree_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "link/link.h"
#include "link/tls.h"
#include "proto/frame.h"

#define ONE "one 00112233445566778899aabbccddeeff"
#define OTHER "one ffeeddccbbaa99887766554433221100"

struct end {
        uint8_t node[LINK_NODE];
        struct keys keys;
        struct links *links;
        struct peer *peer; /* the latest that is up */
        unsigned ups, downs, frames;
        char why[512];
        size_t bytes;
        uint32_t about;
        uint8_t last; /* byte of the latest frame */
};

static const struct door_limits generous = { 30 * USEC_PER_SEC, 1000, 1000 };
static struct door_limits limits;
static struct loop *loop;
static struct loop_timer *late;
static struct end a, b; /* b is dialled */
static struct address address;
static char error[512];
static uint64_t run, silence; /* of the ends that are opened */

static _Atomic size_t send_most; /* bytes that the network takes at a time; 0: all */

ssize_t __real_send(int sock, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int sock, const void *bytes, size_t length, int flags);

ssize_t __wrap_send(int sock, const void *bytes, size_t length, int flags) {
        size_t most = send_most;

        return __real_send(sock, bytes, most > 0 && length > most ? most : length, flags);
}

static void on_up(void *owner, struct peer *peer) {
        struct end *end = owner;

        end->peer = peer;
        end->ups++;
        loop_exit(loop, 0);
}

static const char *on_frame(void *owner, struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                            size_t length) {
        struct end *end = owner;

        end->frames++;
        end->bytes += length;
        end->about = about;
        end->last = length > 0 ? ((const uint8_t *)bytes)[length - 1] : 0;
        loop_exit(loop, 0);
        return type == 99 ? "it is a test" : NULL;
}

static void on_down(void *owner, struct peer *peer, const char *why) {
        struct end *end = owner;

        end->downs++;
        end->peer = NULL;
        snprintf(end->why, sizeof(end->why), "%s", why);
        loop_exit(loop, 0);
}

static const struct links_events events = { .up = on_up, .frame = on_frame, .down = on_down };

static void on_late(void *data) {
        fail_msg("it takes too long; the dialling end says: %s",
                 a.links != NULL && links_trouble(a.links) != NULL ? links_trouble(a.links) : "nothing");
}

#define until(condition)                                                                                     \
        do {                                                                                                 \
                loop_timer_arm(late, 60 * USEC_PER_SEC);                                                     \
                while (!(condition))                                                                         \
                        loop_run(loop);                                                                      \
                loop_timer_disarm(late);                                                                     \
        } while (0)

static void set_keys(struct keys *keys, const char *text) {
        assert_int_equal(keys_parse(text, strlen(text), "keys", keys, error, sizeof(error)), 0);
}

static void open_end(struct end *end, uint8_t id, uint64_t instance, const char *keys, bool insecure) {
        struct links_config config = { .loop = loop,
                                       .node = end->node,
                                       .instance = instance,
                                       .run = run,
                                       .release = "test",
                                       .keys = &end->keys,
                                       .insecure = insecure,
                                       .limits = limits,
                                       .silence = silence,
                                       .events = &events,
                                       .owner = end };

        memset(end, 0, sizeof(*end));
        memset(end->node, id, sizeof(end->node));
        if (keys != NULL)
                set_keys(&end->keys, keys);
        assert_int_equal(links_new(&config, &end->links), 0);
}

/* A port that is free, below those that connections get from the system, and another one each time. */
static void choose_port(void) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        static unsigned chosen;
        char text[64];
        int r;

        do {
                int sock = socket(AF_INET, SOCK_STREAM, 0);

                at.sin_port = htons((uint16_t)(20000 + ((unsigned)getpid() * 97 + chosen++) % 12000));
                r = bind(sock, (struct sockaddr *)&at, sizeof(at));
                close(sock);
        } while (r < 0 && chosen < 12000);
        assert_int_equal(r, 0);
        snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(at.sin_port));
        assert_int_equal(address_parse(text, &address, error, sizeof(error)), 0);
}

static void listen_on(struct end *end) {
        assert_int_equal(links_listen(end->links, &address, error, sizeof(error)), 0);
}

static void dial_from(struct end *end) {
        assert_int_equal(links_dial(end->links, &address, error, sizeof(error)), 0);
}

/* Opens b, which no end dials. */
static void listen_alone(void) {
        open_end(&b, 2, 1, ONE, false);
        listen_on(&b);
}

static void meet(const char *mine, const char *theirs, bool insecure) {
        open_end(&b, 2, 1, theirs, insecure);
        open_end(&a, 1, 1, mine, insecure);
        listen_on(&b);
        dial_from(&a);
}

static void meet_with_one_key(void) {
        meet(ONE, ONE, false);
        until(a.ups == 1 && b.ups == 1);
}

static void change_keys(const char *text) {
        set_keys(&b.keys, text);
        links_change(b.links, &limits);
}

static int setup(void **state) {
        a = b = (struct end){ 0 };
        limits = generous;
        run = 1;
        silence = 5 * USEC_PER_SEC;
        send_most = 0;
        assert_int_equal(loop_new(&loop), 0);
        assert_int_equal(loop_timer_new(loop, on_late, NULL, &late), 0);
        choose_port();
        return 0;
}

static int teardown(void **state) {
        links_free(a.links);
        links_free(b.links);
        loop_timer_free(late);
        loop_free(loop);
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

static void exchange(void) {
        static uint8_t large[LINK_PAYLOAD];

        until(a.ups == 1 && b.ups == 1);
        assert_memory_equal(peer_node(a.peer), b.node, LINK_NODE);
        assert_memory_equal(peer_node(b.peer), a.node, LINK_NODE);
        assert_true(peer_was_dialled(a.peer) && !peer_was_dialled(b.peer));
        assert_null(links_trouble(a.links));
        peer_send(a.peer, LINK_FIRST_TYPE, 7, "x", 1);
        until(b.frames == 1 && b.bytes == 1 && b.about == 7 && b.last == 'x');
        large[LINK_PAYLOAD - 1] = 42;
        for (unsigned i = 0; i < 20; i++)
                peer_send(b.peer, LINK_FIRST_TYPE + 1, i, large, LINK_PAYLOAD);
        until(a.frames == 20);
        assert_true(a.bytes == 20 * (size_t)LINK_PAYLOAD && a.last == 42 && a.about == 19);
        peer_send(a.peer, LINK_FIRST_TYPE, 0, large, LINK_PAYLOAD + 1); /* no frame can have so much */
        peer_send(a.peer, LINK_FIRST_TYPE, 0, NULL, 0);
        until(b.frames == 2 && b.bytes == 1);
}

TEST(ends_with_one_key_meet) {
        meet(ONE, ONE, false);
        exchange();
        assert_true(peer_speaks_for(b.peer, 0) && peer_speaks_for(b.peer, 12345));
}

TEST(the_second_key_is_as_good) {
        meet(ONE, "new 00112233445566778899aabbccddee00\n" ONE " uids=5,10-12", false);
        exchange();
        assert_true(peer_speaks_for(b.peer, 5) && peer_speaks_for(b.peer, 10) && peer_speaks_for(b.peer, 12));
        assert_false(peer_speaks_for(b.peer, 0) || peer_speaks_for(b.peer, 9) || peer_speaks_for(b.peer, 13));
}

TEST(a_handshake_goes_on_after_short_writes) {
        send_most = 7;
        meet_with_one_key();
        send_most = 0;
}

TEST(without_keys_if_it_is_spelled_out) {
        meet(NULL, NULL, true);
        exchange();
}

TEST(without_keys_there_is_no_tcp) {
        open_end(&a, 1, 1, NULL, false);
        assert_int_equal(links_listen(a.links, &address, error, sizeof(error)), -ENOKEY);
        assert_non_null(strstr(error, "no TCP between daemons without a key"));
        assert_int_equal(links_dial(a.links, &address, error, sizeof(error)), -ENOKEY);
}

static void on_look(void *data) {
        loop_exit(loop, 0);
}

/* Runs the loop until something happens, or for so many microseconds. */
static void run_for(uint64_t most) {
        struct loop_timer *look;

        assert_int_equal(loop_timer_new(loop, on_look, NULL, &look), 0);
        loop_timer_arm(look, most);
        loop_run(loop);
        loop_timer_free(look);
}

/* The same as until(), of something for which no event comes. */
#define until_looking(condition)                                                                             \
        do {                                                                                                 \
                loop_timer_arm(late, 60 * USEC_PER_SEC);                                                     \
                while (!(condition))                                                                         \
                        run_for(1000);                                                                       \
                loop_timer_disarm(late);                                                                     \
        } while (0)

/* The dialling end has failed, and says so. */
static void until_trouble_of(const struct end *end, const char *part) {
        until_looking(links_trouble(end->links) != NULL && strstr(links_trouble(end->links), part) != NULL);
}

static void until_trouble_after(const char *part, unsigned ups) {
        until_trouble_of(&a, part);
        assert_int_equal(a.ups + b.ups, ups);
}

static void until_trouble(const char *part) {
        until_trouble_after(part, 0);
}

TEST(another_secret_of_that_name) {
        meet(ONE, OTHER, false);
        until_trouble("it has no key that is known here");
}

TEST(a_name_that_is_not_known) {
        meet("two 00112233445566778899aabbccddeeff", ONE, false);
        until_trouble("it has no key that is known here");
}

TEST(a_key_that_is_over) {
        meet(ONE, ONE " until=2020-01-01T00:00:00Z", false);
        until_trouble("it has no key that is known here");
}

TEST(an_own_key_that_is_over_is_not_shown) {
        meet(ONE " until=2020-01-01T00:00:00Z", ONE, false);
        until_trouble("no key of key_file is in force any more");
}

TEST(one_end_without_keys) {
        open_end(&b, 2, 1, ONE, false);
        open_end(&a, 1, 1, NULL, true);
        listen_on(&b);
        dial_from(&a);
        until_trouble("");
        until_trouble("hung up");
}

/* The peer has this daemon's own id: the daemon has dialled itself, or the peer has a copy of its state
 * directory. */
TEST(a_connection_with_itself) {
        open_end(&b, 1, 1, ONE, false);
        open_end(&a, 1, 1, ONE, false);
        listen_on(&b);
        dial_from(&a);
        until_trouble("it has this daemon's own id");
}

TEST(a_frame_that_is_refused_ends_the_connection) {
        meet_with_one_key();
        peer_send(a.peer, 99, 0, "x", 1);
        until(b.downs == 1 && a.downs == 1);
        assert_string_equal(b.why, "what it sends is refused: it is a test");
        until(a.ups == 2 && b.ups == 2); /* it is tried again */
}

/* The network has dropped the older connection, and this end has not heard of it. */
TEST(the_newer_connection_of_one_run_stays) {
        struct end later = { 0 };

        meet_with_one_key();
        open_end(&later, 1, 1, ONE, false);
        dial_from(&later);
        until(later.ups >= 1 && a.downs >= 1);
        assert_string_equal(b.why, "the same daemon has connected again");
        links_free(later.links);
}

/* A host was copied with its state directory: the one that came first stays, and the other one hears why. */
TEST(two_daemons_with_one_id) {
        struct end copy = { 0 };

        meet_with_one_key();
        run++;
        open_end(&copy, 1, 2, ONE, false);
        dial_from(&copy);
        until_trouble_of(&copy,
                         "it refuses this daemon: a daemon with the same id is connected from 127.0.0.1");
        assert_int_equal(a.downs + b.downs + copy.ups, 0);
        links_free(copy.links);
}

TEST(keys_that_are_gone_end_connections) {
        meet_with_one_key();
        set_keys(&b.keys, OTHER);
        strcpy(b.keys.key[0].name, "two");
        links_change(b.links, &limits);
        until(b.downs == 1);
        assert_string_equal(b.why, "its key 'one' is not in force any more");
}

/* The connection was made with a key that has gone, although another one has its name. */
TEST(a_key_of_that_name_is_not_that_key) {
        meet_with_one_key();
        change_keys(OTHER);
        until(b.downs == 1);
        assert_string_equal(b.why, "its key 'one' is not in force any more");
        until_trouble_after("it has no key that is known here", 2);
}

TEST(a_key_that_runs_out_ends_connections) {
        meet_with_one_key();
        b.keys.key[0].until = time(NULL) + 1;
        links_change(b.links, &limits);
        until(b.downs == 1);
        assert_string_equal(b.why, "its key 'one' is not in force any more");
}

TEST(what_a_key_may_speak_for_can_change) {
        meet_with_one_key();
        assert_true(peer_speaks_for(b.peer, 5) && peer_speaks_for(b.peer, 6));
        change_keys(ONE " uids=5");
        assert_true(peer_speaks_for(b.peer, 5));
        assert_false(peer_speaks_for(b.peer, 6));
        assert_int_equal(b.downs, 0);
}

/* ---- strangers ---- */

/* A connection with b from that address of the loopback interface, in which some bytes are said. */
static int stranger(const char *from, const void *bytes, size_t length) {
        struct sockaddr_in here = { .sin_family = AF_INET }, at = here;
        struct timeval long_enough = { .tv_sec = 60 };
        int sock = socket(AF_INET, SOCK_STREAM, 0);

        setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &long_enough, sizeof(long_enough));
        assert_int_equal(inet_pton(AF_INET, from, &here.sin_addr), 1);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons((uint16_t)atoi(address.port));
        assert_int_equal(bind(sock, (struct sockaddr *)&here, sizeof(here)), 0);
        assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
        if (length > 0)
                assert_int_equal(send(sock, bytes, length, MSG_NOSIGNAL), length);
        return sock;
}

/* The other end has not ended it. */
static bool is_open(int sock) {
        char byte;

        return recv(sock, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static void await_end(int sock) {
        char bytes[256];
        ssize_t n;

        while ((n = recv(sock, bytes, sizeof(bytes), 0)) > 0)
                ;
        assert_true(n == 0 || errno == ECONNRESET);
}

/* The whole handshake of an end that has that key; with the last flight `bytes` are said. The door needs no
 * loop for its part. */
static struct tls *prove(int sock, const char *key, const void *bytes, size_t length) {
        struct tls_context *context;
        struct keys keys;
        struct tls *tls;
        uint8_t wire[8192];
        size_t n;
        int r;

        set_keys(&keys, key);
        assert_int_equal(tls_context_new(&context), 0);
        assert_int_equal(tls_new(context, &keys, false, &tls), 0);
        while ((r = tls_shake_hands(tls)) == 0) {
                n = tls_drain(tls, wire, sizeof(wire));
                assert_int_equal(send(sock, wire, n, MSG_NOSIGNAL), n);
                ssize_t heard = recv(sock, wire, sizeof(wire), 0);
                assert_true(heard > 0);
                assert_int_equal(tls_feed(tls, wire, (size_t)heard), 0);
        }
        assert_int_equal(r, 1);
        assert_int_equal(tls_write(tls, bytes, length), 0);
        n = tls_drain(tls, wire, sizeof(wire));
        assert_int_equal(send(sock, wire, n, MSG_NOSIGNAL), n);
        tls_context_free(context);
        return tls;
}

/* The other end has ended it. It takes what has come. */
static bool has_ended(int sock) {
        char bytes[256];
        ssize_t n = recv(sock, bytes, sizeof(bytes), MSG_DONTWAIT);

        return n == 0 || (n < 0 && errno != EAGAIN);
}

static void until_ended(int sock) {
        until_looking(has_ended(sock));
}

/* A frame with the greeting of daemon 7. */
static size_t greeting(enum link_role role, uint8_t out[64]) {
        const uint8_t hello[] = { 8,  1,           26, 16, 7, 7, 7, 7, 7,  7, 7,  7,
                                  7,  7,           7,  7,  7, 7, 7, 7, 32, 1, 40, (uint8_t)role,
                                  64, (uint8_t)run };
        struct frame_header header = { .major = FRAME_MAJOR, .type = 1, .length = sizeof(hello) };

        frame_encode(out, &header);
        memcpy(out + FRAME_HEADER, hello, sizeof(hello));
        return FRAME_HEADER + sizeof(hello);
}

static int greet(enum link_role role) {
        uint8_t hello[64];

        return stranger("127.0.0.1", hello, greeting(role, hello));
}

/* Opens b, and a connection in which daemon 7 has greeted with the last flight. */
static struct tls *prove_as_a_node(int *ret_sock) {
        uint8_t hello[64];

        listen_alone();
        *ret_sock = stranger("127.0.0.1", NULL, 0);
        return prove(*ret_sock, ONE, hello, greeting(LINK_NODE_ROLE, hello));
}

static void listen_without_keys(void) {
        open_end(&b, 2, 1, NULL, true);
        listen_on(&b);
}

TEST(who_dials_is_no_coordinator) {
        int sock;

        listen_without_keys();
        sock = greet(LINK_COORDINATOR);
        until_ended(sock);
        assert_int_equal(b.ups, 0);
        close(sock);
        sock = greet(LINK_NODE_ROLE);
        until(b.ups == 1);
        close(sock);
}

/* Its host may have lost power, so that its end of the connection says nothing any more. */
TEST(another_run_takes_the_place_of_one_that_is_silent) {
        int silent, sock;

        silence = 200 * USEC_PER_MSEC;
        listen_without_keys();
        silent = greet(LINK_NODE_ROLE);
        until(b.ups == 1);
        for (run++; b.ups == 1;) {
                sock = greet(LINK_NODE_ROLE);
                until_looking(b.ups == 2 || has_ended(sock));
                close(sock);
        }
        until(b.downs == 2);
        close(silent);
}

/* More strangers than may be here at once come one after the other. */
TEST(strangers_that_go_leave_their_places) {
        static const uint8_t noise[FRAME_HEADER];
        int sock;

        listen_without_keys();
        for (unsigned i = 0; i < 80; i++) {
                sock = stranger("127.0.0.1", noise, sizeof(noise));
                until_ended(sock);
                close(sock);
        }
        sock = greet(LINK_NODE_ROLE);
        until(b.ups == 1);
        close(sock);
}

/* A connection has greeted, and stays for longer than a greeting may take. */
TEST(who_has_greeted_need_not_greet_again) {
        limits.patience = USEC_PER_SEC;
        meet(ONE, ONE, false);
        until(a.peer != NULL && b.peer != NULL);
        run_for(2 * limits.patience);
        assert_int_equal(a.downs + b.downs, 0);
}

TEST(what_comes_with_the_last_flight_is_heard) {
        int sock;
        struct tls *tls = prove_as_a_node(&sock);

        until(b.ups == 1);
        assert_int_equal(peer_node(b.peer)[0], 7);
        tls_free(tls);
        close(sock);
}

/* The door has let it in, but the loop has not seen it yet. */
TEST(keys_may_go_while_one_proves_itself) {
        int sock;
        struct tls *tls = prove_as_a_node(&sock);

        change_keys(OTHER);
        until_ended(sock);
        assert_int_equal(b.ups, 0);
        tls_free(tls);
        close(sock);
}

#define CROWD 150u

/* All places are taken, by connections that say nothing and may stay for long. */
TEST(the_silent_give_way) {
        int sock[CROWD];

        limits.patience = 3600 * USEC_PER_SEC;
        open_end(&a, 1, 1, ONE, false);
        listen_alone();
        for (unsigned i = 0; i < CROWD; i++)
                sock[i] = stranger("127.0.0.2", NULL, 0);
        for (unsigned i = DOOR_PLACES; i < CROWD; i++)
                await_end(sock[i]); /* an address takes no place from itself */
        for (unsigned i = 0; i < DOOR_PLACES; i++)
                assert_true(is_open(sock[i]));
        dial_from(&a);
        until(a.ups == 1 && b.ups == 1);
        await_end(sock[0]); /* the oldest one has had to go */
        for (unsigned i = 0; i < CROWD; i++)
                close(sock[i]);
}

/* It gets a place from an address that has more. */
TEST(a_source_that_has_left_holds_no_places) {
        static const uint8_t garbage[64] = { 0x17 };
        int sock[DOOR_PLACES], last;

        limits.patience = 3600 * USEC_PER_SEC;
        listen_alone();
        for (unsigned i = 0; i < DOOR_PLACES; i++) {
                last = stranger("127.0.0.2", garbage, sizeof(garbage));
                await_end(last);
                close(last);
        }
        for (unsigned i = 0; i < DOOR_PLACES; i++)
                sock[i] = stranger("127.0.0.3", NULL, 0);
        last = stranger("127.0.0.2", NULL, 0);
        await_end(sock[0]);
        assert_true(is_open(last));
        for (unsigned i = 0; i < DOOR_PLACES; i++)
                close(sock[i]);
        close(last);
}

/* Strangers wait for their turns, of which there is one a second; a node comes before most of them. */
TEST(turns_go_round_addresses) {
        static const uint8_t garbage[64] = { 0x17 };
        int sock[DOOR_PLACES - 1];

        limits.patience = 3600 * USEC_PER_SEC;
        limits.together = 1;
        open_end(&a, 1, 1, ONE, false);
        listen_alone();
        for (unsigned i = 0; i < DOOR_PLACES - 1; i++)
                sock[i] = stranger("127.0.0.2", garbage, sizeof(garbage));
        await_end(sock[0]); /* the door is at work */
        dial_from(&a);
        until(a.ups == 1 && b.ups == 1);
        unsigned left = 0;
        for (unsigned i = 0; i < DOOR_PLACES - 1; i++)
                left += is_open(sock[i]);
        assert_true(left > (DOOR_PLACES - 1) / 2);
        for (unsigned i = 0; i < DOOR_PLACES - 1; i++)
                close(sock[i]);
}

/* One a second: of fifty some are turned away, however long it takes to connect. */
TEST(one_address_has_its_rate) {
        struct pollfd ends[50];

        limits.patience = 3600 * USEC_PER_SEC;
        limits.per_address = 1;
        listen_alone();
        for (unsigned i = 0; i < 50; i++)
                ends[i] = (struct pollfd){ .fd = stranger("127.0.0.3", NULL, 0), .events = POLLIN };
        assert_true(poll(ends + 1, 49, 60000) > 0);
        assert_true(is_open(ends[0].fd));
        for (unsigned i = 0; i < 50; i++)
                close(ends[i].fd);
}

TEST(nobody_says_much_before_it_has_proved_itself) {
        /* A ClientHello of 128 KiB, of which many records come. */
        static uint8_t record[5 + 4096] = { 22, 3, 1, 16, 0, 1, 1, 255, 0, 3, 3 };
        int sock;

        limits.patience = 3600 * USEC_PER_SEC;
        listen_alone();
        sock = stranger("127.0.0.1", record, sizeof(record));
        memset(record + 5, 0, sizeof(record) - 5);
        for (size_t said = 0; said < 4 * DOOR_HEARD; said += sizeof(record))
                if (send(sock, record, sizeof(record), MSG_NOSIGNAL) < 0)
                        break;
        await_end(sock);
        close(sock);
}

/* The door, and a connection that it works on, can end at any moment. */
TEST(ends_come_at_any_time) {
        static const uint8_t begun[] = { 22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3 };

        for (unsigned i = 0; i < 60; i++) {
                struct linger hard = { .l_onoff = 1 };
                int sock;

                meet(ONE, i % 3 == 2 ? OTHER : ONE, false);
                sock = stranger("127.0.0.2", begun, sizeof(begun));
                setsockopt(sock, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
                run_for(i * 97);
                close(sock);
                a.links = links_free(a.links);
                b.links = links_free(b.links);
                choose_port();
        }
}

/* However many strangers come, a peer with a key gets through as soon as there is room. */
TEST(noise_hurts_nobody) {
        int noise[40];
        uint8_t bytes[4096];

        srand(7);
        meet_with_one_key();
        for (unsigned i = 0; i < 40; i++) {
                for (size_t k = 0; k < sizeof(bytes); k++)
                        bytes[k] = i % 2 == 0 ? (uint8_t)rand()
                                   : k < 3    ? (uint8_t)(0x160301 >> (16 - 8 * k))
                                              : 0xff;
                noise[i] = stranger("127.0.0.1", bytes, i * 97 % sizeof(bytes));
        }
        for (unsigned i = 0; i < 50; i++) {
                peer_send(a.peer, LINK_FIRST_TYPE, i, bytes, sizeof(bytes));
                until(b.frames == i + 1);
        }
        assert_int_equal(b.downs + a.downs, 0);
        for (unsigned i = 0; i < 40; i++)
                close(noise[i]);
}

/* ---- files and addresses ---- */

TEST_ALONE(keys_are_read) {
        static const struct {
                const char *text, *said;
        } bad[] = {
                { "", "has no key" },
                { "# nothing\n\n", "has no key" },
                { "one", "a secret follows" },
                { "one 0011", "a secret follows" },
                { "one 00112233445566778899aabbccddeefg", "a secret follows" },
                { "one 00112233445566778899aabbccddeeff0", "a secret follows" },
                { "a/b 00112233445566778899aabbccddeeff", "a key begins with its name" },
                { ONE " uids=", "after the secret" },
                { ONE " uids=5-4", "after the secret" },
                { ONE " uids=5,", "after the secret" },
                { ONE " uids=-1", "after the secret" },
                { ONE " uids=4294967295", "after the secret" },
                { ONE " uids=1 uids=2", "after the secret" },
                { ONE " until=tomorrow", "after the secret" },
                { ONE " what", "after the secret" },
                { ONE "\n" OTHER, "k:2: two keys have one name" },
                { ONE "\ntwo 00112233445566778899aabbccddeeff\nthree 00112233445566778899aabbccddeeff",
                  "k:3: there are two keys at most" },
        };
        struct keys keys;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                assert_true(keys_parse(bad[i].text, strlen(bad[i].text), "k", &keys, error, sizeof(error)) <
                            0);
                if (strstr(error, bad[i].said) == NULL)
                        fail_msg("'%s': %s", bad[i].text, error);
                assert_int_equal(keys.n, 0);
        }
        assert_int_equal(keys_parse("x\0y", 3, "k", &keys, error, sizeof(error)), -EINVAL);
        static const char good[] = "# c\n " ONE "\tuids=* until=2100-01-01T00:00:00Z\n";
        assert_int_equal(keys_parse(good, strlen(good), "k", &keys, error, sizeof(error)), 0);
        assert_true(keys.n == 1 && keys.key[0].length == 16 && keys.key[0].secret[15] == 0xff);
        assert_int_equal(keys.key[0].until, 4102444800);
        assert_non_null(keys_find(&keys, "one", 3, 4102444799));
        assert_null(keys_find(&keys, "one", 3, 4102444800));
        assert_null(keys_find(&keys, "on", 2, 0));
}

/* A comment of that many bytes, and a key. */
static int parse_after(size_t bytes, struct keys *ret) {
        char text[4096 + sizeof(ONE)];

        memset(text, '#', bytes);
        strcpy(text + bytes, "\n" ONE);
        return keys_parse(text, bytes + 1 + strlen(ONE), "k", ret, error, sizeof(error));
}

TEST_ALONE(uids_of_keys_are_compared) {
        static const struct {
                const char *uids, *others;
                bool cover;
        } rows[] = {
                { "*", "*", true },
                { "*", "5", true },
                { "5", "*", false },
                { "5", "5", true },
                { "5", "5-6", false },
                { "1-4,9,5-8", "2-9", true },
                { "1-4,6-9", "2-9", false },
                { "1-9,3-4", "2-9", true },
                { "0-4294967294", "4294967294", true },
                { "0-4294967294", "*", false },
                { "1,2,3", "3,1", true },
                { "", "5", false },
                { "5", "", false },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                if (key_uids_cover(rows[i].uids, rows[i].others) != rows[i].cover)
                        fail_msg("'%s' and '%s'", rows[i].uids, rows[i].others);
}

TEST_ALONE(the_uids_of_a_key_are_text) {
        struct keys keys;
        char text[KEY_UIDS];

        set_keys(&keys, ONE " uids=1000,2000-2999");
        key_uids(&keys.key[0], text);
        assert_string_equal(text, "1000-1000,2000-2999");
        set_keys(&keys, ONE);
        key_uids(&keys.key[0], text);
        assert_string_equal(text, "*");
}

TEST_ALONE(the_longest_line_of_a_key_file) {
        struct keys keys;

        assert_int_equal(parse_after(2047, &keys), 0);
        assert_int_equal(keys.n, 1);
        for (size_t bytes = 2048; bytes < 2051; bytes++) {
                assert_int_equal(parse_after(bytes, &keys), -EINVAL);
                assert_non_null(strstr(error, "k:1: the line is too long"));
        }
}

TEST_ALONE(key_files_are_private) {
        char path[] = "/tmp/gradsync-key-XXXXXX";
        int fd = mkstemp(path);
        struct keys keys;

        assert_int_equal(write(fd, ONE "\n", sizeof(ONE)), sizeof(ONE));
        assert_int_equal(keys_load(path, NULL, &keys, error, sizeof(error)), 0);
        for (mode_t mode = 0601; mode <= 0677; mode++) {
                if ((mode & 077) == 0)
                        continue;
                assert_int_equal(fchmod(fd, mode), 0);
                assert_int_equal(keys_load(path, NULL, &keys, error, sizeof(error)), -EPERM);
        }
        assert_non_null(strstr(error, "chmod 0600"));
        assert_int_equal(keys_load("/tmp", NULL, &keys, error, sizeof(error)), -EPERM);
        close(fd);
        unlink(path);
        assert_int_equal(keys_load(path, NULL, &keys, error, sizeof(error)), -ENOENT);
}

/* The service manager's, which may let the daemon's user read it by an access list. */
TREE_TEST(keys_can_be_credentials) {
        const char *path = in_tree(KEY_CREDENTIAL), *other = in_tree("other");
        struct keys keys;

        assert_int_equal(keys_load("", NULL, &keys, error, sizeof(error)), 0);
        assert_int_equal(keys_load("", root, &keys, error, sizeof(error)), 0);
        assert_int_equal(keys.n, 0);
        assert_int_equal(keys_load("credential:other", NULL, &keys, error, sizeof(error)), -ENOENT);
        assert_non_null(strstr(error, "LoadCredential=other:PATH"));
        assert_int_equal(keys_load("credential:other", root, &keys, error, sizeof(error)), -ENOENT);
        assert_non_null(strstr(error, other));
        static const char *const bad[] = { "credential:", "credential:..", "credential:a/b" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(keys_load(bad[i], root, &keys, error, sizeof(error)), -EINVAL);
        for (unsigned i = 0; i < 2; i++) {
                int fd = open(i == 0 ? path : other, O_RDWR | O_CREAT | O_EXCL, 0400);

                assert_int_equal(write(fd, ONE "\n", sizeof(ONE)), sizeof(ONE));
                for (unsigned k = 0; k < 2; k++) {
                        assert_int_equal(fchmod(fd, k == 0 ? 0400 : 0440), 0);
                        assert_int_equal(keys_load(i == 0 ? "" : "credential:other", root, &keys, error,
                                                   sizeof(error)),
                                         0);
                        assert_int_equal(keys.n, 1);
                }
                assert_int_equal(keys_load(i == 0 ? path : other, root, &keys, error, sizeof(error)),
                                 -EPERM); /* by its path it is a file like any other */
                static const mode_t open_to_others[] = { 0420, 0404, 0402, 0460 };
                for (size_t k = 0; k < sizeof(open_to_others) / sizeof(open_to_others[0]); k++) {
                        assert_int_equal(fchmod(fd, open_to_others[k]), 0);
                        assert_int_equal(keys_load(i == 0 ? "" : "credential:other", root, &keys, error,
                                                   sizeof(error)),
                                         -EPERM);
                }
                close(fd);
        }
}

TEST_ALONE(addresses_are_read) {
        static const char *const bad[] = { "",           "host",    "host:",  ":1",         "host:0",
                                           "host:65536", "host:1x", "a:b:1",  "::1:5",      "[::1:5",
                                           "[]:5",       "unix:",   "unix:x", "host:123456" };
        static const struct {
                const char *text, *host, *port;
        } good[] = { { "host:1", "host", "1" },
                     { "[::1]:65535", "::1", "65535" },
                     { "10.0.0.1:7777", "10.0.0.1", "7777" } };
        struct sockaddr_storage at;
        socklen_t length;
        char text[64];

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                if (address_parse(bad[i], &address, error, sizeof(error)) != -EINVAL)
                        fail_msg("'%s'", bad[i]);
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                assert_int_equal(address_parse(good[i].text, &address, error, sizeof(error)), 0);
                assert_string_equal(address.host, good[i].host);
                assert_string_equal(address.port, good[i].port);
        }
        assert_int_equal(address_resolve_here(&address, false, &at, &length), 0);
        address_format(&at, text, sizeof(text));
        assert_string_equal(text, "10.0.0.1:7777");
        assert_int_equal(address_parse("lo:5", &address, error, sizeof(error)), 0);
        assert_int_equal(address_resolve_here(&address, false, &at, &length), -ENOENT); /* may be a name */
        assert_int_equal(address_resolve_here(&address, true, &at, &length), 0);
        address_format(&at, text, sizeof(text));
        assert_string_equal(text, "127.0.0.1:5");
        assert_int_equal(address_parse("unix:/a/b", &address, error, sizeof(error)), 0);
        assert_true(address.local);
        assert_string_equal(address.path, "/a/b");
}

/* Found by asking the system, on another thread. */
TEST(a_name_is_looked_up) {
        char port[8];

        strcpy(port, address.port);
        listen_alone();
        open_end(&a, 1, 1, ONE, false);
        strcpy(address.host, "localhost");
        dial_from(&a);
        until(a.ups == 1 && b.ups == 1);
}

TEST(a_name_that_is_none) {
        open_end(&a, 1, 1, ONE, false);
        strcpy(address.host, "no-such-host.invalid");
        dial_from(&a);
        until_trouble("'no-such-host.invalid' has no address");
}
