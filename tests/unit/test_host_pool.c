/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers of the host backend: whose turn it is, cancelling, signs of life, and the arenas' accounts. Where
 * order matters the tasks run a kernel of the test, which notes each slice and can be held: nothing here
 * depends on time.
 */
#include "descriptors.h"
#include "host_fixture.h"
#include "tests.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>

#include "backend/host/arena.h"
#include "backend/host/pool.h"
#include "backend/host/task.h"
#include "base/cleanup.h"
#include "base/cpus.h"

#define LOG_MAX 2048u
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

/* ---- a kernel that can be held ---- */

static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned started; /* slices begun */
        unsigned allowed; /* slices that may end */
        unsigned ended;
        struct {
                uint64_t id;
                size_t slice;
        } log[LOG_MAX]; /* in the order of their beginning */
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* The task's id travels as its scale. */
static void gated_kernel(const struct kernel_slice *slice) {
        pthread_mutex_lock(&gate.lock);
        assert_true(gate.started < LOG_MAX);
        gate.log[gate.started].id = (uint64_t)slice->scale;
        gate.log[gate.started].slice = slice->first / slice->elements; /* all are whole */
        gate.started++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.ended >= gate.allowed)
                pthread_cond_wait(&gate.changed, &gate.lock);
        gate.ended++;
        pthread_cond_broadcast(&gate.changed);
        pthread_mutex_unlock(&gate.lock);
}

static void gate_reset(unsigned allowed) {
        pthread_mutex_lock(&gate.lock);
        gate.started = gate.ended = 0;
        gate.allowed = allowed;
        pthread_mutex_unlock(&gate.lock);
}

static void gate_allow(unsigned allowed) {
        pthread_mutex_lock(&gate.lock);
        gate.allowed = allowed;
        pthread_cond_broadcast(&gate.changed);
        pthread_mutex_unlock(&gate.lock);
}

