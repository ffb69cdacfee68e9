/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job over several nodes in one process: each node has a job layer of its own, with the host's backend and
 * an engine of one fabric, and trainers that write to their arenas. Messages between nodes are delivered when
 * the test lets them be.
 */
#pragma once

#include "tests.h"

#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/user.h"
#include "coordinating.h"
#include "entries.h"
#include "fake_engine.h"
#include "former.h"
#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "proto/diagnosis.h"
#include "quiet_observer.h"
#include "rendezvous/service/remote.h"
#include "rendezvous/service/stations.h"

#ifndef MOST_NODES
#define MOST_NODES 3u
#define MOST_TRAINERS 6u
#endif
#ifndef PIECE_BYTES
#define PIECE_BYTES 0 /* all buckets go between nodes in one piece */
#endif
#ifndef HOSTS_APART
#define HOSTS_APART 0 /* each node is on a host of its own */
#endif
#define MOMENTS(n) (PIECE_BYTES > 0 ? 3 * (n) : (n)) /* from the first READY until a step is decided */
#define MOST_PLANS 4u /* of a job; tests are about the first one, if they do not say so */
#define BUCKETS 6u    /* more than there are slots between nodes */
#define ELEMENTS 48u  /* of each but the large one */
#define MOST_PARTS 3u /* parameters of each: as many as ELEMENTS can be cut into */
#ifndef LARGE
#define LARGE (96u << 10) /* of the large one; the backend hands that to its workers */
#endif
#define BEHIND 64u  /* bytes after a bucket that are not its own: */
#define BESIDE 0x5a /* nothing but this is ever there */
#define LARGE_ROOM ((LARGE * 4u + BEHIND + 4095u) / 4096u * 4096u)
#define ARENA_BYTES (BUCKETS * 4096u + LARGE_ROOM)
#ifndef STAGING
#define STAGING 65536u
#endif

#define NO_MAP 0xffu /* a member says nothing of absent parameters */

/* Bits of the parameters of a bucket that a rank has no gradient of, or NO_MAP. */
typedef uint8_t (*absent_fn)(uint32_t rank, uint32_t bucket);

struct station { /* a node */
        struct cluster *cluster;
        struct remote *remote; /* leads to the coordinators */
        struct users *accounts;
        struct backend *backend;
        struct jobs *jobs;
        struct list members;
        bool gone;
        unsigned committed, voided, operations, refused;
        uint8_t unused[BUCKETS];                /* as said of each bucket last; 0: nothing was */
        double squares[BUCKETS][MOST_TRAINERS]; /* of each rank's input to it */
        uint64_t nonfinite[BUCKETS][MOST_TRAINERS];
        uint32_t code, culprit; /* of the last refusal */
        char parameter[LIMIT_NAME + 1];
        char text[1024];                    /* of the last refusal */
        unsigned n_letters[POST_TABLE + 1]; /* to and from it, by kind */
        size_t letter_bytes;
};

struct trainer {
        struct member *member; /* NULL: none */
        struct station *station;
        unsigned char *arena[MOST_PLANS], *staging;
        size_t arena_bytes[MOST_PLANS];
        uint64_t step[MOST_PLANS]; /* the next one of each plan */
        bool evicted;
        bool history, behind; /* as it was told in its latest generation */
};

struct cluster {
        struct loop *loop;
        struct loop_deferred exit;
        struct fabric *fabric;
        struct users *accounts; /* of the coordinators */
        struct coordinators *coordinators;
        struct stations *stations;
        uint64_t due;
        struct list letters; /* between nodes and coordinators, in the order in which they were sent */
        struct station node[MOST_NODES];
        uint32_t n;
        struct trainer trainer[MOST_TRAINERS]; /* by rank */
        struct trainer gone;                   /* with its node */
        struct token token;
        struct refusal refusal;
        unsigned dtype, reduce;
        uint32_t large;   /* the bucket that is; the last one, unless a test says another */
        uint32_t parts;   /* parameters of a bucket */
        absent_fn absent; /* of plan 0; NULL: nothing is said of any */
        uint64_t grace;
        uint32_t least; /* members that are enough; 0: all */
};

static struct cluster *cluster;
static _Atomic uint64_t test_clock = 1000 * USEC_PER_SEC; /* workers read it too */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

/* Time goes on when the test lets it. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
        uint64_t at = test_clock;

        now->tv_sec = (time_t)(at / USEC_PER_SEC);
        now->tv_nsec = (long)(at % USEC_PER_SEC) * 1000;
        return 0;
}

static inline struct station *station_of(const struct member *member) {
        return job_events_data(member->job);
}

/* ---- what comes up ---- */

