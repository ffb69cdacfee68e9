/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer for tests: takes commands on standard input, one a line, calls the public API, and answers each
 * with one line that starts with the name of the result. Words are separated by blanks; KEY=VALUE words may
 * come in any order. `job K`, `slot K` and `register K` choose the job, plan or own memory that the next
 * commands are about. `poll COMMAND` repeats a call of a non-blocking handle until it is not AGAIN, sleeping
 * on gradsync_fd() between. SIGUSR1 has a handler that only counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gradsync/gradsync.h>

#include "gpu.h"
#include "gradients.h"
#include "kinds.h"
#include "second.h"
#include "values.h"

#define SLOTS 8
#define WORDS 2048

static struct gradsync *gs;
static struct gradsync_job *jobs[SLOTS];
static struct planned plans[SLOTS], registered[SLOTS];
static unsigned job_slot, plan_slot;
static volatile sig_atomic_t signals;
static char *word[WORDS], stall_text[4096];
static int words;

#define JOB jobs[job_slot]
#define PLAN plans[plan_slot].plan

static const char *value_of(const char *key, const char *otherwise) {
        size_t n = strlen(key);

        for (int i = 1; i < words; i++)
                if (strncmp(word[i], key, n) == 0 && word[i][n] == '=')
                        return word[i] + n + 1;
        return otherwise;
}

static int64_t number_of(const char *key, int64_t otherwise) {
        const char *text = value_of(key, NULL);

        return text ? strtoll(text, NULL, 0) : otherwise;
}

static uint32_t index_at(int i) {
        return i < words ? (uint32_t)strtoul(word[i], NULL, 0) : 0;
}

/* One line: the result, then what the command has to say, or the error text. */
static void answer(int r, const char *details) {
        printf("%s %s\n", gradsync_result_name(r), r == GRADSYNC_OK || *details ? details : gradsync_error());
        fflush(stdout);
}

static void on_stall(void *data, struct gradsync_job *job, const struct gradsync_stall *s) {
        snprintf(stall_text, sizeof(stall_text),
                 "job=%s step=%" PRIu64 " rank=%u pid=%d state=%s bucket=%u parameter=%s host=%s leave=%s "
                 "text=%s",
                 gradsync_job_name(job), s->step, s->rank, (int)s->pid, s->process_state, s->bucket,
                 s->parameter, s->host, gradsync_result_name(gradsync_leave(job)), s->text);
}

static int do_open(char *out, size_t size) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;

        options.socket = value_of("socket", NULL);
        options.device = value_of("device", NULL);
        options.program = value_of("program", NULL);
        options.nonblocking = number_of("nonblocking", 0) != 0;
        options.reconnect_timeout_ms = number_of("reconnect", 0);
        options.stall = on_stall;
        options.size = (size_t)number_of("size", (int64_t)options.size);
        int r = gradsync_open(&gs, &options);

        snprintf(out, size, "%s", r == GRADSYNC_OK ? gradsync_error() : "");
        return r;
}

static int do_join(char *out, size_t size) {
        struct gradsync_join_options options = GRADSYNC_JOIN_OPTIONS_INIT;

        options.name = value_of("name", NULL);
        options.min_world = (uint32_t)number_of("world", number_of("min", 0));
        options.max_world = (uint32_t)number_of("world", number_of("max", 0));
        options.rank = number_of("rank", -1);
        options.local_rank = number_of("local_rank", -1);
        options.incarnation = number_of("incarnation", -1);
        options.timeout_ms = number_of("timeout", 0);
        options.last_call_ms = number_of("last_call", 0);
        options.rejoin_grace_ms = number_of("grace", 0);
        options.token = value_of("token", NULL);
        options.instance = number_of("instance", 0);
        options.spare = number_of("spare", 0);
        options.scope = value_of("scope", NULL);
        int r = gradsync_join(gs, &options, &JOB);
        if (r == GRADSYNC_OK)
                snprintf(out, size, "name=%s rank=%u local_rank=%u world=%u generation=%u member=%" PRIu64,
                         gradsync_job_name(JOB), gradsync_rank(JOB), gradsync_local_rank(JOB),
                         gradsync_world_size(JOB), gradsync_generation(JOB), gradsync_member_id(JOB));
        return r;
}

/* Memory of the trainer's own. */
static struct own {
        struct gradsync_memory *memory;
        int fd;       /* 0: none */
        uint8_t *map; /* of the range, if the trainer maps it */
        uint8_t *gpu; /* or memory of the GPU */
        uint64_t bytes;
} owned[SLOTS];

