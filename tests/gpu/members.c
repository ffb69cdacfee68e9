/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of a job on a GPU, started for each rank by `gradsyncctl run -n N`: what gradsync costs a training
 * there. Backward is a loop of matrix products, with the kernels of client/examples/mlp_body.h; the product
 * of each layer writes its gradient where gradsync has it, and marks it in its stream. Rank 0 prints a JSON
 * row for each figure, as reductions.c does.
 *
 * Exit status: 0 nothing is wrong; 1 an answer is "no", or something failed; 2 usage; 77 no GPU.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/mlp_body.h"
#include "clock.h"
#include "gradsync/gradsync.h"
#include "proto/cuda.h"
#include "row.h"

#define PAGE_FLOATS (64u << 10) / 4 /* of a small bucket: 64 KiB */
#define SAMPLES 400u

extern const unsigned char mlp_image[];

static const char usage[] =
        "usage: gradsyncctl run -n N -- members [OPTION]...\n"
        "  --small         few small layers, and few steps: for a GPU that is not real\n"
        "Exit status: 0 nothing is wrong, 1 an answer is \"no\" or an error, 2 usage, 77 no GPU.\n";

struct sizes {
        unsigned layers, width, rows; /* of the model, and of a batch */
        unsigned buckets;             /* small ones in one step */
        unsigned steps;
};

struct member {
        struct sizes sizes;
        struct cuda cuda;
        cuda_device device;
        cuda_stream stream, beside; /* backward's; of work that has nothing to do with gradients */
        cuda_function kernel[MLP_KERNELS_ALL];
        cuda_address memory, spare; /* activations and weights; what the work beside uses */
        struct gradsync *gs;
        struct gradsync_job *job;
        unsigned rank, world;
        bool failed;
        int64_t samples[SAMPLES];
};

/* ---- what ends it ---- */

_Noreturn static void die(const char *what, const char *why) {
        fprintf(stderr, "members: %s: %s\n", what, why);
        exit(1);
}

static void check(const struct member *m, const char *what, cuda_result r) {
        char name[64];

        if (r != CUDA_OK)
                die(what, cuda_error(&m->cuda, r, name, sizeof name));
}

static void sure(const char *what, int r) {
        if (r != GRADSYNC_OK)
                die(what, gradsync_error());
}

static void tell(struct member *m, const char *fact, const char *answer, const char *format, ...) {
        char name[64], detail[512];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(detail, sizeof detail, format, arguments);
        va_end(arguments);
        m->failed |= strcmp(answer, "no") == 0;
        snprintf(name, sizeof name, "%s of %u", fact, m->world);
        if (m->rank == 0 && row_print(name, answer, detail, 0.) < 0)
                die("a row", "it cannot be written");
}

static double ms(int64_t ns) {
        return (double)ns / 1e6;
}

/* ---- the GPU ---- */

static void open_gpu(struct member *m) {
        size_t square = (size_t)m->sizes.width * m->sizes.width,
               pass = (size_t)m->sizes.width * m->sizes.rows;
        static const char *const names[MLP_KERNELS_ALL] = {
#define NAME(name) MLP_PREFIX #name,
                MLP_KERNELS(NAME)
#undef NAME
        };
        cuda_context context;
        cuda_module module;
        char error[512];

        if (cuda_load(&m->cuda, getenv("GRADSYNC_CUDA_DRIVER"), error, sizeof error) < 0) {
                fprintf(stderr, "members: %s\n", error);
                exit(77);
        }
        check(m, "the GPU", m->cuda.device_get(&m->device, 0));
        check(m, "its context", m->cuda.primary_retain(&context, m->device));
        check(m, "its context", m->cuda.context_set(context));
        check(m, "a stream", m->cuda.stream_new(&m->stream, CUDA_STREAM_NON_BLOCKING, 0));
        check(m, "a stream", m->cuda.stream_new(&m->beside, CUDA_STREAM_NON_BLOCKING, 0));
        check(m, "the kernels", m->cuda.module_load(&module, mlp_image));
        for (unsigned i = 0; i < MLP_KERNELS_ALL; i++)
                check(m, names[i], m->cuda.module_function(&m->kernel[i], module, names[i]));
        check(m, "memory", m->cuda.allocate(&m->memory, (square + 4 * pass) * sizeof(float)));
        check(m, "memory", m->cuda.allocate(&m->spare, (square + 4 * pass) * sizeof(float)));
        check(m, "memory", m->cuda.set_async(m->memory, 0, (square + 4 * pass) * sizeof(float), m->stream));
        check(m, "memory", m->cuda.set_async(m->spare, 0, (square + 4 * pass) * sizeof(float), m->stream));
        check(m, "memory", m->cuda.stream_wait(m->stream));
}

