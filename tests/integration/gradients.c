/* SPDX-License-Identifier: Apache-2.0 */
/* See gradients.h. */
#include "gradients.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "values.h"

void *gradients_view(const struct planned *p, uint32_t i) {
        return gpu_get(gradsync_gradient(p->plan, i), p->elements[i] * dtype_bytes(p->dtype[i]));
}

int gradients_ready(struct gradsync_plan *plan, uint32_t param) {
        if (gpu_stream() != NULL && !gpu_is_waited_for())
                return gradsync_ready_on(plan, param, gpu_stream());
        gpu_wait();
        return gradsync_ready(plan, param);
}

int gradients_absent(struct gradsync_plan *plan, uint32_t param) {
        if (gpu_stream() != NULL && !gpu_is_waited_for())
                return gradsync_absent_on(plan, param, gpu_stream());
        gpu_wait(); /* it is cleared in another stream */
        return gradsync_absent(plan, param);
}

void gradients_fill(const struct planned *p, double base, uint32_t first, uint32_t end) {
        for (uint32_t i = first; i < end; i++) {
                void *at = gradients_view(p, i);

                for (uint64_t j = 0; j < p->elements[i]; j++)
                        store(at, p->dtype[i], j, base + (double)(j % 4));
                gpu_put(gradsync_gradient(p->plan, i), at, p->elements[i] * dtype_bytes(p->dtype[i]));
        }
}

void gradients_check(const struct planned *p, double base, uint32_t first, uint32_t end, char *out,
                     size_t size) {
        snprintf(out, size, "right");
        for (uint32_t i = first; i < end; i++) {
                const void *at = gradients_view(p, i);

                for (uint64_t j = 0; j < p->elements[i]; j++) {
                        double is = load(at, p->dtype[i], j);

                        if (is == base + (double)(j % 4))
                                continue;
                        snprintf(out, size, "wrong: parameter %u, element %" PRIu64 " is %.17g", i, j, is);
                        return;
                }
        }
}

uint64_t gradients_wrong(const struct planned *p, double base, bool *ret_last) {
        uint64_t n = 0;

        *ret_last = load(gradients_view(p, 0), p->dtype[0], 0) >= LAST;
        for (uint32_t i = 0; i < p->n; i++) {
                const void *at = gradients_view(p, i);

                for (uint64_t j = 0; j < p->elements[i]; j++) /* of large values a third is not exact */
                        n += fabs(load(at, p->dtype[i], j) - base - (double)(j % 4) -
                                  (*ret_last ? LAST : 0)) > (*ret_last ? 0.01 : 0);
        }
        return n;
}

/* A collective in a thread that has no context. */
struct operation {
        struct gradsync_job *job;
        const char *kind;
        void *in, *out;
        uint64_t n;
        int result;
        char text[1024];
};

static int operation_call(const struct operation *it) {
        if (strcmp(it->kind, "sum") == 0)
                return gradsync_allreduce(it->job, it->in, it->n, GRADSYNC_F32, GRADSYNC_SUM);
        if (strcmp(it->kind, "allreduce") == 0)
                return gradsync_allreduce(it->job, it->in, it->n, GRADSYNC_U8, GRADSYNC_SUM);
        if (strcmp(it->kind, "broadcast") == 0)
                return gradsync_broadcast(it->job, it->in, it->n, 0);
        if (strcmp(it->kind, "allgather") == 0)
                return gradsync_allgather(it->job, it->in, it->out, it->n);
        return gradsync_reduce_scatter(it->job, it->in, it->out, it->n, GRADSYNC_U8, GRADSYNC_SUM);
}

static void *operation_main(void *data) {
        struct operation *it = data;

        it->result = operation_call(it);
        if (it->result != GRADSYNC_OK)
                snprintf(it->text, sizeof(it->text), "%s", gradsync_error());
        return NULL;
}

static void operation_run(struct operation *it) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, operation_main, it) != 0)
                abort();
        pthread_join(thread, NULL);
}

int gradients_count_ranks(struct gradsync_job *job, uint64_t *wrong) {
        double world = gradsync_world_size(job), sum = gradsync_rank(job) + 1.0;
        int r = gradsync_allreduce(job, &sum, 1, GRADSYNC_F64, GRADSYNC_SUM);

        *wrong += r == GRADSYNC_OK && sum != world * (world + 1) / 2;
        return r;
}