static int make_fd(uint64_t bytes) {
        return fd_of_kind(value_of("kind", "memfd"), (uint64_t)number_of("size", (int64_t)bytes),
                          (uint64_t)number_of("fill", 0),
                          (int)number_of("seals", F_SEAL_SHRINK | F_SEAL_GROW));
}

static void drop(struct own *own) {
        if (own->gpu != NULL)
                gpu_free(own->gpu);
        if (own->fd > 0)
                close(own->fd);
        if (own->map != NULL && own->map != MAP_FAILED)
                munmap(own->map, own->bytes);
        *own = (struct own){ 0 };
}

static void drop_owned(void) {
        for (unsigned k = 0; k < SLOTS; k++)
                drop(&owned[k]);
}

static const int flags_of_map[] = { MAP_SHARED, MAP_SHARED, MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE };

/* register K BYTES [kind= size= fill= seals= offset= map= file=]: makes memory and registers it. map=1: where
 * the trainer has mapped it; map=2: at an address that is wrong; map=3: not shared. file=L: of the file of
 * memory L. Repeated after AGAIN. */
static int do_register(char *out, size_t size) {
        struct own *own = &owned[index_at(1) % SLOTS];
        uint64_t offset = (uint64_t)number_of("offset", 0);
        int64_t map = number_of("map", 0);
        int r;

        if (gpu_stream() != NULL) {
                own->bytes = strtoull(word[2], NULL, 0);
                if (own->gpu == NULL)
                        own->gpu = gpu_allocate((uint64_t)number_of("of", (int64_t)(own->bytes + offset)));
                return gradsync_register_device(JOB, own->gpu + offset, own->bytes, &own->memory);
        }
        if (own->fd == 0) {
                own->bytes = strtoull(word[2], NULL, 0);
                own->fd = value_of("file", NULL) ? dup(owned[number_of("file", 0) % SLOTS].fd)
                                                 : make_fd(own->bytes);
                if (map > 0)
                        own->map = mmap(NULL, own->bytes, PROT_READ | PROT_WRITE, flags_of_map[map % 4],
                                        map == 2 ? -1 : own->fd, (off_t)offset);
        }
        r = gradsync_register(JOB, own->fd, offset, own->bytes, own->map, &own->memory);
        if (r == GRADSYNC_OK)
                snprintf(out, size, "%s",
                         gradsync_memory_address(own->memory) == own->map ? "own" : "mapped");
        else if (r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED)
                drop(own);
        return r;
}

/* unregister K: the file and the trainer's mapping go, too */
static int do_unregister(char *out, size_t size) {
        struct own *own = &owned[index_at(1) % SLOTS];
        int r = gradsync_unregister(own->memory);

        if (r == GRADSYNC_OK)
                drop(own);
        return r;
}

/* punch K OFFSET BYTES: of the file */
static int do_punch(char *out, size_t size) {
        int r = fallocate(owned[index_at(1) % SLOTS].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          strtoll(word[2], NULL, 0), strtoll(word[3], NULL, 0));

        snprintf(out, size, "%s", r < 0 ? strerror(errno) : "punched");
        return GRADSYNC_OK;
}

/* param NAME DTYPE [DIMENSION…], or param_at K OFFSET NAME DTYPE [DIMENSION…] */
static int add_param(int at, struct gradsync_memory *memory, uint64_t offset) {
        struct planned *list = &registered[job_slot];
        enum gradsync_dtype dtype = (enum gradsync_dtype)dtype_of(word[at + 1]);
        uint64_t shape[16], elements = 1;
        uint32_t dims = 0;
        int r;

        for (int i = at + 2; i < words && dims < 16; i++) {
                shape[dims] = strtoull(word[i], NULL, 0);
                elements *= shape[dims++];
        }
        r = at > 1 ? gradsync_param_at(JOB, word[at], dtype, dims, shape, memory, offset)
                   : gradsync_param(JOB, word[at], dtype, dims, shape);
        if (r != GRADSYNC_OK)
                return r;
        list->elements = realloc(list->elements, (list->n + 1) * sizeof(*list->elements));
        list->dtype = realloc(list->dtype, (list->n + 1) * sizeof(*list->dtype));
        list->elements[list->n] = elements;
        list->dtype[list->n++] = dtype;
        return r;
}

static int do_param(char *out, size_t size) {
        return add_param(1, NULL, 0);
}

static int do_param_at(char *out, size_t size) {
        return add_param(3, owned[index_at(1) % SLOTS].memory, strtoull(word[2], NULL, 0));
}

static void forget(struct planned *planned) {
        free(planned->elements);
        free(planned->dtype);
        *planned = (struct planned){ 0 };
}