static void on_joined(struct member *member) {
        struct trainer *trainer = &cluster->trainer[member->rank];

        assert_null(trainer->member);
        *trainer = (struct trainer){ .member = member,
                                     .station = station_of(member),
                                     .history = member->job->last_step > 0 || member->job->history };
        for (uint32_t plan = 0; plan < MOST_PLANS; plan++)
                trainer->step[plan] = 1;
}

static void on_refused(struct station *station, const struct refusal *refusal) {
        station->refused++;
        station->code = refusal->code;
        station->culprit = refusal->rank;
        memcpy(station->parameter, refusal->parameter, sizeof(station->parameter));
        snprintf(station->text, sizeof(station->text), "%s", refusal->text);
}

/* Maps the memory and touches it, as a trainer does. */
static unsigned char *map_and_touch(int fd, uint64_t bytes) {
        unsigned char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        assert_ptr_not_equal(map, MAP_FAILED);
        memset(map, 0, bytes);
        return map;
}

static void on_plan_arena(struct trainer *trainer, const struct job_event *event) {
        trainer->arena[event->plan->ordinal] = map_and_touch(event->memory.fds[0], event->memory.bytes);
        trainer->arena_bytes[event->plan->ordinal] = event->memory.bytes;
}

static void on_result(struct station *station, struct plan *plan, const struct job_event_result *event) {
        const struct exchange *heard = plan_heard(plan, event->bucket);
        const struct backend_result *result = event->result;
        uint32_t bucket = event->bucket;

        assert_int_equal(result->n_inputs, plan->job->n_local);
        assert_true(event->unused == NULL || event->unused_bytes == 1);
        station->unused[bucket] = event->unused != NULL ? *event->unused : 0;
        for (uint32_t rank = 0; rank < plan->job->world && heard != NULL; rank++) {
                station->squares[bucket][rank] = heard->rank_sums[rank];
                station->nonfinite[bucket][rank] = heard->rank_counts[rank];
        }
        for (uint32_t local = 0; local < plan->job->n_local && heard == NULL; local++) {
                station->squares[bucket][plan->job->local[local]->rank] = result->input_sum_squares[local];
                station->nonfinite[bucket][plan->job->local[local]->rank] = result->input_nonfinite[local];
        }
}

static void on_committed(struct station *station, const struct plan *plan) {
        station->committed++;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                cluster->trainer[plan->job->local[local]->rank].step[plan->ordinal] = plan->step + 1;
}

/* Ranks close up where no process has come in time. */
static void on_newgen(struct member *member) {
        uint32_t before = 0;

        while (before < MOST_TRAINERS && cluster->trainer[before].member != member)
                before++;
        assert_true(before < MOST_TRAINERS);
        cluster->trainer[before].behind = member->job->behind;
        if (before == member->rank)
                return;
        assert_null(cluster->trainer[member->rank].member);
        cluster->trainer[member->rank] = cluster->trainer[before];
        cluster->trainer[before] = (struct trainer){ 0 };
}

static void on_event(void *data, const struct job_event *event) {
        struct station *station = data;
        struct member *member = event->member;
        struct trainer *trainer = member != NULL ? &cluster->trainer[member->rank] : NULL;

        switch (event->kind) {
        case JOB_EVENT_JOINED: on_joined(member); break;
        case JOB_EVENT_REFUSED: on_refused(station, event->refusal); break;
        case JOB_EVENT_PLAN_ARENA: on_plan_arena(trainer, event); break;
        case JOB_EVENT_STAGING_ARENA:
                trainer->staging = map_and_touch(event->memory.fds[0], event->memory.bytes);
                break;
        case JOB_EVENT_PLAN_AGREED:
                if (event->plan->ordinal < MOST_PLANS)
                        trainer->step[event->plan->ordinal] = event->plan->step + 1;
                break;
        case JOB_EVENT_PLAN_STEP: trainer->step[event->plan->ordinal] = event->plan->step + 1; break;
        case JOB_EVENT_OPERATION_DONE: station->operations++; break;
        case JOB_EVENT_RESULT: on_result(station, event->plan, &event->result); break;
        case JOB_EVENT_COMMITTED: on_committed(station, event->plan); break;
        case JOB_EVENT_VOID:
                station->voided++;
                snprintf(station->text, sizeof(station->text), "%s", event->job->loss_text);
                break;
        case JOB_EVENT_NEWGEN: on_newgen(member); break;
        case JOB_EVENT_RESUMED: trainer->behind = false; break;
        case JOB_EVENT_STALL: snprintf(station->text, sizeof(station->text), "%s", event->stall.text); break;
        case JOB_EVENT_EXPELLED:
                trainer->evicted = true;
                snprintf(station->text, sizeof(station->text), "%s", event->refusal->text);
                break;
        default: break;
        }
}

