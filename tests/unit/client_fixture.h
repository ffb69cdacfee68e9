/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon for unit tests of the library: a thread that runs a script of frames, and a clock that moves only
 * when a script or a test moves it. So what the library measures can be compared with numbers, and what the
 * daemon says comes at the moment that the test is about. A test program includes this header once.
 */
#pragma once

#include "tests.h"
#include "tree_fixture.h"

#undef fail /* cmocka's macro; the library has a function of that name */

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include "client/lib/base/clock.h"
#include "client/lib/member/member.h"
#include "proto/codec.h"
#include "proto/fdpass.h"
#include "proto/memfd.h"

#define HANDLE 7u
#define EXPECT(condition) ((condition) ? (void)0 : client_expected(#condition, __LINE__))
#define DAEMON_WAIT_MS 60000

static uint64_t client_now;

/* In place of the C library's. */
int clock_gettime(clockid_t id, struct timespec *ret) {
        uint64_t now = __atomic_load_n(&client_now, __ATOMIC_SEQ_CST);

        if (id != CLOCK_MONOTONIC)
                return (int)syscall(SYS_clock_gettime, id, ret);
        *ret = (struct timespec){ .tv_sec = (time_t)(now / NSEC_PER_SEC),
                                  .tv_nsec = (long)(now % NSEC_PER_SEC) };
        return 0;
}

static inline void pass(uint64_t seconds) {
        __atomic_fetch_add(&client_now, seconds * NSEC_PER_SEC, __ATOMIC_SEQ_CST);
}

static bool client_closed, client_broken;

/* Also from the daemon's thread, where cmocka's assertions do not work. After the end of a test, which may
 * have failed, it is the test that fails. */
static inline void client_expected(const char *what, int line) {
        fprintf(stderr, "line %d: %s\n", line, what);
        if (!__atomic_load_n(&client_closed, __ATOMIC_SEQ_CST))
                abort();
        client_broken = true;
        pthread_exit(NULL);
}

struct played;
typedef void (*script_fn)(struct played *played);

/* The daemon: one connection after the other. */
struct played {
        struct sockaddr_un address;
        int listener, sock;
        uint64_t instance;
        pthread_t thread;
        script_fn script;
        struct gradsync *gs;
        struct gradsync_job *job;
        struct gradsync_plan *plan;
        uint8_t *in, *out;
        struct codec codec;
        uint32_t request; /* of the last message */
        int fd;           /* that came with it; -1: none */
        unsigned n_fds;   /* as many; others are closed */
        int arena, control;
        uint64_t arena_bytes, control_bytes;
};

/* The next message, which is of this type. */
static inline const void *take(struct played *d, uint16_t type) {
        struct fdpass_packet packet = { .data = d->in };
        struct pollfd readable = { .fd = d->sock, .events = POLLIN };
        const ProtobufCMessage *message;
        struct frame_header header;

        EXPECT(poll(&readable, 1, DAEMON_WAIT_MS) == 1);
        EXPECT(fdpass_receive(d->sock, &packet, 1) == 1 && packet.size > 0);
        EXPECT(frame_decode(packet.data, packet.size, &header) == FRAME_OK);
        if (header.type != type)
                fprintf(stderr, "%s came for %s\n", codec_type_name(header.type), codec_type_name(type));
        EXPECT(header.type == type);
        message = codec_unpack(&d->codec, header.type, packet.data + FRAME_HEADER, header.length, NULL);
        EXPECT(message != NULL);
        d->request = header.request;
        d->n_fds = packet.n_fds;
        d->fd = packet.n_fds > 0 ? packet.fds[0] : -1;
        for (unsigned i = 1; i < packet.n_fds; i++)
                close(packet.fds[i]);
        return message;
}

static inline void say_fds(struct played *d, uint16_t type, uint32_t request, const ProtobufCMessage *message,
                           const int *fds, unsigned n_fds) {
        ssize_t size = codec_pack(d->out, type, request, n_fds, message);

        EXPECT(size > 0 && fdpass_send(d->sock, d->out, (size_t)size, fds, n_fds) == 0);
}

static inline void say(struct played *d, uint16_t type, uint32_t request, const ProtobufCMessage *message,
                       int fd) {
        say_fds(d, type, request, message, &fd, fd >= 0);
}

#define TAKE(d, TYPE, Type) ((const Wire__##Type *)take(d, WIRE__MESSAGE_TYPE__##TYPE))
#define ANSWER(d, TYPE, message) say(d, WIRE__MESSAGE_TYPE__##TYPE, (d)->request, &(message).base, -1)
#define NOTICE(d, TYPE, message) say(d, WIRE__MESSAGE_TYPE__##TYPE, 0, &(message).base, -1)

static inline void take_hello(struct played *d) {
        d->sock = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
        EXPECT(d->sock >= 0);
        TAKE(d, HELLO, Hello);
        if (d->fd >= 0)
                close(d->fd);
}