static void gate_wait_started(unsigned n) {
        pthread_mutex_lock(&gate.lock);
        while (gate.started < n)
                pthread_cond_wait(&gate.changed, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
}

static unsigned char nowhere[1];
/* never accessed */
static struct arena fake_arena = { .fd = -1, .bytes = 1u << 30, .map = nowhere };

static struct task *gated_task_of(uint64_t user, uint64_t id, uint64_t turn, unsigned slices) {
        size_t bytes =
                (size_t)slices *
                (slices <= KERNEL_SMALL_TASK / KERNEL_SLICE_SMALL ? KERNEL_SLICE_SMALL : KERNEL_SLICE_BYTES);
        struct backend_range range = { &fake_arena.memory, 0 };
        struct backend_task description =
                task_on(&range, 1, WIRE__DTYPE__F32, WIRE__REDUCE__SUM, bytes / sizeof(float));
        struct task *task;
        description.id = id;
        description.user = user;
        description.turn = turn;
        assert_int_equal(task_new(kernel_find("baseline"), &description, &task), 0);
        assert_int_equal(task->slices, slices);
        task->kernel = gated_kernel;
        task->whole.scale = (double)id;
        return task;
}

static struct task *gated_task(uint64_t id, uint64_t turn, unsigned slices) {
        return gated_task_of(0, id, turn, slices);
}

static struct pool *pool_open(unsigned workers) {
        struct pool *pool;
        assert_int_equal(pool_new(workers, NULL, &pool), 0);
        return pool;
}

static void pool_run(void (*test)(struct pool *pool), unsigned workers) {
        struct pool *pool = pool_open(workers);
        gate_reset(0);
        test(pool);
        pool_free(pool);
}

/* A test with a pool of so many workers, whose slices are held. */
#define POOL_TEST(name, workers)                                                                             \
        static void name(struct pool *pool);                                                                 \
        TEST_LIST(name, pool_run(name, workers), NULL, NULL)                                                 \
        static void name(struct pool *pool)

/* Waits until `n` tasks have ended; notes their ids in order, negative if cancelled. */
static void pool_collect(struct pool *pool, unsigned n, int64_t *ids) {
        struct list list = LIST_INIT(list);
        for (unsigned i = 0; i < n;) {
                struct pollfd fd = { .fd = pool_fd(pool), .events = POLLIN };
                assert_int_equal(poll(&fd, 1, HOST_PATIENCE), 1);
                for (pool_take(pool, &list); !list_empty(&list); i++) {
                        struct task *task = list_entry(list.next, struct task, unfinished);
                        assert_true(i < n);
                        ids[i] = task->cancelled ? -(int64_t)task->id : (int64_t)task->id;
                        list_remove(&task->unfinished);
                        task_free(task);
                }
        }
}

static bool pool_has_result(struct pool *pool) {
        struct pollfd fd = { .fd = pool_fd(pool), .events = POLLIN };
        return poll(&fd, 1, 0) == 1;
}

static void check_log(const char *expected) {
        char text[LOG_MAX] = "";
        size_t used = 0;
        for (unsigned i = 0; i < gate.started; i++)
                used += (size_t)snprintf(text + used, sizeof text - used, "%c%zu ",
                                         (char)('A' + gate.log[i].id - 1), gate.log[i].slice);
        assert_string_equal(text, expected);
}

/* ---- turns ---- */

POOL_TEST(test_turns, 1) {
        int64_t ids[4];
        pool_submit(pool, gated_task(1, 100, 6));
        gate_wait_started(1); /* the worker has A's first slice and is held in it */
        pool_submit(pool, gated_task(2, 200, 2));
        pool_submit(pool, gated_task(3, 300, 1));
        pool_submit(pool, gated_task(4, 100, 2)); /* same turn as A: behind it */
        gate_allow(LOG_MAX);
        pool_collect(pool, 4, ids);
        check_log("A0 A1 B0 C0 A2 B1 A3 A4 A5 D0 D1 ");
        assert_memory_equal(ids, ((int64_t[]){ 3, 2, 1, 4 }), sizeof ids);
}

/* A fourth task joins a turn when the first of three has been handed out. */
POOL_TEST(test_turn_goes_on, 1) {
        int64_t ids[4];
        pool_submit(pool, gated_task(1, 1, 2));
        gate_wait_started(1);
        pool_submit(pool, gated_task(2, 1, 1));
        pool_submit(pool, gated_task(3, 1, 1));
        gate_allow(1);
        gate_wait_started(2);
        pool_submit(pool, gated_task(4, 1, 1));
        gate_allow(LOG_MAX);
        pool_collect(pool, 4, ids);
        check_log("A0 A1 B0 C0 D0 ");
}

/* 4 slices of one turn end long before the 512 of another that came first. */
POOL_TEST(test_large_does_not_block, 1) {
        int64_t ids[2];
        pool_submit(pool, gated_task(1, 1, 512));
        gate_wait_started(1);
        pool_submit(pool, gated_task(2, 2, 4));
        gate_allow(LOG_MAX);
        pool_collect(pool, 2, ids);
        assert_memory_equal(ids, ((int64_t[]){ 2, 1 }), sizeof ids);
        assert_int_equal(gate.log[8].id, 2);
        assert_int_equal(gate.log[8].slice, 3);
        assert_int_equal(gate.started, 516);
}

/* Tasks that are added while the worker is held go slice by slice with another user's, however many turns
 * their own user has. */
POOL_TEST(test_users, 1) {
        int64_t ids[66];
        pool_submit(pool, gated_task_of(999, 200, 99, 1));
        gate_wait_started(1);
        for (unsigned turn = 0; turn < 64; turn++)
                pool_submit(pool, gated_task_of(1000, 1 + turn, turn, 2));
        pool_submit(pool, gated_task_of(1001, 100, 64, 10));
        gate_allow(LOG_MAX);
        pool_collect(pool, 66, ids);
        assert_int_equal(ids[0], 200);
        assert_int_equal(ids[1], 100);
        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(gate.log[1 + i].id, i % 2 == 0 ? 1 + i / 2 : 100);
                assert_int_equal(gate.log[1 + i].slice, i % 2 == 0 ? 0 : i / 2);
        }
        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(ids[2 + i], 1 + i); /* the turns of the first one go round as ever */
}

/* The turn that stands for its user among the users goes, and another one of the user, or of the turn, stands
 * there then. */
POOL_TEST(test_users_lose_turns, 1) {
        int64_t ids[7];
        pool_submit(pool, gated_task_of(1, 1, 1, 2));
        gate_wait_started(1);
        pool_submit(pool, gated_task_of(2, 2, 2, 2));
        pool_submit(pool, gated_task_of(2, 3, 3, 2));
        pool_submit(pool, gated_task_of(3, 4, 4, 2));
        pool_submit(pool, gated_task_of(4, 5, 5, 1));
        pool_submit(pool, gated_task_of(4, 6, 5, 1));
        pool_submit(pool, gated_task_of(5, 7, 6, 1));
        pool_cancel(pool, 2); /* C is next of its user */
        pool_cancel(pool, 4); /* the only one of its user */
        pool_cancel(pool, 5); /* F is next of its turn */
        pool_collect(pool, 3, ids);
        gate_allow(LOG_MAX);
        pool_collect(pool, 4, ids);
        check_log("A0 A1 C0 F0 G0 C1 ");
}

