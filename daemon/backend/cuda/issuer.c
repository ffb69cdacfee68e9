/* SPDX-License-Identifier: Apache-2.0 */
/* See issuer.h. */
#include "backend/cuda/issuer.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/vmm.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread.h"
#include "proto/names.h"

#define LANES 4u
#define SLOTS 8u /* launches of a lane that may be under way */
#define RESULT_WORDS (GRID_PARTS * GRID_WORDS(GRID_GROUP))
#define LINGER UINT64_C(200)        /* microseconds after a launch in which it polls without a pause */
#define NAP 50000                   /* nanoseconds between polls after that */
#define DEADLINE UINT64_C(60000000) /* microseconds for one launch; kernels take milliseconds at most */

_Static_assert(RESULT_WORDS <= GRID_SCRATCH_WORDS,
               "what has room for its results has some in the scratch memory");

struct issue {            /* a task */
        struct list link; /* in lane->waiting (a user's first issue), slot->issues or issuer->done */
        struct issue *behind,
                *last; /* next issue of the user in the lane; the user's last one (valid in the first) */
        uint64_t id, user, first;
        bool own; /* its memory is not the room of its description */
        bool cancelled;
        bool statistics, find;
        unsigned n_inputs;
        struct launch_part part;
        uint64_t *words; /* results, GRID_WORDS(n_inputs) of them */
        uint64_t address[];
};

struct issuer_slot {
        cuda_event event;
        uint64_t *results; /* host memory that the GPU writes */
        cuda_address device_results;
        struct list issues; /* tasks of the launch; empty: none is under way */
        struct launch launch;
        uint64_t since;
};

struct issuer_lane {
        cuda_stream stream;
        cuda_address scratch;
        struct list waiting; /* the first issue of each user that has issues */
        struct issuer_slot slot[SLOTS];
        unsigned first, n; /* the first slot under way, and the number of them */
};

struct issuer {
        const struct card *card;
        int wake;
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t work;
        bool stop;
        uint64_t asked, answered;
        uint64_t *results;
        struct list done;
        char failed[256]; /* why the GPU has failed; "" if it has not */
        struct issuer_lane lane[LANES];
};

/* ---- tasks ---- */

size_t issuer_room(const struct backend_task *task) {
        return sizeof(struct issue) + (task->n_inputs + task->n_outputs + GRID_WORDS(task->n_inputs)) * 8;
}

static void issue_place(uint64_t *to, const struct backend_range *ranges, unsigned n, uint64_t skip) {
        for (unsigned i = 0; i < n; i++)
                to[i] = vmm_of(ranges[i].memory)->address + ranges[i].offset + skip;
}

static struct issue *issue_new(const struct backend_task *task) {
        struct issue *issue = task->room != NULL ? task->room : malloc(issuer_room(task));
        uint64_t skip = task->first * dtype_size(task->dtype), *outputs;

        if (issue == NULL)
                return NULL;
        outputs = issue->address + task->n_inputs;
        *issue = (struct issue){
                .id = task->id,
                .user = task->user,
                .first = task->first,
                .own = task->room == NULL,
                .find = task->find,
                .n_inputs = task->n_inputs,
                .words = outputs + task->n_outputs,
                .part = { .dtype = task->dtype,
                          .reduce = task->reduce,
                          .divisor = task->divisor,
                          .elements = task->elements,
                          .n_inputs = task->n_inputs,
                          .n_outputs = task->n_outputs,
                          .inputs = issue->address,
                          .outputs = outputs,
                          .statistics = task->statistics,
                          .find = task->find },
        };
        list_init(&issue->link);
        issue_place(issue->address, task->inputs, task->n_inputs, skip);
        issue_place(outputs, task->outputs, task->n_outputs, skip);
        issue->statistics = task->statistics && !task->find && launch_result_words(&issue->part) > 0;
        memset(issue->words, 0, GRID_WORDS(task->n_inputs) * sizeof(uint64_t));
        return issue;
}

static bool issue_is_valid(const struct backend_task *task) {
        const struct launch_part part = { .dtype = task->dtype,
                                          .reduce = task->reduce,
                                          .divisor = task->divisor,
                                          .elements = task->elements,
                                          .n_inputs = task->n_inputs,
                                          .n_outputs = task->n_outputs,
                                          .statistics = task->statistics,
                                          .find = task->find };

        return task->seal == NULL && task->first <= LIMIT_ARENA && launch_kernel(&part) >= 0;
}

/* Adds an issue behind those of its user in the lane, so that tasks of one turn stay in their order. */
static void lane_add(struct issuer_lane *lane, struct issue *issue) {
        struct issue *first;

        issue->last = issue;
        list_for_each(first, &lane->waiting, link)
                if (first->user == issue->user) {
                        first->last->behind = issue;
                        first->last = issue;
                        return;
                }
        list_append(&lane->waiting, &issue->link);
}