/* Takes a connection, and answers HELLO. */
static inline void welcome(struct played *d) {
        Wire__Welcome welcome = WIRE__WELCOME__INIT;

        take_hello(d);
        SET(welcome, instance, ++d->instance);
        ANSWER(d, WELCOME, welcome);
}

static inline void hang_up(struct played *d) {
        close(d->sock);
        d->sock = -1;
}

/* Two members, of which this is rank 1, in generation 1. */
static inline void let_join(struct played *d) {
        Wire__Joined joined = WIRE__JOINED__INIT;

        TAKE(d, JOIN, Join);
        SET(joined, job, HANDLE);
        SET(joined, generation, 1);
        SET(joined, rank, 1);
        SET(joined, world, 2);
        SET(joined, member, 11);
        ANSWER(d, JOINED, joined);
}

static inline void take_plan(struct played *d) {
        const Wire__PlanBegin *begin = TAKE(d, PLAN_BEGIN, PlanBegin);

        EXPECT(begin->has_control_bytes);
        d->arena_bytes = begin->arena_bytes;
        d->control_bytes = begin->control_bytes;
        TAKE(d, PLAN_PARAMS, PlanParams);
        TAKE(d, PLAN_BUCKETS, PlanBuckets);
}

static inline void let_plan(struct played *d) {
        Wire__PlanAgreed agreed = WIRE__PLAN_AGREED__INIT;
        Wire__PlanArena arena = WIRE__PLAN_ARENA__INIT;

        take_plan(d);
        TAKE(d, PLAN_COMMIT, PlanCommit);
        d->arena = memfd_create("arena", MFD_CLOEXEC);
        EXPECT(d->arena >= 0 && ftruncate(d->arena, (off_t)d->arena_bytes) == 0);
        SET(arena, job, HANDLE);
        SET(arena, plan, 0);
        SET(arena, bytes, d->arena_bytes);
        d->control = memfd_new(MEMFD_CONTROL, d->control_bytes);
        say_fds(d, WIRE__MESSAGE_TYPE__PLAN_ARENA, d->request, &arena.base, (int[]){ d->arena, d->control },
                2);
        TAKE(d, PLAN_MAPPED, PlanMapped);
        SET(agreed, job, HANDLE);
        ANSWER(d, PLAN_AGREED, agreed);
}

static inline Wire__Step step_of(uint32_t generation, uint64_t number) {
        Wire__Step step = WIRE__STEP__INIT;

        SET(step, job, HANDLE);
        SET(step, generation, generation);
        SET(step, plan, 0);
        SET(step, step, number);
        return step;
}

/* Says that the buckets of the step are reduced, and committed. */
static inline void commit(struct played *d, uint32_t generation, uint64_t number, uint32_t buckets) {
        Wire__Step step = step_of(generation, number);
        Wire__BucketResult result[32], *list[32];

        for (uint32_t b = 0; b < buckets; b++) {
                wire__bucket_result__init(list[b] = &result[b]);
                SET(result[b], bucket, b);
        }
        step.n_result = buckets;
        step.result = list;
        SET(step, outcome, WIRE__OUTCOME__COMMITTED);
        NOTICE(d, STEP, step);
}

static inline void make_void(struct played *d, uint32_t generation, uint64_t number) {
        Wire__Step step = step_of(generation, number);

        SET(step, outcome, WIRE__OUTCOME__VOID);
        SET(step, rank, 0);
        SET(step, pid, 99);
        step.text = (char *)"gone";
        NOTICE(d, STEP, step);
}

static inline void next_generation(struct played *d, uint32_t generation, bool behind) {
        Wire__Newgen newgen = WIRE__NEWGEN__INIT;

        SET(newgen, job, HANDLE);
        SET(newgen, generation, generation);
        SET(newgen, rank, 1);
        SET(newgen, world, 2);
        SET(newgen, behind, behind);
        newgen.text = (char *)"gone";
        NOTICE(d, NEWGEN, newgen);
}

static inline void refuse(struct played *d, uint32_t request, uint32_t code, const char *text) {
        Wire__Refused refused = WIRE__REFUSED__INIT;

        SET(refused, code, code);
        refused.text = (char *)(uintptr_t)text;
        say(d, WIRE__MESSAGE_TYPE__REFUSED, request, &refused.base, -1);
}

static inline void let_begin(struct played *d) {
        let_join(d);
        let_plan(d);
}

static inline void *played_thread(void *data) {
        struct played *d = data;

        welcome(d);
        d->script(d);
        while (d->sock >= 0 && recv(d->sock, d->in, FRAME_MAX, 0) > 0)
                ;
        if (d->sock >= 0)
                hang_up(d);
        return NULL;
}