/* A task that is large enough gets every worker, and each slice runs exactly once. */
POOL_TEST(test_all_workers, 4) {
        int64_t id;
        unsigned seen[64] = { 0 };
        pool_submit(pool, gated_task(1, 1, 64));
        gate_wait_started(4); /* all four are held in a slice of their own */
        gate_allow(LOG_MAX);
        pool_collect(pool, 1, &id);
        assert_int_equal(gate.started, 64);
        for (unsigned i = 0; i < 64; i++)
                seen[gate.log[i].slice]++;
        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(seen[i], 1);
}

/* ---- cancelling ---- */

POOL_TEST(test_cancel_running, 1) {
        int64_t id;
        pool_submit(pool, gated_task(1, 1, 8));
        gate_wait_started(1);
        pool_cancel(pool, 1);
        pool_cancel(pool, 1);                /* twice is once */
        assert_false(pool_has_result(pool)); /* its slice is still at work */
        gate_allow(LOG_MAX);
        pool_collect(pool, 1, &id);
        assert_int_equal(id, -1);
        check_log("A0 ");
}

POOL_TEST(test_cancel_queued, 1) {
        int64_t ids[5];
        pool_submit(pool, gated_task(1, 1, 3));
        gate_wait_started(1);
        pool_submit(pool, gated_task(2, 1, 2)); /* behind A */
        pool_submit(pool, gated_task(3, 1, 2)); /* last of the turn */
        pool_submit(pool, gated_task(4, 2, 2)); /* first of its turn, E behind it */
        pool_submit(pool, gated_task(5, 2, 1));
        pool_cancel(pool, 3);
        pool_cancel(pool, 2);
        pool_cancel(pool, 4);
        pool_cancel(pool, 77);      /* of no task */
        pool_collect(pool, 3, ids); /* at once: nothing of them was running */
        assert_memory_equal(ids, ((int64_t[]){ -3, -2, -4 }), 3 * sizeof ids[0]);
        pool_submit(pool, gated_task(6, 1, 1)); /* the turn's end is where it should be */
        gate_allow(LOG_MAX);
        pool_collect(pool, 3, ids);
        check_log("A0 A1 E0 A2 F0 ");
        assert_memory_equal(ids, ((int64_t[]){ 5, 1, 6 }), 3 * sizeof ids[0]);
}

POOL_TEST(test_cancel_finished, 1) {
        int64_t id;
        gate_allow(LOG_MAX);
        pool_submit(pool, gated_task(1, 1, 2));
        while (!pool_has_result(pool))
                sched_yield();
        pool_cancel(pool, 1); /* too late: it has finished */
        pool_collect(pool, 1, &id);
        assert_int_equal(id, 1);
}

/* After the end of a cancelled task its memory may go. */
HOST_TEST(test_no_access_after_cancel, 2) {
        for (unsigned round = 0; round < 20; round++) {
                struct member members[2];
                struct backend_range ranges[2] = { { 0 } };
                struct backend_task task = task_on(ranges, 2, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 4u << 20);
                struct backend_result result;
                members_new(backend, members, ranges, 2, 16u << 20);
                task.id = round + 1;
                task.statistics = true;
                assert_int_equal(backend->compute->submit(backend, &task, &result), 0);
                for (unsigned i = 0; i < round; i++)
                        sched_yield();
                backend->compute->cancel(backend, task.id);
                fixture_wait(backend, done, round + 1);
                assert_int_equal(done->at[round].id, task.id);
                for (unsigned i = 0; i < 2; i++)
                        assert_int_equal(mprotect(arena_of(members[i].arena)->map, members[i].bytes,
                                                  PROT_NONE),
                                         0);
                backend->ops->ping(backend);
                while (backend->ops->ping(backend) > 0) /* every worker has passed by since */
                        sched_yield();
                members_free(backend, members, 2);
        }
}

/* ---- rooms ---- */

