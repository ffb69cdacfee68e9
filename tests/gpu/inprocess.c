/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL in the process that uses it, without a daemon: which one this machine has, and what allreduces take
 * between ranks, as the measure of what daemons take for the same (cluster_rows.py).
 * It is loaded and set up as daemons do it: by proto/nccl.h, with the same configuration and environment.
 *
 * Exit status: 0 nothing is wrong; 1 an answer is "no", or something failed; 2 usage; 75 there is no NCCL; 77
 * no GPU.
 */
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "engine/nccl/environment.h"
#include "library.h"
#include "proto/cuda.h"
#include "proto/nccl.h"
#include "row.h"
#include "staging.h"

#define NO_NCCL 75
#define CTAS 16 /* as the daemon's nccl_ctas */
#define BUCKETS 256u

static const char usage[] =
        "usage: inprocess [OPTION]... COMMAND\n"
        "  find            prints path and version of the NCCL that is found\n"
        "  version         a row about it\n"
        "  rank            one rank of several; does what it is told on standard input:\n"
        "                    id                 makes one: \"id HEX\"\n"
        "                    init RANKS RANK ID \"ready MILLISECONDS\"\n"
        "                    step BYTES N       N allreduces of floats: \"done\", or \"wrong\"\n"
        "  --nccl FILE     instead of those that are found\n"
        "  --settings TEXT words NCCL_NAME=VALUE, as the daemon's nccl_settings\n"
        "Exit status: 0 nothing is wrong, 1 an answer is \"no\" or an error, 2 usage, 75 no NCCL, 77 no "
        "GPU.\n";

static struct nccl nccl;
static struct cuda cuda;

/* ---- what ends it ---- */

_Noreturn static void die(const char *what, const char *why) {
        fprintf(stderr, "inprocess: %s: %s\n", what, why);
        exit(1);
}

static void sure(const char *what, cuda_result r) {
        char name[64];

        if (r != CUDA_OK)
                die(what, cuda_error(&cuda, r, name, sizeof name));
}

/* Waits for the end of a call on a communicator that does not block. */
static void await(const char *what, nccl_comm comm, nccl_result result) {
        char text[512];

        while (result == NCCL_IN_PROGRESS) {
                nccl_result state = NCCL_OK;

                sched_yield();
                result = nccl.async_error(comm, &state);
                result = result == NCCL_OK ? state : result;
        }
        if (result != NCCL_OK)
                die(what, nccl_error(&nccl, comm, result, text, sizeof text));
}

static double ms_since(int64_t begin) {
        return (double)(clock_ns() - begin) / 1e6;
}

static void tell(const char *fact, const char *answer, int64_t begin, const char *format, ...) {
        char detail[1024];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(detail, sizeof detail, format, arguments);
        va_end(arguments);
        if (row_print(fact, answer, detail, ms_since(begin)) < 0)
                die("a row", "it cannot be written");
}

/* ---- the libraries ---- */

/* The first one that can be used. */
static void open_nccl(const char *wanted) {
        static struct libraries found;
        char error[512];

        if (wanted != NULL)
                library_add(&found, wanted);
        else
                library_nccl(&found);
        for (unsigned i = 0; i < found.n; i++) {
                if (nccl_load(&nccl, found.path[i], error, sizeof error) == 0)
                        return;
                fprintf(stderr, "inprocess: %s\n", error);
        }
        exit(NO_NCCL);
}

static void open_gpu(void) {
        cuda_context context;
        cuda_device device;
        char error[512];

        if (cuda_load(&cuda, NULL, error, sizeof error) < 0) {
                fprintf(stderr, "inprocess: %s\n", error);
                exit(77);
        }
        sure("the GPU", cuda.device_get(&device, 0));
        sure("its context", cuda.primary_retain(&context, device));
        sure("its context", cuda.context_set(context));
}

