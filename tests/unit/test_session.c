/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on a fake link: packets go in, frames come out. The tests cover the handshake, the ends of
 * sessions, and how results are gathered. */
#include "tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "jobs_fixture.h"
#include "session/private.h"

#define WORLD 5 /* of a trace */

struct wire { /* one fake connection */
        struct session *session;
        bool hung_up;
        bool drained;                         /* read on after the end of its process */
        unsigned n_frames, n_jobs, n_clients; /* of a status */
        bool gives_up;                        /* at the first client in it */
        bool more;                            /* of a status; it goes on from `next` */
        Wire__StatusPlace next;
        unsigned results, results_of[2]; /* by plan */
        uint16_t type;                   /* of the last frame */
        uint32_t request, code, job, minor;
        int64_t culprit, culprit_pid; /* of the last refusal; -1: none */
        char lost[256];               /* why the last member was lost */
        uint64_t step;
        unsigned outcome;
        bool unused;
        size_t n_by_rank; /* values in the last bucket of a trace: */
        uint64_t counts[WORLD];
        bool ready[WORLD];
        int32_t pid[WORLD];
        char program[64]; /* of a client in a status */
        int fd;
};

static struct reports *reports;
static struct sessions *sessions;
static struct wire wires[2];
static struct codec codec;
static uint8_t frame[FRAME_MAX];

static void note_trace(struct wire *wire, const Wire__TraceStep *step) {
        const Wire__TraceBucket *bucket = step->bucket[0];

        wire->n_by_rank = bucket->n_ready;
        for (size_t i = 0; i < WORLD && i < bucket->n_ready; i++)
                wire->ready[i] = bucket->ready[i] > 0;
        for (size_t i = 0; i < WORLD && i < bucket->n_rank_nonfinite; i++)
                wire->counts[i] = bucket->rank_nonfinite[i];
        for (size_t i = 0; i < WORLD && i < step->n_pid; i++)
                wire->pid[i] = step->pid[i];
}

static void on_send(void *link, const void *packet, size_t size, const int *fds, unsigned n_fds) {
        struct wire *wire = link;
        struct frame_header header;
        const ProtobufCMessage *message;

        assert_int_equal(frame_decode(packet, size, &header), FRAME_OK);
        message = codec_unpack(&codec, header.type, (const uint8_t *)packet + FRAME_HEADER, header.length,
                               NULL);
        assert_non_null(message);
        wire->n_frames++;
        wire->type = header.type;
        wire->request = header.request;
        wire->fd = n_fds > 0 ? fds[0] : -1;
        if (header.type == WIRE__MESSAGE_TYPE__REFUSED) {
                const Wire__Refused *refused = (const Wire__Refused *)message;

                wire->code = refused->code;
                wire->culprit = refused->has_rank ? (int64_t)refused->rank : -1;
                wire->culprit_pid = refused->has_pid ? refused->pid : -1;
        }
        wire->n_jobs += header.type == WIRE__MESSAGE_TYPE__STATUS_JOB;
        if (header.type == WIRE__MESSAGE_TYPE__STATUS_END) {
                const Wire__StatusPlace *next = ((const Wire__StatusEnd *)message)->next;

                wire->more = next != NULL;
                wire->next = next != NULL ? *next : (Wire__StatusPlace)WIRE__STATUS_PLACE__INIT;
        }
        if (header.type == WIRE__MESSAGE_TYPE__LOST)
                snprintf(wire->lost, sizeof(wire->lost), "%s", ((const Wire__Lost *)message)->text);
        if (header.type == WIRE__MESSAGE_TYPE__WELCOME)
                wire->minor = ((const Wire__Welcome *)message)->minor;
        if (header.type == WIRE__MESSAGE_TYPE__JOINED)
                wire->job = ((const Wire__Joined *)message)->job;
        if (header.type == WIRE__MESSAGE_TYPE__STATUS_CLIENT) {
                snprintf(wire->program, sizeof(wire->program), "%s",
                         ((const Wire__StatusClient *)message)->program);
                wire->n_clients++;
                if (wire->gives_up)
                        session_given_up(wire->session, "it takes nothing");
                wire->gives_up = false;
        }
        if (header.type == WIRE__MESSAGE_TYPE__STEP) {
                const Wire__Step *step = (const Wire__Step *)message;

                wire->results += (unsigned)step->n_result;
                wire->results_of[step->plan % 2] += (unsigned)step->n_result;
                wire->step = step->step;
                wire->outcome = step->has_outcome ? step->outcome : 0;
                for (size_t i = 0; i < step->n_result; i++)
                        wire->unused = wire->unused || step->result[i]->has_unused;
        }
        if (header.type == WIRE__MESSAGE_TYPE__TRACE_STEP)
                note_trace(wire, (const Wire__TraceStep *)message);
}

