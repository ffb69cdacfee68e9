/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend on a fake GPU: real driver calls of the backend, real processes and sockets on the other
 * side. The tests play the members, through a second context of the same fake GPU in a process of its own
 * where they must be another process; else they look at memory through the daemon's own context.
 */
#include "fake_gpu_fixture.h"

#define TESTS_OWN_MAIN
#include "tests.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "backend/backend.h"
#include "backend/cuda/vmm.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "gradsync.pb-c.h"

#define MIB (1u << 20)
#define SQUARES 3000u

struct seen {
        unsigned n_done, n_made, n_failed, n_cancelled;
        uint64_t cancelled; /* the least id */
        struct backend_result done;
        uint64_t ids[512];                 /* in the order of their ends */
        double input_sums[4], squares[64]; /* of tasks from the id SQUARES on: of their results */
        uint64_t nonfinite[4];
        struct memory_result made;
        struct backend_memory *last_made;
        unsigned n_unmade;
        char failed[512];
};

static struct seen seen;
static cuda_context context;

static void on_done(void *owner, const struct backend_result *result) {
        seen.done = *result;
        if (result->cancelled && (seen.n_cancelled++ == 0 || result->id < seen.cancelled))
                seen.cancelled = result->id;
        if (seen.n_done < array_size(seen.ids))
                seen.ids[seen.n_done] = result->id;
        for (unsigned i = 0; i < result->n_inputs && i < 4; i++) {
                seen.input_sums[i] = result->input_sum_squares[i];
                seen.nonfinite[i] = result->input_nonfinite[i];
        }
        if (result->id >= SQUARES && result->id < SQUARES + array_size(seen.squares))
                seen.squares[result->id - SQUARES] = result->sum_squares;
        seen.n_done++;
}

static void on_made(void *owner, const struct memory_result *result) {
        seen.made = *result;
        seen.n_unmade += result->error == -ECANCELED;
        if (result->memory != NULL)
                seen.last_made = result->memory;
        seen.n_made++;
}

static void on_failed(void *owner, const char *why) {
        snprintf(seen.failed, sizeof(seen.failed), "%s", why);
        seen.n_failed++;
}

static int try_open(const char *device, struct backend **ret) {
        const struct backend_config config = { .device = device,
                                               .driver = FAKE_GPU_LIBRARY,
                                               .done = on_done,
                                               .made = on_made,
                                               .failed = on_failed,
                                               .error = error,
                                               .error_size = sizeof(error) };

        error[0] = '\0';
        memset(&seen, 0, sizeof(seen));
        return backend_cuda.open(&config, ret);
}

static struct backend *open_backend(void) {
        struct backend *backend = NULL;

        if (try_open("cuda:0", &backend) != 0)
                fail_msg("%s", error);
        return backend;
}

static void run_open(void (*test)(struct backend *backend)) {
        struct backend *backend = open_backend();

        test(backend);
        assert_int_equal(seen.n_failed, 0);
        assert_null(backend->ops->close(backend));
}

/* A test with an open backend, which does not fail. */
#define TEST(name)                                                                                           \
        static void name(struct backend *backend);                                                           \
        TEST_LIST(name, run_open(name), NULL, NULL)                                                          \
        static void name(struct backend *backend)

static void wait_until(struct backend *backend, const unsigned *count, unsigned n) {
        while (*count < n) {
                struct pollfd fd = { .fd = backend->ops->fd(backend), .events = POLLIN };
                assert_int_equal(poll(&fd, 1, 60000), 1);
                backend->ops->dispatch(backend);
        }
}

static struct memory_result ask(struct backend *backend, const struct memory_request *request) {
        struct memory_result result;
        unsigned before = seen.n_made;

        if (backend->memory->request(backend, request, &result) == 1)
                return result;
        wait_until(backend, &seen.n_made, before + 1);
        assert_int_equal(seen.made.id, request->id);
        return seen.made;
}

static struct backend_memory *make(struct backend *backend, uint64_t bytes) {
        struct memory_result result =
                ask(backend, &(struct memory_request){ .id = 7, .kind = MEMORY_SHARED, .bytes = bytes });

