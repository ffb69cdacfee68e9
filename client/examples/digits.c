/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real training job: a perceptron learns to read handwritten digits, in as many processes as you like.
 *
 *     gradsyncctl run -n 2 -- digits
 *
 * Every member holds the whole model and takes an equal share of every batch. Backward writes each layer's
 * gradients straight into memory shared with the daemon and marks them ready, so the last layer is being
 * averaged while the first is still being computed. After each epoch the members compare a hash of their
 * parameters: they are equal, bit by bit, or the program fails. With equal seed and batch, any number of
 * members follows the same loss curve.
 *
 * The model is in mlp.c, the reader of the data in dataset.c, the command line in options.c.
 */
#include "dataset.h"
#include "mlp.h"
#include "options.h"

#include <gradsync/gradsync.h>

#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define LAYERS 3
#define BAR 24

static const size_t widths[LAYERS + 1] = { DATASET_PIXELS, 128, 64, DATASET_CLASSES };

struct trainer {
        struct options options;
        struct dataset data;
        struct mlp mlp;

        struct gradsync *gs;
        struct gradsync_job *job;
        struct gradsync_plan *plan;
        size_t rank, world;

        size_t steps;  /* of one epoch; rows that do not fill a last batch sit this epoch out */
        size_t share;  /* rows of one batch that are ours */
        size_t *order; /* all training rows, shuffled alike on every member */
        float *image;  /* our rows of the current batch */
        uint8_t *label;
        uint64_t *hashes; /* of every member's parameters */
        pid_t command;    /* --exec while it runs */
};

/* What one epoch adds up to. */
struct epoch {
        double loss;    /* mean over all rows of all members */
        double exposed; /* seconds blocked in gradsync, mean of the members */
        double norm;    /* of the averaged gradient, mean of the steps */
        double seconds;
        uint64_t hash; /* of our parameters */
};

static double now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

_Noreturn static void fail(const struct trainer *t, const char *what, const char *why) {
        fprintf(stderr, "digits: rank %zu: %s: %s\n", t->rank, what, why);
        exit(1);
}

static void check(const struct trainer *t, const char *what, int result) {
        if (result != GRADSYNC_OK)
                fail(t, what, gradsync_error());
}

/* --- Setting up
 * ----------------------------------------------------------------------------------------------------- */

/* Somebody keeps us waiting: say whom for, on our own terminal. */
static void stalled(void *trainer, struct gradsync_job *job, const struct gradsync_stall *stall) {
        const struct trainer *t = trainer;
        fprintf(stderr, "digits: rank %zu: %s\n", t->rank, stall->text);
}

static void join(struct trainer *t) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        options.program = "digits";
        options.stall = stalled;
        options.stall_data = t;
        check(t, "cannot reach the daemon", gradsync_open(&t->gs, &options));
        check(t, "cannot join the job", gradsync_join(t->gs, NULL, &t->job));
        t->rank = gradsync_rank(t->job);
        t->world = gradsync_world_size(t->job);
}

/* Two parameters a layer: its weights are number 2 × layer, its biases the next. The small buckets suit a
 * small model: one for each layer, so that the last layer's goes out while the first is still being
 * computed. */
static void make_plan(struct trainer *t) {
        for (size_t l = 0; l < LAYERS; l++) {
                const uint64_t shape[2] = { widths[l], widths[l + 1] };
                char name[32];
                snprintf(name, sizeof(name), "layer%zu.weight", l + 1);
                check(t, name, gradsync_param(t->job, name, GRADSYNC_F32, 2, shape));
                snprintf(name, sizeof(name), "layer%zu.bias", l + 1);
                check(t, name, gradsync_param(t->job, name, GRADSYNC_F32, 1, &shape[1]));
        }
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        options.first_bucket_bytes = 2 << 10;
        options.bucket_bytes = 32 << 10;
        check(t, "cannot agree on a plan", gradsync_plan_with(t->job, &options, &t->plan));
}

static void *allocate(const struct trainer *t, size_t count, size_t size) {
        void *memory = calloc(count, size);
        if (!memory)
                fail(t, "cannot set up", "out of memory");
        return memory;
}

static void set_up(struct trainer *t) {
        if (t->options.batch % t->world) {
                char why[128];
                snprintf(why, sizeof(why),
                         "a batch of %zu rows cannot be shared equally by %zu members; see --batch",
                         t->options.batch, t->world);
                fail(t, "cannot start", why);
        }
        t->share = t->options.batch / t->world;
        t->steps = t->data.train.rows / t->options.batch;
        if (!t->steps)
                fail(t, "cannot start", "the batch is larger than the training set");

        t->order = allocate(t, t->data.train.rows, sizeof(*t->order));
        for (size_t i = 0; i < t->data.train.rows; i++)
                t->order[i] = i;
        t->image = allocate(t, t->share * DATASET_PIXELS, sizeof(*t->image));
        t->label = allocate(t, t->share, sizeof(*t->label));
        t->hashes = allocate(t, t->world, sizeof(*t->hashes));
        if (mlp_init(&t->mlp, widths, LAYERS, t->share, t->options.seed))
                fail(t, "cannot set up", "out of memory");
}