static void on_hangup(void *link) {
        struct wire *wire = link;

        wire->hung_up = true;
}

static void ask(struct wire *wire, uint16_t type, const ProtobufCMessage *message) {
        ssize_t size = codec_pack(frame, type, 7, 0, message);
        int fd = -1;

        assert_true(size > 0);
        session_packet(wire->session, frame, (size_t)size, &fd, 0);
}

/* All pieces: one ends when its time is over, which may be before its first row. */
static void ask_status(struct wire *wire) {
        Wire__Status status = WIRE__STATUS__INIT;
        Wire__StatusPlace from;

        do {
                ask(wire, WIRE__MESSAGE_TYPE__STATUS, &status.base);
                assert_int_equal(wire->type, WIRE__MESSAGE_TYPE__STATUS_END);
                from = wire->next;
                status.from = &from;
        } while (wire->more);
}

static void on_drain(void *link) {
        struct wire *wire = link;

        wire->drained = true;
        session_drained(wire->session);
}

static const struct session_link ops = { .send = on_send, .drain = on_drain, .hangup = on_hangup };

static void send_message(struct fixture *f, unsigned who, uint16_t type, uint32_t request,
                         const ProtobufCMessage *message, int fd) {
        ssize_t size = codec_pack(frame, type, request, fd >= 0 ? 1 : 0, message);

        assert_true(size > 0);
        session_packet(wires[who].session, frame, (size_t)size, &fd, fd >= 0 ? 1 : 0);
        fd_close(fd); /* what it has not kept */
}

static void hello(struct fixture *f, unsigned who, int fd) {
        Wire__Hello message = WIRE__HELLO__INIT;

        send_message(f, who, WIRE__MESSAGE_TYPE__HELLO, 1, &message.base, fd);
}

static int setup_sessions(void **state) {
        struct session_peer peer = { .uid = 1000, .gid = 1000, .pid = getpid() };
        struct reports_config shown = { .device = "cpu", .socket = "s" };
        struct sessions_config config = { .device = "cpu",
                                          .handshake_timeout = 60000000,
                                          .staging_bytes = 65536 };
        struct fixture *f;

        setup(state);
        f = *state;
        f->fake.inline_results = true;
        config.loop = f->loop;
        config.accounts = f->accounts;
        config.jobs = f->jobs;
        config.backend = &f->fake.backend;
        shown.loop = f->loop;
        shown.accounts = f->accounts;
        shown.jobs = f->jobs;
        shown.backend = &f->fake.backend;
        assert_int_equal(reports_new(&shown, &reports), 0);
        config.reports = reports;
        sessions_new(&config, &sessions);
        codec_init(&codec);
        memset(wires, 0, sizeof(wires));
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(session_new(sessions, &ops, &wires[i], &peer, -1, &wires[i].session), 0);
        return 0;
}

static int teardown_sessions(void **state) {
        struct fixture *f = *state;

        for (unsigned i = 0; i < 2; i++)
                session_closed(wires[i].session);
        pass(f);
        for (unsigned i = 0; i < 2; i++) {
                assert_true(wires[i].hung_up);
                session_free(wires[i].session);
        }
        pass(f);
        sessions_free(sessions);
        reports_free(reports);
        codec_deinit(&codec);
        return teardown(state);
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_sessions, teardown_sessions)

static void assert_ends(struct fixture *f, unsigned code) {
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__REFUSED);
        assert_int_equal(wires[0].code, code);
        assert_false(wires[0].hung_up); /* not inside the call */
        pass(f);
        assert_true(wires[0].hung_up);
        assert_false(wires[1].hung_up);
}