struct tenant {
        unsigned char *room;
        unsigned n;
};

/* From here on the room is ours again. */
static void tenant_done(void *owner, const struct backend_result *result) {
        struct tenant *tenant = owner;
        assert_false(result->cancelled);
        assert_true(result->sum_squares > 0);
        free(tenant->room);
        tenant->room = NULL;
        tenant->n++;
}

/* A task uses the room that was allocated for it beforehand, also with fewer inputs, and leaves it alone
 * afterwards. */
TEST_ALONE(test_room) {
        struct tenant tenant = { 0 };
        struct backend_config config = { .workers = 2, .done = tenant_done, .owner = &tenant };
        struct backend *backend;
        struct member member;
        struct backend_range ranges[2] = { 0 };
        struct backend_task task = task_on(ranges, 2, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 1u << 20);
        struct backend_result result;
        size_t bytes;
        task.statistics = true;
        assert_int_equal(backend_host.open(&config, &backend), 0);
        member = member_new(backend, 8u << 20);
        memset(member.map, 0x3f, member.bytes);
        ranges[0] = (struct backend_range){ member.arena, 0 };
        ranges[1] = (struct backend_range){ member.arena, 4u << 20 };
        bytes = backend->compute->room(backend, &task);
        assert_true(bytes > 0);
        for (unsigned world = 2; world >= 1; world--) {
                unsigned char fill[64];
                task.n_inputs = task.n_outputs = world;
                assert_true(backend->compute->room(backend, &task) <= bytes);
                memset(fill, 0xa5, sizeof fill);
                tenant.room = task.room = malloc(bytes);
                memset(tenant.room, 0xa5, bytes);
                assert_int_equal(backend->compute->submit(backend, &task, &result), 0);
                assert_memory_not_equal(task.room, fill, sizeof fill);
                while (tenant.room) {
                        struct pollfd fd = { .fd = backend->ops->fd(backend), .events = POLLIN };
                        assert_int_equal(poll(&fd, 1, -1), 1);
                        backend->ops->dispatch(backend);
                }
        }
        assert_int_equal(tenant.n, 2);
        task.elements = 16; /* too small to be queued */
        assert_int_equal(backend->compute->room(backend, &task), 0);
        task.dtype = 99;
        assert_int_equal(backend->compute->room(backend, &task), 0);
        member_free(backend, &member);
        backend->ops->close(backend);
}

/* ---- signs of life ---- */

static void wait_answered(struct pool *pool) {
        while (pool_ping(pool) > 0)
                sched_yield();
}

POOL_TEST(test_ping, 2) {
        int64_t id;
        pool_ping(pool);
        wait_answered(pool); /* idle workers answer */
        pool_submit(pool, gated_task(1, 1, 1));
        gate_wait_started(1); /* one of them is stuck now */
        pool_ping(pool);
        while (pool_ping(pool) > 1)
                sched_yield();
        for (unsigned i = 0; i < 100; i++)
                assert_true(pool_ping(pool) >= 1);
        gate_allow(LOG_MAX);
        wait_answered(pool);
        pool_collect(pool, 1, &id);
}

/* ---- many tasks ---- */

#define MANY 4000u
#define SLOTS 16u /* places to write to; a task has one for itself */
#define SLOT_BYTES (1u << 20)

/* Whether the task that had the slot of task `i` before has ended. */
static bool slot_free(const struct done *done, unsigned i) {
        for (unsigned j = done->n; j-- > 0;)
                if (i < SLOTS || done->at[j].id == i - SLOTS)
                        return true;
        return i < SLOTS;
}

static void many_submit(struct backend *backend, struct done *done, struct member *member, unsigned i) {
        static const size_t lengths[] = { 1, 1000, 20000, 70000, 140000 };
        struct backend_range input = { member->arena, SLOTS * SLOT_BYTES },
                             output = { member->arena, i % SLOTS * SLOT_BYTES };
        struct backend_task task = { .id = i,
                                     .user = i % 7 / 2,
                                     .turn = i % 7,
                                     .dtype = WIRE__DTYPE__F32,
                                     .reduce = WIRE__REDUCE__REDUCE_NONE,
                                     .elements = lengths[i % 5],
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .inputs = &input,
                                     .outputs = &output,
                                     .statistics = true };
        struct backend_result result;
        int r;
        while (!slot_free(done, i))
                fixture_wait(backend, done, done->n + 1);
        r = backend->compute->submit(backend, &task, &result);
        assert_true(r == 0 || r == 1);
        if (r == 1)
                done_note(done, &result);
        if (i % 11 == 0)
                backend->compute->cancel(backend, i - i % 3);
}