/* Takes the first issue of a user out of the lane. The user's next issue comes into the list before
 * `at`. */
static void lane_drop_first(struct issue *first, struct list *at) {
        struct issue *successor = first->behind;

        if (successor != NULL) {
                successor->last = first->last;
                list_insert(at, &successor->link);
        }
        list_remove(&first->link);
        first->behind = NULL;
}

static struct issue *lane_find(struct issuer_lane *lane, uint64_t id, struct issue **ret_first,
                               struct issue **ret_before) {
        struct issue *first;

        list_for_each(first, &lane->waiting, link) {
                *ret_first = first;
                *ret_before = NULL;
                for (struct issue *at = first; at != NULL; at = at->behind) {
                        if (at->id == id)
                                return at;
                        *ret_before = at;
                }
        }
        return NULL;
}

/* Takes an issue out of the lane. NULL if it does not wait there. */
static struct issue *lane_take_out(struct issuer_lane *lane, uint64_t id) {
        struct issue *first, *before, *issue = lane_find(lane, id, &first, &before);

        if (issue == NULL || before == NULL) {
                if (issue != NULL)
                        lane_drop_first(issue, &issue->link);
                return issue;
        }
        before->behind = issue->behind;
        if (first->last == issue)
                first->last = before;
        issue->behind = NULL;
        return issue;
}

int issuer_submit(struct issuer *issuer, const struct backend_task *task) {
        struct issue *issue = issue_is_valid(task) ? issue_new(task) : NULL;

        if (issue == NULL)
                return issue_is_valid(task) ? -ENOMEM : -EINVAL;
        pthread_mutex_lock(&issuer->lock);
        lane_add(&issuer->lane[task->turn % LANES], issue);
        pthread_cond_signal(&issuer->work);
        pthread_mutex_unlock(&issuer->lock);
        return 0;
}

/* `lock` is held. */
static void issuer_end(struct issuer *issuer, struct issue *issue) {
        list_remove(&issue->link);
        list_append(&issuer->done, &issue->link);
        eventfd_write(issuer->wake, 1);
}

void issuer_cancel(struct issuer *issuer, uint64_t id) {
        pthread_mutex_lock(&issuer->lock);
        for (unsigned l = 0; l < LANES; l++) {
                struct issue *issue = lane_take_out(&issuer->lane[l], id);
                if (issue != NULL) {
                        issue->cancelled = true;
                        issuer_end(issuer, issue);
                }
        }
        pthread_mutex_unlock(&issuer->lock);
}

static void issue_deliver(struct issue *issue, backend_done_fn done, void *owner) {
        uint64_t found = issue->find && !issue->cancelled ? issue->words[0] : BACKEND_NOWHERE;
        struct backend_result result = {
                .id = issue->id,
                .cancelled = issue->cancelled,
                .n_inputs = issue->n_inputs,
                .found = found == BACKEND_NOWHERE ? BACKEND_NOWHERE : issue->first + found,
        };
        bool own = issue->own;

        if (!issue->statistics)
                memset(issue->words, 0, GRID_WORDS(issue->n_inputs) * sizeof(uint64_t));
        memcpy(&result.sum_squares, issue->words, sizeof(double));
        result.input_sum_squares = (const double *)(const void *)(issue->words + 1);
        result.input_nonfinite = issue->words + 1 + issue->n_inputs;
        done(owner, &result);
        if (own)
                free(issue);
}

int issuer_deliver(struct issuer *issuer, backend_done_fn done, void *owner, char *error, size_t size) {
        for (;;) {
                pthread_mutex_lock(&issuer->lock);
                struct issue *issue =
                        list_empty(&issuer->done) ? NULL : list_entry(issuer->done.next, struct issue, link);
                if (issue != NULL)
                        list_remove(&issue->link);
                int r = issue == NULL && issuer->failed[0] != '\0' ? -EIO : 0;
                if (r < 0)
                        snprintf(error, size, "%s", issuer->failed);
                pthread_mutex_unlock(&issuer->lock);
                if (issue == NULL)
                        return r;
                issue_deliver(issue, done, owner);
        }
}

/* ---- the thread: `lock` is held, except around calls of the driver ---- */

static void issuer_fail(struct issuer *issuer, const char *what, cuda_result result) {
        char name[64];

        if (issuer->failed[0] == '\0')
                snprintf(issuer->failed, sizeof(issuer->failed), "the GPU (%s) failed: %s: %s",
                         issuer->card->name, what,
                         cuda_error(&issuer->card->cuda, result, name, sizeof(name)));
        eventfd_write(issuer->wake, 1);
}

/* Gathers as many of the lane's tasks as go into one launch, of one user after the other. False if there are
 * none, or no slot is free. */
