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
 * members follows the same loss curve. Under `gradsyncctl run --restart` any member can be killed at any
 * time: the others wait for its successor, give it their state, and end with the parameters of the
 * undisturbed run.
 *
 * The model is in mlp.c, the reader of the data in dataset.c, the command line in options.c. digits_cuda is
 * this program with the model on a GPU, in mlp_cuda.c.
 */
#include "dataset.h"
#include "mlp.h"
#include "options.h"

#include <gradsync/gradsync.h>

#include <inttypes.h>
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

        /* Steps done so far, in all epochs together. This and `compared` say how far the training is. */
        uint64_t step;
        uint64_t compared; /* epochs whose parameters have been compared */
        uint64_t reported; /* epochs that this process has reported */
        uint64_t ordered;  /* epochs for which `order` has been shuffled */

        size_t steps;  /* steps of one epoch; rows that do not fill a last batch sit this epoch out */
        size_t share;  /* rows of one batch that are ours */
        size_t *order; /* all training rows, shuffled alike on every member */
        float *image;  /* our rows of the current batch */
        uint8_t *label;
        uint64_t *hashes; /* hashes of every member's parameters */
        pid_t command;    /* process of --exec while it runs */
};

/* The sums of one epoch. A member that came in the middle knows its own steps only. */
struct epoch {
        double loss;    /* sum over our rows; in the report, mean over the rows of all members */
        double exposed; /* seconds blocked in gradsync; in the report, mean of the members */
        double norm;    /* norms of the averaged gradient, sum over the steps; in the report, their mean */
        double rows, steps;
        double start, seconds;
        uint64_t hash; /* hash of our parameters */
};

static double now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

_Noreturn static void trainer_fail(const struct trainer *t, const char *what, const char *why) {
        fprintf(stderr, "digits: rank %zu: %s: %s\n", t->rank, what, why);
        exit(1);
}

static void trainer_check(const struct trainer *t, const char *what, int result) {
        if (result != GRADSYNC_OK)
                trainer_fail(t, what, gradsync_error());
}

/* --- Setting up
 * ----------------------------------------------------------------------------------------------------- */

/* A member keeps this one waiting: says which one, on the terminal of this trainer. */
static void stalled(void *trainer, struct gradsync_job *job, const struct gradsync_stall *stall) {
        const struct trainer *t = trainer;
        fprintf(stderr, "digits: rank %zu: %s\n", t->rank, stall->text);
}

/* The model's gradients have to be where it computes. */
static void check_device(const struct trainer *t) {
        struct gradsync_device served = GRADSYNC_DEVICE_INIT;
        int own = mlp_device(&t->mlp);
        char why[256];

        trainer_check(t, "cannot use what the daemon serves", gradsync_device(t->gs, &served));
        if (served.ordinal == own)
                return;
        if (own < 0)
                snprintf(why, sizeof(why),
                         "gradsyncd serves %s, and this program computes on the CPU; digits_cuda is for GPUs",
                         served.name);
        else if (!*served.name)
                snprintf(why, sizeof(why),
                         "this program computes on GPU %d and needs a gradsyncd that serves it; try "
                         "gradsyncctl --device cuda:%d run",
                         own, own);
        else
                snprintf(why, sizeof(why),
                         "gradsyncd serves %s, and this program computes on GPU %d; choose another daemon "
                         "with GRADSYNC_DEVICE, or another GPU with --device",
                         served.name, own);
        trainer_fail(t, "cannot train", why);
}

/* Tells the user of a training that was to be shared and that runs alone: nothing else would show it. */
static void tell_alone(struct trainer *t) {
        struct gradsync_device served = GRADSYNC_DEVICE_INIT;

        if (gradsync_device(t->gs, &served) == GRADSYNC_OK && !*served.name)
                fprintf(stderr,
                        "digits: no gradsyncd is reachable: this process trains alone, as rank 0 of 1\n");
}

static void join(struct trainer *t) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        options.program = "digits";
        options.stall = stalled;
        options.stall_data = t;
        trainer_check(t, "cannot reach the daemon", gradsync_open(&t->gs, &options));
        check_device(t);
        trainer_check(t, "cannot join the job", gradsync_join(t->gs, NULL, &t->job));
        tell_alone(t);
}

/* Our place among the members, and with it our share of every batch. It can change with every generation. */
static void take_place(struct trainer *t) {
        t->rank = gradsync_rank(t->job);
        t->world = gradsync_world_size(t->job);
        if (t->options.batch % t->world) {
                char why[128];
                snprintf(why, sizeof(why),
                         "a batch of %zu rows cannot be shared equally by %zu members; see --batch",
                         t->options.batch, t->world);
                trainer_fail(t, "cannot train", why);
        }
        t->share = t->options.batch / t->world;
}

/* Two parameters a layer: its weights are number 2 × layer, its biases the next. The small buckets suit a
 * small model: one for each layer, so that the last layer's goes out while the first is still being
 * computed. */
