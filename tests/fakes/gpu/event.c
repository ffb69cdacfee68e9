/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a context. One that other processes have opened is in the machine's state, where their
 * contexts see it; only its own context records it. See gpu.h.
 */
#include <time.h>

#include "gpu.h"

#define EVENTS 4096u

struct event {
        bool there, freed; /* freed: it goes when its records are over */
        unsigned pending;  /* records in queues */
        struct machine_event own, *state;
};

static struct event event[EVENTS];

static bool event_is(uint64_t number) {
        return number > 0 && number < EVENTS && event[number].there;
}

static int event_add(struct machine_event *state, uint64_t *ret) {
        for (unsigned i = 1; i < EVENTS; i++)
                if (!event[i].there && !event[i].freed) {
                        event[i] = (struct event){ .there = true };
                        event[i].state = state != NULL ? state : &event[i].own;
                        *ret = i;
                        return CUDA_OK;
                }
        return CUDA_OUT_OF_MEMORY;
}

int event_new(uint64_t *ret) {
        return event_add(NULL, ret);
}

int event_free(uint64_t number) {
        if (!event_is(number))
                return CUDA_INVALID_HANDLE;
        event[number].there = false;
        event[number].freed = event[number].pending > 0;
        return CUDA_OK;
}

uint64_t event_issued(uint64_t number) {
        return event_is(number) ? __atomic_load_n(&event[number].state->issued, __ATOMIC_ACQUIRE) : 0;
}

bool event_is_done(uint64_t number, uint64_t record) {
        return !event_is(number) || __atomic_load_n(&event[number].state->done, __ATOMIC_ACQUIRE) >= record;
}

int event_query(uint64_t number) {
        if (!event_is(number))
                return CUDA_INVALID_HANDLE;
        return event_is_done(number, event_issued(number)) ? CUDA_OK : CUDA_NOT_READY;
}

void event_note_issued(uint64_t number) {
        __atomic_fetch_add(&event[number].state->issued, 1, __ATOMIC_RELEASE);
        event[number].pending++;
}

/* An event is what its last record is. */
void event_note_done(uint64_t number, uint64_t record) {
        struct event *of = &event[number];
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        of->state->done_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        if (record > of->state->done)
                __atomic_store_n(&of->state->done, record, __ATOMIC_RELEASE);
        of->pending--;
        if (of->freed && of->pending == 0)
                *of = (struct event){ 0 };
}

int event_time(uint64_t number, uint64_t *ret) {
        int r = event_query(number);

        if (r == CUDA_OK)
                *ret = event[number].state->done_ns;
        return r;
}

int event_share(struct machine *machine, uint64_t number, uint64_t *ret) {
        if (!event_is(number) || event[number].state != &event[number].own)
                return CUDA_INVALID_HANDLE;
        machine_enter(&machine->lock);
        *ret = machine->events < MACHINE_EVENTS ? ++machine->events : 0;
        pthread_mutex_unlock(&machine->lock);
        if (*ret == 0)
                return CUDA_OUT_OF_MEMORY;
        machine->event[*ret - 1] = event[number].own;
        event[number].state = &machine->event[*ret - 1];
        return CUDA_OK;
}

int event_open(struct machine *machine, uint64_t place, uint64_t *ret) {
        if (place == 0 || place > MACHINE_EVENTS)
                return CUDA_INVALID_HANDLE;
        return event_add(&machine->event[place - 1], ret);
}

unsigned events_left(void) {
        unsigned n = 0;

        for (unsigned i = 1; i < EVENTS; i++)
                n += event[i].there;
        return n;
}