MEMBER_TEST(test_many, 3, (SLOTS + 1) * SLOT_BYTES) {
        unsigned char seen[MANY] = { 0 };
        memset(member->map + SLOTS * SLOT_BYTES, 0x3f, SLOT_BYTES);
        for (unsigned i = 0; i < MANY; i++)
                many_submit(backend, done, member, i);
        fixture_wait(backend, done, MANY);
        for (unsigned i = 0; i < MANY; i++) {
                assert_int_equal(seen[done->at[i].id]++, 0);
                assert_true(done->at[i].cancelled || done->at[i].sum_squares > 0);
        }
        for (unsigned i = 0; i < SLOTS; i++) /* every slot has had tasks of the greatest length */
                for (unsigned j = 0; j < SLOT_BYTES; j++)
                        if (member->map[i * SLOT_BYTES + j] != (j < 140000 * sizeof(float) ? 0x3f : 0))
                                fail_msg("slot %u, byte %u", i, j);
        assert_true(backend->ops->cpu_us(backend) > 0);
}

/* ---- arenas ---- */

HOST_TEST(test_arena_accounts, 1) {
        struct backend_memory *arena;
        struct refusal refusal = { 0 };
        unsigned char *map;
        assert_int_equal(ask_new(backend, 16 * ARENA_PAGE, &arena), 0);
        assert_int_equal(backend->memory->bytes(arena), 16 * ARENA_PAGE);
        map = mmap(NULL, 16 * ARENA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(arena), 0);
        /* each page on its own, whatever shmem_enabled says */
        madvise(map, 16 * ARENA_PAGE, MADV_NOHUGEPAGE);
        for (unsigned pages = 0; pages < 16; pages++) {
                assert_int_equal(touched(arena), pages * ARENA_PAGE);
                assert_int_equal(ask_attach(arena, &refusal), WIRE__CODE__INVALID);
                assert_int_equal(refusal.code, WIRE__CODE__INVALID);
                assert_non_null(strstr(refusal.text, "65536"));
                assert_int_equal(touched(arena), pages * ARENA_PAGE); /* looking touched nothing */
                map[pages * ARENA_PAGE] = (unsigned char)pages;
        }
        assert_int_equal(ask_attach(arena, &refusal), 0);
        punch(arena, 0, ARENA_PAGE);
        assert_int_equal(ask_attach(arena, &refusal), WIRE__CODE__INVALID);
        munmap(map, 16 * ARENA_PAGE);
        ask_free(arena);
}

static char text[1024]; /* why memory was refused */

static int adopt(struct backend *backend, enum memory_kind kind, int *fd, uint64_t offset, uint64_t bytes,
                 struct backend_memory **ret) {
        struct refusal refusal;
        int r = ask(backend,
                    &(struct memory_request){
                            .kind = kind, .bytes = bytes, .offset = offset, .fds = fd, .n_fds = 1 },
                    ret, &refusal);
        if (r > 0)
                memcpy(text, refusal.text, sizeof text);
        return r;
}

/* The same memory is known again through any descriptor, and only that. */
HOST_TEST(test_identity, 1) {
        struct backend_memory *memory[5];
        int fd = memfd_sealed(4 * ARENA_PAGE), again = dup(fd), other = memfd_sealed(4 * ARENA_PAGE);
        assert_int_equal(fallocate(fd, 0, 0, 4 * ARENA_PAGE), 0);
        assert_int_equal(fallocate(other, 0, 0, 4 * ARENA_PAGE), 0);
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &fd, 0, 4 * ARENA_PAGE, &memory[0]), 0);
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &again, ARENA_PAGE, ARENA_PAGE, &memory[1]), 0);
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &other, 0, 4 * ARENA_PAGE, &memory[2]), 0);
        assert_int_equal(ask_new(backend, 4 * ARENA_PAGE, &memory[3]), 0);
        assert_int_equal(ask_own(backend, 4 * ARENA_PAGE, &memory[4]), 0);
        for (unsigned i = 0; i < 5; i++)
                for (unsigned j = 0; j < 5; j++) {
                        int order = backend->memory->compare(memory[i], memory[j]);
                        assert_int_equal(order == 0, i == j || i + j == 1);
                        assert_int_equal(order, -backend->memory->compare(memory[j], memory[i]));
                }
        for (unsigned i = 0; i < 5; i++)
                ask_free(memory[i]);
}

