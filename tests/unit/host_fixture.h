/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the host backend: an open backend, arenas as a member sees them, and waiting for
 * results. */
#pragma once

#include "unit.h"

#include <poll.h>

#include "backend/backend.h"
#include "proto/gradsync.pb-c.h"
#include "proto/memfd.h"

#define DONE_MAX 4096u
#define HOST_PATIENCE 60000 /* ms: then something does not end */

/* Results in the order of their delivery. */
struct done {
        unsigned n;
        struct {
                uint64_t id;
                bool cancelled;
                const struct backend_memory *withdrawn;
                uint64_t found;
                double sum_squares;
                unsigned n_inputs;
                double input_sums[8];
                uint64_t nonfinite[8];
        } at[DONE_MAX];
};

struct member {
        struct backend_memory *arena;
        unsigned char *map; /* the member's own mapping */
        uint64_t bytes;
};

static inline void done_note(struct done *done, const struct backend_result *result) {
        unsigned i = done->n++;
        assert_true(i < DONE_MAX);
        done->at[i].id = result->id;
        done->at[i].cancelled = result->cancelled;
        done->at[i].withdrawn = result->withdrawn;
        done->at[i].found = result->found;
        done->at[i].sum_squares = result->sum_squares;
        done->at[i].n_inputs = result->n_inputs;
        for (unsigned j = 0; j < result->n_inputs && j < 8; j++) {
                done->at[i].input_sums[j] = result->input_sum_squares[j];
                done->at[i].nonfinite[j] = result->input_nonfinite[j];
        }
}

static inline void done_deliver(void *owner, const struct backend_result *result) {
        done_note(owner, result);
}

static inline struct backend *fixture_open(unsigned workers, struct done *done) {
        struct backend_config config = { .workers = workers, .done = done_deliver, .owner = done };
        struct backend *backend = NULL;
        done->n = 0;
        assert_int_equal(backend_host.open(&config, &backend), 0);
        assert_non_null(backend);
        assert_int_equal(backend->ops->workers(backend), workers);
        return backend;
}

static inline void fixture_wait(struct backend *backend, const struct done *done, unsigned n) {
        while (done->n < n) {
                struct pollfd fd = { .fd = backend->ops->fd(backend), .events = POLLIN };
                assert_int_equal(poll(&fd, 1, HOST_PATIENCE), 1);
                backend->ops->dispatch(backend);
        }
}

/* Runs one task to its end, wherever the backend does it; its result is the last of `done`. */
static inline void fixture_run(struct backend *backend, struct done *done, const struct backend_task *task) {
        struct backend_result result;
        unsigned before = done->n;
        int r = backend->compute->submit(backend, task, &result);
        assert_true(r >= 0);
        if (r == 1)
                done_note(done, &result);
        else
                fixture_wait(backend, done, before + 1);
        assert_int_equal(done->at[before].id, task->id);
}

/* One request, which this backend answers at once. */
static inline int ask(struct backend *backend, const struct memory_request *request,
                      struct backend_memory **ret, struct refusal *refusal) {
        struct memory_result result;
        assert_int_equal(backend->memory->request(backend, request, &result), 1);
        assert_int_equal(result.id, request->id);
        assert_true(result.error == 0 || !result.memory);
        if (ret)
                *ret = result.memory;
        if (result.error > 0) {
                assert_int_equal(result.refusal.code, result.error);
                *(refusal ? refusal : &result.refusal) = result.refusal;
        }
        return result.error;
}

static inline int ask_new(struct backend *backend, uint64_t bytes, struct backend_memory **ret) {
        return ask(backend, &(struct memory_request){ .id = 3, .kind = MEMORY_SHARED, .bytes = bytes }, ret,
                   NULL);
}

static inline int ask_own(struct backend *backend, uint64_t bytes, struct backend_memory **ret) {
        return ask(backend, &(struct memory_request){ .id = 4, .kind = MEMORY_OWN, .bytes = bytes }, ret,
                   NULL);
}