static void (*on_node_event)(void *data, const struct job_event *event) = on_event;

/* ---- between a node and the coordinators: frames take until the next pass ---- */

struct letter {
        struct list link;
        struct station *station;
        bool up;
        enum post_kind kind;
        uint32_t about;
        size_t bytes;
        unsigned char payload[];
};

static void post(struct station *station, bool up, enum post_kind kind, uint32_t about, const void *bytes,
                 size_t length) {
        struct letter *letter = malloc(sizeof(*letter) + length);

        *letter = (struct letter){
                .station = station, .up = up, .kind = kind, .about = about, .bytes = length
        };
        memcpy(letter->payload, bytes, length);
        if (kind <= POST_TABLE)
                station->n_letters[kind]++;
        station->letter_bytes += kind != POST_TABLE ? FRAME_HEADER + length : 0;
        list_append(&cluster->letters, &letter->link);
}

static void post_up(void *data, enum post_kind kind, uint32_t about, const void *bytes, size_t length) {
        post(data, true, kind, about, bytes, length);
}

static void post_down(void *data, void *peer, enum post_kind kind, uint32_t about, const void *bytes,
                      size_t length) {
        post(peer, false, kind, about, bytes, length);
}

static void post_placed(void *data, const struct post_place *place) {}

/* The engine's number, too. */
static int post_place(void *data, void *peer, const uint8_t node[STATION_NODE],
                      const struct post_arrival *arrival, uint32_t *ret_address, uint32_t *ret_host,
                      struct refusal *refusal) {
        *ret_address = node[0];
        *ret_host = HOSTS_APART ? node[0] : 0;
        return 0;
}

static bool speaks_for_nobody; /* keys of daemons have no uids any more */

static void post_nothing(void *data, const uint8_t node[STATION_NODE]) {}

static bool post_speaks_for(void *data, void *peer, uid_t uid) {
        return !speaks_for_nobody;
}

static void post_station_due(void *data, uint64_t when) {}

/* Changes a letter, in tests in which daemons lie. May be NULL. */
static struct letter *(*letter_change)(struct letter *letter);

static void letter_open(struct letter *letter) {
        struct station *station = letter->station;
        const char *why;

        list_remove(&letter->link);
        if (letter_change != NULL)
                letter = letter_change(letter);
        why = letter->up ? stations_receive(cluster->stations, station, letter->kind, letter->about,
                                            letter->payload, letter->bytes)
                         : remote_receive(station->remote, letter->kind, letter->about, letter->payload,
                                          letter->bytes);
        free(letter);
        assert_true(why == NULL || letter_change != NULL);
}

/* Drops the node's letters, as if its daemon had died, and lets the others know. */
static inline void post_lose(struct attachment *outer) {
        struct station *station =
                list_entry(outer, struct job, machine.attachment)->table->config.events_data;
        struct letter *letter, *spare;

        list_for_each_safe(letter, spare, &cluster->letters, link)
                if (letter->station == station) {
                        list_remove(&letter->link);
                        free(letter);
                }
        outer->hub->ops->detach(outer);
        if (!list_empty(&cluster->letters))
                letter_open(list_entry(cluster->letters.prev, struct letter, link));
}

static inline void deliver_letters(void) {
        struct list now = LIST_INIT(now);
        struct letter *letter;

        while (!list_empty(&cluster->letters)) {
                letter = list_entry(cluster->letters.next, struct letter, link);
                list_remove(&letter->link);
                list_append(&now, &letter->link);
        }
        while (!list_empty(&now))
                letter_open(list_entry(now.next, struct letter, link));
}

/* ---- time passes ---- */

static void leave_loop(void *data) {
        loop_exit(data, 0);
}

static inline struct job *job_on(uint32_t node) {
        struct list *list = &cluster->node[node].jobs->list;

        return list_empty(list) ? NULL : list_entry(list->next, struct job, link);
}

static inline struct plan *plan_of(uint32_t node) {
        return job_on(node) != NULL ? plan_find(job_on(node), 0) : NULL;
}

/* Workers have something to do for it. */
static inline bool is_reducing(uint32_t node) {
        uint32_t tasks = job_on(node) != NULL ? job_on(node)->operation.owner.tasks : 0;
        struct plan *plan;

        if (job_on(node) != NULL)
                list_for_each(plan, &job_on(node)->plans, link)
                        tasks += plan->owner.tasks;
        return tasks > 0;
}

#define SLOWEST 60000 /* ms: a worker's task, on a busy machine */

/* Delivers everything that is there to be delivered, once. It waits for tasks that workers have begun, so
 * that the number of calls that a test needs does not depend on the workers' speed. */
