/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least costs of the card and the driver: a copy within the card, a launch, an event. One process, on an
 * otherwise idle card.
 */
#include "clock.h"
#include "facts.h"
#include "latency.h"

enum {
        COPIES = 20,
        ROUNDS = 2000,
        LAUNCHES = 10000,     /* in a row */
        SHORT_NS = 50 * 1000, /* of a kernel that is slept for */
};

static const size_t copy_bytes = (size_t)1 << 30;

/* Buffers far larger than any cache of a card, copied by the driver. */
void fact_speed_copy(struct actor *actor) {
        static int64_t samples[COPIES];
        CUdeviceptr from, to;
        CUevent begin, end;
        CUstream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        CU(actor, cuMemAlloc, &from, copy_bytes);
        CU(actor, cuMemAlloc, &to, copy_bytes);
        driver_fill(actor, stream, from, copy_bytes, 0x5eed);
        driver_fill(actor, stream, to, copy_bytes, 0);
        CU(actor, cuEventCreate, &begin, CU_EVENT_DEFAULT);
        CU(actor, cuEventCreate, &end, CU_EVENT_DEFAULT);
        driver_warm_up(actor, stream);
        for (unsigned i = 0; i < COPIES; i++) {
                float ms = 0;

                CU(actor, cuEventRecord, begin, stream);
                CU(actor, cuMemcpyDtoDAsync, to, from, copy_bytes, stream);
                CU(actor, cuEventRecord, end, stream);
                driver_sync(actor, stream);
                CU(actor, cuEventElapsedTime, &ms, begin, end);
                samples[i] = (int64_t)((double)ms * 1e6);
        }
        if (driver_read32(actor, stream, to + copy_bytes - 4) != 0x5eed)
                actor_fail(actor, "the copy does not hold what was copied");
        samples_sort(samples, COPIES);
        if (samples[0] <= 0)
                actor_fail(actor, "a copy took no time");
        actor_note(actor,
                   "%d copies of 1 GiB within the card, read and written bytes counted: best %.0f GB/s, "
                   "median %.0f GB/s",
                   COPIES, 2 * (double)copy_bytes / (double)samples[0],
                   2 * (double)copy_bytes / (double)samples_percentile(samples, COPIES, 50));
        actor_answer(actor, "%.0f GB/s",
                     2 * (double)copy_bytes / (double)samples_percentile(samples, COPIES, 50));
}

void fact_speed_launch(struct actor *actor) {
        static int64_t samples[ROUNDS];
        CUstream stream;
        int64_t begin;
        double median;

        driver_open(actor);
        stream = driver_stream(actor);
        driver_warm_up(actor, stream);
        for (unsigned i = 0; i < ROUNDS; i++) {
                CUresult result;

                begin = clock_ns();
                driver_launch(actor, stream, KERNEL_IDLE, NULL);
                while ((result = CU_TRY(actor, cuStreamQuery, stream)) == CUDA_ERROR_NOT_READY)
                        ;
                driver_check(actor, "cuStreamQuery", result);
                samples[i] = clock_ns() - begin;
        }
        median = latency_note(actor, "from the launch of an empty kernel to its end seen by cuStreamQuery",
                              samples, ROUNDS);
        begin = clock_ns();
        for (unsigned i = 0; i < LAUNCHES; i++)
                driver_launch(actor, stream, KERNEL_IDLE, NULL);
        driver_sync(actor, stream);
        actor_note(actor, "%d launches in a row: %.2f us each", LAUNCHES,
                   (double)(clock_ns() - begin) / 1e3 / LAUNCHES);
        actor_answer(actor, "%.1f us", median);
}

/* The process asks for one event until it is there, and sleeps for another one after a kernel of SHORT_NS. */
void fact_speed_event(struct actor *actor) {
        static int64_t spun[ROUNDS], slept[ROUNDS];
        CUevent plain, blocking;
        struct counter counter;
        double median;
        CUstream stream;

        driver_open(actor);
        stream = driver_stream(actor);
        counter = counter_new(actor, stream);
        CU(actor, cuEventCreate, &plain, CU_EVENT_DISABLE_TIMING);
        CU(actor, cuEventCreate, &blocking, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
        driver_warm_up(actor, stream);
        for (unsigned i = 0; i < ROUNDS; i++) {
                CUresult result;
                int64_t begin = clock_ns();

                CU(actor, cuEventRecord, plain, stream);
                while ((result = CU_TRY(actor, cuEventQuery, plain)) == CUDA_ERROR_NOT_READY)
                        ;
                driver_check(actor, "cuEventQuery", result);
                spun[i] = clock_ns() - begin;
                begin = clock_ns();
                counter_launch(actor, stream, &counter, SHORT_NS);
                CU(actor, cuEventRecord, blocking, stream);
                CU(actor, cuEventSynchronize, blocking);
                slept[i] = clock_ns() - begin;
        }
        median = latency_note(actor, "from the record of an event to its being seen by cuEventQuery", spun,
                              ROUNDS);
        latency_note(actor, "a kernel of 50 us and a blocking event slept for", slept, ROUNDS);
        actor_answer(actor, "%.1f us", median);
}