static void launch(const struct member *m, enum mlp_kernel kernel, struct mlp_work *work,
                   cuda_stream stream) {
        void *parameters[] = { work };
        unsigned blocks = (mlp_threads(kernel, work) + MLP_THREADS - 1) / MLP_THREADS;

        check(m, "a product",
              m->cuda.launch(m->kernel[kernel], blocks, 1, 1, MLP_THREADS, 1, 1, 0, stream, parameters,
                             NULL));
}

/* A layer of `width` in and out: its operands, one after the other in the memory. */
static struct mlp_work layer_of(const struct member *m, cuda_address memory) {
        uint32_t width = m->sizes.width, rows = m->sizes.rows;
        size_t square = (size_t)width * width * sizeof(float), pass = (size_t)width * rows * sizeof(float);

        return (struct mlp_work){ .weight = memory,
                                  .input = memory + square,
                                  .output = memory + square + pass,
                                  .delta = memory + square + 2 * pass,
                                  .below = memory + square + 3 * pass,
                                  .in = width,
                                  .out = width,
                                  .rows = rows };
}

/* ---- plans ---- */

/* `n` parameters of so many floats, each a bucket of its own. */
static struct gradsync_plan *make_plan(struct member *m, unsigned n, uint64_t floats) {
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        struct gradsync_plan *plan;
        char name[16];

        options.first_bucket_bytes = options.bucket_bytes = floats * sizeof(float);
        for (unsigned i = 0; i < n; i++) {
                snprintf(name, sizeof name, "p%u", i);
                sure("a parameter", gradsync_param(m->job, name, GRADSYNC_F32, 1, &floats));
        }
        sure("a plan", gradsync_plan_with(m->job, &options, &plan));
        return plan;
}

static void finish(struct gradsync_plan *plan) {
        sure("finish", gradsync_finish(plan, NULL));
}

/* One step of all parameters, whose gradients are as they are. */
static int64_t step(struct member *m, struct gradsync_plan *plan) {
        int64_t begin = clock_ns();

        for (uint32_t i = gradsync_plan_params(plan); i-- > 0;)
                sure("ready_on", gradsync_ready_on(plan, i, m->stream));
        finish(plan);
        return clock_ns() - begin;
}

/* ---- questions ---- */

/* Rank r brings r + 1: the average is known, and the same everywhere. */
static void ask_average(struct member *m) {
        struct gradsync_plan *plan = make_plan(m, 1, 1024);
        cuda_address gradient = (uintptr_t)gradsync_gradient(plan, 0);
        float value[1024], expected = (float)(m->world + 1) / 2.f;
        unsigned wrong = 0;

        for (unsigned i = 0; i < 1024; i++)
                value[i] = (float)(m->rank + 1);
        check(m, "copy", m->cuda.copy_in(gradient, value, sizeof value, m->stream));
        step(m, plan);
        check(m, "copy", m->cuda.copy_out(value, gradient, sizeof value, m->stream));
        check(m, "copy", m->cuda.stream_wait(m->stream));
        for (unsigned i = 0; i < 1024; i++)
                wrong += value[i] != expected;
        tell(m, "average", wrong == 0 ? "yes" : "no", "%u of 1024 elements are wrong; expected %g", wrong,
             (double)expected);
        sure("free", gradsync_plan_free(plan));
}

/* Work beside: products in another stream, as many as keep the GPU busy for the whole question. */
static void keep_busy(struct member *m, unsigned products) {
        struct mlp_work work = layer_of(m, m->spare);

        for (unsigned i = 0; i < products; i++)
                launch(m, MLP_KERNEL_delta, &work, m->beside);
}

