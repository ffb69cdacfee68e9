// SPDX-License-Identifier: Apache-2.0
/* A daemon's answer to STATUS, put together from its messages and shown as text and JSON. */
#include "tests.h"

#include <math.h>

#include "client/cli/ask/snapshot.h"
#include "client/cli/view/document.h"
#include "client/cli/view/perfetto.h"
#include "client/cli/view/text.h"

static int feed(struct snapshot *snapshot, uint16_t type, const ProtobufCMessage *message) {
        uint8_t bytes[4096];
        size_t length = protobuf_c_message_pack(message, bytes);

        return snapshot_feed(snapshot, type, bytes, length);
}

static void feed_daemon(struct snapshot *snapshot) {
        Wire__StatusDaemon daemon = WIRE__STATUS_DAEMON__INIT;

        daemon.device = (char *)"cpu";
        daemon.version = (char *)"0.1.0";
        daemon.has_pid = true;
        daemon.pid = 77;
        assert_int_equal(feed(snapshot, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &daemon.base), 0);
}

static void feed_job(struct snapshot *snapshot, const char *name, unsigned members) {
        Wire__StatusJob job = WIRE__STATUS_JOB__INIT;

        job.name = (char *)name;
        job.state = (char *)"running";
        job.has_norm = true;
        job.norm = NAN;
        job.has_world = true;
        job.world = members;
        assert_int_equal(feed(snapshot, WIRE__MESSAGE_TYPE__STATUS_JOB, &job.base), 0);
        for (unsigned i = 0; i < members; i++) {
                Wire__StatusMember member = WIRE__STATUS_MEMBER__INIT;
                member.has_rank = member.has_pid = true;
                member.rank = i;
                member.pid = (int32_t)(1000 + i);
                member.state = (char *)(i == 40 ? "late" : "computing");
                assert_int_equal(feed(snapshot, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &member.base), 0);
        }
}

static void feed_end(struct snapshot *snapshot, bool found) {
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        end.has_found = true;
        end.found = found;
        assert_int_equal(feed(snapshot, WIRE__MESSAGE_TYPE__STATUS_END, &end.base), 1);
}

TEST_ALONE(members_belong_to_the_job_before_them) {
        struct snapshot snapshot = { 0 };

        feed_daemon(&snapshot);
        feed_job(&snapshot, "first", 2);
        feed_job(&snapshot, "second", 3);
        feed_end(&snapshot, true);
        assert_int_equal(snapshot.n_jobs, 2);
        assert_int_equal(snapshot.job[0].n_members, 2);
        assert_int_equal(snapshot.job[1].n_members, 3);
        assert_string_equal(snapshot.job[1].job->name, "second");
        assert_true(snapshot.found);
        snapshot_deinit(&snapshot);
}

TEST_ALONE(wrong_order_is_an_error) {
        Wire__StatusMember member = WIRE__STATUS_MEMBER__INIT;
        Wire__StatusDaemon daemon = WIRE__STATUS_DAEMON__INIT;
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;
        struct snapshot snapshot = { 0 };

        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_END, &end.base), -EPROTO);
        feed_daemon(&snapshot);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_DAEMON, &daemon.base), -EPROTO);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &member.base), -EPROTO);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__JOINED, &end.base), -EPROTO);
        assert_int_equal(snapshot_feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_JOB, "\xff\xff\xff", 3),
                         -EPROTO);
        snapshot_deinit(&snapshot);
}