static void make_plan(struct trainer *t) {
        for (size_t l = 0; l < LAYERS; l++) {
                const uint64_t shape[2] = { widths[l], widths[l + 1] };
                char name[32];
                snprintf(name, sizeof(name), "layer%zu.weight", l + 1);
                trainer_check(t, name, gradsync_param(t->job, name, GRADSYNC_F32, 2, shape));
                snprintf(name, sizeof(name), "layer%zu.bias", l + 1);
                trainer_check(t, name, gradsync_param(t->job, name, GRADSYNC_F32, 1, &shape[1]));
        }
        struct gradsync_plan_options options = GRADSYNC_PLAN_OPTIONS_INIT;
        options.first_bucket_bytes = 2 << 10;
        options.bucket_bytes = 32 << 10;
        trainer_check(t, "cannot agree on a plan", gradsync_plan_with(t->job, &options, &t->plan));
}

static void *allocate(const struct trainer *t, size_t count, size_t size) {
        void *memory = calloc(count, size);
        if (!memory)
                trainer_fail(t, "cannot set up", "out of memory");
        return memory;
}

static void set_up(struct trainer *t) {
        take_place(t);
        t->steps = t->data.train.rows / t->options.batch;
        if (!t->steps)
                trainer_fail(t, "cannot start", "the batch is larger than the training set");

        t->order = allocate(t, t->data.train.rows, sizeof(*t->order));
        for (size_t i = 0; i < t->data.train.rows; i++)
                t->order[i] = i;
        t->image = allocate(t, t->options.batch * DATASET_PIXELS, sizeof(*t->image));
        t->label = allocate(t, t->options.batch, sizeof(*t->label));
        t->hashes = allocate(t, t->world, sizeof(*t->hashes));
}

/* All members get the newest state among them: at the start, and when a member is new. */
static void synchronise_state(struct trainer *t) {
        const struct gradsync_state state[] = {
                { t->mlp.memory, 2 * t->mlp.params * sizeof(float) },
                { &t->compared, sizeof(t->compared) },
        };
        int r;

        mlp_wait(&t->mlp); /* the library does not know of a stream of ours */
        while ((r = gradsync_sync_state(t->job, state, 2, &t->step)) == GRADSYNC_INTERRUPTED)
                ;
        trainer_check(t, "cannot synchronise the state", r);
        take_place(t);
}

/* Called after a call that ended with its generation. That call is made again afterwards. */
static void enter_generation(struct trainer *t, int result) {
        if (result == GRADSYNC_VOID_BEHIND)
                synchronise_state(t);
        else
                take_place(t);
}

static bool is_void(int result) {
        return result == GRADSYNC_VOID_RETRY || result == GRADSYNC_VOID_BEHIND;
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

/* Where backward only puts work into a stream, the daemon gets the gradient when that work is done. */
static void mark_ready(struct trainer *t, uint32_t param) {
        void *stream = mlp_stream(&t->mlp);
        trainer_check(t, "ready",
                      stream ? gradsync_ready_on(t->plan, param, stream) : gradsync_ready(t->plan, param));
}

/* Backward and synchronisation side by side: from ready() on a gradient belongs to the daemon, until
 * finish(). */
static int synchronise(struct trainer *t, struct gradsync_info *info) {
        for (uint32_t l = LAYERS; l-- > 0;) {
                mlp_backward(&t->mlp, l, gradsync_gradient(t->plan, 2 * l),
                             gradsync_gradient(t->plan, 2 * l + 1));
                if (t->options.no_sync)
                        continue;
                mark_ready(t, 2 * l + 1);
                mark_ready(t, 2 * l);
        }
        int r = GRADSYNC_OK;
        if (!t->options.no_sync)
                while ((r = gradsync_finish(t->plan, info)) == GRADSYNC_INTERRUPTED)
                        ;
        return r;
}

/* OK, or the code of a void step, which has changed nothing. */
static int train_step(struct trainer *t, struct epoch *epoch) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;

        gather(t, t->step % t->steps);
        mlp_forward(&t->mlp, t->image, t->label, t->share);
        int r = synchronise(t, &info);
        if (is_void(r)) {
                fprintf(stderr, "digits: rank %zu: step %" PRIu64 " is void: %s\n", t->rank, t->step + 1,
                        info.cause);
                return r;
        }
        trainer_check(t, "finish", r);

        epoch->loss += mlp_loss(&t->mlp);
        for (uint32_t l = 0; l < LAYERS; l++)
                mlp_update(&t->mlp, l, gradsync_gradient(t->plan, 2 * l),
                           gradsync_gradient(t->plan, 2 * l + 1), t->options.rate, t->options.momentum);
        epoch->exposed += info.exposed_s;
        epoch->norm += info.norm;
        epoch->rows += (double)t->share;
        epoch->steps++;
        t->step++;
        return GRADSYNC_OK;
}

/* --- One epoch
 * ------------------------------------------------------------------------------------------------------ */