TEST(the_handshake_comes_first_and_once) {
        Wire__Status status = WIRE__STATUS__INIT;

        hello(f, 1, -1);
        assert_int_equal(wires[1].type, WIRE__MESSAGE_TYPE__WELCOME);
        assert_int_equal(wires[1].request, 1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__STATUS, 2, &status.base, -1);
        assert_ends(f, WIRE__CODE__PROTOCOL);
        hello(f, 0, -1); /* whatever follows is not heard */
        assert_int_equal(wires[0].n_frames, 1);
}

TEST(a_name_is_cut_between_characters) {
        Wire__Hello message = WIRE__HELLO__INIT;
        char program[] = "b\ncdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz\u00e9\u00e9";

        assert_int_equal(strlen(program), 66); /* byte 62 is the first half of a character */
        message.program = program;
        send_message(f, 0, WIRE__MESSAGE_TYPE__HELLO, 1, &message.base, -1);
        ask_status(&wires[0]);
        assert_string_equal(wires[0].program,
                            "b cdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz");
}

/* A client of a connection of its own, with a time-out that is over at once. */
static void meet(struct fixture *f, struct wire *wire, bool says_hello) {
        struct session_peer peer = { .uid = 1000, .gid = 1000, .pid = getpid() };
        Wire__Hello message = WIRE__HELLO__INIT;

        sessions_set_handshake_timeout(sessions, 1);
        assert_int_equal(session_new(sessions, &ops, wire, &peer, -1, &wire->session), 0);
        if (says_hello)
                ask(wire, WIRE__MESSAGE_TYPE__HELLO, &message.base);
}

static void part(struct fixture *f, struct wire *wire) {
        session_closed(wire->session);
        pass(f);
        session_free(wire->session);
}

TEST(the_time_for_hello_is_over_with_it) {
        struct wire silent = { 0 }, polite = { 0 };

        meet(f, &polite, true);
        meet(f, &silent, false);
        while (!silent.hung_up) /* its time began last */
                pass(f);
        assert_int_equal(silent.code, WIRE__CODE__TIMEOUT);
        assert_false(polite.hung_up);
        part(f, &silent);
        part(f, &polite);
}

TEST(the_older_one_says_how_they_speak) {
        Wire__Hello message = WIRE__HELLO__INIT;

        wires[0].minor = FRAME_MINOR + 1;
        SET(message, minor, FRAME_MINOR + 1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__HELLO, 1, &message.base, -1);
        assert_int_equal(wires[0].minor, FRAME_MINOR);
}

TEST(a_second_hello_ends_it) {
        hello(f, 0, -1);
        hello(f, 0, -1);
        assert_ends(f, WIRE__CODE__PROTOCOL);
}

TEST(another_major_version_is_named) {
        uint8_t packet[FRAME_HEADER];

        frame_encode(packet, &(struct frame_header){ .major = 9, .type = WIRE__MESSAGE_TYPE__HELLO });
        session_packet(wires[0].session, packet, sizeof(packet), NULL, 0);
        assert_ends(f, WIRE__CODE__VERSION);
}

TEST(replies_are_not_requests) {
        Wire__Left message = WIRE__LEFT__INIT;

        hello(f, 0, -1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__LEFT, 2, &message.base, -1);
        assert_ends(f, WIRE__CODE__PROTOCOL);
}

TEST(fds_come_only_where_they_belong) {
        Wire__Status status = WIRE__STATUS__INIT;
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        hello(f, 0, -1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__STATUS, 2, &status.base, fd);
        assert_ends(f, WIRE__CODE__PROTOCOL);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        assert_int_equal(errno, EBADF);
}

static pid_t child_that_waits(void) {
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        pause();
        }
        assert_true(pid > 0);
        return pid;
}

TEST(a_pidfd_of_somebody_else_is_refused) {
        pid_t pid = child_that_waits();
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);

        assert_true(fd >= 0);
        hello(f, 0, fd);
        assert_ends(f, WIRE__CODE__INVALID);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A client whose process ends; `member`: of a job that forms. */