static inline void pass(void) {
        test_clock += USEC_PER_MSEC;
        if (test_clock >= cluster->due)
                coordinators_tick(cluster->coordinators);
        deliver_letters();
        loop_defer(cluster->loop, &cluster->exit);
        assert_int_equal(loop_run(cluster->loop), 0);
        for (uint32_t n = 0; n < cluster->n; n++) {
                struct station *station = &cluster->node[n];
                struct engine *engine = &cluster->fabric->node[n].engine;
                struct pollfd fd = { .fd = station->backend->ops->fd(station->backend), .events = POLLIN };

                engine->ops->dispatch(engine);
                if (poll(&fd, 1, is_reducing(n) ? SLOWEST : 0) == 1)
                        station->backend->ops->dispatch(station->backend);
        }
}

/* Lets messages and tasks pass until nothing is left to do. */
static inline void settle(void) {
        for (unsigned i = 0; i < 60; i++)
                pass();
}

/* Some node has something to do: workers, letters, or what the engine has for one that is not held. */
static inline bool is_busy(void) {
        bool busy = !list_empty(&cluster->letters);

        for (uint32_t n = 0; n < cluster->n; n++)
                busy |= is_reducing(n) ||
                        (!cluster->fabric->node[n].held && cluster->fabric->node[n].n_events > 0);
        return busy;
}

/* Lets them pass until only time, or a node that is held, would change something, however slow the workers
 * are. */
static inline void rest(void) {
        unsigned rounds = 0;

        do {
                assert_true(rounds++ < 3000);
                pass();
        } while (is_busy());
}

/* The node hears of one thing after the other, each when all others have done what they can. */
#define hear_until(fake, condition)                                                                          \
        do {                                                                                                 \
                (fake)->held = true;                                                                         \
                rest();                                                                                      \
                for (unsigned heard = 0; heard < 1000 && !(condition); heard++) {                            \
                        (fake)->held = false;                                                                \
                        assert_true(fake_dispatch_one(fake));                                                \
                        (fake)->held = true;                                                                 \
                        rest();                                                                              \
                }                                                                                            \
                assert_true(condition);                                                                      \
        } while (0)

#define until(condition)                                                                                     \
        do {                                                                                                 \
                for (unsigned round = 0; round < 3000 && !(condition); round++)                              \
                        pass();                                                                              \
                assert_true(condition);                                                                      \
        } while (0)

/* ---- trainers ---- */

static inline void join(uint32_t node, uint32_t rank, uint32_t world) {
        struct station *station = &cluster->node[node];
        struct job_join join = { .name = "j",
                                 .cluster = true,
                                 .uid = 1000,
                                 .pid = getpid(),
                                 .program = "t",
                                 .request = 7,
                                 .token = &cluster->token,
                                 .owner = cluster,
                                 .owner_members = &station->members,
                                 .membership = { .min_world = cluster->least > 0 ? cluster->least : world,
                                                 .max_world = world,
                                                 .has_rank = cluster->least == 0,
                                                 .rank = rank,
                                                 .grace = cluster->grace } };

        assert_int_equal(jobs_join(station->jobs, &join, &cluster->refusal), 0);
}

static inline uint64_t bucket_bytes(uint32_t bucket) {
        return (bucket == cluster->large ? LARGE : ELEMENTS) * dtype_size(cluster->dtype);
}

/* In which the first buckets go between nodes. */
static inline uint32_t pieces_of(uint32_t node, uint32_t buckets) {
        return plan_of(node)->exchange->first[buckets];
}

static inline uint64_t bucket_offset(uint32_t bucket) {
        return bucket * 4096u + (bucket > cluster->large ? LARGE_ROOM : 0);
}

static inline void describe(struct member *member, uint32_t plan, const char *name) {
        struct offer begin = { .generation = member->job->generation,
                               .plan = plan,
                               .params = BUCKETS * cluster->parts,
                               .buckets = BUCKETS,
                               .arena_bytes = ARENA_BYTES,
                               .control_bytes = diagnosis_bytes(BUCKETS * cluster->parts),
                               .reduce = cluster->reduce };
        struct offer_param param[BUCKETS * MOST_PARTS] = { 0 };
        struct offer_bucket bucket[BUCKETS] = { 0 };
        uint64_t shape[BUCKETS];
        char names[BUCKETS * MOST_PARTS][16];

        for (uint32_t b = 0; b < BUCKETS; b++) {
                shape[b] = bucket_bytes(b) / dtype_size(cluster->dtype) / cluster->parts;
                for (uint32_t p = b * cluster->parts; p < (b + 1) * cluster->parts; p++) {
                        snprintf(names[p], sizeof(names[p]), "%s%u", name, p);
                        param[p].name = names[p];
                        param[p].dtype = cluster->dtype;
                        param[p].shape = &shape[b];
                        param[p].dims = 1;
                        param[p].bucket = b;
                }
                bucket[b].dtype = cluster->dtype;
                bucket[b].offset = bucket_offset(b);
                bucket[b].bytes = bucket[b].payload = bucket_bytes(b);
        }
        assert_int_equal(plan_begin(member, &begin, &cluster->refusal), 0);
        assert_int_equal(plan_params(member, plan, param, begin.params, &cluster->refusal), 0);
        assert_int_equal(plan_buckets(member, plan, bucket, BUCKETS, &cluster->refusal), 0);
}