        assert_int_equal(result.error, 0);
        struct backend_memory *memory = result.memory;
        assert_true(backend->memory->bytes(memory) >= bytes);
        result = ask(backend, &(struct memory_request){ .kind = MEMORY_ATTACH, .memory = memory });
        assert_int_equal(result.error, 0);
        return memory;
}

static void let_go(struct backend *backend, struct backend_memory *memory) {
        assert_int_equal(ask(backend,
                             &(struct memory_request){ .id = 8, .kind = MEMORY_FREE, .memory = memory })
                                 .error,
                         0);
}

static void put(const struct backend_memory *memory, uint64_t offset, const void *from, size_t bytes) {
        assert_int_equal(driver.context_set(context), CUDA_OK);
        assert_int_equal(driver.copy_in(vmm_of(memory)->address + offset, from, bytes, NULL), CUDA_OK);
        assert_int_equal(driver.stream_wait(NULL), CUDA_OK);
}

static void get(const struct backend_memory *memory, uint64_t offset, void *to, size_t bytes) {
        assert_int_equal(driver.context_set(context), CUDA_OK);
        assert_int_equal(driver.copy_out(to, vmm_of(memory)->address + offset, bytes, NULL), CUDA_OK);
}

static struct backend_task task_of(const struct backend_range *ranges, unsigned n, uint64_t elements) {
        static uint64_t id;

        id++;
        return (struct backend_task){ .id = id,
                                      .turn = id % 3,
                                      .dtype = WIRE__DTYPE__F32,
                                      .reduce = WIRE__REDUCE__AVG,
                                      .divisor = n,
                                      .elements = elements,
                                      .n_inputs = n,
                                      .n_outputs = n,
                                      .inputs = ranges,
                                      .outputs = ranges,
                                      .statistics = true };
}

static void run(struct backend *backend, const struct backend_task *task) {
        struct backend_result result;
        unsigned before = seen.n_done;

        assert_int_equal(backend->compute->submit(backend, task, &result), 0);
        wait_until(backend, &seen.n_done, before + 1);
        assert_int_equal(seen.done.id, task->id);
}

/* ---- tests ---- */

TEST(test_memory_begins_as_zeros_and_its_descriptor_is_of_use_to_others) {
        struct backend_memory *memory = make(backend, 3 * MIB);
        unsigned char *bytes = malloc(4 * MIB), *zeros = calloc(1, 4 * MIB);
        int fds[MEMORY_FDS];

        assert_int_equal(backend->memory->bytes(memory), 4 * MIB);
        get(memory, 0, bytes, 4 * MIB);
        assert_memory_equal(bytes, zeros, 4 * MIB);
        put(memory, 5, "gradient", 8);
        backend->memory->fds(memory, fds);
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[0], 0), MAP_FAILED);
        int copy = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        struct memory_result again =
                ask(backend,
                    &(struct memory_request){
                            .id = 9, .kind = MEMORY_RETURNED, .bytes = 4 * MIB, .fds = &copy, .n_fds = 1 });
        assert_int_equal(again.error, 0);
        assert_int_equal(copy, -1);
        let_go(backend, memory);
        get(again.memory, 5, bytes, 8);
        assert_memory_equal(bytes, "gradient", 8);
        let_go(backend, again.memory);
        free(bytes);
        free(zeros);
}