static void end_process(struct fixture *f, struct wire *wire, bool member) {
        Wire__Hello hello = WIRE__HELLO__INIT;
        Wire__Join join = WIRE__JOIN__INIT;
        pid_t pid = child_that_waits();
        struct session_peer peer = { .uid = 1000, .gid = 1000, .pid = pid };
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        assert_true(fd >= 0);
        assert_int_equal(session_new(sessions, &ops, wire, &peer, fd, &wire->session), 0);
        ask(wire, WIRE__MESSAGE_TYPE__HELLO, &hello.base);
        join.job = (char *)"ended";
        SET(join, min_world, 2);
        SET(join, max_world, 2);
        if (member)
                ask(wire, WIRE__MESSAGE_TYPE__JOIN, &join.base);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (!wire->hung_up)
                pass(f);
        session_closed(wire->session);
        pass(f);
        session_free(wire->session);
}

/* A member's messages count for its job even after its process has ended. Those of other clients are not read
 * then. */
TEST(what_ended_processes_sent_is_read_of_members_alone) {
        struct wire member = { 0 }, other = { 0 };

        end_process(f, &member, true);
        assert_true(member.drained);
        end_process(f, &other, false);
        assert_false(other.drained);
        assert_int_equal(other.n_frames, 1); /* WELCOME */
}

TEST(an_own_pidfd_is_kept) {
        int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

        hello(f, 0, fd);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__WELCOME);
        assert_true(fcntl(fd, F_GETFD) >= 0);
}

static Wire__Join wire_join_of(const char *job, uint32_t min_world, uint32_t max_world) {
        Wire__Join join = WIRE__JOIN__INIT;

        join.job = (char *)job;
        SET(join, min_world, min_world);
        SET(join, max_world, max_world);
        return join;
}

/* The code with which it is refused; else 0. */
static unsigned send_join_of(struct fixture *f, unsigned who, const Wire__Join *join) {
        wires[who].code = 0;
        send_message(f, who, WIRE__MESSAGE_TYPE__JOIN, 5, &join->base, -1);
        return wires[who].code;
}

static unsigned send_join(struct fixture *f, unsigned who) {
        Wire__Join join = wire_join_of("j", 2, 2);

        return send_join_of(f, who, &join);
}

static void form(struct fixture *f) {
        for (unsigned who = 0; who < 2; who++) {
                hello(f, who, -1);
                send_join(f, who);
        }
        pass(f);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__JOINED);
        assert_int_equal(wires[0].request, 5);
}

TEST(wrong_joins_are_answered) {
        static const struct {
                const char *job;
                uint32_t min_world, max_world;
                unsigned code;
        } rows[] = {
                { NULL, 2, 2, WIRE__CODE__INVALID },
                { "a/b", 2, 2, WIRE__CODE__INVALID },
                { "j", 3, 2, WIRE__CODE__INVALID },
                { "j", 0, 2, WIRE__CODE__INVALID },
                { "j", 2, LIMIT_LOCAL + 1, WIRE__CODE__INVALID },
                { "j", 2, LIMIT_LOCAL, 0 },
        };

        hello(f, 0, -1);
        for (size_t i = 0; i < array_size(rows); i++) {
                Wire__Join join = wire_join_of(rows[i].job, rows[i].min_world, rows[i].max_world);
                unsigned code = send_join_of(f, 0, &join);

                if (code != rows[i].code)
                        fail_msg("job '%s', %u to %u members: code %u", rows[i].job, rows[i].min_world,
                                 rows[i].max_world, code);
                assert_true(code == 0 || wires[0].request == 5);
        }
        pass(f);
        assert_false(wires[0].hung_up);
}

TEST(a_connection_is_in_some_jobs_at_most) {
        uint64_t limits[ACCOUNT_SLOTS];
        char name[16];

        memcpy(limits, fake_limits, sizeof(limits));
        limits[ACCOUNT_JOBS] = SESSION_MEMBERS + 1;
        accounts_set_limits(f->accounts, limits);
        hello(f, 0, -1);
        for (unsigned i = 0; i <= SESSION_MEMBERS; i++) {
                snprintf(name, sizeof(name), "j%u", i);
                Wire__Join join = wire_join_of(name, 2, 2);
                assert_int_equal(send_join_of(f, 0, &join), i < SESSION_MEMBERS ? 0 : WIRE__CODE__QUOTA);
        }
}