/* A part of what a bucket takes, with nothing before it in the stream: until this process knows that. */
static double event_us(struct member *m) {
        cuda_event event;

        check(m, "an event", m->cuda.event_new(&event, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC));
        for (unsigned i = 0; i < 50; i++) {
                int64_t begin = clock_ns();

                check(m, "an event", m->cuda.event_record(event, m->stream));
                check(m, "an event", m->cuda.event_wait(event));
                m->samples[i] = clock_ns() - begin;
        }
        check(m, "an event", m->cuda.event_free(event));
        samples_sort(m->samples, 50);
        return (double)samples_percentile(m->samples, 50, 50) / 1e3;
}

/* Another part: a call to the daemon and back, of all members, without a GPU. */
static double barrier_us(struct member *m) {
        for (unsigned i = 0; i < 50; i++) {
                int64_t begin = clock_ns();

                sure("barrier", gradsync_barrier(m->job));
                m->samples[i] = clock_ns() - begin;
        }
        samples_sort(m->samples, 50);
        return (double)samples_percentile(m->samples, 50, 50) / 1e3;
}

static void ask_parts(struct member *m) {
        double event = event_us(m), barrier = barrier_us(m);
        char answer[64];

        snprintf(answer, sizeof answer, "event %.1f us, barrier %.1f us", event, barrier);
        tell(m, "parts of a bucket", answer,
             "an event from its record to the wake-up of who waits for it; a barrier of all members, as a "
             "step without work; the kernel's part is in the rows of reductions");
}

static void ask_small_buckets(struct member *m, unsigned n, const char *fact, bool busy) {
        struct gradsync_plan *plan = make_plan(m, n, PAGE_FLOATS);
        unsigned steps = m->sizes.steps < SAMPLES ? m->sizes.steps : SAMPLES;

        for (unsigned i = 0; i < 3; i++)
                step(m, plan);
        for (unsigned i = 0; i < steps; i++) {
                if (busy)
                        keep_busy(m, 2);
                m->samples[i] = step(m, plan);
        }
        check(m, "work beside", m->cuda.stream_wait(m->beside));
        samples_sort(m->samples, steps);
        double median = (double)samples_percentile(m->samples, steps, 50) / 1e3 / n,
               high = (double)samples_percentile(m->samples, steps, 95) / 1e3 / n;
        char answer[64];
        snprintf(answer, sizeof answer, "%.1f us a bucket", median);
        tell(m, fact, answer, "%u of 64 KiB in a step, %u steps, trainers %s: median %.1f us, p95 %.1f us", n,
             steps, busy ? "computing" : "idle", median, high);
        sure("free", gradsync_plan_free(plan));
}

/* Backward through all layers; with a plan, the gradient of each goes out when it is made. */
static int64_t backward(struct member *m, struct gradsync_plan *plan) {
        struct mlp_work work = layer_of(m, m->memory);
        int64_t begin = clock_ns();

        for (unsigned l = m->sizes.layers; l-- > 0;) {
                if (plan != NULL)
                        work.weight_gradient = (uintptr_t)gradsync_gradient(plan, l);
                else
                        work.weight_gradient = work.weight;
                work.bias_gradient = work.below;
                launch(m, MLP_KERNEL_gradient, &work, m->stream);
                if (plan != NULL)
                        sure("ready_on", gradsync_ready_on(plan, l, m->stream));
                launch(m, MLP_KERNEL_delta, &work, m->stream);
        }
        if (plan != NULL)
                finish(plan);
        check(m, "backward", m->cuda.stream_wait(m->stream));
        return clock_ns() - begin;
}

static int64_t median_of(struct member *m, struct gradsync_plan *plan, unsigned steps) {
        backward(m, plan);
        for (unsigned i = 0; i < steps; i++) {
                sure("barrier", gradsync_barrier(m->job));
                m->samples[i] = backward(m, plan);
        }
        samples_sort(m->samples, steps);
        return samples_percentile(m->samples, steps, 50);
}

/* Times backward alone, gradsync alone, and both together. Both take longer than backward alone by the part
 * of gradsync that is exposed. The rest is hidden, less the time by which it slows the computation down. */