TEST(test_averages_and_statistics) {
        struct backend_range ranges[3];
        float values[1000], out[1000];

        for (unsigned m = 0; m < 3; m++) {
                ranges[m] = (struct backend_range){ make(backend, MIB), 4096 * m };
                for (unsigned i = 0; i < 1000; i++)
                        values[i] = (float)(i + m);
                if (m == 1)
                        values[700] = INFINITY;
                put(ranges[m].memory, ranges[m].offset, values, sizeof(values));
        }
        struct backend_task task = task_of(ranges, 3, 1000);
        run(backend, &task);
        for (unsigned m = 0; m < 3; m++) {
                get(ranges[m].memory, ranges[m].offset, out, sizeof(out));
                for (unsigned i = 0; i < 1000; i++) {
                        const float third = (float)(1.0 / 3);
                        float expected = (float)i * third;
                        expected += (i == 700 ? INFINITY : (float)(i + 1)) * third;
                        expected += (float)(i + 2) * third;
                        assert_true(out[i] == expected);
                }
        }
        assert_true(seen.input_sums[0] == 999.0 * 1000 * 1999 / 6);
        assert_int_equal(seen.nonfinite[0], 0);
        assert_int_equal(seen.nonfinite[1], 1);
        struct backend_task find = { .id = 99,
                                     .dtype = WIRE__DTYPE__F32,
                                     .first = 10,
                                     .elements = 900,
                                     .n_inputs = 1,
                                     .inputs = ranges,
                                     .find = true };
        run(backend, &find);
        assert_int_equal(seen.done.found, 700);
        find.elements = 600;
        run(backend, &find);
        assert_true(seen.done.found == BACKEND_NOWHERE);
        for (unsigned m = 0; m < 3; m++)
                let_go(backend, ranges[m].memory);
}

/* Many small tasks at once, in rooms of their own, of several turns. Those that have not begun may be called
 * off: they alone. */
TEST(test_many_tasks_are_done_in_the_order_of_their_turn) {
        struct backend_range ranges[2] = { { make(backend, MIB), 0 }, { make(backend, MIB), 0 } };
        struct backend_task task = task_of(ranges, 2, 16);
        unsigned char *rooms = malloc(200 * backend->compute->room(backend, &task));
        float ones[16], out[16];
        struct backend_result ignored;
        unsigned before = seen.n_done;

        for (unsigned i = 0; i < 16; i++)
                ones[i] = 1;
        put(ranges[0].memory, 0, ones, sizeof(ones));
        put(ranges[1].memory, 0, ones, sizeof(ones));
        task.turn = 2;
        for (unsigned i = 0; i < 12;
             i++) { /* x + x and x * x by turns: 2^126 if none is lost, and in order */
                task.id = 1000 + i;
                task.reduce = i % 2 == 0 ? WIRE__REDUCE__SUM : WIRE__REDUCE__PROD;
                task.room = rooms + i * backend->compute->room(backend, &task);
                assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
        }
        wait_until(backend, &seen.n_done, before + 12);
        assert_int_equal(seen.done.id, 1011);
        get(ranges[1].memory, 0, out, sizeof(out));
        for (unsigned i = 0; i < 16; i++)
                assert_true(out[i] == 0x1p126f);
        gpu_order("hold", true);             /* of tasks of which no two share a launch, few are under way */
        for (unsigned i = 0; i < 100; i++) { /* turns have no order among them: each has its own bytes */
                const struct backend_range own[] = { { ranges[0].memory, i % 5 * 64 },
                                                     { ranges[1].memory, i % 5 * 64 } };
                task.inputs = task.outputs = own;
                task.id = 2000 + i;
                task.turn = i % 5;
                task.reduce = i % 2 == 0 ? WIRE__REDUCE__MAX : WIRE__REDUCE__MIN;
                task.room = rooms + i * backend->compute->room(backend, &task);
                assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
        }
        for (unsigned i = 50; i < 101; i++) /* one of them is unknown */
                backend->compute->cancel(backend, 2000 + i);
        task.inputs = task.outputs = ranges;
        task.id = 1999; /* behind what is left of its turn */
        task.room = rooms + 100 * backend->compute->room(backend, &task);
        assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
        gpu_order("hold", false);
        wait_until(backend, &seen.n_done, before + 113);
        assert_int_equal(seen.n_cancelled, 50);
        assert_int_equal(seen.cancelled, 2050);
        task.dtype = WIRE__DTYPE__I32;
        task.reduce = WIRE__REDUCE__AVG;
        assert_int_equal(backend->compute->submit(backend, &task, &ignored), -EINVAL);
        let_go(backend, ranges[0].memory);
        let_go(backend, ranges[1].memory);
        free(rooms);
}