static int do_plan(char *out, size_t size) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        struct gradsync_plan *plan;

        options.reduce = (enum gradsync_reduce)reduce_of(value_of("reduce", "avg"));
        options.first_bucket_bytes = (uint64_t)number_of("first", (int64_t)options.first_bucket_bytes);
        options.bucket_bytes = (uint64_t)number_of("bucket", (int64_t)options.bucket_bytes);
        options.void_on_loss = number_of("void", 0) != 0;
        int r = gradsync_plan_with(JOB, &options, &plan);
        if (r != GRADSYNC_OK && r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED)
                forget(&registered[job_slot]);
        if (r != GRADSYNC_OK)
                return r;
        forget(&plans[plan_slot]);
        plans[plan_slot] = registered[job_slot];
        plans[plan_slot].plan = plan;
        registered[job_slot] = (struct planned){ 0 };
        snprintf(out, size, "params=%u buckets=%u bytes=%" PRIu64, gradsync_plan_params(plan),
                 gradsync_plan_buckets(plan), gradsync_plan_bytes(plan));
        return r;
}

/* fill VALUE [PARAMETER]: element j becomes VALUE + j % 4. */
static int do_fill(char *out, size_t size) {
        uint32_t first = words > 2 ? index_at(2) : 0;

        gradients_fill(&plans[plan_slot], strtod(word[1], NULL), first,
                       words > 2 ? first + 1 : plans[plan_slot].n);
        return GRADSYNC_OK;
}

/* check VALUE [PARAMETER]: whether element j is VALUE + j % 4. */
static int do_check(char *out, size_t size) {
        const struct planned *p = &plans[plan_slot];
        uint32_t first = words > 2 ? index_at(2) : 0;

        gradients_check(p, strtod(word[1], NULL), first, words > 2 ? first + 1 : p->n, out, size);
        return GRADSYNC_OK;
}

/* get PARAMETER ELEMENT */
static int do_get(char *out, size_t size) {
        const struct planned *p = &plans[plan_slot];

        snprintf(out, size, "%.17g",
                 load(gradients_view(p, index_at(1)), p->dtype[index_at(1)], index_at(2)));
        return GRADSYNC_OK;
}

static int do_address(char *out, size_t size) {
        snprintf(out, size, "%p", gradsync_gradient(PLAN, index_at(1)));
        return GRADSYNC_OK;
}

static int mark_list(int (*how)(struct gradsync_plan *, uint32_t)) {
        int r = GRADSYNC_OK;

        for (int i = 1; i < words && r == GRADSYNC_OK; i++)
                r = how(PLAN, index_at(i));
        return r;
}

/* ready [PARAMETER…]: all of them, last to first, if none is named */
static int do_ready(char *out, size_t size) {
        int r = GRADSYNC_OK;

        if (words > 1)
                return mark_list(gradients_ready);
        for (uint32_t i = plans[plan_slot].n; i-- > 0 && r == GRADSYNC_OK;)
                r = gradients_ready(PLAN, i);
        return r;
}

static int do_absent(char *out, size_t size) {
        return mark_list(gradients_absent);
}

static int do_accumulate(char *out, size_t size) {
        return gradsync_accumulate(PLAN, index_at(1) != 0);
}

static int do_divisor(char *out, size_t size) {
        return gradsync_divisor(PLAN, index_at(1));
}

static int do_wait(char *out, size_t size) {
        return gradsync_wait(PLAN, index_at(1));
}

static int do_finish(char *out, size_t size) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        int r = gradsync_finish(PLAN, &info);

        if (r == GRADSYNC_OK)
                snprintf(out, size,
                         "step=%" PRIu64 " norm=%.17g nonfinite=%" PRIu64 " nonfinite_rank=%" PRId64
                         " bytes=%" PRIu64 " exposed=%d elapsed=%d",
                         info.step, info.norm, info.nonfinite, info.nonfinite_rank, info.bytes,
                         info.exposed_s >= 0, info.elapsed_s >= info.exposed_s);
        else if (r == GRADSYNC_VOID_RETRY || r == GRADSYNC_VOID_BEHIND)
                snprintf(out, size, "step=%" PRIu64 " lost_rank=%u lost_pid=%d cause=%s text=%s", info.step,
                         info.lost_rank, (int)info.lost_pid, info.cause, gradsync_error());
        return r;
}

/* steps N: everything ready, finished, N times */
static int do_steps(char *out, size_t size) {
        uint32_t n = index_at(1);
        int r = GRADSYNC_OK;

        words = 1; /* no parameter is named */
        while (n-- > 0 && r == GRADSYNC_OK)
                if ((r = do_ready(out, size)) == GRADSYNC_OK)
                        r = gradsync_finish(PLAN, NULL);
        return r;
}