static void show_version(int64_t begin) {
        char there[256] = "", missing[256] = "";

#define NOTE(member, name, since, arguments)                                                                 \
        {                                                                                                    \
                char *list = nccl.member != NULL ? there : missing;                                          \
                snprintf(list + strlen(list), sizeof there - strlen(list), " " #name);                       \
        }
        NCCL_EXTRAS(NOTE)
#undef NOTE
        tell("nccl version", nccl.text, begin, "%s; it has%s; it lacks%s", nccl.path,
             there[0] != '\0' ? there : " nothing that is newer than 2.18",
             missing[0] != '\0' ? missing : " nothing");
}

/* ---- a rank ---- */

struct rank {
        nccl_comm comm;
        cuda_stream stream;
        cuda_event event[BUCKETS];
        struct staging staging;
        int ranks, number;
};

static void rank_init(struct rank *rank, const struct nccl_id *id) {
        struct nccl_config config = NCCL_CONFIG;

        config.blocking = 0;
        config.split_share = 0;
        config.max_ctas = CTAS;
        await("ncclCommInitRankConfig", rank->comm,
              nccl.init(&rank->comm, rank->ranks, *id, rank->number, &config));
        sure("a stream", cuda.stream_new(&rank->stream, CUDA_STREAM_NON_BLOCKING, 0));
        for (unsigned i = 0; i < BUCKETS; i++)
                sure("an event", cuda.event_new(&rank->event[i], CUDA_EVENT_DISABLE_TIMING));
}

static void rank_stage(struct rank *rank, uint64_t bytes) {
        const char *what;

        if (bytes <= rank->staging.bytes)
                return;
        staging_free(&rank->staging, &cuda, &nccl);
        cuda_result r = staging_make(&rank->staging, &cuda, &nccl, rank->comm, bytes, &what);
        sure(what, r);
}

/* Allreduces of one piece of memory each, one after the other, and until each is known to have ended. */
static void rank_reduce(const struct rank *rank, uint64_t bytes, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                void *at = (void *)(uintptr_t)(rank->staging.address + i * bytes);

                await("ncclAllReduce", rank->comm,
                      nccl.allreduce(at, at, bytes / sizeof(float), NCCL_FLOAT32, NCCL_SUM, rank->comm,
                                     rank->stream));
                sure("an event", cuda.event_record(rank->event[i], rank->stream));
        }
        for (unsigned i = 0; i < n; i++) {
                cuda_result r;

                while ((r = cuda.event_query(rank->event[i])) == CUDA_NOT_READY)
                        sched_yield();
                sure("an allreduce", r);
        }
}

/* Each rank brings its number plus 1 in the first and the last element of each piece. */
static void rank_touch(const struct rank *rank, uint64_t bytes, unsigned n, bool in, float *values) {
        for (unsigned i = 0; i < 2 * n; i++) {
                cuda_address at =
                        rank->staging.address + i / 2 * bytes + (i % 2 == 0 ? 0 : bytes - sizeof(float));

                sure("a copy", in ? cuda.copy_in(at, &values[i], sizeof(float), rank->stream)
                                  : cuda.copy_out(&values[i], at, sizeof(float), rank->stream));
        }
        sure("a copy", cuda.stream_wait(rank->stream));
}

static bool rank_is_right(struct rank *rank, uint64_t bytes, unsigned n) {
        float values[2 * BUCKETS], sum = (float)(rank->ranks * (rank->ranks + 1)) / 2.f;
        bool right = true;

        for (unsigned i = 0; i < 2 * n; i++)
                values[i] = (float)(rank->number + 1);
        rank_touch(rank, bytes, n, true, values);
        rank_reduce(rank, bytes, n);
        rank_touch(rank, bytes, n, false, values);
        for (unsigned i = 0; i < 2 * n; i++)
                right &= values[i] == sum;
        return right;
}

/* ---- one of several ---- */