int gradients_allreduce(struct gradsync_job *job, uint32_t n, float value, char *out, size_t size) {
        unsigned char *gpu = gpu_stream() != NULL ? gpu_allocate(n * sizeof(float)) : NULL;
        struct operation it = { .job = job, .kind = "sum", .in = gpu, .n = n };
        float *values = gpu_get(gpu, n * sizeof(float));

        for (uint32_t i = 0; i < n; i++)
                values[i] = value;
        gpu_put(gpu, values, n * sizeof(float));
        gpu_get(gpu, 1); /* which waits */
        operation_run(&it);
        values = gpu_get(gpu, n * sizeof(float));
        if (it.result == GRADSYNC_OK)
                snprintf(out, size, "%g %g", (double)values[0], (double)values[n - 1]);
        else
                snprintf(out, size, "%s", it.text);
        gpu_free(gpu);
        return it.result;
}

/* Memory for a collective: on GPU 0 or 1, or in host memory. */
struct place {
        uint8_t *address;
        uint64_t bytes;
        bool host;
        unsigned gpu;
};

static struct place place_new(const char *where, uint64_t bytes) {
        struct place place = { .bytes = bytes, .host = strcmp(where, "host") == 0 };

        gpu_stream();
        place.gpu = place.host ? 0 : (unsigned)strtoul(where, NULL, 0);
        gpu_use(place.gpu);
        place.address = place.host ? malloc(bytes) : gpu_allocate(bytes);
        return place;
}

static uint8_t *place_view(const struct place *place) {
        gpu_use(place->gpu);
        return place->host ? place->address : gpu_get(place->address, place->bytes);
}

static void place_free(const struct place *place) {
        gpu_use(place->gpu);
        if (place->host)
                free(place->address);
        else
                gpu_free(place->address);
}

static uint8_t byte_of(uint32_t rank, uint64_t i) {
        return (uint8_t)(rank * 37 + i * 7 + 3);
}

/* Byte i of the output. */
static uint8_t byte_wanted(const struct operation *it, uint64_t i) {
        uint32_t world = gradsync_world_size(it->job);
        uint8_t sum = 0;

        if (strcmp(it->kind, "allgather") == 0)
                return byte_of((uint32_t)(i / it->n), i % it->n);
        if (strcmp(it->kind, "broadcast") == 0)
                return byte_of(0, i);
        if (strcmp(it->kind, "reduce_scatter") == 0)
                i += gradsync_rank(it->job) * it->n;
        for (uint32_t rank = 0; rank < world; rank++)
                sum = (uint8_t)(sum + byte_of(rank, i));
        return sum;
}

static void place_fill(const struct place *place, uint32_t rank) {
        uint8_t *view = place_view(place);

        for (uint64_t i = 0; i < place->bytes; i++)
                view[i] = byte_of(rank, i);
        if (!place->host)
                gpu_put(place->address, view, place->bytes);
        gpu_wait();
}

int gradients_collective(struct gradsync_job *job, char **word, char *out, size_t size) {
        struct operation it = { .job = job, .kind = word[1], .n = strtoull(word[2], NULL, 0) };
        uint64_t world = gradsync_world_size(job);
        bool same = strcmp(word[4], "same") == 0;
        struct place in = place_new(word[3], strcmp(it.kind, "reduce_scatter") == 0 ? it.n * world : it.n);
        struct place to =
                same ? in : place_new(word[4], strcmp(it.kind, "allgather") == 0 ? it.n * world : it.n);

        place_fill(&in, gradsync_rank(job));
        it.in = in.address;
        it.out = to.address;
        operation_run(&it);
        snprintf(out, size, "%s", it.result == GRADSYNC_OK ? "right" : it.text);
        const uint8_t *view = place_view(&to);
        for (uint64_t i = 0; i < to.bytes && it.result == GRADSYNC_OK; i++)
                if (view[i] != byte_wanted(&it, i)) {
                        snprintf(out, size, "wrong: byte %" PRIu64 " is %u", i, view[i]);
                        break;
                }
        place_free(&in);
        if (!same)
                place_free(&to);
        gpu_use(0);
        return it.result;
}

int gradients_mark_on(struct gradsync_plan *plan, const char *mark, unsigned gpu, uint32_t param) {
        gpu_stream();
        gpu_use(gpu);
        int r = strcmp(mark, "absent") == 0 ? gradsync_absent_on(plan, param, gpu_stream())
                                            : gradsync_ready_on(plan, param, gpu_stream());
        gpu_use(0);
        return r;
}