/* Memory that a daemon has made comes back whole, and is not offered as a member's own. */
TEST_ALONE(test_returned_memory) {
        struct done *done = malloc(sizeof *done);
        struct backend *backend = fixture_open(1, done), *next = fixture_open(1, done);
        struct member member = member_new(backend, 4 * ARENA_PAGE);
        struct backend_memory *again;
        int fd = dup(fd_of(member.arena)), fds[2] = { fd, fd };
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &fd, 0, 4 * ARENA_PAGE, &again), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "it is an arena, or staging memory, that a gradsyncd has made"));
        assert_int_equal(adopt(backend, MEMORY_RETURNED, &fd, 0, 2 * ARENA_PAGE, &again),
                         WIRE__CODE__INVALID);
        assert_string_equal(text, "the memory has 16384 bytes instead of 8192");
        assert_int_equal(adopt(backend, MEMORY_RETURNED, &fd, 0, 8 * ARENA_PAGE, &again),
                         WIRE__CODE__INVALID);
        assert_int_equal(ask(backend,
                             &(struct memory_request){ .kind = MEMORY_RETURNED,
                                                       .bytes = 4 * ARENA_PAGE,
                                                       .fds = fds,
                                                       .n_fds = 2 },
                             &again, NULL),
                         -EINVAL);
        memcpy(member.map + ARENA_PAGE, "kept", 4);
        assert_int_equal(adopt(backend, MEMORY_RETURNED, &fd, 0, 4 * ARENA_PAGE, &again),
                         WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "has been brought back already"));
        assert_int_equal(adopt(next, MEMORY_RETURNED, &fd, 0, 4 * ARENA_PAGE, &again), 0);
        assert_int_equal(fd, -1);
        assert_memory_equal((unsigned char *)next->memory->address(again) + ARENA_PAGE, "kept", 4);
        ask_free(again);
        member_free(backend, &member);
        next->ops->close(next);
        backend->ops->close(backend);
        free(done);
}

/* The arena is memory of the member's own, from its third page on. The member sees the results in it. */
MEMBER_TEST(test_adopted_arena, 1, ARENA_PAGE) {
        struct backend_memory *arena;
        struct backend_range range[2] = { { 0 } };
        struct backend_task task = task_on(range, 2, WIRE__DTYPE__I32, WIRE__REDUCE__SUM, 16);
        uint64_t bytes = 600 * ARENA_PAGE; /* a large one */
        int fd = memfd_sealed(bytes);
        int32_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
                *at = map + (2 * ARENA_PAGE + 64) / 4;
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &fd, 0, bytes, &arena), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "bytes, but only"));
        memset(map, 0, bytes);
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &fd, 64, ARENA_PAGE, &arena), WIRE__CODE__INVALID);
        assert_true(fd >= 0); /* still the caller's */
        assert_int_equal(adopt(backend, MEMORY_OFFERED, &fd, 2 * ARENA_PAGE, bytes - 2 * ARENA_PAGE - 100,
                               &arena),
                         0);
        assert_int_equal(fd, -1);
        assert_int_equal(backend->memory->bytes(arena), bytes - 2 * ARENA_PAGE);
        range[0] = (struct backend_range){ member->arena, 0 };
        range[1] = (struct backend_range){ arena, 64 };
        for (int32_t i = 0; i < 16; i++) {
                ((int32_t *)(void *)member->map)[i] = 100 * i;
                at[i] = i;
        }
        fixture_run(backend, done, &task);
        for (int32_t i = 0; i < 16; i++) {
                assert_int_equal(at[i], 101 * i);
                assert_int_equal(((int32_t *)(void *)member->map)[i], 101 * i);
        }
        munmap(map, bytes);
        ask_free(arena);
}