static inline void bring_plan(uint32_t rank, uint32_t plan, const char *name) {
        struct trainer *trainer = &cluster->trainer[rank];

        describe(trainer->member, plan, name);
        assert_int_equal(plan_commit(trainer->member, plan, 8, &cluster->refusal), 0);
        assert_int_equal(plan_mapped(trainer->member, plan, 9, &cluster->refusal), 0);
}

static inline void bring(uint32_t rank) {
        bring_plan(rank, 0, "p");
}

/* Small whole numbers, of which every sum is exact. */
static inline double value_of(uint32_t rank, uint32_t plan, uint64_t step, uint32_t bucket, uint64_t i) {
        return (double)((rank + 1) * (1 + (i + bucket + step + 2 * plan) % 5));
}

static inline void put(unsigned dtype, unsigned char *at, uint64_t i, double value) {
        if (dtype == WIRE__DTYPE__F32)
                ((float *)at)[i] = (float)value;
        else
                ((int32_t *)at)[i] = (int32_t)value;
}

static inline double get(unsigned dtype, const unsigned char *at, uint64_t i) {
        return dtype == WIRE__DTYPE__F32 ? (double)((const float *)at)[i] : ((const int32_t *)at)[i];
}

static inline uint8_t absent_of(uint32_t rank, uint32_t plan, uint32_t bucket) {
        return cluster->absent != NULL && plan == 0 ? cluster->absent(rank, bucket) : NO_MAP;
}

static inline bool is_absent(uint32_t rank, uint32_t plan, uint32_t bucket, uint32_t part) {
        uint8_t absent = absent_of(rank, plan, bucket);

        return absent != NO_MAP && (absent >> part & 1) != 0;
}

static inline int ready_of(uint32_t rank, uint32_t plan, uint32_t bucket, uint32_t divisor) {
        struct trainer *trainer = &cluster->trainer[rank];
        uint8_t absent = absent_of(rank, plan, bucket);

        return step_ready(trainer->member,
                          &(struct ready){ .generation = trainer->member->job->generation,
                                           .plan = plan,
                                           .step = trainer->step[plan],
                                           .bucket = bucket,
                                           .divisor = divisor,
                                           .has_absent = absent != NO_MAP,
                                           .absent = &absent,
                                           .absent_bytes = 1 },
                          &cluster->refusal);
}

static inline uint64_t part_bytes(uint32_t bucket) {
        return bucket_bytes(bucket) / cluster->parts;
}

#define PERIOD 5u /* elements, after which values come again */

/* The first `period` bytes again and again. */
static inline void repeat(unsigned char *at, uint64_t period, uint64_t bytes) {
        for (uint64_t done = period; done < bytes; done *= 2)
                memcpy(at + done, at, done < bytes - done ? done : bytes - done);
}

static inline void fill(uint32_t rank, uint32_t plan, uint32_t bucket) {
        struct trainer *trainer = &cluster->trainer[rank];
        unsigned char *at = trainer->arena[plan] + bucket_offset(bucket);

        for (uint64_t i = 0; i < PERIOD; i++)
                put(cluster->dtype, at, i, value_of(rank, plan, trainer->step[plan], bucket, i));
        repeat(at, PERIOD * dtype_size(cluster->dtype), bucket_bytes(bucket));
        memset(at + bucket_bytes(bucket), BESIDE, BEHIND);
        for (uint32_t part = 0; part < cluster->parts; part++)
                if (is_absent(rank, plan, bucket, part))
                        memset(at + part * part_bytes(bucket), 0, part_bytes(bucket));
        assert_int_equal(ready_of(rank, plan, bucket, 0), 0);
}

static inline void ready(uint32_t rank, uint32_t bucket) {
        fill(rank, 0, bucket);
}

/* All buckets, in an order of the rank's own. */
static inline void give_to(uint32_t rank, uint32_t plan) {
        for (uint32_t b = 0; b < BUCKETS; b++)
                fill(rank, plan, (b * 5 + rank) % BUCKETS);
}

static inline void give(uint32_t rank) {
        give_to(rank, 0);
}

/* The first n ranks. */
static inline void give_all(uint32_t n) {
        for (uint32_t rank = 0; rank < n; rank++)
                give(rank);
}