/* The same shuffle on every member: it depends on the seed and the epoch alone, and on those before. */
static void shuffle(struct trainer *t, size_t epoch) {
        uint64_t state = t->options.seed * UINT64_C(0x9e3779b97f4a7c15) + epoch;
        for (size_t i = t->data.train.rows; i > 1; i--) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                size_t j = (size_t)((state >> 33) % i), other = t->order[j];
                t->order[j] = t->order[i - 1];
                t->order[i - 1] = other;
        }
}

/* The next step of the epoch that we are in; its first one opens it. */
static int train_next(struct trainer *t, struct epoch *epoch) {
        for (; t->ordered <= t->step / t->steps; t->ordered++)
                shuffle(t, t->ordered + 1);
        if (epoch->start == 0.)
                epoch->start = now();
        return train_step(t, epoch);
}

/* Adds up loss and time over all members. */
static int add_up(struct trainer *t, const struct epoch *ours, struct epoch *all) {
        double sums[3] = { ours->loss, ours->exposed, ours->rows };
        int r = gradsync_allreduce(t->job, sums, 3, GRADSYNC_F64, GRADSYNC_SUM);
        if (r != GRADSYNC_OK)
                return r;
        *all = *ours;
        all->loss = sums[2] > 0. ? sums[0] / sums[2] : 0.;
        all->exposed = sums[1] / (double)t->world;
        all->norm = ours->steps > 0. ? ours->norm / ours->steps : 0.;
        all->seconds = ours->start > 0. ? now() - ours->start : 0.;
        all->hash = mlp_hash(&t->mlp);
        return GRADSYNC_OK;
}

static void report_epoch(const struct trainer *t, size_t number, const struct epoch *e) {
        double rate = e->seconds > 0. ? e->steps * (double)t->options.batch / e->seconds : 0.;
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
               e->seconds > 0. ? 100. * e->exposed / e->seconds : 0., e->norm);
}

/* All members have the hashes of all. Equal parameters are the purpose of the whole program. */
static void compare_hashes(const struct trainer *t, const struct epoch *epoch) {
        for (size_t rank = 0; rank < t->world; rank++) {
                if (t->hashes[rank] == epoch->hash)
                        continue;
                char why[64];
                snprintf(why, sizeof(why), "those of rank %zu are different", rank);
                trainer_fail(t, "the parameters are not equal", why);
        }
}

/* --- A command beside the training
 * ---------------------------------------------------------------------------------- */

static void command_start(struct trainer *t) {
        extern char **environ;
        char *argv[] = { (char *)"sh", (char *)"-c", (char *)t->options.exec, NULL };
        int error = posix_spawn(&t->command, "/bin/sh", NULL, NULL, argv, environ);
        if (error)
                trainer_fail(t, "cannot run the command", strerror(error));
}

static void command_wait(struct trainer *t) {
        int status;
        if (!t->command)
                return;
        if (waitpid(t->command, &status, 0) < 0 || status)
                trainer_fail(t, t->options.exec, "the command failed");
        t->command = 0;
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

/* Ends the epoch whose steps are done. */
static int end_epoch(struct trainer *t, struct epoch *ours) {
        struct epoch all = { 0 };
        int r = add_up(t, ours, &all);
        if (r != GRADSYNC_OK)
                return r;
        if (t->reported <= t->compared)
                report_epoch(t, t->reported = t->compared + 1, &all);
        r = gradsync_allgather(t->job, &all.hash, t->hashes, sizeof(all.hash));
        if (r != GRADSYNC_OK)
                return r;
        compare_hashes(t, &all);
        t->compared++;
        *ours = (struct epoch){ 0 };
        if (t->options.exec && !t->rank && t->compared == t->options.exec_epoch)
                command_start(t);
        return GRADSYNC_OK;
}

/* Does the next piece of work, wherever we are: a successor of a lost member comes in in the middle. */
static int advance(struct trainer *t, struct epoch *epoch) {
        if (t->compared == t->options.epochs) {
                command_wait(t);
                return gradsync_barrier(t->job);
        }
        return t->step < (t->compared + 1) * t->steps ? train_next(t, epoch) : end_epoch(t, epoch);
}

static void train(struct trainer *t) {
        struct epoch epoch = { 0 };
        bool done = false;

        synchronise_state(t);
        while (!done) {
                bool last = t->compared == t->options.epochs;
                int r = advance(t, &epoch);
                if (is_void(r))
                        enter_generation(t, r);
                else if (r != GRADSYNC_INTERRUPTED)
                        trainer_check(t, "cannot go on", r);
                done = last && r == GRADSYNC_OK;
        }
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
        trainer_check(t, "cannot leave", gradsync_leave(t->job));
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
        if (mlp_init(&t.mlp, t.options.device, widths, LAYERS, t.options.batch, t.options.seed))
                return 1;
        if (dataset_init(&t.data, t.options.data)) {
                mlp_deinit(&t.mlp);
                return 1;
        }
        join(&t);
        set_up(&t);
        make_plan(&t);
        report_start(&t);
        train(&t);
        report_end(&t);
        tear_down(&t);
        return 0;
}