static inline int ask_attach(struct backend_memory *memory, struct refusal *refusal) {
        return ask(memory->backend, &(struct memory_request){ .kind = MEMORY_ATTACH, .memory = memory }, NULL,
                   refusal);
}

static inline void ask_free(struct backend_memory *memory) {
        assert_int_equal(ask(memory->backend,
                             &(struct memory_request){ .kind = MEMORY_FREE, .memory = memory }, NULL, NULL),
                         0);
}

static inline int fd_of(const struct backend_memory *memory) {
        int fds[MEMORY_FDS];
        assert_int_equal(memory->backend->memory->n_fds, 1);
        memory->backend->memory->fds(memory, fds);
        return fds[0];
}

static inline uint64_t touched(const struct backend_memory *memory) {
        struct stat info;
        assert_int_equal(fstat(fd_of(memory), &info), 0);
        return (uint64_t)info.st_blocks * 512;
}

static inline void punch(const struct backend_memory *memory, uint64_t offset, uint64_t bytes) {
        assert_int_equal(fallocate(fd_of(memory), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                                   (off_t)bytes),
                         0);
}

/* Mapped and touched by the "member", then attached. */
static inline struct member member_new(struct backend *backend, uint64_t bytes) {
        struct member member = { .bytes = bytes };
        assert_int_equal(ask_new(backend, bytes, &member.arena), 0);
        member.map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(member.arena), 0);
        assert_ptr_not_equal(member.map, MAP_FAILED);
        memset(member.map, 0, bytes);
        assert_int_equal(ask_attach(member.arena, NULL), 0);
        return member;
}

static inline void member_free(struct backend *backend, struct member *member) {
        munmap(member->map, member->bytes);
        ask_free(member->arena);
}

/* A task over `n` ranges, in place. */
static inline struct backend_task task_on(const struct backend_range *ranges, unsigned n, unsigned dtype,
                                          unsigned reduce, uint64_t elements) {
        return (struct backend_task){ .id = 1,
                                      .turn = 1,
                                      .dtype = dtype,
                                      .reduce = reduce,
                                      .divisor = n,
                                      .elements = elements,
                                      .n_inputs = n,
                                      .n_outputs = n,
                                      .inputs = ranges,
                                      .outputs = ranges };
}

/* xorshift: repeatable, and good enough to spread bits. */
static inline uint64_t random_next(uint64_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

typedef void (*host_test_fn)(struct backend *backend, struct done *done, struct member *member);

/* With a member whose arena has so many bytes; 0: without one. */
static inline void host_run(host_test_fn test, unsigned workers, uint64_t bytes) {
        struct done *done = malloc(sizeof *done);
        struct backend *backend = fixture_open(workers, done);
        struct member member = { 0 };
        if (bytes > 0)
                member = member_new(backend, bytes);
        test(backend, done, &member);
        if (bytes > 0)
                member_free(backend, &member);
        assert_null(backend->ops->close(backend));
        free(done);
}

/* For tests.h: a test with an open backend of so many workers, between a setup and a teardown. */
#define HOST_TEST_WITH(name, workers, bytes, setup, teardown)                                                \
        static void name(struct backend *backend, struct done *done, struct member *member);                 \
        TEST_LIST(name, host_run(name, workers, bytes), setup, teardown)                                     \
        static void name(struct backend *backend, struct done *done, struct member *member)

#define HOST_TEST(name, workers) HOST_TEST_WITH(name, workers, 0, NULL, NULL)
#define MEMBER_TEST(name, workers, bytes) HOST_TEST_WITH(name, workers, bytes, NULL, NULL)

/* Members, and the whole arena of each. */
static inline void members_new(struct backend *backend, struct member *member, struct backend_range *range,
                               unsigned n, uint64_t bytes) {
        for (unsigned i = 0; i < n; i++) {
                member[i] = member_new(backend, bytes);
                range[i] = (struct backend_range){ member[i].arena, 0 };
        }
}

static inline void members_free(struct backend *backend, struct member *member, unsigned n) {
        for (unsigned i = 0; i < n; i++)
                member_free(backend, &member[i]);
}