static void id_put(const struct nccl_id *id) {
        printf("id ");
        for (size_t i = 0; i < sizeof id->bytes; i++)
                printf("%02x", (unsigned char)id->bytes[i]);
        printf("\n");
}

static bool id_get(struct nccl_id *id, const char *text) {
        unsigned byte;

        for (size_t i = 0; i < sizeof id->bytes; i++) {
                if (sscanf(text + 2 * i, "%2x", &byte) != 1)
                        return false;
                id->bytes[i] = (char)byte;
        }
        return true;
}

static void do_init(struct rank *rank, const char *line) {
        int64_t begin = clock_ns();
        struct nccl_id id;
        int at = 0;

        if (sscanf(line, "init %d %d %n", &rank->ranks, &rank->number, &at) != 2 || !id_get(&id, line + at))
                die("init", line);
        rank_init(rank, &id);
        printf("ready %.1f\n", ms_since(begin));
}

/* The first step of a size is the one whose sums are looked at. */
static void do_step(struct rank *rank, const char *line) {
        static uint64_t checked_bytes, checked_n;
        unsigned long bytes;
        unsigned n;

        if (sscanf(line, "step %lu %u", &bytes, &n) != 2 || n == 0 || n > BUCKETS || bytes % sizeof(float))
                die("step", line);
        rank_stage(rank, bytes * n);
        if (bytes == checked_bytes && n == checked_n) {
                rank_reduce(rank, bytes, n);
                puts("done");
        } else {
                puts(rank_is_right(rank, bytes, n) ? "done" : "wrong");
        }
        checked_bytes = bytes;
        checked_n = n;
}

static void be_rank(void) {
        static struct rank rank;
        char line[512];
        struct nccl_id id;

        open_gpu();
        while (fgets(line, sizeof line, stdin) != NULL) {
                if (strcmp(line, "id\n") == 0) {
                        await("ncclGetUniqueId", NULL, nccl.unique_id(&id));
                        id_put(&id);
                } else if (strncmp(line, "init ", 5) == 0) {
                        do_init(&rank, line);
                } else if (strncmp(line, "step ", 5) == 0 && rank.comm != NULL) {
                        do_step(&rank, line);
                } else {
                        die("what is this", line);
                }
                fflush(stdout);
        }
        if (rank.comm == NULL)
                return;
        if (nccl.abort(rank.comm) != NCCL_OK)
                die("ncclCommAbort", "it fails");
        rank.staging.registration = NULL; /* it went with the communicator */
        staging_free(&rank.staging, &cuda, &nccl);
}

/* ---- the command line ---- */

static int run(const char *command, const char *library, const char *settings) {
        int64_t begin = clock_ns();
        char ignored[512];

        if (!environment_valid(settings)) {
                fputs(usage, stderr);
                return 2;
        }
        environment_prepare(settings, ignored, sizeof ignored);
        open_nccl(library);
        if (strcmp(command, "find") == 0) {
                printf("%s %d\n", nccl.path, nccl.version);
        } else if (strcmp(command, "version") == 0) {
                show_version(begin);
        } else if (strcmp(command, "rank") == 0) {
                be_rank();
        } else {
                fputs(usage, stderr);
                return 2;
        }
        return 0;
}

int main(int argc, char **argv) {
        static const struct option long_options[] = { { "nccl", required_argument, NULL, 'n' },
                                                      { "settings", required_argument, NULL, 's' },
                                                      { "help", no_argument, NULL, 'h' },
                                                      { 0 } };
        const char *settings = "", *library = NULL;
        int c;

        while ((c = getopt_long(argc, argv, "", long_options, NULL)) >= 0)
                switch (c) {
                case 'n': library = optarg; break;
                case 's': settings = optarg; break;
                case 'h': fputs(usage, stdout); return 0;
                default: fputs(usage, stderr); return 2;
                }
        if (optind + 1 != argc) {
                fputs(usage, stderr);
                return 2;
        }
        return run(argv[optind], library, settings);
}