static unsigned join_as(struct fixture *f, unsigned who, bool ranked, bool identified, uint64_t instance) {
        Wire__Join join = wire_join_of("j", 3, 3);

        join.has_rank = ranked;
        join.rank = 1;
        join.has_instance = identified;
        join.instance = instance;
        return send_join_of(f, who, &join);
}

TEST(an_instance_belongs_to_a_rank) {
        hello(f, 0, -1);
        assert_int_equal(join_as(f, 0, false, true, 0), WIRE__CODE__INVALID);
        assert_int_equal(join_as(f, 0, true, true, UINT64_MAX), WIRE__CODE__INVALID);
        assert_int_equal(join_as(f, 0, true, true, UINT64_MAX - 1), 0);
        hello(f, 1, -1);
        assert_int_equal(join_as(f, 1, true, true, UINT64_MAX - 1), WIRE__CODE__STALE);
        assert_int_equal(join_as(f, 1, true, true, 0), WIRE__CODE__STALE);
        assert_int_equal(join_as(f, 1, true, false, 0), WIRE__CODE__RANK_TAKEN);
        pass(f);
        assert_false(wires[0].hung_up);
}

TEST(who_says_no_instance_keeps_its_rank) {
        hello(f, 0, -1);
        assert_int_equal(join_as(f, 0, true, false, 0), 0);
        hello(f, 1, -1);
        assert_int_equal(join_as(f, 1, true, true, 7), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(wires[1].culprit, 1);
}

static unsigned join_spare(struct fixture *f, unsigned who, bool ranked) {
        Wire__Join join = wire_join_of("j", 1, 1);

        SET(join, spare, true);
        join.has_rank = ranked;
        return send_join_of(f, who, &join);
}

TEST(a_spare_has_no_rank) {
        hello(f, 0, -1);
        assert_int_equal(join_spare(f, 0, true), WIRE__CODE__INVALID);
        assert_int_equal(join_spare(f, 0, false), 0);
}

/* `buckets` of one parameter each. */
static void send_plan_as(struct fixture *f, unsigned who, uint32_t plan, uint32_t buckets) {
        Wire__PlanBegin begin = WIRE__PLAN_BEGIN__INIT;
        Wire__PlanCommit commit = WIRE__PLAN_COMMIT__INIT;
        Wire__PlanMapped mapped = WIRE__PLAN_MAPPED__INIT;

        SET(begin, job, wires[who].job);
        SET(commit, job, begin.job);
        SET(mapped, job, begin.job);
        SET(begin, generation, 1);
        SET(begin, plan, plan);
        SET(commit, plan, plan);
        SET(mapped, plan, plan);
        SET(begin, params, buckets);
        SET(begin, buckets, buckets);
        SET(begin, arena_bytes, 4096 * buckets);
        SET(begin, control_bytes, diagnosis_bytes(buckets));
        SET(begin, reduce, WIRE__REDUCE__AVG);
        send_message(f, who, WIRE__MESSAGE_TYPE__PLAN_BEGIN, 8, &begin.base, -1);
        for (uint32_t i = 0; i < buckets; i++) {
                Wire__PlanParams params = WIRE__PLAN_PARAMS__INIT;
                Wire__PlanBuckets places = WIRE__PLAN_BUCKETS__INIT;
                Wire__Param param = WIRE__PARAM__INIT, *param_list = &param;
                Wire__Bucket bucket = WIRE__BUCKET__INIT, *bucket_list = &bucket;
                char name[16];

                snprintf(name, sizeof(name), "p%u", i);
                SET(params, job, begin.job);
                SET(places, job, begin.job);
                SET(params, plan, plan);
                SET(places, plan, plan);
                param.name = name;
                SET(param, dtype, WIRE__DTYPE__F32);
                SET(bucket, dtype, WIRE__DTYPE__F32);
                SET(param, bucket, i);
                SET(bucket, offset, 4096 * i);
                SET(bucket, bytes, 4);
                SET(bucket, payload, 4);
                params.n_param = places.n_bucket = 1;
                params.param = &param_list;
                places.bucket = &bucket_list;
                send_message(f, who, WIRE__MESSAGE_TYPE__PLAN_PARAMS, 8, &params.base, -1);
                send_message(f, who, WIRE__MESSAGE_TYPE__PLAN_BUCKETS, 8, &places.base, -1);
        }
        send_message(f, who, WIRE__MESSAGE_TYPE__PLAN_COMMIT, 8, &commit.base, -1);
        assert_int_equal(wires[who].type, WIRE__MESSAGE_TYPE__PLAN_ARENA);
        assert_int_equal(wires[who].request, 8);
        assert_true(wires[who].fd >= 0);
        send_message(f, who, WIRE__MESSAGE_TYPE__PLAN_MAPPED, 9, &mapped.base, -1);
}

static void send_plan(struct fixture *f, unsigned who, uint32_t buckets) {
        send_plan_as(f, who, 0, buckets);
}

static Wire__Ready ready_of(struct fixture *f, unsigned who, uint32_t bucket) {
        Wire__Ready ready = WIRE__READY__INIT;

        SET(ready, job, wires[who].job);
        SET(ready, generation, 1);
        SET(ready, step, 1);
        SET(ready, bucket, bucket);
        return ready;
}

static void send_ready(struct fixture *f, unsigned who, uint32_t bucket, bool absent) {
        Wire__Ready ready = ready_of(f, who, bucket);
        uint8_t bits = 1;

        ready.has_absent = absent;
        ready.absent = (ProtobufCBinaryData){ .len = 1, .data = &bits };
        send_message(f, who, WIRE__MESSAGE_TYPE__READY, 0, &ready.base, -1);
}

static void send_ready_of(struct fixture *f, unsigned who, uint32_t plan, uint32_t bucket) {
        Wire__Ready ready = ready_of(f, who, bucket);

        SET(ready, plan, plan);
        send_message(f, who, WIRE__MESSAGE_TYPE__READY, 0, &ready.base, -1);
}

TEST(many_results_of_one_pass_take_few_frames) {
        const unsigned buckets = 2 * LIMIT_RESULTS + 44;
        unsigned before;

        form(f);
        send_plan(f, 0, buckets);
        send_plan(f, 1, buckets);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__PLAN_AGREED);
        before = wires[0].n_frames;
        for (unsigned bucket = 0; bucket < buckets; bucket++)
                for (unsigned who = 0; who < 2; who++)
                        send_ready(f, who, bucket, bucket == 7);
        pass(f);
        for (unsigned who = 0; who < 2; who++) {
                assert_int_equal(wires[who].results, buckets);
                assert_int_equal(wires[who].step, 1);
                assert_int_equal(wires[who].outcome, WIRE__OUTCOME__COMMITTED);
                assert_true(wires[who].unused);
        }
        assert_true(wires[0].n_frames - before <= 4);
}