/* A new member takes the place of a lost rank, and the next generation begins. */
static inline void come_back(uint32_t rank, uint32_t node) {
        join(node, rank, 4);
        until(cluster->trainer[rank].member != NULL);
        for (uint32_t n = 0; n < cluster->n; n++)
                until(cluster->node[n].gone || job_on(n) == NULL || job_on(n)->state == JOB_RUNNING);
}

/* A new member takes the place of a lost rank, and brings the plan, so that all members take part in the next
 * step. */
static inline void replace(uint32_t rank, uint32_t node) {
        come_back(rank, node);
        bring(rank);
        settle();
        cluster->trainer[rank].step[0] = cluster->trainer[0].step[0];
}

/* Returns the result of an element in a part of a bucket, if the ranks in `from` contribute to it. */
static inline double whole_of(unsigned from, uint32_t plan, uint64_t step, uint32_t bucket, uint32_t part,
                              uint64_t i) {
        double whole = cluster->reduce == WIRE__REDUCE__MIN ? 1e9 : 0;
        uint32_t world = 0;

        for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++) {
                double value = value_of(rank, plan, step, bucket, i);

                world += cluster->trainer[rank].member != NULL;
                if ((from >> rank & 1) == 0 || is_absent(rank, plan, bucket, part))
                        continue;
                if (cluster->reduce != WIRE__REDUCE__MIN)
                        whole += value;
                else if (value < whole)
                        whole = value;
        }
        return cluster->reduce == WIRE__REDUCE__AVG ? whole / world : whole;
}

/* Each node with members has heard which parameters no rank in `from` has used. */
static inline void assert_unused(unsigned from, uint32_t bucket) {
        uint8_t unused = (uint8_t)((1u << cluster->parts) - 1);

        for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++)
                if ((from >> rank & 1) != 0)
                        unused &= absent_of(rank, 0, bucket) == NO_MAP ? 0 : absent_of(rank, 0, bucket);
        for (uint32_t n = 0; n < cluster->n; n++)
                if (job_on(n) != NULL)
                        assert_int_equal(cluster->node[n].unused[bucket],
                                         job_on(n)->n_local > 0 ? unused : 0);
}

/* `step` is over, and all ranks of `from` have what came of their inputs. */
static inline void assert_sums_of(unsigned from, uint32_t plan, uint64_t step) {
        static unsigned char whole[LARGE * 4 + BEHIND];

        for (uint32_t b = 0; b < BUCKETS; b++) {
                for (uint32_t part = 0; part < cluster->parts; part++) {
                        unsigned char *at = whole + part * part_bytes(b);
                        uint64_t first = part * part_bytes(b) / dtype_size(cluster->dtype);

                        for (uint64_t i = 0; i < PERIOD; i++)
                                put(cluster->dtype, at, i, whole_of(from, plan, step, b, part, first + i));
                        repeat(at, PERIOD * dtype_size(cluster->dtype), part_bytes(b));
                }
                memset(whole + bucket_bytes(b), BESIDE, BEHIND);
                if (plan == 0)
                        assert_unused(from, b);
                for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++) {
                        if ((from >> rank & 1) == 0)
                                continue;
                        assert_int_equal(cluster->trainer[rank].step[plan], step + 1);
                        if (memcmp(cluster->trainer[rank].arena[plan] + bucket_offset(b), whole,
                                   bucket_bytes(b) + BEHIND) != 0)
                                fail_msg("rank %u, plan %u, bucket %u", rank, plan, b);
                }
        }
}

static inline void assert_sums(unsigned from, uint64_t step) {
        assert_sums_of(from, 0, step);
}

#define ALL 0xfu

static inline bool all_committed(unsigned steps) {
        for (uint32_t n = 0; n < cluster->n; n++)
                if (!cluster->node[n].gone && job_on(n) != NULL && cluster->node[n].committed != steps)
                        return false;
        return true;
}

static inline bool all_voided(unsigned steps) {
        for (uint32_t n = 0; n < cluster->n; n++)
                if (!cluster->node[n].gone && cluster->node[n].voided != steps)
                        return false;
        return true;
}

static inline bool all_entered(uint32_t generation) {
        for (uint32_t n = 0; n < cluster->n; n++)
                if (!cluster->node[n].gone && (job_on(n) == NULL || job_on(n)->generation != generation))
                        return false;
        return true;
}

static inline void step_of(unsigned ranks, uint64_t step) {
        for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++)
                if (ranks >> rank & 1)
                        give(rank);
        until(all_committed((unsigned)step));
        assert_sums(ranks, step);
}

static inline bool has_said(uint32_t node, const char *text) {
        return strstr(cluster->node[node].text, text) != NULL;
}

/* ---- operations ---- */