/* A daemon reports places without a process together, and so the waits for them. */
TEST_ALONE(places_that_are_alike_are_told_apart) {
        Wire__StatusMember member = WIRE__STATUS_MEMBER__INIT;
        Wire__StatusWait wait = WIRE__STATUS_WAIT__INIT;
        struct snapshot snapshot = { 0 };

        feed_daemon(&snapshot);
        feed_job(&snapshot, "empty", 1);
        SET(member, rank, 1);
        SET(member, local_rank, 2);
        SET(member, member, 5);
        SET(member, places, 3);
        member.state = (char *)"lost";
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &member.base), 0);
        SET(wait, rank, 1);
        SET(wait, ranks, 3);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_WAIT, &wait.base), 0);
        const struct snapshot_job *job = &snapshot.job[0];
        assert_int_equal(job->n_members, 4);
        assert_int_equal(job->n_waits, 3);
        for (unsigned i = 1; i < 4; i++) {
                assert_int_equal(job->member[i]->rank, i);
                assert_int_equal(job->member[i]->local_rank, i + 1);
                assert_int_equal(job->member[i]->member, i + 4);
                assert_string_equal(job->member[i]->state, "lost");
                assert_false(job->member[i]->has_places);
                assert_int_equal(job->wait[i - 1]->rank, i);
        }
        SET(member, places, LIMIT_WORLD + 1);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &member.base), -EPROTO);
        snapshot_deinit(&snapshot);
}

/* The rows that begin a piece may be those of the job that ended the one before. */
TEST_ALONE(pieces_are_put_together) {
        Wire__StatusMember member = WIRE__STATUS_MEMBER__INIT;
        Wire__StatusPlace next = WIRE__STATUS_PLACE__INIT;
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;
        struct snapshot snapshot = { 0 };

        feed_daemon(&snapshot);
        feed_job(&snapshot, "long", 1);
        SET(end, found, true);
        SET(next, thing, 7);
        end.next = &next;
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_END, &end.base), 1);
        assert_int_equal(snapshot.end->next->thing, 7);
        assert_int_equal(feed(&snapshot, WIRE__MESSAGE_TYPE__STATUS_MEMBER, &member.base), 0);
        feed_end(&snapshot, false);
        assert_null(snapshot.end->next);
        assert_true(snapshot.found);
        assert_int_equal(snapshot.job[0].n_members, 2);
        snapshot_deinit(&snapshot);
}

TEST_ALONE(json_has_the_promised_fields) {
        struct snapshot snapshot = { .path = strdup("/run/x"), .found = true };
        struct observation observation = { .snapshot = &snapshot, .n = 1 };

        feed_daemon(&snapshot);
        feed_job(&snapshot, "bad \xff name", 2);
        feed_end(&snapshot, true);
        json_t *document = document_status(&observation);
        assert_non_null(document);
        assert_int_equal(json_integer_value(json_object_get(document, "schema_version")), 1);
        json_t *daemon = json_object_get(document, "daemon");
        assert_string_equal(json_string_value(json_object_get(daemon, "device")), "cpu");
        assert_true(json_is_null(json_object_get(daemon, "workers"))); /* the daemon has not sent it */
        json_t *job = json_array_get(json_object_get(document, "jobs"), 0);
        assert_string_equal(json_string_value(json_object_get(job, "name")), "bad \\xff name");
        assert_true(json_is_null(json_object_get(job, "norm"))); /* JSON has no word for nan */
        assert_int_equal(json_integer_value(json_object_get(job, "world_size")), 2);
        assert_int_equal(json_integer_value(json_object_get(job, "step")), 0);
        json_t *member = json_array_get(json_object_get(job, "members"), 1);
        assert_int_equal(json_integer_value(json_object_get(member, "rank")), 1);
        assert_int_equal(json_integer_value(json_object_get(member, "pid")), 1001);
        assert_int_equal(json_array_size(json_object_get(job, "waiting_for")), 0);
        assert_int_equal(json_array_size(json_object_get(document, "daemons")), 1);
        json_decref(document);
        snapshot_deinit(&snapshot);
}

static char *render(const struct observation *observation, bool whole) {
        char *text;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        text_status(observation, whole, false, to);
        fclose(to);
        return text;
}