TEST(results_of_two_plans_are_told_apart) {
        form(f);
        for (unsigned plan = 0; plan < 2; plan++)
                for (unsigned who = 0; who < 2; who++)
                        send_plan_as(f, who, plan, 2);
        for (unsigned plan = 0; plan < 2; plan++)
                for (unsigned who = 0; who < 2; who++)
                        send_ready_of(f, who, plan, 0);
        pass(f);
        assert_int_equal(wires[0].results_of[0], 1);
        assert_int_equal(wires[0].results_of[1], 1);
}

/* The refusal of the first frame stands for all frames of that plan. Another plan may have the same number
 * later. */
TEST(a_wrong_plan_is_refused_once) {
        Wire__PlanBegin begin = WIRE__PLAN_BEGIN__INIT;
        Wire__PlanParams params = WIRE__PLAN_PARAMS__INIT;
        Wire__PlanCommit commit = WIRE__PLAN_COMMIT__INIT;

        form(f);
        SET(begin, job, wires[0].job);
        SET(params, job, begin.job);
        SET(commit, job, begin.job);
        SET(begin, generation, 1);
        unsigned before = wires[0].n_frames;
        send_message(f, 0, WIRE__MESSAGE_TYPE__PLAN_BEGIN, 8, &begin.base, -1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__PLAN_PARAMS, 8, &params.base, -1);
        send_message(f, 0, WIRE__MESSAGE_TYPE__PLAN_COMMIT, 8, &commit.base, -1);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__REFUSED);
        assert_int_equal(wires[0].n_frames, before + 1);
        send_plan_as(f, 0, 1, 1); /* with that number */
}