/* --- One step
 * ------------------------------------------------------------------------------------------------------- */

/* Our rows of a batch: the shares of the members lie side by side in the common order. */
static void gather(struct trainer *t, size_t step) {
        const size_t *row = t->order + step * t->options.batch + t->rank * t->share;
        for (size_t i = 0; i < t->share; i++) {
                memcpy(t->image + i * DATASET_PIXELS, t->data.train.image + row[i] * DATASET_PIXELS,
                       DATASET_PIXELS * sizeof(*t->image));
                t->label[i] = t->data.train.label[row[i]];
        }
}

/* Backward and synchronisation side by side: from ready() on a gradient belongs to the daemon, until
 * finish(). */
static int synchronise(struct trainer *t, struct gradsync_info *info) {
        for (uint32_t l = LAYERS; l-- > 0;) {
                mlp_backward(&t->mlp, l, gradsync_gradient(t->plan, 2 * l),
                             gradsync_gradient(t->plan, 2 * l + 1));
                if (t->options.no_sync)
                        continue;
                check(t, "ready", gradsync_ready(t->plan, 2 * l + 1));
                check(t, "ready", gradsync_ready(t->plan, 2 * l));
        }
        int r = GRADSYNC_OK;
        if (!t->options.no_sync)
                while ((r = gradsync_finish(t->plan, info)) == GRADSYNC_INTERRUPTED)
                        ;
        return r;
}

static void train_step(struct trainer *t, size_t step, struct epoch *epoch) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        double loss;
        int r;

        gather(t, step);
        do { /* a void step changes nothing and is computed again */
                loss = mlp_forward(&t->mlp, t->image, t->label, t->share);
                r = synchronise(t, &info);
                if (r == GRADSYNC_VOID_RETRY)
                        fprintf(stderr, "digits: rank %zu: step %" PRIu64 " is void: %s\n", t->rank,
                                info.step, info.cause);
        } while (r == GRADSYNC_VOID_RETRY);
        check(t, "finish", r);

        for (uint32_t l = 0; l < LAYERS; l++)
                mlp_update(&t->mlp, l, gradsync_gradient(t->plan, 2 * l),
                           gradsync_gradient(t->plan, 2 * l + 1), t->options.rate, t->options.momentum);
        epoch->loss += loss;
        epoch->exposed += info.exposed_s;
        epoch->norm += info.norm / (double)t->steps;
}

/* --- One epoch
 * ------------------------------------------------------------------------------------------------------ */

/* The same shuffle on every member: it depends on the seed and the epoch alone. */
static void shuffle(struct trainer *t, size_t epoch) {
        uint64_t state = t->options.seed * UINT64_C(0x9e3779b97f4a7c15) + epoch;
        for (size_t i = t->data.train.rows; i > 1; i--) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                size_t j = (size_t)((state >> 33) % i), other = t->order[j];
                t->order[j] = t->order[i - 1];
                t->order[i - 1] = other;
        }
}

/* Sums over the members turn our loss and our time into everybody's. */
static void train_epoch(struct trainer *t, size_t number, struct epoch *epoch) {
        *epoch = (struct epoch){ 0 };
        double start = now();
        shuffle(t, number);
        for (size_t step = 0; step < t->steps; step++)
                train_step(t, step, epoch);
        epoch->seconds = now() - start;
        epoch->hash = mlp_hash(&t->mlp);

        double sums[2] = { epoch->loss, epoch->exposed };
        check(t, "cannot add up the losses", gradsync_allreduce(t->job, sums, 2, GRADSYNC_F64, GRADSYNC_SUM));
        epoch->loss = sums[0] / (double)(t->steps * t->options.batch);
        epoch->exposed = sums[1] / (double)t->world;
}