/* A hole is found before a large task, and before small ones that make up as much. */
MEMBER_TEST(test_arena_check, 1, 16 * ARENA_PAGE) {
        struct refusal refusal = { 0 };
        assert_int_equal(backend->memory->check(member->arena, MEMORY_UNCHECKED, &refusal), 0);
        punch(member->arena, 3 * ARENA_PAGE, ARENA_PAGE);
        assert_int_equal(backend->memory->check(member->arena, MEMORY_UNCHECKED - 1, &refusal), 0);
        assert_int_equal(backend->memory->check(member->arena, 1, &refusal), WIRE__CODE__INVALID);
        assert_non_null(strstr(refusal.text, "holes were punched"));
        assert_int_equal(backend->memory->check(member->arena, MEMORY_UNCHECKED - 1, &refusal), 0);
        assert_int_equal(backend->memory->check(member->arena, UINT64_C(1) << 40, &refusal),
                         WIRE__CODE__INVALID);
        member->map[3 * ARENA_PAGE] = 1;
        assert_int_equal(backend->memory->check(member->arena, UINT64_C(1) << 40, &refusal), 0);
}

/* Mappings of arenas in this process. */
static unsigned arena_mappings(void) {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[512];
        unsigned n = 0;
        assert_non_null(maps);
        while (fgets(line, sizeof line, maps))
                n += strstr(line, "gradsync-arena") != NULL;
        fclose(maps);
        return n;
}

static struct backend_memory *large_arena(struct backend *backend) {
        struct backend_memory *arena;
        assert_int_equal(ask_new(backend, 1024 * ARENA_PAGE, &arena), 0);
        assert_int_equal(fallocate(fd_of(arena), 0, 0, 1024 * ARENA_PAGE), 0);
        assert_int_equal(ask_attach(arena, NULL), 0);
        return arena;
}

/* A thread of its own gives large arenas back; closing the backend waits for it. */
TEST_ALONE(test_large_arenas) {
        struct done *done = malloc(sizeof *done);
        struct backend *backend = fixture_open(1, done);
        struct backend_memory *arena[8];
        for (unsigned i = 0; i < 8; i++)
                arena[i] = large_arena(backend);
        assert_int_equal(arena_mappings(), 8);
        for (unsigned i = 0; i < 8; i++)
                ask_free(arena[i]);
        assert_null(backend->ops->close(backend));
        assert_int_equal(arena_mappings(), 0);
        free(done);
}