/* Some of a turn are launched, and some wait, when others come. None is lost. */
TEST(test_tasks_come_behind_those_that_wait) {
        struct backend_range range = { make(backend, MIB), 0 };
        struct backend_task task = task_of(&range, 1, 16);
        struct backend_result ignored;

        for (unsigned round = 0; round < 4; round++) {
                for (unsigned i = 0; i < 20; i++) { /* no two neighbours share a launch */
                        task.id = 1000 + 20 * round + i;
                        task.reduce = i % 2 == 0 ? WIRE__REDUCE__MAX : WIRE__REDUCE__MIN;
                        assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
                }
                wait_until(backend, &seen.n_done, 20 * round + 1);
        }
        wait_until(backend, &seen.n_done, 80);
        assert_int_equal(seen.done.id, 1079);
        let_go(backend, range.memory);
}

/* A kernel of a daemon that was killed may still write there. */
TEST_ALONE(test_memory_of_a_former_daemon_is_left_alone_for_a_while) {
        struct backend *backend = open_backend();
        struct backend_memory *memory = make(backend, MIB);
        int fds[MEMORY_FDS];

        put(memory, 5, "gradient", 8);
        backend->memory->fds(memory, fds);
        fds[0] = dup(fds[0]);
        let_go(backend, memory);
        assert_null(backend->ops->close(backend));
        uint64_t begin = clock_now();
        backend = open_backend();
        struct memory_result result =
                ask(backend,
                    &(struct memory_request){
                            .id = 9, .kind = MEMORY_RETURNED, .bytes = 2 * MIB, .fds = fds, .n_fds = 1 });
        assert_int_equal(result.error, 0);
        assert_true(clock_now() - begin >= 500 * USEC_PER_MSEC);
        char text[8];
        get(result.memory, 5, text, sizeof(text));
        assert_memory_equal(text, "gradient", sizeof(text));
        let_go(backend, result.memory);
        assert_null(backend->ops->close(backend));
}

static void expect_own_statistics(struct backend *backend, bool share) {
        struct backend_memory *memory = make(backend, MIB);
        unsigned before = seen.n_done;
        struct backend_result ignored;
        float values[16];

        for (unsigned t = 0; t < array_size(seen.squares); t++) {
                for (unsigned i = 0; i < 16; i++)
                        values[i] = (float)(t + 1);
                put(memory, t * sizeof(values), values, sizeof(values));
        }
        gpu_order("hold", true);
        for (unsigned t = 0; t < array_size(seen.squares); t++) {
                const struct backend_range range = { memory, t * sizeof(values) };
                struct backend_task task = task_of(&range, 1, 16);

                task.id = SQUARES + t;
                task.turn = 1;
                task.reduce = share || t % 2 == 0 ? WIRE__REDUCE__MAX : WIRE__REDUCE__MIN;
                assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
        }
        gpu_order("hold", false);
        wait_until(backend, &seen.n_done, before + array_size(seen.squares));
        for (unsigned t = 0; t < array_size(seen.squares); t++)
                assert_true(seen.squares[t] == 16. * (t + 1) * (t + 1));
        let_go(backend, memory);
}

/* There are more tasks than launches at a time, so several tasks share one. */
TEST(test_tasks_that_share_a_launch_have_their_own_statistics) {
        expect_own_statistics(backend, true);
}

/* No two neighbours share one, so several launches are under way before the first one is looked at. */
TEST(test_launches_that_are_under_way_have_their_own_statistics) {
        expect_own_statistics(backend, false);
}

static void refused(struct backend *backend, const struct memory_request *request, int code,
                    const char *text) {
        struct memory_result result = ask(backend, request);

        assert_int_equal(result.error, code);
        assert_null(result.memory);
        if (strstr(result.refusal.text, text) == NULL)
                fail_msg("\"%s\" is not in \"%s\"", text, result.refusal.text);
}