static bool lane_gather(struct issuer_lane *lane, struct issuer_slot *slot) {
        struct launch *launch = &slot->launch;

        if (lane->n == SLOTS || list_empty(&lane->waiting))
                return false;
        while (!list_empty(&lane->waiting)) {
                struct issue *issue = list_entry(lane->waiting.next, struct issue, link);
                if (list_empty(&slot->issues))
                        launch_init(launch, (unsigned)launch_kernel(&issue->part));
                if (!launch_add(launch, &issue->part, GRID_SCRATCH_WORDS, RESULT_WORDS))
                        break;
                lane_drop_first(issue, &lane->waiting);
                list_append(&slot->issues, &issue->link);
        }
        return true;
}

static cuda_result lane_launch(const struct card *card, struct issuer_lane *lane, struct issuer_slot *slot) {
        struct launch *launch = &slot->launch;
        void *parameters[] = { &launch->grid };

        launch->grid.ticket = lane->scratch;
        launch->grid.scratch = lane->scratch + sizeof(uint64_t);
        launch->grid.results = slot->device_results;
        cuda_result r = card->cuda.launch(card->kernel[launch->kernel], launch_blocks(launch, 0), 1, 1,
                                          GRID_THREADS, 1, 1, 0, lane->stream, parameters, NULL);

        return r == CUDA_OK ? card->cuda.event_record(slot->event, lane->stream) : r;
}

static bool issuer_launch(struct issuer *issuer, struct issuer_lane *lane) {
        struct issuer_slot *slot = &lane->slot[(lane->first + lane->n) % SLOTS];

        if (!lane_gather(lane, slot))
                return false;
        slot->since = clock_now();
        lane->n++;
        pthread_mutex_unlock(&issuer->lock);
        cuda_result r = lane_launch(issuer->card, lane, slot);
        pthread_mutex_lock(&issuer->lock);
        if (r != CUDA_OK)
                issuer_fail(issuer, "a reduction could not be launched", r);
        return true;
}

static void slot_end(struct issuer *issuer, struct issuer_slot *slot) {
        unsigned p = 0;

        while (!list_empty(&slot->issues)) {
                struct issue *issue = list_entry(slot->issues.next, struct issue, link);
                const struct grid_part *part = &slot->launch.grid.part[p++];
                memcpy(issue->words, slot->results + part->result,
                       launch_result_words(&issue->part) * sizeof(uint64_t));
                issuer_end(issuer, issue);
        }
}

/* Ends the lane's oldest launch if the GPU has done it. Returns whether it has. */
static bool issuer_look(struct issuer *issuer, struct issuer_lane *lane) {
        struct issuer_slot *slot = &lane->slot[lane->first];

        if (lane->n == 0)
                return false;
        pthread_mutex_unlock(&issuer->lock);
        cuda_result r = issuer->card->cuda.event_query(slot->event);
        pthread_mutex_lock(&issuer->lock);
        if (r == CUDA_OK) {
                slot_end(issuer, slot);
                lane->first = (lane->first + 1) % SLOTS;
                lane->n--;
        } else if (r != CUDA_NOT_READY) {
                issuer_fail(issuer, "a reduction did not end", r);
        } else if (clock_now() - slot->since > DEADLINE) {
                issuer_fail(issuer, "a reduction has not ended for a minute", CUDA_NOT_READY);
        }
        return r == CUDA_OK;
}

/* Waits for news, or for a moment if a launch is under way. */
static void issuer_rest(struct issuer *issuer, uint64_t busy_since) {
        struct timespec until;
        bool busy = false;

        for (unsigned l = 0; l < LANES; l++)
                busy |= issuer->lane[l].n > 0;
        if (!busy || issuer->failed[0] != '\0') {
                pthread_cond_wait(&issuer->work, &issuer->lock);
                return;
        }
        if (clock_now() - busy_since < LINGER) {
                pthread_mutex_unlock(&issuer->lock);
                sched_yield();
                pthread_mutex_lock(&issuer->lock);
                return;
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += NAP;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&issuer->work, &issuer->lock, &until);
}

static void *issuer_main(void *data) {
        struct issuer *issuer = data;
        uint64_t busy_since = 0;

        card_enter(issuer->card);
        pthread_mutex_lock(&issuer->lock);
        while (!issuer->stop) {
                bool news = false;
                issuer->answered = issuer->asked;
                for (unsigned l = 0; l < LANES && issuer->failed[0] == '\0'; l++) {
                        while (issuer_launch(issuer, &issuer->lane[l]) && issuer->failed[0] == '\0')
                                news = true;
                        while (issuer->failed[0] == '\0' && issuer_look(issuer, &issuer->lane[l]))
                                news = true;
                }
                if (news)
                        busy_since = clock_now();
                else
                        issuer_rest(issuer, busy_since);
        }
        pthread_mutex_unlock(&issuer->lock);
        return NULL;
}

