/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a context. See gpu.h. */
#include "gpu.h"

#define EVENTS 4096u

static struct event {
        bool there, freed;     /* freed: it goes when its records are over */
        unsigned pending;      /* records in queues */
        uint64_t issued, done; /* the last record that was asked for, and that was done */
} event[EVENTS];

static bool event_is(uint64_t number) {
        return number > 0 && number < EVENTS && event[number].there;
}

int event_new(uint64_t *ret) {
        for (unsigned i = 1; i < EVENTS; i++)
                if (!event[i].there && !event[i].freed) {
                        event[i] = (struct event){ .there = true };
                        *ret = i;
                        return CUDA_OK;
                }
        return CUDA_OUT_OF_MEMORY;
}

int event_free(uint64_t number) {
        if (!event_is(number))
                return CUDA_INVALID_HANDLE;
        event[number].there = false;
        event[number].freed = event[number].pending > 0;
        return CUDA_OK;
}

int event_query(uint64_t number) {
        if (!event_is(number))
                return CUDA_INVALID_HANDLE;
        return event[number].done >= event[number].issued ? CUDA_OK : CUDA_NOT_READY;
}

uint64_t event_issue(uint64_t number) {
        event[number].pending++;
        return ++event[number].issued;
}

/* An event is what its last record is. */
void event_note_done(uint64_t number, uint64_t record) {
        struct event *of = &event[number];

        if (record > of->done)
                of->done = record;
        of->pending--;
        if (of->freed && of->pending == 0)
                *of = (struct event){ 0 };
}

unsigned events_left(void) {
        unsigned n = 0;

        for (unsigned i = 1; i < EVENTS; i++)
                n += event[i].there;
        return n;
}