TEST(test_bad_memory_is_refused_by_name) {
        int fd = memfd_create("no memory of a GPU", MFD_CLOEXEC);
        struct memory_request request = {
                .id = 5, .kind = MEMORY_OFFERED, .bytes = 2 * MIB, .fds = &fd, .n_fds = 1
        };
        struct cuda_ipc ipc = { "forged" };
        struct memory_result made =
                ask(backend, &(struct memory_request){ .id = 1, .kind = MEMORY_SHARED, .bytes = 2 * MIB });
        int fds[MEMORY_FDS];

        assert_int_equal(ftruncate(fd, 2 * MIB), 0);
        refused(backend, &request, WIRE__CODE__INVALID, "no memory of the GPU");
        backend->memory->fds(made.memory, fds);
        fd = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        request.bytes = 4 * MIB; /* more than there is */
        refused(backend, &request, WIRE__CODE__INVALID, "fewer than 4194304 bytes");
        request = (struct memory_request){ .id = 6, .kind = MEMORY_OFFERED, .bytes = 64, .ipc = &ipc };
        refused(backend, &request, WIRE__CODE__INVALID, "no memory of the GPU");
        request = (struct memory_request){ .id = 7, .kind = MEMORY_SHARED, .bytes = UINT64_C(4) << 30 };
        refused(backend, &request, WIRE__CODE__QUOTA, "of 1073741824 are free");
        let_go(backend, made.memory);
}

/* A process that has MIB bytes on a GPU, and their handle: no process can open its own. */
static struct owner {
        pid_t pid;
        int in; /* it ends when that is closed */
        struct cuda_ipc ipc;
} start_owner(const char *gpu) {
        struct owner owner;
        int to[2], from[2];

        assert_int_equal(pipe(to) | pipe(from), 0);
        owner.pid = fork();
        if (owner.pid == 0) {
                dup2(to[0], STDIN_FILENO);
                dup2(from[1], STDOUT_FILENO);
                close(to[1]);
                execl("/proc/self/exe", "test_cuda", gpu, NULL);
                _exit(99);
        }
        close(to[0]);
        close(from[1]);
        assert_int_equal(read(from[0], &owner.ipc, sizeof(owner.ipc)), sizeof(owner.ipc));
        close(from[0]);
        owner.in = to[1];
        return owner;
}

static void end_owner(const struct owner *owner) {
        int status;

        close(owner->in);
        assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
        assert_int_equal(status, 0);
}

TEST(test_memory_of_a_handle_is_a_part_of_its_allocation) {
        struct owner owner = start_owner("0");
        struct memory_request request = {
                .id = 5, .kind = MEMORY_OFFERED, .offset = MIB / 2, .bytes = MIB / 2, .ipc = &owner.ipc
        };
        struct memory_result result = ask(backend, &request);

        assert_int_equal(result.error, 0);
        let_go(backend, result.memory);
        request.bytes += 4096;
        refused(backend, &request, WIRE__CODE__INVALID, "are not in it");
        end_owner(&owner);
}

/* Cancelled requests that wait behind others are given up, with their descriptors. */
TEST(test_requests_are_cancelled) {
        struct backend_memory *memory = make(backend, MIB);
        struct memory_request own = { .id = 20, .kind = MEMORY_OWN, .bytes = MIB };
        struct memory_request more = { .id = 21, .kind = MEMORY_SHARED, .bytes = MIB };
        struct memory_request returned = { .id = 22, .kind = MEMORY_RETURNED, .bytes = 2 * MIB, .n_fds = 1 };
        struct memory_result result;
        int fds[MEMORY_FDS], fd;

        backend->memory->fds(memory, fds);
        fd = dup(fds[0]);
        int copy = fd;
        returned.fds = &fd;
        gpu_order("hold", true);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(backend->memory->request(backend,
                                                          i == 0   ? &own
                                                          : i == 1 ? &more
                                                                   : &returned,
                                                          &result),
                                 0);
        backend->memory->cancel(backend, 21);
        backend->memory->cancel(backend, 22);
        backend->memory->cancel(backend, 23);
        gpu_order("hold", false);
        unsigned before = seen.n_made;
        wait_until(backend, &seen.n_made, before + 3);
        assert_int_equal(seen.n_unmade, 2);
        assert_int_equal(fcntl(copy, F_GETFD), -1);
        let_go(backend, seen.last_made);
        let_go(backend, memory);
}