/* ---- opening and closing ---- */

static cuda_result lane_open(struct issuer *issuer, struct issuer_lane *lane, cuda_address results,
                             unsigned number) {
        const struct cuda *cuda = &issuer->card->cuda;
        cuda_result r = cuda->stream_new(&lane->stream, CUDA_STREAM_NON_BLOCKING, 0);

        if (r == CUDA_OK)
                r = cuda->allocate(&lane->scratch, (GRID_SCRATCH_WORDS + 1) * sizeof(uint64_t));
        if (r == CUDA_OK) /* the ticket stands first in the scratch memory */
                r = cuda->set_async(lane->scratch, 0, sizeof(uint64_t), lane->stream);
        if (r == CUDA_OK)
                r = cuda->stream_wait(lane->stream);
        for (unsigned s = 0; s < SLOTS && r == CUDA_OK; s++) {
                struct issuer_slot *slot = &lane->slot[s];
                uint64_t at = ((uint64_t)number * SLOTS + s) * RESULT_WORDS;
                slot->results = issuer->results + at;
                slot->device_results = results + at * sizeof(uint64_t);
                r = cuda->event_new(&slot->event, CUDA_EVENT_DISABLE_TIMING);
        }
        return r;
}

static cuda_result issuer_open(struct issuer *issuer) {
        const struct cuda *cuda = &issuer->card->cuda;
        cuda_address results = 0;
        void *host = NULL;
        cuda_result r =
                cuda->host_alloc(&host, LANES * SLOTS * RESULT_WORDS * sizeof(uint64_t), CUDA_HOST_DEVICEMAP);

        issuer->results = host;
        if (r == CUDA_OK)
                r = cuda->host_address(&results, host, 0);
        for (unsigned l = 0; l < LANES && r == CUDA_OK; l++)
                r = lane_open(issuer, &issuer->lane[l], results, l);
        return r;
}

static void issuer_release(struct issuer *issuer) {
        const struct cuda *cuda = &issuer->card->cuda;

        for (unsigned l = 0; l < LANES; l++) {
                struct issuer_lane *lane = &issuer->lane[l];
                for (unsigned s = 0; s < SLOTS; s++)
                        if (lane->slot[s].event != NULL)
                                cuda->event_free(lane->slot[s].event);
                if (lane->stream != NULL)
                        cuda->stream_free(lane->stream);
                if (lane->scratch != 0)
                        cuda->free(lane->scratch);
        }
        if (issuer->results != NULL)
                cuda->host_free(issuer->results);
        pthread_cond_destroy(&issuer->work);
        pthread_mutex_destroy(&issuer->lock);
        free(issuer);
}

static void issuer_init(struct issuer *issuer) {
        pthread_condattr_t attributes;

        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&issuer->work, &attributes);
        pthread_condattr_destroy(&attributes);
        pthread_mutex_init(&issuer->lock, NULL);
        list_init(&issuer->done);
        for (unsigned l = 0; l < LANES; l++) {
                list_init(&issuer->lane[l].waiting);
                for (unsigned s = 0; s < SLOTS; s++)
                        list_init(&issuer->lane[l].slot[s].issues);
        }
}

int issuer_new(const struct card *card, int wake, struct issuer **ret, cuda_result *ret_cuda) {
        struct issuer *issuer = calloc(1, sizeof(*issuer));

        if (issuer == NULL)
                return -ENOMEM;
        issuer->card = card;
        issuer->wake = wake;
        issuer_init(issuer);
        *ret_cuda = issuer_open(issuer);
        int r = *ret_cuda == CUDA_OK ? thread_start(&issuer->thread, "gs-issuer", 0, issuer_main, issuer)
                                     : -EIO;
        if (r < 0) {
                issuer_release(issuer);
                return r;
        }
        *ret = issuer;
        return 0;
}

struct issuer *issuer_free(struct issuer *issuer) {
        if (issuer == NULL)
                return NULL;
        pthread_mutex_lock(&issuer->lock);
        issuer->stop = true;
        pthread_cond_signal(&issuer->work);
        pthread_mutex_unlock(&issuer->lock);
        pthread_join(issuer->thread, NULL);
        issuer_release(issuer);
        return NULL;
}

bool issuer_ping(struct issuer *issuer) {
        pthread_mutex_lock(&issuer->lock);
        bool silent = issuer->answered != issuer->asked++;
        pthread_cond_signal(&issuer->work);
        pthread_mutex_unlock(&issuer->lock);
        return silent;
}

uint64_t issuer_cpu_us(const struct issuer *issuer) {
        return thread_cpu_us(issuer->thread);
}