static void ask_overlap(struct member *m) {
        uint64_t floats = (uint64_t)m->sizes.width * m->sizes.width;
        struct gradsync_plan *plan = make_plan(m, m->sizes.layers, floats);
        unsigned steps = m->sizes.steps < 30 ? m->sizes.steps : 30;
        int64_t computed = median_of(m, NULL, steps);
        char answer[64];

        for (unsigned i = 0; i < steps; i++)
                m->samples[i] = step(m, plan);
        samples_sort(m->samples, steps);
        int64_t alone = samples_percentile(m->samples, steps, 50), both = median_of(m, plan, steps);
        snprintf(answer, sizeof answer, "%.2f ms exposed of %.2f", ms(both - computed), ms(alone));
        tell(m, "overlap", answer,
             "%u layers of %.1f MiB, medians of %u steps: backward alone %.2f ms, gradsync alone %.2f ms, "
             "both %.2f ms",
             m->sizes.layers, (double)floats * 4 / 1048576., steps, ms(computed), ms(alone), ms(both));
        sure("free", gradsync_plan_free(plan));
}

static size_t free_bytes(const struct member *m) {
        size_t free, total;

        check(m, "memory", m->cuda.memory_info(&free, &total));
        return free;
}

/* From no connection to a plan, on a daemon that is warm, by a process that has its context already. */
static void ask_attach(struct member *m) {
        struct gradsync_join_options own = GRADSYNC_JOIN_OPTIONS_INIT;
        struct gradsync_job *job = m->job;
        struct gradsync *gs;
        char name[32], answer[64];
        size_t before = free_bytes(m);

        snprintf(name, sizeof name, "attach-%u", m->rank);
        own.name = name;
        own.min_world = own.max_world = 1;
        own.rank = own.local_rank = own.incarnation = 0;
        int64_t begin = clock_ns();
        sure("open", gradsync_open(&gs, NULL));
        int64_t opened = clock_ns();
        sure("join", gradsync_join(gs, &own, &m->job));
        int64_t joined = clock_ns();
        struct gradsync_plan *plan = make_plan(m, 1, 1 << 20);
        int64_t planned = clock_ns();
        size_t after = free_bytes(m);
        snprintf(answer, sizeof answer, "%.2f ms", ms(planned - begin));
        tell(m, "attach", answer,
             "open %.2f ms, join %.2f ms, a plan of 4 MiB %.2f ms; the GPU has %.1f MiB less then",
             ms(opened - begin), ms(joined - opened), ms(planned - joined),
             ((double)before - (double)after) / 1048576.);
        step(m, plan);
        sure("leave", gradsync_leave(m->job));
        gradsync_close(gs);
        m->job = job;
}

static void ask_all(struct member *m) {
        struct gradsync_device device = GRADSYNC_DEVICE_INIT;

        sure("open", gradsync_open(&m->gs, NULL));
        sure("device", gradsync_device(m->gs, &device));
        if (device.ordinal != 0)
                die("the daemon", "it does not serve the GPU that is number 0 here");
        sure("join", gradsync_join(m->gs, NULL, &m->job));
        m->rank = gradsync_rank(m->job);
        m->world = gradsync_world_size(m->job);
        ask_average(m);
        ask_attach(m);
        ask_parts(m);
        ask_small_buckets(m, 1, "isolated bucket", false);
        ask_small_buckets(m, m->sizes.buckets, "amortised bucket", false);
        ask_small_buckets(m, 1, "isolated bucket beside work", true);
        ask_small_buckets(m, m->sizes.buckets, "amortised bucket beside work", true);
        ask_overlap(m);
        sure("barrier", gradsync_barrier(m->job)); /* who leaves takes what is not freed yet with it */
        sure("leave", gradsync_leave(m->job));
        gradsync_close(m->gs);
}

int main(int argc, char **argv) {
        static const struct option options[] = { { "small", no_argument, NULL, 's' },
                                                 { "help", no_argument, NULL, 'h' },
                                                 { 0 } };
        static struct member m = { .sizes = { 12, 1024, 256, 200, 300 } };
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 's': m.sizes = (struct sizes){ 3, 32, 4, 8, 4 }; break;
                case 'h': fputs(usage, stdout); return 0;
                default: fputs(usage, stderr); return 2;
                }
        open_gpu(&m);
        ask_all(&m);
        return m.failed;
}