TEST(test_each_memory_has_its_own_beside_it) {
        struct memory_request request = { .id = 1, .kind = MEMORY_OWN, .bytes = 4096, .companion = 5000 };
        struct memory_result first = ask(backend, &request);

        let_go(backend, first.memory); /* so there is a block to be taken again */
        first = ask(backend, &request);
        struct memory_result second = ask(backend, &request);
        assert_ptr_not_equal(backend->memory->companion(first.memory),
                             backend->memory->companion(second.memory));
        let_go(backend, first.memory);
        let_go(backend, second.memory);
}

/* A GPU that is a peer can be used by copies, and not by this daemon's kernels. */
TEST(test_memory_of_another_gpu_is_refused_by_name) {
        struct cuda_properties properties = { .type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = CUDA_HANDLE_FD,
                                              .location = { CUDA_LOCATION_DEVICE, 1 } };
        struct memory_request by_fd = { .id = 5, .kind = MEMORY_OFFERED, .bytes = MIB, .n_fds = 1 };
        struct memory_request by_handle = { .id = 6, .kind = MEMORY_OFFERED, .bytes = MIB };
        cuda_context second;
        cuda_handle handle;
        int fd;

        assert_int_equal(driver.primary_retain(&second, 1), CUDA_OK);
        assert_int_equal(driver.context_set(second), CUDA_OK);
        assert_int_equal(driver.create(&handle, 2 * MIB, &properties, 0), CUDA_OK);
        assert_int_equal(driver.export_handle(&fd, handle, CUDA_HANDLE_FD, 0), CUDA_OK);
        by_fd.fds = &fd;
        refused(backend, &by_fd, WIRE__CODE__INVALID, "this memory is not of the GPU that the daemon serves");
        assert_int_equal(driver.context_set(second), CUDA_OK);
        assert_int_equal(driver.release(handle), CUDA_OK);
        assert_int_equal(driver.primary_release(1), CUDA_OK);
        assert_int_equal(driver.context_set(context), CUDA_OK);

        struct owner owner = start_owner("1");
        by_handle.ipc = &owner.ipc;
        refused(backend, &by_handle, WIRE__CODE__INVALID,
                "this memory is not of the GPU that the daemon serves");
        end_owner(&owner);
}

/* Memory for an engine holds zeros, beside what was wanted: elements of any size, over any length. */
TEST(test_own_memory_holds_what_it_is_to) {
        static const struct memory_fill fills[] = {
                { .offset = 64, .bytes = 3, .bits = 0x5b, .size = 1 },
                { .offset = 128, .bytes = 2 * 50001, .bits = 0x7c01, .size = 2 },
                { .offset = 1 << 17, .bytes = 4096, .bits = 0x7f800000, .size = 4 },
                { .offset = 1 << 18, .bytes = 8 * 90001, .bits = UINT64_C(0x0123456789abcdef), .size = 8 },
                { .offset = MIB, .bytes = 0, .bits = 1, .size = 8 },
        };
        struct memory_request request = {
                .id = 1, .kind = MEMORY_OWN, .bytes = MIB + 4096, .fills = fills, .n_fills = 5
        };
        struct memory_result made = ask(backend, &request);
        unsigned char *got = malloc(MIB + 4096), *wanted = calloc(1, MIB + 4096);
        int fds[MEMORY_FDS];

        assert_int_equal(made.error, 0);
        get(made.memory, 0, got, MIB + 4096);
        for (unsigned i = 0; i < 5; i++)
                for (uint64_t at = 0; at < fills[i].bytes; at += fills[i].size)
                        memcpy(wanted + fills[i].offset + at, &fills[i].bits, fills[i].size);
        assert_memory_equal(got, wanted, MIB + 4096);
        backend->memory->fds(made.memory, fds);
        assert_int_equal(fds[0], -1); /* it is never exported */
        let_go(backend, made.memory);
        free(got);
        free(wanted);
}