static void report_epoch(const struct trainer *t, size_t number, const struct epoch *e) {
        double rate = (double)(t->steps * t->options.batch) / e->seconds;
        if (t->options.json) {
                printf("{\"event\":\"epoch\",\"rank\":%zu,\"epoch\":%zu,\"loss\":%.17g,\"images_per_s\":%.0f,"
                       "\"exposed_s\":%.6f,\"seconds\":%.6f,\"norm\":%.9g,\"hash\":\"%016" PRIx64 "\"}\n",
                       t->rank, number, e->loss, rate, e->exposed, e->seconds, e->norm, e->hash);
                return;
        }
        if (t->rank)
                return;
        char bar[BAR + 1];
        for (size_t i = 0; i < BAR; i++)
                bar[i] = i < BAR * number / t->options.epochs ? '#' : '.';
        bar[BAR] = '\0';
        printf("epoch %3zu/%zu [%s]  loss %#-11.9g  %6.0f images/s  exposed %5.1f ms, %4.1f %%"
               "  gradient norm %.4f\n",
               number, t->options.epochs, bar, e->loss, rate, e->exposed * 1e3,
               100. * e->exposed / e->seconds, e->norm);
}

/* Everybody shows everybody their hash. Equal parameters are what all of this is for. */
static void compare_hashes(struct trainer *t, const struct epoch *epoch) {
        check(t, "cannot compare", gradsync_allgather(t->job, &epoch->hash, t->hashes, sizeof(epoch->hash)));
        for (size_t r = 0; r < t->world; r++) {
                if (t->hashes[r] == epoch->hash)
                        continue;
                char why[64];
                snprintf(why, sizeof(why), "those of rank %zu are different", r);
                fail(t, "the parameters are not equal", why);
        }
}

/* --- A command beside the training
 * ---------------------------------------------------------------------------------- */

static void command_start(struct trainer *t) {
        extern char **environ;
        char *argv[] = { (char *)"sh", (char *)"-c", (char *)t->options.exec, NULL };
        int error = posix_spawn(&t->command, "/bin/sh", NULL, NULL, argv, environ);
        if (error)
                fail(t, "cannot run the command", strerror(error));
}

static void command_wait(struct trainer *t) {
        int status;
        if (!t->command)
                return;
        if (waitpid(t->command, &status, 0) < 0 || status)
                fail(t, t->options.exec, "the command failed");
}

/* --- The whole job
 * -------------------------------------------------------------------------------------------------- */

static void report_start(const struct trainer *t) {
        if (t->options.json)
                printf("{\"event\":\"start\",\"rank\":%zu,\"world\":%zu,\"parameters\":%zu,\"buckets\":%u,"
                       "\"steps\":%zu,\"rows\":%zu}\n",
                       t->rank, t->world, t->mlp.params, gradsync_plan_buckets(t->plan), t->steps,
                       t->data.train.rows);
        else if (!t->rank)
                printf("job %s: members %zu, parameters %zu in %u buckets, rows %zu and %zu held out\n",
                       gradsync_job_name(t->job), t->world, t->mlp.params, gradsync_plan_buckets(t->plan),
                       t->data.train.rows, t->data.held_out.rows);
}

static void train(struct trainer *t) {
        struct epoch epoch;
        for (size_t number = 1; number <= t->options.epochs; number++) {
                train_epoch(t, number, &epoch);
                report_epoch(t, number, &epoch);
                compare_hashes(t, &epoch);
                if (t->options.exec && !t->rank && number == t->options.exec_epoch)
                        command_start(t);
        }
        command_wait(t);
        check(t, "barrier", gradsync_barrier(t->job));
}

static void report_end(struct trainer *t) {
        const struct dataset_part *held_out = &t->data.held_out;
        size_t correct = mlp_correct(&t->mlp, held_out->image, held_out->label, held_out->rows);
        double accuracy = (double)correct / (double)held_out->rows;
        uint64_t hash = mlp_hash(&t->mlp);
        if (t->options.json)
                printf("{\"event\":\"end\",\"rank\":%zu,\"accuracy\":%.6f,\"hash\":\"%016" PRIx64 "\"}\n",
                       t->rank, accuracy, hash);
        else
                printf("rank %zu: accuracy %.4f (%zu of %zu held-out rows), parameters %016" PRIx64 "\n",
                       t->rank, accuracy, correct, held_out->rows, hash);
}

static void tear_down(struct trainer *t) {
        check(t, "cannot leave", gradsync_leave(t->job));
        gradsync_close(t->gs);
        mlp_deinit(&t->mlp);
        dataset_deinit(&t->data);
        free(t->order);
        free(t->image);
        free(t->label);
        free(t->hashes);
}

int main(int argc, char **argv) {
        struct trainer t = { 0 };
        setvbuf(stdout, NULL, _IOLBF, 0); /* a line is seen when it is written, in a pipe too */
        options_parse(&t.options, argc, argv);
        if (dataset_init(&t.data, t.options.data))
                return 1;
        join(&t);
        set_up(&t);
        make_plan(&t);
        report_start(&t);
        train(&t);
        report_end(&t);
        tear_down(&t);
        return 0;
}