static inline void stage(uint32_t rank) {
        struct trainer *trainer = &cluster->trainer[rank];

        assert_int_equal(staging_ask(trainer->member, 12, &cluster->refusal), 0);
        assert_int_equal(staging_attach(trainer->member, 13, &cluster->refusal), 0);
}

static inline void stage_all(uint32_t n) {
        for (uint32_t rank = 0; rank < n; rank++)
                stage(rank);
}

/* The next one; what it has goes in at the beginning of its staging, and what it gets comes in the middle. */
static inline int call_for(uint32_t rank, struct operation_request call) {
        struct member *member = cluster->trainer[rank].member;

        call.sequence = member->operation.next;
        call.output = STAGING / 2;
        return operation_call(member, 11, &call, &cluster->refusal);
}

static inline int call(uint32_t rank, unsigned kind, uint64_t bytes) {
        return call_for(rank, (struct operation_request){ .kind = kind,
                                                          .dtype = cluster->dtype,
                                                          .reduce = cluster->reduce,
                                                          .root = 2,
                                                          .bytes = bytes,
                                                          .total = bytes });
}

/* Its session ends. */
static inline void lose_for(uint32_t rank, unsigned cause) {
        struct trainer *trainer = &cluster->trainer[rank];
        struct member *member = trainer->member;

        for (uint32_t plan = 0; plan < MOST_PLANS; plan++)
                munmap(trainer->arena[plan], trainer->arena_bytes[plan]);
        munmap(trainer->staging, trainer->staging != NULL ? STAGING : 0);
        *trainer = (struct trainer){ 0 };
        member_gone(member, cause);
}

static inline void lose(uint32_t rank) {
        lose_for(rank, WIRE__CAUSE__EXITED);
}

/* The machine's own times play no part, apart from members' waits. */
#define HOUR (3600 * USEC_PER_SEC)
static const struct coordinators_cluster unhurried = { .times = { .heartbeat = HOUR,
                                                                  .patience = 2 * HOUR,
                                                                  .death = 3 * HOUR,
                                                                  .abandon = 4 * HOUR,
                                                                  .drain = HOUR,
                                                                  .build = HOUR } };

static uint64_t stations_ahead; /* of all others */

static uint64_t stations_clock(void) {
        return clock_now() + stations_ahead;
}

static void post_due(void *data, uint64_t when) {
        cluster->due = when;
}

static void setup_station(struct station *station) {
        uint8_t node[STATION_NODE] = { (uint8_t)(station - cluster->node) };
        struct remote_config config = { .host = "h",
                                        .name = "h",
                                        .place = { .address = HUB_UNKNOWN, .times = unhurried.times },
                                        .send = post_up,
                                        .placed = post_placed,
                                        .data = station };

        assert_int_equal(remote_new(&config, &station->remote), 0);
        assert_int_equal(stations_up(cluster->stations, station, node, 1), 0);
        remote_up(station->remote);
        deliver_letters();
        deliver_letters();
        assert_true(remote_is_placed(station->remote));
}

static void setup_cluster(uint32_t nodes, unsigned dtype, unsigned reduce) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { 10,
                                                        4,
                                                        64,
                                                        UINT64_C(1) << 30,
                                                        100,
                                                        [ACCOUNT_OWN] = UINT64_C(1) << 30,
                                                        [ACCOUNT_PLANS] = UINT64_C(64) << 20 };

        cluster = calloc(1, sizeof(*cluster));
        stations_ahead = 0;
        speaks_for_nobody = false;
        cluster->n = nodes;
        cluster->dtype = dtype;
        cluster->reduce = reduce;
        cluster->large = BUCKETS - 1;
        cluster->parts = 1;
        cluster->grace = 3600 * USEC_PER_SEC;
        cluster->fabric = fabric_new();
        loop_new(&cluster->loop);
        cluster->exit = (struct loop_deferred){ .fn = leave_loop, .data = cluster->loop };
        cluster->due = UINT64_MAX;
        list_init(&cluster->letters);
        users_new(limits, &cluster->accounts);
        assert_int_equal(coordinators_new(&(struct coordinators_config){ .cluster = &unhurried,
                                                                         .accounts = cluster->accounts,
                                                                         .clock = clock_now,
                                                                         .term = coordinating_term,
                                                                         .due = post_due },
                                          &cluster->coordinators),
                         0);
        assert_int_equal(stations_new(&(struct stations_config){ .coordinators = cluster->coordinators,
                                                                 .cluster = &unhurried,
                                                                 .clock = stations_clock,
                                                                 .place = post_place,
                                                                 .speaks_for = post_speaks_for,
                                                                 .used = post_nothing,
                                                                 .left = post_nothing,
                                                                 .send = post_down,
                                                                 .due = post_station_due },
                                      &cluster->stations),
                         0);
        for (uint32_t n = 0; n < nodes; n++) {
                struct station *station = &cluster->node[n];
                struct jobs_config config = { .loop = cluster->loop,
                                              .engine = &cluster->fabric->node[n].engine,
                                              .on_event = on_node_event,
                                              .observer = &quiet_observer,
                                              .events_data = station,
                                              .step_deadline = 3600 * USEC_PER_SEC,
                                              .stall_notice = 3600 * USEC_PER_SEC,
                                              .staging_bytes = STAGING,
                                              .piece_bytes = PIECE_BYTES };
                struct backend_config backend = { .workers = 1, .done = jobs_done };

                station->cluster = cluster;
                setup_station(station);
                config.cluster = remote_hub(station->remote);
                list_init(&station->members);
                users_new(limits, &station->accounts);
                config.accounts = station->accounts;
                assert_int_equal(jobs_new(&config, &station->jobs), 0);
                former_journal(station->jobs);
                backend.owner = station->jobs;
                assert_int_equal(backend_host.open(&backend, &station->backend), 0);
                station->jobs->config.backend = station->jobs->config.staging = station->backend;
        }
}