static uint64_t now_ms(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* train N, train until=FILE [collect=]: until step N is committed or rank 0 has found the file; collect: each
 * step begins with an allreduce. gap_ms: the longest time from one commit to the next. */
static int do_train(char *out, size_t size) {
        const char *file = value_of("until", NULL);
        uint64_t goal = file ? UINT64_MAX : index_at(1), wrong = 0, void_steps = 0, committed = 0, step = 0;
        uint64_t before = now_ms(), gap = 0;
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        bool last = false, collect = value_of("collect", NULL) != NULL;
        int r = GRADSYNC_OK;

        words = 1;
        while ((info.step < goal && !last) || r != GRADSYNC_OK) {
                last = file && gradsync_rank(JOB) == 0 && access(file, F_OK) == 0;
                gradients_fill(&plans[plan_slot],
                               gradsync_rank(JOB) + 1.0 + (last ? LAST * gradsync_world_size(JOB) : 0), 0,
                               plans[plan_slot].n);
                last = false;
                r = collect ? gradients_count_ranks(JOB, &wrong) : GRADSYNC_OK;
                if (r == GRADSYNC_OK && (r = do_ready(out, size)) == GRADSYNC_OK)
                        r = gradsync_finish(PLAN, &info);
                if (r == GRADSYNC_OK) {
                        wrong += gradients_wrong(&plans[plan_slot], (gradsync_world_size(JOB) + 1) / 2.0,
                                                 &last);
                        committed++;
                        gap = now_ms() - before > gap ? now_ms() - before : gap;
                        before = now_ms();
                }
                if (r == GRADSYNC_VOID_BEHIND && gradsync_sync_state(JOB, NULL, 0, &step) != GRADSYNC_OK)
                        return GRADSYNC_MEMBER_LOST;
                if (r != GRADSYNC_OK && r != GRADSYNC_VOID_RETRY && r != GRADSYNC_VOID_BEHIND)
                        return r;
                void_steps += r != GRADSYNC_OK;
        }
        return snprintf(out, size,
                        "step=%" PRIu64 " committed=%" PRIu64 " void=%" PRIu64 " gap_ms=%" PRIu64
                        " wrong=%" PRIu64,
                        info.step, committed, void_steps, gap, wrong) < 0;
}

static int do_unused(char *out, size_t size) {
        for (uint32_t i = 0; i < plans[plan_slot].n; i++)
                snprintf(out + strlen(out), size - strlen(out), "%d", gradsync_unused(PLAN, i));
        return GRADSYNC_OK;
}

/* stats BUCKET RANK */
static int do_stats(char *out, size_t size) {
        struct gradsync_bucket_stats stats = GRADSYNC_BUCKET_STATS_INIT;
        int r = gradsync_bucket_stats(PLAN, index_at(1), strtoll(word[2], NULL, 0), &stats);

        if (r == GRADSYNC_OK)
                snprintf(out, size, "norm=%.17g nonfinite=%" PRIu64, stats.norm, stats.nonfinite);
        return r;
}

static int do_bucket_of(char *out, size_t size) {
        snprintf(out, size, "%u", gradsync_plan_bucket_of(PLAN, index_at(1)));
        return GRADSYNC_OK;
}

struct marker {
        pthread_t thread;
        uint32_t first, stride, rounds;
        int result;
};

static pthread_barrier_t round_begins, round_ends;

static void note(struct marker *marker, int r) {
        if (marker->result == GRADSYNC_OK)
                marker->result = r;
}

static void *mark_some(void *data) {
        struct marker *marker = data;

        for (uint32_t k = 0; k < marker->rounds; k++) {
                pthread_barrier_wait(&round_begins);
                for (uint32_t i = marker->first; i < plans[plan_slot].n; i += marker->stride)
                        note(marker, gradsync_ready(PLAN, i));
                for (uint32_t i = marker->first; i < plans[plan_slot].n; i += 3 * marker->stride)
                        note(marker, gradsync_wait(PLAN, i));
                pthread_barrier_wait(&round_ends);
        }
        return NULL;
}

/* finish_waited PARAMETER: another thread tries to leave meanwhile, and waits. Prints its result. */
static int do_finish_waited(char *out, size_t size) {
        int waited, left, r = finish_waited(JOB, PLAN, index_at(1), &waited, &left);

        snprintf(out, size, "wait=%s leave=%s", gradsync_result_name(waited), gradsync_result_name(left));
        return r;
}

/* threads N STEPS: N threads mark what is theirs, some also wait for it; this one finishes */
static int do_threads(char *out, size_t size) {
        struct marker marker[16];
        uint32_t n = index_at(1) > 16 ? 16 : index_at(1);
        int result = GRADSYNC_OK;

        pthread_barrier_init(&round_begins, NULL, n + 1);
        pthread_barrier_init(&round_ends, NULL, n + 1);
        for (uint32_t t = 0; t < n; t++) {
                marker[t] = (struct marker){ .first = t, .stride = n, .rounds = index_at(2) };
                if (pthread_create(&marker[t].thread, NULL, mark_some, &marker[t]) != 0)
                        abort();
        }
        for (uint32_t k = 0; k < index_at(2); k++) {
                int r;

                pthread_barrier_wait(&round_begins);
                pthread_barrier_wait(&round_ends);
                r = gradsync_finish(PLAN, NULL);
                result = result ? result : r;
        }
        for (uint32_t t = 0; t < n; t++) {
                pthread_join(marker[t].thread, NULL);
                result = result ? result : marker[t].result;
        }
        return result;
}

/* The bytes of the collectives' data, told by who brought them and where they lie. */
static uint8_t pattern(uint32_t rank, uint64_t at) {
        return (uint8_t)(rank * 37 + at * 11 + at / 251);
}

/* A repeated call must find this memory unchanged, so it lives as long as the program. */
static uint8_t *in_memory, *out_memory;
static bool under_way;

static void prepare(uint64_t in, uint64_t out) {
        if (under_way)
                return;
        free(in_memory);
        free(out_memory);
        in_memory = malloc(in ? in : 1);
        out_memory = malloc(out ? out : 1);
        memset(out_memory, 0xee, out);
}

static int done(int r) {
        under_way = r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED;
        return r;
}

/* The trainer's state: many bytes of one value, and eight. */
static uint8_t *state_memory;
static uint64_t state_bytes, state_number;

/* state BYTES VALUE */
static int do_state(char *out, size_t size) {
        state_bytes = strtoull(word[1], NULL, 0);
        state_number = strtoull(word[2], NULL, 0);
        free(state_memory);
        state_memory = malloc(state_bytes + 1);
        memset(state_memory, (int)state_number, state_bytes);
        return GRADSYNC_OK;
}

/* sync STEP: tells the step and the value that the state has afterwards */
static int do_sync(char *out, size_t size) {
        const struct gradsync_state number = { &state_number, sizeof(state_number) };
        const struct gradsync_state state[] = { { state_memory, state_bytes }, { NULL, 0 }, number };
        uint64_t step = strtoull(word[1], NULL, 0), strange = 0;
        int r = gradsync_sync_state(JOB, state, 3, &step);

        for (uint64_t i = 0; i < state_bytes; i++)
                strange += state_memory[i] != (uint8_t)state_number;
        if (r == GRADSYNC_OK || r == GRADSYNC_PROTOCOL)
                snprintf(out, size, "step=%" PRIu64 " value=%" PRIu64 " strange=%" PRIu64 "%s", step,
                         state_number, strange, r == GRADSYNC_OK ? "" : gradsync_error());
        return r;
}

static int two_syncs[2]; /* a pipe */

static void *sync_in_thread(void *data) {
        const struct gradsync_state state[] = { { NULL, 0 }, { NULL, 0 }, { data, 8 } };
        uint64_t step = 0;
        uint8_t r = (uint8_t)gradsync_sync_state(JOB, state, 3, &step);

        if (write(two_syncs[1], &r, 1) != 1)
                abort();
        return NULL;
}

/* sync_twice: by two threads, with buffers as sync has them after `state 0`; what the first that is back was
 * told. sync_other: waits for the second. */
static int do_sync_other(char *out, size_t size) {
        uint8_t r;

        if (read(two_syncs[0], &r, 1) != 1)
                abort();
        snprintf(out, size, "%s", gradsync_result_name(r));
        return GRADSYNC_OK;
}

static int do_sync_twice(char *out, size_t size) {
        static uint64_t state[2];
        pthread_t thread;

        if (pipe(two_syncs) < 0)
                abort();
        for (unsigned i = 0; i < 2; i++)
                if (pthread_create(&thread, NULL, sync_in_thread, &state[i]) != 0 ||
                    pthread_detach(thread) != 0)
                        abort();
        return do_sync_other(out, size);
}

/* place: what can change with the generation */
static int do_place(char *out, size_t size) {
        snprintf(out, size, "rank=%u local_rank=%u world=%u generation=%u member=%" PRIu64,
                 gradsync_rank(JOB), gradsync_local_rank(JOB), gradsync_world_size(JOB),
                 gradsync_generation(JOB), gradsync_member_id(JOB));
        return GRADSYNC_OK;
}

static int do_barrier(char *out, size_t size) {
        return gradsync_barrier(JOB);
}

static bool is_sealed(void) {
        return strcmp(word[words - 1], "sealed") == 0;
}

/* broadcast BYTES ROOT [sealed] */
static int do_broadcast(char *out, size_t size) {
        uint64_t bytes = strtoull(word[1], NULL, 0);
        uint32_t root = index_at(2);

        prepare(bytes, 0);
        for (uint64_t i = 0; i < bytes && !under_way; i++)
                in_memory[i] = gradsync_rank(JOB) == root ? pattern(root, i) : 0xee;
        int r = done(is_sealed() ? gradsync_broadcast_sealed(JOB, in_memory, bytes, root)
                                 : gradsync_broadcast(JOB, in_memory, bytes, root));
        for (uint64_t i = 0; i < bytes && r == GRADSYNC_OK; i++)
                if (in_memory[i] != pattern(root, i)) {
                        snprintf(out, size, "wrong: byte %" PRIu64, i);
                        return r;
                }
        if (r == GRADSYNC_OK)
                snprintf(out, size, "right");
        return r;
}

/* allgather BYTES [sealed] */
static int do_allgather(char *out, size_t size) {
        uint64_t bytes = strtoull(word[1], NULL, 0), world = gradsync_world_size(JOB);
        int r;

        prepare(bytes, bytes * world);
        for (uint64_t i = 0; i < bytes; i++)
                in_memory[i] = pattern(gradsync_rank(JOB), i);
        r = done(is_sealed() ? gradsync_allgather_sealed(JOB, in_memory, out_memory, bytes)
                             : gradsync_allgather(JOB, in_memory, out_memory, bytes));
        for (uint64_t i = 0; i < bytes * world && r == GRADSYNC_OK; i++)
                if (out_memory[i] != pattern((uint32_t)(i / bytes), i % bytes)) {
                        snprintf(out, size, "wrong: byte %" PRIu64, i);
                        return r;
                }
        if (r == GRADSYNC_OK)
                snprintf(out, size, "right");
        return r;
}

/* Element i of rank r, and what the members make of it: so small that every order of adding is exact. */
static double element(uint32_t rank, uint64_t i) {
        return (double)((rank + 1) * (i % 7 + 1));
}

static double expected(unsigned reduce, uint64_t i) {
        uint32_t world = gradsync_world_size(JOB);
        double value = element(0, i);

        for (uint32_t rank = 1; rank < world; rank++) {
                double next = element(rank, i);

                value = reduce == GRADSYNC_MIN    ? (next < value ? next : value)
                        : reduce == GRADSYNC_MAX  ? (next > value ? next : value)
                        : reduce == GRADSYNC_PROD ? value * next
                                                  : value + next;
        }
        return reduce == GRADSYNC_AVG ? value / world : value;
}

static bool right(const void *at, unsigned dtype, unsigned reduce, uint64_t count, uint64_t from, char *out,
                  size_t size) {
        for (uint64_t i = 0; i < count; i++)
                if (load(at, dtype, i) != expected(reduce, from + i)) {
                        snprintf(out, size, "wrong: element %" PRIu64 " is %.17g, not %.17g", i,
                                 load(at, dtype, i), expected(reduce, from + i));
                        return false;
                }
        snprintf(out, size, "right");
        return true;
}

/* allreduce COUNT DTYPE REDUCE */
static int do_allreduce(char *out, size_t size) {
        uint64_t count = strtoull(word[1], NULL, 0);
        unsigned dtype = dtype_of(word[2]), reduce = reduce_of(word[3]);
        bool fresh = !under_way;
        int r;

        prepare(count * dtype_bytes(dtype), 0);
        for (uint64_t i = 0; i < count && fresh; i++)
                store(in_memory, dtype, i, element(gradsync_rank(JOB), i));
        r = done(gradsync_allreduce(JOB, in_memory, count, (enum gradsync_dtype)dtype,
                                    (enum gradsync_reduce)reduce));
        if (r == GRADSYNC_OK)
                right(in_memory, dtype, reduce, count, 0, out, size);
        return r;
}

/* reduce_scatter COUNT DTYPE REDUCE */
static int do_reduce_scatter(char *out, size_t size) {
        uint64_t count = strtoull(word[1], NULL, 0), all = count * gradsync_world_size(JOB);
        unsigned dtype = dtype_of(word[2]), reduce = reduce_of(word[3]);
        int r;

        prepare(all * dtype_bytes(dtype), count * dtype_bytes(dtype));
        for (uint64_t i = 0; i < all; i++)
                store(in_memory, dtype, i, element(gradsync_rank(JOB), i));
        r = done(gradsync_reduce_scatter(JOB, in_memory, out_memory, count, (enum gradsync_dtype)dtype,
                                         (enum gradsync_reduce)reduce));
        if (r == GRADSYNC_OK)
                right(out_memory, dtype, reduce, count, gradsync_rank(JOB) * count, out, size);
        return r;
}

static int do_leave(char *out, size_t size) {
        int r = gradsync_leave(JOB);

        if (r != GRADSYNC_AGAIN && r != GRADSYNC_INTERRUPTED && r != GRADSYNC_FORKED) {
                JOB = NULL;
                drop_owned();
        }
        return r;
}

static int do_plan_free(char *out, size_t size) {
        int r = gradsync_plan_free(PLAN);

        if (r == GRADSYNC_OK)
                forget(&plans[plan_slot]);
        return r;
}

static int do_close(char *out, size_t size) {
        gradsync_close(gs);
        gs = NULL;
        drop_owned();
        return GRADSYNC_OK;
}

static int do_dispatch(char *out, size_t size) {
        return gradsync_dispatch(gs);
}

/* readable: whether gradsync_fd() is, now */
static int do_readable(char *out, size_t size) {
        struct pollfd fd = { .fd = gradsync_fd(gs), .events = POLLIN };

        snprintf(out, size, "%d", poll(&fd, 1, 0));
        return GRADSYNC_OK;
}

static int do_job(char *out, size_t size) {
        job_slot = index_at(1) % SLOTS;
        return GRADSYNC_OK;
}

/* slot K: of plans */
static int do_slot(char *out, size_t size) {
        plan_slot = index_at(1) % SLOTS;
        return GRADSYNC_OK;
}

static int do_signals(char *out, size_t size) {
        snprintf(out, size, "%d", (int)signals);
        return GRADSYNC_OK;
}

static int do_stall(char *out, size_t size) {
        snprintf(out, size, "%s", stall_text);
        return GRADSYNC_OK;
}

/* capture 0|1 */
static int do_capture(char *out, size_t size) {
        gpu_capture(index_at(1) != 0);
        return GRADSYNC_OK;
}

/* allreduce_on_gpu N VALUE: N floats of that value on the GPU, summed in a thread that has no context. */
static int do_allreduce_on_gpu(char *out, size_t size) {
        return gradients_allreduce(JOB, index_at(1), strtof(word[2], NULL), out, size);
}

static int do_collective(char *out, size_t size) {
        return gradients_collective(JOB, word, out, size);
}

static int do_mark_on(char *out, size_t size) {
        return gradients_mark_on(PLAN, word[1], index_at(2), index_at(3));
}

/* Every call on what a child has inherited, in one word each. */
static void child_calls(char *out, size_t size) {
        struct gradsync_job *job = NULL;
        uint64_t step = 0;
        const int results[] = {
                gradsync_ready(PLAN, 0),
                gradsync_absent(PLAN, 0),
                gradsync_wait(PLAN, 0),
                gradsync_finish(PLAN, NULL),
                gradsync_accumulate(PLAN, true),
                gradsync_divisor(PLAN, 2),
                gradsync_plan_free(PLAN),
                gradsync_param(JOB, "child", GRADSYNC_F32, 0, NULL),
                gradsync_register(JOB, 0, 0, 1, NULL, &owned[0].memory),
                gradsync_plan(JOB, &plans[0].plan),
                gradsync_barrier(JOB),
                gradsync_broadcast(JOB, out, 1, 0),
                gradsync_allreduce(JOB, out, 1, GRADSYNC_U8, GRADSYNC_SUM),
                gradsync_sync_state(JOB, NULL, 0, &step),
                gradsync_leave(JOB),
                gradsync_join(gs, NULL, &job),
                gradsync_dispatch(gs),
        };

        for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
                snprintf(out + strlen(out), size - strlen(out), "%s ", gradsync_result_name(results[i]));
        snprintf(out + strlen(out), size - strlen(out), "fd=%d", gradsync_fd(gs));
}

/* fork: what calls of a child, ended by then, return; and that it can close the handle and open its own. */
static int do_fork(char *out, size_t size) {
        int pipes[2], status;
        ssize_t n;
        pid_t pid;

        if (pipe(pipes) < 0 || (pid = fork()) < 0)
                abort();
        if (pid == 0) {
                struct gradsync *own = NULL;
                char text[2048] = "";
                int r;

                child_calls(text, sizeof(text));
                gradsync_close(gs);
                r = gradsync_open(&own, NULL);
                snprintf(text + strlen(text), sizeof(text) - strlen(text), " open=%s",
                         gradsync_result_name(r));
                gradsync_close(own);
                _exit(write(pipes[1], text, strlen(text)) < 0);
        }
        close(pipes[1]);
        n = read(pipes[0], out, size - 1);
        out[n > 0 ? n : 0] = 0;
        close(pipes[0]);
        waitpid(pid, &status, 0);
        snprintf(out + strlen(out), size - strlen(out), " status=%d", status);
        return GRADSYNC_OK;
}

/* linger: a child that does nothing and lives on, as a data loader's worker does. Its fds are listed. */
static int do_linger(char *out, size_t size) {
        int pipes[2];
        char byte;
        pid_t pid;

        if (pipe(pipes) < 0 || (pid = fork()) < 0)
                abort();
        if (pid == 0) {
                if (write(pipes[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        if (read(pipes[0], &byte, 1) != 1)
                abort();
        close(pipes[0]);
        close(pipes[1]);
        snprintf(out, size, "%d", (int)pid);
        return GRADSYNC_OK;
}

static int do_env(char *out, size_t size) {
        for (int i = 1; i < words; i++) {
                char *equals = strchr(word[i], '=');

                if (equals == NULL) {
                        unsetenv(word[i]);
                        continue;
                }
                *equals = 0;
                setenv(word[i], equals + 1, 1);
        }
        return GRADSYNC_OK;
}

static int do_version(char *out, size_t size) {
        snprintf(out, size, "%s", gradsync_version());
        return GRADSYNC_OK;
}

#define ROW(name)                                                                                            \
        { #name, do_##name }

static const struct command {
        const char *name;
        int (*run)(char *out, size_t size);
} commands[] = { ROW(absent),        ROW(accumulate), ROW(address),
                 ROW(allgather),     ROW(allreduce),  ROW(allreduce_on_gpu),
                 ROW(barrier),       ROW(broadcast),  ROW(bucket_of),
                 ROW(capture),       ROW(check),      ROW(close),
                 ROW(collective),    ROW(dispatch),   ROW(divisor),
                 ROW(env),           ROW(fill),       ROW(finish),
                 ROW(finish_waited), ROW(fork),       ROW(get),
                 ROW(job),           ROW(join),       ROW(leave),
                 ROW(linger),        ROW(mark_on),    ROW(open),
                 ROW(param),         ROW(param_at),   ROW(place),
                 ROW(plan),          ROW(plan_free),  ROW(punch),
                 ROW(readable),      ROW(ready),      ROW(reduce_scatter),
                 ROW(register),      ROW(signals),    ROW(slot),
                 ROW(stall),         ROW(state),      ROW(stats),
                 ROW(steps),         ROW(sync),       ROW(sync_other),
                 ROW(sync_twice),    ROW(threads),    ROW(train),
                 ROW(unregister),    ROW(unused),     ROW(version),
                 ROW(wait) };

static const struct command *find(const char *name) {
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        fprintf(stderr, "member: no command %s\n", name);
        exit(2);
}

/* A caller's own loop: sleeps on the fd, dispatches, and calls again. Tells how often it had to. */
static int poll_command(const struct command *command, char *out, size_t size) {
        unsigned again = 0;
        int r;

        while ((r = command->run(out, size)) == GRADSYNC_AGAIN) {
                struct pollfd fd = { .fd = gradsync_fd(gs), .events = POLLIN };

                again++;
                if (poll(&fd, 1, -1) < 0 && errno != EINTR)
                        abort();
                gradsync_dispatch(gs);
        }
        if (r == GRADSYNC_OK)
                snprintf(out + strlen(out), size - strlen(out), "%sagain=%u", *out ? " " : "", again);
        return r;
}

static void split(char *line) {
        words = 0;
        for (char *at = strtok(line, " \n"); at != NULL && words < WORDS; at = strtok(NULL, " \n"))
                word[words++] = at;
}

static void on_signal(int number) {
        signals++;
}

int main(int argc, char **argv) {
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        char *line = NULL;
        size_t room = 0;

        sigaction(SIGUSR1, &action, NULL);
        while (getline(&line, &room, stdin) > 0) {
                char out[8192] = "";
                bool looped;
                int r;

                split(line);
                if (words == 0)
                        continue;
                looped = strcmp(word[0], "poll") == 0;
                if (looped)
                        memmove(word, word + 1, (size_t)--words * sizeof(*word));
                r = looped ? poll_command(find(word[0]), out, sizeof(out))
                           : find(word[0])->run(out, sizeof(out));
                answer(r, out);
        }
        free(line);
        for (unsigned i = 0; i < SLOTS; i++) {
                forget(&plans[i]);
                forget(&registered[i]);
        }
        free(state_memory);
        free(in_memory);
        free(out_memory);
        gradsync_close(gs);
        return 0;
}