/* Memory can be given back while the GPU is busy. Later memory, and the bytes beside it, are zero again. */
TEST(test_memory_goes_whatever_the_gpu_is_doing) {
        struct backend_memory *busy = make(backend, MIB);
        struct memory_request request = { .id = 1, .kind = MEMORY_OWN, .bytes = 4096, .companion = 5000 };
        struct memory_result own = ask(backend, &request);

        assert_int_equal(own.error, 0);
        memset(backend->memory->companion(own.memory), 0xff, 5000);
        gpu_order("hold", true);
        assert_int_equal(driver.context_set(context), CUDA_OK);
        assert_int_equal(driver.set_async(vmm_of(busy)->address, 1, MIB, NULL), CUDA_OK);
        let_go(backend, own.memory);
        gpu_order("hold", false);
        own = ask(backend, &request);
        assert_int_equal(own.error, 0);
        const unsigned char *companion = backend->memory->companion(own.memory);
        for (unsigned i = 0; i < 5000; i++)
                assert_int_equal(companion[i], 0);
        let_go(backend, own.memory);
        assert_int_equal(driver.stream_wait(NULL), CUDA_OK);
        let_go(backend, busy);
}

/* Users take turns, however many turns one of them has. No two neighbours of its tasks share a launch, so
 * that soon no more can be under way on a GPU that does not move. */
TEST(test_users_take_turns) {
        struct backend_range range = { make(backend, MIB), 0 };
        struct backend_task task = task_of(&range, 1, 16);
        struct backend_result ignored;
        unsigned at = 0;

        gpu_order("hold", true);
        task.statistics = false;
        for (unsigned i = 0; i < 65; i++) {
                task.id = 1000 + i;
                task.user = i < 64 ? 7 : 8;
                task.turn = 4 * i; /* all in one lane */
                task.reduce = i % 2 == 0 ? WIRE__REDUCE__SUM : WIRE__REDUCE__PROD;
                assert_int_equal(backend->compute->submit(backend, &task, &ignored), 0);
        }
        gpu_order("hold", false);
        wait_until(backend, &seen.n_done, 65);
        while (seen.ids[at] != 1064)
                at++;
        assert_in_range(at, 0, 10); /* eight launches are under way, at most */
        let_go(backend, range.memory);
}

/* Each case runs in a process of its own, because a driver is initialised once, with the environment of that
 * moment. */
static void in_child(const char *name, const char *value, const char *device, const char *text) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                setenv(name, value, 1);
                execl("/proc/self/exe", "test_cuda", device, text, NULL);
                _exit(99);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

TEST_ALONE(test_what_cannot_be_served_is_refused_by_name) {
        in_child("FAKE_GPU_DRIVER", "12080", "cuda:0",
                 "is of CUDA 12.8; 13.0 is needed (driver 580 or newer)");
        in_child("FAKE_GPU_LACKS", "cuMemCreate", "cuda:0", "lacks cuMemCreate (CUDA 10.2)");
        in_child("FAKE_GPU_FAIL", "cuInit:1:100", "cuda:0",
                 "finds no GPU that it can use: CUDA_ERROR_NO_DEVICE");
        in_child("FAKE_GPU_FAIL", "cuDevicePrimaryCtxRetain:1:2", "cuda:0",
                 "no context can be made: CUDA_ERROR_OUT_OF_MEMORY");
        in_child("FAKE_GPU_FAIL", "cuModuleGetFunction:3:500", "cuda:0", "the kernels cannot be loaded");
        in_child("FAKE_GPU_FAIL", "cuEventCreate:3:2", "cuda:0",
                 "the GPU cannot be used: CUDA_ERROR_OUT_OF_MEMORY");
        in_child("FAKE_GPU_DEVICES", "2", "cuda:2",
                 "there is no such GPU; there are: 0 (GPU-fafafafa-fafa-fafa-fafa-fafafafafa00), "
                 "1 (GPU-fafafafa-fafa-fafa-fafa-fafafafafa01)");
        in_child("FAKE_GPU_DEVICES", "1", "cuda:00", "there is no such GPU");
        in_child("FAKE_GPU_DEVICES", "2", "cuda:GPU-fafafafa-fafa-fafa-fafa-fafafafafa01", "");
}