TEST(a_member_without_a_rank_gives_nothing) {
        hello(f, 0, -1);
        send_join(f, 0);
        wires[0].job = list_entry(f->jobs->list.next, struct job, link)->id;
        send_ready(f, 0, 0, false);
        assert_ends(f, WIRE__CODE__STATE);
}

/* Members of this node have ranks 1 and 3: what is told by rank has a value for each of the world. */
TEST(a_trace_has_values_of_ranks) {
        const uint64_t counts[] = { 0, 7 };
        const struct backend_result result = { .n_inputs = 2, .input_nonfinite = counts };
        const struct wire *wire = &wires[0];
        Wire__Trace trace = WIRE__TRACE__INIT;
        struct record *record;
        struct record_step *step;

        form(f);
        for (unsigned who = 0; who < 2; who++)
                send_plan(f, who, 1);
        record = list_entry(f->jobs->list.next, struct job, link)->record;
        record->world = WORLD;
        record->pid[0] = 0;
        record->pid[1] = record->pid[3] = getpid();
        record_open(record, &step,
                    &(struct record_step){
                            .number = 1, .opened = 10, .world = WORLD, .n_local = 2, .buckets = 1 });
        for (uint32_t local = 0; local < 2; local++) {
                record_name(step, local, 1 + 2 * local);
                record_ready(step, 0, local, 20);
        }
        record_end(record, step, 0, 40, 30, &result);
        record_close(record, step, true, 10, 40);
        trace.job = (char *)"j";
        send_message(f, 0, WIRE__MESSAGE_TYPE__TRACE, 6, &trace.base, -1);
        assert_int_equal(wire->n_by_rank, WORLD);
        assert_true(wire->ready[1] && wire->ready[3] && !wire->ready[0] && !wire->ready[2] &&
                    !wire->ready[4]);
        assert_true(wire->counts[1] == 0 && wire->counts[3] == 7);
        assert_true(wire->pid[1] == getpid() && wire->pid[3] == getpid() && wire->pid[0] == 0);
}

TEST(a_wrong_ready_evicts_and_the_others_hear_of_it) {
        form(f);
        send_plan(f, 0, 2);
        send_plan(f, 1, 2);
        send_ready(f, 1, 0, false);
        send_ready(f, 0, 1, false);
        send_ready(f, 0, 1, false);
        assert_ends(f, WIRE__CODE__STATE);
        assert_int_equal(wires[1].outcome, WIRE__OUTCOME__VOID);
        assert_int_equal(wires[1].type, WIRE__MESSAGE_TYPE__LOST);
        assert_non_null(strstr(wires[1].lost, "second READY for bucket 1"));
}

TEST(one_connection_has_one_place_in_a_job) {
        hello(f, 0, -1);
        assert_int_equal(send_join(f, 0), 0);
        assert_int_equal(send_join(f, 0), WIRE__CODE__STATE);
        pass(f);
        assert_false(wires[0].hung_up);
}

TEST(users_see_their_own_jobs) {
        struct session_peer peer = { .uid = 1001, .gid = 1001, .pid = getpid() };
        Wire__Hello greeting = WIRE__HELLO__INIT;
        struct wire other = { 0 };

        hello(f, 0, -1);
        send_join(f, 0);
        ask_status(&wires[0]);
        assert_int_equal(wires[0].n_jobs, 1);
        assert_int_equal(session_new(sessions, &ops, &other, &peer, -1, &other.session), 0);
        ask(&other, WIRE__MESSAGE_TYPE__HELLO, &greeting.base);
        ask_status(&other);
        assert_int_equal(other.n_jobs, 0);
        part(f, &other);
}

/* Its own row, the first one, is being sent then. */
TEST(a_client_may_end_in_the_midst_of_an_answer) {
        Wire__Status status = WIRE__STATUS__INIT;
        Wire__StatusPlace from;

        hello(f, 0, -1);
        hello(f, 1, -1);
        wires[0].gives_up = true;
        do {
                ask(&wires[0], WIRE__MESSAGE_TYPE__STATUS, &status.base);
                from = wires[0].next;
                status.from = &from;
        } while (wires[0].gives_up);
        pass(f);
        assert_true(wires[0].hung_up);
        ask_status(&wires[1]);
        assert_int_equal(wires[1].n_clients, 1);
}