static uint64_t address_space(void) {
        FILE *statm = fopen("/proc/self/statm", "r");
        unsigned long pages;
        assert_non_null(statm);
        assert_int_equal(fscanf(statm, "%lu", &pages), 1);
        fclose(statm);
        return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Large arenas start near multiples of 256 MiB, but no two of them equally near; what was reserved for
 * that is given back. */
HOST_TEST(test_large_arenas_lie_apart, 1) {
        struct backend_memory *arena[8];
        uint64_t seen = 0;
        uint64_t before = address_space();
        for (unsigned i = 0; i < 8; i++) {
                uintptr_t page;
                arena[i] = large_arena(backend);
                page = (uintptr_t)backend->memory->address(arena[i]) % (256u << 20) / ARENA_PAGE;
                assert_true(page < 64);
                assert_false(seen >> page & 1);
                seen |= UINT64_C(1) << page;
        }
        assert_in_range(address_space(), before, before + 8 * 1024 * ARENA_PAGE + (64u << 20));
        for (unsigned i = 0; i < 8; i++)
                ask_free(arena[i]);
}

/* Under a tight limit of address space an arena is mapped where there is room. */
HOST_TEST(test_large_arena_in_little_space, 1) {
        struct backend_memory *arena;
        struct rlimit limit, tight;
        assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
        tight = (struct rlimit){ address_space() + (64u << 20), limit.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
        arena = large_arena(backend);
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
        assert_non_null(backend->memory->address(arena));
        ask_free(arena);
}

HOST_TEST(test_arena_seals, 1) {
        struct backend_memory *arena;
        int fd;
        assert_int_equal(ask_new(backend, 4 * ARENA_PAGE, &arena), 0);
        fd = fd_of(arena);
        /* A system may seal all memfds against being executed. */
        assert_int_equal(fcntl(fd, F_GET_SEALS) & ~F_SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        assert_int_equal(ftruncate(fd, ARENA_PAGE), -1);
        assert_int_equal(ftruncate(fd, 8 * ARENA_PAGE), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        ask_free(arena);
        assert_int_equal(ask_new(backend, 0, &arena), -EINVAL);
        assert_int_equal(ask_new(backend, ARENA_PAGE + 1, &arena), -EINVAL);
        assert_int_equal(ask_new(backend, LIMIT_ARENA + ARENA_PAGE, &arena), -EINVAL);
}

/* The daemon's own memory can be used without a touch from outside. Its fd leads to the bytes at its
 * address. */
MEMBER_TEST(test_own_memory, 1, 4 * ARENA_PAGE) {
        struct backend_memory *own;
        struct backend_range ranges[2] = { { member->arena, ARENA_PAGE }, { NULL, 2 * ARENA_PAGE } };
        struct backend_task task = task_on(ranges, 1, WIRE__DTYPE__U8, WIRE__REDUCE__REDUCE_NONE, 5);
        unsigned char *map;
        assert_int_equal(ask_own(backend, ARENA_PAGE - 1, &own), -EINVAL);
        assert_int_equal(ask_own(backend, 4 * ARENA_PAGE, &own), 0);
        ranges[1].memory = own;
        task.outputs = &ranges[1];
        map = mmap(NULL, 4 * ARENA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(own), 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        memcpy(member->map + ARENA_PAGE, "there", 5);
        fixture_run(backend, done, &task);
        assert_memory_equal((unsigned char *)backend->memory->address(own) + 2 * ARENA_PAGE, "there", 5);
        memcpy(map + 2 * ARENA_PAGE, "back!", 5);
        task.inputs = &ranges[1], task.outputs = &ranges[0];
        fixture_run(backend, done, &task);
        assert_memory_equal(member->map + ARENA_PAGE, "back!", 5);
        munmap(map, 4 * ARENA_PAGE);
        ask_free(own);
}

/* Pages of an arena on which no task works stay untouched, even next to a reduction. */
MEMBER_TEST(test_reduction_touches_no_more, 2, 4u << 20) {
        struct backend_range range = { member->arena, 0 };
        struct backend_task task =
                task_on(&range, 1, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, (2u << 20) / sizeof(float));
        task.statistics = true;
        punch(member->arena, 2u << 20, 2u << 20);
        assert_int_equal(touched(member->arena), 2u << 20);
        fixture_run(backend, done, &task);
        assert_int_equal(touched(member->arena), 2u << 20); /* reading ahead does not count as touching */
}

/* ---- threads ---- */

/* Finds `key` of a thread's status file. */
static void thread_status(const char *tid, const char *key, char *value, size_t size) {
        char path[64], line[512];
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%.10s/status", tid);
        file = fopen(path, "re");
        assert_non_null(file);
        *value = '\0';
        while (fgets(line, sizeof line, file))
                if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
                        snprintf(value, size, "%.*s", (int)strcspn(line + strlen(key) + 2, "\n"),
                                 line + strlen(key) + 2);
        fclose(file);
}

TEST_ALONE(test_threads) {
        struct backend_config config = { .workers = 3, .has_affinity = true };
        struct backend *backend;
        struct dirent *entry;
        DIR *directory;
        unsigned found = 0;
        cpu_set_t mine;
        assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&config.affinity) == 0; cpu++)
                if (CPU_ISSET(cpu, &mine))
                        CPU_SET(cpu, &config.affinity);
        assert_int_equal(backend_host.open(&config, &backend), 0);
        directory = opendir("/proc/self/task");
        assert_non_null(directory);
        while ((entry = readdir(directory))) {
                char name[64], blocked[64], cpus[64];
                if (entry->d_name[0] == '.')
                        continue;
                thread_status(entry->d_name, "Name", name, sizeof name);
                if (strncmp(name, "gs-worker-", 10) != 0)
                        continue;
                found++;
                thread_status(entry->d_name, "SigBlk", blocked, sizeof blocked);
                /* all but KILL and STOP, and BUS, see guard.h */
                assert_int_equal(strtoull(blocked, NULL, 16) & 0x7ffbfebf, 0x7ffbfebf);
                thread_status(entry->d_name, "Cpus_allowed_list", cpus, sizeof cpus);
                assert_null(strpbrk(cpus, "-,"));
        }
        closedir(directory);
        assert_int_equal(found, 3);
        backend_host.close(backend);
}

TEST_ALONE(test_open) {
        struct backend_config config = { 0 };
        struct backend *backend = NULL;
        assert_int_equal(backend_host.open(&config, &backend), 0);
        assert_int_equal(backend->ops->workers(backend), cpus_available());
        assert_null(backend->ops->close(backend));
        assert_null(backend_host.close(NULL));
        assert_int_equal(setenv("GRADSYNC_SIMD", "abacus", 1), 0);
        assert_int_equal(backend_host.open(&config, &backend), -ENOTSUP);
        unsetenv("GRADSYNC_SIMD");
}