TEST_ALONE(test_a_sticky_error_is_told_once) {
        in_child("FAKE_GPU_FAIL", "cuLaunchKernel:2:719", "launch",
                 "a reduction could not be launched: CUDA_ERROR_LAUNCH_FAILED");
        in_child("FAKE_GPU_FAIL", "cuEventQuery:1:700", "launch",
                 "a reduction did not end: CUDA_ERROR_ILLEGAL_ADDRESS");
        in_child("FAKE_GPU_FAIL", "cuMemSetAccess:1:700", "memory",
                 "failed while memory was made: CUDA_ERROR_ILLEGAL_ADDRESS");
        in_child("FAKE_GPU_FAIL", "cuMemGetInfo:5:700", "ping",
                 "failed while its free memory was asked for: CUDA_ERROR_ILLEGAL_ADDRESS");
}

/* ---- in children ---- */

static int fail_in_child(const char *what, const char *text) {
        struct backend *backend = NULL;
        struct backend_result ignored;
        struct memory_result result;
        struct memory_request request = { .id = 1, .kind = MEMORY_SHARED, .bytes = MIB };

        if (try_open("cuda:0", &backend) != 0)
                return 2;
        if (strcmp(what, "memory") == 0) {
                backend->memory->request(backend, &request, &result);
        } else if (strcmp(what, "ping") == 0) {
                while (seen.n_failed == 0) {
                        backend->ops->ping(backend);
                        backend->ops->dispatch(backend);
                }
        } else {
                struct backend_range range = { ask(backend, &request).memory, 0 };
                for (unsigned i = 0; i < 2; i++) {
                        struct backend_task task = task_of(&range, 1, 16);
                        if (i == 1 && seen.n_failed == 0)
                                wait_until(backend, &seen.n_done, 1);
                        backend->compute->submit(backend, &task, &ignored);
                        if (strstr(text, "did not end") != NULL)
                                break;
                }
        }
        wait_until(backend, &seen.n_failed, 1);
        backend->ops->ping(backend);
        backend->ops->dispatch(backend);
        if (seen.n_failed != 1 || strstr(seen.failed, text) == NULL) {
                fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, seen.failed);
                return 3;
        }
        _exit(0); /* as the daemon does */
}

/* The process that start_owner() starts: it owns memory of a GPU until its standard input ends. */
static int own_memory(cuda_device gpu) {
        struct cuda_ipc ipc;
        cuda_address address;
        char byte;

        if (cuda_load(&driver, FAKE_GPU_LIBRARY, error, sizeof(error)) < 0 ||
            driver.primary_retain(&context, gpu) != CUDA_OK || driver.context_set(context) != CUDA_OK ||
            driver.allocate(&address, MIB) != CUDA_OK || driver.ipc_get(&ipc, address) != CUDA_OK ||
            write(STDOUT_FILENO, &ipc, sizeof(ipc)) != sizeof(ipc) || read(STDIN_FILENO, &byte, 1) != 0)
                return 1;
        return driver.free(address) != CUDA_OK || driver.primary_release(gpu) != CUDA_OK;
}

static int child(const char *device, const char *text) {
        struct backend *backend = NULL;

        if (strncmp(device, "cuda:", 5) != 0)
                return fail_in_child(device, text);
        int r = try_open(device, &backend);
        if (text[0] == '\0') {
                if (r == 0)
                        backend->ops->close(backend);
                return r != 0;
        }
        if (r == 0 || strstr(error, text) == NULL) {
                fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, error);
                return 1;
        }
        return 0;
}

/* ---- the machine ---- */

static int setup(void **state) {
        return gpu_setup("2") | driver.primary_retain(&context, 0);
}

int main(int argc, char **argv) {
        if (argc == 2)
                return own_memory(atoi(argv[1]));
        if (argc == 3)
                return child(argv[1], argv[2]);
        int failed = tests_run(setup, NULL);
        driver.primary_release(0);
        return failed != 0 || !gpu_check();
}