/* A job shows what holds it up as long as that lasts, and counts the members that are still to come. */
TEST_ALONE(why_a_job_does_not_go_on) {
        static const struct {
                const char *state;
                bool lost;
                unsigned world;
                const char *shown, *hidden;
        } rows[] = {
                { "running", true, 1, "lost rank 2", "the reason" },
                { "replacing", true, 1, "the reason", NULL },
                { "paused", false, 1, "the reason", "lost rank" },
                { "forming", false, 3, "waiting for 2 more members to join", "lost rank" },
                { "forming", false, 2, "waiting for 1 more member to join", NULL },
                { "running", false, 3, "world size 3", "more member" },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                struct snapshot snapshot = { .path = strdup("/run/x"), .found = true };
                struct observation observation = { .snapshot = &snapshot, .n = 1 };

                feed_daemon(&snapshot);
                feed_job(&snapshot, "job", 1);
                feed_end(&snapshot, true);
                Wire__StatusJob job = *snapshot.job[0].job, *real = snapshot.job[0].job;
                job.state = (char *)rows[i].state;
                job.world = rows[i].world;
                job.text = (char *)"the reason";
                job.has_lost_rank = rows[i].lost;
                job.lost_rank = 2;
                snapshot.job[0].job = &job;
                char *text = render(&observation, false);
                if (!strstr(text, rows[i].shown) || (rows[i].hidden && strstr(text, rows[i].hidden)))
                        fail_msg("row %zu, %s: %s", i, rows[i].state, text);
                snapshot.job[0].job = real;
                free(text);
                snapshot_deinit(&snapshot);
        }
}

/* A large job still fits on a screen: only members that stand out are listed, unless the job was asked for by
 * name. */
TEST_ALONE(large_jobs_are_shown_in_short) {
        struct snapshot snapshot = { .path = strdup("/run/x"), .found = true };
        struct observation observation = { .snapshot = &snapshot, .n = 1 };

        feed_daemon(&snapshot);
        feed_job(&snapshot, "large", 100);
        feed_end(&snapshot, true);
        char *brief = render(&observation, false), *whole = render(&observation, true);
        assert_non_null(strstr(brief, "1040"));
        assert_null(strstr(brief, "1041"));
        assert_non_null(strstr(brief, "99 members computing or waiting as usual"));
        assert_non_null(strstr(whole, "1041"));
        free(brief);
        free(whole);
        snapshot_deinit(&snapshot);
}

/* The first event with this name. */
static const json_t *event_of(const json_t *trace, const char *name) {
        const json_t *events = json_object_get(trace, "traceEvents"), *event;
        size_t i;

        json_array_foreach(events, i, event) if (strcmp(json_string_value(json_object_get(event, "name")),
                                                        name) == 0) return event;
        fail_msg("there is no event %s", name);
        return NULL;
}

static void assert_event(const json_t *trace, const char *name, json_int_t ts, json_int_t dur) {
        const json_t *event = event_of(trace, name);

        assert_int_equal(json_integer_value(json_object_get(event, "ts")), ts);
        assert_int_equal(json_integer_value(json_object_get(event, "dur")), dur);
}

/* Times within a step count from 1: 0 says that something has not happened. The clock of the node is 200 us
 * behind. */
TEST_ALONE(times_of_a_trace) {
        Wire__TraceStep step = WIRE__TRACE_STEP__INIT;
        Wire__TraceBucket bucket = WIRE__TRACE_BUCKET__INIT, *buckets[] = { &bucket };
        uint32_t ready[] = { 3, 9 };
        char *text;
        size_t size;
        FILE *to = open_memstream(&text, &size);
        struct perfetto *trace = perfetto_new(to);

        step.name = (char *)"job";
        step.step = 7;
        step.opened_us = 1000;
        step.ended_us = 1500;
        step.outcome = WIRE__OUTCOME__COMMITTED;
        step.n_bucket = step.buckets = 1;
        step.bucket = buckets;
        bucket.n_ready = 2;
        bucket.ready = ready;
        bucket.start = 11;
        bucket.end = 31;
        perfetto_node(trace, "", 200, "");
        assert_int_equal(perfetto_step(trace, &step), 0);
        assert_int_equal(perfetto_close(trace), 0);
        fclose(to);
        json_t *made = json_loads(text, 0, NULL);
        assert_event(made, "step 7", 1200, 500);
        assert_event(made, "ready", 1202, 0);
        assert_event(made, "reduce", 1210, 20);
        const json_t *last = json_object_get(json_object_get(event_of(made, "reduce"), "args"), "last");
        assert_int_equal(json_integer_value(json_object_get(last, "rank")), 1);
        assert_int_equal(json_integer_value(json_object_get(last, "us")), 6);
        json_decref(made);
        free(text);
}