static void free_station(struct station *station) {
        cluster->fabric->node[station - cluster->node].held = false; /* or it would not end what it is at */
        jobs_free(station->jobs);
        remote_free(station->remote);
        station->backend->ops->close(station->backend);
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                assert_int_equal(accounts_total(station->accounts, (enum account_slot)slot), 0);
        users_free(station->accounts);
}

static int teardown(void **state) {
        if (cluster->gone.member != NULL) {
                munmap(cluster->gone.arena[0], cluster->gone.arena_bytes[0]);
                member_gone(cluster->gone.member, WIRE__CAUSE__EXITED);
        }
        for (uint32_t rank = 0; rank < MOST_TRAINERS; rank++)
                if (cluster->trainer[rank].member != NULL)
                        lose(rank);
        for (uint32_t n = 0; n < cluster->n; n++)
                if (!cluster->node[n].gone)
                        until(list_empty(&cluster->node[n].jobs->list));
        for (uint32_t n = 0; n < cluster->n; n++)
                free_station(&cluster->node[n]);
        while (!list_empty(&cluster->letters)) {
                struct letter *letter = list_entry(cluster->letters.next, struct letter, link);

                list_remove(&letter->link);
                free(letter);
        }
        stations_free(cluster->stations);
        coordinators_free(cluster->coordinators);
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                assert_int_equal(accounts_total(cluster->accounts, (enum account_slot)slot), 0);
        users_free(cluster->accounts);
        fabric_free(cluster->fabric);
        loop_free(cluster->loop);
        free(cluster);
        return 0;
}

/* Ranks 0 and 1 on the first node, 2 on the second one, 3 on the last one. */
static inline void form_four(void) {
        for (uint32_t rank = 0; rank < 4; rank++)
                join(rank < 2 || cluster->n == 1 ? 0 : rank == 2 ? 1 : cluster->n - 1, rank, 4);
        until(cluster->trainer[0].member != NULL && cluster->trainer[3].member != NULL);
        for (uint32_t rank = 0; rank < 4; rank++)
                bring(rank);
        settle(); /* all nodes hear that it has a track */
}

/* Three of the four are enough; a node that joins later has rank 3. */
static inline void form_three(void) {
        cluster->least = 3;
        for (uint32_t rank = 0; rank < 3; rank++)
                join(rank < 2 ? 0 : 1, rank, 4);
        until(cluster->trainer[2].member != NULL);
}

/* Its machine is gone, with its only member, which has that rank; another one may join elsewhere. */
static inline void lose_node(uint32_t node, uint32_t rank) {
        cluster->gone = cluster->trainer[rank];
        cluster->trainer[rank] = (struct trainer){ 0 };
        cluster->node[node].gone = true;
        post_lose(&job_on(node)->machine.attachment);
        fake_lose(&cluster->fabric->node[node]);
}

static inline void give_order(struct attachment *attachment, const struct order *order) {
        attachment->receive(attachment, order);
}

/* The others have gone on without that node, and it hears so. */
static inline void fence_off(uint32_t at) {
        struct attachment *attachment = &job_on(at)->machine.attachment;
        const struct node *node = &job_on(at)->machine.node;
        struct order fence;

        order_clear(&fence);
        fence.kind = ORDER_FENCE;
        fence.to = node->config.address;
        fence.instance = node->config.instance;
        fence.term = node->term;
        fence.round = node->round;
        fence.stamp = node->stamp;
        fence.generation = node->generation;
        give_order(attachment, &fence);
}

#include "nodes_kinds.h"