/* Opens a handle to a daemon that plays the script, and joins. */
static inline void play_with(struct played *d, script_fn script, const struct gradsync_options *given) {
        struct gradsync_join_options join = GRADSYNC_JOIN_OPTIONS_INIT;
        struct gradsync_options options = *given;
        struct timespec now;

        /* The kernel's timers follow its own clock: what is armed for a moment from now is due soon. */
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        __atomic_store_n(&client_now, (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec,
                         __ATOMIC_SEQ_CST);
        *d = (struct played){
                .address = { .sun_family = AF_UNIX }, .sock = -1, .script = script, .arena = -1, .control = -1
        };
        assert_int_equal(tree_make(NULL), 0);
        strcpy(d->address.sun_path, in_tree("socket"));
        d->in = malloc(FRAME_MAX);
        d->out = malloc(FRAME_MAX);
        assert_int_equal(codec_init(&d->codec), 0);
        d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(d->listener, (struct sockaddr *)&d->address, sizeof(d->address)), 0);
        assert_int_equal(listen(d->listener, 4), 0);
        assert_int_equal(pthread_create(&d->thread, NULL, played_thread, d), 0);
        options.socket = d->address.sun_path;
        assert_int_equal(gradsync_open(&d->gs, &options), GRADSYNC_OK);
        join.name = "job";
        join.min_world = 2;
        assert_int_equal(gradsync_join(d->gs, &join, &d->job), GRADSYNC_OK);
}

static inline void play(struct played *d, script_fn script) {
        play_with(d, script, &(struct gradsync_options)GRADSYNC_OPTIONS_INIT);
}

/* The process goes on for ten minutes of the tests' clock without a daemon. */
static inline void play_patient(struct played *d, script_fn script) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;

        options.reconnect_timeout_ms = 600000;
        play_with(d, script, &options);
}

/* A plan of so many parameters of 16 bytes, in buckets of so many bytes. */
static inline void plan_in_buckets(struct played *d, uint32_t n, uint64_t bytes) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        uint64_t elements = 4;
        char name[] = "a";

        options.first_bucket_bytes = options.bucket_bytes = bytes;
        for (; n > 0; n--, name[0]++)
                assert_int_equal(gradsync_param(d->job, name, GRADSYNC_F32, 1, &elements), GRADSYNC_OK);
        assert_int_equal(gradsync_plan_with(d->job, &options, &d->plan), GRADSYNC_OK);
}

/* Each parameter has a bucket of its own: parameter n-1 is bucket 0. */
static inline void plan_of(struct played *d, uint32_t n) {
        plan_in_buckets(d, n, 16);
}

static inline void play_plan(struct played *d, script_fn script, uint32_t n) {
        play(d, script);
        plan_of(d, n);
}

static inline void mark(struct played *d, uint32_t parameter) {
        assert_int_equal(gradsync_ready(d->plan, parameter), GRADSYNC_OK);
}

static inline struct gradsync_info finish(struct played *d, int result) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;

        assert_int_equal(gradsync_finish(d->plan, &info), result);
        return info;
}

/* The daemon of a test, and where its thread meets that of the test. */
static struct played played;
static pthread_barrier_t gate;
static pthread_t second; /* a thread beside that of the test */

#define DISPATCH_UNTIL(condition)                                                                            \
        while (!(condition))                                                                                 \
        assert_int_equal(gradsync_dispatch(played.gs), GRADSYNC_OK)

static inline void begin_second(void *(*run)(void *), void *data) {
        assert_int_equal(pthread_create(&second, NULL, run, data), 0);
}

/* Awaits the end of the second thread, which returns this result of a call. */
static inline void end_second(int result) {
        void *returned;

        pthread_join(second, &returned);
        assert_int_equal((intptr_t)returned, result);
}

static inline void played_end(struct played *d) {
        __atomic_store_n(&client_closed, true, __ATOMIC_SEQ_CST);
        gradsync_close(d->gs);
        pthread_join(d->thread, NULL);
        __atomic_store_n(&client_closed, false, __ATOMIC_SEQ_CST);
        if (d->listener >= 0)
                close(d->listener);
        if (d->arena >= 0)
                close(d->arena);
        if (d->control >= 0)
                close(d->control);
        tree_remove(NULL);
        codec_deinit(&d->codec);
        free(d->in);
        free(d->out);
}

static inline int played_open_gate(void **state) {
        return pthread_barrier_init(&gate, NULL, 2);
}

static inline int played_over(void **state) {
        played_end(&played);
        pthread_barrier_destroy(&gate);
        int r = client_broken ? -1 : 0;
        client_broken = false;
        return r;
}

/* A test that plays one script to its end. */
#define PLAYED(name) TEST_WITH(name, played_open_gate, played_over)

/* The same of a member with a plan of n parameters. */
#define PLANNED(name, script, n)                                                                             \
        static void name(void);                                                                              \
        TEST_LIST(name, (play_plan(&played, script, n), name()), played_open_gate, played_over)              \
        static void name(void)
