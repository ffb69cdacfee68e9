/* SPDX-License-Identifier: Apache-2.0 */
/* See gradients.h. */
#include "gradients.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

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

struct reduction {
        struct gradsync_job *job;
        void *data;
        uint32_t n;
        int result;
};

static void *reduction_main(void *data) {
        struct reduction *it = data;

        it->result = gradsync_allreduce(it->job, it->data, it->n, GRADSYNC_F32, GRADSYNC_SUM);
        return NULL;
}

int gradients_allreduce(struct gradsync_job *job, uint32_t n, float value, char *out, size_t size) {
        unsigned char *gpu = gpu_stream() != NULL ? gpu_allocate(n * sizeof(float)) : NULL;
        struct reduction it = { job, gpu, n, GRADSYNC_SYSTEM };
        float *values = gpu_get(gpu, n * sizeof(float));
        pthread_t thread;

        for (uint32_t i = 0; i < n; i++)
                values[i] = value;
        gpu_put(gpu, values, n * sizeof(float));
        gpu_get(gpu, 1); /* which waits */
        if (pthread_create(&thread, NULL, reduction_main, &it) == 0)
                pthread_join(thread, NULL);
        values = gpu_get(gpu, n * sizeof(float));
        snprintf(out, size, "%g %g", (double)values[0], (double)values[n - 1]);
        gpu_free(gpu);
        return it.result;
}