TEST(leaving_is_answered_and_told) {
        Wire__Leave leave = WIRE__LEAVE__INIT;

        form(f);
        SET(leave, job, wires[0].job);
        send_message(f, 0, WIRE__MESSAGE_TYPE__LEAVE, 11, &leave.base, -1);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__LEFT);
        pass(f);
        assert_int_equal(wires[1].type, WIRE__MESSAGE_TYPE__LOST);
        send_message(f, 0, WIRE__MESSAGE_TYPE__LEAVE, 12, &leave.base, -1);
        assert_int_equal(wires[0].code, WIRE__CODE__INVALID); /* no member any more */
        assert_false(wires[0].hung_up);
}

/* It hears how its last step has ended before it hears that it has left. */
TEST(the_last_outcome_comes_before_the_end) {
        Wire__Leave leave = WIRE__LEAVE__INIT;

        form(f);
        send_plan(f, 0, 1);
        send_plan(f, 1, 1);
        send_ready(f, 1, 0, false);
        send_ready(f, 0, 0, false);
        SET(leave, job, wires[0].job);
        send_message(f, 0, WIRE__MESSAGE_TYPE__LEAVE, 11, &leave.base, -1);
        assert_int_equal(wires[0].outcome, WIRE__OUTCOME__COMMITTED);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__LEFT);
}

TEST(a_shutdown_is_told_to_all) {
        Wire__Hello returns = WIRE__HELLO__INIT;

        SET(returns, returns, true);
        send_message(f, 0, WIRE__MESSAGE_TYPE__HELLO, 1, &returns.base, -1);
        hello(f, 1, -1);
        sessions_shutdown(sessions, "stopping");
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__RESTARTING); /* it may come back */
        assert_int_equal(wires[1].code, WIRE__CODE__DAEMON_LOST);
        pass(f);
        assert_true(wires[0].hung_up && wires[1].hung_up);
}

static struct job *job_alone(struct fixture *f, const char *name, uint64_t operations) {
        Wire__Join join = wire_join_of(name, 1, 1);

        assert_int_equal(send_join_of(f, 0, &join), 0);
        pass(f);
        assert_int_equal(wires[0].type, WIRE__MESSAGE_TYPE__JOINED);
        struct job *job = list_entry(f->jobs->list.prev, struct job, link);
        assert_string_equal(job->name, name);
        job->operations = operations;
        return job;
}

static void leave_job(struct fixture *f, uint32_t job) {
        Wire__Leave leave = WIRE__LEAVE__INIT;
        unsigned jobs = list_length(&f->jobs->list);

        SET(leave, job, job);
        send_message(f, 0, WIRE__MESSAGE_TYPE__LEAVE, 6, &leave.base, -1);
        pass(f);
        assert_int_equal(list_length(&f->jobs->list), jobs - 1);
}

static uint64_t summed(struct fixture *f, struct reports_sum *sum, uint64_t *ret_running) {
        while (reports_sum_go_on(reports, sum))
                ;
        *ret_running = sum->sum.jobs[1];
        return sum->sum.job.operations;
}

/* Jobs that end or begin while they are added up: each that was there at the beginning counts once. */
TEST(a_sum_over_jobs_never_falls) {
        struct reports_sum sum, other = { 0 }, later;
        uint32_t counted, ending;
        uint64_t running;

        hello(f, 0, -1);
        counted = job_alone(f, "counted", 1)->id;
        ending = job_alone(f, "ending", 10)->id;
        job_alone(f, "stays", 100);
        reports_sum_begin(reports, &sum);
        assert_true(reports_sum_go_on(reports, &sum));
        leave_job(f, counted);
        leave_job(f, ending);
        uint32_t young = job_alone(f, "young", 1000)->id;
        leave_job(f, young);
        assert_int_equal(summed(f, &sum, &running), 111);
        assert_int_equal(running, 2); /* with the one that was there when it was counted */
        reports_sum_begin(reports, &later);
        assert_int_equal(summed(f, &later, &running), 1111);
        assert_int_equal(running, 1);
        reports_sum_begin(reports, &sum);
        reports_sum_end(&sum); /* given up: what happens from here on is none of its business */
        reports_sum_end(&sum);
        reports_sum_end(&other);
        job_alone(f, "last", 5);
        assert_int_equal(sum.sum.job.operations, 1011);
}
