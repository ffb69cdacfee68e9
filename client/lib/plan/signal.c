/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signal thread and the queue of its buckets. Everything is under the connection's lock, except the
 * waiting itself. The thread takes a bucket out of the queue before it waits for its events. Afterwards the
 * bucket counts only if its plan is still there, in the same epoch.
 */
#include "client/lib/plan/signal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/device/device.h"
#include "client/lib/plan/plan.h"

struct signals {
        pthread_t thread;
        pthread_cond_t work;
        bool stop;
        struct signal_bucket *first, **last;
        struct signal_bucket *current; /* the thread waits for its events; NULL: none, or its plan has gone */
        cuda_event *useless;           /* events of plans that went while the thread waited for one of them */
        size_t n_useless;
};

static void signals_append(struct signals *signals, struct signal_bucket *bucket) {
        bucket->next = NULL;
        bucket->queued = true;
        *signals->last = bucket;
        signals->last = &bucket->next;
        pthread_cond_signal(&signals->work);
}

static void signals_remove(struct signals *signals, const struct signal_bucket *bucket) {
        struct signal_bucket **at = &signals->first;

        while (*at != NULL && *at != bucket)
                at = &(*at)->next;
        if (*at != NULL)
                *at = bucket->next;
        if (*at == NULL)
                signals->last = at;
}

static void signals_free_useless(struct signals *signals, struct device *device) {
        for (size_t i = 0; i < signals->n_useless; i++)
                device_free_event(device, signals->useless[i]);
        signals->n_useless = 0;
}

static void signals_wait_for(struct gradsync *gs, struct signals *signals, struct signal_bucket *bucket) {
        cuda_event event[SIGNAL_STREAMS];
        uint64_t epoch = bucket->epoch;
        unsigned n = bucket->n;
        int r = GRADSYNC_OK;

        for (unsigned i = 0; i < n; i++)
                event[i] = bucket->stream[i].event;
        signals->current = bucket;
        pthread_mutex_unlock(&gs->link.lock);
        for (unsigned i = 0; i < n && r == GRADSYNC_OK; i++)
                r = device_wait_event(gs->device, event[i]);
        pthread_mutex_lock(&gs->link.lock);
        if (r != GRADSYNC_OK)
                link_fail(&gs->link, r);
        else if (signals->current != NULL && bucket->epoch == epoch && bucket->plan->signal.epoch == epoch)
                bucket->plan->signal.done(bucket->plan, bucket->bucket);
        signals->current = NULL;
        signals_free_useless(signals, gs->device);
}

static void *signals_main(void *data) {
        struct gradsync *gs = data;
        struct signals *signals = gs->signals;

        pthread_mutex_lock(&gs->link.lock);
        while (!signals->stop) {
                struct signal_bucket *bucket = signals->first;
                if (bucket == NULL) {
                        pthread_cond_wait(&signals->work, &gs->link.lock);
                        continue;
                }
                signals_remove(signals, bucket);
                bucket->queued = false;
                signals_wait_for(gs, signals, bucket);
        }
        pthread_mutex_unlock(&gs->link.lock);
        return NULL;
}

/* The trainer's signals are not for this thread. */
static int signals_start(struct gradsync *gs) {
        struct signals *signals = calloc(1, sizeof(*signals));
        sigset_t all, before;

        if (signals == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for the signal thread");
        signals->last = &signals->first;
        pthread_cond_init(&signals->work, NULL);
        gs->signals = signals;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int r = pthread_create(&signals->thread, NULL, signals_main, gs);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r == 0) {
                pthread_setname_np(signals->thread, "gs-signal");
                return GRADSYNC_OK;
        }
        gs->signals = NULL;
        free(signals);
        return fail(GRADSYNC_SYSTEM, "the signal thread cannot be started: %s", strerror(r));
}

void signal_end(struct gradsync *gs) {
        struct signals *signals = gs->signals;

        if (signals == NULL)
                return;
        pthread_mutex_lock(&gs->link.lock);
        signals->stop = true;
        pthread_cond_signal(&signals->work);
        pthread_mutex_unlock(&gs->link.lock);
        pthread_join(signals->thread, NULL);
        signals_free_useless(signals, gs->device);
        pthread_cond_destroy(&signals->work);
        free(signals->useless);
        free(signals);
        gs->signals = NULL;
}

int signal_init(struct gradsync_plan *plan) {
        struct gradsync *gs = plan->job->gs;
        plan->signal.bucket = calloc(plan->layout.n_buckets, sizeof(*plan->signal.bucket));
        if (plan->signal.bucket == NULL)
                return fail(GRADSYNC_NO_MEMORY, "no memory for a plan");
        for (uint32_t b = 0; b < plan->layout.n_buckets; b++) {
                plan->signal.bucket[b].plan = plan;
                plan->signal.bucket[b].bucket = b;
        }
        return gs->signals == NULL ? signals_start(gs) : GRADSYNC_OK;
}

/* An event that the thread waits for cannot be freed now. */
static void signals_keep_event(struct signals *signals, cuda_event event) {
        cuda_event *grown = realloc(signals->useless, (signals->n_useless + 1) * sizeof(*grown));

        if (grown == NULL)
                return;
        signals->useless = grown;
        grown[signals->n_useless++] = event;
}

void signal_deinit(struct gradsync_plan *plan) {
        struct gradsync *gs = plan->job->gs;
        struct signals *signals = gs->signals;

        for (uint32_t b = 0; plan->signal.bucket != NULL && b < plan->layout.n_buckets; b++) {
                struct signal_bucket *bucket = &plan->signal.bucket[b];
                bool waited = signals != NULL && signals->current == bucket;
                if (bucket->queued && signals != NULL)
                        signals_remove(signals, bucket);
                if (waited)
                        signals->current = NULL;
                for (unsigned i = 0; i < SIGNAL_STREAMS; i++)
                        if (waited && bucket->stream[i].event != NULL)
                                signals_keep_event(signals, bucket->stream[i].event);
                        else if (gs->device != NULL)
                                device_free_event(gs->device, bucket->stream[i].event);
        }
        free(plan->signal.bucket);
        plan->signal.bucket = NULL;
}

void signal_begin(struct gradsync_plan *plan) {
        plan->signal.epoch++;
        for (uint32_t b = 0; plan->signal.bucket != NULL && b < plan->layout.n_buckets; b++)
                plan->signal.bucket[b].n = 0;
}

int signal_record(struct gradsync_plan *plan, uint32_t b, cuda_stream stream) {
        struct signal_bucket *bucket = &plan->signal.bucket[b];
        unsigned i = 0;

        while (i < bucket->n && bucket->stream[i].stream != stream)
                i++;
        if (i == SIGNAL_STREAMS)
                return fail(GRADSYNC_UNSUPPORTED,
                            "job '%s', bucket %u: its gradients come from more than %u streams",
                            plan->job->name, b, SIGNAL_STREAMS);
        int r = device_record(plan->job->gs->device, &bucket->stream[i].event, stream);
        if (r == GRADSYNC_OK && i == bucket->n) {
                bucket->stream[i].stream = stream;
                bucket->n++;
        }
        return r;
}

bool signal_defer(struct gradsync_plan *plan, uint32_t b, signal_done_fn done) {
        struct signal_bucket *bucket = plan->signal.bucket != NULL ? &plan->signal.bucket[b] : NULL;

        if (bucket == NULL || bucket->n == 0)
                return false;
        plan->signal.done = done;
        bucket->epoch = plan->signal.epoch;
        if (!bucket->queued)
                signals_append(plan->job->gs->signals, bucket);
        return true;
}
